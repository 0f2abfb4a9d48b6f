import { isDeepStrictEqual } from 'node:util'
import { tryParseExact } from '../../../lib/exact-json.ts'
import { newId } from '../../../lib/id.ts'
import { asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { ModelError } from './model-errors.ts'

/** A tool call as received so far. */
type StreamedCall = {
  /** Id from the server, or generated if there is none. */
  id: string
  hasId: boolean
  index: number | undefined
  name: string
  input: string
  /** The last piece of the input, and whether each piece began with the one before. */
  last: string
  grows: boolean
  scan: Scan
  extra: Fields | null
  signature: string
}

/** A complete tool call. */
export type WholeCall = { id: string; name: string; input: string; extra: Fields | null; signature: string }

/** Maximum number of calls in a reply. */
const MAX_CALLS = 1_000

/**
 * What a piece does to the call that it may continue: `continues` its input, `replaces` an empty input, `repeats` what
 * the call has, or `begins` another call.
 */
type Relation = 'continues' | 'replaces' | 'repeats' | 'begins'

type Piece = { id: string; index: number | undefined; name: string; input: string; extra: unknown; signature: string }

/**
 * Assembles the tool calls of a reply from incomplete pieces. A new id or name begins a new call, and an id takes
 * precedence over an index. A piece with neither belongs to the current call. A complete JSON value ends a call, so
 * that repetitions have no effect.
 */
export type StreamedCalls = {
  /** Adds an entry of `tool_calls`. Returns the id of its call and the added input. */
  add(piece: Fields): { id: string; input: string }
  readonly size: number
  /** Returns the calls in order. An input that is not a complete JSON object remains text. */
  end(): WholeCall[]
}

/**
 * Creates the reader of the calls of one reply. `tools`: names of the offered tools, used to tell a split name from two
 * names.
 */
export function createStreamedCalls(tools: ReadonlySet<string>): StreamedCalls {
  const calls: StreamedCall[] = []

  function open({ id, index, name }: Piece): StreamedCall {
    const call: StreamedCall = {
      id: id || newId(),
      hasId: id !== '',
      index,
      name,
      input: '',
      last: '',
      grows: true,
      scan: newScan(),
      extra: null,
      signature: '',
    }
    if (calls.push(call) > MAX_CALLS) throw new ModelError(`The model makes more than ${MAX_CALLS} calls at once`)
    return call
  }

  /** Returns the call that a piece may continue. */
  function find({ id, index, name }: Piece): StreamedCall | undefined {
    const last = calls.at(-1)
    const withId = id ? calls.filter((call) => call.hasId && call.id === id) : []
    const sameId = withId.findLast((call) => call.index === index) ?? withId.at(-1)
    if (sameId) return sameId
    const sameIndex = index === undefined ? undefined : calls.findLast((call) => call.index === index)
    if (sameIndex) return sameIndex
    // Some servers use a different id for each piece, or increase the index within a call.
    if (id) return index === undefined && !name ? last : undefined
    return name && index !== undefined ? undefined : last
  }

  /** Returns the name of a call after a further piece, which may be the rest of the name or a repetition of it. */
  function nameOf(call: StreamedCall, name: string, isSame: boolean): string | null {
    if (!call.name || call.name === name) return name
    const joined = call.name + name
    const isPart = (text: string) => [...tools].some((tool) => tool.startsWith(text))
    // The name of a tool may begin that of another one.
    if (call.input || (tools.has(call.name) && (tools.has(name) || !isPart(joined)))) return null
    if (isPart(joined)) return joined
    if (name.startsWith(call.name) && isPart(name)) return name
    return isSame && !tools.has(name) ? joined : null
  }

  /** Returns what a piece does to the call that it may continue. */
  function relate(call: StreamedCall, piece: Piece): Relation {
    const { id, index, name, input } = piece
    const hasOtherId = id !== '' && call.hasId && id !== call.id
    const hasOtherIndex = index !== undefined && call.index !== undefined && index !== call.index
    const begins = beginsValue(input)
    if (name && nameOf(call, name, !hasOtherId && (id !== '' || index !== undefined)) === null) return 'begins'
    // Servers that send `{}` before the input, under an id of its own.
    if (hasOtherId && !name && begins && call.input && isEmpty(call.input)) return 'replaces'
    if (hasOtherId && (call.scan.isDone || (name && (!call.input || !input || begins)))) return 'begins'
    if (name && hasOtherIndex && call.scan.isDone) return 'begins'
    if (call.scan.isDone) return relateToComplete(call, piece)
    return begins && isEmpty(call.input) && call.input.trim() ? 'replaces' : 'continues'
  }

  return {
    add(delta) {
      const piece = readPiece(delta)
      const found = find(piece)
      const relation = found ? relate(found, piece) : 'begins'
      const call = found && relation !== 'begins' ? found : open(piece)
      if (relation === 'replaces') {
        call.input = ''
        call.scan = newScan()
      }
      if (relation !== 'begins' && piece.name && !(call.input && call.name))
        call.name = nameOf(call, piece.name, true) ?? call.name
      if (piece.id && !call.hasId) Object.assign(call, { id: piece.id, hasId: true })
      call.index ??= piece.index
      call.extra ??= isObject(piece.extra) ? piece.extra : null
      call.signature ||= piece.signature
      if (relation === 'repeats') return { id: call.id, input: '' }
      call.input += piece.input
      if (piece.input) {
        call.grows &&= piece.input.startsWith(call.last)
        call.last = piece.input
      }
      scan(call.scan, piece.input)
      return { id: call.id, input: piece.input }
    },
    get size() {
      return calls.length
    },
    end: () =>
      calls.filter(isCall).flatMap(({ id, name, extra, signature, ...call }) =>
        inputsOf(settledInput(call)).map((one, place) => ({
          id: place ? newId() : id,
          name,
          input: one,
          extra,
          signature,
        })),
      ),
  }
}

/** Returns what a piece of the same id or name does to a call whose input is a complete value. */
function relateToComplete(call: StreamedCall, { id, index, name, input }: Piece): Relation {
  const begins = beginsValue(input)
  if (!input.trim()) return name && !id && index === undefined ? 'begins' : 'repeats'
  if (isEmpty(call.input)) return begins && !isEmpty(input) ? 'replaces' : 'repeats'
  // Several objects in one input are separate calls of the same tool, see `inputsOf`.
  if (!name && !id) return isOtherObject(input, call.input) ? 'continues' : 'repeats'
  if (isEmpty(input) || isDeepStrictEqual(parseInput(input), parseInput(call.input))) return 'repeats'
  return begins && name ? 'begins' : 'repeats'
}

/** Returns whether a piece is the beginning of an object or of a string. */
const beginsValue = (input: string) => /^\s*[{"]/.test(input)

/** Returns the input of a call, of which some servers (Baidu) send all that they have with each piece. */
const settledInput = ({ input, last, grows }: Pick<StreamedCall, 'input' | 'last' | 'grows'>): string =>
  grows && last !== input && parseInput(input) === undefined && parseInput(last) !== undefined ? last : input

/** Returns whether a call is more than a nameless repetition of the previous one with an id of its own. */
function isCall({ name, input }: StreamedCall, place: number, calls: readonly StreamedCall[]): boolean {
  if (name) return true
  const before = calls[place - 1]
  const object = parseInput(input)
  return !isEmpty(input) && !(before && object && isDeepStrictEqual(object, parseInput(before.input)))
}

/** Returns whether a piece is a complete object that differs from the call's input. */
function isOtherObject(piece: string, input: string): boolean {
  const object = piece.trim() ? parseInput(piece) : undefined
  return object !== undefined && !isEmpty(piece) && !isDeepStrictEqual(object, parseInput(input))
}

/**
 * Splits an arguments string. Several objects are separate calls of the same tool if all have the same keys, and one
 * call if they are equal. Anything else remains one text, with which no tool is called.
 */
function inputsOf(input: string): string[] {
  if (parseInput(input) !== undefined) return [wholeInput(input)]
  const objects = objectsIn(input)
  const [first] = objects
  if (!first) return [input]
  const keysOf = (object: Fields) => Object.keys(object).sort()
  if (objects.every((object) => isDeepStrictEqual(object, first))) return [JSON.stringify(first)]
  const isSameTool = objects.every((object) => isDeepStrictEqual(keysOf(object), keysOf(first)))
  return isSameTool ? objects.map((object) => JSON.stringify(object)) : [input]
}

/** Returns the objects of a text that consists only of objects, otherwise none. */
function objectsIn(text: string): Fields[] {
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

function readPiece(delta: Fields): Piece {
  const { index, id, extra_content: extra } = delta
  const { name, arguments: given, thought_signature, ...others } = asObject(delta.function ?? delta)
  const input = given ?? [others.parameters, others.input, others.args].find(isObject)
  const specific = asObject(delta.provider_specific_fields).thought_signature
  return {
    id: typeof id === 'number' ? String(id) : asText(id),
    index: typeof index === 'number' ? index : /^\d+$/.test(asText(index)) ? Number(index) : undefined,
    name: asText(name),
    // Some servers send the input as an object instead of JSON text.
    input: typeof input === 'string' ? input : input === undefined || input === null ? '' : JSON.stringify(input),
    extra,
    signature:
      asText(asObject(asObject(extra).google).thought_signature) || asText(thought_signature) || asText(specific),
  }
}

/** State of an incremental JSON scan, which reads each character once regardless of the piece size. */
type Scan = { depth: number; isText: boolean; isEscaped: boolean; isDone: boolean }

const newScan = (): Scan => ({ depth: 0, isText: false, isEscaped: false, isDone: false })

/** Continues the scan until the outermost object, list or string ends. Returns the number of characters read. */
function scan(state: Scan, piece: string): number {
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

/**
 * Parses an input object: JSON, JSON in a JSON string or in a list, each of them in a code fence or with raw line
 * breaks, or an empty text. Returns undefined for anything else.
 */
function parseInput(input: string): Fields | undefined {
  let value: unknown = input
  for (let depth = 0; typeof value === 'string' && depth < 4; depth++) value = value.trim() ? parseLoosely(value) : {}
  // PHP writes an empty object as a list, and gpt-oss puts an object into one.
  if (value === null || (Array.isArray(value) && !value.length)) return {}
  if (Array.isArray(value) && value.length === 1) [value] = value
  return isObject(value) ? value : undefined
}

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

/** Texts, words and commas of a Python literal that JSON does not have, beside texts of both. */
const PYTHON = /'(?:[^'\\]|\\[\s\S])*'|"(?:[^"\\]|\\[\s\S])*"|\b(?:True|False|None)\b|,(?=\s*[}\]])/g
const WORDS: Readonly<Record<string, string>> = { True: 'true', False: 'false', None: 'null', ',': '' }

/** Parses an object as Python prints it. */
function parsePython(text: string): unknown {
  if (!/^\{\s*'|[:[,]\s*(?:True|False|None)\b/.test(text)) return undefined
  const json = text.replace(PYTHON, (found) => {
    if (!found.startsWith("'")) return WORDS[found] ?? found
    const inside = found.slice(1, -1).replaceAll("\\'", "'")
    return `"${inside.replace(/\\[\s\S]|"/g, (one) => (one === '"' ? '\\"' : one))}"`
  })
  return tryParseExact(json)
}

/**
 * Escapes the control characters in the strings of a JSON text, and unescapes single quotes. Passes once over it:
 * inputs that were cut off are long, and a pattern for whole strings would begin anew at each of their quotes.
 */
function escapeControls(json: string): string {
  let isText = false
  return json.replace(/\\[\s\S]|["\u0000-\u001f]/g, (found) => {
    if (found === '"') isText = !isText
    if (found === "\\'") return "'"
    return isText && found < ' ' ? `\\u${found.charCodeAt(0).toString(16).padStart(4, '0')}` : found
  })
}

/**
 * Length up to which an input is compared with empty ones, because each piece of a long input would flatten it again.
 */
const MAX_EMPTY = 100

const isEmpty = (input: string): boolean =>
  input.length <= MAX_EMPTY && /^(?:\{\s*\}|\[\s*\]|null|"(?:\{\s*\})?")?$/.test(input.trim())

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
