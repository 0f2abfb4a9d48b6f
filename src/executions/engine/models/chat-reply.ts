import type { LanguageModelV4Usage, SharedV4ProviderMetadata } from '@ai-sdk/provider'
import { parseJson } from '../../../lib/json.ts'
import { asEntries, asList, asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { isNothing } from './call-inputs.ts'
import { unifiedReason } from './finish-reasons.ts'
import { createInlineReasoning, type InlineReasoning } from './inline-reasoning.ts'
import { ModelError, NO_END } from './model-errors.ts'
import { checkApi, unwrapped } from './other-apis.ts'
import {
  CONTENT_PARTS,
  type Details,
  mergeDetails,
  OPAQUE,
  REASONING,
  REASONING_DETAILS,
  wordsOf,
} from './reasoning-fields.ts'
import { reportedError } from './reported-errors.ts'
import { NO_USAGE, usageIn } from './reported-usage.ts'
import { createStreamedCalls, type StreamedCalls } from './streamed-calls.ts'
import type { Part } from './text-model.ts'

export type ReplyOptions = {
  /** Key in `providerMetadata` for fields that this server expects back with its reasoning and calls. */
  metadataKey: string
  /** The names of the offered tools. */
  tools: ReadonlySet<string>
  /** Whether `<think>…</think>` at the start of an answer is reasoning. */
  thinkTags: boolean
}

/** State of the reading of one chat completion. Parts that few answers have are made when they come. */
export type ChatReply = Pick<ReplyOptions, 'metadataKey' | 'tools'> & {
  calls: StreamedCalls | null
  /** Reads the beginning of the text; null after it. */
  inline: InlineReasoning | null
  open: Kind | null
  hasText: boolean
  reason: string | undefined
  isRefusal: boolean
  /** Whether calls have arrived in deltas. */
  hasCalls: boolean
  usage: LanguageModelV4Usage | null
  isOver: boolean
  /** Whether anything of the protocol has arrived. */
  isBegun: boolean
  /** Text of messages that arrived instead of deltas. */
  messages: string
  /** Field of the open reasoning, and the fields that are sent back beside its text. */
  field: string
  details: Details
  textExtra: Fields | null
}

type Kind = 'text' | 'reasoning'

/**
 * Creates the state of one chat completion. A record instead of closures, because each of thousands of open answers
 * would have twenty.
 */
export const createChatReply = ({ metadataKey, tools, thinkTags }: ReplyOptions): ChatReply => ({
  metadataKey,
  tools,
  calls: null,
  inline: thinkTags ? createInlineReasoning() : null,
  open: null,
  hasText: false,
  reason: undefined,
  isRefusal: false,
  hasCalls: false,
  usage: null,
  isOver: false,
  isBegun: false,
  messages: '',
  field: '',
  details: {},
  textExtra: null,
})

/** Returns whether the finish reason has arrived, after which only usage may follow. */
export const isSettled = ({ reason }: ChatReply): boolean => reason !== undefined

const metadata = ({ metadataKey }: ChatReply, fields: Fields): { providerMetadata: SharedV4ProviderMetadata } => ({
  providerMetadata: { [metadataKey]: fields as SharedV4ProviderMetadata[string] },
})

function turnTo(reply: ChatReply, kind: Kind | null, parts: Part[]): void {
  if (reply.open === kind) return
  if (reply.open === 'text') {
    parts.push({
      type: 'text-end',
      id: 'text',
      ...(reply.textExtra && metadata(reply, { extraContent: reply.textExtra })),
    })
    reply.textExtra = null
  }
  if (reply.open === 'reasoning') {
    parts.push({ type: 'reasoning-end', id: 'reasoning', ...metadata(reply, { field: reply.field, ...reply.details }) })
    reply.details = {}
  }
  if (kind === 'text') parts.push({ type: 'text-start', id: kind })
  if (kind === 'reasoning')
    parts.push({ type: 'reasoning-start', id: kind, ...metadata(reply, { field: reply.field }) })
  reply.open = kind
}

function emit(reply: ChatReply, kind: Kind, delta: string, parts: Part[]): void {
  if (!delta) return
  if (reply.open !== kind) turnTo(reply, kind, parts)
  if (kind === 'text') reply.hasText = true
  parts.push({ type: `${kind}-delta`, id: kind, delta })
}

function think(reply: ChatReply, from: string, delta: string, parts: Part[]): void {
  if (!delta) return
  if (reply.open === 'reasoning' && reply.field !== from) turnTo(reply, null, parts)
  reply.field = from
  emit(reply, 'reasoning', delta, parts)
}

const emitInline = (reply: ChatReply, parts: Part[]) => (kind: Kind, text: string) =>
  kind === 'text' ? emit(reply, 'text', text, parts) : think(reply, 'content', text, parts)

function emitText(reply: ChatReply, text: string, parts: Part[]): void {
  if (!reply.inline) emit(reply, 'text', text, parts)
  else if (text) reply.inline.read(text, emitInline(reply, parts))
  if (reply.inline?.isOver) reply.inline = null
}

/** Some servers send a list of parts where others send text. */
function emitContent(reply: ChatReply, content: unknown, parts: Part[]): void {
  if (typeof content === 'string' || typeof content === 'number') emitText(reply, String(content), parts)
  // Cloudflare parses the JSON of an answer.
  else if (isObject(content) && typeof content.type !== 'string' && !wordsOf(content.text))
    emitText(reply, JSON.stringify(content), parts)
  else for (const part of isObject(content) ? [content] : asList(content)) emitPart(reply, part, parts)
}

function emitPart(reply: ChatReply, part: unknown, parts: Part[]): void {
  const { type, text, thinking, reasoning, summary, refusal } = asObject(part)
  if (type === 'thinking' || type === 'reasoning') {
    think(reply, 'content', wordsOf(thinking ?? text ?? reasoning ?? summary), parts)
    reply.details[CONTENT_PARTS] = mergeDetails(reply.details[CONTENT_PARTS] ?? [], [asObject(part)])
  } else if (type === 'refusal') emitRefusal(reply, asText(refusal), parts)
  else if (type === 'tool_use') addCall(reply, asObject(part), parts)
  else if (type === 'image_url') parts.push(FILE)
  else emitText(reply, asText(part) || wordsOf(text) || asText(asObject(text).value), parts)
}

function emitRefusal(reply: ChatReply, text: string, parts: Part[]): void {
  if (!text) return
  reply.isRefusal = true
  emit(reply, 'text', text, parts)
}

function emitReasoning(reply: ChatReply, delta: Fields, parts: Part[]): void {
  for (const key of REASONING) {
    const text = wordsOf(delta[key])
    if (!text) continue
    think(reply, key, text, parts)
    break
  }
  for (const key of REASONING_DETAILS) {
    const list = asList(delta[key]).map(asObject)
    if (!list.length) continue
    const text = REASONING.some((key) => wordsOf(delta[key]))
      ? ''
      : list.map((entry) => wordsOf(entry.text ?? entry.summary ?? entry.thinking)).join('')
    think(reply, key, text, parts)
    reply.details[key] = mergeDetails(reply.details[key] ?? [], list)
  }
  const opaque = asText(delta[OPAQUE])
  if (opaque) reply.details[OPAQUE] = opaque
}

function readDelta(reply: ChatReply, delta: Fields, parts: Part[]): void {
  const { content } = delta
  // Fast path for nearly all chunks: checking a few more fields per token would cost as much as reading it.
  if (!reply.inline && typeof content === 'string' && hasContentAlone(delta)) {
    emit(reply, 'text', content, parts)
    return
  }
  emitReasoning(reply, delta, parts)
  emitWords(reply, delta, content, parts)
  reply.hasCalls ||= Boolean(delta.tool_calls || delta.function_call)
  emitOthers(reply, delta, parts)
}

/**
 * Reads a message of a server that sends messages instead of deltas. Each has one piece of the text, or all text so
 * far. A whole message after deltas repeats their text and calls.
 */
function readMessage(reply: ChatReply, message: Fields, isLast: boolean, parts: Part[]): void {
  const { content } = message
  const followsDeltas = isLast && !reply.messages
  if (!followsDeltas || !(reply.hasText || reply.field === 'content')) {
    const before = reply.messages
    const isLonger = isLast || (typeof content === 'string' && content.length > before.length)
    const isRepeated = before !== '' && typeof content === 'string' && content.startsWith(before) && isLonger
    const text = isRepeated ? content.slice(before.length) : content
    if (typeof text === 'string') reply.messages += text
    if (!isRepeated && !(followsDeltas && reply.field)) emitReasoning(reply, message, parts)
    emitWords(reply, message, text, parts)
  }
  // The calls of a repetition have other ids on some servers.
  if (!isLast || !reply.hasCalls) emitOthers(reply, message, parts)
}

function emitWords(reply: ChatReply, { extra_content: extra, refusal }: Fields, content: unknown, parts: Part[]): void {
  // Gemini marks its thoughts, which are in tags, too.
  const isThought = reply.inline !== null && asObject(asObject(extra).google).thought === true
  if (isThought && typeof content === 'string') think(reply, 'content', content.replace(THOUGHT_TAGS, ''), parts)
  else if (content || content === 0) emitContent(reply, content, parts)
  emitRefusal(reply, asText(refusal), parts)
}

/** Reads the pictures, the calls and the fields that are sent back with the text. */
function emitOthers(
  reply: ChatReply,
  { images, tool_calls: listed, function_call: legacy, extra_content: extra }: Fields,
  parts: Part[],
): void {
  for (const _ of asList(images)) parts.push(FILE)
  const made = typeof listed === 'string' ? parseJson(listed) : listed
  for (const call of asEntries(made)) addCall(reply, asObject(call), parts)
  if (isObject(legacy) && (legacy.name || legacy.arguments)) addCall(reply, { function: legacy }, parts)
  if (isObject(extra) && asObject(extra.google).thought !== true) reply.textExtra = extra
}

/** Tags at the beginning and the end of Gemini's thoughts. */
const THOUGHT_TAGS = /^<thought>|<\/thought>$/g

function addCall(reply: ChatReply, piece: Fields, parts: Part[]): void {
  reply.calls ??= createStreamedCalls(reply.tools)
  const { id, input } = reply.calls.add(piece)
  if (input) parts.push({ type: 'tool-input-delta', id, delta: input })
}

function readChoice(
  reply: ChatReply,
  { delta, message, text, finish_reason, native_finish_reason }: Fields,
  parts: Part[],
): void {
  const raw = asText(finish_reason)
  const isLast = !isNothing(raw)
  const hasDelta = isObject(delta) && Object.keys(delta).length > 0
  if (hasDelta) readDelta(reply, delta, parts)
  // Perplexity sends an empty delta beside the message of a whole answer.
  if (isObject(message) && (isLast || !hasDelta)) readMessage(reply, message, isLast, parts)
  // Together repeats the text of a delta beside it.
  else if (typeof text === 'string' && !hasDelta) emitText(reply, text, parts)
  if (!isLast) return
  // OpenRouter's own reason may be "stop" after a provider failed.
  const native = asText(native_finish_reason)
  reply.reason = native && unifiedReason(native) === 'error' ? native : raw
}

/** Reads a chunk or a whole completion. */
export function readChunk(reply: ChatReply, given: Fields, event: string | undefined, parts: Part[]): void {
  const chunk = given.choices === undefined ? unwrapped(given) : given
  const listed = asEntries(chunk.choices)
  const choice = asObject(listed[0])
  if (!reply.isBegun && !Array.isArray(chunk.choices)) checkApi(chunk)
  const error = reportedError(chunk, choice, event)
  if (error !== undefined) {
    // Nothing after the finish reason can invalidate the reply.
    if (reply.reason !== undefined) return
    reply.isOver = true
    parts.push({ type: 'error', error })
    return
  }
  const { choices } = chunk
  reply.isBegun ||= Array.isArray(choices) || listed.length > 0
  if (choices !== undefined && choices !== null && !reply.isBegun)
    throw new ModelError('The model server sent data that cannot be read', 'unreadable')
  readChoice(reply, choice, parts)
  // GitHub Copilot splits one message over several choices: its text, and its calls.
  for (let at = 1; at < listed.length; at++) {
    const more = asObject(listed[at])
    if (more.index === choice.index) readChoice(reply, more, parts)
  }
  const usage = usageIn(chunk, choice, reply.usage)
  if (!usage) return
  reply.usage = usage
  parts.push({ type: 'usage', usage })
}

function endCalls(reply: ChatReply, parts: Part[]): void {
  for (const { id, name, input, extra, signature, specific } of reply.calls?.end() ?? []) {
    const extras = {
      ...(signature && { thoughtSignature: signature }),
      ...(extra && { extraContent: extra }),
      ...(specific && { specificFields: { thought_signature: specific } }),
    }
    parts.push({
      type: 'tool-call',
      toolCallId: id,
      toolName: name,
      input,
      ...((signature || extra) && metadata(reply, extras)),
    })
  }
}

function finishOf(reply: ChatReply, isClosed: boolean) {
  if (reply.reason !== undefined) {
    const unified = unifiedReason(reply.reason)
    return unified === 'stop' && reply.isRefusal ? 'content-filter' : unified
  }
  if (!reply.hasText && !reply.calls?.size) return 'error'
  // The server signaled the end without a reason. Without that signal the answer counts as cut off.
  if (isClosed) return 'length'
  return reply.calls?.size ? 'tool-calls' : 'stop'
}

/** Emits the remaining parts. `isClosed`: the server closed the connection without `[DONE]`. */
export function endReply(reply: ChatReply, isClosed: boolean, parts: Part[]): void {
  if (reply.isOver) return
  reply.isOver = true
  reply.inline?.end(emitInline(reply, parts))
  if (Object.keys(reply.details).length && reply.open !== 'reasoning') {
    reply.field = Object.keys(reply.details)[0] ?? ''
    turnTo(reply, 'reasoning', parts)
  }
  turnTo(reply, null, parts)
  endCalls(reply, parts)
  const unified = finishOf(reply, isClosed)
  if (unified === 'error' && reply.reason === undefined) {
    parts.push({ type: 'error', error: new ModelError(NO_END, 'broken_off') })
  }
  parts.push({ type: 'finish', finishReason: { unified, raw: reply.reason }, usage: reply.usage ?? NO_USAGE })
}

/** Stands for a picture of the answer, which is not read. */
const FILE: Part = { type: 'file', mediaType: 'image/*', data: { type: 'data', data: '' } }

function hasContentAlone(delta: Fields): boolean {
  for (const key in delta) if (key !== 'content' && key !== 'role') return false
  return true
}
