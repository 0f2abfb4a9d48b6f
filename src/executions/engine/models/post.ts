import { PassThrough } from 'node:stream'
import { APICallError } from '@ai-sdk/provider'
import type { Dispatcher } from 'undici'
import { createTextReader, decodeText, foreignCharset, mayBeUtf16, type TextReader } from '../../../lib/charset.ts'
import { STATUS_CODES } from '../../../lib/net/http.ts'
import { asObject, asText } from '../../../lib/unknown.ts'
import { MAX_REFUSAL, MAX_REST } from './answer-limits.ts'
import { decodedBytes, decodeWhole, isEncoded, isGzip } from './content-encoding.ts'
import { isModelError } from './model-errors.ts'

const NOTHING = Buffer.alloc(0)
const encoder = new TextEncoder()
/** Maximum wait for a connection that is still busy although its answer is complete (ms). */
const MAX_LINGER = 1_000
/** Response headers used to classify errors. */
const ERROR_HEADERS = ['retry-after', 'retry-after-ms', 'x-ms-retry-after-ms', 'location', 'content-type'] as const
/** Number of pending parts at which reading pauses. */
const MAX_PENDING = 100

/** Address of requests, with the dispatcher and the authentication headers. */
export type Target = { url: string; headers: Readonly<Record<string, string>>; dispatcher: Dispatcher }

type Request = Target & { body: string; signal: AbortSignal | undefined }

/**
 * Progress of an answer. `settled`: only usage may follow, so the rest is awaited for one second and a broken
 * connection is no error. `whole`: nothing is awaited.
 */
export type Reading = 'open' | 'settled' | 'whole'

/**
 * Sends one POST request and yields the parts of its answer in batches as they arrive. `read` converts bytes into
 * parts, and null at the end. Throws the errors of provider packages, including those of `read`, after the preceding
 * parts, and the signal's reason, which closes the connection. Does not follow redirects, because the key is for this
 * address only.
 *
 * Runs spend most of their time here, so there is no stream between undici's parser and the consumer, and unused
 * headers are dropped: both would exist once per run.
 */
export function post<Part>(
  { url, dispatcher, headers, body, signal }: Request,
  read: (bytes: Buffer | null, parts: Part[]) => Reading,
): Promise<AsyncIterable<readonly Part[]>> {
  let opened: PromiseWithResolvers<AsyncIterable<readonly Part[]>> | null = Promise.withResolvers()
  const { promise } = opened
  let controller: Dispatcher.DispatchController | null = null
  let statusCode = 0
  let replyHeaders: Record<string, string> = {}
  /** The bytes of an encoded answer, which are decoded no faster than its parts are taken. */
  let encoded: PassThrough | null = null
  let text: TextReader | null | undefined
  let refusal = NOTHING
  let hasData = false
  let isSettled = false
  let isEnded = false
  /** Whether the time for the rest is over and nothing more has been read since. */
  let isSilent = false
  /** The error that broke the connection of an encoded answer. */
  let broken: Error | null = null
  let lingering: NodeJS.Timeout | undefined
  const batches = createBatches<Part>()

  function finish(outcome: Outcome): void {
    batches.finish(outcome)
    encoded?.destroy()
    signal?.removeEventListener('abort', abort)
    opened?.reject(outcome.error)
    opened = null
  }

  function abort(): void {
    batches.discard()
    finish({ error: signal?.reason })
    controller?.abort(signal?.reason)
  }

  /** Reads bytes, or the end. An error of `read` ends the answer. */
  function consume(bytes: Buffer | null): void {
    if (batches.isFinished()) return
    const before = batches.parts.length
    const reading = read(bytes && toUtf8(bytes), batches.parts)
    if (reading === 'whole' || !bytes) {
      complete()
      return
    }
    if (reading === 'settled' && !isSettled) {
      isSettled = true
      lingering = setTimeout(awaitReading, MAX_REST)
    } else if (isSettled && batches.parts.slice(before).some(isContent)) {
      // Some servers state a finish reason with each chunk.
      isSilent = false
      lingering?.refresh()
    }
    batches.deliver()
  }

  /** Reads bytes that are plain. Pauses the connection until the reader has taken the parts, if there are many. */
  function consumePlain(bytes: Buffer): void {
    consume(bytes)
    if (!batches.isFull()) return
    controller?.pause()
    void batches.whenTaken().then(() => controller?.resume())
  }

  /** Decodes and reads an answer: a few encoded bytes may be very many. */
  async function consumeEncoded(encoding: string, source: PassThrough): Promise<void> {
    const resume = () => controller?.resume()
    source.on('drain', resume).on('close', resume)
    try {
      for await (const bytes of decodedBytes(encoding, source)) {
        consume(bytes)
        if (batches.isFinished()) return
        if (batches.isFull()) await batches.whenTaken()
      }
      if (broken) breakOff(broken)
      else consume(null)
    } catch (error) {
      endWith(error)
    }
  }

  /** Ends an answer whose connection broke. One that is settled is complete. */
  function breakOff(cause: Error): void {
    if (isSettled) consumeOrFail(null)
    else fail(cause)
  }

  function decode(encoding: string): void {
    encoded = new PassThrough()
    void consumeEncoded(encoding, encoded)
  }

  /** Ends the answer, after the bytes that have arrived while the process was too busy to read them. */
  function awaitReading(): void {
    isSilent = true
    setImmediate(() => {
      if (!isSilent) return
      // Then the reader is slow rather than the server.
      if (batches.isPaused()) lingering?.refresh()
      else consumeOrFail(null)
    })
  }

  /** Like `consume`, for callers that cannot handle a thrown error. */
  function consumeOrFail(bytes: Buffer | null): void {
    try {
      consume(bytes)
    } catch (error) {
      endWith(error)
    }
  }

  function endWith(error: unknown): void {
    if (batches.isFinished()) return
    finish({ error })
    controller?.abort(error as Error)
  }

  /** Converts bytes in another charset, which the content type states or their beginning shows. */
  function toUtf8(bytes: Buffer): Buffer {
    const type = replyHeaders['content-type']
    if (text === undefined) text = foreignCharset(type) || mayBeUtf16(bytes) ? createTextReader(type) : null
    return text ? Buffer.from(text.read(bytes)) : bytes
  }

  /** Completes the answer. Most connections are free at once for the next request. */
  function complete(): void {
    clearTimeout(lingering)
    if (!isEnded) lingering = setTimeout(() => controller?.abort(new Error('The request was aborted')), MAX_LINGER)
    finish({})
  }

  function fail(cause?: Error): void {
    const encoding = replyHeaders.encoding ?? (isGzip(refusal) ? 'gzip' : null)
    const whole = encoding ? decodeWhole(encoding, refusal) : refusal
    const body = decodeText(whole, replyHeaders['content-type'])
    const isOurs = cause && isModelError(cause)
    finish({ error: isOurs ? cause : failureOf({ url, statusCode, headers: replyHeaders, body, cause }) })
  }

  signal?.addEventListener('abort', abort)
  if (signal?.aborted) abort()
  const { origin, pathname, search } = new URL(url)
  // Allocates separate bytes. undici holds them while the stream is open, and small Buffers would retain their shared
  // 64 KiB slab.
  const bytes = encoder.encode(body)
  dispatcher.dispatch(
    { origin, path: pathname + search, method: 'POST', headers, body: bytes },
    {
      onRequestStart(started) {
        controller = started
        if (batches.isFinished()) started.abort(signal?.reason)
      },
      onResponseStart(_, status, responseHeaders) {
        if (status < 200) return
        statusCode = status
        replyHeaders = pick(responseHeaders, statusCode === 429)
        if (statusCode >= 300) {
          lingering = setTimeout(() => controller?.abort(new Error('The reader stopped')), MAX_REST)
          return
        }
        if (isEncoded(replyHeaders.encoding)) decode(replyHeaders.encoding)
        opened?.resolve(batches)
        opened = null
      },
      onResponseData(started, bytes) {
        if (statusCode < 300) {
          if (batches.isFinished()) return
          if (!hasData && !encoded && isGzip(bytes)) decode('gzip')
          hasData = true
          if (!encoded) consumePlain(bytes)
          else if (!encoded.write(bytes)) started.pause()
          return
        }
        lingering?.refresh()
        refusal = Buffer.concat([refusal, bytes])
        if (refusal.length > MAX_REFUSAL) started.abort(new Error('The reader stopped'))
      },
      onResponseEnd() {
        isEnded = true
        clearTimeout(lingering)
        if (batches.isFinished()) return
        if (statusCode >= 300) return fail()
        if (encoded) encoded.end()
        else consume(null)
      },
      onResponseError(_, cause) {
        isEnded = true
        clearTimeout(lingering)
        if (!encoded || batches.isFinished()) return breakOff(cause)
        // What has arrived is decoded first: it may be the whole answer.
        broken = cause
        encoded.end()
      },
    },
  )
  return promise
}

/** How an answer ended: with an error, or else complete. */
type Outcome = { error?: unknown }

/** Creates an iterable that hands parts to one reader in batches: all that have come since the one before. */
function createBatches<Part>() {
  const parts: Part[] = []
  let outcome: Outcome | null = null
  let reader: PromiseWithResolvers<IteratorResult<readonly Part[]>> | null = null
  let taken: PromiseWithResolvers<void> | null = null
  const batches = {
    /** Parts that the reader has not taken yet. */
    parts,
    isFinished: () => outcome !== null,
    /** Returns whether there are so many parts that reading has to pause. */
    isFull: () => outcome === null && parts.length > MAX_PENDING,
    /** Returns whether reading pauses until the reader waits for more. */
    isPaused: () => taken !== null && outcome === null,
    /** Resolves once the reader has taken all parts and waits for more, or there is an outcome. */
    whenTaken(): Promise<void> {
      taken ??= Promise.withResolvers()
      return taken.promise
    },
    /** Hands over the parts, or else the outcome, if the reader waits. */
    deliver(): void {
      if (!reader) return
      if (!parts.length && !outcome) {
        taken?.resolve()
        taken = null
        return
      }
      if (parts.length) reader.resolve({ done: false, value: parts.splice(0) })
      else if (outcome && 'error' in outcome) reader.reject(outcome.error)
      else reader.resolve({ done: true, value: undefined })
      reader = null
    },
    /** Sets the outcome, unless there is one. */
    finish(how: Outcome): void {
      outcome ??= how
      taken?.resolve()
      batches.deliver()
    },
    /** Drops the parts and the outcome. */
    discard(): void {
      parts.length = 0
      outcome = null
    },
    next(): Promise<IteratorResult<readonly Part[]>> {
      reader = Promise.withResolvers()
      const { promise } = reader
      batches.deliver()
      return promise
    },
    [Symbol.asyncIterator]: itself,
  }
  return batches
}

function itself<T>(this: T): T {
  return this
}

/** Returns whether a part belongs to the answer, rather than to its end or to the connection. */
const isContent = (part: unknown): boolean => !['raw', 'usage'].includes(asText(asObject(part).type))

/** Returns the headers used to classify errors, and the content encoding. `isLimited`: also those about limits. */
function pick(
  headers: Readonly<Record<string, string | string[] | undefined>>,
  isLimited: boolean,
): Record<string, string> {
  const limits = isLimited ? Object.entries(headers).filter(([name]) => /rate-?limit/.test(name)) : []
  const picked: Record<string, string> = Object.fromEntries(limits.map(([name, value]) => [name, String(value)]))
  for (const name of ERROR_HEADERS) if (typeof headers[name] === 'string') picked[name] = headers[name]
  const encoding = headers['content-encoding']
  if (encoding !== undefined) picked.encoding = String(encoding)
  return picked
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
