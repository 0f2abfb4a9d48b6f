import type { LanguageModelV4Message, LanguageModelV4Prompt, SharedV4ProviderOptions } from '@ai-sdk/provider'
import { asText } from '../../../lib/unknown.ts'
import { isCompatible, isGuest } from '../models/call-settings.ts'
import type { TextModel } from '../models/text-model.ts'
import { callsIn, renameCalls } from './call-ids.ts'
import { withFields } from './message-fields.ts'

type Of<Role extends LanguageModelV4Message['role']> = Extract<LanguageModelV4Message, { role: Role }>
type AssistantPart = Of<'assistant'>['content'][number]
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

/** Models that read the name of a tool from the id of its call, and stop calling tools after ids in another form. */
const KIMI_K2 = /kimi[-_ ]?k2/i

/** Models that think between their calls, and need their thinking back where it was: in the text. */
const MINIMAX = /minimax[-_ ]?m\d/i

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
  const isOfChat = isCompatible(model.provider)
  renameCalls(arranged, isOfChat && KIMI_K2.test(model.modelId))
  return isOfChat ? withFields(arranged, keyOf(model), MINIMAX.test(model.modelId)) : arranged
}

const keyOf = ({ provider }: Pick<TextModel, 'provider'>) => provider.split('.')[0] ?? provider

const isBlank = (part: { type: string; text?: string }) => part.type === 'text' && !part.text?.trim()

/** Appends a message so that roles alternate. */
function add(
  to: LanguageModelV4Prompt,
  message: LanguageModelV4Message,
  model: Pick<TextModel, 'provider' | 'modelId'>,
  picturesApart: boolean,
): void {
  switch (message.role) {
    case 'system':
      to.push(message)
      break
    case 'user':
      addQuestion(to, message, isCompatible(model.provider) ? joined : (content) => content)
      break
    case 'tool':
      addResults(to, message, picturesApart)
      break
    case 'assistant':
      addAnswer(to, message, model)
  }
}

type Content = Of<'user'>['content']

function addQuestion(to: LanguageModelV4Prompt, message: Of<'user'>, join: (content: Content) => Content): void {
  const content = message.content.filter((part) => !isBlank(part))
  if (!content.length) return
  const last = to.at(-1)
  if (last?.role === 'user') {
    to[to.length - 1] = { ...last, content: join([...last.content, ...content]) }
    return
  }
  if (last && callsIn(last).length) closeCalls(to, [])
  if (to.at(-1)?.role === 'tool') to.push({ role: 'assistant', content: [{ type: 'text', text: NO_ANSWER }] })
  to.push({ role: 'user', content: join(content) })
}

function addResults(to: LanguageModelV4Prompt, message: Of<'tool'>, picturesApart: boolean): void {
  const last = to.at(-1)
  if (!last || !callsIn(last).length) return
  closeCalls(to, message.content)
  if (picturesApart) showPictures(to)
}

function addAnswer(
  to: LanguageModelV4Prompt,
  message: Of<'assistant'>,
  model: Pick<TextModel, 'provider' | 'modelId'>,
): void {
  const isOwn = isWrittenBy(message, model)
  const content = message.content.flatMap((part) => own(part, model, isOwn)).filter((part) => !isBlank(part))
  if (!content.some(({ type }) => type !== 'reasoning')) return
  const last = to.at(-1)
  // Messages before the first question belong to turns that were left out.
  if (!last || last.role === 'system') return
  if (callsIn(last).length) closeCalls(to, [])
  const before = to.at(-1)
  if (before?.role === 'assistant') to[to.length - 1] = { ...before, content: [...before.content, ...content] }
  else to.push({ role: 'assistant', content })
}

/** Joins adjacent texts, because some chat servers reject a list of texts. */
function joined(content: Content): Content {
  const parts: Content = []
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

/**
 * Returns a part without the fields of other providers or models; none if it is empty. Guests of Anthropic's API may
 * not sign their thinking, but expect it back between their calls.
 */
function own(part: AssistantPart, model: Pick<TextModel, 'provider' | 'modelId'>, isOwn: boolean): AssistantPart[] {
  const { providerOptions, ...plain } = part
  const key = keyOf(model)
  const isUnsigned = part.type === 'reasoning' && part.text !== '' && !providerOptions && isGuest(model)
  const mine = isOwn ? (providerOptions?.[key] ?? (isUnsigned ? { signature: '' } : undefined)) : undefined
  if (part.type === 'reasoning' && !mine) return []
  return [(mine ? { ...plain, providerOptions: { [key]: mine } } : plain) as AssistantPart]
}

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
  if (last && callsIn(last).length) closeCalls(prompt, [])
}
