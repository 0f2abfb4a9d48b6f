import type { AuthorizationNeeded } from '../../executions/engine/run/abort.ts'

/** Observations on the wire that the SDK does not report. */
export type Seen = {
  /** The latest unsuccessful response. `movedTo`: the other origin to which the request was redirected. */
  refusal: { status: number; headers: Headers; movedTo: string | null } | null
  /** The error of the latest request without a response. */
  error: unknown
  /** Set if the user must connect before the request can be made. */
  needed: AuthorizationNeeded | null
}

export type Fetch = (url: string | URL, init?: RequestInit) => Promise<Response>

/** Wraps `fetch` to record the headers of unsuccessful responses and network errors, which the SDK discards. */
export const watching =
  (fetch: Fetch, seen: Seen): Fetch =>
  async (url, init) => {
    try {
      const response = await fetch(url, init)
      const { ok, status, headers } = response
      const origin = URL.parse(response.url)?.origin
      const movedTo = origin && origin !== new URL(url).origin ? origin : null
      // A rejected GET is common and harmless.
      if (!ok && init?.method !== 'GET' && init?.method !== 'DELETE') seen.refusal = { status, headers, movedTo }
      return response
    } catch (error) {
      if (!init?.signal?.aborted) seen.error = error
      throw error
    }
  }
