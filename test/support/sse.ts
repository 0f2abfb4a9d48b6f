import { checkDocumented, type RequestOptions, toFetch } from './rest.ts'
import type { TestServer } from './server.ts'

/** One event as received: `text` is its lines without the final blank one. */
export type StreamEvent = { id: number; event: string; data: any; text: string; lastEventId: string }

export type EventStream = AsyncDisposable & {
  status: number
  headers: Headers
  /** The next event, or null at the end of the stream. Rejects when the connection breaks. */
  next(): Promise<StreamEvent | null>
  /** All events from here to the end. */
  rest(): Promise<StreamEvent[]>
  /** Every byte so far, comments included. For an answer without a stream (an error), all of it. */
  readonly text: string
  /** Disconnects. */
  close(): Promise<void>
}

const EVENT = /^id: ([^\n]+)\nevent: (\w+)\ndata: ([^\r\n]*)$/

function parse(text: string): StreamEvent {
  const [, id, event = '', data = ''] = EVENT.exec(text) ?? []
  if (id === undefined) throw new Error(`Not an event: ${JSON.stringify(text)}`)
  return { id: Number(id), event, data: JSON.parse(data), text, lastEventId: id }
}

/**
 * Opens an event stream over real HTTP and reads it at the caller's pace. Anything other than `id`, `event`, `data` and
 * a blank line, or a comment, is an error. So is an answer outside the OpenAPI document.
 */
export async function openStream(
  server: Pick<TestServer, 'url' | 'token'>,
  path: string,
  { method = 'GET', ...options }: RequestOptions & { method?: string } = {},
): Promise<EventStream> {
  const controller = new AbortController()
  const response = await fetch(server.url + path, { ...toFetch(server, method, options), signal: controller.signal })
  const chunks = (response.body ?? new Blob([]).stream()).pipeThrough(new TextDecoderStream()).getReader()
  const isStream = response.headers.get('content-type') === 'text/event-stream; charset=utf-8'
  const received: string[] = []
  /** The text after the events that were returned. Searching in all of the text would copy it for each piece. */
  let unread = ''

  function check(): void {
    const text = received.join('')
    checkDocumented(method, path, response, isStream || !text ? text : JSON.parse(text))
  }

  /** Reads more of the text. Returns false at its end. */
  async function receive(): Promise<boolean> {
    const { done, value = '' } = await chunks.read()
    received.push(value)
    unread += value
    if (done) check()
    return !done
  }

  async function next(): Promise<StreamEvent | null> {
    for (;;) {
      const end = unread.indexOf('\n\n')
      if (end >= 0) {
        const block = unread.slice(0, end)
        unread = unread.slice(end + 2)
        if (!block.startsWith(':')) return parse(block)
      } else if (!(await receive())) {
        if (unread) throw new Error(`The stream broke off: ${unread}`)
        return null
      }
    }
  }

  const stream: EventStream = {
    status: response.status,
    headers: response.headers,
    next,
    async rest() {
      const events: StreamEvent[] = []
      for (let event = await next(); event; event = await next()) events.push(event)
      return events
    },
    get text() {
      return received.join('')
    },
    async close() {
      controller.abort()
      await chunks.cancel().catch(() => {})
    },
    [Symbol.asyncDispose]: () => stream.close(),
  }
  if (!isStream) while (await receive());
  return stream
}
