import type { Actor } from '../../auth/actor.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import type { Fields } from '../../lib/unknown.ts'
import type { Context } from '../../trpc.ts'
import type { RunFrom } from '../shared/client-tools.ts'
import { frame } from '../shared/frames.ts'
import {
  asksPerson,
  type ClientCall,
  customInputOf,
  failureText,
  followParts,
  type Part,
  type Tokens,
} from '../shared/run-parts.ts'
import { noteOf } from '../shared/wait.ts'
import { RUN_ERROR, toOpenAICode } from './errors.ts'
import { isCutByRequest } from './own-limit.ts'

// The answers of chat completions: whole, and in chunks.

/**
 * The form of an answer. `isLegacy`: the client knows one call at a time, without an id. `withUsage`: the chunks have the
 * usage.
 */
export type Head = { id: string; created: number; model: string; isLegacy: boolean; withUsage: boolean }
/** A run from an event on. `next`: the answer is this call alone. */
export type Run = RunFrom & { next?: ClientCall }

/**
 * Returns the id of a completion. Results of the client's functions continue the run in a completion of its own, because
 * LangGraph for JavaScript replaces an earlier message with the same id.
 */
export const toCompletionId = ({ row, after, next }: Run): string => {
  const part = next?.id ?? (after || null)
  return `chatcmpl-${row.id}${part === null ? '' : `_${part}`}`
}

const FINISH: Readonly<Record<string, string>> = {
  max_tokens: 'length',
  max_turns: 'length',
  budget: 'length',
  content_filter: 'content_filter',
  refusal: 'content_filter',
}

const finishOf = (stopReason: string | null): string => FINISH[stopReason ?? ''] ?? 'stop'

const usageOf = ({ input_tokens: input, output_tokens: output }: Tokens) => ({
  prompt_tokens: input,
  completion_tokens: output,
  total_tokens: input + output,
})

/** The usage of an answer that its run had ready, with those before it. */
const NO_TOKENS: Tokens = { input_tokens: 0, output_tokens: 0 }

/** Returns the fields of a message with calls. `first` is the index of the first one in a stream. */
function toCalls(calls: readonly ClientCall[], { isLegacy }: Head, first?: number) {
  const toFunction = ({ name, input }: ClientCall) => ({ name, arguments: JSON.stringify(input) })
  if (isLegacy) return { function_call: calls[0] && toFunction(calls[0]) }
  const made = calls.map((call, index) => ({
    ...(first !== undefined && { index: first + index }),
    id: call.id,
    ...(call.isCustom
      ? { type: 'custom', custom: { name: call.name, input: customInputOf(call) } }
      : { type: 'function', function: toFunction(call) }),
  }))
  return { tool_calls: made }
}

const finishOfCalls = ({ isLegacy }: Head) => (isLegacy ? 'function_call' : 'tool_calls')

/**
 * Returns a run as a completion: with its answer, or with the calls that it waits for. `reasoning`: what the model showed,
 * under the name that it has in chunks.
 */
export function toCompletion(head: Head, row: ExecutionRow, waiting: Waiting | null, reasoning: string | null) {
  const calls = waiting?.calls ?? []
  const message = {
    role: 'assistant',
    content: calls.length ? waiting?.text || null : (row.result ?? ''),
    ...(reasoning && { reasoning_content: reasoning }),
    refusal: null,
    ...(calls.length && toCalls(calls, head)),
  }
  const finish = calls.length ? finishOfCalls(head) : finishOf(row.stopReason)
  return {
    id: head.id,
    object: 'chat.completion',
    created: head.created,
    model: head.model,
    choices: [{ index: 0, message, logprobs: null, finish_reason: finish }],
    usage: usageOf(waiting?.usage ?? { input_tokens: row.inputTokens, output_tokens: row.outputTokens }),
  }
}

/**
 * The calls that a run waits for the client to make, with the text of their step. None if the run has ended. `reasoning`
 * is of all steps.
 */
type Waiting = { calls: readonly ClientCall[]; text: string; reasoning: string; usage: Tokens }

/** Collects the text of the last step, and the reasoning of all steps. A step that begins again replaces its own. */
function createCollector() {
  const shown = { text: '', reasoning: '' }
  let before = ''
  return {
    shown,
    add(part: Part): void {
      if (part.type === 'reset') shown.reasoning = before
      if (part.type === 'step-start') before = shown.reasoning
      if (part.type === 'step-start' || part.type === 'reset') shown.text = ''
      if (part.type === 'text-delta') shown.text += part.text
      if (part.type === 'reasoning-start' && shown.reasoning) shown.reasoning += '\n\n'
      if (part.type === 'reasoning-delta') shown.reasoning += part.text
    },
  }
}

/** Follows a run until it ends, or waits for the client to call tools. */
export async function waitForCalls(context: Context, actor: Actor, run: Run): Promise<Waiting> {
  const { row, after, next } = run
  const { shown, add } = createCollector()
  if (next) return { ...shown, calls: [next], usage: NO_TOKENS }
  for await (const parts of followParts(context, actor, row, after)) {
    for (const part of parts) {
      add(part)
      if (part.type === 'client-tools') return { ...shown, calls: part.calls, usage: part.usage }
      if (part.type === 'completed') return { ...shown, calls: [], usage: part.usage }
    }
  }
  return { ...shown, calls: [], usage: NO_TOKENS }
}

/** Creates functions that write the chunks of a completion. */
function createChunks(head: Head) {
  const { withUsage } = head
  const chunk = (choices: Fields[], usage?: object) =>
    frame({
      id: head.id,
      object: 'chat.completion.chunk',
      created: head.created,
      model: head.model,
      choices,
      ...(withUsage && { usage: usage ?? null }),
    })
  const delta = (fields: Fields, finish: string | null = null) =>
    chunk([{ index: 0, delta: fields, logprobs: null, finish_reason: finish }])
  const end = (last: string, usage: Tokens) => last + (withUsage ? chunk([], usageOf(usage)) : '') + frame('[DONE]')
  return {
    delta,
    /** Ends the answer with the reason of its end. */
    finish: (stopReason: string | null, usage: Tokens) => end(delta({}, finishOf(stopReason)), usage),
    /** Ends the answer with calls. Each has a chunk of its own, as many clients read the first call of a chunk alone. */
    call(calls: readonly ClientCall[], usage: Tokens) {
      const made = head.isLegacy ? calls.slice(0, 1) : calls
      const deltas = made.map((call, index) => delta(toCalls([call], head, index)))
      return end(deltas.join('') + delta({}, finishOfCalls(head)), usage)
    },
  }
}

/** Returns the chunks with which a part ends the answer, or null if the answer continues. */
function endWith(chunks: ReturnType<typeof createChunks>, row: ExecutionRow, part: Part): string | null {
  if (part.type === 'completed') return chunks.finish(part.stopReason, part.usage)
  if (part.type === 'client-tools') return chunks.call(part.calls, part.usage)
  if (part.type !== 'failed' && part.type !== 'cancelled') return null
  if (isCutByRequest(row, part)) return chunks.finish(part.stopReason, NO_TOKENS)
  return frame({ error: { message: failureText(part), type: RUN_ERROR, param: null, code: toOpenAICode(part.code) } })
}

/** Follows a run as the chunks of a completion. */
export async function* toChunks(
  context: Context,
  actor: Actor,
  { row, after, next }: Run,
  head: Head,
): AsyncGenerator<string> {
  const chunks = createChunks(head)
  const toDeltas = createTextReader()
  yield chunks.delta({ role: 'assistant', content: '' })
  if (next) {
    yield chunks.call([next], NO_TOKENS)
    return
  }
  for await (const parts of followParts(context, actor, row, after)) {
    let text = ''
    for (const part of parts) {
      // Clients show the reasoning to the person. It is no part of the answer.
      const change = asksPerson(part) ? { reasoning_content: noteOf(context.deps, part) } : toDeltas(part)
      if (change) text += chunks.delta(change)
      const last = endWith(chunks, row, part)
      if (last === null) continue
      yield text + last
      return
    }
    yield text
  }
}

/**
 * Creates a function that converts parts to deltas. The texts of several steps are separated. If a server was restarted
 * in the middle of a step, the client already has its beginning: only what differs is sent.
 */
function createTextReader(): (part: Part) => Fields | null {
  let step = 0
  /** Parts of the step that were sent, and parts that a restarted step has to repeat. */
  let sent = ''
  let repeated = ''
  let isAfterText = false

  return (part) => {
    if (part.type === 'reset' && part.isShown) {
      repeated = sent
      sent = ''
    } else if (part.type === 'step-start' && part.step !== step) {
      step = part.step
      sent = ''
      repeated = ''
    }
    if (part.type === 'reasoning-delta') return { reasoning_content: part.text }
    if (part.type !== 'text-delta' || !part.text) return null
    const isFirst = sent === ''
    sent += part.text
    if (repeated.startsWith(sent)) return null
    if (repeated) {
      const content = sent.startsWith(repeated) ? sent.slice(repeated.length) : `\n\n${sent}`
      repeated = ''
      return { content }
    }
    const content = isFirst && isAfterText ? `\n\n${part.text}` : part.text
    isAfterText = true
    return { content }
  }
}
