import { cut } from '../../../lib/text.ts'
import type { ModelFailure } from './model-failures.ts'
import type { ProviderSettings } from './providers.ts'

/**
 * Returns what a person has to do about a failure that no retry repairs. Returns null if its detail says it, or
 * if nothing is known.
 */
export function adviceFor(
  { kind, status, detail }: Pick<ModelFailure, 'kind' | 'status' | 'detail'>,
  { key, address }: ProviderSettings,
): string | null {
  if (status === 407) return 'Check the proxy and its credentials: HTTP_PROXY and HTTPS_PROXY'
  // A gateway or a firewall has answered instead of the server.
  if (/a web page\b/.test(detail) && ['auth', 'refused', 'unreadable'].includes(kind)) return `Check ${address}`
  if (['refused', 'unsupported', 'unknown_model'].includes(kind)) {
    if (NO_RESPONSES.test(detail)) return ONLY_CHAT
    if (/v1\/responses/.test(detail) || NO_CHAT.test(detail)) return ONLY_RESPONSES
  }
  switch (kind) {
    case 'auth':
      return status === 403 ? `Check ${key} and the permissions of its account` : `Check ${key}`
    case 'quota':
      return `Top up the account of the provider, or check ${key}`
    case 'unknown_model':
      return 'Choose another model: GET /api/v1/models lists those of each provider'
    case 'refused':
    case 'unsupported':
      if (kind === 'unsupported' || /^HTTP 404: No endpoints/.test(detail)) return null
      return status === 404 || status === 405 || (status ?? 400) < 400 ? `Check ${address}` : null
    case 'unreadable':
      return /\bJSON that is not\b/.test(detail) ? `Check ${address}` : null
    case 'connection':
      return /certificate|proxy|NODE_EXTRA_CA_CERTS/.test(detail) || !/^Cannot connect|^fetch failed/.test(detail)
        ? null
        : `Check ${address} and the network`
    default:
      return null
  }
}

/** Wordings for a model that a server offers in the other of OpenAI's APIs. */
const NO_RESPONSES = /(?:\bnot|n't)\b[^/]{0,60}\/(?:v1\/)?responses\b/i
const NO_CHAT = /(?:\bnot|n't)\b (?:support|accessible|available|enabled)[^/]{0,40}\/(?:v1\/)?chat\/completions\b/i

const ONLY_CHAT =
  'This server does not offer the model in the Responses API: set OPENAI_BASE_URL to its address and name the model compatible/…'
const ONLY_RESPONSES =
  "This server offers the model in OpenAI's Responses API only: set OPENAI_RESPONSES_BASE_URL and name the model openai/…"

/** Maximum length of a cause with its advice (characters), as of `Execution.error`. */
const MAX_LENGTH = 500

/** Adds an advice to a cause, which is cut if both are too long. */
export function withAdvice(cause: string, advice: string | null): string {
  if (!advice) return cause
  const said = cut(cause, MAX_LENGTH - advice.length - 3)
  return `${said}${/[.!?]$/.test(said) ? '' : '.'} ${advice}`
}
