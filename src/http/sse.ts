import type { ServerResponse } from 'node:http'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { sizeOf } from '../lib/page.ts'
import { drained, holdBack } from './back-pressure.ts'
import { hasLongText, jsonPieces } from './pieces.ts'

/** Interval of heartbeats of an idle stream (ms). */
const PING_INTERVAL = 15_000
/** Time that a client has to read the rest of an ended stream (ms). */
const MAX_REST = 500

/** Headers of a stream of events. */
export const EVENT_STREAM = {
  'Content-Type': 'text/event-stream; charset=utf-8',
  'Cache-Control': 'no-cache, no-transform',
  'X-Accel-Buffering': 'no',
}

/** `data` is an object with at least one key. `seq` is its id, if a client can resume after it. */
export type ServerSentEvent = { seq?: number | string; event: string; data: object }

/**
 * Writes events as a stream (contract.md section 4, "SSE") and ends it after the last one. A reader that is too slow,
 * and a source that fails in mid-stream, lose the connection, and the client resumes from its last id. `isLast`
 * recognizes the final event of the source, if it has one.
 */
export async function writeEvents(
  res: ServerResponse,
  batches: AsyncIterable<readonly ServerSentEvent[]>,
  isLast: (event: ServerSentEvent) => boolean = () => false,
): Promise<void> {
  res.writeHead(200, EVENT_STREAM)
  // Headers wait for the first events, because most streams start with some, and each write has a fixed cost.
  let headers: NodeJS.Immediate | null = setImmediate(() => res.flushHeaders())
  /** Whether an event is partly written. */
  let isInside = false
  const ping = setInterval(() => isInside || res.write(': ping\n\n'), PING_INTERVAL)

  /** Writes a text, and the headers before the first one. Returns whether the client keeps up. */
  function write(text: string): boolean {
    const mayContinue = headers ? writeFirst(res, text) : res.write(text)
    headers = null
    ping.refresh()
    return mayContinue
  }

  /** Writes events in pieces, as fast as the client reads, with a turn of the event loop after each piece. */
  async function writePieces(events: readonly ServerSentEvent[]): Promise<void> {
    isInside = true
    let left = sizeOf(events, lengthOf)
    for (const text of textsOf(events)) {
      // Counts against MAX_UNSENT_BYTES, because a reader that stops occupies the memory of all events.
      left -= text.length
      holdBack(res, Math.max(0, left))
      if (res.destroyed) return
      await (write(text) ? nextTurn() : drained(res))
    }
    isInside = false
  }

  try {
    for await (const events of batches) {
      if (headers) clearImmediate(headers)
      if (res.destroyed) return
      if (events.some(isLong)) await writePieces(events)
      else {
        // The end of the response leaves in one packet with the last event.
        if (events.some(isLast)) res.socket?.cork()
        if (!write(textOf(events))) {
          res.socket?.uncork()
          await drained(res)
        }
      }
    }
    res.end()
  } catch (error) {
    res.destroy()
    throw error
  } finally {
    if (headers) clearImmediate(headers)
    clearInterval(ping)
  }
}

/** Destroys a stream soon after its signal aborts, so that the client can read the rest. Returns the signal. */
export function attend(res: ServerResponse, signal: AbortSignal): AbortSignal {
  signal.addEventListener('abort', () => {
    if (!res.closed) setTimeout(() => res.destroy(), MAX_REST).unref()
  })
  return signal
}

/**
 * Writes headers and text in one packet, but not as one string. Node would keep the parts of such a string in memory
 * for the duration of the stream.
 */
function writeFirst(res: ServerResponse, text: string): boolean {
  const { socket } = res
  socket?.cork()
  res.flushHeaders()
  const isFlowing = res.write(text)
  socket?.uncork()
  // While corked, `write` reports a full buffer early. Only the socket's own buffer counts.
  return socket ? !socket.writableNeedDrain : isFlowing
}

const textOf = (events: readonly ServerSentEvent[]): string => events.map(toText).join('')

/**
 * Writes an event. Its data starts with its `type`, for readers that ignore names of events (contract-2.md section
 * 1.14).
 */
const toText = (event: ServerSentEvent): string => `${headOf(event)}${toLine(JSON.stringify(event.data)).slice(1)}\n\n`

const headOf = ({ seq, event }: ServerSentEvent): string =>
  `${seq === undefined ? '' : `id: ${seq}\n`}event: ${event}\ndata: {"type":"${event}",`

const lengthOf = (text: string): number => text.length

/** Fragments are short. Whole replies, and results of tools, may have megabytes. */
const isLong = ({ data }: ServerSentEvent): boolean =>
  'messageType' in data && data.messageType !== 'stream_event' && hasLongText(data)

/** Yields the same text in pieces. */
function* textsOf(events: readonly ServerSentEvent[]): Generator<string> {
  for (const event of events) {
    if (!isLong(event)) yield toText(event)
    else {
      let start = 1
      yield headOf(event)
      for (const piece of jsonPieces(event.data)) {
        yield toLine(piece).slice(start)
        start = 0
      }
      yield '\n\n'
    }
  }
}

/** Matches characters that some readers, such as Python's `splitlines`, treat as line ends. */
const LINE_ENDS = /[\u0085\u2028\u2029]/g

/** Escapes the line ends that JSON leaves unescaped (contract-2.md section 1.14). */
export const toLine = (json: string): string =>
  json.replace(LINE_ENDS, (end) => `\\u${end.charCodeAt(0).toString(16).padStart(4, '0')}`)
