import { SdkError, SdkErrorCode } from '@modelcontextprotocol/client'
import { isEventStream, mend } from './mend.ts'
import type { Fetch, Seen } from './seen.ts'
import type { StrictClient } from './transport.ts'

// Repairs the responses of a session by the streams on which its transport has the answers.

type Wire = { fetch: Fetch; seen: Seen; clientOf: () => StrictClient }

/**
 * Wraps the `fetch` of the older transport, whose one stream has all answers. Some servers answer a request in the body
 * of its response.
 */
export const withOneStream =
  ({ fetch, seen, clientOf }: Wire): Fetch =>
  async (url, init = {}) => {
    const id = idOf(init)
    const onError = recording(seen, init)
    const response = await fetch(url, init)
    const mended = mend(response, { id: undefined, onError, resumedAt: resumedAtOf(init) })
    if (id === undefined || !response.ok) return mended
    void mended.then((answer) => answer.text()).then((body) => clientOf().takeAnswer(id, body), onError)
    return new Response(null, { status: 202 })
  }

/**
 * Wraps the `fetch` of streamable HTTP, whose requests have a response each. Some servers accept a request with 202,
 * and answer it on the standalone stream of the session.
 */
export function withStreams({ fetch, seen, clientOf }: Wire): Fetch {
  let hasStandalone: Promise<boolean> | undefined
  const isOfOther = (other: string) => clientOf().waiting.has(other)
  const onEnd = () => clientOf().endStandalone()
  return async (url, init = {}) => {
    const id = idOf(init)
    const resumedAt = resumedAtOf(init)
    // Begins a new session.
    if (id !== undefined && clientOf().isUnanswerable) throw new SdkError(SdkErrorCode.NotConnected, 'Not connected')
    const sent = fetch(url, init)
    if (init.method === 'GET' && resumedAt === undefined) {
      hasStandalone = sent.then(isEventStream, () => false)
      // A break of the standalone stream is no failure of a request.
      return mend(await sent, { id, onError: () => {}, onEnd })
    }
    const response = await sent
    if (id === undefined || response.status !== 202 || !(await hasStandalone))
      return mend(response, { id, onError: recording(seen, init), isOfOther, resumedAt })
    clientOf().expectOnStandalone(String(id))
    return response
  }
}

/** Returns a function that records the error of a body, unless the request was aborted. */
const recording =
  (seen: Seen, { signal }: RequestInit) =>
  (error: unknown) => {
    if (!signal?.aborted) seen.error = error
  }

/** Returns the event after which a request resumes a stream; undefined for any other request. */
const resumedAtOf = ({ method, headers }: RequestInit): string | undefined =>
  (method === 'GET' && new Headers(headers).get('last-event-id')) || undefined

/** Returns the id of the request in a message to a server; undefined for a notification or an answer. */
function idOf({ method, body }: RequestInit): number | undefined {
  const text = method === 'POST' && typeof body === 'string' ? body : ''
  // The SDK writes the method first and the id last.
  const [, id] = /"id":(\d+)\}$/.exec(text.slice(-40)) ?? []
  return id !== undefined && text.startsWith('{"method":') ? Number(id) : undefined
}
