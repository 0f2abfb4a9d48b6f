import { createParser } from 'eventsource-parser'
import { createTextReader, type TextReader } from '../../../lib/charset.ts'
import { splitData } from '../../../lib/event-data.ts'
import { parseExact, tryParseExact } from '../../../lib/exact-json.ts'
import type { ProviderKind } from '../../../lib/net/base-address.ts'
import { asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { MAX_EVENT, MAX_HEAD, MAX_REFUSAL, MAX_REST, refuseLong } from './answer-limits.ts'
import { createAnthropicEvents } from './anthropic-events.ts'
import { damagedBy, isGzip } from './content-encoding.ts'
import { createGoogleEvents } from './google-events.ts'
import { ModelError, ReportedError } from './model-errors.ts'
import { oddAnswer, readOddLine } from './odd-answers.ts'
import { type Emit, failureEvent, type ProviderEvents, requestChange } from './provider-events.ts'
import { withStatus } from './reported-errors.ts'
import { createResponsesEvents } from './responses-events.ts'

const CREATORS: Readonly<Record<Exclude<ProviderKind, 'compatible'>, (emit: Emit) => ProviderEvents>> = {
  anthropic: createAnthropicEvents,
  openai: createResponsesEvents,
  google: createGoogleEvents,
}

/**
 * Wraps the `fetch` of a provider package so that deviating answers of servers and gateways are repaired: the package
 * receives only known events, with all required fields. A failure is reported in the stream after the preceding events;
 * {@link failureIn} finds it. The body of an unsuccessful response is limited.
 */
export function repairStreams(kind: Exclude<ProviderKind, 'compatible'>, fetch: typeof globalThis.fetch): typeof fetch {
  return async (input, init) => {
    const response = await fetch(input, changed(init))
    const charset = createTextReader(response.headers.get('content-type'))
    if (!response.body) return response
    if (!response.ok) {
      // Some gateways answer with a status that no response can have here.
      const { headers, statusText, status: given } = response
      const status = Math.min(given, 599)
      return new Response(await readRefusal(response.body, charset), { headers, statusText, status })
    }
    const body = repair(response.body, charset, CREATORS[kind], init?.signal ?? null)
    return new Response(body, { status: response.status, headers: { 'content-type': 'text/event-stream' } })
  }
}

/** Reads the body of an unsuccessful response, or its start if it is long or if the server leaves it open. */
async function readRefusal(body: ReadableStream<Uint8Array>, charset: TextReader): Promise<string> {
  const reader = readerOf(body)
  let text = ''
  while (text.length < MAX_REFUSAL) {
    const { done, value } = await next(reader, true)
    if (done || !value) break
    text += charset.read(value)
  }
  void reader.cancel().catch(() => {})
  return text + charset.end()
}

/** Applies the change that belongs to a request. An answer in one JSON body is read like a stream. */
function changed(init: RequestInit | undefined): RequestInit | undefined {
  const change = requestChange.getStore()
  if (!change || typeof init?.body !== 'string') return init
  const headers = new Headers(init.headers)
  for (const name of change.omitHeaders ?? []) headers.delete(name)
  return { ...init, headers, body: JSON.stringify(change.changeBody(asObject(parseExact(init.body)))) }
}

function repair(
  body: ReadableStream<Uint8Array>,
  charset: TextReader,
  create: (emit: Emit) => ProviderEvents,
  signal: AbortSignal | null,
): ReadableStream<Uint8Array> {
  const reader = readerOf(body)
  const encoder = new TextEncoder()
  let written = ''
  const emit: Emit = (event) => {
    written += `data: ${JSON.stringify(event)}\n\n`
  }
  const text = createReader(create(emit))

  /** Reads until there is an event to pass on. Returns whether the answer has ended. */
  async function readMore(): Promise<boolean> {
    while (!written) {
      const { done, value } = await next(reader, text.isSettled)
      if (!done && value) text.feed(charset.read(value))
      if (done) text.end()
      if (done || text.isWhole) return true
    }
    return false
  }

  return new ReadableStream(
    {
      async pull(controller) {
        let isOver = true
        try {
          isOver = await readMore()
          if (isOver) text.close()
        } catch (error) {
          if (signal?.aborted) throw error
          if (text.isSettled) text.close()
          else emit(failureEvent(error))
        }
        if (written) controller.enqueue(encoder.encode(written))
        written = ''
        if (!isOver) return
        controller.close()
        void drain(reader)
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  )
}

type Reader = Pick<ReadableStreamDefaultReader<Uint8Array>, 'read' | 'cancel'>

/** Creates the reader of a body. Decompresses one that a server has compressed without stating it. */
function readerOf(body: ReadableStream<Uint8Array>): Reader {
  let reader = body.getReader()
  let isFirst = true
  return {
    async read() {
      const result = await reader.read()
      const first = isFirst ? result.value : undefined
      isFirst = false
      if (!first || !isGzip(first)) return result
      reader = unzipped(reader, first)
      return reader.read()
    },
    cancel: (reason) => reader.cancel(reason),
  }
}

function unzipped(reader: ReadableStreamDefaultReader<Uint8Array>, first: Uint8Array) {
  const compressed = new ReadableStream<BufferSource>({
    start: (controller) => controller.enqueue(first as Uint8Array<ArrayBuffer>),
    async pull(controller) {
      const { done, value } = await reader.read()
      if (done) controller.close()
      else controller.enqueue(value as Uint8Array<ArrayBuffer>)
    },
    cancel: (reason) => reader.cancel(reason),
  })
  return compressed.pipeThrough(new DecompressionStream('gzip')).getReader()
}

/** Returns the next bytes, or the end if the answer is settled and its rest is late or broken. */
async function next(reader: Reader, isSettled: boolean): Promise<{ done: boolean; value?: Uint8Array | undefined }> {
  if (!isSettled) return reader.read().catch(broken)
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<{ done: true }>((resolve) => {
    timer = setTimeout(() => resolve({ done: true }), MAX_REST)
  })
  return Promise.race([reader.read().catch(() => ({ done: true })), late]).finally(() => clearTimeout(timer))
}

function broken(error: unknown): never {
  throw damagedBy(error) ?? Object.assign(new TypeError('Failed to process successful response', { cause: error }))
}

/** Reads a short rest so that the connection can be reused. Closes the connection if the rest is long. */
async function drain(reader: Reader): Promise<void> {
  const timer = setTimeout(() => void reader.cancel().catch(() => {}), MAX_REST)
  try {
    while (!(await reader.read()).done);
  } catch {
    // Errors of the unneeded rest are ignored.
  } finally {
    clearTimeout(timer)
  }
}

/** Reads the text of an answer: an event stream, or the JSON or web page that servers send instead. */
function createReader(events: ProviderEvents) {
  const onLife = () => events.keepAlive()
  let head = ''
  let body: string[] | null = null
  let length = 0
  let isStream = false
  const parser = createParser({
    maxBufferSize: MAX_EVENT,
    onEvent: ({ data, event }) => readData(data, event),
    onComment: onLife,
    onError: (parseError) => {
      const found = readOddLine(parseError)
      if (!found) return
      if ('error' in found) fail(found.error)
      else readData(found.data, undefined)
    },
  })

  function fail(error: string): void {
    if (!events.isSettled) throw new ReportedError(withStatus({ error: tryParseExact(error) ?? error }))
  }

  function readData(data: string, event: string | undefined): void {
    if (events.isWhole) return
    if (!data.trim()) {
      onLife()
      return
    }
    if (data.trim() === '[DONE]') {
      if (!events.isSettled) events.done()
      return
    }
    let value: unknown
    try {
      value = parseExact(data)
    } catch {
      const pieces = splitData(data)
      if (pieces) {
        for (const piece of pieces) readData(piece, pieces.length > 1 ? undefined : event)
        return
      }
      if (events.isSettled) return
      if (event === 'error') fail(data)
      else if (/^\s*[[{"]/.test(data))
        throw new ModelError('The model server sent data that cannot be read', 'unreadable')
      // Plain texts keep the connection alive.
      else onLife()
      return
    }
    if (event === 'error' && !isObject(value)) fail(asText(value) || data)
    readValue(value, event)
  }

  function readValue(value: unknown, event: string | undefined): void {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (events.isWhole) return
      if (!isObject(one)) onLife()
      // Without a name of its own, an event is called `message`.
      else readEvent(typeof one.type === 'string' || !event || event === 'message' ? one : { ...one, type: event })
    }
  }

  function readEvent(value: Fields): void {
    const { isSettled } = events
    try {
      events.read(value)
    } catch (error) {
      // Errors after the finish reason are ignored.
      if (!isSettled) throw error
    }
  }

  return {
    get isSettled() {
      return events.isSettled
    },
    get isWhole() {
      return events.isWhole
    },
    feed(text: string): void {
      if (isStream) {
        if (!events.isBegun && head.length < MAX_HEAD) head = `${head}${text}`.slice(0, MAX_HEAD)
        parser.feed(text)
        return
      }
      if (!body) {
        head += text
        const first = /[^\s\ufeff]/.exec(head)?.[0]
        if (!first) {
          onLife()
          return
        }
        if (first !== '{' && first !== '[' && first !== '<') {
          isStream = true
          const begun = head.replace(/^\ufeff/, '')
          head = begun.slice(0, MAX_HEAD)
          parser.feed(begun)
          return
        }
        body = [head.replace(/^\ufeff/, '')]
        head = head.slice(0, MAX_HEAD)
      } else {
        body.push(text)
        if (head.length < MAX_HEAD) head = `${head}${text}`.slice(0, MAX_HEAD)
      }
      length += text.length
      if (length > MAX_EVENT) refuseLong()
    },
    end(): void {
      const whole = body?.join('') ?? ''
      if (isStream) closeLast()
      else if (whole && !whole.trimStart().startsWith('<')) {
        const value = tryParseExact(whole)
        if (value !== undefined) readValue(value, undefined)
        else for (const line of whole.split('\n')) if (line.trim()) readData(line, undefined)
      }
      if (!events.isBegun && !events.isSettled) throw oddAnswer(head)
    },
    close: () => events.close(),
  }

  function closeLast(): void {
    try {
      parser.feed('\n\n')
    } catch (error) {
      const isCutOff = error instanceof ModelError && error.kind === 'unreadable'
      if (!isCutOff) throw error
    }
  }
}
