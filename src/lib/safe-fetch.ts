import { setImmediate } from 'node:timers/promises'
import { type RequestInit as DispatchedInit, fetch } from 'undici'
import { ForbiddenAddress, type Guard, openNetwork } from './network.ts'
import type { ProxyFor } from './proxies.ts'

const MAX_HEADERS = 32 * 1024
const MAX_REDIRECTS = 5
/** How much of a body is handed on at once, before others get their turn. */
const PORTION = 64 * 1024

/** What says nothing of who asks, and so may follow a redirect to another server. */
const IMPERSONAL = ['accept', 'content-type', 'user-agent']

/** An answer that is not taken. Its message says why, and nothing that the server said. */
export class BadAnswer extends Error {
  override name = 'BadAnswer'
}

export type SafeFetchOptions = {
  /** Which IP addresses may be connected to: any if absent. */
  isAllowed?: Guard['isAllowed'] | undefined
  /** How names become addresses; by default the system's way. */
  lookup?: Guard['lookup']
  /** Which proxy to use; none if absent. */
  proxyFor?: ProxyFor | undefined
  /** Of one response, after decompression and however long it goes on, in bytes. */
  maxResponse: number
  /** Looks at the body of a response, portion by portion, before it is handed on: what it throws ends it. */
  inspect?: (response: Response) => (portion: Uint8Array) => void
  /** For how long a server may think before it answers, in milliseconds. */
  headersTimeout: number
  /** For how long it may be silent in the middle of a body, in milliseconds. */
  idleTimeout: number
}

export type SafeFetch = {
  fetch(url: string | URL, init?: RequestInit): Promise<Response>
  /** Ends every connection, those in use too. */
  close(): Promise<void>
}

/**
 * The one way out to an address that a user has given (contract.md section 7). It connects to allowed IP addresses
 * only: what is checked is the one that is connected to, so that neither a spelling nor a name that stands for another
 * one the next time gets around it. Redirects are followed to where the same holds, up to five, and headers do not
 * follow to another origin. Sizes and times are bounded. Its connections live until it is closed.
 */
export function createSafeFetch(options: SafeFetchOptions): SafeFetch {
  const { isAllowed, lookup, headersTimeout, idleTimeout, proxyFor = () => null } = options
  const network = openNetwork({
    proxyFor,
    allowH2: false,
    guard: isAllowed && { isAllowed, lookup },
    headersTimeout,
    bodyTimeout: idleTimeout,
    maxHeaderSize: MAX_HEADERS,
  })
  return {
    async fetch(url, init = {}) {
      const request = { ...init, dispatcher: network.dispatcher, redirect: 'manual' } as DispatchedInit
      return bounded((await follow(new URL(url), request)) as unknown as Response, options)
    },
    close: network.close,
  }
}

/** Follows a redirect that keeps the method; another one is the answer itself. */
async function follow(start: URL, request: DispatchedInit): Promise<Awaited<ReturnType<typeof fetch>>> {
  let url = start
  let init = request
  for (let redirects = 0; ; redirects++) {
    if (!/^https?:$/.test(url.protocol) || url.username || url.password) throw new ForbiddenAddress()
    const response = await fetch(url, init)
    const location = response.headers.get('location')
    if (![301, 302, 303, 307, 308].includes(response.status) || !location) return response
    const target = URL.parse(location, url)
    if (!keepsMethod(response.status, init.method, target?.origin === url.origin)) return response
    await response.body?.cancel()
    if (redirects === MAX_REDIRECTS) throw new BadAnswer('it redirects too often')
    if (!target) throw new BadAnswer('it redirects to nowhere')
    if (target.origin !== url.origin) init = { ...init, headers: impersonal(new Headers(init.headers as HeadersInit)) }
    url = target
  }
}

/**
 * Whether a redirect is followed with the same method and body. For 301 and 302 that is the sender's choice (RFC 9110,
 * section 15.4): within an origin they mostly add a slash to a path, and to make a GET of a POST would help nobody.
 */
const keepsMethod = (status: number, method: string | undefined, isSameOrigin: boolean) =>
  /^(GET|HEAD)$/i.test(method ?? 'GET') || status === 307 || status === 308 || (isSameOrigin && status !== 303)

const impersonal = (headers: Headers) =>
  Object.fromEntries(IMPERSONAL.flatMap((name) => (headers.has(name) ? [[name, headers.get(name) ?? '']] : [])))

/** The same response, whose body fails beyond so many bytes and comes in portions that keep nobody waiting. */
function bounded(response: Response, { maxResponse, inspect }: SafeFetchOptions): Response {
  if (!response.body) return response
  const look = inspect?.(response)
  let total = 0
  const limited = response.body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      async transform(chunk, controller) {
        total += chunk.byteLength
        if (total > maxResponse) return controller.error(new BadAnswer('its answer is too large'))
        for (let at = 0; at < chunk.byteLength; at += PORTION) {
          const portion = chunk.subarray(at, at + PORTION)
          look?.(portion)
          controller.enqueue(portion)
          await setImmediate()
        }
      },
    }),
  )
  const { status, statusText, headers } = response
  return new Response(limited, { status, statusText, headers: [...headers] })
}
