import { isPublicAddress } from '../../lib/net/addresses.ts'
import { createProxyFor } from '../../lib/net/proxies.ts'
import { BadAnswer, createSafeFetch } from '../../lib/net/safe-fetch.ts'
import type { Settings } from '../../settings.ts'

/** Maximum time for an answer, and for all requests of one task (ms). */
export type Patience = { one: number; all: number }
const USUAL: Patience = { one: 10_000, all: 20_000 }
const MAX_ANSWER = 256 * 1024
const MAX_REDIRECTS = 3

/** Sends the requests of one task to authorization servers, only to addresses that the private-network rule permits. */
export type OAuthHttp = {
  send(address: string | URL, init?: RequestInit): Promise<Response>
  close(): Promise<void>
}

/** Opens the connections of a task. Its time starts now. */
export function openHttp(settings: Settings, { one, all } = USUAL): OAuthHttp {
  const until = AbortSignal.timeout(all)
  const options = {
    isAllowed: settings.ALLOW_PRIVATE_NETWORK ? undefined : isPublicAddress,
    proxyFor: createProxyFor(settings),
    maxResponse: MAX_ANSWER,
    headersTimeout: one,
    idleTimeout: one,
  }
  const reading = createSafeFetch({ ...options, maxRedirects: MAX_REDIRECTS })
  const writing = createSafeFetch({ ...options, maxRedirects: 0 })

  /** Follows redirects only of metadata, and only within its origin: the host vouches for it. */
  async function send(address: string | URL, init: RequestInit = {}): Promise<Response> {
    const signal = AbortSignal.any([until, AbortSignal.timeout(one)])
    if (init.method !== undefined && init.method !== 'GET') return writing.fetch(address, { ...init, signal })
    const response = await reading.fetch(address, { ...init, signal })
    if (response.url && new URL(response.url).origin !== new URL(address).origin) {
      await response.body?.cancel()
      throw new BadAnswer('it redirects to another host')
    }
    return response
  }

  return {
    send,
    async close() {
      await Promise.all([reading.close(), writing.close()])
    },
  }
}
