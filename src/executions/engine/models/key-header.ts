import { asObject, asText } from '../../../lib/unknown.ts'

type Headers = Readonly<Record<string, string>>

/**
 * Sends a request to a model server, whose key is in one of its headers. If the refusal names another header for the
 * key, asks once more with that header, and uses it from then on if the server accepts it. Throws the errors of `ask`.
 */
type KeySender = <Answer>(ask: (headers: Headers) => Promise<Answer>) => Promise<Answer>

/** Creates a sender for one endpoint, from the headers of its requests. */
export function createKeySender(given: Headers): KeySender {
  let headers = given
  return async (ask) => {
    try {
      return await ask(headers)
    } catch (error) {
      const moved = moveKey(headers, error)
      if (!moved) throw error
      const answer = await ask(moved)
      headers = moved
      return answer
    }
  }
}

/**
 * Returns a `fetch` that does the same. `open` creates the `fetch` that sends these headers, which has to bound the
 * body of a refusal.
 */
export function fetchWithKey(given: Headers, open: (headers: Headers) => typeof fetch): typeof fetch {
  let headers = given
  return async (input, init) => {
    const response = await open(headers)(input, init)
    if (!REFUSALS.has(response.status)) return response
    const responseBody = await response.text()
    const moved = moveKey(headers, { statusCode: response.status, responseBody })
    if (!moved) return new Response(responseBody, response)
    const second = await open(moved)(input, init)
    if (!REFUSALS.has(second.status)) headers = moved
    return second
  }
}

/** Statuses of answers that refuse a key. */
const REFUSALS: ReadonlySet<unknown> = new Set([401, 403])
/** Headers that carry keys. */
const NAMES = ['authorization', 'x-api-key', 'x-goog-api-key', 'api-key', 'ocp-apim-subscription-key']
/** Headers for keys, as refusals name them. Azure and gateways before it speak of a subscription key. */
const DEMANDED = /\b(?:(x-api-key|x-goog-api-key|ocp-apim-subscription-key|api-key)\b|subscription key)/i
/** Wordings for a key in `Authorization`. */
const BEARER = /\bbearer\b|\bauthorization header|\boauth ?2? access token/i

/** Returns the headers with the key where a refusal wants it, or null if it does not say so. */
function moveKey(headers: Headers, error: unknown): Headers | null {
  const { statusCode, responseBody } = asObject(error)
  if (!REFUSALS.has(statusCode)) return null
  const name = NAMES.find((one) => headers[one] !== undefined)
  const { [name ?? '']: value = '', ...rest } = headers
  const key = name === 'authorization' ? /^Bearer (.+)$/.exec(value)?.[1] : value
  const demanded = demandedIn(asText(responseBody), name)
  if (!key || !demanded || demanded === name) return null
  return { ...rest, [demanded]: demanded === 'authorization' ? `Bearer ${key}` : key }
}

/** Returns the header that a refusal wants instead of another one; undefined if it names none. */
function demandedIn(refusal: string, instead: string | undefined): string | undefined {
  const isKeyHeader = instead !== 'authorization'
  if (isKeyHeader && instead && refusal.toLowerCase().includes(instead)) return undefined
  if (isKeyHeader && BEARER.test(refusal)) return 'authorization'
  const demand = DEMANDED.exec(refusal)
  return demand ? (demand[1]?.toLowerCase() ?? 'api-key') : undefined
}
