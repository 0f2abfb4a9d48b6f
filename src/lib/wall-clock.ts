// Converts between moments and wall-clock times. A wall-clock time is a Date whose UTC fields are the local ones. Some
// times do not exist when the clock is put forward, and some occur twice when it is put back.

const formats = new Map<string, Intl.DateTimeFormat>()

/** Throws a RangeError for an unknown timezone. */
function formatOf(timezone: string): Intl.DateTimeFormat {
  const name = timezone.toLowerCase()
  const known = formats.get(name)
  if (known) return known
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone: timezone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  })
  formats.set(name, format)
  return format
}

/** Returns whether a name is in the IANA database. Offsets are not. */
export function isTimezone(name: string): boolean {
  if (/^[+-]/.test(name)) return false
  try {
    formatOf(name)
    return true
  } catch {
    return false
  }
}

/** Returns the wall-clock time at a moment, to the second. */
export function toWallClock(moment: Date, timezone: string): Date {
  const parts = formatOf(timezone).formatToParts(moment)
  const { year, month, day, hour, minute, second } = Object.fromEntries(
    parts.map(({ type, value }) => [type, Number(value)]),
  ) as Record<Intl.DateTimeFormatPartTypes, number>
  return new Date(Date.UTC(year, month - 1, day, hour, minute, second))
}

const DAY = 24 * 60 * 60 * 1000
const SECOND = 1000

/**
 * Returns the first moment at which the clock shows this time or later: the first of two occurrences, or the moment of
 * the change for a skipped time.
 */
export function toMoment(wallClock: Date, timezone: string): Date {
  const reading = wallClock.getTime()
  const offsetAt = (time: number) =>
    toWallClock(new Date(time), timezone).getTime() - Math.floor(time / SECOND) * SECOND
  const offsets = [offsetAt(reading - DAY), offsetAt(reading + DAY)]
  let [early, late] = [reading - Math.max(...offsets), reading - Math.min(...offsets)]
  for (const time of [early, late]) if (time + offsetAt(time) === reading) return new Date(time)
  while (late - early > SECOND) {
    const middle = early + Math.floor((late - early) / 2 / SECOND) * SECOND
    if (middle + offsetAt(middle) < reading) early = middle
    else late = middle
  }
  return new Date(late)
}
