import type { LanguageModelV4Message, LanguageModelV4Prompt, LanguageModelV4TextPart } from '@ai-sdk/provider'
import type { Db } from '../../../db/client.ts'
import { cut } from '../../../lib/text.ts'
import { isObject } from '../../../lib/unknown.ts'
import type { MediaStorage } from '../../../media/storage.ts'
import type { Settings } from '../../../settings.ts'
import { type ExecutionRow, textOf } from '../events/events.ts'
import type { AgentRow } from '../queue/claims.ts'
import type { Overrides } from '../queue/requests.ts'
import { type Attached, readAttachments } from './attachments.ts'
import { referringTo } from './call-ids.ts'
import { AS_BLOCKED, NO_ANSWER, summaryMessage, writtenBy } from './history.ts'
import type { CallRecord, Replay } from './steps.ts'
import {
  type HistoryRow,
  isQuestion,
  maxHistoryOf,
  readHistory,
  readSummarized,
  wasBlocked,
  withoutBlocked,
} from './stored-history.ts'
import type { Warn } from './warnings.ts'

type UserContent = Extract<LanguageModelV4Message, { role: 'user' }>['content']

type PromptDeps = { db: Db; storage: MediaStorage; settings: Settings }

/** An earlier message of the prompt, with its attachments. */
type Past = HistoryRow & { attached: Attached }

/** An earlier turn: a question and its answer. */
export type PastTurn = {
  rows: readonly HistoryRow[]
  /** Its messages in the prompt. */
  messages: readonly LanguageModelV4Message[]
}

/** The prompt of a run. Its history is the summary, if there is one, and the earlier turns in `past`. */
export type Prompt = { prompt: LanguageModelV4Prompt; past: readonly PastTurn[]; summary: string | null }

/**
 * Builds the prompt: system prompt and instructions, the session's history, the message. The history is cut to what
 * fits, unless its agent has it summarized: see {@link createSummarizer}. `withCalls`: whether the history includes
 * earlier tool calls, which requires tools. Warns about attachments that are not read.
 */
export async function buildPrompt(
  deps: PromptDeps,
  agent: AgentRow,
  execution: ExecutionRow,
  { instructions, withCalls, warn }: { instructions: readonly string[]; withCalls: boolean; warn: Warn },
): Promise<Prompt> {
  const { message, organizationId } = execution
  const ofClient = (execution.overrides as Overrides).instructions ?? []
  const system = [agent.systemPrompt, ...instructions, ofClient].flat().join('\n\n')
  const { summary, rows: stored } =
    agent.history === 'summarize'
      ? await readSummarized(deps, execution)
      : { summary: null, rows: await readHistory(deps, execution) }
  const rows = stored.map(withoutBlocked)
  const earlier = rows.map((row): Past => ({ ...row, attached: isQuestion(row) ? attachedTo(row) : NOTHING }))
  const maxHistory = maxHistoryOf(deps.settings)
  const attachments = [...earlier.map(({ attached }) => attached), attachedTo(execution)]
  const files = await readAttachments({ ...deps, maxHistory, organizationId, warn }, attachments)
  const past: { rows: HistoryRow[]; messages: LanguageModelV4Message[] }[] = []
  for (const [index, row] of rows.entries()) {
    if (row.role === 'user') past.push({ rows: [], messages: [] })
    else if (!past.length) past.push({ rows: [], messages: [UNASKED] })
    const turn = past.at(-1)!
    turn.rows.push(row)
    turn.messages.push(...toMessages(earlier[index]!, index, withCalls, files[index] ?? []))
  }
  for (const { rows, messages } of past) if (messages.length === 1 && isQuestion(rows[0]!)) messages.push(UNANSWERED)
  return {
    prompt: [
      { role: 'system', content: system },
      ...(summary === null ? [] : [summaryMessage(summary)]),
      ...past.flatMap(({ messages }) => messages),
      { role: 'user', content: [text(message), ...(files.at(-1) ?? [])] },
    ],
    past,
    summary,
  }
}

/**
 * Stands for the answer of a run that ended without one, so that its question is not taken for a part of the next one.
 */
const UNANSWERED: LanguageModelV4Message = { role: 'assistant', content: [{ type: 'text', text: NO_ANSWER }] }

/** Stands before an answer that begins the conversation, because some providers take no prompt that begins with one. */
const UNASKED: LanguageModelV4Message = {
  role: 'user',
  content: [{ type: 'text', text: '[The conversation begins with your message]' }],
}

/** Returns an earlier message as messages of the prompt. */
function toMessages(past: Past, index: number, withCalls: boolean, files: UserContent): LanguageModelV4Message[] {
  const { role, content, toolCalls, replay } = past
  if (role === 'user') return [{ role, content: [text(content), ...files], ...(wasBlocked(past) && AS_BLOCKED) }]
  if (replay && withCalls) return replayed(JSON.parse(replay), content, toolCalls, index)
  const answer: LanguageModelV4Message[] = content ? [{ role, content: [text(content)] }] : []
  return [...(withCalls && toolCalls.length ? recall(toolCalls, index) : []), ...answer]
}

const attachedTo = ({ mediaIds, files, spaceId }: Pick<ExecutionRow, 'mediaIds' | 'files' | 'spaceId'>): Attached => ({
  mediaIds: mediaIds as string[],
  files: files as string[],
  spaceId,
})

const NOTHING: Attached = { mediaIds: [], files: [], spaceId: '' }

/** Maximum length of an earlier call's input and result in the history (characters). */
const MAX_RECALLED = 1_000

/**
 * Returns an earlier run step by step with the fields that its model expects back, and shortened inputs and results.
 */
function replayed({ model, steps }: Replay, content: string, calls: readonly CallRecord[], turn: number) {
  const rest = [...calls.entries()]
  const messages = steps.slice(0, -1).flatMap((parts): LanguageModelV4Message[] => {
    const own = rest.splice(0, parts.filter(({ type }) => type === 'tool-call').length)
    const briefs = own.map(([, call]) => call)
    const [assistant, tool] = recall(briefs, turn, own[0]?.[0] ?? 0)
    const made = assistant?.role === 'assistant' ? [...assistant.content] : []
    const ids = parts.flatMap((part) => (part.type === 'tool-call' ? part.toolCallId : []))
    const names = new Map(made.map((call, place) => [ids[place] ?? '', 'toolCallId' in call ? call.toolCallId : '']))
    const assistantParts = parts.flatMap((part) => {
      if (part.type === 'reasoning') return referringTo(names, part)
      if (part.type !== 'tool-call') return part
      const call = made.shift()
      return call ? { ...call, ...(part.providerOptions && { providerOptions: part.providerOptions }) } : []
    })
    return [{ role: 'assistant', ...writtenBy(model), content: assistantParts }, ...(tool ? [tool] : [])]
  })
  const last = (steps.at(-1) ?? []).filter((part) => part.type !== 'tool-call')
  const isOfLast = !steps.at(-1)?.length && textOf(steps.at(-2) ?? []) === content
  if (!content || isOfLast) return messages
  // A text with the fields that its model expects back, unless the message has another text.
  const isWhole =
    last.some(({ type, providerOptions }) => type === 'text' && providerOptions) && textOf(last) === content
  const thoughts = last.filter(({ type }) => type === 'reasoning')
  const answer = isWhole ? last : [...thoughts, text(content)]
  return [...messages, { role: 'assistant' as const, ...writtenBy(model), content: answer }]
}

/**
 * Returns the calls of an earlier run in brief, with new ids, because another provider may reject the original ones.
 */
function recall(calls: readonly CallRecord[], turn: number, first = 0): LanguageModelV4Message[] {
  if (!calls.length) return []
  const called = calls.map(({ name, input, result, isError }, index) => {
    const whole = isObject(input) ? input : {}
    const json = JSON.stringify(whole)
    const short = cut(json, MAX_RECALLED)
    return {
      toolCallId: `call_${turn}_${first + index}`,
      toolName: name,
      input: short === json ? whole : { cut: short },
      output: {
        type: isError || result === null ? ('error-text' as const) : ('text' as const),
        value: cut(result ?? 'The run ended before the tool answered', MAX_RECALLED),
      },
    }
  })
  return [
    { role: 'assistant', content: called.map(({ output, ...call }) => ({ type: 'tool-call', ...call })) },
    { role: 'tool', content: called.map(({ input, ...call }) => ({ type: 'tool-result', ...call })) },
  ]
}

const text = (content: string): LanguageModelV4TextPart => ({ type: 'text', text: content })
