import type { SharedV4ProviderOptions } from '@ai-sdk/provider'
import type { ApprovalStatus, Db, Prisma, Tx } from '../../../db/client.ts'
import type { Clock } from '../../../lib/clock.ts'
import { isUniqueViolation } from '../../../lib/database-errors.ts'
import { parseExact, withDigitsAsText } from '../../../lib/exact-json.ts'
import { cut } from '../../../lib/text.ts'
import { isObject } from '../../../lib/unknown.ts'
import type { StopReason } from '../../../wire.ts'
import { type ExecutionRow, type MessageData, textOf } from '../events/events.ts'
import { AbortReason } from './abort.ts'
import { retryWhileUnavailable } from './retry.ts'
import type { RunUsage } from './run.ts'
import type { Tool, ToolResult } from './tools.ts'

/** The parts of a model's reply in order, each with the metadata that its provider expects back. */
export type ReplyPart =
  | { type: 'text'; text: string; providerOptions?: SharedV4ProviderOptions }
  | { type: 'reasoning'; text: string; providerOptions?: SharedV4ProviderOptions }
  | {
      type: 'tool-call'
      toolCallId: string
      toolName: string
      /** The text itself if it is no JSON. */
      input: unknown
      providerOptions?: SharedV4ProviderOptions
    }

/**
 * A person's decision about a call; `pending` before it. `digest` is that of the tool's description at the request
 * (null in older versions), `edited` the person's input instead of the model's.
 */
export type Decision = { status: ApprovalStatus; reason: string | null; digest: string | null; edited?: unknown }

export type Call = {
  /** Its position in the step. */
  position: number
  id: string
  name: string
  input: unknown
  /** The target of its tool; empty without a tool, null in rows of older versions. */
  target: string | null
  /** Whether a process that has died since started it. */
  inFlight: boolean
  result: ToolResult | null
  childExecutionId: string | null
  decision: Decision | null
  /** The result of a client's tool that is not part of the run yet. */
  given: ToolResult | null
}

/** The model's reply, and its finish reason. */
export type Reply = { parts: ReplyPart[]; stopReason: StopReason }

/** A reply with tool calls. */
export type Step = Reply & { step: number; usage: RunUsage; calls: Call[]; model: string | null }

/** Its stored form, beside its calls. `isCut` is for processes of older versions. */
type Stored = Pick<Step, 'parts' | 'stopReason' | 'usage' | 'model'> & { isCut: boolean }

/** Returns whether the model finished a call (contract-2.md section 2.8). */
export function isFinished({ stopReason, calls }: Step, { position, input }: Call): boolean {
  if (stopReason === 'end_turn') return true
  // An incomplete call is ignored if a content filter cut the reply.
  if (stopReason !== 'max_tokens' || !isObject(input)) return false
  // Some packages write an empty input if the reply was cut before the input started.
  return position < calls.length - 1 || Object.keys(input).length > 0
}

/** Returns the calls of a new reply, resolved with the tools that its model was offered. */
export const callsOf = (parts: readonly ReplyPart[], tools: readonly Tool[] = []): Call[] =>
  parts
    .flatMap((part) => (part.type === 'tool-call' ? part : []))
    .map(({ toolCallId: id, toolName: name, input }, position) => ({
      position,
      id,
      name,
      input,
      target: tools.find((tool) => tool.name === name)?.target ?? '',
      inFlight: false,
      result: null,
      childExecutionId: null,
      decision: null,
      given: null,
    }))

/** Returns the event of a step. */
export const assistantEvent = (step: number, parts: readonly ReplyPart[]): MessageData => {
  const text = textOf(parts)
  const thinking = parts.map((part) => (part.type === 'reasoning' ? part.text : '')).join('')
  const calls = callsOf(parts).map(({ id, name, input }) => ({ type: 'tool_use' as const, id, name, input }))
  return {
    messageType: 'assistant',
    step,
    text,
    content: [
      ...(thinking ? [{ type: 'thinking' as const, text: thinking }] : []),
      ...(text || !calls.length ? [{ type: 'text' as const, text }] : []),
      ...calls,
    ],
  }
}

/** Returns the message with the result of a call. */
export const resultEvent = ({ id }: Call, { content, isError }: ToolResult): MessageData => ({
  messageType: 'tool_result',
  toolUseId: id,
  content,
  isError,
})

/** A call in the history of a chat. `result` is null if there was none. */
export type CallRecord = { id: string; name: string; input: unknown; result: string | null; isError: boolean }

/** Maximum length of an input and of a result in the history (characters). The events contain them whole. */
const MAX_RECORDED = 10_000

/** Returns the calls of steps for the history of a chat, with long inputs and results cut. */
export const recordsOf = (steps: readonly Step[]): CallRecord[] =>
  steps.flatMap(({ calls }) =>
    calls.map(({ id, name, input, result, given }) => {
      // A run that was cancelled before it went on has results that its client gave.
      const known = result ?? given
      return {
        id,
        name,
        input: brief(input),
        result: known && cut(known.content, MAX_RECORDED),
        isError: known?.isError ?? false,
      }
    }),
  )

function brief(input: unknown): unknown {
  const json = JSON.stringify(input)
  const short = cut(json, MAX_RECORDED)
  return short === json ? withDigitsAsText(input) : short
}

/**
 * Maximum length of a step's thinking, and of a provider's fields of a part, that later turns send back (characters).
 */
const MAX_THINKING = 10_000
const MAX_FIELDS = 20_000
/** Maximum size of all steps of a run that later turns send back (characters). */
const MAX_REPLAY = 100_000

/** The steps of an earlier run as its model wrote them. The inputs are in the records of its calls. */
export type Replay = { model: string | null; steps: ReplyPart[][] }

/**
 * Returns the steps and the last reply of a run, which later turns send back to its model. Returns null if they are
 * only text or too large, because providers accept their absence.
 */
export function replayOf(steps: readonly Step[], last: readonly ReplyPart[], model: string | null): string | null {
  const replies = [...steps, { parts: last, model }]
  if (!steps.length && !last.some(({ type }) => type === 'reasoning')) return null
  // Avoids serializing a value that is too long.
  if (replies.some(({ parts }) => textOf(parts).length > MAX_REPLAY)) return null
  // A model refuses the fields of the one that answered before it, whose reasoning it did not write.
  const isOwn = (author: string | null) => author === null || author === model
  const written = replies.map(({ parts, model: author }) =>
    (isOwn(author) ? parts : parts.filter(({ type }) => type !== 'reasoning').map(withoutFields)).map(shortened),
  )
  const replay: Replay = { model, steps: written }
  const json = JSON.stringify(replay)
  return json.length > MAX_REPLAY ? null : json
}

/** Maximum length of the reasoning of a chat's message (characters). */
const MAX_REASONING = 20_000

/** Returns the reasoning of a run for people, step by step; null if its model showed none. */
export function reasoningOf(steps: readonly Step[], last: readonly ReplyPart[]): string | null {
  const texts = [...steps.map(({ parts }) => parts), last].flatMap((parts) =>
    parts.flatMap((part) => (part.type === 'reasoning' && part.text ? part.text : [])),
  )
  return texts.length ? cut(texts.join('\n\n'), MAX_REASONING) : null
}

function shortened(part: ReplyPart): ReplyPart {
  const kept = keepsFields(part) ? part : withoutFields(part)
  if (kept.type === 'tool-call') return { ...kept, input: {} }
  return kept.type === 'reasoning' ? { ...kept, text: cut(kept.text, MAX_THINKING) } : kept
}

const withoutFields = ({ providerOptions, ...part }: ReplyPart): ReplyPart => part

/**
 * Returns whether later turns have the provider's fields of a part. Anthropic refuses a signature of a shortened text.
 */
function keepsFields({ providerOptions, ...part }: ReplyPart): boolean {
  if (!providerOptions || JSON.stringify(providerOptions).length > MAX_FIELDS) return false
  const isSigned = Object.values(providerOptions).some(({ signature }) => signature !== undefined)
  return !isSigned || part.type !== 'reasoning' || part.text.length <= MAX_THINKING
}

/** Returns the stored steps of a run, in order, with the outcomes of their calls. */
export async function loadSteps(db: Db | Tx, executionId: string): Promise<Step[]> {
  const where = { executionId }
  const rows = await db.executionStep.findMany({ where, orderBy: { step: 'asc' }, include: { toolCalls: true } })
  // The last approval of a call counts.
  const approvals = rows.length ? await db.approval.findMany({ where, orderBy: { round: 'desc' } }) : []
  return rows.map(({ step, reply, toolCalls }) => {
    const stored = parseExact(reply) as Partial<Stored> & Pick<Stored, 'parts' | 'usage'>
    // Steps of older versions have at most a mark that they were cut.
    const { parts, usage, model = null, stopReason = stored.isCut ? 'content_filter' : 'end_turn' } = stored
    const calls = callsOf(parts).map((call): Call => {
      const row = toolCalls.find(({ position }) => position === call.position)
      const asked = approvals.find((approval) => approval.step === step && approval.position === call.position)
      return {
        ...call,
        target: row?.target ?? null,
        inFlight: !!row?.startedAt && !row.completedAt,
        result: row?.completedAt ? { content: row.content ?? '', isError: row.isError } : null,
        childExecutionId: row?.childExecutionId ?? null,
        decision: asked ? decisionOf(asked) : null,
        given: row && !row.completedAt && row.content !== null ? { content: row.content, isError: row.isError } : null,
      }
    })
    return { step, parts, stopReason, usage, calls, model }
  })
}

const decisionOf = ({ status, reason, digest, editedInput }: Prisma.ApprovalGetPayload<object>): Decision => ({
  status,
  reason,
  digest,
  ...(editedInput !== null && { edited: parseExact(editedInput) }),
})

/**
 * Stores the steps of a run. Each write is fenced by its attempt, and throws an {@link AbortReason} (`lost`) if another
 * process took it over.
 */
export type StepStore = {
  /** Stores a reply before any of its calls is made. */
  save(step: Step): Promise<void>
  /** Stores that a call starts. After that no process makes it again. */
  begin(step: number, call: Call): Promise<void>
  /** Stores that a call has not started after all: its server has refused it. */
  undo(step: number, call: Call): Promise<void>
  complete(step: number, call: Call, result: ToolResult): Promise<void>
  /** Stores the run that a call starts, in the transaction that accepts it. */
  adopt(tx: Tx, step: number, call: Call, childExecutionId: string): Promise<void>
  /** Stores a summary of the conversation up to a message. */
  summarize(messageId: string, summary: string): Promise<void>
  /** Returns the run that a call has started, if any. */
  findChild(step: number, call: Call): Promise<string | null>
}

/** Removes the steps of an ended run, which cannot resume. Its events and its message document them. */
export const forgetSteps = (tx: Tx, executionId: string) => tx.executionStep.deleteMany({ where: { executionId } })

type StoreDeps = { db: Db; clock: Clock; leaseDuration: number; signal: AbortSignal }

/**
 * Creates the store of the steps of one attempt. Each write renews the lease (`leaseDuration`, ms), and waits during an
 * outage of the database until `signal` aborts.
 */
export function createStepStore({ signal, ...deps }: StoreDeps, row: ExecutionRow): StepStore {
  const { id: executionId, attempt } = row

  const once = (write: (tx: Tx, now: Date) => Promise<unknown>) =>
    deps.db.$transaction(async (tx) => {
      const now = deps.clock.now()
      const { count } = await tx.execution.updateMany({
        where: { id: executionId, attempt, status: 'running' },
        data: { leaseUntil: new Date(now.getTime() + deps.leaseDuration) },
      })
      if (!count) throw new AbortReason('lost')
      await write(tx, now)
    })

  const fenced = (write: (tx: Tx, now: Date) => Promise<unknown>) => retryWhileUnavailable(() => once(write), signal)

  return {
    async save({ step, parts, stopReason, usage, calls, model }) {
      const reply: Stored = { parts, stopReason, isCut: stopReason !== 'end_turn', usage, model }
      await fenced(async (tx, createdAt) => {
        const data = { executionId, step, reply: JSON.stringify(reply), createdAt }
        await tx.executionStep.create({ data, select: { step: true } })
        await tx.toolCall.createMany({
          data: calls.map(({ position, id: toolUseId, target }) => ({
            executionId,
            step,
            position,
            toolUseId,
            target,
          })),
        })
      }).catch((error) => {
        // It was stored, and only the acknowledgement was lost.
        if (!isUniqueViolation(error)) throw error
      })
    },
    begin: (step, { position }) =>
      fenced((tx, startedAt) =>
        tx.toolCall.updateMany({ where: { executionId, step, position, startedAt: null }, data: { startedAt } }),
      ),
    undo: (step, { position }) =>
      fenced((tx) =>
        tx.toolCall.updateMany({
          where: { executionId, step, position, completedAt: null },
          data: { startedAt: null },
        }),
      ),
    complete: (step, { position }, { content, isError }) =>
      fenced((tx, completedAt) =>
        tx.toolCall.updateMany({ where: { executionId, step, position }, data: { completedAt, content, isError } }),
      ),
    async adopt(tx, step, { position }, childExecutionId) {
      const { count } = await tx.toolCall.updateMany({
        where: { executionId, step, position, completedAt: null, execution: { attempt, status: 'running' } },
        data: { childExecutionId },
      })
      if (!count) throw new AbortReason('lost')
    },
    summarize: (id, summary) => fenced((tx) => tx.message.updateMany({ where: { id }, data: { summary } })),
    async findChild(step, { position }) {
      const found = await deps.db.toolCall.findFirst({
        where: { executionId, step, position },
        select: { childExecutionId: true },
      })
      return found?.childExecutionId ?? null
    },
  }
}
