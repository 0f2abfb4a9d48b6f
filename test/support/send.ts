import { request } from 'undici'

/** The whole answer of a server. */
export type Received = { status: number; headers: Headers; text: string }

export type Sent = { method: string; headers: Record<string, string>; body?: string }

/**
 * Sends a request and reads the whole answer, in half of the processor time of `fetch`. Unlike it, follows no redirect.
 * Throws a TypeError like `fetch` if the connection is lost.
 */
export async function send(url: string, sent: Sent): Promise<Received> {
  try {
    const { statusCode, headers: raw, body } = await request(url, sent as Parameters<typeof request>[1])
    const headers = new Headers()
    for (const [name, values = []] of Object.entries(raw)) {
      for (const value of [values].flat()) headers.append(name, value)
    }
    return { status: statusCode, headers, text: await body.text() }
  } catch (cause) {
    throw new TypeError('fetch failed', { cause })
  }
}
