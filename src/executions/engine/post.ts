import { STATUS_CODES } from 'node:http'
import { APICallError } from '@ai-sdk/provider'
import { Agent, type Dispatcher } from 'undici'
import { isModelError } from './model-errors.ts'

/** How much of a refusal is read (bytes). */
const MAX_REFUSAL = 64 * 1024
const NOTHING = Buffer.alloc(0)
const encoder = new TextEncoder()
/** For how long (ms) a connection is waited for that is not free again though its answer is whole. */
const MAX_LINGER = 1_000
/** With so many parts waiting to be taken the server waits, too. */
const MANY = 100

// How long is too long is for the caller to say, who aborts.
const agent = new Agent({ headersTimeout: 0, bodyTimeout: 0 })

type Request = { url: string; headers: Record<string, string>; body: string; signal: AbortSignal | undefined }

/**
 * Sends a POST, once, and gives the parts of its answer as they come, those together that wait already: `read` makes them
 * of bytes, and of null at the end; true says that the answer is whole, whatever becomes of the connection. Throws the
 * errors of provider packages, those of `read` among them, behind the parts before; and the signal's reason, which ends
 * the connection.
 *
 * Here a run waits most of its time: a stream between undici's parser and who takes the parts, or headers that nobody
 * reads, would be there as often as there are runs.
 */
export function post<Part>(
  { url, headers, body, signal }: Request,
  read: (bytes: Buffer | null, parts: Part[]) => boolean,
): Promise<AsyncIterable<readonly Part[]>> {
  let begun: PromiseWithResolvers<AsyncIterable<readonly Part[]>> | null = Promise.withResolvers()
  const { promise } = begun
  const parts: Part[] = []
  let controller: Dispatcher.DispatchController | null = null
  let statusCode = 0
  let refusal = NOTHING
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
  agent.dispatch(
    { origin, path: pathname + search, method: 'POST', headers, body: bytes },
    {
      onRequestStart(started) {
        controller = started
        if (over) started.abort(signal?.reason)
      },
      onResponseStart(started, status) {
        // Pieces of what came with them, all of which they would keep.
        started.rawHeaders = null
        if (status < 200) return
        statusCode = status
        if (statusCode >= 300) return
        begun?.resolve(answer)
        begun = null
      },
      onResponseData(started, bytes) {
        if (statusCode < 300) {
          if (over) return
          if (read(bytes, parts)) {
            // Most are free at once, for the next request.
            lingering = setTimeout(() => started.abort(new Error('Nobody waits any longer')), MAX_LINGER)
            return finish({})
          }
          give()
          if (parts.length > MANY) started.pause()
        } else {
          refusal = Buffer.concat([refusal, bytes])
          if (refusal.length > MAX_REFUSAL) started.abort(new Error('Nobody reads more'))
        }
      },
      onResponseEnd() {
        clearTimeout(lingering)
        if (over) return
        if (statusCode >= 300) return finish({ error: failureOf({ url, statusCode, refusal }) })
        read(null, parts)
        finish({})
      },
      onResponseError(_, cause) {
        clearTimeout(lingering)
        finish({ error: isModelError(cause) ? cause : failureOf({ url, statusCode, refusal, cause }) })
      },
    },
  )
  return promise
}

function itself<T>(this: T): T {
  return this
}

type Failure = { url: string; statusCode: number; refusal: Buffer; cause?: Error }

function failureOf({ url, statusCode, refusal, cause }: Failure): APICallError {
  const details = { url, requestBodyValues: {}, cause, isRetryable: false }
  if (statusCode >= 300) {
    const message = STATUS_CODES[statusCode] ?? ''
    return new APICallError({ ...details, message, statusCode, responseBody: refusal.toString() })
  }
  const message = statusCode ? 'Failed to process successful response' : `Cannot connect to API: ${cause?.message}`
  return new APICallError({ ...details, message })
}
