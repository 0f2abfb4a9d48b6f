import { durationOf, numberOf } from '../../../lib/net/retry-after.ts'
import { asList, asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'

/** The facts that a provider's error body states, each absent if the body does not state it. */
export type ErrorBody = {
  /** Message for a person. Only fields that hold one are read, because others may repeat the request and its prompt. */
  message?: string
  /** Machine-readable code (`context_length_exceeded`, `overloaded_error`, `UNAVAILABLE`). */
  code?: string
  /** The HTTP status, for errors inside a stream and for proxies that answer 200. */
  status?: number
  /** Request field that the provider rejects, as it names it (`stream_options`, `messages.1.name`). */
  field?: string
  /** Time to wait before the next request (ms), or else the time at which it may be sent. */
  retryAfter?: number
  retryAt?: string | number
  /** The provider behind a gateway (`Mistral` behind OpenRouter). */
  upstream?: string
  /** Headers that a gateway states in the body. */
  upstreamHeaders?: Fields
  /** The answer of the model that the server could not use (Groq, Cerebras). */
  failedAnswer?: string
}

/** Maximum nesting depth that is searched. */
const MAX_DEPTH = 12
/** Maximum number of characters in which the title of a web page is looked for. */
const MAX_PAGE = 4_000
/** Maximum number of list entries that are read. */
const MAX_ENTRIES = 5

/** Reads a body: text of an HTTP response, or the object of an error event. Never throws. */
export function readErrorBody(body: unknown): ErrorBody {
  return typeof body === 'string' ? readText(body, 0) : readValue(body, 0)
}

function readText(text: string, depth: number): ErrorBody {
  const trimmed = text.trim()
  if (/^[[{"]/.test(trimmed)) {
    try {
      return readValue(JSON.parse(trimmed), depth + 1)
    } catch {
      // An event stream, or text that begins like JSON.
    }
  }
  const python = readPython(trimmed)
  if (python) return python
  const event = /^(?:data|error):\s*([[{].*)$/m.exec(trimmed)
  if (event?.[1] && depth < MAX_DEPTH) return readText(event[1], depth + 1)
  const ofXml = /^<(?:\?xml|error)\b/i.test(trimmed) ? XML_MESSAGE.exec(trimmed.slice(0, MAX_PAGE))?.[1] : undefined
  if (ofXml !== undefined) return { message: ofXml.trim() }
  if (isPage(trimmed)) return readPage(trimmed)
  const cut = CUT_MESSAGE.exec(trimmed.slice(0, MAX_PAGE))?.[1]
  if (cut !== undefined) return { message: cut.replace(/\\(["\\/])|\\[a-z]/g, (_, character = ' ') => character) }
  // Truncated JSON, or bytes that are not text.
  return !trimmed || /^[[{]\s*["{[]/.test(trimmed) || /\ufffd.*\ufffd/s.test(trimmed) ? {} : { message: trimmed }
}

/** The message of an error in XML, as clouds and API gateways write it. */
const XML_MESSAGE = /<message>([^<]{1,500})<\/message>/i

/** An error of Pydantic as Python prints it, without its input, which repeats the request. */
const PYTHON_ERROR = /'loc': [([]([^)\]]{0,200})[)\]], 'msg': (?:'([^']{1,500})'|"([^"]{1,500})")/g

/** Reads the errors that FastAPI's servers (vLLM, SGLang) print as a text. Returns null for any other text. */
function readPython(text: string): ErrorBody | null {
  const errors = [...text.slice(0, MAX_PAGE).matchAll(PYTHON_ERROR)].slice(0, MAX_ENTRIES)
  if (!errors.length) return null
  const found = errors.map(([, loc = '', one, other]) => {
    const steps = loc.split(',').map((step) => step.trim().replace(/^'|'$/g, ''))
    return { field: steps.filter((step) => step && step !== 'body').join('.'), reason: one ?? other }
  })
  const message = found.map(({ field, reason }) => (field ? `${field}: ${reason}` : reason)).join('; ')
  return { message, ...(found[0]?.field && { field: found[0].field }) }
}

/** Finds the message of an error in truncated JSON. Only the kind of the error precedes it. */
const CUT_MESSAGE =
  /^\{\s*(?:"error"\s*:\s*\{\s*)?(?:"(?:type|code|status|object)"\s*:\s*(?:"[\w. -]{0,64}"|\d{1,6}|null)\s*,\s*){0,4}"message"\s*:\s*"((?:[^"\\]|\\.){10,2000})/

/** Returns whether a text is a web page, such as the error page of a proxy or the sign-in of a gateway. */
export const isPage = (text: string): boolean =>
  /^\ufeff?\s*(?:<!--[\s\S]*?-->\s*)?<(?:!doctype|html|head|body|title|\?xml|h1|center)\b/i.test(text)

/** Returns the title of a web page, from its first characters. */
export const titleOf = (page: string): string | undefined =>
  /<title[^>]*>([^<]{1,200})<\/title>/i.exec(page.slice(0, MAX_PAGE))?.[1]?.trim()

function readPage(page: string): ErrorBody {
  const title = titleOf(page)
  return title ? { message: `the server answered with a web page titled "${title}"` } : {}
}

function readValue(value: unknown, depth: number): ErrorBody {
  if (depth > MAX_DEPTH) return {}
  if (typeof value === 'string') return readText(value, depth)
  if (Array.isArray(value)) return readList(value, depth)
  return isObject(value) ? readFields(value, depth) : {}
}

/** Reads a list of errors: Gemini's has one entry, FastAPI's and Cloudflare's one per problem. */
function readList(list: readonly unknown[], depth: number): ErrorBody {
  const errors = list.slice(0, MAX_ENTRIES).map((entry) => readValue(entry, depth + 1))
  const messages = errors.flatMap(({ message }) => message ?? [])
  // Google states the delay in the last entry.
  const retryAfter = errors.find((error) => error.retryAfter !== undefined)?.retryAfter
  return {
    ...errors[0],
    ...(retryAfter !== undefined && { retryAfter }),
    ...(messages.length && { message: messages.join('; ') }),
  }
}

/** Keys of a message, most specific first. Problem details may have only a `title`. */
const MESSAGE_KEYS = [
  'message',
  'Message',
  'msg',
  'error_msg',
  'error_message',
  'errorMessage',
  'ErrorMessage',
  'faultstring',
  'status_msg',
  'error_description',
  'description',
  'actionReason',
] as const
/** Keys of an error inside an error. */
const INNER_KEYS = [
  'error',
  'Error',
  'errors',
  'issues',
  'unionErrors',
  'detail',
  'details',
  'error_details',
  'response',
  'Response',
  'fault',
  'exception',
  'base_resp',
  'external_model_error',
  'external_model_message',
] as const

function readFields(fields: Fields, depth: number): ErrorBody {
  if (Array.isArray(fields._errors)) return readTree(fields)
  const own = readOwn(fields)
  const reason = isSentence(fields.param) ? [{ message: fields.param }] : []
  const inner = [...INNER_KEYS.map((key) => readInner(fields[key], depth)), readUpstream(fields, depth), ...reason]
  const sentence = MESSAGE_KEYS.map((key) => readInner(fields[key], depth)).find(({ message }) => message) ?? {}
  const message = pickMessage(sentence.message, inner, fields)
  const facts: ErrorBody = Object.assign({}, ...inner.toReversed(), sentence, own)
  // Validators state the location separately; without it the message is only "Extra inputs are not permitted".
  const place = placeOf(fields)
  return message ? { ...facts, message: place ? `${place}: ${message}` : message } : facts
}

/** Returns the place of a problem in the request, as FastAPI (`loc`), Zod (`path`) and Ajv (`instancePath`) state it. */
function placeOf({ loc, path, instancePath }: Fields): string {
  const steps = [loc, path, asText(instancePath).split('/').filter(Boolean)].find(Array.isArray) ?? []
  return steps
    .filter((step) => step !== 'body' && ['string', 'number'].includes(typeof step))
    .join('.')
    .slice(0, 200)
}

/** Reads the problems of each field as Zod formats them (Venice): `{_errors: […], temperature: {_errors: […]}}`. */
function readTree(tree: Fields): ErrorBody {
  const found = problemsIn(tree, []).take(MAX_ENTRIES).toArray()
  const message = found.map(({ field, reason }) => (field ? `${field}: ${reason}` : reason)).join('; ')
  const field = found.find((problem) => problem.field)?.field.slice(0, 200)
  return { ...(message && { message }), ...(field && { field }) }
}

/** Finds the problem of each field, also inside of lists and objects: `{messages: {0: {content: {_errors: […]}}}}`. */
function* problemsIn(node: Fields, path: readonly string[]): Generator<{ field: string; reason: string }> {
  const [reason] = asList(node._errors)
  if (typeof reason === 'string') yield { field: path.join('.'), reason }
  if (path.length === MAX_DEPTH) return
  for (const [name, inner] of Object.entries(node)) if (isObject(inner)) yield* problemsIn(inner, [...path, name])
}

/** Returns whether a parameter is the reason of the error instead (Xiaomi). */
const isSentence = (param: unknown): param is string => typeof param === 'string' && /\w \S+ \w/.test(param)

function readInner(value: unknown, depth: number): ErrorBody {
  if (value === undefined || value === null || value === '') return {}
  return readValue(value, depth + 1)
}

/**
 * Reads the error of the provider behind a gateway: OpenRouter's `metadata.raw`, a JSON text. Google's servers state a
 * delay there, too.
 */
function readUpstream({ metadata }: Fields, depth: number): ErrorBody {
  const given = asObject(metadata)
  const { raw, provider_name: upstream, headers } = given
  return {
    ...readInner(raw, depth),
    ...(asText(upstream) && { upstream: asText(upstream).slice(0, 64) }),
    ...delayIn(given),
    ...(isObject(headers) && { upstreamHeaders: headers }),
  }
}

/** Generic messages of gateways, for which the upstream message is used. */
const GENERIC =
  /^(?:provider returned error|bad request|error|internal server error|upstream error|unknown error|invalid (?:input|request(?: parameters)?)|param(?:eter)? incorrect|received error from \S+)\.?$/i

/** Returns the most specific message: that of the object, otherwise that of an inner error. */
function pickMessage(sentence: string | undefined, inner: readonly ErrorBody[], { title, reason, error_type }: Fields) {
  const messages = inner.flatMap(({ message }) => message ?? [])
  const first = sentence && !GENERIC.test(sentence) ? sentence : messages.find((text) => !GENERIC.test(text))
  return first ?? sentence ?? messages[0] ?? (asText(title) || asText(reason) || asText(error_type) || undefined)
}

/** Fields with the time after which a request may succeed: seconds, or a duration such as `"23.5s"`. */
const DELAYS = [
  ...['retryDelay', 'retry_after', 'retryAfter', 'retryAfterSeconds', 'retry_after_seconds', 'estimated_time'],
  ...['resets_in_seconds', 'quotaResetDelay'],
]
/** Fields with milliseconds, and with a time, such as that at which a limit resets (ChatGPT, Google). */
const DELAYS_MS = ['retry_after_ms', 'retryAfterMs']
const TIMES = ['resets_at', 'reset_at', 'resetAt', 'quotaResetTimeStamp']
/** Smallest number of seconds that is a time rather than a duration. */
const EPOCH = 1e9

/** Returns the delay that an object states. */
function delayIn(fields: Fields): Pick<ErrorBody, 'retryAfter' | 'retryAt'> {
  const milliseconds = DELAYS_MS.map((key) => millisecondsOf(fields[key], 1)).find((delay) => delay !== undefined)
  const delays = DELAYS.map((key) => millisecondsOf(fields[key], 1000)).filter((delay) => delay !== undefined)
  const delay = milliseconds ?? delays.find((one) => one < EPOCH * 1000)
  const time = [...TIMES.map((key) => fields[key]), ...delays.map((one) => one / 1000)].find(isTime)
  return { ...(delay !== undefined && { retryAfter: delay }), ...(time !== undefined && { retryAt: time }) }
}

const isTime = (value: unknown): value is string | number =>
  Number(value) >= EPOCH || /^\d{4}-\d\d-\d\dT.*(?:Z|[+-]\d\d:\d\d)$/.test(asText(value))

/** Reads the facts that an object states itself, rather than an object inside it. */
function readOwn(fields: Fields): ErrorBody {
  const { param } = fields
  const failedAnswer = asText(fields.failed_generation)
  const field = (isSentence(param) ? '' : asText(param)) || placeOf(fields)
  const code = ['code', 'error_code', 'status', 'type', 'error_type', '__type', 'name']
    .map((key) => codeOf(fields[key]))
    .find(Boolean)
  const status = ['status', 'code', 'status_code', 'statusCode', 'http_code', 'raw_status_code', 'error_code']
    .map((key) => statusOf(fields[key]))
    .find(Boolean)
  return {
    ...(field && { field: field.slice(0, 200) }),
    ...(code && { code }),
    ...(status && { status }),
    ...(failedAnswer && { failedAnswer }),
    ...delayIn(fields),
  }
}

/** Returns a machine-readable code. `error`, a key in many bodies, carries no information. */
function codeOf(value: unknown): string | undefined {
  const text = asText(value)
  return /^[A-Za-z][\w.:-]{1,63}$/.test(text) && !/^(?:error|object|none|null)$/i.test(text) ? text : undefined
}

/** Returns an HTTP status of an error; undefined for any other value. */
function statusOf(value: unknown): number | undefined {
  const status = typeof value === 'number' ? value : /^\d{3}$/.test(asText(value)) ? Number(value) : 0
  return Number.isInteger(status) && status >= 400 && status < 600 ? status : undefined
}

/** Returns a delay in these units: a number, a text of one, a duration as Google writes it, or its object (ms). */
function millisecondsOf(value: unknown, unit: number): number | undefined {
  const given = isObject(value) ? value.seconds : value
  if (typeof given === 'number') return given >= 0 ? given * unit : undefined
  const number = numberOf(given)
  return number === null ? (durationOf(asText(given)) ?? undefined) : number * unit
}
