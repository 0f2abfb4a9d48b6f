import { createHash } from 'node:crypto'
import type {
  LanguageModelV4FilePart,
  LanguageModelV4FunctionTool,
  LanguageModelV4Message,
  LanguageModelV4Prompt,
  LanguageModelV4TextPart,
} from '@ai-sdk/provider'
import type { ModelSettings } from '../../../lib/model-settings.ts'
import { asList, asObject, type Fields, isObject } from '../../../lib/unknown.ts'
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
 *   the plainest form, and `older_parameters` in Google's field of before. `schema:<tool>`: omit the tool's input schema. `tool:<tool>`: omit the tool.
 */
export type Change = string

/** Returns whether a prompt has parts of these types, from a message on. */
export const hasParts = (prompt: LanguageModelV4Prompt, types: readonly string[], from = 0): boolean =>
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

/** Returns whether a field of a package's request comes from options that the caller gave, which have similar names. */
export function isOption(field: string, { providerOptions = {} }: ModelSettings): boolean {
  const plain = (text: string) => text.toLowerCase().replaceAll('_', '')
  return plain(JSON.stringify(providerOptions)).includes(plain(field))
}

/** Returns whether the answer's form is asked for in the prompt instead of a field of the request. */
export const refusesOutput = (changes: ReadonlySet<Change>): boolean =>
  changes.has('output') || changes.has('output:schema')

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

/** Returns the files of a message, also those of tool results. */
export const filesIn = ({ role, content }: LanguageModelV4Message): LanguageModelV4FilePart[] => {
  if (role === 'user') return content.flatMap((part) => (part.type === 'file' ? part : []))
  if (role !== 'tool') return []
  return content.flatMap((part) =>
    part.type === 'tool-result' && part.output.type === 'content'
      ? part.output.value.flatMap((item) => (item.type === 'file' ? (item as LanguageModelV4FilePart) : []))
      : [],
  )
}

/** Returns the digests of all files, which identify them in changes. */
export const digestsIn = (prompt: LanguageModelV4Prompt): string[] => [
  ...new Set(prompt.flatMap(filesIn).map(digestOf)),
]

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
    ...(changes.has('older_parameters') && { tools: asList(body.tools).map(withOlderParameters) }),
  }
}

/** Describes the inputs of Google's functions in the field `parameters`, which has fewer keywords. */
function withOlderParameters(tool: unknown): unknown {
  const { functionDeclarations, ...rest } = asObject(tool)
  if (!Array.isArray(functionDeclarations)) return tool
  const declared = functionDeclarations.map(({ parametersJsonSchema, ...declaration }) => {
    const parameters = withoutEmptyProperties(asObject(plainSchema(parametersJsonSchema)))
    return { ...declaration, ...(parameters.properties !== undefined && { parameters }) }
  })
  return { ...rest, functionDeclarations: declared }
}

/** Leaves out lists of properties that are empty, which the field `parameters` does not accept. */
function withoutEmptyProperties({ properties, items, ...node }: Fields): Fields {
  const kept = Object.entries(asObject(properties)).map(([name, one]) => [name, withoutEmptyProperties(asObject(one))])
  return {
    ...node,
    ...(kept.length && { properties: Object.fromEntries(kept) }),
    ...(items !== undefined && { items: withoutEmptyProperties(asObject(items)) }),
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
