import { isDeepStrictEqual } from 'node:util'
import { tryParseExact } from '../../../lib/exact-json.ts'
import { type Fields, isObject } from '../../../lib/unknown.ts'

// The inputs of calls: JSON objects, also as models and servers garble them.

/** Maximum number of calls in a reply. */
export const MAX_CALLS = 1_000

/**
 * Returns whether a text stands for a missing value (SGLang sends `None`, LiteLLM `null`, older Ollama an empty one).
 */
export const isNothing = (text: string): boolean => text === '' || /^(?:none|null|undefined)$/i.test(text)

/**
 * Parses an input object: JSON, JSON in a JSON string or in a list, each of them in a code fence or with raw line
 * breaks, or an empty text. Returns undefined for anything else.
 */
export function parseInput(input: string): Fields | undefined {
  let value: unknown = isNothing(input.trim()) ? '' : input
  for (let depth = 0; typeof value === 'string' && depth < 4; depth++) value = value.trim() ? parseLoosely(value) : {}
  // PHP writes an empty object as a list, and gpt-oss puts an object into one.
  if (value === null || (Array.isArray(value) && !value.length)) return {}
  if (Array.isArray(value) && value.length === 1) [value] = value
  return isObject(value) ? value : undefined
}

/** Returns the JSON of an input object, or the original text if it is invalid. No tool is called with such a text. */
export function wholeInput(input: string): string {
  const trimmed = input.trim()
  if (trimmed.startsWith('{') && tryParseExact(trimmed) !== undefined) return trimmed
  const value = parseInput(trimmed)
  if (value !== undefined) return JSON.stringify(value)
  // Some gateways send an empty object first, or all of the input once more.
  const [first, ...others] = objectsIn(trimmed).filter((object) => Object.keys(object).length)
  return first && others.every((object) => isDeepStrictEqual(object, first)) ? JSON.stringify(first) : input
}

/**
 * Splits an arguments string. Several objects are separate calls of the same tool if all have the same keys, and one
 * call if they are equal. Anything else remains one text, with which no tool is called.
 */
export function inputsOf(input: string): string[] {
  if (parseInput(input) !== undefined) return [wholeInput(input)]
  const objects = objectsIn(input)
  const [first] = objects
  if (!first) return [input]
  const keysOf = (object: Fields) => Object.keys(object).sort()
  if (objects.every((object) => isDeepStrictEqual(object, first))) return [JSON.stringify(first)]
  const isSameTool = objects.every((object) => isDeepStrictEqual(keysOf(object), keysOf(first)))
  return isSameTool ? objects.map((object) => JSON.stringify(object)) : [input]
}

/** Returns whether two inputs are the same value, or neither is an object. */
export const isSameInput = (one: string, other: string): boolean =>
  isDeepStrictEqual(parseInput(one), parseInput(other))

/**
 * Length up to which an input is compared with empty ones, because each piece of a long input would flatten it again.
 */
const MAX_EMPTY = 100

/** Returns whether an input is empty, or only an empty object, list or string. */
export const isEmpty = (input: string): boolean =>
  input.length <= MAX_EMPTY && (isNothing(input.trim()) || /^(?:\{\s*\}|\[\s*\]|"(?:\{\s*\})?")$/.test(input.trim()))

/** Returns the objects of a text that consists only of objects, otherwise none. */
export function objectsIn(text: string): Fields[] {
  const objects: Fields[] = []
  for (let rest = text.trim(); rest; ) {
    const state = newScan()
    const length = scan(state, rest)
    const object = rest.startsWith('{') && state.isDone ? parseInput(rest.slice(0, length)) : undefined
    if (!object || objects.push(object) > MAX_CALLS) return []
    rest = rest.slice(length).trimStart()
  }
  return objects
}

/** State of an incremental JSON scan, which reads each character once regardless of the piece size. */
export type Scan = { depth: number; isText: boolean; isEscaped: boolean; isDone: boolean }

/** Creates the state before the first character. */
export const newScan = (): Scan => ({ depth: 0, isText: false, isEscaped: false, isDone: false })

/** Continues the scan until the outermost object, list or string ends. Returns the number of characters read. */
export function scan(state: Scan, piece: string): number {
  let at = 0
  for (; at < piece.length && !state.isDone; at++) {
    const character = piece.charCodeAt(at)
    if (state.isText) {
      if (state.isEscaped) state.isEscaped = false
      else if (character === BACKSLASH) state.isEscaped = true
      else if (character === QUOTE) {
        state.isText = false
        state.isDone = state.depth === 0
      }
    } else if (character === QUOTE) state.isText = true
    else if (character === OPEN_BRACE || character === OPEN_BRACKET) state.depth++
    else if (character === CLOSE_BRACE || character === CLOSE_BRACKET) state.isDone = --state.depth <= 0
  }
  return at
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d
const OPEN_BRACKET = 0x5b
const CLOSE_BRACKET = 0x5d

/** Parses JSON, also in a code fence or with unescaped control characters. Returns undefined if it is invalid. */
function parseLoosely(text: string): unknown {
  const strict = tryParseExact(text)
  if (strict !== undefined) return strict
  const trimmed = text.trim()
  const bare = trimmed.startsWith('```') ? trimmed.replace(/^```\w*/, '').replace(/```$/, '') : text
  const escaped = escapeControls(bare)
  return (
    tryParseExact(escaped) ??
    tryParseExact(escaped.replace(/,(\s*[}\]])$/, '$1')) ??
    // The parser of a server has sent the first brace twice.
    (/^\{\s*\{/.test(trimmed) ? tryParseExact(trimmed.slice(1)) : undefined) ??
    parseMarked(trimmed) ??
    parseRestarted(trimmed) ??
    parseEscaped(trimmed) ??
    parsePython(trimmed)
  )
}

/** Marks at the end of a call that parsers of servers leave behind, and braces that models write too often. */
const MARKS = /^\s*(?:(?:<\/?[\w|:▁｜]{1,40}>|[}\]`])\s*)+$/

/** Parses an object followed by nothing but marks. */
function parseMarked(text: string): unknown {
  if (!text.startsWith('{')) return undefined
  const length = scan(newScan(), text)
  return MARKS.test(text.slice(length, length + MAX_MARKS)) && text.length - length <= MAX_MARKS
    ? tryParseExact(escapeControls(text.slice(0, length)))
    : undefined
}

/** Maximum length of marks (characters). */
const MAX_MARKS = 200

/** Parses an object that a server began to send, and sent again from its beginning (SGLang). */
function parseRestarted(text: string): unknown {
  if (!text.startsWith('{')) return undefined
  for (let at = text.indexOf('{', 1), count = 0; at > 0 && count < MAX_RESTARTS; count++) {
    if (at * 2 > text.length) return undefined
    // An object may stand behind these characters, such as one with the same keys in an input that was cut off.
    if (!/[:[,{]\s*$/.test(text.slice(Math.max(0, at - 100), at)) && text.startsWith(text.slice(0, at), at)) {
      const whole = tryParseExact(text.slice(at))
      if (whole !== undefined) return whole
    }
    at = text.indexOf('{', at + 1)
  }
  return undefined
}

/** Maximum number of places at which an input may begin again. */
const MAX_RESTARTS = 100

/** Parses an object whose quotes were escaped once too often. */
const parseEscaped = (text: string): unknown =>
  text.startsWith('{\\"') ? tryParseExact(String(tryParseExact(`"${text}"`))) : undefined

/** Escapes and quotes, and words and commas of a Python literal that JSON does not have. */
const PYTHON = /\\[\s\S]|['"]|\b(?:True|False|None)\b|,(?=\s*[}\]])/g
const WORDS: Readonly<Record<string, string>> = { True: 'true', False: 'false', None: 'null', ',': '' }

/** Parses an object as Python prints it. Passes once over it, as {@link escapeControls} does. */
function parsePython(text: string): unknown {
  if (!/^\{\s*'|[:[,]\s*(?:True|False|None)\b/.test(text)) return undefined
  /** The quote of the text that a part is in. */
  let quote = ''
  const json = text.replace(PYTHON, (found) => {
    const isQuote = found === "'" || found === '"'
    if (isQuote && (!quote || found === quote)) {
      quote = quote ? '' : found
      return '"'
    }
    if (!quote) return WORDS[found] ?? found
    if (quote === '"') return found
    return found === '"' ? '\\"' : found === "\\'" ? "'" : found
  })
  return tryParseExact(json)
}

/**
 * Escapes the control characters in the strings of a JSON text and backslashes that escape nothing, such as in `\\d`, and
 * unescapes single quotes. Passes once over it: inputs that were cut off are long, and a pattern for whole strings would
 * begin anew at each of their quotes.
 */
export function escapeControls(json: string): string {
  let isText = false
  return json.replace(/\\[\s\S]|["\u0000-\u001f]/g, (found) => {
    if (found === '"') isText = !isText
    if (found === "\\'") return "'"
    if (!isText) return found
    if (found.length === 1) return escapeControl(found)
    return ESCAPED.has(found.charAt(1)) ? found : `\\\\${escapeControl(found.charAt(1))}`
  })
}

/** Characters that may follow a backslash in JSON. */
const ESCAPED: ReadonlySet<string> = new Set('"\\/bfnrtu')

const escapeControl = (character: string): string =>
  character < ' ' ? `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}` : character
