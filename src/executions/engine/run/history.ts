import { createHash } from 'node:crypto'
import type { LanguageModelV4Message, LanguageModelV4Prompt, SharedV4ProviderOptions } from '@ai-sdk/provider'
import { asObject, asText, type Fields } from '../../../lib/unknown.ts'
import type { TextModel } from '../models/text-model.ts'

type Of<Role extends LanguageModelV4Message['role']> = Extract<LanguageModelV4Message, { role: Role }>
type AssistantPart = Of<'assistant'>['content'][number]
type CallPart = Extract<AssistantPart, { type: 'tool-call' }>
type ResultPart = Extract<Of<'tool'>['content'][number], { type: 'tool-result' }>

/** Names, in the provider options of an assistant message, the model that wrote it. Never sent. */
const ORIGIN = 'muster'

/** Marks an assistant message with the full id of the model that wrote it: its provider fields go back there only. */
export const writtenBy = (model: string | null): { providerOptions?: SharedV4ProviderOptions } =>
  model === null ? {} : { providerOptions: { [ORIGIN]: { model } } }

/** Stands between the result of a tool and the next question, where the run ended before its answer. */
const NO_ANSWER = '[The turn ended here, without an answer]'
const NO_RESULT = 'The run ended before the tool answered'
/** Stands between results and their pictures, where a provider takes pictures of a user only. */
const PICTURES_FOLLOW = '[The pictures of these results follow]'

/**
 * Makes the prompt that every provider takes, of any sequence of turns: user turns without an answer are merged, each
 * call has its result and each result its call, an assistant turn stands between a tool and a user, blank texts are
 * gone, call ids are nine letters and digits, and tools have names that providers take. Reasoning and provider fields go
 * back in the field they came in, to the model that they came from, and nowhere else. Chat completions take no pictures
 * in a result: a user turn shows them. Made anew of the same prompt, it is the same.
 */
export function arrange(prompt: LanguageModelV4Prompt, model: Pick<TextModel, 'provider' | 'modelId'>) {
  const arranged: LanguageModelV4Prompt = []
  for (const message of prompt) add(arranged, message, model)
  complete(arranged)
  rename(arranged)
  return isCompatible(model) ? withFields(arranged, keyOf(model)) : arranged
}

const keyOf = ({ provider }: Pick<TextModel, 'provider'>) => provider.split('.')[0] ?? provider

/** Whether a model is asked by chat completions, whose provider package spreads `openaiCompatible` into the body. */
const isCompatible = ({ provider }: Pick<TextModel, 'provider'>) => provider.endsWith('.chat')

const isBlank = (part: { type: string; text?: string }) => part.type === 'text' && !part.text?.trim()

/** Adds a message behind those before, so that roles alternate. */
function add(
  to: LanguageModelV4Prompt,
  message: LanguageModelV4Message,
  model: Pick<TextModel, 'provider' | 'modelId'>,
) {
  const last = to.at(-1)
  if (message.role === 'system') return void to.push(message)
  if (message.role === 'user') {
    const content = message.content.filter((part) => !isBlank(part))
    const join = isCompatible(model) ? joined : (parts: Of<'user'>['content']) => parts
    if (!content.length) return
    if (last?.role === 'user') {
      to[to.length - 1] = { ...last, content: join([...last.content, ...content]) }
      return
    }
    if (last && openCalls(last).length) closeCalls(to, [])
    if (to.at(-1)?.role === 'tool') to.push({ role: 'assistant', content: [{ type: 'text', text: NO_ANSWER }] })
    return void to.push({ ...message, content: join(content) })
  }
  if (message.role === 'tool') {
    if (!last || !openCalls(last).length) return
    closeCalls(to, message.content)
    if (isCompatible(model)) showPictures(to)
    return
  }
  const isOwn = isWrittenBy(message, model)
  const content = message.content.flatMap((part) => own(part, keyOf(model), isOwn)).filter((part) => !isBlank(part))
  if (!content.some(({ type }) => type !== 'reasoning')) return
  // What comes before the first question belongs to turns that are left out.
  if (!last || last.role === 'system') return
  if (openCalls(last).length) closeCalls(to, [])
  const before = to.at(-1)
  if (before?.role === 'assistant') to[to.length - 1] = { ...before, content: [...before.content, ...content] }
  else to.push({ role: 'assistant', content })
}

/** Joins texts that stand beside each other: not every chat server takes a list of texts where it expects one. */
function joined(content: Of<'user'>['content']): Of<'user'>['content'] {
  const parts: Of<'user'>['content'] = []
  for (const part of content) {
    const last = parts.at(-1)
    const isText = part.type === 'text' && last?.type === 'text' && !part.providerOptions && !last.providerOptions
    if (isText) parts[parts.length - 1] = { type: 'text', text: `${last.text}\n\n${part.text}` }
    else parts.push(part)
  }
  return parts
}

/** Messages of older versions do not say who wrote them: their provider fields have to be the provider's. */
function isWrittenBy(message: Of<'assistant'>, { modelId, provider }: Pick<TextModel, 'provider' | 'modelId'>) {
  const origin = asText(message.providerOptions?.[ORIGIN]?.model)
  return !origin || origin === `${keyOf({ provider })}/${modelId}` || origin.slice(origin.indexOf('/') + 1) === modelId
}

/** A part without what belongs to another provider or model; none where nothing is left of it. */
function own(part: AssistantPart, key: string, isOwn: boolean): AssistantPart[] {
  const { providerOptions, ...plain } = part
  const mine = isOwn ? providerOptions?.[key] : undefined
  if (part.type === 'reasoning' && !mine) return []
  return [(mine ? { ...plain, providerOptions: { [key]: mine } } : plain) as AssistantPart]
}

const callsIn = (message: LanguageModelV4Message): CallPart[] =>
  message.role === 'assistant' ? message.content.flatMap((part) => (part.type === 'tool-call' ? part : [])) : []

const openCalls = callsIn

/** Adds the results of the last message's calls, in their order: an error in place of one that is missing. */
function closeCalls(to: LanguageModelV4Prompt, given: Of<'tool'>['content']): void {
  const results = given.flatMap((part) => (part.type === 'tool-result' ? part : []))
  const content = callsIn(to.at(-1)!).map(
    ({ toolCallId, toolName }): ResultPart =>
      results.find((result) => result.toolCallId === toolCallId) ?? {
        ...{ type: 'tool-result', toolCallId, toolName },
        output: { type: 'error-text', value: NO_RESULT },
      },
  )
  to.push({ role: 'tool', content: content.map(withText) })
}

/** Moves the pictures of the last message's results into a user turn behind it. */
function showPictures(to: LanguageModelV4Prompt): void {
  const last = to.at(-1)
  if (last?.role !== 'tool') return
  const pictures: Of<'user'>['content'] = []
  const content = last.content.map((part) => {
    if (part.type !== 'tool-result' || part.output.type !== 'content') return part
    const texts = part.output.value.flatMap((item) => {
      if (item.type === 'file') pictures.push(item)
      return item.type === 'text' ? item.text : []
    })
    return withText({ ...part, output: { type: 'text', value: texts.join('\n') } })
  })
  to[to.length - 1] = { ...last, content }
  if (!pictures.length) return
  to.push({ role: 'assistant', content: [{ type: 'text', text: PICTURES_FOLLOW }] })
  to.push({ role: 'user', content: [{ type: 'text', text: 'The images that the tools answered with:' }, ...pictures] })
}

/** Some providers refuse a blank result. */
function withText(result: ResultPart): ResultPart {
  const { output } = result
  if ((output.type !== 'text' && output.type !== 'error-text') || output.value.trim()) return result
  return { ...result, output: { ...output, value: '(no output)' } }
}

function complete(prompt: LanguageModelV4Prompt): void {
  const last = prompt.at(-1)
  if (last && openCalls(last).length) closeCalls(prompt, [])
}

/** What a model has called may be no name that a provider takes back; the result says so by its own name. */
const fitName = (name: string) =>
  /^[a-zA-Z_][\w-]{0,63}$/.test(name) ? name : `_${name.replace(/[^\w-]+/g, '_')}`.slice(0, 64)

const NINE = /^[a-zA-Z0-9]{9}$/
const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

/** Gives each call an id that strict servers take (Mistral), the same one in later requests, and a valid name. */
function rename(prompt: LanguageModelV4Prompt): void {
  const taken = new Set<string>()
  let names = new Map<string, string>()
  for (const [index, message] of prompt.entries()) {
    if (message.role === 'assistant') {
      names = new Map()
      // A call that the provider keeps on its side is known there by its own id.
      for (const { toolCallId, providerOptions } of callsIn(message)) {
        const isKept = providerOptions?.openai?.itemId !== undefined
        names.set(toolCallId, isKept ? toolCallId : nineOf(toolCallId, taken))
      }
      if (!names.size) continue
      const content = message.content.map((part) => renamed(part, names))
      prompt[index] = { ...message, content }
    } else if (message.role === 'tool') {
      const content = message.content.map((part) =>
        part.type === 'tool-result'
          ? { ...part, toolCallId: names.get(part.toolCallId) ?? part.toolCallId, toolName: fitName(part.toolName) }
          : part,
      )
      prompt[index] = { ...message, content }
    }
  }
}

function nineOf(id: string, taken: Set<string>): string {
  let nine = id
  for (let count = 0; !NINE.test(nine) || taken.has(nine); count++) {
    const digest = createHash('sha256').update(`${id} ${count}`).digest()
    nine = Array.from(digest.subarray(0, 9), (byte) => DIGITS[byte % DIGITS.length]).join('')
  }
  taken.add(nine)
  return nine
}

/** A call by its new id, and reasoning that names a call by its old one (OpenRouter) by the new one, too. */
function renamed(part: AssistantPart, names: ReadonlyMap<string, string>): AssistantPart {
  if (part.type === 'tool-call') {
    return { ...part, toolCallId: names.get(part.toolCallId) ?? part.toolCallId, toolName: fitName(part.toolName) }
  }
  if (part.type !== 'reasoning' || !part.providerOptions) return part
  const text = JSON.stringify(part.providerOptions, (key, value) =>
    key === 'id' && typeof value === 'string' ? (names.get(value) ?? value) : value,
  )
  return { ...part, providerOptions: JSON.parse(text) }
}

/** The fields of reasoning that go back beside its text (chat-reply.ts). */
const DETAILS = ['reasoning_details', 'thinking_blocks'] as const

/**
 * Moves reasoning and what belongs to calls into the fields of the body that they came in. Where a server shows its
 * thinking in `reasoning_content`, every assistant turn carries that field: DeepSeek and Kimi refuse one without.
 */
function withFields(prompt: LanguageModelV4Prompt, key: string): LanguageModelV4Prompt {
  const thinks = prompt.some(
    (message) =>
      message.role === 'assistant' &&
      message.content.some(
        (part) => part.type === 'reasoning' && part.providerOptions?.[key]?.field === 'reasoning_content',
      ),
  )
  return prompt.map((message) => {
    if (message.role !== 'assistant') return message
    const fields: Record<string, unknown> = thinks ? { reasoning_content: callsIn(message).length ? ' ' : '' } : {}
    const texts = new Map<string, string>()
    const content = message.content.flatMap((part): AssistantPart[] => {
      const mine = asObject(part.providerOptions?.[key])
      if (part.type === 'reasoning') {
        const field = asText(mine.field)
        // Thinking that came inside of the text is not wanted back.
        if (field && field !== 'content' && part.text) texts.set(field, (texts.get(field) ?? '') + part.text)
        for (const name of DETAILS) if (mine[name]) fields[name] = [...asRows(fields[name]), ...asRows(mine[name])]
        return []
      }
      if (part.type === 'text' && mine.extraContent) fields.extra_content = mine.extraContent
      return [part.type === 'tool-call' && mine.extraContent ? withExtra(part, key, mine) : part]
    })
    // A field of structured reasoning is no text field: its text is inside.
    for (const [field, text] of texts) if (!DETAILS.includes(field as never)) fields[field] = text
    if (!Object.keys(fields).length) return { ...message, content }
    return { ...message, content, providerOptions: { openaiCompatible: fields as SharedV4ProviderOptions[string] } }
  })
}

const asRows = (value: unknown): unknown[] => (Array.isArray(value) ? value : [])

const withExtra = (part: CallPart, key: string, { extraContent, ...rest }: Fields): CallPart => ({
  ...part,
  providerOptions: {
    [key]: rest as SharedV4ProviderOptions[string],
    openaiCompatible: { extra_content: extraContent } as SharedV4ProviderOptions[string],
  },
})
