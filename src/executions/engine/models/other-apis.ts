import { asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { ModelError } from './model-errors.ts'

// Answers of a server in another API than that of its provider.

/** Throws a {@link ModelError} with advice if a chunk without choices belongs to another API than chat completions. */
export function checkApi({ type, object, done, message, response }: Fields): void {
  const kind = asText(type) || asText(object)
  if (/^response\.|^response$/.test(kind)) throw otherApi('responses', 'set OPENAI_RESPONSES_BASE_URL to its address')
  if (/^(?:message(?:_start|_delta)?|content_block_\w+)$/.test(kind))
    throw otherApi("Anthropic's messages", 'set ANTHROPIC_BASE_URL to its address')
  if (typeof done === 'boolean' && (isObject(message) || typeof response === 'string'))
    throw otherApi("Ollama's own messages", 'end the base address with /v1')
}

const otherApi = (name: string, advice: string) =>
  new ModelError(`The server answers with ${name}, not with chat completions: ${advice}`, 'unreadable')

/** Fields in which gateways wrap an answer (Cline, Cloudflare): `{success: true, data: {…}}`. */
const ENVELOPES = ['data', 'result', 'response', 'body']

/** Returns the answer in the envelope of a gateway, or the value itself. */
export function unwrapped(value: Fields): Fields {
  if (value.type !== undefined || value.object !== undefined) return value
  return ENVELOPES.map((name) => asObject(value[name])).find(isAnswer) ?? value
}

const isAnswer = ({ choices, type, object }: Fields): boolean =>
  Array.isArray(choices) || type === 'message' || object === 'response'

/**
 * Throws an error with advice for a chunk of chat completions, the API of most gateways. Organizations give their own
 * providers the same names as the server.
 */
export function refuseChat({ choices }: Fields, setting: string): void {
  if (!Array.isArray(choices)) return
  throw new ModelError(
    `The server answers with chat completions: give its address to the provider compatible (OPENAI_BASE_URL), not ${setting}`,
    'unreadable',
  )
}
