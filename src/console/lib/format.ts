import { now } from './clock.ts'

// Formats numbers, times and sizes in the person's language.

// The narrow style writes minutes as meters in some languages.
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto', style: 'short' })
const day = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' })
const full = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' })
const dateOfUtc = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeZone: 'UTC' })
const dayOfUtc = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', timeZone: 'UTC' })
const compact = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 })
const whole = new Intl.NumberFormat()
const tenths = new Intl.NumberFormat(undefined, { minimumFractionDigits: 1, maximumFractionDigits: 1 })

/** Formats the age of a moment, or its day. */
export function ago(iso: string): string {
  const seconds = Math.round((new Date(iso).getTime() - now()) / 1000)
  const distance = Math.abs(seconds)
  if (distance < 60) return relative.format(Math.trunc(seconds / 10) * 10, 'second')
  if (distance < 3_600) return relative.format(Math.trunc(seconds / 60), 'minute')
  if (distance < 86_400) return relative.format(Math.trunc(seconds / 3_600), 'hour')
  if (distance < 7 * 86_400) return relative.format(Math.trunc(seconds / 86_400), 'day')
  return day.format(new Date(iso))
}

const fullIn = (timeZone: string) =>
  new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short', timeZone })

/** Returns whether the browser has the rules of a time zone. The server may have newer ones. */
function hasTimeZone(timeZone: string): boolean {
  try {
    return fullIn(timeZone) !== undefined
  } catch {
    return false
  }
}

/** Writes a moment in the time zone of the person, or in one that is named: in UTC if the browser lacks that one. */
export function moment(iso: string, timeZone?: string): string {
  const date = new Date(iso)
  if (!timeZone) return full.format(date)
  return hasTimeZone(timeZone) ? fullIn(timeZone).format(date) : `${fullIn('UTC').format(date)} UTC`
}

/** Returns the time zone of the person, or UTC if the browser cannot find it out: then it names none, or `Etc/Unknown`. */
export function ownTimeZone(): string {
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions()
  return timeZone && hasTimeZone(timeZone) ? timeZone : 'UTC'
}

/** Formats a day of UTC, such as a period of the usage report. */
export const utcDay = (at: number): string => dayOfUtc.format(at)

/** Formats a date of UTC (`2026-12-31`), with its year. */
export const utcDate = (date: string): string => dateOfUtc.format(new Date(date))

export const count = (value: number): string => whole.format(value)
export const short = (value: number): string => (value < 10_000 ? whole.format(value) : compact.format(value))

/** Formats a duration (ms). */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < 60_000) return `${tenths.format(ms / 1_000)} s`
  const minutes = Math.floor(ms / 60_000)
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1_000)} s`
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

/** Formats a size (bytes). */
export function size(bytes: number): string {
  if (bytes < 1_024) return `${bytes} B`
  if (bytes < 1_048_576) return `${tenths.format(bytes / 1_024)} KB`
  return `${tenths.format(bytes / 1_048_576)} MB`
}

/** Signs that change the order of the letters around them, and so may hide what a person approves. */
const REORDERING = /[\u202a-\u202e\u2066-\u2069]/g

/** Formats a value as indented JSON, in which all letters stand in their order. */
export const pretty = (value: unknown): string =>
  typeof value === 'string'
    ? value
    : (JSON.stringify(value, null, 2) ?? '').replace(REORDERING, (sign) => `\\u${sign.charCodeAt(0).toString(16)}`)
