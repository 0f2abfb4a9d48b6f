import type { LanguageModelV4FunctionTool, LanguageModelV4Prompt } from '@ai-sdk/provider'
import type { ModelSettings } from '../../../lib/model-settings.ts'
import { camelCased } from '../../../lib/text.ts'
import type { Fields } from '../../../lib/unknown.ts'
import type { Change } from './change.ts'
import { digestsIn, filesIn, hasDocuments } from './request-changes.ts'

// The wordings by which providers reject parts of a request, one rule each.

/** Parts of a request that decide its changes. */
export type RequestFacts = {
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

/** Traits of a rejected request that rules ask for. */
export type RequestTraits = {
  isCompatible: boolean
  /** Whether the package of a provider writes the request. */
  isPackage: boolean
  /** Whether the server answered with a status, so that it has read the request. */
  hasStatus: boolean
  /** Whether the request limits its answer, and whether its settings do. */
  hasLimit: boolean
  setsLimit: boolean
  hasOptions: boolean
  hasOutput: boolean
  hasTools: boolean
  hasNoTools: boolean
  /** Whether names of tools have hyphens. */
  hasHyphens: boolean
  /** Whether schemas of tools are more than plain. */
  hasRichSchemas: boolean
  hasCalls: boolean
  /** Whether this run has made no calls yet, so that it can go on without tools. */
  hasNoCallsHere: boolean
  hasReasoning: boolean
  /** Whether earlier reasoning is sent as parts of the content. */
  hasContentParts: boolean
  hasFiles: boolean
  /** Whether results of tools have pictures or documents. */
  hasResultFiles: boolean
}

/** A rejection: the text that a rule reads, which is its field or its sentence, and both of them. */
export type Rejection = { text: string; detail: string; field: string | null; request: RequestFacts }

/** A change that may help after rejections of one kind. */
export type Rule = {
  /** The change, or a function that reads the changes from the rejection. */
  change: Change | ((rejection: Rejection) => readonly Change[])
  /** Traits that must be true of the request. */
  when?: readonly (keyof RequestTraits)[]
  /** Wording of the text. */
  says?: RegExp
  /** Wordings of the whole sentence besides, all of them. */
  sentence?: readonly RegExp[]
  /** Wording of the text that rules it out. */
  unless?: RegExp
}

/** Wordings for a file that cannot be used, rather than for any file. */
const OF_SOME_FILES =
  /could not|process(?!.*missing data)|invalid[ _](?:image|base64)|your image|(?:not|n't) match(?! any)|not valid|corrupt|illegal|\bload\b|large|exceed|size|pixels|pages|password|download|fetch|decode|m(?:edia|ime)[ _]?type\b.*image\/|image\/.*\bm(?:edia|ime)[ _]?type|valid image\b|\burl\b/i

/**
 * Wordings for an empty text beside calls (NVIDIA, Moonshot, LM Studio, MiniMax, xAI, gateways for Anthropic), and for
 * one of blanks (Bedrock, LM Studio).
 */
const BLANK_CONTENT =
  /\bat least 1 character\b|\bcontent\b\W{0,2} field that is not empty|\b(?:content|role 'assistant')\W{0,2} (?:must not|cannot|can't) be (?:empty|blank)|content blocks must be non-?empty|\bcontent is empty\b|at least one content element|a non-empty content\b/i
const BLANKS =
  /\bnon-?whitespace text\b|\bcontent\b\W{0,2} field that is not empty|\btext field in the contentblock\b.{0,80}\bis blank/i

/** Wordings of Google's servers for a signature of another account, region or model. */
const WRONG_SIGNATURE = /corrupt|(?:not|in)[ -]?valid/i

/** Wordings for a field that a server does not know. */
const UNKNOWN_FIELD = /extra inputs|unsupported|unknown|unrecognized|not (?:permitted|supported|allowed)/i

/** Rules for rejections of which only the sentence says what is wrong. */
export const RULES_OF_SENTENCE: readonly Rule[] = [
  { change: 'omit:anthropic-beta', when: ['isPackage'], says: /\banthropic-beta\b|invalid beta|\bbeta is not\b/i },
  // OpenAI's package asks for a summary wherever it sets an effort, and OpenAI gives it to verified organizations only.
  { change: ({ field }) => (field === 'reasoning.summary' ? ['omit:summary'] : []), when: ['isPackage'] },
  // Other rejections may mention streaming or its options.
  {
    change: 'stream',
    when: ['hasStatus'],
    says: /^(?!.*(?:stream_options|include_usage)).*(?<!octet-)\bstream(?:ing)?\b/is,
    sentence: [/\b(?:not|un\w+|must|cannot|only)\b|n't\b/i],
  },
  { change: ({ detail }) => maxTokensIn(detail), when: ['hasLimit'] },
  // OpenAI, of models that do not reason beside tools in chat completions, as they do by default.
  {
    change: 'no_effort',
    when: ['isCompatible', 'hasTools'],
    says: /function tools with reasoning_?effort are not supported/i,
  },
  // Servers of Google that know only the older field for the inputs of tools, or its rules.
  {
    change: 'older_parameters',
    when: ['isPackage', 'hasTools'],
    says: /parameters_?json_?schema|non-?empty for OBJECT/i,
  },
  {
    change: ({ detail }) => {
      const field = /unknown name \\?"(id|thought_?signature|thought)\\?" at '?contents/i.exec(detail)?.[1]
      return field ? [`parts:${field}`] : []
    },
    when: ['isPackage'],
  },
  {
    change: 'instructions',
    when: ['isPackage'],
    says: /instructions (?:are|is) required|system messages are not allowed/i,
  },
  // Copilot and ChatGPT refuse the long ids of their own items, and OpenAI those that a gateway has made.
  { change: 'item_ids', when: ['isPackage'], says: /\binput[.[]\d+\]?\.id\b/i },
  // Texts in a list of parts. vLLM names the first form of the input that does not fit.
  {
    change: 'plain_content',
    when: ['isPackage'],
    says: /\b(?:output|input)_text\b|\binput\.str: |\bcontent\b.{0,60}(?:valid string|be a string|expected (?:a )?string)/i,
  },
  // Gateways, most of which do not name the pictures in the result of a tool.
  {
    change: 'pictures_apart',
    when: ['isPackage', 'hasResultFiles'],
    says: /\bimages?\b|should be a valid string|: invalid input\b/i,
    unless: OF_SOME_FILES,
  },
  // Servers that accept only a text as the content of an answer, or no thinking in it.
  {
    change: 'reasoning',
    when: ['isCompatible', 'hasContentParts'],
    says: /\bcontent\b.{0,80}(?:\bstr(?:ing)?\b|\btext\b)|content as a list|(?:variant|type|tag)\W{1,3}(?:thinking|reasoning)\b/i,
  },
  // gpt-oss, whose template accepts one of them beside calls.
  { change: 'reasoning', when: ['isCompatible', 'hasReasoning'], says: /both content and thinking/i },
  {
    change: 'add_reasoning',
    when: ['isCompatible', 'hasCalls'],
    says: /reasoning_content/,
    unless: UNKNOWN_FIELD,
  },
  // Templates for models that make one call at a time.
  { change: 'single_calls', when: ['isCompatible', 'hasCalls'], says: /only supports? (?:a )?single tool/i },
  { change: 'blank_content', when: ['isCompatible', 'hasCalls'], says: BLANK_CONTENT },
  { change: 'filled_content', when: ['isCompatible', 'hasCalls'], says: BLANKS },
  // `null` beside calls.
  {
    change: 'empty_content',
    when: ['isCompatible', 'hasCalls'],
    says: /\bcontent\b\W{0,2}(?: field)? is (?:a )?required|missing field \W?content\b|\bNullValue\b|\bcontent\b.*(?:\b(?:null|nil|none)\b|be a (?:valid )?string)|\b(?:null|nil|none)\b.*\bcontent\b|\bNoneType\b|value is not callable: null|invalid 'content' field/is,
    unless: BLANK_CONTENT,
  },
  // Any text beside calls.
  {
    change: 'calls_alone',
    when: ['isCompatible', 'hasCalls'],
    says: /content or tool_?calls\b.{0,20}\bnot both|text content is not allowed when tool_?calls/i,
  },
  {
    change: 'plain_references',
    when: ['isCompatible', 'hasCalls'],
    says: /\breferenced name\b.{0,200}\bfunction_?response/i,
  },
  // Results without the name of their tool.
  {
    change: 'tool_names',
    when: ['isCompatible', 'hasCalls'],
    says: /\bname\W{1,3}(?:is (?:a )?required|field required|cannot be empty)|missing field \W?name\b|\btool\b.{0,20}must have a name/i,
  },
  // DeepSeek and Kimi, for an answer that must begin with thinking.
  {
    change: 'add_reasoning',
    when: ['isPackage', 'hasCalls'],
    says: /thinking.{0,60}must be passed back|reasoning_content is missing/i,
  },
  { change: 'omit:include', when: ['isPackage'], says: /encrypted[ _]content\b.{0,20} is not (?:a )?supported/i },
  // Bedrock, LiteLLM and Anthropic, for earlier calls in a request that offers no tools.
  {
    change: 'calls:here',
    when: ['hasCalls', 'hasNoTools'],
    says: /toolconfig|tool calling without|must define tools|expects the `?tools\b/i,
  },
  { change: 'signatures:here', when: ['hasCalls'], says: /thought[_ ]?signature/i, sentence: [WRONG_SIGNATURE] },
  { change: 'signatures', when: ['hasCalls'], says: /thought[_ ]?signature/i, unless: WRONG_SIGNATURE },
  // Names of tools, whose rule Cohere states without hyphens.
  {
    change: 'plain_names',
    when: ['hasHyphens'],
    says: /(?:tool|function)s?\b.{0,60}\bnames?\b.{0,160}(?:match|pattern|must only|can only|only contain|invalid char)/i,
  },
  // An input of a tool without properties.
  {
    change: 'empty_inputs',
    when: ['isCompatible', 'hasTools'],
    says: /non-?empty for OBJECT|require at least one of: 'properties'|properties.{0,20}(?:must not|cannot) be empty/i,
  },
]

/** Names under which providers reject a setting. */
const SETTINGS: Readonly<Record<Exclude<keyof ModelSettings, 'providerOptions'>, RegExp>> = {
  temperature: /\btemperature\b/i,
  topP: /\btop_?p\b/i,
  maxOutputTokens: /\b(?:max_?(?:completion_|output_?)?tokens|max_new_tokens|num_predict)\b/i,
  stopSequences: /\b(?:stop|stop_?sequences)\b/i,
  seed: /\bseed\b/i,
  toolChoice: /\btool[_ ]?choice\b|function_?calling_?config|forced function calling/i,
  parallelToolCalls: /\b(?:disable_)?parallel[_ ](?:tool|function)[_ ](?:calls?|calling|use)\b/i,
  // Last, because many other rejections mention the mode of thinking.
  reasoningEffort:
    /\b(?:reasoning_?effort|reasoning\.effort|reasoning|think(?:ing(?:_?config|_?level|_?budget)?)?|effort)\b/i,
}
const SETTING_NAMES = Object.keys(SETTINGS) as (keyof typeof SETTINGS)[]

const ABOUT_REASONING = /reasoning|thinking|encrypted[_ ]content|\brs_|signature/i
/** Wording for reasoning of an earlier answer that is not accepted, and for any other reasoning. */
const WRONG_REASONING = /signature|encrypted[_ ]content|\brs_|cannot be modified/i
const OTHER_REASONING = /^(?!.*(?:signature|encrypted[_ ]content|\brs_|cannot be modified))/is

/** Keywords of JSON Schema that are no words of sentences. */
const KEYWORD =
  /\b(?:(?:min|max)(?:Items|Length|Properties|Contains)|uniqueItems|prefixItems|patternProperties|propertyNames|exclusiveM\w+|multipleOf|(?:one|any|all)Of)\b|\$(?:ref|defs)\b/

/** The place of a schema among the tools. */
const OF_TOOLS = /\b(?:tools?|functions?|function_declarations)[.[]\w/i

/** Wordings for a schema of an answer that is rejected for its contents, rather than any schema. */
const OF_THIS_SCHEMA =
  /schema\b.*\binvalid|invalid\b.*\bschema|\bschema[.[]|\.schema\b|schema (?:conversion|fields?|keywords?|contains|is too|produces)|schema\b.{0,80}(?:\btoo many|\bexceeds?\b|\bdepth)|\b(?:grammar|automaton)\b|\bin context=|failed to generate json|generated json\b/i

/** Rules for rejections that name a part of the request, in the field or in the sentence. */
export const RULES_OF_PARTS: readonly Rule[] = [
  // The form of the answer.
  {
    change: ({ text, detail }) => [
      OF_THIS_SCHEMA.test(text) || OF_THIS_SCHEMA.test(detail) ? 'output:schema' : 'output',
    ],
    when: ['hasOutput'],
    says: /response[_. ]?format|json[_ ]?mode|json_object|generated? json|response[_ ]?(?:json[_ ]?)?schema|response[_ ]?mime[_ ]?type|json[_ ]?schema|structured[-_ ]?output|output_(?:config(?!\.effort)|format)|text\.format|guided|grammar|^strict$/i,
    unless: OF_TOOLS,
  },
  { change: 'stream_options', when: ['isCompatible'], says: /stream_options|include_usage/i },
  {
    change: 'max_completion_tokens',
    when: ['isCompatible', 'setsLimit'],
    says: SETTINGS.maxOutputTokens,
    sentence: [/max_completion_tokens/],
  },
  // The reasoning may be wrong in one history only.
  { change: 'reasoning:here', when: ['hasReasoning'], says: ABOUT_REASONING, sentence: [WRONG_REASONING] },
  // An unknown field of earlier messages.
  {
    change: 'reasoning',
    when: ['hasReasoning'],
    says: ABOUT_REASONING,
    sentence: [OTHER_REASONING, /\bmessages?\W{0,2}[.[]\W?\d/i, UNKNOWN_FIELD],
  },
  {
    change: ({ text, request: { settings } }) =>
      SETTING_NAMES.filter((name) => settings[name] !== undefined && SETTINGS[name].test(text)),
  },
  {
    change: ({ text, request: { fields } }) =>
      Object.keys(fields)
        .filter((name) => hasField(text, name))
        .map((name): Change => `extra:${name}`),
  },
  // The value alone, as gateways pass OpenAI's refusals on without the name of the field.
  {
    change: ({ detail, request: { settings, fields } }) => [
      ...SETTING_NAMES.filter((name) => isQuoted(settings[name], detail)),
      ...Object.keys(fields)
        .filter((name) => isQuoted(fields[name], detail))
        .map((name): Change => `extra:${name}`),
    ],
    says: /\bvalues?\b/i,
    sentence: [/\b(?:un|not )supported|\binvalid\b/i],
  },
  { change: 'reasoning', when: ['hasReasoning'], says: ABOUT_REASONING, sentence: [OTHER_REASONING] },
  {
    change: ({ detail, request }) => changesOfFiles(detail, request.prompt),
    when: ['hasFiles'],
    says: /image|vision|multimodal|picture|\bmedia(?:_|\b)|(?:\b|_)file|pdf|document(?!ation)|mime ?type|content.{0,40}(?:\bstr\b|string|text)|expected string.{0,40}content|untagged enum \w*content|\burl does not appear to be valid/i,
  },
  {
    change: 'system',
    says: /\b(?:system(?! memory)|developer)\b|roles? must alternate|\bmessages\W{1,2}0\W{1,2}role\b/i,
  },
  {
    change: 'schemas',
    when: ['hasRichSchemas'],
    says: /schema|grammar|function_declarations|additionalProperties|\b(?:Null|Undefined)Value\b|(?:tool|function).{0,80}(?:parameters|properties)/i,
  },
  { change: 'schemas', when: ['hasRichSchemas'], says: KEYWORD },
  { change: 'output:schema', when: ['hasOutput'], says: /\bschema\b|additionalProperties/i, unless: OF_TOOLS },
  { change: 'output:schema', when: ['hasOutput'], says: KEYWORD, unless: OF_TOOLS },
  {
    change: ({ text, request: { tools } }) =>
      namedTools(text, tools).flatMap((name): Change[] => [`schema:${name}`, `tool:${name}`]),
    sentence: [
      /schema|parameters|function_declarations|input_schema|properties|\.name\b|(?:tool|function) name\b|description/i,
    ],
  },
  {
    change: ({ detail, request: { tools } }) => {
      const most = limitIn(detail, tools.length)
      return most ? [`tools:${most}`] : []
    },
    when: ['hasTools'],
    says: /tool|function/i,
  },
]

/** Wordings of vLLM and llama.cpp for a server whose operator has to start it with a flag. */
const FLAG_MISSING = /requires --/i

/** Words for the model or server that refuses. */
const OF_MODEL =
  '(?:(?:this|the|that|your|selected|current|any|specified|requested) )*[\'"`]?(?:models?|server|endpoint|deployment|provider|engine|backend)\\b'

/** Wordings for tools that are refused beside another part of a request, rather than by the model. */
const TOOLS_HERE = new RegExp(
  `\\b(?:when|while|alongside|together with|combin\\w+|in combination|at the same time|in this request|for this (?:request|conversation)|with (?!${OF_MODEL}))`,
  'i',
)

const TOOL_USE = '(?:tools?|functions?)(?:[ _-](?:use|usage|calls?|calling))?'
const TOOL = `['"\`]?${TOOL_USE}(?: or ${TOOL_USE})?['"\`]?`
const START = '(?:^|[:,"-] ?|\\. |\\bbut )'
const END = `(?=$|[.,;:!()"']| (?:for|with|by|in|on) ${OF_MODEL}| but )`

/** Wordings for tools that the model never supports: other sentences may be about one tool, or a part of it. */
const NO_TOOLS = new RegExp(
  [
    `${START}['"\`]?(?:(?:the|this|your|current|selected|model) )*\\S{1,100}(?: models?)? (?:(?:does|do|can) ?n[o']t|is not able to) (?:yet |currently )?(?:support|have) ${TOOL}(?: capabilit\\w+)?${END}`,
    `${START}(?:the )?${TOOL}(?: parameters?)? (?:(?:is|are) )?(?:not (?:yet )?(?:supported|enabled|available|allowed|implemented)|unsupported|disabled)${END}`,
    `\\bno endpoints found that support ${TOOL}|\\bnot capable of ${TOOL}|\\btools: (?:extra inputs|not yet implemented)`,
    `\\b(?:parameter|argument|property|field)\\b.{0,30}['"\`: ]tools['"\`]?(?=$|[.,;)]| is\\b)`,
  ].join('|'),
  'i',
)

/** Parts of a request to the provider of a package that are never left out as a field. */
const KEPT: ReadonlySet<string> = new Set([
  ...['model', 'messages', 'input', 'contents', 'content', 'system', 'tools', 'max_tokens', 'stream', 'parts', 'role'],
  ...['text', 'name', 'type', 'id', 'image', 'file', 'reasoning', 'parameters', 'input_schema', 'functionDeclarations'],
])

/** Rules that come last, because they leave out the most, and a sentence about another part may mention tools. */
export const LAST_RULES: readonly Rule[] = [
  {
    change: ({ field }) => {
      // The place of an entry in a list follows the name of the list.
      const added = /([A-Za-z_][\w-]*)(?:[.[]\d+\]?)*$/.exec(field ?? '')?.[1]
      return added && !KEPT.has(added) ? [`omit:${added}`] : []
    },
    when: ['isPackage'],
  },
  { change: 'omit:thinking', when: ['isPackage', 'hasOptions'], says: /thinking/i },
  {
    change: ({ detail, field, request: { settings } }) => {
      // The setting is left out instead.
      if (settings.parallelToolCalls !== undefined && SETTINGS.parallelToolCalls.test(detail)) return []
      const isField = field === 'tools' && /parameter|argument|extra inputs/i.test(detail)
      const isRefused = isField || /support|enable|allow|available|capab|implement|endpoints|requires --/i.test(detail)
      if (!isRefused || !/tool|function/i.test(`${field} ${detail}`)) return []
      if (FLAG_MISSING.test(detail)) return ['tools:flag']
      return [NO_TOOLS.test(detail) && !TOOLS_HERE.test(detail) ? 'tools' : 'tools:here']
    },
    when: ['hasTools', 'hasNoCallsHere'],
  },
]

/** Returns the limit that a rejection of the answer's maximum length states, as a change (tokens). */
function maxTokensIn(detail: string): Change[] {
  if (!/max\w*[ _-]?tokens\b/i.test(detail)) return []
  const beyond = BEYOND_TOKENS.exec(detail)?.[1]
  if (beyond !== undefined) return [`max_tokens:${Number(beyond) - 1}`]
  const most = MOST_TOKENS.map((pattern) => pattern.exec(detail)?.[1]).find((stated) => stated !== undefined)
  return most === undefined ? [] : [`max_tokens:${Number(most)}`]
}

/** Wordings of Google for the first number beyond the limit. */
const BEYOND_TOKENS = /(?:\[\d+, ?|\bto )(\d+)(?:\)| \(exclusive\))/i

const MOST_TOKENS: readonly RegExp[] = [
  /\d > (\d+)/,
  /(?:less than or equal to|<=|limit(?: of| is|ed to)?|up to|at most|maximum(?: value)? (?:of|is)|maximum allowed) ?[`'"(]?(\d+)/i,
  /\[\d+, ?(\d+)\]/,
  /(?:can ?not|can't|must not) be (?:greater|larger|more) than \D{0,60}?(\d+)/i,
  /(?:(?:can|must) ?not exceed|between \d+ and|\bmax(?:imum)?:?) (\d+)/i,
]

/** Returns the changes for a rejection of files: fewer, without those it is about, or none. */
function changesOfFiles(detail: string, prompt: LanguageModelV4Prompt): Change[] {
  const most = limitIn(detail, prompt.flatMap(filesIn).length)
  const fewer: Change[] = most ? [`latest_files:${most}`] : []
  if (OF_SOME_FILES.test(detail)) return [...fewer, `files:${digestsIn(prompt).join(',')}`]
  return [...fewer, ...(hasDocuments(prompt) ? (['documents'] as const) : []), 'files']
}

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

/** Returns whether a sentence begins the list of its values with this one, in quotes. */
const isQuoted = (value: unknown, detail: string): boolean =>
  typeof value === 'string' && /['"`]([^'"`]{1,64})['"`]/.exec(detail)?.[1] === value

const hasWord = (text: string, word: string): boolean =>
  new RegExp(`(?<![\\w-])${word.replace(/[^\w-]/g, '\\$&')}(?![\\w-])`).test(text)

/** Returns whether a text has the name of a field, also as xAI writes it (`presencePenalty`). */
const hasField = (text: string, name: string): boolean => hasWord(text, name) || hasWord(text, camelCased(name))

/** Returns the tools that a rejection names, by index or name. */
function namedTools(text: string, tools: readonly LanguageModelV4FunctionTool[]): string[] {
  const place = /function_declarations[[.](\d{1,4})/.exec(text) ?? /(?:tools|functions)[[.](\d{1,4})/.exec(text)
  const placed = place ? (tools[Number(place[1])]?.name ?? []) : []
  const named = tools.filter(({ name }) => hasWord(text, name)).map(({ name }) => name)
  return [placed, named].flat()
}
