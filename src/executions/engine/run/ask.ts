import { setTimeout as sleep } from 'node:timers/promises'
import type { LanguageModelV4Message, LanguageModelV4Prompt } from '@ai-sdk/provider'
import { createFenceFilter } from '../models/code-fence.ts'
import { separateReasoning } from '../models/inline-reasoning.ts'
import { classifyModelError, ModelError } from '../models/model-errors.ts'
import { answerInReasoning } from '../models/output-format.ts'
import type { CallOptions } from '../models/text-model.ts'
import { AbortReason, TimeoutError } from './abort.ts'
import type { Again } from './asking.ts'
import { announcesCall, type Draft, endOf, isBegun, isUnseen, NO_CALL, newDraft, receive } from './draft.ts'
import { EmptyReply } from './failures.ts'
import { arrange } from './history.ts'
import { writesCall, writtenCall } from './offers.ts'
import type { Emit, RunInput, RunUsage } from './run.ts'
import type { Reply } from './steps.ts'

const remark = (text: string): LanguageModelV4Message => ({ role: 'user', content: [{ type: 'text', text }] })
/** Asks a model to continue that took the results of its calls for the end of its turn. */
const CONTINUE = remark('Your answer was empty. Continue, or say briefly what the result is.')
/** Tells a model about an answer that its provider refuses as it refuses a request, and would refuse again. */
const UNREAD = remark('Your answer could not be read. If you call a tool, use its name and inputs as they are offered.')

/** Maximum length of a reply, with its reasoning and tool inputs (characters). */
const MAX_LENGTH = 16 * 1024 * 1024

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
  const { controller } = input
  const { signal } = controller
  let request = prompt
  for (;;) {
    signal.throwIfAborted()
    const draft = newDraft(input.output && createFenceFilter())
    try {
      await receiveReply(input, arranged(input, request, step), draft, step, emit)
      return toReply(input, draft, usage)
    } catch (error) {
      const isEmpty = error instanceof EmptyReply && error.kind !== 'content_filter'
      // After its token limit, or with a picture as its answer, a model would reply in the same way again.
      const isFinal = isEmpty && (error.stopReason === 'max_tokens' || draft.files > 0)
      const mayRepeat = !isFinal && !signal.aborted && isUnseen(draft)
      if (mayRepeat && (await prepareRetry(input, draft, error, usage, emit))) {
        if (isEmpty && prompt.at(-1)?.role === 'tool') request = [...prompt, CONTINUE]
        else if (isRefusedAnswer(error)) request = [...prompt, UNREAD]
        continue
      }
      count(usage, draft)
      controller.abort(error)
      throw signal.reason
    }
  }
}

/** Returns whether a provider reports an answer of its model with the status of a bad request (Groq, Cerebras). */
function isRefusedAnswer(error: unknown): boolean {
  const { kind, status } = classifyModelError(error)
  return kind === 'broken_off' && status !== null && status < 500
}

/** Returns a complete draft as a reply, and counts its tokens. Throws {@link ModelError} if it has no answer. */
function toReply(input: RunInput, draft: Draft, usage: RunUsage): Reply {
  const { asking, output, tools, warn } = input
  const read = separateReasoning(
    draft.pieces.map(({ part }) => part),
    asking.current().model,
  )
  const parts = output ? answerInReasoning(read, output) : read
  // Servers that find no call in the reasoning of their model (GLM, Qwen) end an answer that has nothing else.
  const isLost = tools.length > 0 && parts.every((part) => part.type === 'reasoning' && writesCall(part.text, tools))
  if (parts.length && isLost) throw new ModelError(writtenCall('reasoning'), 'broken_off')
  const stopReason = endOf(parts, draft)
  count(usage, draft)
  if (announcesCall(parts, draft)) warn('cut_off', NO_CALL)
  if (draft.files) warn('cut_off', `Files in the answer, such as pictures, were left out: ${draft.files}`)
  return { parts, stopReason }
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
  const why = `The model was silent for ${idleTimeout / 1000} s: raise MODEL_IDLE_TIMEOUT if it takes longer to load or to think`
  const silent = () => controller.abort(new TimeoutError(why))
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
