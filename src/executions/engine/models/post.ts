import { STATUS_CODES } from 'node:http'
import { APICallError } from '@ai-sdk/provider'
import type { Dispatcher } from 'undici'
import { createDecoder, type Decoder, decodeWhole } from './content-encoding.ts'
import { isModelError } from './model-errors.ts'

/** How much of a refusal is read (bytes). */
const MAX_REFUSAL = 64 * 1024
const NOTHING = Buffer.alloc(0)
const encoder = new TextEncoder()
/** For how long (ms) a connection is waited for that is not free again though its answer is whole. */
const MAX_LINGER = 1_000
/** For how long (ms) the rest of a settled answer is waited for. */
const MAX_REST = 1_000
/** The response headers that errors need. */
const TELLING = ['retry-after', 'retry-after-ms', 'x-should-retry', 'location', 'content-type'] as const
/** With so many parts waiting to be taken the server waits, too. */
const MANY = 100

/** Where requests go, by which way out, and what lets them in there. */
export type Target = { url: string; headers: Readonly<Record<string, string>>; dispatcher: Dispatcher }

type Request = Target & { body: string; signal: AbortSignal | undefined }

/**
 * How far an answer is: `settled` says that only a second is waited for what may follow, and that a connection that breaks
 * changes nothing; `whole` that nothing is waited for.
 */
export type Reading = 'open' | 'settled' | 'whole'

/**
 * Sends a POST, once, and gives the parts of its answer as they come, those together that wait already: `read` makes them
 * of bytes, and of null at the end. Throws the errors of provider packages, those of `read` among them, behind the parts
 * before; and the signal's reason, which ends the connection. Follows no redirect: the key is for this address alone.
 *
 * Here a run waits most of its time: a stream between undici's parser and who takes the parts, or headers that nobody
 * reads, would be there as often as there are runs.
 */
export function post<Part>(
  { url, dispatcher, headers, body, signal }: Request,
  read: (bytes: Buffer | null, parts: Part[]) => Reading,
): Promise<AsyncIterable<readonly Part[]>> {
  let begun: PromiseWithResolvers<AsyncIterable<readonly Part[]>> | null = Promise.withResolvers()
  const { promise } = begun
  const parts: Part[] = []
  let controller: Dispatcher.DispatchController | null = null
  let statusCode = 0
  let telling: Record<string, string> = {}
  let decoder: Decoder | null = null
  let refusal = NOTHING
  let isSettled = false
  let over: { error?: unknown } | null = null
  let lingering: NodeJS.Timeout | undefined
  let taker: PromiseWithResolvers<IteratorResult<readonly Part[]>> | null = null

  function give(): void {
    if (!taker) return
    if (!parts.length && !over) {
      controller?.resume()
      return
    }
    if (parts.length) taker.resolve({ done: false, value: parts.splice(0) })
    else if (over && 'error' in over) taker.reject(over.error)
    else taker.resolve({ done: true, value: undefined })
    taker = null
  }

  function finish(how: { error?: unknown }): void {
    over ??= how
    signal?.removeEventListener('abort', abort)
    begun?.reject(over.error)
    begun = null
    give()
  }

  function abort(): void {
    parts.length = 0
    over = null
    finish({ error: signal?.reason })
    controller?.abort(signal?.reason)
  }

  /** Reads bytes, or the end; whatever `read` throws ends the answer. */
  function take(bytes: Buffer | null): void {
    if (over) return
    const reading = read(bytes, parts)
    if (reading === 'whole' || !bytes) {
      end()
      return
    }
    if (reading === 'settled' && !isSettled) {
      isSettled = true
      lingering = setTimeout(() => takeOrFail(null), MAX_REST)
    }
    give()
    if (parts.length > MANY) controller?.pause()
  }

  /** The same, where nobody hears of an error that is thrown. */
  function takeOrFail(bytes: Buffer | null): void {
    try {
      take(bytes)
    } catch (error) {
      finish({ error })
      controller?.abort(error as Error)
    }
  }

  /** The answer is whole. Most connections are free at once, for the next request. */
  function end(): void {
    clearTimeout(lingering)
    if (!isEnded) lingering = setTimeout(() => controller?.abort(new Error('Nobody waits any longer')), MAX_LINGER)
    finish({})
  }
  let isEnded = false

  function fail(cause?: Error): void {
    const body = () => (telling.encoding ? decodeWhole(telling.encoding, refusal) : refusal).toString()
    const isOurs = cause && isModelError(cause)
    finish({ error: isOurs ? cause : failureOf({ url, statusCode, headers: telling, body: body(), cause }) })
  }

  const answer = {
    next(): Promise<IteratorResult<readonly Part[]>> {
      taker = Promise.withResolvers()
      const { promise } = taker
      give()
      return promise
    },
    [Symbol.asyncIterator]: itself,
  }

  signal?.addEventListener('abort', abort)
  if (signal?.aborted) abort()
  const { origin, pathname, search } = new URL(url)
  // Bytes of its own: undici keeps them as long as the stream is on, and with them all else that is in the 64 KiB from
  // which Buffer takes small ones.
  const bytes = encoder.encode(body)
  dispatcher.dispatch(
    { origin, path: pathname + search, method: 'POST', headers, body: bytes },
    {
      onRequestStart(started) {
        controller = started
        if (over) started.abort(signal?.reason)
      },
      onResponseStart(started, status, responseHeaders) {
        // Pieces of what came with them, all of which they would keep.
        started.rawHeaders = null
        if (status < 200) return
        statusCode = status
        telling = pick(responseHeaders)
        if (statusCode >= 300) return
        decoder = createDecoder(responseHeaders['content-encoding'], takeOrFail, (error) => fail(error))
        begun?.resolve(answer)
        begun = null
      },
      onResponseData(started, bytes) {
        if (statusCode < 300) return decoder ? decoder.write(bytes) : take(bytes)
        refusal = Buffer.concat([refusal, bytes])
        if (refusal.length > MAX_REFUSAL) started.abort(new Error('Nobody reads more'))
      },
      onResponseEnd() {
        isEnded = true
        clearTimeout(lingering)
        if (over) return
        if (statusCode >= 300) return fail()
        if (decoder) decoder.end()
        else take(null)
      },
      onResponseError(_, cause) {
        isEnded = true
        clearTimeout(lingering)
        if (isSettled) return takeOrFail(null)
        fail(cause)
      },
    },
  )
  return promise
}

function itself<T>(this: T): T {
  return this
}

/** The headers that errors need, and the encoding of the body. */
function pick(headers: Readonly<Record<string, string | string[] | undefined>>): Record<string, string> {
  const known = TELLING.flatMap((name) => (typeof headers[name] === 'string' ? [[name, headers[name]]] : []))
  const encoding = headers['content-encoding']
  return Object.fromEntries(typeof encoding === 'string' ? [...known, ['encoding', encoding]] : known)
}

type Failure = {
  url: string
  statusCode: number
  headers: Record<string, string>
  body: string
  cause: Error | undefined
}

function failureOf({ url, statusCode, headers, body, cause }: Failure): APICallError {
  const details = { url, requestBodyValues: {}, cause, isRetryable: false }
  if (statusCode >= 300) {
    const message = STATUS_CODES[statusCode] ?? ''
    return new APICallError({ ...details, message, statusCode, responseHeaders: headers, responseBody: body })
  }
  const message = statusCode ? 'Failed to process successful response' : `Cannot connect to API: ${cause?.message}`
  return new APICallError({ ...details, message })
}
