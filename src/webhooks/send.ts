import { causesOf } from '../lib/causes.ts'
import type { Clock } from '../lib/clock.ts'
import { isPublicAddress } from '../lib/net/addresses.ts'
import type { Network } from '../lib/net/network.ts'
import { createProxyFor } from '../lib/net/proxies.ts'
import { delayOf } from '../lib/net/retry-after.ts'
import { onceDone } from '../lib/once.ts'
import type { Settings } from '../settings.ts'

/** Time to answer that a receiver has (ms; protocols.md section 6). */
const TIMEOUT = 15_000
/** Maximum part of an answer that is read (bytes). */
const MAX_RESPONSE = 1024
const MAX_HEADERS = 16 * 1024

/** Result of an attempt. */
export type Sent = {
  status: number | null
  durationMs: number
  error?: string
  response: string
  /** Time that the receiver wants to pass before the next attempt (ms). */
  retryAfter: number
}

export type Sender = {
  send(url: string, headers: Readonly<Record<string, string>>, body: string, signal: AbortSignal): Promise<Sent>
  close(): Promise<void>
}

/**
 * Creates the sender of webhooks. Each attempt opens a connection of its own: it resolves the name again and connects
 * to exactly the checked addresses. No redirect is followed, and at most 1 KB of an answer is read. `patience`: maximum
 * time until a receiver has answered (ms).
 */
export function createSender(settings: Settings, clock: Clock, patience = TIMEOUT): Sender {
  let network: Network | undefined
  // The client of HTTP is loaded with the first attempt, because a start without webhooks needs none.
  const open = onceDone(async () => {
    const { openNetwork } = await import('../lib/net/network.ts')
    network = openNetwork({
      proxyFor: createProxyFor(settings),
      allowH2: false,
      ...(!settings.ALLOW_PRIVATE_NETWORK && { guard: { isAllowed: isPublicAddress } }),
      headersTimeout: TIMEOUT,
      bodyTimeout: TIMEOUT,
      maxHeaderSize: MAX_HEADERS,
      connections: null,
      pipelining: 0,
    })
    return network
  })

  return {
    async send(url, headers, body, signal) {
      const begun = performance.now()
      const duration = () => Math.round(performance.now() - begun)
      const timeout = AbortSignal.timeout(patience)
      try {
        const [{ request }, { dispatcher }] = await Promise.all([import('undici'), open()])
        const answer = await request(url, {
          dispatcher,
          method: 'POST',
          headers: { 'content-type': 'application/json', 'user-agent': 'Muster-Webhooks/1', ...headers },
          body,
          signal: AbortSignal.any([signal, timeout]),
          reset: true,
        })
        const { statusCode: status } = answer
        // A receiver that has accepted the event may take its time with the rest of the answer.
        const response = await readStart(answer.body).catch(() => '')
        const delay = delayOf(answer.headers['retry-after'], clock.now().getTime()) ?? 0
        const retryAfter = Math.min(Math.ceil(delay), MAX_DELAY)
        if (status >= 200 && status < 300) return { status, durationMs: duration(), response, retryAfter: 0 }
        const error =
          status >= 300 && status < 400 ? 'Redirects are not followed' : `The answer has the status ${status}`
        return { status, durationMs: duration(), error, response, retryAfter }
      } catch (error) {
        const late = timeout.aborted ? `No answer within ${patience / 1000} s` : null
        return { status: null, durationMs: duration(), error: late ?? reasonOf(error), response: '', retryAfter: 0 }
      }
    },
    close: async () => network?.close(),
  }
}

/** Reads the beginning of an answer and drops the connection with the rest. */
async function readStart(body: AsyncIterable<Buffer> & { destroy(): unknown }): Promise<string> {
  const parts: Buffer[] = []
  let size = 0
  try {
    for await (const part of body) {
      parts.push(part)
      size += part.byteLength
      if (size >= MAX_RESPONSE) break
    }
  } finally {
    body.destroy()
  }
  // PostgreSQL stores no NUL.
  return Buffer.concat(parts).subarray(0, MAX_RESPONSE).toString().replaceAll('\0', '\uFFFD')
}

/** Longest delay that a receiver can ask for (ms). */
const MAX_DELAY = 24 * 60 * 60 * 1000

/** Returns why there was no answer: the message of the innermost cause. */
function reasonOf(error: unknown): string {
  const cause: NodeJS.ErrnoException | undefined = [...causesOf(error)].at(-1)
  return cause?.message || cause?.code || 'The connection failed'
}
