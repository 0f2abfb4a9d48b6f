import type { ServerResponse } from 'node:http'

/** How often an idle stream says that it is alive (ms). */
const PING_INTERVAL = 15_000
/** A reader that takes nothing for so long (ms) is dropped; it can come back and go on. */
const MAX_STALL = 30_000

export type ServerSentEvent = { seq: number; event: string; data: unknown }

/**
 * Writes the events as a stream (contract.md section 4, "SSE") and ends it after the last one. A reader that is too
 * slow, and a source that fails in mid-stream, cost the connection: the client resumes with the last id it has.
 */
export async function writeEvents(
  res: ServerResponse,
  batches: AsyncIterable<readonly ServerSentEvent[]>,
): Promise<void> {
  res.writeHead(200, {
    'Content-Type': 'text/event-stream; charset=utf-8',
    'Cache-Control': 'no-cache, no-transform',
    'X-Accel-Buffering': 'no',
  })
  res.flushHeaders()
  const ping = setInterval(() => res.write(': ping\n\n'), PING_INTERVAL)
  try {
    for await (const events of batches) {
      const room = res.write(events.map(toText).join(''))
      ping.refresh()
      if (!room) await drained(res)
      if (res.destroyed) return
    }
    res.end()
  } catch (error) {
    res.destroy()
    throw error
  } finally {
    clearInterval(ping)
  }
}

const toText = ({ seq, event, data }: ServerSentEvent): string =>
  `id: ${seq}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`

function drained(res: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer)
      res.off('drain', done).off('close', done)
      resolve()
    }
    const timer = setTimeout(() => res.destroy(), MAX_STALL)
    res.on('drain', done).on('close', done)
  })
}
