import type { ServerResponse } from 'node:http'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { isTerminal } from '../executions/engine/events/events.ts'
import { hasLongText, jsonPieces } from '../lib/pieces.ts'
import { drained } from './unread.ts'

/** How often an idle stream says that it is alive (ms). */
const PING_INTERVAL = 15_000
/** How long (ms) a client may still take to read the rest of a stream that has ended. */
const MAX_REST = 500

/** Headers of a stream of events. */
export const EVENT_STREAM = {
  'Content-Type': 'text/event-stream; charset=utf-8',
  'Cache-Control': 'no-cache, no-transform',
  'X-Accel-Buffering': 'no',
}

/** `data` is an object with at least one key. `seq` is its id, if a client can resume behind it. */
export type ServerSentEvent = { seq?: number | string; event: string; data: object }

/**
 * Writes the events as a stream (contract.md section 4, "SSE") and ends it after the last one. A reader that is too
 * slow, and a source that fails in mid-stream, cost the connection: the client resumes with the last id it has. A long
 * event is written in pieces, with a turn for everybody else behind each. `isLast` tells the event that the source ends
 * with, if there is such a one.
 */
export async function writeEvents(
  res: ServerResponse,
  batches: AsyncIterable<readonly ServerSentEvent[]>,
  isLast: (event: ServerSentEvent) => boolean = isTerminal,
): Promise<void> {
  res.writeHead(200, EVENT_STREAM)
  // With the first events, if they are there: most streams begin with some, and each write costs as much as its text.
  let headers: NodeJS.Immediate | null = setImmediate(() => res.flushHeaders())
  /** Whether a part of an event was written, and the rest is to come. */
  let isInside = false
  const ping = setInterval(() => isInside || res.write(': ping\n\n'), PING_INTERVAL)
  try {
    for await (const events of batches) {
      if (headers) clearImmediate(headers)
      isInside = events.some(isLong)
      // The end leaves with the last event.
      if (!isInside && events.some(isLast)) res.socket?.cork()
      for (const text of isInside ? textsOf(events) : [textOf(events)]) {
        if (res.destroyed) return
        const hasRoom = headers ? begin(res, text) : write(res, text)
        headers = null
        ping.refresh()
        if (!hasRoom) {
          res.socket?.uncork()
          await drained(res)
        } else if (isInside) await nextTurn()
      }
      isInside = false
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

/** Ends a stream whose signal has aborted, with a moment to read what is left of it. Returns the signal. */
export function attend(res: ServerResponse, signal: AbortSignal): AbortSignal {
  signal.addEventListener('abort', () => {
    if (!res.closed) setTimeout(() => res.destroy(), MAX_REST).unref()
  })
  return signal
}

/**
 * Together with the headers, but not as one text with them: Node would keep the headers, in the dozens of pieces of which
 * it has made them, as long as the stream is on.
 */
function begin(res: ServerResponse, text: string): boolean {
  res.cork()
  res.flushHeaders()
  const room = res.write(text)
  res.uncork()
  // While it was held back there was no room for more than a little; what counts is what the socket has not taken.
  return res.socket ? !res.socket.writableNeedDrain : room
}

/**
 * Writes to a response whose headers have been sent. Node makes three pieces of a chunk, its length and its end, which
 * costs twice as much as writing the one piece that they are.
 */
function write(res: ServerResponse, text: string): boolean {
  const { socket } = res
  // Somebody who speaks HTTP/1.0, or still reads the answer before; a chunk of nothing would be the end.
  if (!socket || !res.chunkedEncoding || !text) return res.write(text)
  return socket.write(`${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`)
}

const textOf = (events: readonly ServerSentEvent[]): string => events.map(toText).join('')

/** The data begins with its `type`, for readers that do not see names of events (contract-2.md section 1.14). */
const toText = (event: ServerSentEvent): string => `${headOf(event)}${toLine(JSON.stringify(event.data)).slice(1)}\n\n`

const headOf = ({ seq, event }: ServerSentEvent): string =>
  `${seq === undefined ? '' : `id: ${seq}\n`}event: ${event}\ndata: {"type":"${event}",`

/** Fragments are short. Whole replies, and results of tools, may be megabytes. */
const isLong = ({ data }: ServerSentEvent): boolean =>
  'messageType' in data && data.messageType !== 'stream_event' && hasLongText(data)

/** The same text in pieces. */
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

/** Matches what some readers, such as Python's `splitlines`, take for the end of a line. */
const LINE_ENDS = /[\u0085\u2028\u2029]/g

/** Escapes the ends of lines that JSON leaves as they are (contract-2.md section 1.14). */
export const toLine = (json: string): string =>
  json.replace(LINE_ENDS, (end) => `\\u${end.charCodeAt(0).toString(16).padStart(4, '0')}`)
