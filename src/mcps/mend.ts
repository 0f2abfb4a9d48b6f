import { createParser, type EventSourceMessage } from 'eventsource-parser'
import { splitData } from '../lib/event-data.ts'
import { type Fields, isObject } from '../lib/unknown.ts'

/** Content types that carry no information, so that the first character decides. */
const VAGUE = /^\s*(?:$|text\/plain\b|application\/octet-stream\b)/i
const JSON_TYPE = /^\s*application\/json\b/i
const EVENT_STREAM = /^\s*text\/event-stream\b/i

/**
 * Repairs a response that the SDK would not read: derives a missing content type from the first character, and repairs
 * messages and the framing of an event stream.
 */
export async function mend(response: Response): Promise<Response> {
  const type = response.headers.get('content-type') ?? ''
  if (!response.ok || !response.body) return response
  if (EVENT_STREAM.test(type)) return withBody(response, response.body.pipeThrough(reframed()), type)
  if (JSON_TYPE.test(type)) return withBody(response, response.body.pipeThrough(repacked()), type)
  if (!VAGUE.test(type)) return response
  const { body, beginning } = await peek(response.body)
  const guessed = typeOf(beginning)
  return withBody(
    response,
    body.pipeThrough(guessed === 'text/event-stream' ? reframed() : repacked()),
    guessed ?? type,
  )
}

function typeOf(beginning: string): string | null {
  if (/^[\ufeff\s]*[{[]/.test(beginning)) return 'application/json'
  return /^\ufeff?\s*(?:data|event|id|retry)?:/.test(beginning) ? 'text/event-stream' : null
}

function withBody({ status, statusText, headers }: Response, body: ReadableStream<Uint8Array>, type: string): Response {
  const mended = new Headers(headers)
  if (type) mended.set('content-type', type)
  return new Response(body, { status, statusText, headers: mended })
}

/**
 * Writes an event stream anew: the last event ends, each message is an event of its own, and none has another name than
 * `message`, under which the SDK would ignore it.
 */
function reframed(): TransformStream<Uint8Array, Uint8Array> {
  const decoder = new TextDecoder()
  const encoder = new TextEncoder()
  let written = ''
  const parser = createParser({
    onEvent: (event) => {
      written += eventsOf(event)
    },
    onRetry: (delay) => {
      written += `retry: ${delay}\n\n`
    },
  })
  const feed = (text: string, controller: TransformStreamDefaultController<Uint8Array>) => {
    parser.feed(text)
    if (written) controller.enqueue(encoder.encode(written))
    written = ''
  }
  return new TransformStream({
    transform: (bytes, controller) => feed(decoder.decode(bytes, { stream: true }), controller),
    flush: (controller) => feed('\n\n', controller),
  })
}

function eventsOf({ id, event, data }: EventSourceMessage): string {
  const messages = (splitData(data) ?? [data]).flatMap(mendMessages)
  const name = event && !messages.every(isMessage) ? `event: ${event}\n` : ''
  return messages
    .map((message) => {
      const lines = message.split('\n').map((line) => `data: ${line}\n`)
      return `${id === undefined ? '' : `id: ${id}\n`}${name}${lines.join('')}\n`
    })
    .join('')
}

/** Passes JSON on once it is complete, with its messages repaired. */
function repacked(): TransformStream<Uint8Array, Uint8Array> {
  const decoder = new TextDecoder()
  const pieces: string[] = []
  return new TransformStream({
    transform: (bytes) => void pieces.push(decoder.decode(bytes, { stream: true })),
    flush: (controller) =>
      controller.enqueue(new TextEncoder().encode(mendMessage(pieces.join('') + decoder.decode()))),
  })
}

/** Null in a field of a message that must be absent instead. Servers in many languages send each field that they know. */
const NULL = /"(?:error|result|params|_meta)"\s*:\s*null/
/** Beginnings and ends of answers as most servers write them, which need no repair and are not parsed. */
const USUAL: readonly (readonly [begin: RegExp, end: RegExp])[] = [
  [/^\{"jsonrpc": ?"2\.0", ?"id": ?\d+, ?"result": ?\{/, /\}\s*\}$/],
  [/^\{"result":\{/, /\},"jsonrpc":"2\.0","id":\d+\}$/],
]
/** Length of the end of a message that is looked at (characters). */
const END = 60

/**
 * Repairs a message, or a batch, that the SDK would refuse as a whole: fields that are null or unknown, no `jsonrpc`, an
 * error that is a text or without a code, a result that is not an object. Returns any other text unchanged.
 */
export function mendMessage(json: string): string {
  const value = repaired(json)
  return value === undefined ? json : JSON.stringify(value)
}

/** Like {@link mendMessage}, with each message of a batch (revision 2025-03-26) by itself. */
function mendMessages(json: string): string[] {
  const value = repaired(json)
  if (value === undefined) return [json]
  return Array.isArray(value) ? value.map((message) => JSON.stringify(message)) : [JSON.stringify(value)]
}

/** Returns a repaired message or batch; undefined for a text that needs no repair or is no JSON. */
function repaired(json: string): unknown {
  const text = json.trim()
  const end = text.slice(-END)
  const isUsual = USUAL.some(([begin, ending]) => begin.test(text) && ending.test(end))
  if ((isUsual && !NULL.test(text)) || !/^[{[]/.test(text)) return undefined
  try {
    const value: unknown = JSON.parse(text)
    return Array.isArray(value) ? value.map(toMessage) : toMessage(value)
  } catch {
    return undefined
  }
}

/** Repairs a request or notification, or an answer to a request of this service. */
function toMessage(value: unknown): unknown {
  if (!isObject(value)) return value
  const { jsonrpc, id, method, params, error, result } = value
  if (typeof method === 'string') {
    return { jsonrpc, id, method, ...(params !== null && { params: withoutMeta(params) }) }
  }
  if (!('id' in value) || !('error' in value || 'result' in value)) return value
  const answer = { jsonrpc: '2.0', ...(id !== null && { id }) }
  return error === undefined || error === null || error === false
    ? { ...answer, result: toResult(result) }
    : { ...answer, error: toError(error) }
}

/** Code of errors without a valid one (`INTERNAL_ERROR` of JSON-RPC). */
const NO_CODE = -32603

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

function withoutMeta(value: unknown): unknown {
  if (!isObject(value) || value._meta !== null) return value
  const { _meta, ...fields }: Fields = value
  return fields
}

/** Returns whether a text is a message of the protocol. */
function isMessage(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) && value.jsonrpc === '2.0'
  } catch {
    return false
  }
}

/** Reads the first piece of a body. Returns it as text, and the whole body. */
async function peek(body: ReadableStream<Uint8Array>) {
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
  return { body: whole, beginning: new TextDecoder('utf-8', { ignoreBOM: true }).decode(first.value) }
}
