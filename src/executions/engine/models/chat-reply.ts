import type { LanguageModelV4Usage, SharedV4ProviderMetadata } from '@ai-sdk/provider'
import { asList, asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { checkApi, reportedError } from './chat-errors.ts'
import { isNoReason, unifiedReason } from './finish-reasons.ts'
import { createInlineReasoning } from './inline-reasoning.ts'
import { ModelError, NO_END } from './model-errors.ts'
import { laterUsage, NO_USAGE, usageIn } from './reported-usage.ts'
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

/** Converts the chunks of one chat completion into parts. */
export type ChatReply = {
  /** Reads a chunk or a whole completion. */
  read(chunk: Fields, event: string | undefined, parts: Part[]): void
  /** Emits the remaining parts. `isClosed`: the server closed the connection without `[DONE]`. */
  end(isClosed: boolean, parts: Part[]): void
  /** Whether the finish reason has arrived, after which only usage may follow. */
  isSettled(): boolean
  isOver(): boolean
  /** Whether anything of the protocol has arrived. */
  isBegun(): boolean
}

/**
 * Creates the reader of one chat completion. What few answers have is made when it comes, because thousands of answers
 * may be open.
 */
export function createChatReply({ metadataKey, tools, thinkTags }: ReplyOptions): ChatReply {
  let calls: StreamedCalls | null = null
  /** Reads the beginning of the text; null after it. */
  let inline = thinkTags ? createInlineReasoning() : null
  let open: 'text' | 'reasoning' | null = null
  let hasText = false
  let reason: string | undefined
  let isRefusal = false
  /** Whether calls have arrived in deltas. */
  let hasCalls = false
  let usage: LanguageModelV4Usage | null = null
  let isOver = false
  let isBegun = false
  /** Text of messages that arrived instead of deltas. */
  let messages = ''
  /** Field of the open reasoning, and the fields that are sent back beside its text. */
  let field = ''
  let details: Details = {}
  let textExtra: Fields | null = null

  const metadata = (fields: Fields): { providerMetadata: SharedV4ProviderMetadata } => ({
    providerMetadata: { [metadataKey]: fields as SharedV4ProviderMetadata[string] },
  })

  function turnTo(kind: typeof open, parts: Part[]): void {
    if (open === kind) return
    if (open === 'text') {
      parts.push({ type: 'text-end', id: 'text', ...(textExtra && metadata({ extraContent: textExtra })) })
      textExtra = null
    }
    if (open === 'reasoning') {
      parts.push({ type: 'reasoning-end', id: 'reasoning', ...metadata({ field, ...details }) })
      details = {}
    }
    if (kind === 'text') parts.push({ type: 'text-start', id: kind })
    if (kind === 'reasoning') parts.push({ type: 'reasoning-start', id: kind, ...metadata({ field }) })
    open = kind
  }

  function emit(kind: 'text' | 'reasoning', delta: string, parts: Part[]): void {
    if (!delta) return
    if (open !== kind) turnTo(kind, parts)
    if (kind === 'text') hasText = true
    parts.push({ type: `${kind}-delta`, id: kind, delta })
  }

  function think(from: string, delta: string, parts: Part[]): void {
    if (!delta) return
    if (open === 'reasoning' && field !== from) turnTo(null, parts)
    field = from
    emit('reasoning', delta, parts)
  }

  const emitInline = (parts: Part[]) => (kind: 'text' | 'reasoning', text: string) =>
    kind === 'text' ? emit('text', text, parts) : think('content', text, parts)

  function emitText(text: string, parts: Part[]): void {
    if (!inline) emit('text', text, parts)
    else if (text) inline.read(text, emitInline(parts))
    if (inline?.isOver) inline = null
  }

  /** Some servers send a list of parts where others send text. */
  function emitContent(content: unknown, parts: Part[]): void {
    if (typeof content === 'string') emitText(content, parts)
    // Cloudflare parses the JSON of an answer.
    else if (isObject(content) && typeof content.type !== 'string' && wordsOf(content) === '')
      emitText(JSON.stringify(content), parts)
    else for (const part of isObject(content) ? [content] : asList(content)) emitPart(part, parts)
  }

  function emitPart(part: unknown, parts: Part[]): void {
    const { type, text, thinking, reasoning, summary, refusal } = asObject(part)
    if (type === 'thinking' || type === 'reasoning')
      think('content', wordsOf(thinking ?? text ?? reasoning ?? summary), parts)
    else if (type === 'refusal') emitRefusal(asText(refusal), parts)
    else if (type === 'tool_use') addCall(asObject(part), parts)
    else if (type === 'image_url') parts.push(FILE)
    else emitText(asText(part) || wordsOf(text), parts)
  }

  function emitRefusal(text: string, parts: Part[]): void {
    if (!text) return
    isRefusal = true
    emit('text', text, parts)
  }

  function emitReasoning(delta: Fields, parts: Part[]): void {
    for (const key of REASONING) {
      const text = wordsOf(delta[key])
      if (!text) continue
      think(key, text, parts)
      break
    }
    for (const key of REASONING_DETAILS) {
      const list = asList(delta[key]).map(asObject)
      if (!list.length) continue
      const text = REASONING.some((key) => wordsOf(delta[key]))
        ? ''
        : list.map((entry) => wordsOf(entry.text ?? entry.summary ?? entry.thinking)).join('')
      think(key, text, parts)
      details[key] = mergeDetails(details[key] ?? [], list)
    }
  }

  /**
   * Reads `delta`, or `message` from servers that send it. Such a server may repeat the text with the finish reason.
   */
  function readMessage(delta: Fields, isMessage: boolean, isLast: boolean, parts: Part[]): void {
    const { content } = delta
    // Fast path for nearly all chunks: checking a few more fields per token would cost as much as reading it.
    if (!isMessage && !inline && typeof content === 'string' && hasContentAlone(delta)) {
      emit('text', content, parts)
      return
    }
    if (!isMessage || !hasText || !isLast || messages) {
      const isRepeated =
        isMessage &&
        messages &&
        typeof content === 'string' &&
        content.startsWith(messages) &&
        (isLast || content.length > messages.length)
      const text = isRepeated ? content.slice(messages.length) : content
      if (isMessage && typeof text === 'string') messages += text
      if (!isRepeated) emitReasoning(delta, parts)
      if (content) emitContent(text, parts)
      emitRefusal(asText(delta.refusal), parts)
    }
    const { tool_calls: listed, function_call: legacy, extra_content: extra } = delta
    // A whole message after the pieces repeats their calls, with other ids on some servers.
    if (isMessage && isLast && hasCalls) return
    hasCalls ||= !isMessage && Boolean(listed || legacy)
    for (const _ of asList(delta.images)) parts.push(FILE)
    for (const call of isObject(listed) ? [listed] : asList(listed)) addCall(asObject(call), parts)
    if (isObject(legacy) && (legacy.name || legacy.arguments)) addCall({ function: legacy }, parts)
    if (isObject(extra)) textExtra = extra
  }

  function addCall(piece: Fields, parts: Part[]): void {
    calls ??= createStreamedCalls(tools)
    const { id, input } = calls.add(piece)
    if (input) parts.push({ type: 'tool-input-delta', id, delta: input })
  }

  function readChoice({ delta, message, text, finish_reason, native_finish_reason }: Fields, parts: Part[]): void {
    const raw = asText(finish_reason)
    const isLast = !isNoReason(raw)
    if (isObject(delta)) readMessage(delta, false, isLast, parts)
    if (isObject(message) && !(isObject(delta) && Object.keys(delta).length)) readMessage(message, true, isLast, parts)
    if (typeof text === 'string') emitText(text, parts)
    if (!isLast) return
    // OpenRouter's own reason may be "stop" after a provider failed.
    const native = asText(native_finish_reason)
    reason = unifiedReason(native) === 'error' ? native : raw
  }

  function read(chunk: Fields, event: string | undefined, parts: Part[]): void {
    const listed = asList(chunk.choices)
    const choice = asObject(listed[0])
    if (!isBegun && !Array.isArray(chunk.choices)) checkApi(chunk)
    const error = reportedError(chunk, choice, event)
    if (error !== undefined) {
      // Nothing after the finish reason can invalidate the reply.
      if (reason !== undefined) return
      isOver = true
      parts.push({ type: 'error', error })
      return
    }
    const { choices } = chunk
    isBegun ||= Array.isArray(choices)
    if (choices !== undefined && choices !== null && !isBegun)
      throw new ModelError('The model server sent data that cannot be read', 'unreadable')
    readChoice(choice, parts)
    // GitHub Copilot splits one message over several choices: its text, and its calls.
    for (let at = 1; at < listed.length; at++) {
      const more = asObject(listed[at])
      if (more.index === choice.index) readChoice(more, parts)
    }
    const reported = usageIn(chunk, choice)
    if (!reported) return
    usage = laterUsage(usage, reported)
    parts.push({ type: 'usage', usage })
  }

  function endCalls(parts: Part[]): void {
    for (const { id, name, input, extra, signature } of calls?.end() ?? []) {
      const extras = { ...(signature && { thoughtSignature: signature }), ...(extra && { extraContent: extra }) }
      parts.push({
        type: 'tool-call',
        toolCallId: id,
        toolName: name,
        input,
        ...((signature || extra) && metadata(extras)),
      })
    }
  }

  function finishOf(isClosed: boolean) {
    if (reason !== undefined) {
      const unified = unifiedReason(reason)
      return unified === 'stop' && isRefusal ? 'content-filter' : unified
    }
    if (!hasText && !calls?.size) return 'error'
    // The server signaled the end without a reason. Without that signal the answer counts as cut off.
    if (isClosed) return 'length'
    return calls?.size ? 'tool-calls' : 'stop'
  }

  return {
    read,
    end(isClosed, parts) {
      if (isOver) return
      isOver = true
      inline?.end(emitInline(parts))
      if (Object.keys(details).length && open !== 'reasoning') {
        field = Object.keys(details)[0] ?? ''
        turnTo('reasoning', parts)
      }
      turnTo(null, parts)
      endCalls(parts)
      const unified = finishOf(isClosed)
      if (unified === 'error' && reason === undefined) {
        parts.push({ type: 'error', error: new ModelError(NO_END, 'broken_off') })
      }
      parts.push({ type: 'finish', finishReason: { unified, raw: reason }, usage: usage ?? NO_USAGE })
    },
    isSettled: () => reason !== undefined,
    isOver: () => isOver,
    isBegun: () => isBegun,
  }
}

/** Reasoning fields. If a server sends several, they have the same text. */
const REASONING = ['reasoning_content', 'reasoning', 'thinking', 'reasoning_text'] as const
/** Reasoning fields that must be sent back unchanged (OpenRouter, LiteLLM). */
export const REASONING_DETAILS = ['reasoning_details', 'thinking_blocks'] as const

/** Stands for a picture of the answer, which is not read. */
const FILE: Part = { type: 'file', mediaType: 'image/*', data: { type: 'data', data: '' } }

type Details = { [Key in (typeof REASONING_DETAILS)[number]]?: readonly Fields[] }

function hasContentAlone(delta: Fields): boolean {
  for (const key in delta) if (key !== 'content' && key !== 'role') return false
  return true
}

/** Returns a text, the text of an object, or the joined texts of a list. */
function wordsOf(value: unknown): string {
  if (typeof value === 'string') return value
  if (Array.isArray(value)) return value.map(wordsOf).join('')
  return isObject(value) ? asText(value.text) || asText(value.content) : ''
}

/** Merges the texts of the same entry, which arrive in pieces. */
function mergeDetails(before: readonly Fields[], more: readonly Fields[]): readonly Fields[] {
  const merged = [...before]
  for (const entry of more) {
    const last = merged.at(-1)
    const isSame = last && last.type === entry.type && last.index === entry.index && (!entry.id || last.id === entry.id)
    if (!isSame || entry.data !== undefined) merged.push(entry)
    else merged[merged.length - 1] = joined(last, entry)
  }
  return merged
}

function joined(last: Fields, entry: Fields): Fields {
  const texts = ['text', 'summary', 'thinking'].filter((key) => typeof entry[key] === 'string')
  const known = Object.fromEntries(Object.entries(entry).filter(([, value]) => value !== null && value !== ''))
  return { ...last, ...known, ...Object.fromEntries(texts.map((key) => [key, asText(last[key]) + asText(entry[key])])) }
}
