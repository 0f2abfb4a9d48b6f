import type {
  LanguageModelV4FinishReason,
  LanguageModelV4ToolCall,
  LanguageModelV4Usage,
  SharedV4ProviderMetadata,
} from '@ai-sdk/provider'
import { appendFlat } from '../../../lib/text.ts'
import type { StopReason } from '../../../wire.ts'
import type { Delta } from '../events/events.ts'
import type { FenceFilter } from '../models/code-fence.ts'
import { isLeaked, lengthBeforeEnd } from '../models/end-tokens.ts'
import { ModelError, NO_END } from '../models/model-errors.ts'
import type { Part } from '../models/text-model.ts'
import { EmptyReply } from './failures.ts'
import { clean, readInput } from './inputs.ts'
import type { ReplyPart } from './steps.ts'

/** State of a reply that is being received. */
export type Draft = {
  pieces: Piece[]
  /** First half of a surrogate pair whose second half has not arrived. */
  half: string
  /** End of the text that may consist of end tokens. */
  withheld: string
  /** Set for an answer that is JSON. */
  fence: FenceFilter | null
  /** Length of all text, reasoning and tool input (characters). */
  length: number
  /** Number of files in the reply, which are not read. */
  files: number
  used: LanguageModelV4Usage | undefined
  isFinished: boolean
  finish: LanguageModelV4FinishReason | null
}

/** Creates an empty draft. `fence`: filters the text of an answer that is JSON. */
export const newDraft = (fence: FenceFilter | null): Draft => ({
  pieces: [],
  half: '',
  withheld: '',
  fence,
  length: 0,
  files: 0,
  used: undefined,
  isFinished: false,
  finish: null,
})

/** Returns whether no part of the reply was published: it has no text and no reasoning, and its calls are not made yet. */
export const isUnseen = ({ pieces }: Draft): boolean =>
  pieces.every(({ part }) => part.type === 'tool-call' || !part.text)

/** Returns whether the model has begun to answer. */
export const isBegun = ({ length, pieces }: Draft): boolean =>
  length > 0 || pieces.some(({ part }) => part.type === 'tool-call')

/**
 * Returns the reason why a reply ended. Throws {@link ModelError} for a reply without text and calls, regardless of its
 * finish reason (contract-2.md section 2.8). A reply of blanks alone is an answer: models end their turn with one.
 */
export function endOf(parts: readonly ReplyPart[], { finish, files }: Draft): StopReason {
  const { unified = 'stop', raw } = finish ?? {}
  const stopReason = stopReasonOf(unified, raw)
  if (parts.some((part) => part.type === 'tool-call' || (part.type === 'text' && part.text))) return stopReason
  if (!raw && (finish === null || unified === 'other')) throw new ModelError(NO_END, 'broken_off')
  if (unified === 'tool-calls') throw new ModelError(`${NO_CALL} (finish reason: ${raw})`, 'broken_off')
  if (stopReason === 'max_tokens' && FULL_WINDOW.test(raw ?? ''))
    throw new ModelError(`The prompt leaves no room for an answer (finish reason: ${raw})`, 'context_too_long')
  const hasReasoning = parts.some(({ type }) => type === 'reasoning')
  const what = files ? 'only files, such as pictures' : hasReasoning ? 'only reasoning, without an answer' : null
  throw new EmptyReply(stopReason, raw, what ?? 'an empty answer')
}

function stopReasonOf(unified: LanguageModelV4FinishReason['unified'], raw: string | undefined): StopReason {
  if (unified === 'length') return 'max_tokens'
  if (unified !== 'content-filter') return 'end_turn'
  // A filter names its reason. OpenAI's package reports none if the model itself refused.
  return /^(?:refusal|stop|completed|)$/i.test(raw ?? '') ? 'refusal' : 'content_filter'
}

/** Finish reasons for a full context window: Anthropic, Z.ai, Mistral. */
const FULL_WINDOW = /context|model_length/i

export const NO_CALL = 'The model announced a call of a tool, and its provider sent none: the answer may be unfinished'

/** Returns whether a reply ended in order to call a tool, but has no call. Some gateways lose them. */
export const announcesCall = (parts: readonly ReplyPart[], { finish }: Draft): boolean =>
  finish?.unified === 'tool-calls' && !parts.some(({ type }) => type === 'tool-call')

const NOTHING: Delta = { type: 'text_delta', text: '' }
const textDelta = (text: string): Delta => ({ type: 'text_delta', text })

/** Adds a part to the reply. Returns the fragment to publish now. Throws if the reply failed. */
export function receive(draft: Draft, part: Part): Delta {
  const { pieces } = draft
  switch (part.type) {
    case 'text-delta': {
      draft.length += part.delta.length
      const text = draft.withheld || part.delta.includes('<') ? beforeEnd(draft, part.delta) : part.delta
      return textDelta(add(pieces, 'text', part, readable(draft, draft.fence ? draft.fence.feed(text) : text)))
    }
    case 'text-start':
      return textDelta(add(pieces, 'text', part, ''))
    case 'text-end': {
      const text = restOf(draft, part.id)
      const rest = draft.fence ? draft.fence.feed(text) + draft.fence.end() : text
      const last = readable(draft, rest) + draft.half.toWellFormed()
      draft.half = ''
      return textDelta(end(pieces, 'text', part, last))
    }
    case 'reasoning-delta':
      draft.length += part.delta.length
      return { type: 'thinking_delta', text: add(pieces, 'reasoning', part, clean(part.delta) as string) }
    case 'reasoning-start':
      add(pieces, 'reasoning', part, '')
      break
    case 'reasoning-end':
      end(pieces, 'reasoning', part, '')
      break
    case 'tool-input-delta':
      draft.length += part.delta.length
      break
    case 'tool-call':
      pieces.push({ id: null, part: readCall(part, pieces) })
      break
    case 'file':
      draft.files++
      break
    case 'usage':
      draft.used = part.usage
      break
    case 'finish':
      draft.isFinished = true
      draft.used = part.usage
      draft.finish = part.finishReason
      if (BROKEN_OFF.has(part.finishReason.unified)) throw brokenOff(part.finishReason.raw)
      break
    case 'error':
      throw part.error
  }
  return NOTHING
}

/** Returns the text that cannot be part of the answer's end tokens, and withholds the rest. */
function beforeEnd(draft: Draft, delta: string): string {
  const text = draft.withheld + delta
  const length = lengthBeforeEnd(text)
  draft.withheld = text.slice(length)
  return text.slice(0, length)
}

/** Returns the withheld end of a text, unless it consists of end tokens. */
function restOf(draft: Draft, id: string): string {
  const { withheld } = draft
  if (!withheld) return ''
  draft.withheld = ''
  const before = find(draft.pieces, 'text', id)?.part as TextPart | undefined
  return isLeaked(before?.text ?? '', withheld) ? '' : withheld
}

/** Returns a text without characters that no database stores, and keeps half a character at its end for the next text. */
function readable(draft: Draft, given: string): string {
  const text = draft.half + (given.includes('\0') ? given.replaceAll('\0', '') : given)
  draft.half = halfAtEnd(text)
  return (draft.half ? text.slice(0, -1) : text).toWellFormed()
}

/** Finish reasons of replies that are incomplete although their streams ended normally. */
const BROKEN_OFF: ReadonlySet<string> = new Set(['error', 'interrupted'])

const brokenOff = (raw: string | undefined) =>
  new ModelError(`The model broke off its reply${raw ? ` (finish reason: ${raw.slice(0, 100)})` : ''}`, 'broken_off')

/**
 * Returns the first half of a surrogate pair at the end of a text, usually empty. The second half may follow in the
 * next part.
 */
function halfAtEnd(text: string): string {
  const last = text.charCodeAt(text.length - 1)
  return last >= 0xd800 && last < 0xdc00 ? text.slice(-1) : ''
}

type TextPart = Extract<ReplyPart, { text: string }>
type Fragment = { id: string; providerMetadata?: SharedV4ProviderMetadata }

/** A part of a reply, with its id while more of it may follow. `isJoined`: its text came in several deltas. */
type Piece = { id: string | null; part: ReplyPart; isJoined?: boolean }

/**
 * Minimum length of a delta that repeats the whole text of several before it, as the last one of RAGFlow does
 * (characters). A delta that equals a single one before it is a line that the model writes twice.
 */
const MIN_REPEATED = 40

const find = (reply: readonly Piece[], type: TextPart['type'], id: string) =>
  reply.findLast((piece) => piece.id === id && piece.part.type === type)

/** Adds text to its piece, and returns it. */
function add(reply: Piece[], type: TextPart['type'], { id, providerMetadata }: Fragment, text: string): string {
  const known = find(reply, type, id)
  const piece: Piece = known ?? { id, part: { type, text: '' } }
  const part = piece.part as TextPart
  if (!known) reply.push(piece)
  if (piece.isJoined && text.length >= MIN_REPEATED && text === part.text) return ''
  if (text && part.text) piece.isJoined = true
  part.text = appendFlat(part.text, text)
  if (providerMetadata) part.providerOptions = { ...part.providerOptions, ...providerMetadata }
  return text
}

function end(reply: Piece[], type: TextPart['type'], fragment: Fragment, text: string): string {
  add(reply, type, fragment, text)
  const piece = find(reply, type, fragment.id)
  if (piece) piece.id = null
  return text
}

/**
 * Returns a call with an id that is unique in the reply. Some models refuse their own calls without their signature.
 */
function readCall(part: LanguageModelV4ToolCall, reply: readonly Piece[]): ReplyPart {
  const taken = new Set(reply.flatMap(({ part: other }) => (other.type === 'tool-call' ? other.toolCallId : [])))
  const given = clean(part.toolCallId) as string
  let toolCallId = given
  for (let count = taken.size + 1; !toolCallId || taken.has(toolCallId); count++) {
    toolCallId = `${given || 'call'}_${count}`
  }
  return {
    type: 'tool-call',
    toolCallId,
    toolName: clean(part.toolName) as string,
    input: readInput(part.input),
    ...(part.providerMetadata && { providerOptions: part.providerMetadata }),
  }
}
