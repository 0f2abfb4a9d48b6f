import { Cron } from 'croner'
import type { z } from 'zod'
import { invalidField } from '../errors.ts'
import { IN_RANGE, isInRange } from '../lib/fields.ts'
import { isTimezone, toMoment, toWallClock } from '../lib/wall-clock.ts'
import type { ScheduleChange } from './schema.ts'

/** A schedule as stored. */
export type Schedule = {
  scheduleType: 'none' | 'once' | 'cron' | 'continuous'
  scheduleValue: string | null
  timezone: string
}

type FullSchedule = Schedule & { overlap: 'skip' | 'queue'; catchUp: 'last' | 'skip'; maxRuns: number | null }

export const NO_SCHEDULE: FullSchedule = {
  scheduleType: 'none',
  scheduleValue: null,
  timezone: 'UTC',
  overlap: 'skip',
  catchUp: 'last',
  maxRuns: null,
}

/**
 * Applies a change to a schedule. Absent fields stay, null is the default, and a value is reset when the type changes.
 */
export function changeSchedule(before: FullSchedule, change: z.output<typeof ScheduleChange> | null): FullSchedule {
  if (!change) return NO_SCHEDULE
  const { type = before.scheduleType, value, timezone, overlap, catchUp, maxRuns } = change
  const kept = type === before.scheduleType ? before.scheduleValue : null
  return {
    scheduleType: type,
    scheduleValue: value === undefined ? kept : value,
    timezone: timezone === undefined ? before.timezone : (timezone ?? NO_SCHEDULE.timezone),
    overlap: overlap === undefined ? before.overlap : (overlap ?? NO_SCHEDULE.overlap),
    catchUp: catchUp === undefined ? before.catchUp : (catchUp ?? NO_SCHEDULE.catchUp),
    maxRuns: maxRuns === undefined ? before.maxRuns : maxRuns,
  }
}

/** Returns whether two schedules have the same fire times and number of runs. */
export const isSameTime = (a: FullSchedule, b: FullSchedule): boolean =>
  a.scheduleType === b.scheduleType &&
  a.scheduleValue === b.scheduleValue &&
  a.timezone === b.timezone &&
  a.maxRuns === b.maxRuns

const DEFAULT_PAUSE = 60
const MAX_PAUSE = 30 * 24 * 60 * 60

/** Throws a 400 that states the error of a schedule. Dates must be after `now`. */
export function checkSchedule(schedule: Schedule, now: Date): void {
  const { scheduleType, scheduleValue, timezone } = schedule
  if (!isTimezone(timezone)) throw invalidField('schedule.timezone', 'an IANA timezone, like Europe/Berlin')
  if (scheduleType === 'cron') checkCron(schedule, now)
  if (scheduleType === 'once') {
    const date = parseDate(schedule)
    if (date <= now) throw invalidField('schedule.value', 'a date in the future')
    if (!isInRange(date)) throw invalidField('schedule.value', IN_RANGE)
  }
  if (scheduleType === 'continuous' && scheduleValue !== null) {
    const pause = /^\d{1,7}$/.test(scheduleValue) ? Number(scheduleValue) : 0
    if (pause < 1 || pause > MAX_PAUSE) throw invalidField('schedule.value', `seconds from 1 to ${MAX_PAUSE}`)
  }
}

/** Names of cron expressions in crontabs, which are refused with the expression. */
const CRON_NAMES: ReadonlyMap<string, string> = new Map([
  ['@yearly', '0 0 1 1 *'],
  ['@annually', '0 0 1 1 *'],
  ['@monthly', '0 0 1 * *'],
  ['@weekly', '0 0 * * 0'],
  ['@daily', '0 0 * * *'],
  ['@midnight', '0 0 * * *'],
  ['@hourly', '0 * * * *'],
])

/** A wrong day or month in a message of croner, which counts both from 0. */
const COUNTED_FROM_0 = /(?<=^Invalid value for (?:day|month|nearestWeekdays): )-?\d+/
const asWritten = (value: string): string => String(Number(value) + 1)

function checkCron(schedule: Schedule, now: Date): void {
  const value = schedule.scheduleValue?.trim() ?? ''
  const fields = value.match(/\S+/g)?.length
  if (fields !== 5 && fields !== 6) {
    const named = CRON_NAMES.get(value.toLowerCase())
    throw invalidField(
      'schedule.value',
      'a cron expression of five or six fields',
      named
        ? `Send \`${named}\` instead of ${value}.`
        : `This one has ${fields ?? 'none'}. Send one like \`0 9 * * 1-5\`: nine on weekdays.`,
    )
  }
  let next: Date | null
  try {
    next = nextFire(schedule, now)
  } catch (error) {
    const why = error instanceof Error ? error.message.replace(/^\w+: /, '').replace(COUNTED_FROM_0, asWritten) : ''
    throw invalidField('schedule.value', `a cron expression. ${why}`, 'Send one like `0 9 * * 1-5`: nine on weekdays.')
  }
  if (!next) throw invalidField('schedule.value', 'a cron expression with at least one fire time')
}

/**
 * Parses an ISO 8601 date and time. Without an offset it is local to the timezone. Digits after the milliseconds, which
 * Python and Go write, are dropped.
 */
function parseDate({ scheduleValue, timezone }: Schedule): Date {
  const [, day, time, offset] =
    /^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)([Zz]|[+-]\d\d:?\d\d)?$/.exec(
      (scheduleValue ?? '').replace(/(?<=:\d\d\.\d{3})\d{1,6}/, ''),
    ) ?? []
  const local = new Date(`${day}T${time}Z`)
  const date = new Date(`${day}T${time}${offset?.toUpperCase() ?? 'Z'}`)
  // JavaScript accepts February 30 as March 2.
  const isDate = !Number.isNaN(date.getTime()) && local.toISOString().slice(0, 10) === day
  if (!isDate) throw invalidField('schedule.value', 'an ISO 8601 date and time', 'Send one like 2026-01-31T09:00:00Z.')
  return offset ? date : toMoment(local, timezone)
}

/**
 * Returns the pattern of a cron expression, which is matched against wall-clock times and ignores clock changes. A
 * skipped local time runs at the next existing one, a repeated one once (contract.md section 7).
 */
function patternOf({ scheduleValue }: Schedule): Cron {
  const [, , day = '', , weekday = ''] = fieldsOf(scheduleValue)
  // Standard cron semantics: if both day fields are restricted, either matches; if one begins with a star, both must
  // match.
  const domAndDow = isWild(day) || isWild(weekday)
  return new Cron(scheduleValue ?? '', { timezone: 'UTC', paused: true, domAndDow })
}

/** Returns the five fields of a cron expression, without the seconds of a six-field one. */
const fieldsOf = (value: string | null): string[] => (value ?? '').trim().split(/\s+/).slice(-5)

const isWild = (field: string): boolean => /^[*?]/.test(field)

/** Upper bound for the time by which a clock is set back (ms). */
const MAX_SET_BACK = 3 * 60 * 60 * 1000
const SECOND = 1000

const floor = (time: number): number => Math.floor(time / SECOND) * SECOND

/**
 * Returns the fire time after a moment among the wall-clock times that repeat because the clock is set back. Fixed
 * times already ran. Expressions whose minute or hour begins with a star run again (the rule of Debian's cron). Returns
 * null if there is none.
 */
function nextRepeated(schedule: Schedule, after: Date): Date | null {
  const [minute = '', hour = ''] = fieldsOf(schedule.scheduleValue)
  if (!isWild(minute) && !isWild(hour)) return null
  const { timezone } = schedule
  const readingAt = (time: number) => toWallClock(new Date(time), timezone)
  const offsetAt = (time: number) => readingAt(time).getTime() - time
  const pattern = patternOf(schedule)
  const start = floor(after.getTime())
  const offset = offsetAt(start)
  /** Returns the next fire time with a constant clock offset. */
  const from = (time: number, before: Date) => {
    const reading = pattern.nextRun(before)
    const fire = reading && time + reading.getTime() - readingAt(time).getTime()
    return fire && offsetAt(fire) === offsetAt(time) ? new Date(fire) : null
  }
  let [early, late] = [start, start + MAX_SET_BACK]
  if (offsetAt(late) >= offset) return offsetAt(start - MAX_SET_BACK) > offset ? from(start, readingAt(start)) : null
  while (late - early > SECOND) {
    const middle = early + floor((late - early) / 2)
    if (offsetAt(middle) === offset) early = middle
    else late = middle
  }
  return from(late, new Date(readingAt(late).getTime() - SECOND))
}

/** Returns the first fire time after a moment, or null. A continuous mission gets its fire time when its run ends. */
export function nextFire(schedule: Schedule, after: Date): Date | null {
  const { scheduleType, timezone } = schedule
  if (scheduleType === 'once') {
    const date = parseDate(schedule)
    return date > after ? date : null
  }
  if (scheduleType !== 'cron') return null
  const pattern = patternOf(schedule)
  let reading = pattern.nextRun(toWallClock(after, timezone))
  for (; reading; reading = pattern.nextRun(reading)) {
    const fire = toMoment(reading, timezone)
    // Otherwise the clock was set back and this wall-clock time is over.
    if (fire <= after) continue
    const repeated = nextRepeated(schedule, after)
    return repeated && repeated < fire ? repeated : fire
  }
  return null
}

/** Returns the first fire time of a schedule that is set or resumed now. */
export const firstFire = (schedule: Schedule, now: Date): Date | null =>
  schedule.scheduleType === 'continuous' ? now : nextFire(schedule, now)

/** Returns whether a mission has had all the runs that its schedule allows. */
export const hasAllRuns = ({ maxRuns, runCount }: { maxRuns: number | null; runCount: number }): boolean =>
  maxRuns !== null && runCount >= maxRuns

const MAX_BACKOFF = 60 * 60

/**
 * Returns the pause of a continuous mission (seconds). It doubles with each consecutive failure, up to an hour or the
 * mission's own pause if that is longer.
 */
export function pauseOf({ scheduleValue, failureCount }: Schedule & { failureCount: number }): number {
  const pause = Number(scheduleValue ?? DEFAULT_PAUSE)
  return failureCount === 0 ? pause : Math.max(pause, Math.min(pause * 2 ** failureCount, MAX_BACKOFF))
}

const MAX_COUNTED = 1_000

/** Counts the fire times from one that is due to `last`, both included: at most 1,000. */
export function countDue(schedule: Schedule, due: Date, last: Date): number {
  let count = 0
  for (let next: Date | null = due; next && next <= last && count < MAX_COUNTED; next = nextFire(schedule, next))
    count++
  return count
}

/** Returns the next `count` fire times. */
export function nextFires(schedule: Schedule, after: Date, count: number): Date[] {
  const fires: Date[] = []
  for (let next = nextFire(schedule, after); next && fires.length < count; next = nextFire(schedule, next)) {
    fires.push(next)
  }
  return fires
}

/** Returns the last fire time that is not after `now`, starting from one that is due. */
export function lastDue(schedule: Schedule, due: Date, now: Date): Date {
  if (schedule.scheduleType !== 'cron') return due
  const { timezone } = schedule
  const [reading] = patternOf(schedule).previousRuns(1, toWallClock(now, timezone))
  const near = reading ? toMoment(reading, timezone) : due
  let last = near > due ? near : due
  for (let next = nextFire(schedule, last); next && next <= now; next = nextFire(schedule, last)) last = next
  return last
}
