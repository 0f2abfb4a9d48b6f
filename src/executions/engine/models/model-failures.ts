import { isTooLong } from './context-length.ts'
import type { ErrorBody } from './error-bodies.ts'

/**
 * Kind of a failure, by remedy:
 * - Retry later: `connection` (unreachable, or the connection broke), `overloaded` (5xx, 529, a model that is loading),
 *   `rate_limit` (429), `timeout` (408, 504).
 * - A person must act: `quota` (no credit left), `auth` (key missing, wrong or without permission).
 * - `unknown_model`: the provider has no such model. `not_configured`: the provider has no key here.
 * - `context_too_long`: the request exceeds the context window.
 * - `unsupported`: the model does not support a part of the request, which {@link ModelFailure.field} names.
 * - `content_filter`: the provider's rules forbid the request or the answer.
 * - `unreadable`: the answer violates the protocol (a web page, garbage, an empty body). `broken_off`: the reply ended
 *   without a finish reason, or with one that reports a failure.
 * - `refused`: any other 4xx. `unknown`: none of these.
 */
export type FailureKind =
  | 'connection'
  | 'overloaded'
  | 'rate_limit'
  | 'timeout'
  | 'quota'
  | 'auth'
  | 'unknown_model'
  | 'not_configured'
  | 'context_too_long'
  | 'unsupported'
  | 'content_filter'
  | 'unreadable'
  | 'broken_off'
  | 'refused'
  | 'unknown'

/** A failure of a model (contract-2.md sections 2.1, 2.2). No field holds a prompt or a key. */
export type ModelFailure = {
  kind: FailureKind
  /** Name of the provider in model ids (`anthropic`, `compatible`); null if the error belongs to none. */
  provider: string | null
  /** The provider behind a gateway, if the gateway names it. */
  upstream: string | null
  /** The HTTP status, or the one inside the error event of a stream; null if there is none. */
  status: number | null
  /** Machine-readable code of the provider (`context_length_exceeded`, `overloaded_error`). */
  code: string | null
  /** Whether the same request may succeed later (contract-2.md section 2.1). */
  retryable: boolean
  /** Time to wait before the next request, as stated by the provider (ms); null if not stated. */
  retryAfter: number | null
  /**
   * Part of the request that the provider rejects: a field name in the provider's spelling, or `system` (the role),
   * `image`, `file`, `tools`, `reasoning`; null if the failure names none.
   */
  field: string | null
  /** Context window of the model (tokens), if a `context_too_long` states it. */
  contextWindow: number | null
  /** One sentence of at most 500 characters: status and reason, for `execution.error` and `detail`. */
  detail: string
}

type Facts = Omit<ErrorBody, 'message'> & { message: string; headers?: unknown }

/**
 * Statuses after which a request is repeated. Cloudflare answers 520 to 524 and 530 if its connection to the provider
 * failed, Groq 498 without capacity, Google and proxies 499 if they cancelled a request, Hugging Face 424 if a
 * generation failed.
 */
const RETRYABLE: ReadonlySet<number> = new Set([
  408, 409, 424, 425, 429, 498, 499, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529, 530,
])

/** Returns whether the same request may succeed later. */
export const isRetryable = (kind: FailureKind, status: number | null): boolean =>
  status === null || (status >= 200 && status < 300)
    ? ['connection', 'overloaded', 'rate_limit', 'timeout'].includes(kind)
    : RETRYABLE.has(status) && kind !== 'content_filter'

/** Joins wordings into one pattern. */
const anyOf = (...wordings: readonly RegExp[]): RegExp =>
  new RegExp(wordings.map(({ source }) => source).join('|'), 'i')

/**
 * Wordings of gateways that have blocked a request or an answer, some of them with the status of a server that failed:
 * LiteLLM, Cloudflare (424), Databricks, Portkey, AgentRouter.
 */
const BLOCKED = anyOf(
  /guardrail\w*\b.{0,80}\b(?:blocked|denied|intervened|violat\w+|rejected|failed(?! to\b))/,
  /\b(?:blocked|violat\w+|denied|rejected)\b.{0,40}\bguardrail|guardrail_intervened|hooks_failed|content[ _-]blocked/,
  /\b(?:prompt|request|response|content|input|output)s? (?:(?:was|were|is|has been) )?blocked (?:by|due to|because)\b/,
)

/**
 * Wordings for a model that a valid key may not use: LiteLLM, Groq, Bedrock, GitHub and OpenAI, One API. Their status is
 * that of a wrong key.
 */
const MODEL_DENIED = anyOf(
  /not allowed to access (?:this |the )?model|model_access_denied|model_permission_blocked/,
  /(?:\bno|not have|n't have) access to (?:this |the )?model/,
  // Alibaba.
  /model\.?\s?access\s?denied/,
  // Zhipu, MiniMax.
  /\bplan (?:(?:does|do) ?)?n[o']t (?:yet )?(?:include access to|support (?:this |the )?model)/,
)

/** Wordings of servers that could not use an answer of their model, such as its call of a tool, which most of them quote. */
export const UNREAD_ANSWER = anyOf(
  /failed to parse (?:input at pos(?:ition)? \d+|tool call)\b|error parsing tool call:/,
  /model produced output that does not match|while expecting start token|tokens remaining in message header/,
  // SambaNova, Groq and its codes, Cerebras.
  /model did not output valid tool call|tool call validation failed|failed to call a function\./,
  /tool_use_failed|output_parse_failed|failed to generate tool[_ ]calls?\b/,
  /model generated output that could not be parsed/,
)

/**
 * Patterns for the provider's code and message, in the wordings of all providers and gateways. The first match
 * determines the kind.
 */
const KINDS: readonly (readonly [FailureKind, RegExp])[] = [
  [
    'quota',
    anyOf(
      // OpenAI, DeepSeek, Vercel.
      /insufficient[_ ](?:\w+[_ ]){0,4}(?:quota|balance|credits?|funds)|billing|payment required|valid credit card/,
      // Anthropic.
      /credit balance is too low|usage limits/,
      // SiliconFlow, Moonshot.
      /not enough (?:\w+ )?(?:balance|credits?|funds|quota)|(?:balance|quota) (?:is |was )?(?:insufficient|negative|exhausted|not enough|too low)|exceeded[_ ](?:your[_ ])?current[_ ](?:token[_ ])?quota/,
      /credits? (?:\w+ ){0,2}(?:exhausted|expired|used up)|quota (?:is |has been )?(?:exhausted|used up)/,
      // OpenRouter, xAI, Hugging Face.
      /out of (?:\w+ ){0,2}(?:credits|quota)|key limit exceeded|(?:requires more|any|all available|included) credits|spend(?:ing)? limit/,
      // Alibaba.
      /arrear|overdue|good standing|free tier .{0,30}exhausted/,
      // Cloudflare.
      /used up your .{0,20}allocation/,
      // LiteLLM.
      /exceededbudget|budget (?:limit )?(?:has been )?exceeded|over budget|exceeded its (?:maximum )?budget/,
      // watsonx, Volcengine, Ollama.
      /usage quota has been reached|reached the set inference limit|requires a subscription/,
    ),
  ],
  [
    'rate_limit',
    /rate[_ -]?limit|usage limit|too many (?:requests|connections)|resource_exhausted|throttl|tokens per min|requests per|concurren\w+ (?:\w+ )?limit|high concurrency/i,
  ],
  [
    'overloaded',
    anyOf(
      /overloaded|unavailable(?![ _]model)|server_error|internal_?(?:server_?)?error|at capacity|try again later|server (?:is )?busy/,
      // Bedrock.
      /internalserver|modelstreamerror|internal error/,
      // Proxies such as Envoy, before the server.
      /upstream (?:connect|error)|peer closed connection|connection (?:error|refused|reset|closed|terminat)|no healthy upstream/,
      // DeepSeek, Moonshot, Zhipu.
      /insufficient_system_resource|engine_overloaded|network[_ ]error|(?:heavy|high) (?:load|traffic)/,
      // Hugging Face, One API.
      /is loading|no available channel|do_request_failed/,
    ),
  ],
  [
    'content_filter',
    anyOf(
      BLOCKED,
      /content[_ ](?:filter|policy|management)|inappropriate content|censorship/,
      // Not "case-sensitive".
      /moderation|safety|(?<!\bcase[- ]?(?:in)?)sensitive/,
      /flagged(?! (?:as deprecated|for (?:removal|deprecation)))/,
      // Azure, Alibaba, Gemini, DeepSeek.
      /content exists risk|contentfilter|responsibleai|data_?inspection_?failed|prohibited_content/,
    ),
  ],
  [
    'unknown_model',
    anyOf(
      /model_not_found|invalid_model|unknown_model|(?:no such|unknown|invalid|unrecognized|non-existing) model/,
      /models?\b.{0,120}?(?:not found|does not exist|doesn't exist|not exist|is not a valid model|not available|no longer|deprecated|decommissioned|not loaded|unknown)/,
      /not a valid model|not a chat model|no models? (?:(?:are|is) (?:currently )?)?loaded|failed to load model|unavailable[ _]model/,
      // Cohere, Volcengine, SiliconFlow.
      /\bmodels? \S{1,80} (?:was|is|has been) (?:removed|retired|shut ?down|discontinued|disabled)|(?:^|: )model disabled/,
      // Vertex.
      /malformed publisher model/,
      // Databricks, exo.
      /given endpoint does not exist|\bno (?:running )?instances? (?:found )?for (?:the )?model/,
      // Hugging Face.
      /\bmodel \S{1,100} is not supported for (?:task|provider)\b/,
      // Groq, Bedrock: terms that the organization has not accepted.
      /\bmodel\b.{0,100}requires terms acceptance|model use case details have not been submitted/,
      // OpenRouter, LiteLLM.
      /no endpoints found for|no allowed providers|no healthy deployments/,
      // Azure.
      /does(?: not|n't) work with the specified model|deployment\b.{0,40}does not exist|deploymentnotfound/,
      // llama-swap.
      /could not find real modelid/,
      // LM Studio, Volcengine, NVIDIA.
      /model (?:unloaded|has crashed|has been sunset)|model_?not_?open|function '[\w-]+': not found for account/,
      /degraded function cannot be invoked/,
      /unsupported model\b|(?:^|: )(?:the )?(?:requested )?model:? ['"`]?[\w./:-]{1,80}['"`]? is (?:not supported|unsupported|retired)\.?(?:$| by )/,
      // Bedrock: models of an old version, and models that need an inference profile.
      /marked by provider as legacy|inference profile that contains/,
      // Copilot and ChatGPT, Moonshot, Together, Bedrock, Zhipu.
      /model_not_(?:available|supported)|\bmodel '[^']{1,80}' is not supported|'[^']{1,80}' model is not supported/,
      /not found the model|model identifier is invalid|model version has reached the end|no model named/,
      MODEL_DENIED,
      // Anthropic.
      /\bmodel: input should be|\bnot_found_error HTTP 404: model: \S/,
    ),
  ],
  [
    'auth',
    anyOf(
      /invalid_api_key|(?:incorrect|invalid|missing|no|wrong|expired) (?:(?:x-)?api[ -])?(?:key|token|credential|authorization header)/,
      /unauthenticated|unauthorized|authentication|permission|not allowed to access/,
      // Anthropic, for a token of a subscription.
      /credential is only authorized/,
      /(?:organization|account|project) (?:has been|is) (?:disabled|suspended|deactivated|restricted)/,
      // Gemini, Baidu, MiniMax.
      /\b(?:api )?key (?:has been|is|was) (?:revoked|disabled|deactivated|inactive)|\baccount is not active/,
      /api key (?:not (?:valid|found)|expired)|api_key_invalid|access token (?:is )?(?:invalid|expired)|login fail/,
    ),
  ],
  ['timeout', /timed? ?out|deadline_exceeded/i],
  // llama.cpp, Ollama, LM Studio, vLLM, Groq.
  ['broken_off', UNREAD_ANSWER],
]

/** Wordings for an account without money or without any quota, which no wait refills. */
const IS_EMPTY = /insufficient|balance|credit|payment|\blimit: 0\b/i

/** Returns whether a used-up quota refills after the delay that the server states, such as Gemini's for a minute. */
export const refills = (status: number | null, text: string): boolean => status === 429 && !IS_EMPTY.test(text)

/** Patterns that name a rejected part of the request. The group is the field. */
const FIELDS: readonly RegExp[] = [
  // Servers that check with Pydantic, such as Anthropic's and vLLM's: the field follows or precedes.
  /extra inputs are not permitted, field: '([\w.[\]-]+)'/i,
  /([\w.[\]-]+): extra inputs are not permitted/i,
  /(?<![\w.])([a-z]\w*(?:[.[]\w+\]?)*): (?:(?:input|string|list|value|number) should|field required)\b/i,
  // OpenAI: "Unsupported parameter: 'x'", and "Unrecognized request argument supplied: x".
  /unsupported (?:parameter|value|field|argument|option)s?(?: \(s\))?:? ['"`]?([\w.[\]-]+)/i,
  /(?:unknown|unrecognized|unexpected|unsupported|invalid|extra|additional|not permitted)(?: request)? (?:parameter|field|argument|name|key|property|option|input)s?\b(?: supplied)?:? ?\(?['"`]?([\w.[\]-]+)/i,
  // Azure: "Invalid x_y argument".
  /(?:unsupported|unknown|unrecognized|unexpected|invalid) ['"`]?([a-z]+(?:_[a-z]+)+)['"`]? (?:parameter|argument|field|option)\b/i,
  // xAI: "Argument not supported on this model: x".
  /(?:parameter|argument|field|option)s? (?:is |are )?not (?:supported|allowed|permitted|recognized)[^:.]{0,40}: ['"`]?([\w.[\]-]+)/i,
  // Groq: "property 'x' is unsupported".
  /(?:property|parameter|field|argument|option|feature) ['"`]([\w.[\]-]+)['"`] (?:is |are )?(?:not |un)/i,
  /['"`]([\w.[\]-]+)['"`](?: \w+){0,3} (?:is|are|was) (?:not (?:supported|allowed|permitted|a valid|recognized|available)|unsupported|deprecated|no longer)/i,
  /does(?: not|n't) support (?:the )?(?:parameter |field )?['"`]([\w.[\]-]+)['"`]/i,
  // xAI.
  /does(?: not|n't) support (?:the )?(?:parameter|argument) ([\w.[\]-]*\w)/i,
  // Qwen and DeepSeek: "Thinking mode does not support this tool_choice".
  /(?:not|n't) support (?:the |this )?(?:parameter |field )?([a-z]+_[a-z_]+)\b/i,
]

/** Patterns for rejected parts without a field name. */
const PARTS: readonly (readonly [string, RegExp])[] = [
  [
    'system',
    /(?:system|developer)['"`]?(?: role| message| prompt| instruction)s?(?: is| are)?(?: \w+)? (?:not|un)|(?:not|n't) support (?:the )?(?:system|developer)|conversation roles must alternate|only user and assistant roles/i,
  ],
  [
    'image',
    /(?:image|vision|multimodal|picture)s?(?:_url)?(?: \w+){0,4} (?:not|un|n't)|(?:not|n't|no)(?: \w+){0,5} (?:image|vision|multimodal)/i,
  ],
  [
    'file',
    // llama.cpp answers "File Not Found" to a wrong address.
    /\b(?:pdf|file|document)s?(?: \w+){0,4} (?:not(?! found)|un|n't)|(?:not|n't|no)(?: \w+){0,5} (?:pdf|file|document)s?\b/i,
  ],
  ['tools', /(?:tool|function)s?(?: \w+){0,3} (?:not|un|n't)|(?:not|n't|no)(?: \w+){0,5} (?:tool|function)s?\b/i],
  ['reasoning', /(?:thinking|reasoning)(?: \w+){0,4} (?:not|un|n't)|(?:not|n't)(?: \w+){0,5} (?:thinking|reasoning)/i],
]

/** Rejections for which local servers (llama.cpp, Ollama, LocalAI) answer 500, many of them from chat templates. */
const REFUSED_BY_500 = anyOf(
  /\b(?:is|are|was|role) (?:not supported|unsupported)|(?:does not|doesn't) support|requires --|mmproj/,
  /only supports single|cannot pass both content and thinking|value is not callable: null|\bNoneType\b/,
  /expected 'content' to be/,
  /missing data required|roles must alternate|message must be at the beginning/,
  /\bjinja exception\b|unable to generate parser for this template/,
  /fail\w* to (?:parse|convert|initialize)\b.{0,80}(?:grammar|schema)|grammar.{0,40}(?:fail|invalid)|schema conversion failed/,
)

const REFUSALS: ReadonlySet<number> = new Set([400, 404, 405, 415, 422, 501])

/** Kinds of statuses that count more than any wording, and of those that count more than most. */
const CERTAIN: ReadonlyMap<number, FailureKind> = new Map([
  [402, 'quota'],
  [413, 'context_too_long'],
])
const OF_STATUS: ReadonlyMap<number, FailureKind> = new Map([
  [401, 'auth'],
  [403, 'auth'],
  [408, 'timeout'],
  [410, 'unknown_model'],
  [424, 'overloaded'],
  [429, 'rate_limit'],
  // Portkey and WSO2, for their guardrails, and StepFun.
  [446, 'content_filter'],
  [451, 'content_filter'],
  [498, 'overloaded'],
  [499, 'overloaded'],
  [504, 'timeout'],
])

const isServerFault = (status: number): boolean => status === 429 || (status >= 500 && status !== 501)

/** Returns the kind that a wording states; undefined if it states none. */
const wordedKind = (text: string, message = text): FailureKind | undefined =>
  isTooLong(text, message) ? 'context_too_long' : KINDS.find(([, pattern]) => pattern.test(text))?.[0]

/**
 * Returns a message without the names of rejected fields that read like a failure, such as `context_window`. Words that
 * begin a reason ("Invalid input: sensitive words") are no names.
 */
function withoutNames(message: string, field = ''): string {
  const names = [field, ...fieldsIn(message)].filter((name) => name && wordedKind(name))
  return names.reduce((text, name) => text.replace(new RegExp(`${RegExp.escape(name)}(?! \\w)`, 'g'), 'x'), message)
}

/** Returns the kind of a failure from its status, code and message, and the field that a rejection names. */
export function kindOf({ message, code = '', status = 0, field }: Facts): Pick<ModelFailure, 'kind' | 'field'> {
  // Addresses name pages of the documentation, not the failure.
  const text = `${code} ${withoutNames(message, field)}`.replace(/https?:\/\/\S+/g, '')
  const worded = wordedKind(text, message)
  const none = { field: null }
  const certain = certainKind(status, worded, text)
  if (certain) return { kind: certain, ...none }
  if (status === 404 && field === 'model') return { kind: 'unknown_model', ...none }
  if (status === 500 && REFUSED_BY_500.test(message)) return { kind: 'unsupported', field: namedField(message) }
  if (worded === 'unknown_model') return { kind: worded, ...none }
  if (isServerFault(status)) return { kind: worded === 'rate_limit' ? worded : 'overloaded', ...none }
  if (worded === 'auth' && status === 400) return { kind: worded, ...none }
  if (worded === 'broken_off') return { kind: worded, ...none }
  const isRefusal = REFUSALS.has(status)
  const named = isRefusal || (status === 0 && !worded) ? (field ?? namedField(message)) : null
  if (named) return { kind: 'unsupported', field: named }
  if (isRefusal) return { kind: worded === 'timeout' ? worded : 'refused', ...none }
  return { kind: worded ?? (status >= 300 ? 'refused' : 'unknown'), ...none }
}

/** Returns the kind of a status or of a wording whose meaning is certain. Servers use the others loosely. */
function certainKind(status: number, worded: FailureKind | undefined, text: string): FailureKind | undefined {
  const strict = CERTAIN.get(status)
  if (strict) return strict
  if (worded === 'context_too_long' || worded === 'quota') return worded
  if (worded === 'content_filter' && (!isServerFault(status) || BLOCKED.test(text))) return worded
  if (worded === 'unknown_model' && MODEL_DENIED.test(text)) return worded
  // Some answer 403 for a model that they do not have (OpenAI, SiliconFlow), others to hide whether there is one.
  if (status === 403 && worded === 'unknown_model' && !/permission|denied/i.test(text)) return worded
  return OF_STATUS.get(status)
}

/** Words that stand in the position of a field name in sentences without one. */
const NO_FIELD =
  /^(?:\W+|\d+|are|is|was|were|not|the|for|in|to|with|and|or|of|value|values|role|roles|parameter|field|argument|s)$/i

/** Returns the fields that a rejection names, the likeliest first. */
const fieldsIn = (message: string): string[] =>
  FIELDS.flatMap((pattern) => pattern.exec(message)?.[1] ?? []).filter((field) => !NO_FIELD.test(field))

/** Returns the field, or else the part of the request, that a rejection names. */
const namedField = (message: string): string | null =>
  fieldsIn(message)[0]?.slice(0, 200) ?? PARTS.find(([, pattern]) => pattern.test(message))?.[0] ?? null
