import { splitData } from '../../lib/event-data.ts'
import { tryParseExact, withDigitsAsText } from '../../lib/exact-json.ts'
import { parseJson } from '../../lib/json.ts'
import { BadAnswer } from '../../lib/net/safe-fetch.ts'
import { asText, type Fields, isObject } from '../../lib/unknown.ts'

// Repairs messages of servers, whatever they come in: a body, an event, or a line of a program.

/** Reason of a request whose response has messages, but no answer. */
export const ENDED = 'its answer ended without a result'

/** Returns whether an id is that of another request that waits for its answer. */
export type IsOfOther = (id: string) => boolean

/**
 * Null in a field of a message that must be absent instead, because servers in many languages send each field that they
 * know. Numbers of Python that JSON does not have. Commas at an end.
 */
const ODD =
  /"(?:error|result|params|id)"\s*:\s*null|"error"\s*:\s*(?:false|""|\{\s*\})|"_meta"\s*:\s*[^\s{]|[:[,]\s*-?(?:NaN|Infinity)\b|,\s*[}\]]/
/** A whole number that a parser may round, such as an id of Discord or X. */
const LARGE = /[:[,]\s*-?\d{16,}\s*[,}\]]/
/** Beginnings and ends of answers as most servers write them, which need no repair. */
const USUAL: readonly (readonly [begin: RegExp, end: RegExp])[] = [
  [/^\{"jsonrpc": ?"2\.0", ?"id": ?\d+, ?"result": ?\{/, /\}\s*\}$/],
  [/^\{"result":\{/, /\},"jsonrpc":"2\.0","id":\d+\}$/],
]
/** Length of the end of a message that is looked at (characters). */
const END = 60

/**
 * Repairs a message, or a batch, that the SDK would refuse as a whole:
 * - fields that are null or unknown, and a missing `jsonrpc`,
 * - an error that is a text or has no code, and a result that is not an object,
 * - JSON that is nearly valid or encoded twice, texts before it, and messages line by line,
 * - whole numbers beyond 2^53, which the SDK would round.
 *
 * An answer without an id gets that of the request, and so does the only answer of a body, unless its id is that of
 * another request: some servers always state the same id. Returns any other text unchanged.
 */
export function mendMessage(json: string, id?: number, isOfOther: IsOfOther = () => false): string {
  const value = repaired(json, id) ?? (id === undefined || statesId(json, id) ? undefined : parseJson(json))
  return value === undefined ? json : JSON.stringify(id === undefined ? value : withOwnId(value, id, isOfOther))
}

/** Returns whether a body has an id at its beginning or its end, where most servers write it. */
const statesId = (json: string, id: number): boolean =>
  new RegExp(`"id": ?${id}\\b`).test(`${json.slice(0, END)} ${json.slice(-END)}`)

/** Gives the only answer of a body the id of its request. Throws a {@link BadAnswer} if the body has no answer. */
function withOwnId(value: unknown, id: number, isOfOther: IsOfOther): unknown {
  const messages = Array.isArray(value) ? value : [value]
  const answers = messages.filter((message) => !isObject(message) || message.method === undefined)
  if (!answers.length) throw new BadAnswer(ENDED)
  const [only] = answers
  if (answers.length !== 1 || !isObject(only) || String(only.id) === String(id) || isOfOther(String(only.id)))
    return value
  return messages.length === 1 ? { ...only, id } : messages.map((one) => (one === only ? { ...only, id } : one))
}

/** Mends like {@link mendMessage}, with each message of a batch (revision 2025-03-26) by itself. */
export function mendMessages(json: string, id: number | undefined): string[] {
  const value = repaired(json, id)
  if (value === undefined) return [json]
  return Array.isArray(value) ? value.map((message) => JSON.stringify(message)) : [JSON.stringify(value)]
}

/** Returns a repaired message or batch; undefined for a text that needs no repair or has no message. */
function repaired(json: string, id: number | undefined): unknown {
  const text = json.trim()
  const end = text.slice(-END)
  const isUsual = USUAL.some(([begin, ending]) => begin.test(text) && ending.test(end)) && hasUsualFields(text)
  if (isUsual && !ODD.test(text) && !CONTROL.test(text) && !LARGE.test(text)) return undefined
  const value = parsed(text) ?? parsedLines(text)
  return Array.isArray(value) ? value.map((message) => toMessage(message, id)) : value && toMessage(value, id)
}

/** Returns whether an answer has no fields but those of the protocol. The SDK refuses any others. */
const hasUsualFields = (text: string): boolean => Object.keys(parseJson(text) ?? {}).length === 3

/** Characters that a text in JSON must escape. */
const CONTROL = /[\x00-\x1f]/
/** Escapes, quotes and control characters, numbers that JSON does not have, and commas at the end. */
const PARTS = /\\[\s\S]|["\x00-\x1f]|-?\b(?:NaN|Infinity)\b|,(?=\s*[}\]])/g

/** Parses a message or batch, valid or nearly so, or a text that is one. Returns undefined for anything else. */
function parsed(text: string): unknown {
  // Web frameworks encode a JSON text once more.
  if (/^"\s*[{[]/.test(text)) return parsed(asText(parseJson(text)).trim())
  if (!/^[{[]/.test(text)) return undefined
  return parseDigits(text) ?? parseDigits(corrected(text))
}

/** Parses JSON. Whole numbers that the SDK would round become texts. Returns undefined if it is invalid. */
const parseDigits = (text: string): unknown =>
  LARGE.test(text) ? withDigitsAsText(tryParseExact(text)) : parseJson(text)

/**
 * Escapes the control characters in the texts of nearly valid JSON. Drops commas at the end, and replaces numbers that
 * JSON does not have. Passes once over it: a pattern for whole texts would begin anew at each quote if one was cut off.
 */
function corrected(json: string): string {
  let isText = false
  return json.replace(PARTS, (part) => {
    if (part === '"') isText = !isText
    if (isText) return part.replace(CONTROLS, (found) => JSON.stringify(found).slice(1, -1))
    if (part === ',') return ''
    return /[NI]/.test(part) ? 'null' : part
  })
}

const CONTROLS = new RegExp(CONTROL, 'g')

/** Parses the lines that are messages, among others that are warnings of a programming language. */
function parsedLines(text: string): unknown {
  if (!text.includes('"jsonrpc"')) return undefined
  const lines = splitData(text) ?? text.split('\n')
  const messages = lines.flatMap((line) => parsed(line.trim()) ?? [])
  return messages.length > 1 ? messages : messages[0]
}

/** Fields of results, of which a message that is none has at least one. */
const OF_RESULTS = ['content', 'structuredContent', 'tools', 'protocolVersion']

/** Repairs a request or notification, or an answer to a request of this service. */
function toMessage(value: unknown, ownId: number | undefined): unknown {
  if (!isObject(value)) return value
  const { jsonrpc, id, method, params, error, result, msg, message = msg } = value
  if (typeof method === 'string') {
    const given = isObject(params) && method === PROGRESS ? toProgress(params) : params
    return { jsonrpc, id, method, ...(isObject(given) && { params: withoutMeta(given) }) }
  }
  const hasId = 'id' in value || ownId !== undefined
  const isBare = jsonrpc === undefined && OF_RESULTS.some((field) => field in value)
  // Some servers in C# leave an empty result out.
  const isEmpty = jsonrpc === '2.0' && ownId !== undefined && id === ownId
  // Gateways answer with errors of their own.
  if (ownId !== undefined && !isBare && jsonrpc === undefined && typeof message === 'string' && !('error' in value))
    return { jsonrpc: '2.0', id: ownId, error: toError(message) }
  if (!hasId || !(isBare || isEmpty || 'error' in value || 'result' in value)) return value
  const answer = {
    jsonrpc: '2.0',
    ...(id === null || id === undefined ? ownId !== undefined && { id: ownId } : { id }),
  }
  if (isBare && ownId !== undefined) return { ...answer, result: withoutMeta(value) }
  return isNoError(error, 'result' in value)
    ? { ...answer, result: toResult(result) }
    : { ...answer, error: toError(error) }
}

const PROGRESS = 'notifications/progress'

/** Completes a notification of progress, which the SDK would ignore without a number, or with null. */
function toProgress({ progress, total, message, ...fields }: Fields): Fields {
  return {
    ...fields,
    progress: Number.isFinite(Number(progress)) ? Number(progress) : 0,
    ...(typeof total === 'number' && { total }),
    ...(typeof message === 'string' && { message }),
  }
}

/** Returns whether the error of an answer states none: servers in some languages send an empty one beside a result. */
const isNoError = (error: unknown, hasResult: boolean): boolean =>
  error === undefined ||
  error === null ||
  error === false ||
  (hasResult && (error === '' || (isObject(error) && !Object.keys(error).length)))

/** Code of errors without a valid one (`INTERNAL_ERROR` of JSON-RPC). */
export const NO_CODE = -32603

function toError(error: unknown): Fields {
  const { code, message, data } = isObject(error) ? error : { message: error }
  return {
    code: Number.isInteger(Number(code ?? Number.NaN)) ? Number(code) : NO_CODE,
    message: typeof message === 'string' ? message : JSON.stringify(message ?? error),
    ...(data !== undefined && { data }),
  }
}

/** Servers without a protocol library answer calls with a text, a list of parts, or nothing. */
function toResult(result: unknown): unknown {
  if (result === null || result === undefined) return {}
  if (typeof result === 'string') return { content: [{ type: 'text', text: result }] }
  return Array.isArray(result) ? { content: result } : withoutMeta(result)
}

/** Leaves out metadata that are no object: null, or an empty list (PHP). */
function withoutMeta(value: unknown): unknown {
  if (!isObject(value) || value._meta === undefined || isObject(value._meta)) return value
  const { _meta, ...fields }: Fields = value
  return fields
}
