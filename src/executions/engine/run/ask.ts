import { setTimeout as sleep } from 'node:timers/promises'
import type {
  LanguageModelV4FinishReason,
  LanguageModelV4Prompt,
  LanguageModelV4ToolCall,
  LanguageModelV4Usage,
  SharedV4ProviderMetadata,
} from '@ai-sdk/provider'
import { appendFlat } from '../../../lib/text.ts'
import type { StopReason } from '../../../wire.ts'
import type { Delta } from '../events/events.ts'
import { createFenceFilter, type FenceFilter } from '../models/code-fence.ts'
import { separateReasoning } from '../models/inline-reasoning.ts'
import { ModelError, NO_END } from '../models/model-errors.ts'
import { answerInReasoning } from '../models/output-format.ts'
import type { CallOptions, Part } from '../models/text-model.ts'
import { AbortReason, TimeoutError } from './abort.ts'
import type { Again } from './asking.ts'
import { EmptyReply } from './failures.ts'
import { arrange } from './history.ts'
import { clean, readInput } from './inputs.ts'
import type { Emit, RunInput, RunUsage } from './run.ts'
import type { Reply, ReplyPart } from './steps.ts'

/**
 * Asks the model for one reply, streams its text and returns the whole reply. Adds the tokens it used to `usage`.
 *
 * {@link Asking.recover} handles a failure before any output: the request may be repeated, changed or sent to another
 * model. Any other failure, and silence for `idleTimeout`, stops the run. Throws the provider's error, {@link
 * TimeoutError}, or the reason of the abort.
 */
export async function ask(
  input: RunInput,
  prompt: LanguageModelV4Prompt,
  step: number,
  usage: RunUsage,
  emit: Emit,
): Promise<Reply> {
  const { controller, asking } = input
  const { signal } = controller
  for (;;) {
    signal.throwIfAborted()
    const fence = input.output && createFenceFilter()
    const draft: Draft = { ...newDraft(), fence }
    try {
      await receiveReply(input, arranged(input, prompt, step), draft, step, emit)
      const parts = draft.pieces.map(({ part }) => part)
      const read = separateReasoning(parts, asking.current().model)
      const separated = input.output ? answerInReasoning(read, input.output) : read
      const stopReason = endOf(separated, draft)
      count(usage, draft)
      if (announcesCall(separated, draft)) input.warn('cut_off', NO_CALL)
      if (draft.files) input.warn('cut_off', `Files in the answer, such as pictures, were left out: ${draft.files}`)
      return { parts: separated, stopReason }
    } catch (error) {
      // An empty reply is complete, unless a filter blocked it. The same request would get the same reply.
      const isComplete = error instanceof EmptyReply && error.kind !== 'content_filter'
      const mayRepeat = !isComplete && !signal.aborted && isUnseen(draft)
      if (mayRepeat && (await prepareRetry(input, draft, error, usage, emit))) continue
      count(usage, draft)
      controller.abort(error)
      throw signal.reason
    }
  }
}

/**
 * Prepares another request after a failure: waits, or makes a history fit that was too long. Returns false if no
 * request may follow.
 */
async function prepareRetry(
  input: RunInput,
  draft: Draft,
  error: unknown,
  usage: RunUsage,
  emit: Emit,
): Promise<boolean> {
  const again = await input.asking.recover(error)
  if (!again) return false
  // The usage of a reply that broke off is unknown.
  if (draft.used || isBegun(draft)) count(usage, draft)
  if (again.retry) await pause(input, again.retry, emit)
  if (again.isTooLong) await input.summarizer?.summarize(input, usage, emit)
  return true
}

/** Returns the request of a step, with the prompt arranged for the current model. */
function arranged({ asking, tools, question }: RunInput, prompt: LanguageModelV4Prompt, step: number): CallOptions {
  const { picturesApart, ...options } = asking.request(prompt, tools, question, step)
  return { ...options, prompt: arrange(options.prompt, asking.current().model, picturesApart) }
}

/** Returns whether no part of the reply was published: it has no text and no reasoning, and its calls are not made yet. */
const isUnseen = ({ pieces }: Draft): boolean => pieces.every(({ part }) => part.type === 'tool-call' || !part.text)

/** Returns whether the model has begun to answer. */
const isBegun = ({ length, pieces }: Draft): boolean =>
  length > 0 || pieces.some(({ part }) => part.type === 'tool-call')

/** Waits before the next request. Ends at once if the run is stopped or this process drains. */
async function pause(
  { controller, draining }: RunInput,
  retry: NonNullable<Again['retry']>,
  emit: Emit,
): Promise<void> {
  const { signal } = controller
  await emit(retry)
  const ended = new AbortController()
  const handOver = () => controller.abort(new AbortReason('drained'))
  if (draining.aborted) handOver()
  else draining.addEventListener('abort', handOver, { signal: ended.signal })
  try {
    await sleep(retry.afterMs, undefined, { signal })
  } catch {
    throw signal.reason
  } finally {
    ended.abort()
  }
}

/** Sends one request and reads its reply into `draft`. A failure ends the request. */
async function receiveReply(
  input: RunInput,
  options: CallOptions,
  draft: Draft,
  step: number,
  emit: Emit,
): Promise<void> {
  const { controller, idleTimeout, asking } = input
  const { signal } = controller
  const call = new AbortController()
  const abort = () => call.abort(signal.reason)
  signal.addEventListener('abort', abort)
  const silent = () => controller.abort(new TimeoutError(`The model was silent for ${idleTimeout / 1000} s`))
  let watchdog = setTimeout(silent, idleTimeout)
  let hasBegun = false
  try {
    const { id, model: plain } = asking.current()
    const model = input.watch?.(plain, id) ?? plain
    // Hidden reasoning and pings produce no parts, but they show that the model is not silent.
    const { stream } = await model.doStream({ ...options, abortSignal: call.signal, includeRawChunks: true })
    for await (const parts of stream) {
      watchdog.refresh()
      for (const part of parts) {
        signal.throwIfAborted()
        if (part.type === 'stream-start') asking.readWarnings(part.warnings)
        const delta = receive(draft, part)
        if (!hasBegun && isBegun(draft)) {
          hasBegun = true
          asking.answered()
        }
        const emitted = delta.text && emit({ messageType: 'stream_event', step, delta })
        // Most output is emitted without waiting. A slow database does not count as silence of the model.
        if (!emitted) continue
        clearTimeout(watchdog)
        await emitted
        watchdog = setTimeout(silent, idleTimeout)
      }
      if (draft.length > MAX_LENGTH) throw new ModelError('The reply of the model is longer than 16 MiB')
    }
  } catch (error) {
    call.abort(error)
    throw error
  } finally {
    signal.removeEventListener('abort', abort)
    clearTimeout(watchdog)
  }
}

/** State of a reply that is being received. */
type Draft = {
  pieces: Piece[]
  /** First half of a surrogate pair whose second half has not arrived. */
  half: string
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

const newDraft = () => ({ pieces: [], half: '', length: 0, files: 0, used: undefined, isFinished: false, finish: null })

/**
 * Returns the reason why a reply ended. Throws {@link ModelError} for a reply without text and calls, regardless of its
 * finish reason (contract-2.md section 2.8). A reply of blanks alone is an answer: models end their turn with one.
 */
function endOf(parts: readonly ReplyPart[], { finish, files }: Draft): StopReason {
  const { unified = 'stop', raw } = finish ?? {}
  // A filter names its reason. OpenAI's package reports none if the model itself refused.
  const isRefusal = unified === 'content-filter' && /^(?:refusal|stop|completed|)$/i.test(raw ?? '')
  const stopReason = isRefusal
    ? 'refusal'
    : unified === 'content-filter'
      ? 'content_filter'
      : unified === 'length'
        ? 'max_tokens'
        : 'end_turn'
  if (!parts.some((part) => part.type === 'tool-call' || (part.type === 'text' && part.text))) {
    if (!raw && (finish === null || unified === 'other')) throw new ModelError(NO_END, 'broken_off')
    if (unified === 'tool-calls') throw new ModelError(`${NO_CALL} (finish reason: ${raw})`, 'broken_off')
    if (stopReason === 'max_tokens' && FULL_WINDOW.test(raw ?? ''))
      throw new ModelError(`The prompt leaves no room for an answer (finish reason: ${raw})`, 'context_too_long')
    const hasReasoning = parts.some(({ type }) => type === 'reasoning')
    const what = files ? 'only files, such as pictures' : hasReasoning ? 'only reasoning, without an answer' : null
    throw new EmptyReply(stopReason, raw, what ?? 'an empty answer')
  }
  return stopReason
}

/** Finish reasons for a full context window: Anthropic, Z.ai, Mistral. */
const FULL_WINDOW = /context|model_length/i

const NO_CALL = 'The model announced a call of a tool, and its provider sent none: the answer may be unfinished'

/** Returns whether a reply ended in order to call a tool, but has no call. Some gateways lose them. */
const announcesCall = (parts: readonly ReplyPart[], { finish }: Draft): boolean =>
  finish?.unified === 'tool-calls' && !parts.some(({ type }) => type === 'tool-call')

const NOTHING: Delta = { type: 'text_delta', text: '' }
const textDelta = (text: string): Delta => ({ type: 'text_delta', text })

/** Adds a part to the reply. Returns the fragment to publish now. Throws if the reply failed. */
function receive(draft: Draft, part: Part): Delta {
  const { pieces } = draft
  switch (part.type) {
    case 'text-delta': {
      draft.length += part.delta.length
      const given = draft.fence ? draft.fence.feed(part.delta) : part.delta
      const text = draft.half + (given.includes('\0') ? given.replaceAll('\0', '') : given)
      draft.half = halfAtEnd(text)
      return textDelta(add(pieces, 'text', part, (draft.half ? text.slice(0, -1) : text).toWellFormed()))
    }
    case 'text-start':
      return textDelta(add(pieces, 'text', part, ''))
    case 'text-end': {
      const rest = (draft.half + (draft.fence?.end() ?? '')).toWellFormed()
      draft.half = ''
      return textDelta(end(pieces, 'text', part, rest))
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
      if (BROKEN_OFF.has(part.finishReason.unified)) {
        const raw = part.finishReason.raw
        throw new ModelError(
          `The model broke off its reply${raw ? ` (finish reason: ${raw.slice(0, 100)})` : ''}`,
          'broken_off',
        )
      }
      break
    case 'error':
      throw part.error
  }
  return NOTHING
}

/** Maximum length of a reply, with its reasoning and tool inputs (characters). */
const MAX_LENGTH = 16 * 1024 * 1024

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

/** Finish reasons of replies that are incomplete although their streams ended normally. */
const BROKEN_OFF: ReadonlySet<string> = new Set(['error', 'interrupted'])

/** Maximum number of tokens that the column of a run holds. */
const MAX_TOKENS = 2 ** 31 - 1

const isCount = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) <= MAX_TOKENS

/**
 * Adds the reported usage. A value that is not a number counts as 0 and marks the usage as estimated (contract.md
 * section 8).
 */
function count(usage: RunUsage, { used, isFinished }: Draft): void {
  // The model may have used more tokens.
  if (!isFinished) usage.usageEstimated = true
  const reported = { inputTokens: used?.inputTokens.total, outputTokens: used?.outputTokens.total }
  for (const key of ['inputTokens', 'outputTokens'] as const) {
    const tokens = reported[key]
    const total = usage[key] + (isCount(tokens) ? tokens : 0)
    if (!isCount(tokens) || total > MAX_TOKENS) usage.usageEstimated = true
    usage[key] = Math.min(total, MAX_TOKENS)
  }
}
