import { cut } from '../../../lib/text.ts'
import type { FailureKind, ModelFailure } from './model-failures.ts'
import type { ProviderSettings } from './providers.ts'

type Failure = Pick<ModelFailure, 'kind' | 'status' | 'detail' | 'retryAfter'>

/** An advice for failures of these kinds that have these words, or another property. */
type Advice = readonly [
  kinds: readonly FailureKind[],
  which: RegExp | ((failure: Failure) => boolean) | null,
  advice: string | ((settings: ProviderSettings, failure: Failure) => string) | null,
]

const checkAddress = ({ address }: ProviderSettings) => `Check ${address}`

/** Wordings of servers that do not have the Responses API, or not for a model. */
const NO_RESPONSES =
  /\b(?:not|\w+n't|invalid|unexpected|unknown|unsupported|cannot)\b(?:(?!\b(?:use|try|only)\b)[^/]){0,60}?(?:\/(?:[\w-]+\/)*responses\b|\bresponses api\b)|(?:\/responses|\bresponses api)['"`]? (?:is |was )?not\b/i

const RAISE_LIMIT = 'Raise maxOutputTokens in modelSettings, or lower reasoningEffort'

const RESPONSES_ONLY =
  "This server offers the model in OpenAI's Responses API only: set OPENAI_RESPONSES_BASE_URL and name the model openai/…"

/** The advice on each failure. The first that fits counts. */
const ADVICE: readonly Advice[] = [
  // nginx and servers in Go, which answer in plain text.
  [
    ['refused'],
    /\bHTTP request (?:was sent )?to (?:an )?HTTPS\b/i,
    ({ address }) => `Begin ${address} with https:// instead of http://`,
  ],
  // Perplexity and servers behind a proxy that checks the key.
  [
    ['auth'],
    /^HTTP 401: .*web page titled "(?:401|unauthorized|authorization required)/i,
    ({ key, address }) => `Check ${key} and ${address}`,
  ],
  // A gateway or a firewall has answered instead of the server. Cloudflare's answers its errors as a text.
  [['auth', 'refused', 'unreadable'], /a web page\b|: error code: 1\d{3}$|\bJSON that is not\b/, checkAddress],
  // Models that a server offers in one of OpenAI's APIs only.
  [['unsupported'], /in the responses api, this parameter has moved/i, RESPONSES_ONLY],
  [
    ['refused', 'unsupported', 'unknown_model'],
    NO_RESPONSES,
    'This server does not offer the model in the Responses API: set OPENAI_BASE_URL to its address and name the model compatible/…',
  ],
  [
    ['refused', 'unsupported', 'unknown_model'],
    /v1\/responses|(?:\bnot|n't)\b (?:support|accessible|available|enabled)[^/]{0,40}\/(?:v1\/)?chat\/completions\b/i,
    RESPONSES_ONLY,
  ],
  [
    ['auth', 'refused', 'unsupported'],
    /\b(?:country|region|location)\b.{0,40}\bnot supported|unsupported countries/i,
    'The provider does not serve the country of this server: choose another provider, or a gateway to it',
  ],
  [['refused', 'unsupported'], /\bapi[- ]?versions?\b/i, ({ address }) => `Check the api-version in ${address}`],
  [['auth'], ({ status }) => status === 403, ({ key }) => `Check ${key} and the permissions of its account`],
  [['auth'], null, ({ key }) => `Check ${key}`],
  [['quota'], null, ({ key }) => `Top up the account of the provider, or check ${key}`],
  [
    ['rate_limit'],
    ({ retryAfter, detail }) => (retryAfter ?? 0) > LONG && !/\bresets?\b|\bagain in\b/i.test(detail),
    (_, { retryAfter }) => `Try again in ${inWords(retryAfter ?? 0)}, or choose another model`,
  ],
  [['unknown_model'], null, 'Choose another model: GET /api/v1/models lists those of each provider'],
  [['refused'], /^HTTP 404: No endpoints/, null],
  [['unknown'], /^The answer is not a list of models/, checkAddress],
  [['refused'], ({ status }) => status === 404 || status === 405 || (status ?? 400) < 400, checkAddress],
  [
    ['context_too_long'],
    /no user query found/i,
    'Raise the context length of the model server (Ollama: OLLAMA_CONTEXT_LENGTH), or shorten the instructions of the agent',
  ],
  [
    ['context_too_long'],
    null,
    'Shorten the message, the files or the instructions of the agent, or choose a model with a larger context window',
  ],
  [['content_filter'], null, 'Change the message or the instructions of the agent, or choose another model'],
  [['broken_off'], /token limit before/, RAISE_LIMIT],
  [['refused'], /\bmodel output limit was reached/, RAISE_LIMIT],
  [['broken_off'], null, 'Send the message again, or choose another model'],
  [['connection'], /certificate|proxy|NODE_EXTRA_CA_CERTS/, null],
  [['connection'], /^Cannot connect|^fetch failed/, ({ address }) => `Check ${address} and the network`],
]

/**
 * Returns what a person has to do about a failure that no retry repairs. Returns null if its detail says it, or
 * if nothing is known.
 */
export function adviceFor(failure: Failure, settings: ProviderSettings): string | null {
  const { kind, status, detail } = failure
  if (status === 407) return 'Check the proxy and its credentials: HTTP_PROXY and HTTPS_PROXY'
  const found = ADVICE.find(([kinds, which]) => {
    if (!kinds.includes(kind)) return false
    return which === null || (which instanceof RegExp ? which.test(detail) : which(failure))
  })
  const advice = found?.[2] ?? null
  return typeof advice === 'function' ? advice(settings, failure) : advice
}

const MINUTE = 60_000
/** Delay beyond which a limit is one of the account, which no retry of a run awaits (ms). */
const LONG = 5 * MINUTE

/** Returns a time in whole minutes or hours, rounded up. */
const inWords = (ms: number): string =>
  ms < 120 * MINUTE ? `${Math.ceil(ms / MINUTE)} minutes` : `${Math.ceil(ms / (60 * MINUTE))} hours`

/** Maximum length of a cause with its advice (characters), as of `Execution.error`. */
const MAX_LENGTH = 500

/** Adds an advice to a cause, which is cut if both are too long. */
export function withAdvice(cause: string, advice: string | null): string {
  if (!advice) return cause
  const said = cut(cause, MAX_LENGTH - advice.length - 3)
  return `${said}${/[.!?。！？]$/.test(said) ? '' : '.'} ${advice}`
}
