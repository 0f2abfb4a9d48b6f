import type {
  LanguageModelV4FilePart,
  LanguageModelV4Message,
  LanguageModelV4Prompt,
  LanguageModelV4ToolResultOutput,
  LanguageModelV4ToolResultPart,
} from '@ai-sdk/provider'
import { findAnswer, type Output, parseAnswer } from '../../../lib/output.ts'
import { isObject } from '../../../lib/unknown.ts'
import type { StopReason } from '../../../wire.ts'
import { type MessageData, textOf } from '../events/events.ts'
import { wholeInput } from '../models/call-inputs.ts'
import { repairRequest } from '../models/output-format.ts'
import type { TextModel } from '../models/text-model.ts'
import { ask } from './ask.ts'
import type { Asking } from './asking.ts'
import { makeCalls } from './calls.ts'
import { InvalidOutput } from './failures.ts'
import { writtenBy } from './history.ts'
import { understood, writesCall, writtenCall } from './offers.ts'
import {
  assistantEvent,
  type Call,
  callsOf,
  type Reply,
  type ReplyPart,
  resultEvent,
  type Step,
  type StepStore,
} from './steps.ts'
import type { Summarizer } from './summarizer.ts'
import type { Described, Tool, Toolbox, ToolResult } from './tools.ts'
import type { Warn } from './warnings.ts'

/** Inputs of a run. */
export type RunInput = {
  /** Asks the run's model or a fallback. */
  asking: Asking
  /** Wraps a model with tracing. */
  watch?: (model: TextModel, id: string) => TextModel
  prompt: LanguageModelV4Prompt
  /** Index of the message in the prompt that the run answers. */
  question: number
  /** Makes the history fit by summaries; null if it is cut. */
  summarizer: Summarizer | null
  tools: readonly Tool[]
  /** Returns all tools again if they have changed, or null. */
  refreshTools?: () => Promise<readonly Tool[] | null>
  whyMissing?: Toolbox['whyMissing']
  /** Form of the answer; null for plain text. */
  output: Output | null
  /** Maximum number of model requests. */
  maxTurns: number
  /** Maximum time that the model may be silent and a tool call may take (ms). */
  idleTimeout: number
  toolTimeout: number
  /** Created on demand, because most runs call no tools. */
  steps: () => StepStore
  /** Called with tool errors whose details must not be published. */
  onToolError: (tool: string, error: unknown) => void
  warn: Warn
  /** Aborts when this process starts to shut down. A run that waits to retry then resumes elsewhere. */
  draining: AbortSignal
  /** Aborts the run and all of its pending work. */
  controller: AbortController
}

export type RunUsage = { inputTokens: number; outputTokens: number; usageEstimated: boolean }

/** Progress of a run: the partial result of a stopped run and the starting point of a resumed one. */
export type Progress = {
  usage: RunUsage
  /** Steps that called tools. */
  steps: Step[]
  /** Calls that a person must decide. The run stops until then. */
  asks: Ask[]
  /** Calls that the client has to make. The run stops until then. */
  clientCalls: Call[]
  /** Calls whose user must connect to an MCP server first. The run stops until then. */
  signIns: SignIn[]
  /** The parts of the latest reply. */
  last: readonly ReplyPart[]
  /** JSON text of the answer that fits the output's schema. */
  resultObject?: string
}

/** A call that a person must decide, with its tool and the tool's description. */
export type Ask = { call: Call; tool: Tool; described: Described }

/** A call whose user must connect to an MCP server first. */
export type SignIn = { call: Call; server: { id: string; name: string } }

/**
 * Emits a message of a run. The caller awaits the returned promise, if any, before the run continues. It throws to stop
 * the run.
 */
export type Emit = (data: MessageData) => Promise<unknown> | undefined

/**
 * Executes one run: asks the model, step by step while it calls tools, and emits its messages and the tools' results.
 *
 * Resumes after the last step of `progress` and first makes that step's calls without results. Calls of the last
 * permitted turn are not made: the run ends with its text (contract.md section 3, `maxTurns`).
 *
 * Earlier turns that do not fit the prompt are summarized first, if the agent wants that. An answer that does not fit
 * the output's schema is asked for again once.
 *
 * Returns the reason for the end, or null if the run waits for an approval, its client or a connection. Throws
 * {@link InvalidOutput}.
 */
export async function runSteps(input: RunInput, progress: Progress, emit: Emit): Promise<StopReason | null> {
  const { usage, steps } = progress
  const { prompt, maxTurns, output } = input
  let before = { ...usage }
  // The first step counts the tokens of a summary, so that a run that resumes has them too.
  if (steps.length) input.summarizer?.cut(input)
  else await input.summarizer?.summarize(input, usage, emit)
  for (const step of steps.slice(0, -1)) prompt.push(...toPrompt(step))
  let last = steps.at(-1)
  /** The request to answer again in the required form, which is made once and is no turn. */
  let repair: string | null = null
  let isRepaired = false
  for (;;) {
    if (last && !(await finishCalls(input, last, progress, emit))) return null
    const number: number = (last?.step ?? 0) + 1
    if (repair !== null) prompt.push({ role: 'user', content: [{ type: 'text', text: repair }] })
    else if (number > maxTurns) return atLimit(input)
    repair = null
    const reply = await ask(input, prompt, number, usage, emit)
    last = toStep(input, reply, number, difference(usage, before), isRepaired)
    before = { ...usage }
    progress.last = last.parts
    await publish(input, last, steps, emit)
    if (last.calls.length) {
      if (number < maxTurns) continue
      await refuse(last, maxTurns, emit)
      return atLimit(input)
    }
    const problem = problemOf(input, textOf(last.parts), progress)
    if (problem === null) return last.stopReason
    if (isRepaired || last.stopReason !== 'end_turn') throw new InvalidOutput(problem, last.stopReason)
    isRepaired = true
    repair = repairRequest(output!, problem)
  }
}

/**
 * Makes the calls of the last step, and adds it to the prompt. Returns false if the run waits for an approval, its
 * client or a connection.
 */
async function finishCalls(input: RunInput, last: Step, progress: Progress, emit: Emit): Promise<boolean> {
  for await (const result of makeCalls(input, last, progress)) await emit(result)
  if (progress.asks.length || progress.clientCalls.length || progress.signIns.length) return false
  input.prompt.push(...toPrompt(last))
  if (input.refreshTools) input.tools = (await input.refreshTools()) ?? input.tools
  return true
}

/** Returns a reply as a step, with its calls resolved. */
function toStep({ asking, tools, output }: RunInput, reply: Reply, step: number, usage: RunUsage, isRepaired: boolean) {
  const read = understood(reply.parts, tools)
  const parts = isRepaired && output ? withJsonOnly(read, output) : read
  return { ...reply, parts, model: asking.current().id, step, usage, calls: callsOf(parts, tools) }
}

/** Stores a step whose calls will be made, and emits the reply. */
async function publish({ steps: store, maxTurns }: RunInput, step: Step, steps: Step[], emit: Emit): Promise<void> {
  // Added before it is stored, because stored steps are deleted with a run that is stopped meanwhile.
  if (step.calls.length) steps.push(step)
  // Stored before it is emitted: a process that takes the run over emits the missing part of a stored step, and
  // requests any other step again.
  if (step.calls.length && step.step < maxTurns) await store().save(step)
  await emit(assistantEvent(step.step, step.parts))
}

/**
 * Returns why an answer does not fit the output's schema, or null if it fits, which makes it the result object. Warns
 * about a call that the model wrote as text.
 */
function problemOf({ output, tools, warn }: RunInput, answer: string, progress: Progress): string | null {
  if (tools.length && writesCall(answer, tools)) warn('tool_missing', writtenCall('text'))
  if (!output) return null
  const parsed = parseAnswer(output, answer)
  if (parsed.problem === null) progress.resultObject = JSON.stringify(parsed.value)
  return parsed.problem
}

/**
 * Leaves out the words around the JSON of a second answer, if the JSON alone fits. Models without a JSON mode add some.
 * Mends broken JSON as that of calls, and leaves out its repetitions.
 */
function withJsonOnly(parts: ReplyPart[], output: Output): ReplyPart[] {
  const text = textOf(parts)
  if (parts.some(({ type }) => type === 'tool-call') || parseAnswer(output, text).problem === null) return parts
  const mended = wholeInput(text)
  const json = findAnswer(output, text) ?? (mended === text.trim() ? null : findAnswer(output, mended))
  return json === null ? parts : [...parts.filter(({ type }) => type !== 'text'), { type: 'text', text: json }]
}

/** Returns the reason for the end of a run at its limit of turns, which has no answer in the required form. */
function atLimit({ output, maxTurns }: RunInput): StopReason {
  if (output) throw new InvalidOutput(`the run reached its limit of ${maxTurns} turns before it answered`, 'max_turns')
  return 'max_turns'
}

async function refuse({ calls }: Step, maxTurns: number, emit: Emit): Promise<void> {
  for (const call of calls) {
    call.result = { content: `Not called: the run has reached its limit of ${maxTurns} turns`, isError: true }
    await emit(resultEvent(call, call.result))
  }
}

const difference = (usage: RunUsage, before: RunUsage): RunUsage => ({
  inputTokens: usage.inputTokens - before.inputTokens,
  outputTokens: usage.outputTokens - before.outputTokens,
  usageEstimated: usage.usageEstimated,
})

/** Returns a step and its results as prompt messages. */
const toPrompt = ({ parts, calls, model }: Step): LanguageModelV4Message[] => [
  {
    role: 'assistant',
    ...writtenBy(model),
    content: parts.flatMap((part) => {
      // Providers accept only objects as tool inputs.
      if (part.type === 'tool-call') return { ...part, input: isObject(part.input) ? part.input : {} }
      return part.type === 'reasoning' || part.text ? part : []
    }),
  },
  ...(calls.length ? [{ role: 'tool' as const, content: calls.map(toResult) }] : []),
]

const toResult = ({ id, name, result }: Call): LanguageModelV4ToolResultPart => ({
  type: 'tool-result',
  toolCallId: id,
  toolName: name,
  output: outputOf(result),
})

const picturesOf = ({ pictures = [] }: ToolResult): LanguageModelV4FilePart[] =>
  pictures.map(({ mediaType, data }) => ({ type: 'file', mediaType, data: { type: 'data', data } }))

function outputOf(result: ToolResult | null): LanguageModelV4ToolResultOutput {
  const text = result?.content ?? ''
  if (result?.isError) return { type: 'error-text', value: text }
  if (!result?.pictures?.length) return { type: 'text', value: text }
  return { type: 'content', value: [{ type: 'text', text }, ...picturesOf(result)] }
}
