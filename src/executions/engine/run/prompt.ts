import type { LanguageModelV4Message, LanguageModelV4Prompt, LanguageModelV4TextPart } from '@ai-sdk/provider'
import { type Db, Prisma } from '../../../db/client.ts'
import { cut } from '../../../lib/text.ts'
import { isObject } from '../../../lib/unknown.ts'
import type { MediaStorage } from '../../../media/storage.ts'
import type { Settings } from '../../../settings.ts'
import { type ExecutionRow, textOf } from '../events/events.ts'
import type { Overrides } from '../queue/accept.ts'
import type { AgentRow } from '../queue/claims.ts'
import { type Attached, readAttachments } from './attachments.ts'
import { writtenBy } from './history.ts'
import type { CallRecord, Replay } from './steps.ts'
import type { Warn } from './warnings.ts'

type PromptDeps = { db: Db; storage: MediaStorage; settings: Settings }

type Turn = {
  role: 'user' | 'assistant'
  content: string
  toolCalls: readonly CallRecord[]
  /** Attachments of a message. */
  attached: Attached
  /** JSON text of {@link Replay}. */
  replay: string | null
}

/**
 * Builds the prompt: system prompt and instructions, the session's history as far as it fits, the message. `withCalls`:
 * whether the history includes earlier tool calls, which requires tools. Warns about attachments that are not read.
 */
export async function buildPrompt(
  deps: PromptDeps,
  agent: AgentRow,
  execution: ExecutionRow,
  { instructions, withCalls, warn }: { instructions: readonly string[]; withCalls: boolean; warn: Warn },
): Promise<LanguageModelV4Prompt> {
  const { message, organizationId } = execution
  const ofClient = (execution.overrides as Overrides).instructions ?? []
  const system = [agent.systemPrompt, ...instructions, ofClient].flat().join('\n\n')
  const asked: Turn = {
    role: 'user',
    content: message,
    toolCalls: [],
    attached: attachedTo(execution),
    replay: null,
  }
  const turns = [...(await readHistory(deps, execution)), asked]
  const maxHistory = deps.settings.MAX_HISTORY_TOKENS * BYTES_PER_TOKEN
  const attachments = turns.map(({ attached }) => attached)
  const attached = await readAttachments({ ...deps, maxHistory, organizationId, warn }, attachments)
  return [
    { role: 'system', content: system },
    ...turns.flatMap(({ role, content, toolCalls, replay }, index): LanguageModelV4Message[] => {
      if (role === 'user') return [{ role, content: [text(content), ...(attached[index] ?? [])] }]
      if (replay && withCalls) return replayed(JSON.parse(replay), content, toolCalls, index)
      const answer: LanguageModelV4Message[] = content ? [{ role, content: [text(content)] }] : []
      return [...(withCalls && toolCalls.length ? recall(toolCalls, index) : []), ...answer]
    }),
  ]
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
    const said = parts.flatMap((part) => {
      if (part.type !== 'tool-call') return part
      const call = made.shift()
      return call ? { ...call, ...(part.providerOptions && { providerOptions: part.providerOptions }) } : []
    })
    return [{ role: 'assistant', ...writtenBy(model), content: said }, ...(tool ? [tool] : [])]
  })
  const thoughts = (steps.at(-1) ?? []).filter((part) => part.type === 'reasoning')
  const isOfLast = !steps.at(-1)?.length && textOf(steps.at(-2) ?? []) === content
  if (!content || isOfLast) return messages
  return [...messages, { role: 'assistant' as const, ...writtenBy(model), content: [...thoughts, text(content)] }]
}

/**
 * Returns the calls of an earlier run in brief, with new ids, because another provider may reject the original ones.
 */
function recall(calls: readonly CallRecord[], turn: number, first = 0): LanguageModelV4Message[] {
  if (!calls.length) return []
  const called = calls.map(({ name, input, result, isError }, index) => {
    const whole = isObject(input) ? input : {}
    const json = JSON.stringify(whole)
    const told = cut(json, MAX_RECALLED)
    return {
      toolCallId: `call_${turn}_${first + index}`,
      toolName: name,
      input: told === json ? whole : { cut: told },
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

/**
 * Number of messages read at first, which is enough for most sessions, and the maximum number of messages if all of
 * these fit.
 */
const LATEST_MESSAGES = 100
const MAX_MESSAGES = 1_000
/** Estimated bytes per token. Tokenizers differ between models and are not available here. */
const BYTES_PER_TOKEN = 4

type HistoryRow = Pick<Turn, 'role' | 'content' | 'toolCalls' | 'replay'> & {
  position: number
  queueSeq: number
  mediaIds: string[]
  files: string[]
  spaceId: string
}

const TURN = Prisma.sql`m."position", m."role", m."content", m."toolCalls", m."replay", e."queueSeq",
  e."mediaIds", e."files", e."spaceId"`
/** Size of a message (bytes). */
const SIZE = Prisma.sql`octet_length(m."content") + octet_length(CAST(m."toolCalls" AS TEXT))
  + coalesce(octet_length(m."replay"), 0)`

/**
 * Reads the latest turns of a session that fit in `MAX_HISTORY_TOKENS`, beginning with a question; at most {@link
 * MAX_MESSAGES} messages.
 */
async function readHistory(deps: PromptDeps, execution: ExecutionRow): Promise<Turn[]> {
  if (execution.queueSeq === 1) return []
  let rows = await readLatest(deps, execution, LATEST_MESSAGES)
  if (rows.length === LATEST_MESSAGES) rows = await readLatest(deps, execution, MAX_MESSAGES)
  if (rows.length < MAX_MESSAGES && Number(rows[0]?.position) !== 1 && (await isBranch(deps, execution))) {
    rows = await readBranch(deps, execution)
  }
  const begin = rows.findIndex(({ role }) => role === 'user')
  return rows
    .slice(begin === -1 ? rows.length : begin)
    .map((row) => ({ ...row, attached: isQuestion(row) ? attachedTo(row) : NOTHING }))
}

/** Returns whether a message is the question of its run, rather than an answer or history that a client gave. */
const isQuestion = ({ position, queueSeq }: HistoryRow): boolean => Number(position) === Number(queueSeq) * 2 - 1

/** Reads the latest messages that fit. Only the size of the others is read. */
function readLatest(
  { db, settings }: PromptDeps,
  { sessionId, queueSeq }: ExecutionRow,
  limit: number,
): Promise<HistoryRow[]> {
  const room = settings.MAX_HISTORY_TOKENS * BYTES_PER_TOKEN
  const earlier = Prisma.sql`m."sessionId" = ${sessionId} AND m."position" < CAST(${queueSeq * 2 - 1} AS INTEGER)`
  return db.$queryRaw(Prisma.sql`
    SELECT ${TURN}
    FROM "Message" m JOIN "Execution" e ON e."id" = m."executionId"
    WHERE ${earlier} AND m."position" >= (
      SELECT min("position") FROM (
        SELECT "position", sum("size") OVER (ORDER BY "position" DESC) AS "total" FROM (
          SELECT "position", ${SIZE} AS "size"
          FROM "Message" m WHERE ${earlier} ORDER BY "position" DESC LIMIT ${Prisma.raw(String(limit))}) AS "latest"
      ) AS "sized" WHERE "total" <= CAST(${room} AS BIGINT))
    ORDER BY m."position"`)
}

/** Returns whether a session continues another one, whose turns precede its own. */
async function isBranch({ db }: PromptDeps, { sessionId: id }: ExecutionRow): Promise<boolean> {
  const session = await db.session.findUnique({ where: { id }, select: { parentSessionId: true } })
  return session?.parentSessionId != null
}

/**
 * Reads the history of a branch from session to session, each up to the position where the next one continues it, in
 * one statement.
 */
function readBranch({ db, settings }: PromptDeps, { sessionId, queueSeq }: ExecutionRow): Promise<HistoryRow[]> {
  const room = settings.MAX_HISTORY_TOKENS * BYTES_PER_TOKEN
  return db.$queryRaw(Prisma.sql`
    WITH RECURSIVE "path" ("id", "upTo", "parentId", "parentPosition") AS (
      SELECT s."id", CAST(${queueSeq * 2 - 2} AS INTEGER), s."parentSessionId", s."parentPosition"
        FROM "Session" s WHERE s."id" = ${sessionId}
      UNION ALL SELECT s."id", p."parentPosition", s."parentSessionId", s."parentPosition"
        FROM "path" p JOIN "Session" s ON s."id" = p."parentId"
    ), "latest" AS (
      SELECT m."id", m."position" FROM "path" p JOIN "Message" m ON m."sessionId" = p."id" AND m."position" <= p."upTo"
      ORDER BY m."position" DESC LIMIT ${Prisma.raw(String(MAX_MESSAGES))}
    ), "sized" AS (
      SELECT m."id", sum(${SIZE}) OVER (ORDER BY m."position" DESC) AS "total"
      FROM "latest" l JOIN "Message" m ON m."id" = l."id"
    )
    SELECT ${TURN}
    FROM "sized" s JOIN "Message" m ON m."id" = s."id" JOIN "Execution" e ON e."id" = m."executionId"
    WHERE s."total" <= CAST(${room} AS BIGINT)
    ORDER BY m."position"`)
}
