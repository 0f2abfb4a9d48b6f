import type { z } from 'zod'
import { nearest } from './nearest.ts'
import { toPrintable } from './text.ts'

// Describes failed checks of input: the message of each issue of Zod, and the advice beside it.

const TYPE_NAMES: Record<string, string> = { int: 'integer', record: 'object', nan: 'number' }

/**
 * Returns the message of a failed check, for `z.config({ customError })`: contract.md section 1 to the letter for
 * missing fields and wrong types, the same pattern for limits. A schema's own `error` takes precedence.
 */
export function describeIssue(issue: z.core.$ZodRawIssue): string {
  const within = issue.code === 'invalid_union' ? nearestIssue(issue.errors, issue.input) : null
  if (within) return describeWithin(issue, within)
  const field = (issue.path ?? []).join('.') || 'body'
  const expected = (what: string) => `Invalid value for field: ${field}. Expected ${what}`
  switch (issue.code) {
    case 'invalid_type':
      if (issue.input === undefined || issue.input === null) return `Missing required field: ${field}`
      return expected(TYPE_NAMES[issue.expected] ?? issue.expected)
    case 'too_big':
      return expected(
        `${issue.inclusive === false ? 'less than' : 'at most'} ${issue.maximum}${unit(issue.origin, issue.maximum)}`,
      )
    case 'too_small':
      return expected(
        `${issue.inclusive === false ? 'more than' : 'at least'} ${issue.minimum}${unit(issue.origin, issue.minimum)}`,
      )
    case 'invalid_value':
      if (issue.input === undefined) return `Missing required field: ${field}`
      return expected(`one of: ${issue.values.map(String).join(', ')}`)
    case 'invalid_format':
      return expected(issue.format === 'datetime' ? 'ISO 8601 timestamp' : issue.format)
    default:
      return `Invalid value for field: ${field}`
  }
}

/**
 * Returns the mistake in the alternative of a union that a value comes closest to: one that has the type of the value.
 * Otherwise returns a mistake that names the types of all. Null for no alternatives, and for a missing value.
 */
function nearestIssue(alternatives: z.core.$ZodIssue[][], value: unknown): z.core.$ZodIssue | null {
  const issues = alternatives.flatMap(([first]) => first ?? [])
  const isOfType = ({ code, path }: z.core.$ZodIssue) => code !== 'invalid_type' || path.length > 0
  const ofType = issues.filter(isOfType).sort((one, other) => other.path.length - one.path.length)
  if (ofType[0]) return ofType[0]
  const types = issues.flatMap((issue) =>
    issue.code === 'invalid_type' ? (TYPE_NAMES[issue.expected] ?? issue.expected) : [],
  )
  if (!types.length) return null
  const expected = [...new Set(types)].join(' or ') as 'string'
  return { code: 'invalid_type', expected, path: [], input: value, message: '' }
}

/** Describes a mistake in a union, whose path and message are relative to the union. */
function describeWithin({ path = [], input }: z.core.$ZodRawIssue, within: z.core.$ZodIssue): string {
  const own = { ...within, input: valueAt(input, within.path) } as z.core.$ZodRawIssue
  // The schema has a message of its own.
  if (within.message && within.message !== describeIssue(own)) return within.message
  return describeIssue({ ...own, path: [...path, ...within.path] } as z.core.$ZodRawIssue)
}

/** Returns the unit of a limit, after a blank; empty for a number. */
function unit(origin: string, limit: number | bigint): string {
  const noun = origin === 'string' ? ' character' : origin === 'array' ? ' item' : ''
  return noun && limit !== 1 ? `${noun}s` : noun
}

/** Examples of formats that a check can expect. */
const FORMAT_EXAMPLES: Readonly<Record<string, string>> = {
  datetime: '2026-01-31T09:00:00Z',
  date: '2026-01-31',
  email: 'ada@example.com',
  url: 'https://example.com/',
}

/** A time as Python's `isoformat()` writes it without a time zone. */
const WITHOUT_OFFSET = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?$/

/**
 * Returns the detail of a failed check: the limit and the actual size, the wanted and the actual type, or the nearest
 * of several words. Values themselves are not repeated, because they may be secrets.
 */
export function adviseOn(issue: z.core.$ZodIssue, input: unknown): string {
  const field = issue.path.join('.') || 'body'
  const value = valueAt(input, issue.path)
  const within = issue.code === 'invalid_union' ? nearestIssue(issue.errors, value) : null
  if (within) return adviseOn({ ...within, path: [...issue.path, ...within.path] }, input)
  if (issue.code === 'custom' && typeof issue.params?.detail === 'string') return issue.params.detail
  if (issue.message.startsWith('Missing required field')) {
    const isBlank = typeof value === 'string'
    return `Send a value for \`${field}\`${isBlank ? ': the one that was sent is blank' : ''}.`
  }
  switch (issue.code) {
    case 'invalid_type': {
      const wanted = withArticle(TYPE_NAMES[issue.expected] ?? issue.expected)
      return `Send ${wanted} as \`${field}\`${value === undefined ? '' : `, not ${typeOf(value)}`}.`
    }
    case 'too_big':
      return `The limit of \`${field}\` is ${issue.maximum}${unit(issue.origin, issue.maximum)}${actual(issue.origin, value)}.`
    case 'too_small':
      return `The minimum of \`${field}\` is ${issue.minimum}${unit(issue.origin, issue.minimum)}${actual(issue.origin, value)}.`
    case 'invalid_value':
      return adviseOnWord(field, value, issue.values.map(String))
    case 'invalid_format':
      return adviseOnFormat(field, value, issue.format)
    case 'unrecognized_keys':
      return `Leave out the unknown fields: ${toPrintable(issue.keys.join(', '))}.`
    case 'custom': {
      const { maxBytes } = issue.params ?? {}
      if (typeof maxBytes !== 'number' || typeof value !== 'string') break
      return `The limit of \`${field}\` is ${maxBytes} bytes, and this one has ${Buffer.byteLength(value)}.`
    }
  }
  return correct(field)
}

const correct = (field: string) => `Correct \`${field}\`, and send the request again.`

function adviseOnWord(field: string, value: unknown, words: readonly string[]): string {
  const like = typeof value === 'string' ? nearest(value, words) : null
  return like ? `Did you mean ${like}?` : `Send one of these as \`${field}\`: ${words.join(', ')}.`
}

function adviseOnFormat(field: string, value: unknown, format: string): string {
  if (format === 'datetime' && typeof value === 'string' && WITHOUT_OFFSET.test(value)) {
    return `Add Z for UTC, or an offset such as +02:00, to \`${field}\`.`
  }
  const example = FORMAT_EXAMPLES[format]
  return example ? `Send a value like ${example} as \`${field}\`.` : correct(field)
}

/** Returns the value at a path of an input, as far as there is one. */
function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  let value = input
  for (const key of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined
    value = (value as Record<PropertyKey, unknown>)[key]
  }
  return value
}

/** Returns the type of a value as people call it, with its article. */
export function typeOf(value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'an array'
  if (value === Infinity || value === -Infinity) return 'one that is too large'
  return Number.isFinite(value) && !Number.isInteger(value) ? 'a fraction' : withArticle(typeof value)
}

const withArticle = (noun: string): string => `${/^[aeiou]/.test(noun) ? 'an' : 'a'} ${noun}`

/** Returns the actual size of a value, as the end of a sentence about its limit. */
function actual(origin: string, value: unknown): string {
  const isSized = origin === 'array' ? Array.isArray(value) : origin === 'string' && typeof value === 'string'
  if (isSized) return `, and this one has ${(value as string | unknown[]).length}`
  // Numbers in a query are text.
  return isSized || !/^(number|int)$/.test(origin) || !Number.isFinite(Number(value))
    ? ''
    : `, and this one is ${Number(value)}`
}
