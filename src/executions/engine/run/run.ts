import type {
  LanguageModelV4FilePart,
  LanguageModelV4Message,
  LanguageModelV4Prompt,
  LanguageModelV4ToolResultOutput,
} from '@ai-sdk/provider'
import { isObject } from '../../../lib/unknown.ts'
import type { StopReason } from '../../../wire.ts'
import type { MessageData } from '../events/events.ts'
import type { TextModel } from '../models/text-model.ts'
import { ask } from './ask.ts'
import type { Asking } from './asking.ts'
import { makeCalls } from './calls.ts'
import { writtenBy } from './history.ts'
import { understood } from './offers.ts'
import { assistantEvent, type Call, callsOf, type ReplyPart, resultEvent, type Step, type StepStore } from './steps.ts'
import type { Described, Tool, ToolResult } from './tools.ts'
import type { Warn } from './warnings.ts'

/** What a run is made of. */
export type RunInput = {
  /** Asks its model, or one that it falls back to. */
  asking: Asking
  /** Watches a model, for traces. */
  watch?: (model: TextModel, id: string) => TextModel
  prompt: LanguageModelV4Prompt
  /** Index of the message in the prompt that the run answers. */
  question: number
  tools: readonly Tool[]
  /** How often the model is asked, at most. */
  maxTurns: number
  /** How long the model may say nothing, and a tool take (ms). */
  idleTimeout: number
  toolTimeout: number
  /** Made when it is needed: most runs call no tools. */
  steps: () => StepStore
  /** Told of what a tool threw that is nobody's to read. */
  onToolError: (tool: string, error: unknown) => void
  warn: Warn
  /** Aborts when this process is about to end: a run that waits to ask again goes on elsewhere. */
  draining: AbortSignal
  /** Stops it, whoever aborts, and with it all that it has under way. */
  controller: AbortController
}

export type RunUsage = { inputTokens: number; outputTokens: number; usageEstimated: boolean }

/** How far a run has come: what a run that is cut short has used and done, and what one goes on from. */
export type Progress = {
  usage: RunUsage
  /** The steps that called tools. */
  steps: Step[]
  /** What a person has to decide about before the run can go on: it then stops. */
  asks: Ask[]
  /** The parts of the latest reply. */
  last: readonly ReplyPart[]
}

/** A call that a person has to decide about, its tool, and what that says of itself. */
export type Ask = { call: Call; tool: Tool; said: Described }

/**
 * Tells what a run says. Whoever tells waits for what it returns, if anything, before the run goes on; it throws what
 * stops the run.
 */
export type Say = (data: MessageData) => Promise<unknown> | undefined

/**
 * One run: asks the model, step by step while it calls tools, and tells what it says and what they answer. Goes on
 * behind the last step of `progress`, with those of its calls first that have no result. The calls of the last turn
 * that it may take are not made: the run ends with what it has said (contract.md section 3, `maxTurns`). Nothing is kept
 * of it before it has `begun`: the model may have been asked while that is written. Returns why it ended, null if it
 * waits for a person.
 */
export async function run(
  input: RunInput,
  progress: Progress,
  say: Say,
  begun: Promise<void>,
): Promise<StopReason | null> {
  const { usage, steps } = progress
  const { prompt } = input
  for (const step of steps.slice(0, -1)) prompt.push(...toPrompt(step))
  let last = steps.at(-1)
  for (;;) {
    if (last) {
      for await (const result of makeCalls(input, last, progress)) await say(result)
      if (progress.asks.length) return null
      prompt.push(...toPrompt(last))
    }
    const number: number = (last?.step ?? 0) + 1
    if (number > input.maxTurns) return 'max_turns'
    const before = { ...usage }
    const given = await ask(input, prompt, number, usage, say)
    const reply = { ...given, parts: understood(given.parts, input.tools) }
    progress.last = reply.parts
    last = {
      ...reply,
      model: input.asking.current.id,
      step: number,
      usage: difference(usage, before),
      calls: callsOf(reply.parts, input.tools),
    }
    const isLast = number === input.maxTurns
    // Before it is kept: what is kept of a step is forgotten with a run that is stopped meanwhile.
    if (last.calls.length) steps.push(last)
    // Before it is told: whoever takes the run over tells what is missing of a step that is kept, and asks for any other again.
    if (last.calls.length && !isLast) {
      await begun
      await input.steps().save(last)
    }
    await say(assistantEvent(number, reply.parts))
    if (!last.calls.length) return reply.stopReason
    if (isLast) {
      await refuse(last, input.maxTurns, say)
      return 'max_turns'
    }
  }
}

async function refuse({ calls }: Step, maxTurns: number, say: Say): Promise<void> {
  for (const call of calls) {
    call.result = { content: `Not called: the run has reached its limit of ${maxTurns} turns`, isError: true }
    await say(resultEvent(call, call.result))
  }
}

const difference = (usage: RunUsage, before: RunUsage): RunUsage => ({
  inputTokens: usage.inputTokens - before.inputTokens,
  outputTokens: usage.outputTokens - before.outputTokens,
  usageEstimated: usage.usageEstimated,
})

/** A step and its results, as the model is told of them. */
const toPrompt = ({ parts, calls, model }: Step): LanguageModelV4Message[] => [
  {
    role: 'assistant',
    ...writtenBy(model),
    content: parts.flatMap((part) => {
      // Models are told of objects alone, whatever they gave.
      if (part.type === 'tool-call') return { ...part, input: isObject(part.input) ? part.input : {} }
      return part.type === 'reasoning' || part.text ? part : []
    }),
  },
  {
    role: 'tool',
    content: calls.map(({ id, name, result }) => ({
      type: 'tool-result',
      toolCallId: id,
      toolName: name,
      output: outputOf(result),
    })),
  },
]

const picturesOf = ({ pictures = [] }: ToolResult): LanguageModelV4FilePart[] =>
  pictures.map(({ mediaType, data }) => ({ type: 'file', mediaType, data: { type: 'data', data } }))

function outputOf(result: ToolResult | null): LanguageModelV4ToolResultOutput {
  const text = result?.content ?? ''
  if (result?.isError) return { type: 'error-text', value: text }
  if (!result?.pictures?.length) return { type: 'text', value: text }
  return { type: 'content', value: [{ type: 'text', text }, ...picturesOf(result)] }
}
