import { createHash } from 'node:crypto'
import type {
  LanguageModelV4FilePart,
  LanguageModelV4FunctionTool,
  LanguageModelV4Message,
  LanguageModelV4Prompt,
  LanguageModelV4TextPart,
} from '@ai-sdk/provider'
import type { ModelSettings } from '../../../lib/model-settings.ts'
import { type Fields, isObject } from '../../../lib/unknown.ts'
import type { ModelFailure } from '../models/model-failures.ts'
import { plainSchema } from '../models/tool-schemas.ts'

// Leaves the parts of a request that a provider rejects by name out of the next one (contract-2.md section 2.1).

/**
 * A change of the requests to one model:
 * - `stream_options`, `temperature` and other fields: omit the body field or the setting.
 * - `stream`: ask for the whole answer at once.
 * - `omit:<field>`: leave out a field, or the header `anthropic-beta`, that a provider package adds by itself.
 * - `max_tokens:<number>`: lower the package's limit of the answer.
 * - `max_completion_tokens`: use this name for the answer limit.
 * - `system`: move the system prompt into the first user message.
 * - `files`: send only the names of all files. `files:<digest>,<digest>`: only of these, which the provider could not
 *   read. `latest_files:<number>`: of all but the last ones. `documents`: of PDF files.
 * - `reasoning`: omit earlier reasoning. `add_reasoning`: give every earlier call an empty one.
 * - `output`, `output:schema`: ask for the form of the answer in the prompt, because the provider supports no schema, or
 *   not this one.
 * - `tools`: offer no tools. `tools:<number>`: offer only the first ones. `schemas`: describe the inputs of all tools in
 *   the plainest form. `schema:<tool>`: omit the tool's input schema. `tool:<tool>`: omit the tool.
 */
export type Change = string

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
  reasoningEffort:
    /\b(?:reasoning_?effort|reasoning\.effort|reasoning|thinking(?:_?config|_?level|_?budget)?|effort)\b/i,
  toolChoice: /\btool_?choice\b/i,
  parallelToolCalls: /\b(?:disable_)?parallel_tool_(?:calls|use)\b/i,
}
const SETTING_NAMES = Object.keys(SETTINGS) as (keyof typeof SETTINGS)[]

const hasParts = (prompt: LanguageModelV4Prompt, types: readonly string[], from = 0): boolean =>
  prompt.some(
    ({ content }, index) =>
      index >= from && typeof content !== 'string' && content.some(({ type }) => types.includes(type)),
  )

/** Returns whether a prompt has pictures or documents. */
export const hasFiles = (prompt: LanguageModelV4Prompt): boolean =>
  hasParts(prompt, ['file']) ||
  prompt.some(
    ({ role, content }) =>
      role === 'tool' &&
      content.some(
        (part) =>
          part.type === 'tool-result' &&
          part.output.type === 'content' &&
          part.output.value.some(({ type }) => type !== 'text'),
      ),
  )

/**
 * Returns the changes that may help after a rejection, the likeliest first. Considers only parts that the request has.
 */
export function changesFor({ kind, field, detail, status }: ModelFailure, asked: Asked): Change[] {
  if (kind !== 'unsupported' && kind !== 'refused' && kind !== 'unknown') return []
  const { prompt, question, tools, settings, hasOutput, fields, isCompatible } = asked
  const changes: Change[] = []
  if (status !== null && ABOUT_STREAM.test(detail) && NEGATION.test(detail)) changes.push('stream')
  const maxTokens = isCompatible ? null : maxTokensIn(detail)
  if (maxTokens !== null) changes.push(`max_tokens:${maxTokens}`)
  // The field itself comes first, because the sentence around it may name others.
  for (const text of [field ?? '', detail]) {
    if (!text) continue
    if (hasOutput && ABOUT_OUTPUT.test(text) && !OF_TOOLS.test(text))
      changes.push(/schema\b.*\binvalid|invalid\b.*\bschema/i.test(text) ? 'output:schema' : 'output')
    if (isCompatible && /stream_options|include_usage/i.test(text)) changes.push('stream_options')
    if (settings.maxOutputTokens !== undefined && isCompatible && /max_completion_tokens/.test(detail)) {
      if (SETTINGS.maxOutputTokens.test(text)) changes.push('max_completion_tokens')
    }
    for (const name of SETTING_NAMES) if (settings[name] !== undefined && SETTINGS[name].test(text)) changes.push(name)
    for (const name of Object.keys(fields)) if (hasWord(text, name)) changes.push(`extra:${name}`)
    const isAboutReasoning = /reasoning|thinking|encrypted_content|\brs_|signature/i.test(text)
    if (isAboutReasoning && hasParts(prompt, ['reasoning'])) changes.push('reasoning')
    if (isCompatible && /reasoning_content/.test(text) && hasParts(prompt, ['tool-call'])) changes.push('add_reasoning')
    const isAboutFiles =
      /image|vision|multimodal|picture|media|\bfile|pdf|document|content.{0,40}(?:string|text)/i.test(text)
    if (isAboutFiles && hasFiles(prompt)) {
      const most = limitIn(detail, prompt.flatMap(filesIn).length)
      if (most) changes.push(`latest_files:${most}`)
      if (isOfSomeFiles(detail)) changes.push(`files:${digestsIn(prompt).join(',')}`)
      else changes.push(...(hasDocuments(prompt) ? ['documents'] : []), 'files')
    }
    if (/\b(?:system|developer)\b|roles? must alternate/i.test(text)) changes.push('system')
    if (tools.some(isNotPlain) && ABOUT_SCHEMAS.test(text)) changes.push('schemas')
    for (const name of refusedTools(text, detail, tools)) changes.push(`schema:${name}`, `tool:${name}`)
    if (!tools.length || !/tool|function/i.test(text)) continue
    const most = limitIn(detail, tools.length)
    if (most) changes.push(`tools:${most}`)
    const isField = field === 'tools' && /parameter|argument|extra inputs/i.test(detail)
    const isRefused = isField || /support|enable|allow|available|capab|endpoints|requires --/i.test(detail)
    if (isRefused && !hasParts(prompt, ['tool-call'], question)) changes.push('tools')
  }
  const added = /[\w-]+$/.exec(field ?? '')?.[0] ?? ''
  if (!isCompatible && added && !KEPT.has(added)) changes.push(`omit:${added}`)
  if (!isCompatible && /\banthropic-beta\b|invalid beta/i.test(detail)) changes.push('omit:anthropic-beta')
  if (!isCompatible && settings.providerOptions && /thinking/i.test(detail)) changes.push('omit:thinking')
  return [...new Set(changes)]
}

/** Parts of a request to the provider of a package that are never left out as a field. */
const KEPT: ReadonlySet<string> = new Set([
  ...['model', 'messages', 'input', 'contents', 'content', 'system', 'tools', 'max_tokens', 'stream', 'parts', 'role'],
  ...['text', 'name', 'type', 'image', 'file', 'reasoning', 'parameters', 'input_schema', 'functionDeclarations'],
])

/** Returns whether a field of a package's request comes from options that the caller gave, which have similar names. */
export function isOption(field: string, { providerOptions = {} }: ModelSettings): boolean {
  const plain = (text: string) => text.toLowerCase().replaceAll('_', '')
  return plain(JSON.stringify(providerOptions)).includes(plain(field))
}

/** Returns the limit that a rejection of the answer's maximum length states (tokens); null without one. */
function maxTokensIn(detail: string): number | null {
  const [, most] =
    /max\w*[ _]?tokens\b[^>]{0,60}?\d+ > (\d+)|at most (\d+) completion|model limit of (\d+)/i
      .exec(detail)
      ?.filter(Boolean) ?? []
  return most ? Number(most) : null
}

/** Names under which providers reject a schema for the answer. */
const ABOUT_OUTPUT =
  /response[_. ]?format|json[_ ]?mode|json_object|generate json|response[_ ]?(?:json[_ ]?)?schema|response[_ ]?mime[_ ]?type|json[_ ]?schema|structured[-_ ]?output|output_(?:config|format)|text\.format|guided|grammar/i

/** The place of a schema among the tools. */
const OF_TOOLS = /\b(?:tools?|functions?|function_declarations)[.[]/i

/** Words about streaming itself, which other rejections may mention too. */
const ABOUT_STREAM = /^(?!.*(?:stream_options|include_usage)).*\bstream(?:ing)?\b/is

/** Words of a rejection that does not only mention something. */
const NEGATION = /\b(?:not|un\w+|must|cannot|only)\b|n't\b/i

/** Words about the schemas of tools. */
const ABOUT_SCHEMAS = /schema|grammar|function_declarations|(?:tool|function).{0,80}(?:parameters|properties)/i

const isNotPlain = ({ inputSchema }: LanguageModelV4FunctionTool): boolean =>
  JSON.stringify(plainSchema(inputSchema)) !== JSON.stringify(inputSchema)

/** Wordings that state a maximum number, which is not one of bytes or the like. */
const LIMIT =
  /(?:at most|up to|max(?:imum)?(?: \w+){0,4}?|limit(?: is| of|:)?|only(?: \w+){0,2}?|exceeds(?: the)?|[>≤]|<=) ?(\d{1,4})\b(?! ?(?:[kmg]i?b|bytes?|pixels?|px|tokens?|pages?|char|%))/gi

/** Returns the maximum number that a rejection states for parts of which the request has `count`; null if it states none. */
function limitIn(detail: string, count: number): number | null {
  const limits = [...detail.matchAll(LIMIT)].map(([, number]) => Number(number))
  return limits.find((limit) => limit > 0 && limit < count) ?? null
}

/** Returns whether the answer's form is asked for in the prompt instead of a field of the request. */
export const refusesOutput = (changes: ReadonlySet<Change>): boolean =>
  changes.has('output') || changes.has('output:schema')

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
  /could not|process(?!.*missing data)|invalid image|corrupt|large|exceed|size|download|fetch|decode/i.test(detail)

/** Returns whether a change applies to every request to the model rather than to one request's contents. */
export const isOfModel = (change: Change): boolean =>
  !/^(?:schema|tool|files|output):/.test(change) && change !== 'schemas' && change !== 'maxOutputTokens'

/** Returns whether a change applies to the next turns of the session, which send the files again. */
export const isOfSession = (change: Change): boolean => change.startsWith('files:')

/** Applies changes to a prompt. */
export function changePrompt(prompt: LanguageModelV4Prompt, changes: ReadonlySet<Change>): LanguageModelV4Prompt {
  if (!changes.size) return prompt
  let changed = prompt
  const most = numberOf('latest_files', changes)
  if (most !== null) changed = withLatestFiles(changed, most)
  const refused = new Set([...changes].flatMap((change) => (isOfSession(change) ? change.slice(6).split(',') : [])))
  if (changes.has('files') || changes.has('documents') || refused.size) {
    const isRefused = (file: LanguageModelV4FilePart) =>
      changes.has('files') || (changes.has('documents') && isDocument(file)) || refused.has(digestOf(file))
    changed = changed.map((message) => withoutFiles(message, isRefused))
  }
  if (changes.has('reasoning')) changed = changed.flatMap(withoutReasoning)
  return changes.has('tools') ? withoutCalls(changed) : changed
}

/**
 * Moves the system prompt into the first question for models without a system role. Applied last, because shortening
 * removes the oldest questions.
 */
export const changeSystem = (prompt: LanguageModelV4Prompt, changes: ReadonlySet<Change>): LanguageModelV4Prompt =>
  changes.has('system') ? withoutSystem(prompt) : prompt

/** Returns the smallest number that changes of this name state; null without one. */
function numberOf(name: string, changes: ReadonlySet<Change>): number | null {
  const numbers = [...changes].flatMap((change) =>
    change.startsWith(`${name}:`) ? Number(change.slice(name.length + 1)) : [],
  )
  return numbers.length ? Math.min(...numbers) : null
}

/** Names all files but the last ones. */
function withLatestFiles(prompt: LanguageModelV4Prompt, most: number): LanguageModelV4Prompt {
  let left = prompt.flatMap(filesIn).length - most
  const isOver = () => left-- > 0
  return prompt.map((message) => withoutFiles(message, isOver, LEFT_OUT))
}

/** Returns whether a prompt has documents. */
export const hasDocuments = (prompt: LanguageModelV4Prompt): boolean => prompt.flatMap(filesIn).some(isDocument)

const isDocument = ({ mediaType }: LanguageModelV4FilePart): boolean => mediaType === 'application/pdf'

const digests = new WeakMap<Uint8Array, string>()

/** Identifies a file by its bytes. */
function digestOf({ data }: LanguageModelV4FilePart): string {
  const bytes = data.type === 'data' ? data.data : JSON.stringify(data)
  const known = typeof bytes === 'string' ? undefined : digests.get(bytes)
  const digest = known ?? createHash('sha256').update(bytes).digest('base64url').slice(0, 22)
  if (typeof bytes !== 'string') digests.set(bytes, digest)
  return digest
}

const filesIn = ({ role, content }: LanguageModelV4Message): LanguageModelV4FilePart[] => {
  if (role === 'user') return content.flatMap((part) => (part.type === 'file' ? part : []))
  if (role !== 'tool') return []
  return content.flatMap((part) =>
    part.type === 'tool-result' && part.output.type === 'content'
      ? part.output.value.flatMap((item) => (item.type === 'file' ? (item as LanguageModelV4FilePart) : []))
      : [],
  )
}

const digestsIn = (prompt: LanguageModelV4Prompt): string[] => [...new Set(prompt.flatMap(filesIn).map(digestOf))]

const UNSUPPORTED = 'which this model does not support'
const LEFT_OUT = 'which was left out in favour of later files'

const named = ({ filename, mediaType }: LanguageModelV4FilePart, why: string): LanguageModelV4TextPart => ({
  type: 'text',
  text: `[Attached file: ${filename ?? 'unnamed'} (${mediaType}), ${why}]`,
})

function withoutFiles(
  message: LanguageModelV4Message,
  isRefused: (file: LanguageModelV4FilePart) => boolean,
  why = UNSUPPORTED,
): LanguageModelV4Message {
  if (message.role === 'user') {
    const content = message.content.map((part) => (part.type === 'file' && isRefused(part) ? named(part, why) : part))
    return { ...message, content }
  }
  if (message.role !== 'tool') return message
  return {
    ...message,
    content: message.content.map((part) => {
      if (part.type !== 'tool-result' || part.output.type !== 'content') return part
      const value = part.output.value.map((item) => {
        const file = item as LanguageModelV4FilePart
        return item.type === 'file' && isRefused(file) ? named(file, why) : item
      })
      return { ...part, output: { ...part.output, value } }
    }),
  }
}

/** Removes reasoning from an answer, and the whole answer if nothing else remains. */
export function withoutReasoning(message: LanguageModelV4Message): LanguageModelV4Message[] {
  if (message.role !== 'assistant') return [message]
  const content = message.content.filter(({ type }) => type !== 'reasoning')
  return content.length ? [{ ...message, content }] : []
}

function withoutCalls(prompt: LanguageModelV4Prompt): LanguageModelV4Prompt {
  return prompt.flatMap((message): LanguageModelV4Message[] => {
    if (message.role === 'tool') return []
    if (message.role !== 'assistant') return [message]
    const content = message.content.filter(({ type }) => type !== 'tool-call')
    return content.length ? [{ ...message, content }] : []
  })
}

function withoutSystem(prompt: LanguageModelV4Prompt): LanguageModelV4Prompt {
  const texts = prompt.flatMap((message) => (message.role === 'system' ? message.content : []))
  const rest = prompt.filter(({ role }) => role !== 'system')
  const instructions: LanguageModelV4TextPart = { type: 'text', text: texts.join('\n\n') }
  const first = rest.findIndex(({ role }) => role === 'user')
  return rest.map((message, index) =>
    index === first && message.role === 'user' ? { ...message, content: [instructions, ...message.content] } : message,
  )
}

/** Applies changes to the offered tools. */
export function changeTools(
  tools: readonly LanguageModelV4FunctionTool[],
  changes: ReadonlySet<Change>,
): LanguageModelV4FunctionTool[] {
  if (!changes.size) return [...tools]
  if (changes.has('tools')) return []
  return tools
    .filter(({ name }) => !changes.has(`tool:${name}`))
    .slice(0, numberOf('tools', changes) ?? tools.length)
    .map((tool) => {
      if (changes.has(`schema:${tool.name}`)) return { ...tool, inputSchema: { type: 'object', properties: {} } }
      return changes.has('schemas') ? { ...tool, inputSchema: plainSchema(tool.inputSchema) } : tool
    })
}

/** Applies changes to the settings of a model. */
export const changeSettings = (settings: ModelSettings, changes: ReadonlySet<Change>): ModelSettings =>
  changes.size === 0 ? settings : Object.fromEntries(Object.entries(settings).filter(([name]) => !changes.has(name)))

/** Request fields that the service sets itself. It reads only one answer (`n`). */
const RESERVED = ['model', 'messages', 'stream', 'n']

/** Returns the names in `extra` that are not merged into a body. */
export const reservedIn = (extra: Fields): string[] => RESERVED.filter((name) => name in extra)

/** Applies changes to the body that a provider package has made. */
export function changePackagedBody(body: Fields, changes: ReadonlySet<Change>): Fields {
  const names = new Set([...changes].flatMap((change) => (change.startsWith('omit:') ? change.slice(5) : [])))
  const most = numberOf('max_tokens', changes)
  const { max_tokens: limit } = body
  return {
    ...(names.size ? withoutFields(body, names) : body),
    ...(most !== null && typeof limit === 'number' && { max_tokens: Math.min(limit, most) }),
    ...(changes.has('stream') && 'stream' in body && { stream: false }),
  }
}

/** Parts of a body whose fields are not those of the request. */
const CONTENTS: ReadonlySet<string> = new Set(['messages', 'input', 'contents', 'system', 'systemInstruction'])

/** Leaves out fields of the request, of the objects in it, and of its tools. */
function withoutFields(body: Fields, names: ReadonlySet<string>): Fields {
  const omit = (value: unknown): unknown =>
    isObject(value) ? Object.fromEntries(Object.entries(value).filter(([name]) => !names.has(name))) : value
  return Object.fromEntries(
    Object.entries(omit(body) as Fields).map(([name, value]) => [
      name,
      CONTENTS.has(name) ? value : Array.isArray(value) ? value.map(omit) : omit(value),
    ]),
  )
}

/** Merges fields into the body of a request to an OpenAI-compatible server, and applies changes. */
export function changeBody(body: Fields, extra: Fields, changes: ReadonlySet<Change>): Fields {
  const changed: Record<string, unknown> = { ...body, ...extra }
  for (const name of RESERVED) changed[name] = body[name]
  if (changes.has('stream')) changed.stream = false
  if (changes.has('stream_options') || changes.has('stream')) delete changed.stream_options
  if (changes.has('max_completion_tokens')) {
    changed.max_completion_tokens = body.max_tokens
    delete changed.max_tokens
  }
  for (const name of Object.keys(extra)) if (changes.has(`extra:${name}`)) delete changed[name]
  if (changes.has('add_reasoning')) changed.messages = (body.messages as readonly Fields[]).map(withReasoning)
  return changed
}

const withReasoning = (message: Fields): Fields =>
  message.role === 'assistant' && message.tool_calls && !message.reasoning_content
    ? { ...message, reasoning_content: ' ' }
    : message
