import { type AppError, badRequest } from '../errors.ts'
import { causesOf } from '../lib/causes.ts'
import { CERTIFICATE } from '../lib/net/certificate.ts'
import { delayOf } from '../lib/net/retry-after.ts'
import { toTitle } from '../lib/text.ts'
import { asObject, asText } from '../lib/unknown.ts'

// Failures of the search provider, in words that say what the operator has to do.

/** Delay after a limit of requests whose end is not stated, such as one request a second, and the smallest one (ms). */
const USUAL_DELAY = 1_000
const MIN_DELAY = 100

/**
 * Returns how long to wait until the provider takes requests again (ms), or null if it has refused for another reason.
 * Calls of one model come together, so that each waits up to twice the time of the limit.
 */
export function delayIn({ status, headers }: Response): number | null {
  if (status !== 429) return null
  const delay = delayOf(headers.get('retry-after'), Date.now()) ?? untilReset(headers) ?? USUAL_DELAY
  return Math.max(delay, MIN_DELAY) * (1 + Math.random())
}

/** Returns the time until the limits reset that have nothing left (ms). Brave lists those of a second and of a month. */
function untilReset(headers: Headers): number | null {
  const listOf = (name: string) => (headers.get(name) ?? '').split(',').map((part) => Number.parseInt(part, 10))
  const remaining = listOf('x-ratelimit-remaining')
  const reached = listOf('x-ratelimit-reset').filter((reset, index) => remaining[index] === 0 && reset >= 0)
  return reached.length ? Math.max(...reached) * 1_000 : null
}

type Details = {
  /** How long the provider wants to be left alone (ms); null after other refusals. */
  delay: number | null
  key: string
}

/** Returns the error for an answer that is no success. Quotes the provider, without the key. */
export function refusalOf(provider: string, response: Response, text: string, { delay, key }: Details): AppError {
  const quoted = toTitle(quoteOf(text).replaceAll(key || '\0', '***'), MAX_QUOTE)
  const answer = `The search provider answered HTTP ${response.status}${quoted ? `: ${quoted.replace(/\.$/, '')}` : ''}`
  const advice = delay === null ? adviceOn(provider, response, text) : adviceOnLimit(delay)
  return badRequest(advice ? `${answer}. ${advice}` : answer)
}

/** Maximum length of a quoted reason (characters). */
const MAX_QUOTE = 200

/** Returns the reason in the body of a refusal, in the form of Brave, Tavily or a gateway; empty for a page. */
function quoteOf(text: string): string {
  const { error, detail, message } = asObject(parsed(text))
  const candidates = [asObject(error).detail, asObject(detail).error, asObject(error).message, detail, message, error]
  return candidates.map(asText).find(Boolean) ?? ''
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

const QUOTA = 'The quota is used up: the operator must raise it'
const HOUR = 3_600_000

const adviceOnLimit = (delay: number): string =>
  delay > HOUR ? QUOTA : `The limit of requests is reached: try again in ${Math.ceil(delay / 1_000)} s`

/** Advice by status. Tavily has 432 and 433 for its plans. */
const ADVICE: Readonly<Record<number, string>> = {
  401: 'The operator must correct SEARCH_API_KEY',
  402: QUOTA,
  403: 'The operator must correct SEARCH_API_KEY',
  404: 'The operator must correct SEARCH_URL',
  405: 'The operator must correct SEARCH_URL',
  432: QUOTA,
  433: QUOTA,
}

function adviceOn(provider: string, { status, url, headers }: Response, text: string): string | undefined {
  if (provider === 'searxng' && status === 403) {
    return 'The operator must allow json in search.formats of its settings.yml. Public servers of SearXNG refuse programs'
  }
  // Brave refuses a wrong key like a wrong parameter.
  if (text.includes('SUBSCRIPTION_TOKEN_INVALID')) return ADVICE[401]
  const target = status >= 300 && status < 400 ? URL.parse(headers.get('location') ?? '', url) : null
  return target
    ? `The operator must set SEARCH_URL to the address that it leads to, at ${target.origin}`
    : ADVICE[status]
}

/** Returns the failure of a search that got no answer as a 400 that the model can read. Returns others unchanged. */
export function reasonOf(error: unknown): unknown {
  if (error instanceof SyntaxError) {
    return badRequest('The search provider did not answer with JSON. The operator must correct SEARCH_URL')
  }
  if (!(error instanceof TypeError)) return error
  const codes = [...causesOf(error)].map((cause) => asText(asObject(cause).code))
  const code = codes.find(Boolean)
  const advice = codes.some((code) => CERTIFICATE.test(code))
    ? 'The operator must name the authority of its certificate in NODE_EXTRA_CA_CERTS'
    : 'The operator must check SEARCH_URL and the network'
  return badRequest(`The search provider could not be reached${code ? ` (${code})` : ''}. ${advice}`)
}
