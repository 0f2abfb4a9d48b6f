/** Content types that carry no information, so that the first character decides. */
const VAGUE = /^\s*(?:$|text\/plain\b|application\/octet-stream\b)/i
const EVENT_STREAM = /^\s*text\/event-stream\b/i
const END_OF_EVENT = new TextEncoder().encode('\n\n')

/**
 * Repairs a response that the SDK would not read: derives a missing content type from the first character, and
 * terminates the last event of a stream.
 */
export async function mend(response: Response): Promise<Response> {
  const type = response.headers.get('content-type') ?? ''
  if (!response.ok || !response.body) return response
  if (EVENT_STREAM.test(type)) return withBody(response, response.body.pipeThrough(ended()), type)
  if (!VAGUE.test(type)) return response
  const { body, beginning } = await peek(response.body)
  const guessed = typeOf(beginning)
  return withBody(response, guessed === 'text/event-stream' ? body.pipeThrough(ended()) : body, guessed ?? type)
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

/** Passes everything on and terminates the last event. */
const ended = () =>
  new TransformStream<Uint8Array, Uint8Array>({ flush: (controller) => controller.enqueue(END_OF_EVENT) })

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
