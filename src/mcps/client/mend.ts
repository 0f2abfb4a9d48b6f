import { createParser, type EventSourceMessage } from 'eventsource-parser'
import { createTextReader, decodeText, type TextReader } from '../../lib/charset.ts'
import { splitData } from '../../lib/event-data.ts'
import { parseJson } from '../../lib/json.ts'
import { BadAnswer } from '../../lib/net/safe-fetch.ts'
import { isObject } from '../../lib/unknown.ts'
import { type IsOfOther, mendMessage, mendMessages, NO_CODE } from './mend-message.ts'
import { counter } from './message-size.ts'

const JSON_TYPE = /[/+]json\b/i
/** The content type of a sentence, in which some gateways answer with 200, and the maximum length of one (characters). */
const SENTENCE = /^\s*(?:text\/plain\b.*)?$/i
const MAX_SENTENCE = 500
const EVENT_STREAM = /^\s*text\/event-stream\b/i

/** Returns whether a response is a successful event stream. */
export const isEventStream = ({ ok, headers }: Response): boolean =>
  ok && EVENT_STREAM.test(headers.get('content-type') ?? '')

/** Reason of a request whose response has no body. */
export const EMPTY = 'its answer is empty'

/** The request that a response answers. */
export type AnsweredRequest = {
  /** Its id, if the answer has to be in the response. */
  id: number | undefined
  isOfOther?: IsOfOther
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
export async function mend(
  response: Response,
  { id, onError, onEnd, isOfOther, resumedAt }: AnsweredRequest,
): Promise<Response> {
  if (!response.ok) return response
  const isAwaited = id !== undefined
  if (!response.body) {
    if (isAwaited && [202, 204, 205].includes(response.status)) throw new BadAnswer(EMPTY)
    return response
  }
  const through = (body: ReadableStream<Uint8Array>, repair: TransformStream<Uint8Array, Uint8Array>, as: string) => {
    body.pipeTo(repair.writable).catch(onError).finally(onEnd)
    const { statusText, headers } = response
    // The SDK does not read the body of a 202, in which some servers answer.
    const status = isAwaited && response.status === 202 ? 200 : response.status
    return withBody({ status, statusText, headers }, repair.readable, as)
  }
  const type = response.headers.get('content-type') ?? ''
  const charset = createTextReader(type)
  if (resumedAt !== undefined) return through(response.body, reframed(id, charset, resumedAt), 'text/event-stream')
  if (EVENT_STREAM.test(type)) return through(response.body, reframed(id, charset), type)
  const mayBeSentence = isAwaited && SENTENCE.test(type)
  const { body, beginning } = await peek(response.body, type, (text) => saysType(text, mayBeSentence))
  if (isAwaited && beginning === null) throw new BadAnswer(EMPTY)
  const found = typeOf(beginning ?? '')
  const guessed = found ?? (JSON_TYPE.test(type) ? 'application/json' : null)
  if (isAwaited && response.status === 202 && !found) {
    await body.cancel()
    throw new BadAnswer(EMPTY)
  }
  const sentence = mayBeSentence && guessed === null ? sentenceIn(beginning ?? '') : null
  if (sentence !== null) {
    await body.cancel()
    return refusalBy(response, id, sentence)
  }
  if (guessed === null) return withBody(response, body, type)
  const isStream = guessed === 'text/event-stream'
  return through(body, isStream ? reframed(id, charset) : repacked(id, charset, isOfOther), guessed)
}

/** Returns a response with the error of a request that a server refused with a sentence. */
function refusalBy(response: Response, id: AnsweredRequest['id'], sentence: string): Response {
  const answer = JSON.stringify({ jsonrpc: '2.0', id, error: { code: NO_CODE, message: sentence } })
  return withBody(response, new Blob([answer]).stream(), 'application/json')
}

/** Returns a body that is one short sentence, or null for any other. */
function sentenceIn(beginning: string): string | null {
  const sentence = beginning.trim()
  return sentence && sentence.length <= MAX_SENTENCE && !sentence.startsWith('<') ? sentence : null
}

function typeOf(beginning: string): string | null {
  if (/^[\ufeff\s]*"?[{[]/.test(beginning)) return 'application/json'
  return /^\ufeff?\s*(?:data|event|id|retry)?:/.test(beginning) ? 'text/event-stream' : null
}

/** Length of the longest beginning of an event stream, `event:` (characters). */
const MARK = 6

/** Returns whether a beginning is enough to find the type of a body, and whether the body is one sentence. */
const saysType = (beginning: string, mayBeSentence: boolean): boolean =>
  typeOf(beginning) !== null ||
  beginning.length > MAX_SENTENCE ||
  (!mayBeSentence && beginning.trimStart().length >= MARK)

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
function reframed(
  id: AnsweredRequest['id'],
  charset: TextReader,
  resumedAt?: string,
): TransformStream<Uint8Array, Uint8Array> {
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
  id: AnsweredRequest['id'],
): string {
  // An event of the older transport. Servers behind a proxy name their own scheme or host in it.
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
  id: AnsweredRequest['id'],
  charset: TextReader,
  isOfOther: IsOfOther | undefined,
): TransformStream<Uint8Array, Uint8Array> {
  const pieces: string[] = []
  return new TransformStream({
    transform: (bytes) => void pieces.push(charset.read(bytes)),
    flush: (controller) =>
      controller.enqueue(new TextEncoder().encode(mendMessage(pieces.join('') + charset.end(), id, isOfOther))),
  })
}

/** Returns whether a text is a message of the protocol. */
function isMessage(text: string): boolean {
  const value = parseJson(text)
  return isObject(value) && value.jsonrpc === '2.0'
}

/**
 * Reads the beginning of a body, whose pieces may be single bytes, until it says enough. Returns it as text, null for
 * an empty body, and the whole body.
 */
async function peek(body: ReadableStream<Uint8Array>, type: string, saysEnough: (beginning: string) => boolean) {
  const reader = body.getReader()
  const pieces: Uint8Array[] = []
  let beginning: string | null = null
  while (beginning === null || !saysEnough(beginning)) {
    const { done, value } = await reader.read()
    if (done) break
    pieces.push(value)
    beginning = decodeText(Buffer.concat(pieces), type)
  }
  const whole = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const piece of pieces) controller.enqueue(piece)
    },
    async pull(controller) {
      const { done, value } = await reader.read()
      if (done) controller.close()
      else controller.enqueue(value)
    },
    cancel: (reason) => reader.cancel(reason),
  })
  return { body: whole, beginning }
}
