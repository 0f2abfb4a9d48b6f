import { setImmediate } from 'node:timers/promises'
import { type RequestInit as DispatchedInit, fetch } from 'undici'
import { ForbiddenAddress, type Guard, openNetwork } from './network.ts'
import type { ProxyFor } from './proxies.ts'

const MAX_HEADERS = 32 * 1024
const MAX_REDIRECTS = 5
/** Maximum part of a body that is passed on before the event loop gets a turn (bytes). */
const PORTION = 64 * 1024

/** Headers that do not identify the caller and may follow a redirect to another server. */
const IMPERSONAL = ['accept', 'content-type', 'user-agent']

/** Thrown for an unacceptable answer. The message states the reason and nothing from the server. */
export class BadAnswer extends Error {
  override name = 'BadAnswer'
}

/** Message of an answer that is longer than `maxResponse`. */
export const TOO_LARGE = 'its answer is too large'

export type SafeFetchOptions = {
  /** Returns whether connections to an IP address are allowed. Default: to any. */
  isAllowed?: Guard['isAllowed'] | undefined
  /** Resolves names. Default: the system resolver. */
  lookup?: Guard['lookup']
  /** Selects the proxy. Default: none. */
  proxyFor?: ProxyFor | undefined
  /** Maximum number of redirects that are followed. Default: 5. */
  maxRedirects?: number
  /** Whether redirects to another origin are refused. Default: false. */
  staysOnOrigin?: boolean | undefined
  /** Maximum size of one response after decompression (bytes). */
  maxResponse: number
  /** Inspects the body of a response portion by portion before it is passed on. An error ends the response. */
  inspect?: (response: Response) => (portion: Uint8Array) => void
  /** Maximum time until a server answers (ms). */
  headersTimeout: number
  /** Maximum pause within a body (ms). */
  idleTimeout: number
  /** Time that an idle connection is reused (ms), if the server states none. Default: 4 s. */
  keepAlive?: number
}

export type SafeFetch = {
  fetch(url: string | URL, init?: RequestInit): Promise<Response>
  /** Closes every connection, including those in use. */
  close(): Promise<void>
}

/**
 * Creates a `fetch` for user-supplied addresses (contract.md section 7). It connects only to allowed IP addresses and
 * checks the very address it connects to, so that neither unusual spellings nor DNS rebinding bypass the check. Follows
 * up to five redirects under the same rule, without headers to another origin. Sizes and times are limited. Its
 * connections live until it is closed.
 */
export function createSafeFetch(options: SafeFetchOptions): SafeFetch {
  const { isAllowed, lookup, headersTimeout, idleTimeout, keepAlive, proxyFor = () => null } = options
  const network = openNetwork({
    proxyFor,
    allowH2: false,
    guard: isAllowed && { isAllowed, lookup },
    headersTimeout,
    bodyTimeout: idleTimeout,
    ...(keepAlive !== undefined && { keepAliveTimeout: keepAlive }),
    maxHeaderSize: MAX_HEADERS,
  })
  return {
    async fetch(url, init = {}) {
      const request = { ...init, dispatcher: network.dispatcher, redirect: 'manual' } as DispatchedInit
      return bounded((await followRedirects(new URL(url), request, options)) as unknown as Response, options)
    },
    close: network.close,
  }
}

/** Follows redirects that preserve the method. Any other redirect is returned as the answer. */
async function followRedirects(
  start: URL,
  request: DispatchedInit,
  { maxRedirects = MAX_REDIRECTS, staysOnOrigin }: Pick<SafeFetchOptions, 'maxRedirects' | 'staysOnOrigin'>,
): Promise<Awaited<ReturnType<typeof fetch>>> {
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
    if (redirects >= maxRedirects) {
      throw new BadAnswer(maxRedirects ? 'it redirects too often' : 'it redirects, which is not followed with secrets')
    }
    if (!target) throw new BadAnswer('it redirects to nowhere')
    if (target.origin !== url.origin && staysOnOrigin) throw new BadAnswer('it redirects to another origin')
    if (target.origin !== url.origin) init = { ...init, headers: impersonal(new Headers(init.headers as HeadersInit)) }
    url = target
  }
}

/**
 * Returns whether a redirect is followed with the same method and body. For 301 and 302 the sender may choose (RFC
 * 9110, section 15.4). Within an origin such redirects mostly add a slash to a path, so the method stays.
 */
const keepsMethod = (status: number, method: string | undefined, isSameOrigin: boolean) =>
  /^(GET|HEAD)$/i.test(method ?? 'GET') || status === 307 || status === 308 || (isSameOrigin && status !== 303)

const impersonal = (headers: Headers) =>
  Object.fromEntries(IMPERSONAL.flatMap((name) => (headers.has(name) ? [[name, headers.get(name) ?? '']] : [])))

/** Limits the size of a response's body and splits it into portions that do not block the event loop. */
export function bounded(
  response: Response,
  { maxResponse, inspect }: Pick<SafeFetchOptions, 'maxResponse' | 'inspect'>,
): Response {
  if (!response.body) return response
  const look = inspect?.(response)
  let total = 0
  const limited = response.body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      async transform(chunk, controller) {
        total += chunk.byteLength
        if (total > maxResponse) return controller.error(new BadAnswer(TOO_LARGE))
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
  const { url } = response
  // A response made here has no address of its own.
  return Object.defineProperty(new Response(limited, { status, statusText, headers: [...headers] }), 'url', {
    value: url,
  })
}
