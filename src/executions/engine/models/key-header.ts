import { asObject, asText } from '../../../lib/unknown.ts'

type Headers = Readonly<Record<string, string>>

/**
 * Sends a request to an OpenAI-compatible server, whose key is in `Authorization`. If the refusal names another header
 * for the key, asks once more with that header, and uses it from then on if the server accepts it. Throws the errors of
 * `ask`.
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

/** Headers for keys, as refusals name them. Azure and gateways before it speak of a subscription key. */
const DEMANDED = /\b(?:(x-api-key|x-goog-api-key|ocp-apim-subscription-key|api-key)\b|subscription key)/i

/** Returns the headers with the key where a refusal wants it, or null if it does not say so. */
function moveKey({ authorization, ...rest }: Headers, error: unknown): Headers | null {
  const { statusCode, responseBody } = asObject(error)
  const demand = statusCode === 401 || statusCode === 403 ? DEMANDED.exec(asText(responseBody)) : null
  const key = /^Bearer (.+)$/.exec(authorization ?? '')?.[1]
  return demand && key ? { ...rest, [demand[1]?.toLowerCase() ?? 'api-key']: key } : null
}
