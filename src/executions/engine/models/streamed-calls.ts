import { isDeepStrictEqual } from 'node:util'
import { newId } from '../../../lib/id.ts'
import { asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import {
  inputsOf,
  isEmpty,
  isNothing,
  isSameInput,
  MAX_CALLS,
  newScan,
  parseInput,
  type Scan,
  scan,
} from './call-inputs.ts'
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
  /** Value of the complete input, once a piece was compared with it; `of` is undefined unless it is one object. */
  value: { of: Fields | undefined } | null
  extra: Fields | null
  signature: string
  /** The signature where LiteLLM states it, which expects it back there. */
  specific: string
}

/** A complete tool call. */
export type WholeCall = Pick<StreamedCall, 'id' | 'name' | 'input' | 'extra' | 'signature' | 'specific'>

/**
 * Relation of a piece to the call that it may continue: it `continues` its input, `replaces` an empty input, `repeats`
 * the content of the call, or `begins` another call.
 */
type Relation = 'continues' | 'replaces' | 'repeats' | 'begins'

type Piece = Pick<StreamedCall, 'id' | 'index' | 'name' | 'input' | 'signature' | 'specific'> & { extra: unknown }

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
      value: null,
      extra: null,
      signature: '',
      specific: '',
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
      if (relation === 'replaces') restart(call)
      if (relation !== 'begins' && piece.name && !(call.input && call.name))
        call.name = nameOf(call, piece.name, true) ?? call.name
      complete(call, piece)
      if (relation === 'repeats') return { id: call.id, input: '' }
      append(call, piece.input)
      return { id: call.id, input: piece.input }
    },
    get size() {
      return calls.length
    },
    end: () =>
      calls.filter(isCall).flatMap(({ id, name, extra, signature, specific, ...call }) =>
        inputsOf(settledInput(call)).map((one, place) => ({
          id: place ? newId() : id,
          name,
          input: one,
          extra,
          signature,
          specific,
        })),
      ),
  }
}

/** Removes the input of a call, for which another one comes. */
function restart(call: StreamedCall): void {
  call.input = ''
  call.scan = newScan()
  call.value = null
}

/** Adds the fields of a piece that its call does not have yet. */
function complete(call: StreamedCall, { id, index, extra, signature, specific }: Piece): void {
  if (id && !call.hasId) {
    call.id = id
    call.hasId = true
  }
  call.index ??= index
  call.extra ??= isObject(extra) ? extra : null
  call.signature ||= signature
  call.specific ||= specific
}

/** Adds a piece to the input of a call. */
function append(call: StreamedCall, input: string): void {
  // Several objects are no value.
  if (call.value) call.value.of = undefined
  call.input += input
  if (input) {
    call.grows &&= input.startsWith(call.last)
    call.last = input
  }
  scan(call.scan, input)
}

/**
 * Returns whether a text is the value of a complete call, or neither is an object. Parses the call once, however many
 * pieces follow.
 */
function isValueOf(call: StreamedCall, text: string): boolean {
  call.value ??= { of: parseInput(call.input) }
  return isDeepStrictEqual(parseInput(text), call.value.of)
}

/** Returns what a piece of the same id or name does to a call whose input is a complete value. */
function relateToComplete(call: StreamedCall, { id, index, name, input }: Piece): Relation {
  const begins = beginsValue(input)
  if (!input.trim()) return name && !id && index === undefined ? 'begins' : 'repeats'
  if (isEmpty(call.input)) return begins && !isEmpty(input) ? 'replaces' : 'repeats'
  // Several objects in one input are separate calls of the same tool, see `inputsOf`.
  if (!name && !id) return isOtherObject(input, call) ? 'continues' : 'repeats'
  if (isEmpty(input) || isValueOf(call, input)) return 'repeats'
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
  return !isEmpty(input) && !(before && parseInput(input) && isSameInput(input, before.input))
}

/** Returns whether a piece is a complete object that differs from the call's input. */
const isOtherObject = (piece: string, call: StreamedCall): boolean =>
  parseInput(piece) !== undefined && !isEmpty(piece) && !isValueOf(call, piece)

function readPiece(delta: Fields): Piece {
  const { index, id, extra_content: extra } = delta
  const { name, arguments: given, thought_signature, ...others } = asObject(delta.function ?? delta)
  const input = given ?? [others.parameters, others.input, others.args].find(isObject)
  // LiteLLM, which also writes the signature behind the id for clients that keep nothing else.
  const fields = asObject(delta.provider_specific_fields ?? others.provider_specific_fields)
  const specific = asText(fields.thought_signature) || (/__thought__(.+)$/s.exec(asText(id))?.[1] ?? '')
  return {
    id: typeof id === 'number' ? String(id) : asText(id),
    index: typeof index === 'number' ? index : /^\d+$/.test(asText(index)) ? Number(index) : undefined,
    name: isNothing(asText(name)) ? '' : asText(name),
    // Some servers send the input as an object instead of JSON text.
    input: typeof input === 'string' ? input : input === undefined || input === null ? '' : JSON.stringify(input),
    extra,
    signature: asText(asObject(asObject(extra).google).thought_signature) || asText(thought_signature) || specific,
    specific,
  }
}
