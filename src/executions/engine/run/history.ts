import { createHash } from 'node:crypto'
import type { LanguageModelV4Message, LanguageModelV4Prompt, SharedV4ProviderOptions } from '@ai-sdk/provider'
import { BASE62 } from '../../../lib/id.ts'
import { asObject, asText, type Fields } from '../../../lib/unknown.ts'
import { isCompatible } from '../models/call-settings.ts'
import { CONTENT_PARTS, OPAQUE, REASONING_DETAILS } from '../models/reasoning-fields.ts'
import type { TextModel } from '../models/text-model.ts'

type Of<Role extends LanguageModelV4Message['role']> = Extract<LanguageModelV4Message, { role: Role }>
type AssistantPart = Of<'assistant'>['content'][number]
type CallPart = Extract<AssistantPart, { type: 'tool-call' }>
type ResultPart = Extract<Of<'tool'>['content'][number], { type: 'tool-result' }>

/** Key of our own facts in the provider options of a message, such as the model that wrote it. Never sent. */
const ORIGIN = 'muster'

/** Marks an assistant message with the full id of the model that wrote it: its provider fields go back there only. */
export const writtenBy = (model: string | null): { providerOptions?: SharedV4ProviderOptions } =>
  model === null ? {} : { providerOptions: { [ORIGIN]: { model } } }

const SUMMARY_FOLLOWS = '[Summary of the earlier conversation, whose messages are left out here]'

/** Returns the message that stands for the turns that a summary covers. */
export const summaryMessage = (summary: string): LanguageModelV4Message => ({
  role: 'user',
  content: [{ type: 'text', text: `${SUMMARY_FOLLOWS}\n\n${summary}` }],
  providerOptions: { [ORIGIN]: { isSummary: true } },
})

/** Returns whether a message is one of {@link summaryMessage}. */
export const isSummary = ({ providerOptions }: LanguageModelV4Message): boolean =>
  providerOptions?.[ORIGIN]?.isSummary === true

/** Placed between a question, or a tool result, and the next question if the run ended before its answer. */
export const NO_ANSWER = '[The turn ended here, without an answer]'
/** Stands for contents that the content filter of a provider has blocked. */
export const BLOCKED = '[Left out: the content filter of the provider blocked it]'

/** Marks the message that stands for a question whose run was blocked. */
export const AS_BLOCKED: { providerOptions: SharedV4ProviderOptions } = {
  providerOptions: { [ORIGIN]: { isBlocked: true } },
}

/** Returns whether a message is marked with {@link AS_BLOCKED}. */
export const isBlocked = ({ providerOptions }: LanguageModelV4Message): boolean =>
  providerOptions?.[ORIGIN]?.isBlocked === true

const NO_RESULT = 'The run ended before the tool answered'
/** Placed between tool results and their pictures for providers that accept pictures from a user only. */
const PICTURES_FOLLOW = '[The pictures of these results follow]'

/**
 * Arranges any sequence of turns into a prompt that every provider accepts:
 * - adjacent user turns are merged, and blank texts are removed,
 * - calls and results are paired, and an assistant turn separates a tool from a user,
 * - call ids have nine letters and digits, or the form of Kimi K2, and tool names are valid.
 *
 * Reasoning and provider fields are sent only to the model that produced them, in their original fields. Chat
 * completions accept no pictures in a result, so a user turn carries them (`picturesApart`). The result is
 * deterministic.
 */
export function arrange(
  prompt: LanguageModelV4Prompt,
  model: Pick<TextModel, 'provider' | 'modelId'>,
  picturesApart = isCompatible(model.provider),
) {
  const arranged: LanguageModelV4Prompt = []
  for (const message of prompt) add(arranged, message, model, picturesApart)
  complete(arranged)
  rename(arranged, isCompatible(model.provider) && KIMI_K2.test(model.modelId))
  return isCompatible(model.provider) ? withFields(arranged, keyOf(model), MINIMAX.test(model.modelId)) : arranged
}

const keyOf = ({ provider }: Pick<TextModel, 'provider'>) => provider.split('.')[0] ?? provider

const isBlank = (part: { type: string; text?: string }) => part.type === 'text' && !part.text?.trim()

/** Appends a message so that roles alternate. */
function add(
  to: LanguageModelV4Prompt,
  message: LanguageModelV4Message,
  model: Pick<TextModel, 'provider' | 'modelId'>,
  picturesApart: boolean,
) {
  const last = to.at(-1)
  if (message.role === 'system') return void to.push(message)
  if (message.role === 'user') {
    const content = message.content.filter((part) => !isBlank(part))
    const join = isCompatible(model.provider) ? joined : (parts: Of<'user'>['content']) => parts
    if (!content.length) return
    if (last?.role === 'user') {
      to[to.length - 1] = { ...last, content: join([...last.content, ...content]) }
      return
    }
    if (last && openCalls(last).length) closeCalls(to, [])
    if (to.at(-1)?.role === 'tool') to.push({ role: 'assistant', content: [{ type: 'text', text: NO_ANSWER }] })
    return void to.push({ role: 'user', content: join(content) })
  }
  if (message.role === 'tool') {
    if (!last || !openCalls(last).length) return
    closeCalls(to, message.content)
    if (picturesApart) showPictures(to)
    return
  }
  const isOwn = isWrittenBy(message, model)
  const content = message.content.flatMap((part) => own(part, keyOf(model), isOwn)).filter((part) => !isBlank(part))
  if (!content.some(({ type }) => type !== 'reasoning')) return
  // Messages before the first question belong to turns that were left out.
  if (!last || last.role === 'system') return
  if (openCalls(last).length) closeCalls(to, [])
  const before = to.at(-1)
  if (before?.role === 'assistant') to[to.length - 1] = { ...before, content: [...before.content, ...content] }
  else to.push({ role: 'assistant', content })
}

/** Joins adjacent texts, because some chat servers reject a list of texts. */
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

/** Messages of older versions do not name their model, so their provider fields must match the provider. */
function isWrittenBy(message: Of<'assistant'>, { modelId, provider }: Pick<TextModel, 'provider' | 'modelId'>) {
  const origin = asText(message.providerOptions?.[ORIGIN]?.model)
  return !origin || origin === `${keyOf({ provider })}/${modelId}` || origin.slice(origin.indexOf('/') + 1) === modelId
}

/** Returns a part without the fields of other providers or models; none if it is empty. */
function own(part: AssistantPart, key: string, isOwn: boolean): AssistantPart[] {
  const { providerOptions, ...plain } = part
  const mine = isOwn ? providerOptions?.[key] : undefined
  if (part.type === 'reasoning' && !mine) return []
  return [(mine ? { ...plain, providerOptions: { [key]: mine } } : plain) as AssistantPart]
}

const callsIn = (message: LanguageModelV4Message): CallPart[] =>
  message.role === 'assistant' ? message.content.flatMap((part) => (part.type === 'tool-call' ? part : [])) : []

const openCalls = callsIn

/** Adds the results of the last message's calls in order, with an error for each missing one. */
function closeCalls(to: LanguageModelV4Prompt, given: Of<'tool'>['content']): void {
  const results = given.flatMap((part) => (part.type === 'tool-result' ? part : []))
  const content = callsIn(to.at(-1)!).map(
    ({ toolCallId, toolName }): ResultPart =>
      results.find((result) => result.toolCallId === toolCallId) ?? {
        type: 'tool-result',
        toolCallId,
        toolName,
        output: { type: 'error-text', value: NO_RESULT },
      },
  )
  to.push({ role: 'tool', content: content.map(withText) })
}

/** Moves the pictures of the last message's results into a user turn after it. */
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
  to.push({ role: 'user', content: [{ type: 'text', text: 'The images returned by the tools:' }, ...pictures] })
}

/** Fills a blank result, which some providers reject. */
function withText(result: ResultPart): ResultPart {
  const { output } = result
  if ((output.type !== 'text' && output.type !== 'error-text') || output.value.trim()) return result
  return { ...result, output: { ...output, value: '(no output)' } }
}

function complete(prompt: LanguageModelV4Prompt): void {
  const last = prompt.at(-1)
  if (last && openCalls(last).length) closeCalls(prompt, [])
}

/** Returns a called name as providers accept it in a later request. The result states the real name. */
const fitName = (name: string) =>
  /^[a-zA-Z_][\w-]{0,63}$/.test(name) ? name : `_${name.replace(/[^\w-]+/g, '_')}`.slice(0, 64)

const NINE = /^[a-zA-Z0-9]{9}$/

/** Models that read the name of a tool from the id of its call, and stop calling tools after ids in another form. */
const KIMI_K2 = /kimi[-_ ]?k2/i

/**
 * Gives each call an id that strict servers accept (Mistral), stable across requests, and a valid name. `isKimi`: the
 * ids are those of Kimi K2, such as `functions.search:0`, numbered over the whole prompt.
 */
function rename(prompt: LanguageModelV4Prompt, isKimi: boolean): void {
  const taken = new Set<string>()
  let names = new Map<string, string>()
  for (const [index, message] of prompt.entries()) {
    if (message.role === 'assistant') {
      names = new Map()
      for (const { toolCallId, toolName, providerOptions } of callsIn(message)) {
        if (isKimi) {
          names.set(toolCallId, take(`functions.${fitName(toolName)}:${taken.size}`, taken))
          continue
        }
        // A call stored by the provider is known there by its own id, which some servers use for several calls.
        const isKept = providerOptions?.openai?.itemId !== undefined && !taken.has(toolCallId)
        names.set(toolCallId, isKept ? take(toolCallId, taken) : nineOf(toolCallId, taken))
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
    nine = Array.from(digest.subarray(0, 9), (byte) => BASE62[byte % BASE62.length]).join('')
  }
  return take(nine, taken)
}

function take(id: string, taken: Set<string>): string {
  taken.add(id)
  return id
}

/** Returns a call with its new id, and reasoning that refers to calls (OpenRouter) with their new ids. */
function renamed(part: AssistantPart, names: ReadonlyMap<string, string>): AssistantPart {
  if (part.type === 'tool-call') {
    return { ...part, toolCallId: names.get(part.toolCallId) ?? part.toolCallId, toolName: fitName(part.toolName) }
  }
  return part.type === 'reasoning' ? referringTo(names, part) : part
}

/** Returns reasoning that refers to calls by other ids. */
export function referringTo<Part extends { providerOptions?: SharedV4ProviderOptions }>(
  names: ReadonlyMap<string, string>,
  part: Part,
): Part {
  if (!part.providerOptions) return part
  const text = JSON.stringify(part.providerOptions, (key, value) =>
    key === 'id' && typeof value === 'string' ? (names.get(value) ?? value) : value,
  )
  return { ...part, providerOptions: JSON.parse(text) }
}

/** Models that think between their calls, and need their thinking back where it was: in the text. */
const MINIMAX = /minimax[-_ ]?m\d/i

/**
 * Moves reasoning and call metadata into the body fields they came from. If a server uses `reasoning_content`, every
 * assistant turn gets that field, because DeepSeek and Kimi reject turns without it. Reasoning that came as parts of the
 * content stands between its texts again. `isInline`: reasoning of the current turn that was part of the text becomes
 * part of it again.
 */
function withFields(prompt: LanguageModelV4Prompt, key: string, isInline: boolean): LanguageModelV4Prompt {
  const question = prompt.findLastIndex(({ role }) => role === 'user')
  const thinks = prompt.some(
    (message) =>
      message.role === 'assistant' &&
      message.content.some(
        (part) => part.type === 'reasoning' && part.providerOptions?.[key]?.field === 'reasoning_content',
      ),
  )
  return prompt.map((message, index) => {
    if (message.role !== 'assistant') return message
    const fields: Record<string, unknown> = thinks ? { reasoning_content: callsIn(message).length ? ' ' : '' } : {}
    const texts = new Map<string, string>()
    const contents: unknown[] = []
    let hasContents = false
    const content = message.content.flatMap((part): AssistantPart[] => {
      const mine = asObject(part.providerOptions?.[key])
      if (part.type === 'reasoning') {
        const field = asText(mine.field)
        const own = asRows(mine[CONTENT_PARTS])
        contents.push(...own)
        hasContents ||= own.length > 0
        if (own.length) return []
        if (field === 'content' && isInline && index > question)
          return [{ type: 'text', text: `<think>${part.text}</think>\n\n` }]
        // Other reasoning that was part of the text is not sent back.
        if (field && field !== 'content' && part.text) texts.set(field, (texts.get(field) ?? '') + part.text)
        if (mine[OPAQUE]) fields[OPAQUE] = mine[OPAQUE]
        for (const name of REASONING_DETAILS)
          if (mine[name]) fields[name] = [...asRows(fields[name]), ...asRows(mine[name])]
        return []
      }
      if (part.type === 'text') contents.push({ type: 'text', text: part.text })
      if (part.type === 'text' && mine.extraContent) fields.extra_content = mine.extraContent
      return [part.type === 'tool-call' && mine.extraContent ? withExtra(part, key, mine) : part]
    })
    // A field of structured reasoning contains its text.
    for (const [field, text] of texts) if (!REASONING_DETAILS.includes(field as never)) fields[field] = text
    if (hasContents) fields.content = contents
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
