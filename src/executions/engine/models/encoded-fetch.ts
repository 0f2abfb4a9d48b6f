import { type Dispatcher, Dispatcher1Wrapper } from 'undici'
import { decodedBytes, isGzip, startingWith } from './content-encoding.ts'

/** Header of a response of {@link fetchEncoded} that states the encoding of its body. */
const ENCODING = 'x-kept-encoding'
const NAME = Buffer.from(ENCODING)

/**
 * Returns a `fetch` that does not decode bodies, because Node's fails for false and repeated encodings.
 * {@link readBody} decodes them. Does not follow redirects.
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
  const source = body.getReader()
  if (encoding) return decoded(source, encoding)
  let reader: BodyReader = source
  let isFirst = true
  return {
    async read() {
      const result = await reader.read()
      const first = isFirst ? result.value : undefined
      isFirst = false
      if (!first || !isGzip(first)) return result
      reader = decoded(source, 'gzip', first)
      return reader.read()
    },
    cancel: (reason) => reader.cancel(reason),
  }
}

/** Returns the reader of the decoded bytes of a body, whose first ones may have been read. */
function decoded(source: BodyReader, encoding: string, first?: Uint8Array): BodyReader {
  const rest = bytesOf(source)
  const bytes = decodedBytes(encoding, first ? startingWith(first, rest) : rest)
  let isCancelled = false
  return {
    async read() {
      try {
        const { done, value } = await bytes.next()
        if (!done && !isCancelled) return { done: false, value }
      } catch (error) {
        if (!isCancelled) throw error
      }
      return { done: true, value: undefined }
    },
    async cancel(reason) {
      isCancelled = true
      await source.cancel(reason)
      await bytes.return(undefined)
    },
  }
}

async function* bytesOf(source: BodyReader): AsyncGenerator<Uint8Array, void> {
  for (let next = await source.read(); !next.done; next = await source.read()) yield next.value
}
