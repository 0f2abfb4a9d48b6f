import type { Tx } from '../../../db/client.ts'
import { AppError } from '../../../errors.ts'
import { cut } from '../../../lib/text.ts'
import { isObject } from '../../../lib/unknown.ts'
import { unlessAborted } from '../../../lib/unless-aborted.ts'
import type { MessageData } from '../events/events.ts'
import { Stop, TimeoutError } from './abort.ts'
import { noSuchTool } from './offers.ts'
import { outlast } from './retry.ts'
import type { Progress, RunInput } from './run.ts'
import { type Call, isFinished, resultEvent, type Step } from './steps.ts'
import { type Described, digestOf, MAX_RESULT, type Tool, type ToolResult } from './tools.ts'

/** How many of a step's calls that start runs are under way at a time: what they start needs no room. */
const MAX_TOGETHER = 10

/**
 * Makes the calls of a step that have not been made: one after the other, those that start runs side by side. Yields
 * each result as it comes, once it is stored. Calls that a person has to decide about first go to `progress.asks`.
 */
export async function* makeCalls(input: RunInput, step: Step, progress: Progress): AsyncGenerator<MessageData> {
  const open = step.calls.filter(({ result }) => !result)
  progress.asks = []
  const ask = (call: Call, tool: Tool, said: Described = tool) => progress.asks.push({ call, tool, said })
  const asked = open.filter((call) => isFinished(step, call) && isToAsk(call, toolOf(input, call)))
  for (const call of asked) ask(call, toolOf(input, call) as Tool)
  const ready = open.filter((call) => !asked.includes(call))
  const together = ready.filter((call) => toolOf(input, call)?.delegates)
  const makeOne = (call: Call) => make(input, step, call, ask)
  for (const call of ready) {
    const result = together.includes(call) ? null : await makeOne(call)
    if (result) yield result
  }
  for await (const result of asTheyCome(together.map((call) => () => makeOne(call)))) if (result) yield result
  progress.asks.sort((one, other) => one.call.position - other.call.position)
}

/** The tool that a call is of, by whatever name it is offered now. */
const toolOf = ({ tools }: RunInput, { name, target }: Call) =>
  tools.find((tool) => (target === null ? tool.name === name : tool.target === target))

const isToAsk = (call: Call, tool: Tool | undefined): tool is Tool =>
  tool?.mode === 'ask' && !call.inFlight && isObject(call.input) && mustAsk(call, tool)

/**
 * Whether a person has to decide about a call: nobody has, or the tool said something else of itself when it was approved
 * (contract-2.md section 8.2). Approvals of older versions do not say what the tool said.
 */
const mustAsk = ({ decision }: Call, said: Described): boolean => {
  if (!decision || decision.status === 'pending') return true
  return decision.status === 'approved' && decision.digest !== null && decision.digest !== digestOf(said)
}

/** Adds a call to those that a person has to decide about. */
type Ask = (call: Call, tool: Tool, said?: Described) => void

/** Makes a call, stores its result and returns the event that shows it. Null if a person has to decide first. */
async function make(input: RunInput, whole: Step, call: Call, ask: Ask): Promise<MessageData | null> {
  const { step } = whole
  const tool = toolOf(input, call)
  const refused = isFinished(whole, call) ? refusal(call, tool, input.tools) : unfinished(whole)
  const checked = refused ? failure(refused) : await check(input, call, tool as Tool, ask)
  if (checked === 'asks') return null
  if (!checked) await input.steps().begin(step, call)
  const result = bounded(checked ?? (await answerOf(input, step, call, tool as Tool)))
  await input.steps().complete(step, call, result)
  call.result = result
  return resultEvent(call, result)
}

const unfinished = ({ stopReason }: Step) =>
  stopReason === 'max_tokens'
    ? 'Not called: the reply was cut off by its limit of tokens before the input of this call was finished'
    : 'Not called: the reply was cut off by a content filter'

/** Checks whether a call may be made at this moment. Returns why not, `asks` if a person has to decide first, or null. */
async function check(input: RunInput, call: Call, tool: Tool, ask: Ask): Promise<ToolResult | 'asks' | null> {
  const { signal } = input.controller
  try {
    const mode = await outlast(async () => tool.recheck?.() ?? tool.mode, signal)
    const isApproved = call.decision?.status === 'approved'
    const said = isApproved && tool.describe ? await tool.describe(signal) : tool
    if (!said) return failure(goneBy(call.name))
    if (!isApproved && mode === 'allow') return null
    if (!mustAsk(call, said)) return null
    ask(call, tool, said)
    return 'asks'
  } catch (error) {
    signal.throwIfAborted()
    if (error instanceof AppError && error.status < 500) return failure(error.message)
    input.onToolError(tool.name, error)
    return failure('The tool failed')
  }
}

const goneBy = (name: string) => `The tool ${name} is gone by now, or is another one: nothing was called`

const failure = (content: string): ToolResult => ({ content, isError: true })

/** Why a call is not made. */
function refusal(
  { name, target, input, inFlight, decision }: Call,
  tool: Tool | undefined,
  tools: readonly Tool[],
): string | null {
  if (inFlight && !tool?.delegates) {
    return 'The outcome of this call is unknown: the server restarted while it was under way. It was not made again.'
  }
  if (!tool && target) return goneBy(name)
  if (!tool) return noSuchTool(name, tools)
  if (typeof input === 'string') return notJson(input)
  if (!isObject(input)) return `The arguments were valid JSON, but not an object: ${CALL_AGAIN}`
  if (decision?.status === 'denied') return `A person denied this call${decision.reason ? `: ${decision.reason}` : ''}`
  if (decision?.status === 'expired') return 'Nobody approved this call in time'
  return null
}

const CALL_AGAIN = 'call the tool again with a complete JSON object'

/** Tells the model why a call was not made whose arguments have stayed text. */
function notJson(text: string): string {
  try {
    const isDeep = isObject(JSON.parse(text))
    return `The arguments were ${isDeep ? 'nested too deep' : 'valid JSON, but not an object'}: ${CALL_AGAIN}`
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error)
    return `The arguments were not valid JSON: ${cut(reason, MAX_REASON)}; ${CALL_AGAIN}`
  }
}

/** How much of a parser's message, which quotes the arguments, the model is told (characters). */
const MAX_REASON = 200

/** What the tool says; an error result when it fails or takes too long. Throws the signal's reason when aborted. */
async function answerOf(input: RunInput, step: number, call: Call, tool: Tool): Promise<ToolResult> {
  const { toolTimeout } = input
  const { signal } = input.controller
  const patience = tool.delegates ? null : createPatience(toolTimeout)
  const either = patience ? AbortSignal.any([signal, patience.signal]) : signal
  const context = {
    toolUseId: call.id,
    signal: either,
    progressed: () => patience?.renew(),
    childExecutionId: call.childExecutionId,
    findChild: () => input.steps().findChild(step, call),
    adopt: (tx: Tx, childExecutionId: string) => input.steps().adopt(tx, step, call, childExecutionId),
  }
  const edited = call.decision?.edited
  const answer = tool.call(edited ?? call.input, context).catch((error) => {
    if (error instanceof Stop) throw error
    if (error instanceof AppError && error.status < 500) return failure(error.message)
    if (!either.aborted) input.onToolError(tool.name, error)
    return failure('The tool failed')
  })
  // A tool that does not heed the signal must not keep the run waiting.
  const result = await unlessAborted(answer, either).finally(() => patience?.end())
  signal.throwIfAborted()
  if (result && !patience?.signal.aborted) return tellEdited(result, edited)
  input.onToolError(tool.name, patience?.signal.reason)
  return tellEdited(failure('Tool call timed out'), edited)
}

/** Aborts once nothing was heard for so long (ms). The run's own time is its upper bound. */
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

/** Tells the model with what a call was made if a person has changed its input (contract-2.md section 1.13). */
const tellEdited = (result: ToolResult, edited: unknown): ToolResult =>
  edited === undefined ? result : { ...result, content: `${EDITED}${JSON.stringify(edited)}\n\n${result.content}` }

const EDITED = 'A person approved this call with another input, with which it was made: '

function bounded({ content, ...result }: ToolResult): ToolResult {
  const text = content.replaceAll('\0', '').toWellFormed()
  if (Buffer.byteLength(text) <= MAX_RESULT) return { ...result, content: text }
  const note = '\n[The rest was cut off]'
  const kept = Buffer.from(text).subarray(0, MAX_RESULT - note.length)
  return { ...result, content: `${kept.toString().replace(/\ufffd$/, '')}${note}` }
}

/** What each comes to, whichever is done first; no more than {@link MAX_TOGETHER} are under way. */
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
