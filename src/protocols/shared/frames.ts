import type { ServerResponse } from 'node:http'
import { type AppError, toAppError } from '../../errors.ts'
import { drained } from '../../http/back-pressure.ts'
import { report } from '../../http/log.ts'
import { EVENT_STREAM, toLine } from '../../http/sse.ts'
import type { Context } from '../../trpc.ts'

/** How often an idle stream sends a comment (ms). */
const PING_INTERVAL = 15_000

/**
 * Writes texts as an event stream and ends it after the last one. Waits for a slow reader. A source that fails costs
 * the connection, unless `onError` returns a last text for the client.
 */
export async function writeFrames(
  res: ServerResponse,
  texts: AsyncIterable<string> | Iterable<string>,
  { headers = {}, onError }: { headers?: Record<string, string>; onError?: (error: unknown) => string | null } = {},
): Promise<void> {
  res.writeHead(200, { ...EVENT_STREAM, ...headers })
  if (res.req.method === 'HEAD') return void res.end()
  res.flushHeaders()
  const ping = setInterval(() => res.write(': ping\n\n'), PING_INTERVAL)
  try {
    for await (const text of texts) {
      if (res.destroyed) return
      if (!text) continue
      ping.refresh()
      if (!res.write(text)) await drained(res)
    }
    res.end()
  } catch (error) {
    const last = onError?.(error)
    if (!last || res.destroyed) {
      res.destroy()
      throw error
    }
    res.end(last)
  } finally {
    clearInterval(ping)
  }
}

/** Returns an `onError` of {@link writeFrames} that logs the cause of an unexpected error, which then has no other trace. */
export const reported =
  ({ deps, requestId }: Pick<Context, 'deps' | 'requestId'>, toLast: (error: AppError) => string) =>
  (thrown: unknown): string => {
    const error = toAppError(thrown)
    report(deps, error, requestId)
    return toLast(error)
  }

/** Writes an event of a stream whose events have no ids. `name`: the event's name, if the protocol has names. */
export function frame(data: object | string, name?: string): string {
  const json = typeof data === 'string' ? data : JSON.stringify(data)
  return `${name === undefined ? '' : `event: ${name}\n`}data: ${toLine(json)}\n\n`
}
