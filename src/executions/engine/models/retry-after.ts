import { delayOf, numberOf } from '../../../lib/net/retry-after.ts'
import { asObject, asText, type Fields } from '../../../lib/unknown.ts'
import type { ErrorBody } from './error-bodies.ts'

// How long a provider asks its client to wait.

/** Facts of an unsuccessful answer that may state a delay. */
type Facts = Pick<ErrorBody, 'retryAfter' | 'retryAt'> & { message: string; headers?: unknown }

/** Returns how long a provider asks its client to wait (ms), from the headers, the body or the message. */
export function retryAfterOf({ headers, retryAfter, retryAt, message }: Facts, now: number): number | null {
  const fields = asObject(headers)
  return (
    statedIn(fields, now) ??
    retryAfter ??
    (retryAt === undefined ? null : untilReset(String(retryAt), now)) ??
    inSentence(message, now) ??
    resetOf(fields, now) ??
    ofPolicies(fields.ratelimit) ??
    (LOADING.test(message) ? LOAD_TIME : null)
  )
}

/** Wordings of servers that load their model, such as llama.cpp after its start. */
const LOADING =
  /\bloading (?:the )?model\b|\b(?:is|being|still|currently) (?:loading|loaded|starting up|warming up|scaling up)\b/i
/** Wait for a model that a server loads, which takes from seconds to minutes (ms). */
const LOAD_TIME = 15_000

/** Returns the delay in the headers for it (ms). Azure has one of its own. */
const statedIn = (headers: Fields, now: number): number | null =>
  numberOf(headers['retry-after-ms']) ??
  numberOf(headers['x-ms-retry-after-ms']) ??
  untilReset(headers['retry-after'], now)

/** Returns the delay in the headers of a provider that a gateway repeats, whose names are in any case (ms). */
export function delayInHeaders(given: Fields, now: number): number | null {
  const headers = Object.fromEntries(Object.entries(given).map(([name, value]) => [name.toLowerCase(), value]))
  return statedIn(headers, now) ?? resetOf(headers, now)
}

/**
 * Returns the time until a limit of the header `RateLimit` resets that a request has reached (ms): `"api";r=0;t=55`
 * (Hugging Face), or `limit=10, remaining=0, reset=55`.
 */
function ofPolicies(value: unknown): number | null {
  const text = asText(value)
  const policies = /\bremaining=/.test(text) ? [text] : text.split(',')
  const seconds = policies.flatMap((policy) => {
    const isReached = /\b(?:r|remaining)=0\b/.test(policy)
    const [, reset] = /\b(?:t|reset)=(\d{1,9})\b/.exec(policy) ?? []
    return isReached && reset ? Number(reset) : []
  })
  return seconds.length ? Math.max(...seconds) * 1000 : null
}

const RESET = /^(?:x-|anthropic-)?rate-?limit\b.*\breset\b/

/**
 * Returns the time until the limit resets that a request has reached (ms). If the headers state several limits, only
 * one without anything remaining counts.
 */
function resetOf(headers: Fields, now: number): number | null {
  const resets = Object.keys(headers).filter((name) => RESET.test(name))
  const reached = resets.filter((name) => numberOf(headers[name.replace('reset', 'remaining')]) === 0)
  const counted = reached.length || resets.length > 1 ? reached : resets
  const delays = counted.flatMap((name) => untilReset(headers[name], now) ?? [])
  return delays.length ? Math.max(...delays) : null
}

/** Smallest number of seconds, and of milliseconds, that is a time rather than a duration. */
const EPOCH = 1e9
const EPOCH_MS = 1e12

function untilReset(value: unknown, now: number): number | null {
  const number = numberOf(value)
  if (number === null || number < EPOCH) return delayOf(value, now)
  return Math.max(0, (number < EPOCH_MS ? number * 1000 : number) - now)
}

/** Wordings before a delay, and before a time. */
const BEFORE_DELAY = new RegExp(
  [
    /(?:try again|retry)(?: \w+)? (?:in|after) ~?(?=\d|an? (?:second|minute|hour|day)\b)/,
    /\bresets? (?:in|after) ~?(?=\d|an? (?:second|minute|hour|day)\b)/,
    /\bretry[ _-]?after["']?\s?[:=]\s?["']?(?=\d)/,
    /\b(?:wait(?: for)?(?: at least)?|available(?: again)? in|back ?off for) ~?(?=\d)/,
    /请(?:在|等待)?\s?(?=\d{1,9}\s?(?:秒|分|小时))/,
    // Korean, Japanese and Chinese write the number first.
    /(?<!\d)(?=(?:\d{1,9}\s?(?:[秒초分분]|小时|時間|시간)[钟鐘間]?\s?){1,3}(?:후|뒤|後|后|以后|之后))/,
    // French, German, Spanish and Portuguese.
    /\b(?:réessayer|reessayer|réessayez|warten sie|versuchen sie es|int[eé]ntelo|int[eé]ntalo|tente)(?: \w+){0,3}? (?:dans |in |en |em )?(?=\d)/,
  ]
    .map(({ source }) => source)
    .join('|'),
  'i',
)
const BEFORE_TIME = /\b(?:again|resets?|retry|after|until)(?: \w+)?(?: at)? (\d{4}-\d\d-\d\dT[\d:.]{5,15}Z)/i
/** Maximum length of a delay in words (characters). */
const MAX_WORDS = 60

/** Units of a delay, by the beginnings of their names. */
const UNITS: readonly (readonly [RegExp, number])[] = [
  [/^(?:ms|milli)/i, 1],
  [/^(?:mon|mois|m[eê]s)/i, 2_592_000_000],
  [/^(?:m$|min|分|분)/i, 60_000],
  [/^(?:h$|hr|hour|heure|hora|std|stunde|小时|時間|시간)/i, 3_600_000],
  [/^(?:d$|day|d[ií]a|tag|jour)/i, 86_400_000],
  [/^(?:week|woche|sem)/i, 604_800_000],
]
/** Unit of a number without one, and before any other word. */
const SECOND = 1_000

/** Returns the delay in a sentence such as "Please try again in 2m3s" or "in 1 hour and 5 minutes" (ms). */
function inSentence(message: string, now: number): number | null {
  const found = BEFORE_DELAY.exec(message)
  if (!found) return untilReset(BEFORE_TIME.exec(message)?.[1], now)
  const words = message
    .slice(found.index + found[0].length)
    .replace(/^an? /i, '1 ')
    .slice(0, MAX_WORDS)
  const part = /(\d{1,9}(?:\.\d{1,12})?)\s?(\p{L}*),? ?(?:(?:and|et|und|y|e) )?/iuy
  let delay = 0
  for (let next = part.exec(words); next; next = part.exec(words)) {
    const [, count, name = ''] = next
    delay += Number(count) * (UNITS.find(([unit]) => unit.test(name))?.[1] ?? SECOND)
  }
  return delay
}
