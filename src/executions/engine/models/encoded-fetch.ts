import { type Dispatcher, Dispatcher1Wrapper } from 'undici'
import { createDecoder, type Decoder, isGzip } from './content-encoding.ts'

/** Header of a response of {@link fetchEncoded} that states the encoding of its body. */
const ENCODING = 'x-kept-encoding'
const NAME = Buffer.from(ENCODING)

/**
 * Returns a `fetch` that does not decode bodies, because Node's fails for false and repeated encodings.
 * {@link decodedBody} decodes them. Does not follow redirects.
 */
export function fetchEncoded(dispatcher: Dispatcher): typeof fetch {
  const keeping = dispatcher.compose((dispatch) => (request, handler) => dispatch(request, keepEncoding(handler)))
  const forFetch = new Dispatcher1Wrapper(keeping)
  return (input, init) => fetch(input, { redirect: 'manual', ...init, dispatcher: forFetch } as RequestInit)
}

/** Wraps a handler so that it gets the encoding of a response under another name. */
const keepEncoding = (handler: Dispatcher.DispatchHandler): Dispatcher.DispatchHandler => ({
  onRequestStart: (...given) => handler.onRequestStart?.(...given),
  onRequestUpgrade: (...given) => handler.onRequestUpgrade?.(...given),
  onResponseStart(controller, status, headers, message) {
    const raw = controller.rawHeaders
    if (Array.isArray(raw)) for (let at = 0; at < raw.length; at += 2) if (isEncoding(raw[at])) raw[at] = NAME
    handler.onResponseStart?.(controller, status, headers, message)
  },
  onResponseData: (...given) => handler.onResponseData?.(...given),
  onResponseEnd: (...given) => handler.onResponseEnd?.(...given),
  onResponseError: (...given) => handler.onResponseError?.(...given),
})

const isEncoding = (name: Buffer | string | undefined): boolean => /^content-encoding$/i.test(String(name))

/** The decoded bytes of a body. */
export type BodyReader = Pick<ReadableStreamDefaultReader<Uint8Array>, 'read' | 'cancel'>

/** Creates the reader of a body. Decodes one that a server has compressed, also without stating it. */
export function readBody(body: ReadableStream<Uint8Array>, headers: Headers): BodyReader {
  const encoding = headers.get(ENCODING)
  if (encoding) return decoded(body, encoding).getReader()
  let reader = body.getReader()
  let isFirst = true
  return {
    async read() {
      const result = await reader.read()
      const first = isFirst ? result.value : undefined
      isFirst = false
      if (!first || !isGzip(first)) return result
      reader = decoded(withFirst(first, reader), 'gzip').getReader()
      return reader.read()
    },
    cancel: (reason) => reader.cancel(reason),
  }
}

/** Returns a stream of the bytes that have been read, and of those that follow. */
const withFirst = (first: Uint8Array, reader: ReadableStreamDefaultReader<Uint8Array>): ReadableStream<Uint8Array> =>
  new ReadableStream({
    start: (controller) => controller.enqueue(first),
    async pull(controller) {
      const { done, value } = await reader.read()
      if (done) controller.close()
      else controller.enqueue(value)
    },
    cancel: (reason) => reader.cancel(reason),
  })

function decoded(body: ReadableStream<Uint8Array>, encoding: string): ReadableStream<Uint8Array> {
  const ended = Promise.withResolvers<void>()
  let decoder: Decoder | null = null
  const decoding = new TransformStream<Uint8Array, Uint8Array>({
    start(controller) {
      const take = (bytes: Buffer | null) => (bytes ? controller.enqueue(bytes) : ended.resolve())
      const fail = (error: Error) => {
        controller.error(error)
        ended.resolve()
      }
      decoder = createDecoder(encoding, take, fail)
    },
    transform(bytes, controller) {
      if (decoder) decoder.write(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength))
      else controller.enqueue(bytes)
    },
    flush() {
      if (!decoder) return
      decoder.end()
      return ended.promise
    },
  })
  return body.pipeThrough(decoding)
}
