import { Cron } from 'croner'
import { invalidField } from '../errors.ts'

/** When a mission runs, as it is stored. */
export type Schedule = {
  scheduleType: 'none' | 'once' | 'cron' | 'continuous'
  scheduleValue: string | null
  timezone: string
}

const DEFAULT_PAUSE = 60
const MAX_PAUSE = 30 * 24 * 60 * 60

/** Throws a 400 that says what is wrong with it. `now` is what a date must be after. */
export function checkSchedule({ scheduleType, scheduleValue, timezone }: Schedule, now: Date): void {
  try {
    new Intl.DateTimeFormat('en', { timeZone: timezone })
  } catch {
    throw invalidField('schedule.timezone', 'an IANA timezone, like Europe/Berlin')
  }
  if (scheduleType === 'cron') checkCron(scheduleValue ?? '', timezone, now)
  if (scheduleType === 'once' && parseDate(scheduleValue ?? '', timezone) <= now) {
    throw invalidField('schedule.value', 'a date in the future')
  }
  if (scheduleType === 'continuous' && scheduleValue !== null) {
    const pause = /^\d{1,7}$/.test(scheduleValue) ? Number(scheduleValue) : 0
    if (pause < 1 || pause > MAX_PAUSE) throw invalidField('schedule.value', `seconds from 1 to ${MAX_PAUSE}`)
  }
}

function checkCron(expression: string, timezone: string, now: Date): void {
  const fields = expression.trim().split(/\s+/).length
  if (fields !== 5 && fields !== 6) throw invalidField('schedule.value', 'a cron expression of five or six fields')
  try {
    if (new Cron(expression, { timezone, paused: true }).nextRun(now)) return
  } catch (error) {
    const why = error instanceof Error ? error.message.replace(/^\w+: /, '') : ''
    throw invalidField('schedule.value', `a cron expression. ${why}`)
  }
  throw invalidField('schedule.value', 'a cron expression that is ever due')
}

/** An ISO 8601 date and time; without an offset it is local to the timezone. */
function parseDate(text: string, timezone: string): Date {
  const [, local, offset] = /^(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)(Z|[+-]\d\d:\d\d)?$/.exec(text) ?? []
  const date = new Date(`${local}${offset ?? 'Z'}`)
  if (!local || Number.isNaN(date.getTime())) throw invalidField('schedule.value', 'an ISO 8601 date and time')
  if (offset) return date
  // croner knows of clock changes: a local time that is skipped is the next one there is.
  return (
    new Cron(local.length === 16 ? `${local}:00` : local.slice(0, 19), { timezone, paused: true }).nextRun(
      new Date(0),
    ) ?? date
  )
}

/** The first fire time after a moment; null when there is none. A continuous mission's comes when its run ends. */
export function nextFire({ scheduleType, scheduleValue, timezone }: Schedule, after: Date): Date | null {
  if (scheduleType === 'cron') return new Cron(scheduleValue ?? '', { timezone, paused: true }).nextRun(after)
  if (scheduleType !== 'once') return null
  const date = parseDate(scheduleValue ?? '', timezone)
  return date > after ? date : null
}

/** When a schedule begins that was set, or resumed, now. */
export const firstFire = (schedule: Schedule, now: Date): Date | null =>
  schedule.scheduleType === 'continuous' ? now : nextFire(schedule, now)

/** The pause of a continuous mission, in milliseconds. */
export const pauseOf = ({ scheduleValue }: Schedule): number => Number(scheduleValue ?? DEFAULT_PAUSE) * 1000

/** The next so many fire times. */
export function nextFires(schedule: Schedule, after: Date, count: number): Date[] {
  const fires: Date[] = []
  for (let next = nextFire(schedule, after); next && fires.length < count; next = nextFire(schedule, next)) {
    fires.push(next)
  }
  return fires
}

/** The last fire time that is not after `now`, from one that is due on. */
export function lastDue(schedule: Schedule, due: Date, now: Date): Date {
  let last = due
  for (let next = nextFire(schedule, last); next && next <= now; next = nextFire(schedule, last)) last = next
  return last
}
