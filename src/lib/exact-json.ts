import { asList, isObject } from './unknown.ts'

// JSON whose whole numbers keep their digits beyond 2^53, such as the ids of Discord and X.

/** A run of digits that may be a number beyond the safe range. */
const LARGE = /\d{16}/

type ExactJson = {
  parse(text: string, reviver: (key: string, value: unknown, context: { source?: string }) => unknown): unknown
  rawJSON(text: string): object
  isRawJSON(value: unknown): value is ExactNumber
}
const exact = JSON as unknown as ExactJson

/** A whole number beyond the safe range, which `JSON.stringify` writes with its own digits. */
export type ExactNumber = { readonly rawJSON: string }

/** Returns whether a value of {@link parseExact} stands for a whole number beyond the safe range. */
export const isExactNumber = (value: unknown): value is ExactNumber => exact.isRawJSON(value)

/** Returns whether a JSON text may have whole numbers beyond the safe range. */
export const hasLargeNumbers = (text: string): boolean => LARGE.test(text)

/** Parses JSON. Whole numbers beyond the safe range become an {@link ExactNumber}. Throws for invalid JSON. */
export const parseExact = (text: string): unknown =>
  hasLargeNumbers(text) ? exact.parse(text, keepDigits) : (JSON.parse(text) as unknown)

/** Parses JSON like {@link parseExact}. Returns undefined if the text is not valid. */
export function tryParseExact(text: string): unknown {
  try {
    return parseExact(text)
  } catch {
    return undefined
  }
}

function keepDigits(_: string, value: unknown, { source = '' }: { source?: string }): unknown {
  const isLossy = typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(source)
  return isLossy ? exact.rawJSON(source) : value
}

/** Replaces each {@link ExactNumber} in a value. */
function replaceExact(value: unknown, replace: (number: ExactNumber) => unknown): unknown {
  if (isExactNumber(value)) return replace(value)
  if (Array.isArray(value)) return value.map((item) => replaceExact(item, replace))
  if (!isObject(value)) return value
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, replaceExact(item, replace)]))
}

/** Returns a value with ordinary numbers, which have lost digits. */
export const withPlainNumbers = (value: unknown): unknown => replaceExact(value, ({ rawJSON }) => Number(rawJSON))

/** Returns a value with texts of digits, which survive any parser. */
export const withDigitsAsText = (value: unknown): unknown => replaceExact(value, ({ rawJSON }) => rawJSON)

/**
 * Returns a value that has lost digits on its way through a client, with the digits of the original. They come from the
 * same place, or else from the only number that is rounded to it, because an item may have moved.
 */
export function restoreDigits(value: unknown, original: unknown): unknown {
  const numbers = largeNumbersIn(original).filter(isExactNumber)
  function restore(item: unknown, before: unknown): unknown {
    if (typeof item === 'number') {
      if (isExactNumber(before) && Number(before.rawJSON) === item) return before
      const same = numbers.filter(({ rawJSON }) => Number(rawJSON) === item)
      return same[0] && same.every(({ rawJSON }) => rawJSON === same[0]?.rawJSON) ? same[0] : item
    }
    if (Array.isArray(item)) return item.map((each, index) => restore(each, asList(before)[index]))
    if (!isObject(item)) return item
    const fields = isObject(before) ? before : {}
    return Object.fromEntries(Object.entries(item).map(([name, each]) => [name, restore(each, fields[name])]))
  }
  return numbers.length ? restore(value, original) : value
}

/** Returns whether a value has a whole number whose digits are lost, beyond the safe range and unlike any in `original`. */
export function hasLostDigits(value: unknown, original: unknown): boolean {
  const kept = new Set(largeNumbersIn(original))
  return largeNumbersIn(value).some((item) => typeof item === 'number' && !kept.has(item) && mayBeRounded(item))
}

/** Returns whether a large number was written with all its digits: one with an exponent has few. */
const mayBeRounded = (number: number): boolean =>
  Math.abs(number) < 1e21 || number.toExponential().replace(/e.*|\D/g, '').length > 15

/** Lists the whole numbers of a value beyond the safe range. */
function largeNumbersIn(value: unknown): (number | ExactNumber)[] {
  if (isExactNumber(value)) return [value]
  if (typeof value === 'number') return Number.isInteger(value) && !Number.isSafeInteger(value) ? [value] : []
  if (Array.isArray(value)) return value.flatMap(largeNumbersIn)
  return isObject(value) ? Object.values(value).flatMap(largeNumbersIn) : []
}
