import { createHash } from 'node:crypto'
import type {
  LanguageModelV4FilePart,
  LanguageModelV4FunctionTool,
  LanguageModelV4Message,
  LanguageModelV4Prompt,
  LanguageModelV4TextPart,
} from '@ai-sdk/provider'
import type { ModelSettings } from '../../../lib/model-settings.ts'
import { plainSchema } from '../models/tool-schemas.ts'
import { type Change, type Changes, numberOf, refusesTools, valuesOf } from './change.ts'
import { isBlocked } from './history.ts'

// Leaves the parts of a request that a provider rejects by name out of the next one (contract-2.md section 2.1).

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

/** Returns the digests of the files that changes with this name leave out. */
const refusedBy = (name: string, changes: Changes): ReadonlySet<string> =>
  new Set(valuesOf(name, changes).flatMap((digests) => digests.split(',')))

/** Applies changes to a prompt. */
export function changePrompt(prompt: LanguageModelV4Prompt, changes: Changes): LanguageModelV4Prompt {
  if (!changes.size) return prompt
  let changed = changes.has('after_block') ? afterBlock(prompt) : prompt
  const most = numberOf('latest_files', changes)
  if (most !== null) changed = withLatestFiles(changed, most)
  const large = refusedBy('large_files', changes)
  if (large.size)
    changed = changed.map((message) => withoutFiles(message, (file) => large.has(digestOf(file)), TOO_LARGE))
  const refused = refusedBy('files', changes)
  if (changes.has('files') || changes.has('documents') || refused.size) {
    const isRefused = (file: LanguageModelV4FilePart) =>
      changes.has('files') || (changes.has('documents') && isDocument(file)) || refused.has(digestOf(file))
    changed = changed.map((message) => withoutFiles(message, isRefused))
  }
  if (changes.has('reasoning') || changes.has('reasoning:here')) changed = changed.flatMap(withoutReasoning)
  if (changes.has('plain_names')) changed = changed.map(withPlainNames)
  return refusesTools(changes) || changes.has('calls:here') ? withoutCalls(changed) : changed
}

/**
 * Moves the system prompt into the first question for models without a system role. Applied last, because shortening
 * removes the oldest questions.
 */
export const changeSystem = (prompt: LanguageModelV4Prompt, changes: Changes): LanguageModelV4Prompt =>
  changes.has('system') ? withoutSystem(prompt) : prompt

/** Leaves out the turns up to the last one that a content filter has blocked. */
function afterBlock(prompt: LanguageModelV4Prompt): LanguageModelV4Prompt {
  const last = prompt.findLastIndex(isBlocked)
  const next = prompt.findIndex(({ role }, index) => index > last && role === 'user')
  return prompt.filter(({ role }, index) => role === 'system' || index >= next)
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
const TOO_LARGE = 'which was left out because the request was too large'
const LEFT_OUT = 'which was left out in favor of later files'

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

/** Returns the name of a tool with underscores for hyphens, by which {@link findTool} finds it. */
const plainName = (name: string): string => name.replaceAll('-', '_')

/** Writes the plain names of tools in the calls and results of a message. */
function withPlainNames(message: LanguageModelV4Message): LanguageModelV4Message {
  if (message.role !== 'assistant' && message.role !== 'tool') return message
  const content = message.content.map((part) =>
    'toolName' in part ? { ...part, toolName: plainName(part.toolName) } : part,
  )
  return { ...message, content } as LanguageModelV4Message
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
  changes: Changes,
): LanguageModelV4FunctionTool[] {
  if (!changes.size) return [...tools]
  if (refusesTools(changes)) return []
  const names = new Set(tools.map(({ name }) => name))
  const renamed = (name: string) => (names.has(plainName(name)) ? name : plainName(name))
  return tools
    .filter(({ name }) => !changes.has(`tool:${name}`))
    .slice(0, numberOf('tools', changes) ?? tools.length)
    .map((given) => {
      const tool = changes.has('plain_names') ? { ...given, name: renamed(given.name) } : given
      if (changes.has(`schema:${given.name}`)) return { ...tool, inputSchema: { type: 'object', properties: {} } }
      return changes.has('schemas') ? { ...tool, inputSchema: plainSchema(tool.inputSchema) } : tool
    })
}

/** Applies changes to the settings of a model. */
export const changeSettings = (settings: ModelSettings, changes: Changes): ModelSettings =>
  changes.size === 0
    ? settings
    : Object.fromEntries(Object.entries(settings).filter(([name]) => !changes.has(name as Change)))
