// Recognizes rejections of requests that exceed the context window, and reads the limit.

/** Wordings of such rejections in the provider's code or message. */
const TOO_LONG: readonly RegExp[] = [
  /context[ _-]?(?:length|window|size|limit)|ContextWindowExceeded|exceed_context_size|context shift is disabled/i,
  /(?:prompt|input|request|messages?|conversation)(?: \w+){0,3}(?: \([^)]{1,40}\))? (?:is|are|was) too (?:long|large|big)/i,
  /(?:prompt|input|conversation)[ _]?(?:tokens?[ _])?too[ _]?(?:long|large)|prompt is over the limit/i,
  // StepFun.
  /\b(?:messages?|prompt|input|request) length (?:exceeds|is over) the (?:limit|max)/i,
  // Volcengine, TensorRT-LLM.
  /(?:input|prompt|sequence) length(?: of the \w+)?(?: is)? ?\(?[\d.,]+\)?(?: tokens?)?,? (?:which )?(?:is )?(?:exceeds?|longer than|greater than|larger than)/i,
  /sum of prompt length\b.{0,80}should not exceed/i,
  // OpenVINO, watsonx, Bedrock, Databricks.
  /number of (?:input |prompt |requested )?tokens\b.{0,60}?(?:exceed|longer than|greater than|larger than)/i,
  /(?:token count|\d+ (?:input|prompt) tokens)\b.{0,40}?exceed|(?:input|prompt)_tokens(?:_limit)?_exceeded/i,
  // Baidu, Snowflake.
  /\binput characters|max tokens of \d+ exceeded/i,
  /max(?:imum)? context\b|inputs? longer than \d+ tokens/i,
  /exceed\w*(?: the)?(?: \S+){0,5} (?:context|(?:input|prompt|maximum|max|allowed)\S*(?: \w+){0,4} tokens?)/i,
  /\b(?:prompt|input|total|conversation)\b[^.]{0,30}\btokens?\b[^.]{0,60}\b(?:exceed\w*|more than|larger than)(?: the)?(?: \w+)? (?:limit|\d)/i,
  /(?:prompt|input)(?: \w+)?(?: length)?(?: \([^)]{1,40}\)| of \d+)? (?:is longer than|exceeds?) (?:the )?(?:max|limit|model|allowed)/i,
  /input token count|too many (?:input |prompt )?tokens\b(?! per)|too many total text bytes|token limit exceeded/i,
  /max(?:imum)? (?:input|prompt|model) (?:length|tokens)|exceeded model token limit|range of input length/i,
  /reduce (?:the length|your prompt|the (?:prompt|number of (?:input )?tokens))|string_above_max_length(?!.{0,20}invalid '(?:tools|user|stop|metadata|response_format|text|safety|prompt_cache))/i,
  /tokens?(?: \S+){0,4} (?:exceeds?|more than|larger than|>)(?: \S+){0,5} (?:max(?:imum)?\b|limit|context)/i,
  // vLLM before 0.8, of a prompt that leaves no room for an answer.
  /max_tokens must be at least 1, got -/i,
  // Text Generation Inference.
  /`inputs`(?: tokens \+ `max_new_tokens`)? must (?:be <=|have less than)/i,
  /request[ _]too[ _]large|request entity too large|request payload size exceeds|expected maxLength: \d+, actual/i,
  // Ollama drops the oldest messages, until those of the user are missing.
  /^(?!.*\btemplate\b).*no user query found in messages/is,
  // OpenAI limits the number of messages, too.
  /\b(?:messages|input)\W{1,3}array too long/i,
  // GitHub Models, TabbyAPI, Transformers.
  /request body too large|tokens_limit_reached|max_seq_len|maximum sequence length|max_position_embeddings/i,
]

/** Wordings that concern the answer's length, a token rate or the id of an item instead. */
const OTHER_LIMITS: readonly RegExp[] = [
  /\.(?:call_)?id\W{1,4}string[ _](?:too[ _]long|above_max_length)/i,
  /^(?:HTTP \d+: )?\W*max_(?:completion_|output_|new_)?tokens\b\W{0,3}(?:\d+\W{1,3})?(?:exceeds|must(?! be at least 1, got -)|cannot|should|is greater|:? ?\d+ ?>)/i,
  // vLLM advises to reduce this number where the prompt and the answer together exceed its context.
  /maximum tokens you requested|^(?!.*context length).*number of (?:requested )?(?:output|completion|new) tokens/is,
  /tokens? per (?:min|hour|day)|rate limit reached/i,
  // Bedrock.
  /too many tokens, please wait/i,
]

/** Returns whether a provider's code and message state that the request is too long. */
export function isTooLong(text: string, message: string): boolean {
  // Groq and OpenAI reject a single request that exceeds the limit per minute.
  if (/request too large for/i.test(text)) return true
  return !OTHER_LIMITS.some((pattern) => pattern.test(message)) && TOO_LONG.some((pattern) => pattern.test(text))
}

/** A number as servers write it: `131,072`, `32_768`, `128k`. */
const NUMBER = '(\\d[\\d,_.]*)\\s*(k?)'
/** Creates a pattern in which `N` stands for a number. */
const numberIn = (source: string) => new RegExp(source.replace('N', NUMBER), 'i')

/** Wordings that state the limit, most reliable first. */
const LIMITS: readonly RegExp[] = [
  // Cohere, after the number of tokens beyond the limit.
  numberIn('limit for this model is N'),
  numberIn('n_ctx\\W{1,4}N'),
  numberIn('\\d \\+ \\d+ > N'),
  numberIn('window limit \\(N'),
  numberIn('max_(?:seq_len|num_tokens)\\W{1,3}N'),
  numberIn('N(?: tokens?)? maximum\\b'),
  numberIn('exceed\\w* (?:the )?limit(?: of)? N'),
  numberIn('range of input length should be \\[\\d+, N'),
  numberIn('(?:context|model) (?:length|window|size|limit)(?: of| is| only| to|:|=){0,3} ?\\(?N'),
  numberIn('(?:max|maximum)(?: \\w+){0,2} (?:length|tokens)(?: of| is|:){1,2} N'),
  numberIn(
    '(?:must be <=|less than|cannot exceed|up to|limit is|limit of|token limit:|(?:allowed|maximum)(?: (?!output)\\w+){0,2} \\() ?N',
  ),
  numberIn('> N'),
  numberIn('(?:context|maximum|max|allowed|supports?|than|limit)[^\\d(]{0,60}N'),
  numberIn('N[- ]?tokens? (?:context|limit|maximum|max)'),
]

/** Returns the context window stated in a rejection (tokens). */
export function contextWindowIn(message: string): number | null {
  if (/\bbytes\b|\bcharacters\b|maxLength|\barray\b/i.test(message)) return null
  const stated = LIMITS.map((pattern) => pattern.exec(message)).find((found) => found !== null)
  if (!stated) return null
  const tokens = Number(stated[1]?.replace(/[,_.]/g, '')) * (stated[2] ? 1000 : 1)
  return tokens >= 256 && tokens <= 100_000_000 ? tokens : null
}

/** Tokens of a prompt that a rejection states beside those of its answer. */
const PROMPT_SIZES =
  /(\d+)(?: tokens?)? (?:(?:in|from|of) (?:(?:the|your|text|tool|image|audio|file) )?(?:input|messages|prompt)\b|`?inputs?`? tokens)|(\d+) \+ \d+ > \d/gi
/** Smallest limit of an answer that is worth a request (tokens). */
const MIN_ANSWER = 1_024

/**
 * Returns the limit of the answer with which a rejected request fits the window (tokens). Returns null if the rejection
 * does not state the size of the prompt, or if the prompt leaves too little.
 */
export function answerLimitIn(message: string, contextWindow: number): number | null {
  const sizes = [...message.matchAll(PROMPT_SIZES)].map(([, one, other]) => Number(one ?? other))
  if (!sizes.length || !/output|completion|max_(?:new_)?tokens/i.test(message)) return null
  // Some numbers are estimates.
  const left = contextWindow - Math.ceil(sizes.reduce((sum, size) => sum + size) * 1.02)
  return left >= Math.min(MIN_ANSWER, contextWindow / 8) ? left : null
}
