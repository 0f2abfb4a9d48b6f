import type { Tx } from '../../../db/client.ts'
import { AppError } from '../../../errors.ts'
import { raceAbort } from '../../../lib/race-abort.ts'
import { cut } from '../../../lib/text.ts'
import { isObject } from '../../../lib/unknown.ts'
import type { MessageData } from '../events/events.ts'
import { objectsIn } from '../models/call-inputs.ts'
import { AbortReason, AuthorizationNeeded, TimeoutError } from './abort.ts'
import { noSuchTool } from './offers.ts'
import { retryWhileUnavailable } from './retry.ts'
import type { Progress, RunInput } from './run.ts'
import { type Call, isFinished, resultEvent, type Step } from './steps.ts'
import { type Described, isDigestOf, MAX_RESULT, type Tool, type ToolResult } from './tools.ts'

/** Maximum number of concurrent delegating calls in a step. Delegates need no capacity of their own. */
const MAX_TOGETHER = 10

/**
 * Makes the open calls of a step: one after the other, delegating calls in parallel. Yields each result once it is
 * stored. Adds calls that a person must decide to `progress.asks`, and those whose user must connect to an MCP server
 * first to `progress.signIns`.
 */
export async function* makeCalls(input: RunInput, step: Step, progress: Progress): AsyncGenerator<MessageData> {
  const open = step.calls.filter(({ result }) => !result)
  progress.asks = []
  progress.clientCalls = []
  progress.signIns = []
  const ready: Call[] = []
  for (const call of open) {
    const tool = toolOf(input, call)
    if (isFinished(step, call) && isToAsk(call, tool)) progress.asks.push({ call, tool, described: tool })
    else ready.push(call)
  }
  const together = ready.filter((call) => toolOf(input, call)?.delegates)
  const makeOne = (call: Call) =>
    make(input, step, call, progress).catch((error: unknown) => {
      if (!(error instanceof AuthorizationNeeded)) throw error
      progress.signIns.push({ call, server: error.server })
      return null
    })
  for (const call of ready) {
    const result = together.includes(call) ? null : await makeOne(call)
    if (result) yield result
  }
  for await (const result of asTheyCome(together.map((call) => () => makeOne(call)))) if (result) yield result
  progress.asks.sort((one, other) => one.call.position - other.call.position)
}

/** Returns the tool of a call, under whatever name it is offered now. */
const toolOf = ({ tools }: RunInput, { name, target }: Call) =>
  tools.find((tool) => (target === null ? tool.name === name : tool.target === target))

const isToAsk = (call: Call, tool: Tool | undefined): tool is Tool =>
  tool?.mode === 'ask' && !call.inFlight && isObject(call.input) && mustAsk(call, tool)

/**
 * Returns whether a person must decide a call: no decision was made, or the tool's description has changed since the
 * approval (contract-2.md section 8.2). Approvals of older versions carry no description.
 */
const mustAsk = ({ decision }: Call, described: Described): boolean => {
  if (!decision || decision.status === 'pending') return true
  return decision.status === 'approved' && decision.digest !== null && !isDigestOf(decision.digest, described)
}

/**
 * Makes a call, stores its result and returns its event. Returns null if a person must decide first, or if the client
 * has to make it, and adds the call to those of `progress`. Throws {@link AuthorizationNeeded} if the user must connect to an MCP server first.
 */
async function make(input: RunInput, whole: Step, call: Call, progress: Progress): Promise<MessageData | null> {
  const { step } = whole
  const tool = toolOf(input, call)
  // The client made a call that has a result, and may offer its tool no longer.
  const refused = call.given ? null : isFinished(whole, call) ? refusal(call, tool, input) : unfinished(whole)
  if (!refused && tool?.isClients && !call.given) {
    progress.clientCalls.push(call)
    return null
  }
  const checked = refused ? failure(refused) : (call.given ?? (await check(input, call, tool as Tool, progress)))
  if (checked === 'asks') return null
  if (!checked) await input.steps().begin(step, call)
  const undo = async (error: unknown) => {
    if (error instanceof AuthorizationNeeded) await input.steps().undo(step, call)
    throw error
  }
  const result = bounded(checked ?? (await answerOf(input, step, call, tool as Tool).catch(undo)))
  await input.steps().complete(step, call, result)
  call.result = result
  return resultEvent(call, result)
}

const unfinished = ({ stopReason }: Step) =>
  stopReason === 'max_tokens'
    ? 'Not called: the reply was cut off by its limit of tokens before the input of this call was finished'
    : 'Not called: the reply was cut off by a content filter'

/**
 * Checks whether a call may be made now. Returns the error result if it may not, `asks` if a person must decide first,
 * or null.
 */
async function check(input: RunInput, call: Call, tool: Tool, { asks }: Progress): Promise<ToolResult | 'asks' | null> {
  const { signal } = input.controller
  try {
    const mode = await retryWhileUnavailable(async () => tool.recheck?.() ?? tool.mode, signal)
    const isApproved = call.decision?.status === 'approved'
    const described = isApproved && tool.describe ? await tool.describe(signal) : tool
    if (!described) return failure(goneBy(call.name))
    if (!isApproved && mode === 'allow') return null
    if (!mustAsk(call, described)) return null
    asks.push({ call, tool, described })
    return 'asks'
  } catch (error) {
    signal.throwIfAborted()
    if (error instanceof AuthorizationNeeded) throw error
    if (error instanceof AppError && error.status < 500) return failure(error.message)
    input.onToolError(tool.name, error)
    return failure('The tool failed')
  }
}

const goneBy = (name: string) => `The tool ${name} is gone by now, or is another one: nothing was called`

const failure = (content: string): ToolResult => ({ content, isError: true })

/** Returns the reason why a call is not made. */
function refusal(
  { name, target, input, inFlight, decision }: Call,
  tool: Tool | undefined,
  { tools, whyMissing }: RunInput,
): string | null {
  if (inFlight && !tool?.delegates) {
    return 'The outcome of this call is unknown: the server restarted while it was under way. It was not made again.'
  }
  if (!tool && target) return whyMissing?.(target) ?? goneBy(name)
  if (!tool) return noSuchTool(name, tools)
  if (typeof input === 'string') return notJson(input)
  if (!isObject(input)) return `The arguments were valid JSON, but not an object: ${CALL_AGAIN}`
  if (decision?.status === 'denied') return `${DENIED}${decision.reason ? `: ${decision.reason}` : ''}`
  if (decision?.status === 'expired') return 'The approval of this call expired before anyone decided'
  return null
}

/** Beginning of the result of a call that a person has denied. */
export const DENIED = 'A person denied this call'

const CALL_AGAIN = 'call the tool again with a complete JSON object'

/** Returns the error for the model if the arguments of a call are not a JSON object. */
function notJson(text: string): string {
  try {
    const isDeep = isObject(JSON.parse(text))
    return `The arguments were ${isDeep ? 'nested too deep' : 'valid JSON, but not an object'}: ${CALL_AGAIN}`
  } catch (error) {
    // Some servers (SGLang) put the arguments of parallel calls together, and lose the names of the others.
    if (objectsIn(text).length > 1) return 'The arguments are those of several calls: make one call at a time'
    const reason = error instanceof Error ? error.message : String(error)
    return `The arguments were not valid JSON: ${cut(reason, MAX_REASON)}; ${CALL_AGAIN}`
  }
}

/** Maximum length of a JSON parser's message in an error, which quotes the arguments (characters). */
const MAX_REASON = 200

/** Calls a tool. Returns an error result if it fails or times out. Throws the signal's reason when aborted. */
async function answerOf(input: RunInput, step: number, call: Call, tool: Tool): Promise<ToolResult> {
  const { toolTimeout } = input
  const { signal } = input.controller
  const patience = tool.delegates ? null : createPatience(toolTimeout)
  const combined = patience ? AbortSignal.any([signal, patience.signal]) : signal
  const context = {
    toolUseId: call.id,
    signal: combined,
    progressed: () => patience?.renew(),
    childExecutionId: call.childExecutionId,
    findChild: () => input.steps().findChild(step, call),
    adopt: (tx: Tx, childExecutionId: string) => input.steps().adopt(tx, step, call, childExecutionId),
  }
  const edited = call.decision?.edited
  const answer = tool.call(edited ?? call.input, context).catch((error) => {
    if (error instanceof AbortReason || error instanceof AuthorizationNeeded) throw error
    if (error instanceof AppError && error.status < 500) return failure(error.message)
    if (!combined.aborted) input.onToolError(tool.name, error)
    return failure('The tool failed')
  })
  // A tool that ignores the signal must not block the run.
  const result = await raceAbort(answer, combined).finally(() => patience?.end())
  signal.throwIfAborted()
  if (result && !patience?.signal.aborted) return withEditNote(result, edited)
  input.onToolError(tool.name, patience?.signal.reason)
  return withEditNote(failure('Tool call timed out'), edited)
}

/** Creates a signal that aborts after `timeout` without progress (ms). The run's own time limit is the upper bound. */
function createPatience(timeout: number) {
  const controller = new AbortController()
  const expire = () => controller.abort(new TimeoutError(`No answer for ${timeout / 1000} s (TOOL_TIMEOUT)`))
  let timer: NodeJS.Timeout | null = setTimeout(expire, timeout)
  const end = () => {
    clearTimeout(timer ?? undefined)
    timer = null
  }
  return { signal: controller.signal, renew: () => void timer?.refresh(), end }
}

/** Adds the input that a person has changed to the result, for the model (contract-2.md section 1.13). */
const withEditNote = (result: ToolResult, edited: unknown): ToolResult =>
  edited === undefined ? result : { ...result, content: `${EDITED}${JSON.stringify(edited)}\n\n${result.content}` }

const EDITED = 'A person approved this call with a different input, which was used: '

function bounded({ content, ...result }: ToolResult): ToolResult {
  const text = content.replaceAll('\0', '').toWellFormed()
  if (Buffer.byteLength(text) <= MAX_RESULT) return { ...result, content: text }
  const note = '\n[The rest was cut off]'
  const kept = Buffer.from(text).subarray(0, MAX_RESULT - note.length)
  return { ...result, content: `${kept.toString().replace(/\ufffd$/, '')}${note}` }
}

/** Yields results in the order of completion, with at most {@link MAX_TOGETHER} tasks in progress. */
async function* asTheyCome<T>(works: readonly (() => Promise<T>)[]): AsyncGenerator<T> {
  const begun = new Map<number, Promise<{ index: number; value: T }>>()
  for (let next = 0; next < works.length || begun.size; ) {
    for (const work of works.slice(next, next + MAX_TOGETHER - begun.size)) {
      const index = next++
      begun.set(
        index,
        work().then((value) => ({ index, value })),
      )
    }
    const { index, value } = await Promise.race(begun.values())
    begun.delete(index)
    yield value
  }
}
