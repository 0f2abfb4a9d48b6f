import { asText } from '../unknown.ts'

/** Returns a number that is written as text, or null. */
export function numberOf(value: unknown): number | null {
  const text = asText(value)
  return /^\d+(\.\d+)?$/.test(text) ? Number(text) : null
}

/**
 * Returns the delay of a `Retry-After` (ms): seconds, a duration, or a date. Returns null for anything else. Proxies
 * join repeated headers to a list, of which the first counts.
 */
export function delayOf(value: unknown, now: number): number | null {
  const text = asText(value).trim()
  const first = /^\d[\w.]*(?=, ?\d)/.exec(text)?.[0] ?? text
  const seconds = numberOf(first)
  if (seconds !== null) return seconds * 1000
  const duration = durationOf(first)
  if (duration !== null) return duration
  // A negative number would be a year.
  const date = /^-?[\d.]+$/.test(text) ? Number.NaN : Date.parse(text)
  return Number.isNaN(date) ? null : Math.max(0, date - now)
}

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Returns a duration such as `1m30s` or `450ms` (ms). */
export function durationOf(text: string): number | null {
  if (!/^(?:\d+(?:\.\d+)?(?:ms|[smhd]))+$/.test(text)) return null
  return [...text.matchAll(/([\d.]+)(ms|[smhd])/g)].reduce(
    (sum, [, count, unit = '']) => sum + Number(count) * (UNITS[unit] ?? 0),
    0,
  )
}
