import type { LanguageModelV4FunctionTool, LanguageModelV4Prompt } from '@ai-sdk/provider'
import type { ModelSettings } from '../../../lib/model-settings.ts'
import type { Fields } from '../../../lib/unknown.ts'
import { answerLimitIn } from '../models/context-length.ts'
import type { ModelFailure } from '../models/model-failures.ts'
import { CONTENT_PARTS } from '../models/reasoning-fields.ts'
import { plainSchema } from '../models/tool-schemas.ts'
import { type Change, digestsIn, filesIn, hasDocuments, hasFiles, hasParts } from './request-changes.ts'

// Finds the parts of a request that a provider rejects (contract-2.md section 2.1).

/** Facts of a request that decide its changes. */
export type Asked = {
  prompt: LanguageModelV4Prompt
  /** Index of the message that the run answers. */
  question: number
  tools: readonly LanguageModelV4FunctionTool[]
  settings: ModelSettings
  /** Whether the answer must fit a schema. */
  hasOutput: boolean
  /** Fields that are merged into the body. */
  fields: Fields
  /** Whether the provider is an OpenAI-compatible server. */
  isCompatible: boolean
}

/** Names under which providers reject a setting. */
const SETTINGS: Readonly<Record<Exclude<keyof ModelSettings, 'providerOptions'>, RegExp>> = {
  temperature: /\btemperature\b/i,
  topP: /\btop_?p\b/i,
  maxOutputTokens: /\b(?:max_?(?:completion_|output_?)?tokens|max_new_tokens|num_predict)\b/i,
  stopSequences: /\b(?:stop|stop_?sequences)\b/i,
  seed: /\bseed\b/i,
  toolChoice: /\btool[_ ]?choice\b/i,
  parallelToolCalls: /\b(?:disable_)?parallel_tool_(?:calls|use)\b/i,
  // Last, because many other rejections mention the mode of thinking.
  reasoningEffort:
    /\b(?:reasoning_?effort|reasoning\.effort|reasoning|think(?:ing(?:_?config|_?level|_?budget)?)?|effort)\b/i,
}
const SETTING_NAMES = Object.keys(SETTINGS) as (keyof typeof SETTINGS)[]

/**
 * Returns the changes that may help after a rejection, the likeliest first. Considers only parts that the request has.
 */
export function changesFor({ kind, field, detail, status, contextWindow }: ModelFailure, asked: Asked): Change[] {
  const { prompt, question, tools, settings, hasOutput, fields, isCompatible } = asked
  const hasLimit = settings.maxOutputTokens !== undefined || !isCompatible
  if (kind === 'context_too_long' && hasLimit && contextWindow !== null) {
    const most = answerLimitIn(detail, contextWindow)
    return most === null ? [] : [`answer:${most}`]
  }
  if (kind === 'context_too_long' && status === 413 && !/token/i.test(detail)) return ofSize(prompt)
  const affordable = isCompatible && kind === 'quota' ? AFFORDABLE.exec(detail)?.[1] : undefined
  if (affordable && Number(affordable) >= MIN_AFFORDABLE) return [`afford:${affordable}`]
  if (kind !== 'unsupported' && kind !== 'refused' && kind !== 'unknown') return []
  const changes: Change[] = []
  if (status !== null && ABOUT_STREAM.test(detail) && NEGATION.test(detail)) changes.push('stream')
  const maxTokens = hasLimit ? maxTokensIn(detail) : null
  if (maxTokens !== null) changes.push(`max_tokens:${maxTokens}`)
  if (isCompatible && tools.length && EFFORT_REFUSED.test(detail)) changes.push('no_effort')
  if (!isCompatible && tools.length && OLDER_PARAMETERS.test(detail)) changes.push('older_parameters')
  if (!isCompatible) changes.push(...ofContents(detail))
  const hasShown = !isCompatible && prompt.some((message) => message.role === 'tool' && filesIn(message).length > 0)
  if (hasShown && PICTURES_REFUSED.test(detail) && !isOfSomeFiles(detail)) changes.push('pictures_apart')
  if (isCompatible && hasContentParts(prompt) && LIST_REFUSED.test(detail)) changes.push('reasoning')
  if (isCompatible && hasParts(prompt, ['tool-call'])) changes.push(...ofMessages(detail))
  if (!isCompatible && hasParts(prompt, ['tool-call']) && THINKING_DEMANDED.test(detail)) changes.push('add_reasoning')
  if (!isCompatible && /encrypted content is not supported/i.test(detail)) changes.push('omit:include')
  if (hasParts(prompt, ['tool-call']) && !tools.length && TOOLS_DEMANDED.test(detail)) changes.push('calls:here')
  if (hasParts(prompt, ['tool-call']) && /thought[_ ]?signature/i.test(detail))
    changes.push(WRONG_SIGNATURE.test(detail) ? 'signatures:here' : 'signatures')
  if (tools.some(({ name }) => name.includes('-')) && TOOL_NAME_RULE.test(detail)) changes.push('plain_names')
  if (isCompatible && tools.length && EMPTY_INPUTS.test(detail)) changes.push('empty_inputs')
  let withoutTools: Change[] = []
  // The field itself comes first, because the sentence around it may name others.
  for (const text of [field ?? '', detail]) {
    if (!text) continue
    if (hasOutput && ABOUT_OUTPUT.test(text) && !OF_TOOLS.test(text))
      changes.push(/schema\b.*\binvalid|invalid\b.*\bschema/i.test(text) ? 'output:schema' : 'output')
    if (isCompatible && /stream_options|include_usage/i.test(text)) changes.push('stream_options')
    if (settings.maxOutputTokens !== undefined && isCompatible && /max_completion_tokens/.test(detail)) {
      if (SETTINGS.maxOutputTokens.test(text)) changes.push('max_completion_tokens')
    }
    const isAboutReasoning = /reasoning|thinking|encrypted[_ ]content|\brs_|signature/i.test(text)
    if (isAboutReasoning && hasParts(prompt, ['reasoning'])) {
      // The reasoning may be wrong in one history only.
      if (WRONG_REASONING.test(detail)) changes.push('reasoning:here')
      else if (IN_MESSAGES.test(detail) && UNKNOWN_FIELD.test(detail)) changes.push('reasoning')
    }
    for (const name of SETTING_NAMES) if (settings[name] !== undefined && SETTINGS[name].test(text)) changes.push(name)
    for (const name of Object.keys(fields)) if (hasWord(text, name)) changes.push(`extra:${name}`)
    if (isAboutReasoning && hasParts(prompt, ['reasoning']) && !WRONG_REASONING.test(detail)) changes.push('reasoning')
    const isAboutFiles =
      /image|vision|multimodal|picture|\bmedia(?:_|\b)|\bfile|pdf|document|mime type|content.{0,40}(?:\bstr\b|string|text)|expected string.{0,40}content|untagged enum \w*content|\burl does not appear to be valid|图片|图像/i.test(
        text,
      )
    if (isAboutFiles && hasFiles(prompt)) {
      const most = limitIn(detail, prompt.flatMap(filesIn).length)
      if (most) changes.push(`latest_files:${most}`)
      if (isOfSomeFiles(detail)) changes.push(`files:${digestsIn(prompt).join(',')}`)
      else changes.push(...(hasDocuments(prompt) ? ['documents'] : []), 'files')
    }
    if (/\b(?:system|developer)\b|roles? must alternate/i.test(text)) changes.push('system')
    if (tools.some(isNotPlain) && ABOUT_SCHEMAS.test(text)) changes.push('schemas')
    if (hasOutput && /\bschema\b|additionalProperties/i.test(text) && !OF_TOOLS.test(text))
      changes.push('output:schema')
    for (const name of refusedTools(text, detail, tools)) changes.push(`schema:${name}`, `tool:${name}`)
    if (!tools.length || !/tool|function/i.test(text)) continue
    const most = limitIn(detail, tools.length)
    if (most) changes.push(`tools:${most}`)
    const isField = field === 'tools' && /parameter|argument|extra inputs/i.test(detail)
    const isRefused = isField || /support|enable|allow|available|capab|implement|endpoints|requires --/i.test(detail)
    if (isRefused && !hasParts(prompt, ['tool-call'], question))
      withoutTools = [FLAG_MISSING.test(detail) ? 'tools:flag' : TOOLS_HERE.test(detail) ? 'tools:here' : 'tools']
  }
  const added = /[\w-]+$/.exec(field ?? '')?.[0] ?? ''
  if (!isCompatible && added && !KEPT.has(added)) changes.push(`omit:${added}`)
  if (!isCompatible && /\banthropic-beta\b|invalid beta/i.test(detail)) changes.push('omit:anthropic-beta')
  if (!isCompatible && settings.providerOptions && /thinking/i.test(detail)) changes.push('omit:thinking')
  // Last, because a sentence about another part may mention tools.
  return [...new Set([...changes, ...withoutTools])]
}

/** Returns the changes for a body with more bytes than a server takes: without the older half of the files, then all. */
function ofSize(prompt: LanguageModelV4Prompt): Change[] {
  const digests = digestsIn(prompt)
  const older = digests.slice(0, Math.floor(digests.length / 2))
  return [older, digests].flatMap((some) => (some.length ? `large_files:${some.join(',')}` : []))
}

/** Returns the changes of earlier messages for a rejection of the forms that some servers demand. */
function ofMessages(detail: string): Change[] {
  return [
    ...(/reasoning_content/.test(detail) && !UNKNOWN_FIELD.test(detail) ? ['add_reasoning'] : []),
    ...(SINGLE_CALLS.test(detail) ? ['single_calls'] : []),
    ...(BLANK_CONTENT.test(detail) ? ['blank_content'] : EMPTY_CONTENT.test(detail) ? ['empty_content'] : []),
    ...(CALLS_ALONE.test(detail) ? ['calls_alone'] : []),
    ...(/\breferenced name\b.{0,200}\bfunction_?response/i.test(detail) ? ['plain_references'] : []),
    ...(TOOL_NAMES.test(detail) ? ['tool_names'] : []),
  ]
}

/** Returns whether earlier reasoning is sent as parts of the content. */
const hasContentParts = (prompt: LanguageModelV4Prompt): boolean =>
  prompt.some(
    ({ role, content }) =>
      role === 'assistant' &&
      content.some(({ providerOptions = {} }) => Object.values(providerOptions).some((own) => CONTENT_PARTS in own)),
  )

/** Wordings of servers that accept only a text as the content of an answer, or no thinking in it. */
const LIST_REFUSED =
  /\bcontent\b.{0,80}(?:\bstr(?:ing)?\b|\btext\b)|content as a list|(?:variant|type|tag)\W{1,3}(?:thinking|reasoning)\b/i

/** Wordings for reasoning of an earlier answer that is not accepted, as opposed to any reasoning. */
const WRONG_REASONING = /signature|encrypted[_ ]content|\brs_|cannot be modified/i
/** Wordings of Google's servers for a signature of another account, region or model. */
const WRONG_SIGNATURE = /corrupt|(?:not|in)[ -]?valid/i
/** A place in the messages of a request. */
const IN_MESSAGES = /\bmessages?\W{0,2}[.[]\W?\d/i
/** Wordings for a field that a server does not know. */
const UNKNOWN_FIELD = /extra inputs|unsupported|unknown|unrecognized|not (?:permitted|supported|allowed)/i
/** Wordings of templates for models that make one call at a time. */
const SINGLE_CALLS = /only supports? (?:a )?single tool/i
/** OpenRouter's wording for an answer whose limit, by default that of the model, costs more than the credit left. */
const AFFORDABLE = /fewer max_tokens.{0,80}can only afford (\d{1,9})/i
/** Minimum limit of an answer that is worth a request (tokens). */
const MIN_AFFORDABLE = 1_024
/** Wordings for calls with an empty text beside them (NVIDIA, Moonshot), and with any text. */
const BLANK_CONTENT =
  /\bat least 1 character\b|\b(?:content|role 'assistant')\W{0,2} (?:must not|cannot|can't) be (?:empty|blank)/i
const CALLS_ALONE = /content or tool_?calls\b.{0,20}\bnot both|text content is not allowed when tool_?calls/i
/** Wordings for calls with `null` beside them, and for results without the name of their tool. */
const EMPTY_CONTENT =
  /\bcontent\b\W{0,2}(?: field)? is (?:a )?required|missing field \W?content\b|\bNullValue\b|\bcontent\b.*(?:\b(?:null|nil|none)\b|be a (?:valid )?string)|\b(?:null|nil|none)\b.*\bcontent\b|\bNoneType\b|value is not callable: null|invalid 'content' field/is
const TOOL_NAMES =
  /\bname\W{1,3}(?:is (?:a )?required|field required|cannot be empty)|missing field \W?name\b|\btool\b.{0,20}must have a name/i

/** Returns the changes of the messages that provider packages write. */
function ofContents(detail: string): Change[] {
  const [, field] = /unknown name \\?"(id|thought_?signature|thought)\\?" at '?contents/i.exec(detail) ?? []
  const isOfInstructions = /instructions (?:are|is) required|system messages are not allowed/i.test(detail)
  return [
    ...(field ? [`parts:${field}`] : []),
    ...(isOfInstructions ? ['instructions'] : []),
    ...(PLAIN_CONTENT.test(detail) ? ['plain_content'] : []),
  ]
}

/** Wordings of gateways for pictures in the result of a tool, most of which do not name them. */
const PICTURES_REFUSED = /\bimages?\b|should be a valid string|: invalid input\b/i

/** Wordings for texts in a list of parts. */
const PLAIN_CONTENT = /\b(?:output|input)_text\b|\bcontent\b.{0,60}(?:valid string|be a string|expected (?:a )?string)/i

/** OpenAI's wording for models that do not reason beside tools in chat completions, as they do by default. */
const EFFORT_REFUSED = /function tools with reasoning_?effort are not supported/i

/** Wordings of Google's servers that know only the older field for the inputs of tools, or its rules. */
const OLDER_PARAMETERS = /parameters_?json_?schema|non-?empty for OBJECT/i

/** Wordings of Bedrock, LiteLLM and Anthropic for earlier calls in a request that offers no tools. */
const TOOLS_DEMANDED = /toolconfig|tool calling without|must define tools|expects the `?tools\b/i

/** Wordings for tools that are refused beside another part of a request, rather than by the model. */
const TOOLS_HERE =
  /\b(?:when|while|alongside|together with|combin\w+|in combination|at the same time|in this request|for this (?:request|conversation)|with (?!(?:(?:this|the|that|your|selected|current|any|specified|requested) )*['"`]?(?:models?|server|endpoint|deployment|provider|engine|backend)\b))/i

/** Wordings of vLLM and llama.cpp for a server whose operator has to start it with a flag. */
const FLAG_MISSING = /requires --/i

/** Wordings of DeepSeek for an answer that must begin with thinking. */
const THINKING_DEMANDED = /thinking.{0,60}must be passed back/i

/** Wordings of a rule for the names of tools, which Cohere states without hyphens. */
const TOOL_NAME_RULE =
  /(?:tool|function)s?\b.{0,60}\bnames?\b.{0,160}(?:match|pattern|must only|can only|only contain|invalid char)/i

/** Wordings for an input of a tool without properties. */
const EMPTY_INPUTS =
  /non-?empty for OBJECT|require at least one of: 'properties'|properties.{0,20}(?:must not|cannot) be empty/i

/** Parts of a request to the provider of a package that are never left out as a field. */
const KEPT: ReadonlySet<string> = new Set([
  ...['model', 'messages', 'input', 'contents', 'content', 'system', 'tools', 'max_tokens', 'stream', 'parts', 'role'],
  ...['text', 'name', 'type', 'image', 'file', 'reasoning', 'parameters', 'input_schema', 'functionDeclarations'],
])

/** Returns the limit that a rejection of the answer's maximum length states (tokens); null without one. */
function maxTokensIn(detail: string): number | null {
  if (!MAX_TOKENS.test(detail)) return null
  const stated = MOST_TOKENS.map((pattern) => pattern.exec(detail)?.[1]).find((most) => most !== undefined)
  return stated === undefined ? null : Number(stated)
}

const MAX_TOKENS = /max\w*[ _-]?tokens\b/i
/** Wordings that state this limit. */
const MOST_TOKENS: readonly RegExp[] = [
  /\d > (\d+)/,
  /(?:less than or equal to|<=|limit(?: of| is|ed to)?|up to|at most|maximum(?: value)? (?:of|is)) ?[`'"]?(\d+)/i,
  /\[\d+, ?(\d+)\]/,
]

/** Names under which providers reject a schema for the answer. */
const ABOUT_OUTPUT =
  /response[_. ]?format|json[_ ]?mode|json_object|generate json|response[_ ]?(?:json[_ ]?)?schema|response[_ ]?mime[_ ]?type|json[_ ]?schema|structured[-_ ]?output|output_(?:config(?!\.effort)|format)|text\.format|guided|grammar|^strict$/i

/** The place of a schema among the tools. */
const OF_TOOLS = /\b(?:tools?|functions?|function_declarations)[.[]/i

/** Words about streaming itself, which other rejections may mention too. */
const ABOUT_STREAM = /^(?!.*(?:stream_options|include_usage)).*\bstream(?:ing)?\b/is

/** Words of a rejection that does not only mention something. */
const NEGATION = /\b(?:not|un\w+|must|cannot|only)\b|n't\b/i

/** Words about the schemas of tools. */
const ABOUT_SCHEMAS =
  /schema|grammar|function_declarations|additionalProperties|\b(?:Null|Undefined)Value\b|(?:tool|function).{0,80}(?:parameters|properties)/i

const isNotPlain = ({ inputSchema }: LanguageModelV4FunctionTool): boolean =>
  JSON.stringify(plainSchema(inputSchema)) !== JSON.stringify(inputSchema)

/** Wordings that state a maximum number, which is not one of bytes or the like. */
const LIMIT =
  /(?:at most|up to|max(?:imum)?(?: \w+){0,4}?|limit(?: is| of|:)?|only(?: \w+){0,2}?|exceeds(?: the)?|[>≤]|<=) ?(\d{1,4})\b(?! ?(?:[kmg]i?b|bytes?|pixels?|px|tokens?|pages?|char|%))/gi

/**
 * Returns the maximum number that a rejection states for parts of which the request has `count`; null if it states
 * none.
 */
function limitIn(detail: string, count: number): number | null {
  const limits = [...detail.matchAll(LIMIT)].map(([, number]) => Number(number))
  return limits.find((limit) => limit > 0 && limit < count) ?? null
}

const hasWord = (text: string, word: string): boolean =>
  new RegExp(`(?<![\\w-])${word.replace(/[^\w-]/g, '\\$&')}(?![\\w-])`).test(text)

/** Returns the tools whose schemas a rejection names, by index or name. */
function refusedTools(text: string, detail: string, tools: readonly LanguageModelV4FunctionTool[]): string[] {
  if (!/schema|parameters|function_declarations|input_schema|properties/i.test(detail)) return []
  const place = /function_declarations[[.](\d{1,4})/.exec(text) ?? /(?:tools|functions)[[.](\d{1,4})/.exec(text)
  const placed = place ? (tools[Number(place[1])]?.name ?? []) : []
  const named = tools.filter(({ name }) => hasWord(text, name)).map(({ name }) => name)
  return [placed, named].flat()
}

/** Returns whether a rejection concerns only some of the files, such as a broken or too large one. */
const isOfSomeFiles = (detail: string): boolean =>
  /could not|process(?!.*missing data)|invalid[ _](?:image|base64)|your image|(?:not|n't) match(?! any)|not valid|corrupt|illegal|\bload\b|large|exceed|size|pixels|pages|password|download|fetch|decode|mime type: image\/|valid image\b|\burl\b|解析/i.test(
    detail,
  )
