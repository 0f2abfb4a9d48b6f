import { createParser, type EventSourceMessage } from 'eventsource-parser'
import { createTextReader, decodeText, type TextReader } from '../../lib/charset.ts'
import { splitData } from '../../lib/event-data.ts'
import { parseJson } from '../../lib/json.ts'
import { BadAnswer } from '../../lib/net/safe-fetch.ts'
import { type Fields, isObject } from '../../lib/unknown.ts'
import { counter } from './message-size.ts'

const JSON_TYPE = /[/+]json\b/i
/** The content type of a sentence, in which some gateways answer with 200, and the maximum length of one (characters). */
const SENTENCE = /^\s*(?:text\/plain\b.*)?$/i
const MAX_SENTENCE = 500
const EVENT_STREAM = /^\s*text\/event-stream\b/i

/** Returns whether a response is a successful event stream. */
export const isEventStream = ({ ok, headers }: Response): boolean =>
  ok && EVENT_STREAM.test(headers.get('content-type') ?? '')

/** Reasons of a request that got no answer. */
export const EMPTY = 'its answer is empty'
export const ENDED = 'its answer ended without a result'

/** The request that a response answers. */
export type Asked = {
  /** Its id, if the answer has to be in the response. */
  id: number | undefined
  /** Returns whether an id is that of another request that waits for its answer. */
  isOfOther?: (id: string) => boolean
  /** The event after which a stream is resumed; undefined for any other response. */
  resumedAt?: string | undefined
  /** Called with the error of a body that breaks. */
  onError: (error: unknown) => void
  /** Called once a stream has ended or broken. */
  onEnd?: () => void
}

/**
 * Repairs a response that the SDK would not read, or for whose answer it would wait in vain. Derives the content type
 * from the first character, and repairs messages and the framing of an event stream. Throws a {@link BadAnswer} if a
 * request has no answer.
 */
export async function mend(response: Response, { id, onError, onEnd, isOfOther, resumedAt }: Asked): Promise<Response> {
  const type = response.headers.get('content-type') ?? ''
  if (!response.ok) return response
  if (!response.body) {
    if (id !== undefined && [202, 204, 205].includes(response.status)) throw new BadAnswer(EMPTY)
    return response
  }
  const through = (body: ReadableStream<Uint8Array>, repair: TransformStream<Uint8Array, Uint8Array>, as: string) => {
    body.pipeTo(repair.writable).catch(onError).finally(onEnd)
    const { statusText, headers } = response
    // The SDK does not read the body of a 202, in which some servers answer.
    const status = id !== undefined && response.status === 202 ? 200 : response.status
    return withBody({ status, statusText, headers }, repair.readable, as)
  }
  const charset = createTextReader(type)
  if (resumedAt !== undefined) return through(response.body, reframed(id, charset, resumedAt), 'text/event-stream')
  if (EVENT_STREAM.test(type)) return through(response.body, reframed(id, charset), type)
  const { body, beginning } = await peek(response.body, type)
  if (id !== undefined && beginning === null) throw new BadAnswer(EMPTY)
  const guessed = typeOf(beginning ?? '') ?? (JSON_TYPE.test(type) ? 'application/json' : null)
  if (id !== undefined && response.status === 202 && !typeOf(beginning ?? '')) {
    await body.cancel()
    throw new BadAnswer(EMPTY)
  }
  const sentence = id !== undefined && guessed === null && SENTENCE.test(type) ? (beginning ?? '').trim() : ''
  if (sentence && sentence.length <= MAX_SENTENCE && !sentence.startsWith('<')) {
    await body.cancel()
    const answer = JSON.stringify({ jsonrpc: '2.0', id, error: { code: NO_CODE, message: sentence } })
    return withBody(response, new Blob([answer]).stream(), 'application/json')
  }
  if (guessed === null) return withBody(response, body, type)
  const isStream = guessed === 'text/event-stream'
  return through(body, isStream ? reframed(id, charset) : repacked(id, charset, isOfOther), guessed)
}

function typeOf(beginning: string): string | null {
  if (/^[\ufeff\s]*[{[]/.test(beginning)) return 'application/json'
  return /^\ufeff?\s*(?:data|event|id|retry)?:/.test(beginning) ? 'text/event-stream' : null
}

type Head = Pick<Response, 'status' | 'statusText' | 'headers'>

function withBody({ status, statusText, headers }: Head, body: ReadableStream<Uint8Array>, type: string): Response {
  const mended = new Headers(headers)
  if (type) mended.set('content-type', type)
  return new Response(body, { status, statusText, headers: mended })
}

/**
 * Writes an event stream anew: the last event ends, each message is an event of its own, and none has another name than
 * `message`, under which the SDK would ignore it. A body of JSON becomes events, too. A resumed stream begins with the
 * id of the event after which it is resumed, without which the SDK would not resume it again.
 */
function reframed(id: Asked['id'], charset: TextReader, resumedAt?: string): TransformStream<Uint8Array, Uint8Array> {
  const encoder = new TextEncoder()
  let written = resumedAt === undefined ? '' : `id: ${resumedAt}\ndata:\n\n`
  const parser = createParser({
    onEvent: (event) => {
      written += eventsOf(event, id)
    },
    onRetry: (delay) => {
      written += `retry: ${delay}\n\n`
    },
  })
  /** The body so far, if it is JSON. Undefined until its first character. */
  let json: string[] | null | undefined
  const count = counter()
  const feed = (text: string, controller: TransformStreamDefaultController<Uint8Array>) => {
    if (json === undefined && text.trim()) json = /^\s*[{[]/.test(text) ? [] : null
    if (json) return void json.push(text)
    parser.feed(text)
    if (written) controller.enqueue(encoder.encode(written))
    written = ''
  }
  return new TransformStream({
    transform: (bytes, controller) => {
      feed(charset.read(bytes), controller)
      if (json) count(bytes)
    },
    flush: (controller) => {
      const data = json?.join('')
      json = null
      feed('\n\n', controller)
      if (data !== undefined) controller.enqueue(encoder.encode(eventsOf({ data }, id)))
    },
  })
}

function eventsOf(
  { id: eventId, event, data }: Pick<EventSourceMessage, 'data'> & Partial<EventSourceMessage>,
  id: Asked['id'],
): string {
  // Of the older transport. Servers behind a proxy name their own scheme or host.
  const endpoint = event === 'endpoint' ? URL.parse(data) : null
  if (endpoint) return `event: endpoint\ndata: ${endpoint.pathname}${endpoint.search}\n\n`
  const isPlainError = event === 'error' && id !== undefined && !/^\s*[{[]/.test(data)
  const pieces = isPlainError ? [JSON.stringify({ error: data })] : (splitData(data) ?? [data])
  const messages = pieces.flatMap((message) => mendMessages(message, id))
  const name = event && !messages.every(isMessage) ? `event: ${event}\n` : ''
  return messages
    .map((message) => {
      const lines = message.split('\n').map((line) => `data: ${line}\n`)
      return `${eventId === undefined ? '' : `id: ${eventId}\n`}${name}${lines.join('')}\n`
    })
    .join('')
}

/** Passes JSON on once it is complete, with its messages repaired. */
function repacked(
  id: Asked['id'],
  charset: TextReader,
  isOfOther: Asked['isOfOther'],
): TransformStream<Uint8Array, Uint8Array> {
  const pieces: string[] = []
  return new TransformStream({
    transform: (bytes) => void pieces.push(charset.read(bytes)),
    flush: (controller) =>
      controller.enqueue(new TextEncoder().encode(mendMessage(pieces.join('') + charset.end(), id, isOfOther))),
  })
}

/**
 * Null in a field of a message that must be absent instead, because servers in many languages send each field that they
 * know. Numbers of Python that JSON does not have. Commas at an end.
 */
const ODD =
  /"(?:error|result|params|id)"\s*:\s*null|"error"\s*:\s*(?:false|""|\{\s*\})|"_meta"\s*:\s*[^\s{]|[:[,]\s*-?(?:NaN|Infinity)\b|,\s*[}\]]/
/** Beginnings and ends of answers as most servers write them, which need no repair and are not parsed. */
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
 * - JSON that is nearly valid, texts before it, and messages line by line.
 *
 * An answer without an id gets that of the request, and so does the only answer of a body, unless its id is that of
 * another request: some servers always state the same id. Returns any other text unchanged.
 */
export function mendMessage(json: string, id?: number, isOfOther: Asked['isOfOther'] = () => false): string {
  const value = repaired(json, id) ?? (id === undefined || statesId(json, id) ? undefined : parseJson(json))
  return value === undefined ? json : JSON.stringify(id === undefined ? value : withOwnId(value, id, isOfOther))
}

/** Returns whether a body has an id at its beginning or its end, where most servers write it. */
const statesId = (json: string, id: number): boolean =>
  new RegExp(`"id": ?${id}\\b`).test(`${json.slice(0, END)} ${json.slice(-END)}`)

/** Gives the only answer of a body the id of its request. Throws a {@link BadAnswer} if the body has no answer. */
function withOwnId(value: unknown, id: number, isOfOther: (id: string) => boolean): unknown {
  const messages = Array.isArray(value) ? value : [value]
  const answers = messages.filter((message) => !isObject(message) || message.method === undefined)
  if (!answers.length) throw new BadAnswer(ENDED)
  const [only] = answers
  if (answers.length !== 1 || !isObject(only) || String(only.id) === String(id) || isOfOther(String(only.id)))
    return value
  return messages.length === 1 ? { ...only, id } : messages.map((one) => (one === only ? { ...only, id } : one))
}

/** Like {@link mendMessage}, with each message of a batch (revision 2025-03-26) by itself. */
function mendMessages(json: string, id: Asked['id']): string[] {
  const value = repaired(json, id)
  if (value === undefined) return [json]
  return Array.isArray(value) ? value.map((message) => JSON.stringify(message)) : [JSON.stringify(value)]
}

/** Returns a repaired message or batch; undefined for a text that needs no repair or has no message. */
function repaired(json: string, id: Asked['id']): unknown {
  const text = json.trim()
  const end = text.slice(-END)
  const isUsual = USUAL.some(([begin, ending]) => begin.test(text) && ending.test(end))
  if (isUsual && !ODD.test(text) && !CONTROL.test(text)) return undefined
  const value = parsed(text) ?? parsedLines(text)
  return Array.isArray(value) ? value.map((message) => toMessage(message, id)) : value && toMessage(value, id)
}

/** Characters that a text in JSON must escape. */
const CONTROL = /[\x00-\x1f]/
/** Texts of JSON, and parts beside them that are not valid: numbers that it does not have, and commas at the end. */
const PARTS = /"[^"\\]*(?:\\[\s\S][^"\\]*)*"|-?\b(?:NaN|Infinity)\b|,(?=\s*[}\]])/g

/** Parses a message or batch, valid or nearly so. Returns undefined for anything else. */
function parsed(text: string): unknown {
  if (!/^[{[]/.test(text)) return undefined
  return parseJson(text) ?? parseJson(text.replace(PARTS, correctPart))
}

/** Escapes the control characters of a text, drops a comma, and replaces a number that JSON does not have. */
function correctPart(part: string): string {
  if (part === ',') return ''
  return part.startsWith('"') ? part.replace(CONTROLS, (found) => JSON.stringify(found).slice(1, -1)) : 'null'
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
function toMessage(value: unknown, ownId: Asked['id']): unknown {
  if (!isObject(value)) return value
  const { jsonrpc, id, method, params, error, result, msg, message = msg } = value
  if (typeof method === 'string') {
    return { jsonrpc, id, method, ...(isObject(params) && { params: withoutMeta(params) }) }
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

/** Returns whether a text is a message of the protocol. */
function isMessage(text: string): boolean {
  const value = parseJson(text)
  return isObject(value) && value.jsonrpc === '2.0'
}

/** Reads the first piece of a body. Returns it as text, null for an empty body, and the whole body. */
async function peek(body: ReadableStream<Uint8Array>, type: string) {
  const reader = body.getReader()
  const first = await reader.read()
  const whole = new ReadableStream<Uint8Array>({
    start(controller) {
      if (first.done) controller.close()
      else controller.enqueue(first.value)
    },
    async pull(controller) {
      const { done, value } = await reader.read()
      if (done) controller.close()
      else controller.enqueue(value)
    },
    cancel: (reason) => reader.cancel(reason),
  })
  const beginning = first.done ? null : decodeText(first.value, type)
  return { body: whole, beginning }
}
