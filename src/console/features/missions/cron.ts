import { missions } from '../../texts/missions.ts'

const t = missions.words

/** Reads a field with one number up to `most`, or several, or a range of them. Null for anything else. */
function numbers(field: string, most: number): number[] | null {
  const range = /^(\d{1,2})-(\d{1,2})$/.exec(field)
  if (range) {
    const [from, to] = [Number(range[1]), Number(range[2])]
    return from <= to && to <= most ? Array.from({ length: to - from + 1 }, (_, index) => from + index) : null
  }
  const list = /^\d{1,2}(,\d{1,2})*$/.test(field) ? field.split(',').map(Number) : []
  return list.length && list.every((each) => each <= most) ? list : null
}

/** Reads a step that divides its unit evenly, such as the 15 of "*" + "/15" in an hour. */
function step(field: string, unit: number): number | null {
  const found = field === '*' ? 1 : Number(/^\*\/(\d{1,2})$/.exec(field)?.[1])
  return found && unit % found === 0 ? found : null
}

const padded = (value: number) => String(value).padStart(2, '0')

function weekdays(days: readonly number[]): string {
  const names = days.map((day) => t.weekdays[day % 7] ?? '')
  const isRange = days.length > 2 && days.every((day, index) => index === 0 || day === (days[index - 1] ?? 0) + 1)
  if (isRange) return t.range(names[0] ?? '', names.at(-1) ?? '')
  return names.length === 1 ? t.every(names[0] ?? '') : t.list(names)
}

/** Describes a cron expression of a common form, such as "Monday to Friday at 08:00". Returns null for the others. */
export function cronInWords(expression: string): string | null {
  const [minute = '', hour = '', day = '', month = '', weekday = '', ...rest] = expression.trim().split(/\s+/)
  if (rest.length || month !== '*') return null
  const isDaily = day === '*' && weekday === '*'
  const minutes = step(minute, 60)
  if (minutes) return isDaily && hour === '*' ? t.minutes(minutes) : null
  const [at, ...more] = numbers(minute, 59) ?? []
  if (at === undefined || more.length) return null
  const hours = step(hour, 24)
  if (hours) return !isDaily ? null : at === 0 ? t.hours(hours) : hours === 1 ? t.pastHour(padded(at)) : null
  const times = numbers(hour, 23)
  if (!times) return null
  const when = t.list(times.map((each) => `${padded(each)}:${padded(at)}`))
  if (isDaily) return t.daily(when)
  if (day === '*') {
    const days = numbers(weekday, 7)
    return days && t.at(weekdays(days), when)
  }
  const days = weekday === '*' ? numbers(day, 31) : null
  return days && t.at(t.monthly(days), when)
}
