import { createTextReader, type TextReader } from '../../../lib/charset.ts'
import { parseExact } from '../../../lib/exact-json.ts'
import type { ProviderKind } from '../../../lib/net/base-address.ts'
import { raceTimeout } from '../../../lib/race-abort.ts'
import { asObject } from '../../../lib/unknown.ts'
import { MAX_REFUSAL, MAX_REST } from './answer-limits.ts'
import { createAnthropicEvents } from './anthropic-events.ts'
import { type BodyReader, readBody } from './encoded-fetch.ts'
import { createEventReader } from './event-reader.ts'
import { createGoogleEvents } from './google-events.ts'
import { ModelError } from './model-errors.ts'
import { type Emit, failureEvent, type ProviderEvents, requestChange } from './provider-events.ts'
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
      return new Response(await readRefusal(readBody(response.body, headers), charset), { headers, statusText, status })
    }
    const body = repair(readBody(response.body, response.headers), charset, CREATORS[kind], init?.signal ?? null)
    return new Response(body, { status: response.status, headers: { 'content-type': 'text/event-stream' } })
  }
}

/** Reads the body of an unsuccessful response, or its start if it is long or if the server leaves it open. */
async function readRefusal(reader: BodyReader, charset: TextReader): Promise<string> {
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
  reader: BodyReader,
  charset: TextReader,
  create: (emit: Emit) => ProviderEvents,
  signal: AbortSignal | null,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder()
  let written = ''
  const emit: Emit = (event) => {
    written += `data: ${JSON.stringify(event)}\n\n`
  }
  const text = createEventReader(create(emit))

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

/** Returns the next bytes, or the end if the answer is settled and its rest is late or broken. */
async function next(
  reader: BodyReader,
  isSettled: boolean,
): Promise<{ done: boolean; value?: Uint8Array | undefined }> {
  if (!isSettled) return reader.read().catch(broken)
  const read = reader.read().catch(() => undefined)
  return (await raceTimeout(read, MAX_REST)) ?? { done: true }
}

function broken(error: unknown): never {
  if (error instanceof ModelError) throw error
  throw Object.assign(new TypeError('Failed to process successful response', { cause: error }))
}

/** Reads a short rest so that the connection can be reused. Closes the connection if the rest is long. */
async function drain(reader: BodyReader): Promise<void> {
  const timer = setTimeout(() => void reader.cancel().catch(() => {}), MAX_REST)
  try {
    while (!(await reader.read()).done);
  } catch {
    // Errors of the unneeded rest are ignored.
  } finally {
    clearTimeout(timer)
  }
}
