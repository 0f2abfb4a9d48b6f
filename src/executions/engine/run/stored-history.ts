import { type Db, Prisma } from '../../../db/client.ts'
import type { Settings } from '../../../settings.ts'
import type { ExecutionRow } from '../events/events.ts'
import { BLOCKED } from './history.ts'
import type { CallRecord } from './steps.ts'

// The earlier messages of a session, on the path of its branch.

type HistoryDeps = { db: Db; settings: Settings }

/** An earlier message. */
export type HistoryRow = {
  id: string
  role: 'user' | 'assistant'
  content: string
  toolCalls: readonly CallRecord[]
  /** JSON text of {@link Replay}. */
  replay: string | null
  position: number
  /** The number of its run in the session, the run's attachments, and the code of its error. */
  queueSeq: number
  mediaIds: string[]
  files: string[]
  spaceId: string
  errorCode: string | null
}

/**
 * Number of messages read at first, which is enough for most sessions, and the maximum number of messages if all of
 * these fit.
 */
const LATEST_MESSAGES = 100
const MAX_MESSAGES = 1_000
/** Estimated bytes per token. Tokenizers differ between models and are not available here. */
const BYTES_PER_TOKEN = 4
/** Maximum size of the messages beyond those that fit that are read to be summarized (bytes). */
const MAX_SUMMARIZED = 4 * 1024 * 1024

const MESSAGE = Prisma.sql`m."id", m."position", m."role", m."content", m."toolCalls", m."replay", e."queueSeq",
  e."mediaIds", e."files", e."spaceId", e."errorCode"`
/** Size of a message (bytes). */
const SIZE = Prisma.sql`octet_length(m."content") + octet_length(CAST(m."toolCalls" AS TEXT))
  + coalesce(octet_length(m."replay"), 0)`

/** Position of the first answer of a session. A client may begin its conversation with one. */
const FIRST_ANSWER = 2

/** Returns the maximum size of the history in a prompt (bytes). */
export const maxHistoryOf = ({ MAX_HISTORY_TOKENS }: Pick<Settings, 'MAX_HISTORY_TOKENS'>): number =>
  MAX_HISTORY_TOKENS * BYTES_PER_TOKEN

/**
 * Reads the latest turns of a session that fit in `MAX_HISTORY_TOKENS`, beginning with a question or the first answer; at
 * most {@link MAX_MESSAGES} messages.
 */
export async function readHistory(deps: HistoryDeps, execution: ExecutionRow): Promise<HistoryRow[]> {
  if (execution.queueSeq === 1) return []
  let rows = await readLatest(deps, execution, LATEST_MESSAGES)
  if (rows.length === LATEST_MESSAGES) rows = await readLatest(deps, execution, MAX_MESSAGES)
  if (rows.length < MAX_MESSAGES && Number(rows[0]?.position) !== 1 && (await isBranch(deps, execution))) {
    rows = await readPath(deps, execution, { after: 0, maxSize: maxHistoryOf(deps.settings) })
  }
  return fromQuestion(rows)
}

/**
 * Reads the latest summary on the path of a session, and the turns after it: those that fit in `MAX_HISTORY_TOKENS`,
 * and those before them that can be summarized.
 */
export async function readSummarized(
  deps: HistoryDeps,
  execution: ExecutionRow,
): Promise<{ summary: string | null; rows: HistoryRow[] }> {
  const max = maxHistoryOf(deps.settings)
  if (execution.queueSeq === 1 || max === 0) return { summary: null, rows: [] }
  const found = await findSummary(deps, execution)
  const after = Number(found?.position ?? 0)
  const rows = await readPath(deps, execution, { after, maxSize: max + MAX_SUMMARIZED })
  return { summary: found?.summary ?? null, rows: fromQuestion(rows) }
}

function fromQuestion(rows: HistoryRow[]): HistoryRow[] {
  if (Number(rows[0]?.position) === FIRST_ANSWER) return rows
  const begin = rows.findIndex(({ role }) => role === 'user')
  return rows.slice(begin === -1 ? rows.length : begin)
}

/** Returns whether a message is the question of its run, rather than an answer or history that a client gave. */
export const isQuestion = ({ position, queueSeq }: Pick<HistoryRow, 'position' | 'queueSeq'>): boolean =>
  Number(position) === Number(queueSeq) * 2 - 1

/**
 * Returns whether the content filter of a provider blocked the run of a message, unless it is history that a client
 * gave.
 */
export const wasBlocked = ({ position, queueSeq, errorCode }: HistoryRow): boolean =>
  errorCode === 'content_filtered' && Number(position) >= Number(queueSeq) * 2 - 1

/**
 * Returns a message without its contents if its run was blocked, because the filter would block every later prompt that
 * has them. Keeps the names and inputs of its calls.
 */
export function withoutBlocked(row: HistoryRow): HistoryRow {
  if (!wasBlocked(row)) return row
  if (row.role === 'user') return { ...row, content: BLOCKED, mediaIds: [], files: [] }
  const toolCalls = row.toolCalls.map(({ result, ...call }) => ({ ...call, result: result === null ? null : BLOCKED }))
  return { ...row, content: '', replay: null, toolCalls }
}

/** Reads the latest messages that fit. Only the size of the others is read. */
function readLatest(
  { db, settings }: HistoryDeps,
  { sessionId, queueSeq }: ExecutionRow,
  limit: number,
): Promise<HistoryRow[]> {
  const earlier = Prisma.sql`m."sessionId" = ${sessionId} AND m."position" < CAST(${queueSeq * 2 - 1} AS INTEGER)`
  return db.$queryRaw(Prisma.sql`
    SELECT ${MESSAGE}
    FROM "Message" m JOIN "Execution" e ON e."id" = m."executionId"
    WHERE ${earlier} AND m."position" >= (
      SELECT min("position") FROM (
        SELECT "position", sum("size") OVER (ORDER BY "position" DESC) AS "total" FROM (
          SELECT "position", ${SIZE} AS "size"
          FROM "Message" m WHERE ${earlier} ORDER BY "position" DESC LIMIT ${Prisma.raw(String(limit))}) AS "latest"
      ) AS "sized" WHERE "total" <= CAST(${maxHistoryOf(settings)} AS BIGINT))
    ORDER BY m."position"`)
}

/** Returns whether a session continues another one, whose turns precede its own. */
async function isBranch({ db }: HistoryDeps, { sessionId: id }: ExecutionRow): Promise<boolean> {
  const session = await db.session.findUnique({ where: { id }, select: { parentSessionId: true } })
  return session?.parentSessionId != null
}

/** Returns the SQL of the sessions on the path of a run, each up to the position where the next one continues it. */
const pathOf = ({ sessionId, queueSeq }: ExecutionRow) => Prisma.sql`
  "path" ("id", "upTo", "parentId", "parentPosition") AS (
    SELECT s."id", CAST(${queueSeq * 2 - 2} AS INTEGER), s."parentSessionId", s."parentPosition"
      FROM "Session" s WHERE s."id" = ${sessionId}
    UNION ALL SELECT s."id", p."parentPosition", s."parentSessionId", s."parentPosition"
      FROM "path" p JOIN "Session" s ON s."id" = p."parentId")`

/** Finds the latest summary on the path of a run. A branch has no messages, and no summary, beyond its beginning. */
async function findSummary({ db }: HistoryDeps, execution: ExecutionRow) {
  const [found] = await db.$queryRaw<{ position: number; summary: string }[]>(Prisma.sql`
    WITH RECURSIVE ${pathOf(execution)}
    SELECT m."position", m."summary"
    FROM "path" p JOIN "Message" m ON m."sessionId" = p."id" AND m."position" <= p."upTo"
    WHERE m."summary" IS NOT NULL ORDER BY m."position" DESC LIMIT 1`)
  return found
}

/**
 * Reads the latest messages on the path of a run that fit in `maxSize` (bytes), behind a position, in one statement.
 */
function readPath(
  { db }: HistoryDeps,
  execution: ExecutionRow,
  { after, maxSize }: { after: number; maxSize: number },
): Promise<HistoryRow[]> {
  return db.$queryRaw(Prisma.sql`
    WITH RECURSIVE ${pathOf(execution)}, "latest" AS (
      SELECT m."id", m."position" FROM "path" p
      JOIN "Message" m ON m."sessionId" = p."id" AND m."position" <= p."upTo" AND m."position" > CAST(${after} AS INTEGER)
      ORDER BY m."position" DESC LIMIT ${Prisma.raw(String(MAX_MESSAGES))}
    ), "sized" AS (
      SELECT m."id", sum(${SIZE}) OVER (ORDER BY m."position" DESC) AS "total"
      FROM "latest" l JOIN "Message" m ON m."id" = l."id"
    )
    SELECT ${MESSAGE}
    FROM "sized" s JOIN "Message" m ON m."id" = s."id" JOIN "Execution" e ON e."id" = m."executionId"
    WHERE s."total" <= CAST(${maxSize} AS BIGINT)
    ORDER BY m."position"`)
}
