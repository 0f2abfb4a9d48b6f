import type { Logger } from 'pino'
import { type Db, Prisma, type Tx } from '../../../db/client.ts'
import type { Clock } from '../../../lib/clock.ts'
import { newSortableId } from '../../../lib/id.ts'
import type { Settings } from '../../../settings.ts'
import type { ExecutionRow } from '../events/events.ts'
import { SEQ_BLOCK } from '../events/run-stream.ts'
import type { CallRecord } from '../run/steps.ts'
import { isDelegated, takeSlot } from './concurrency.ts'
import type { RunHooks } from './run-hooks.ts'

/** Columns of the agent that a run uses, as of the start of the run. */
export type AgentRow = Pick<
  Prisma.AgentGetPayload<object>,
  | 'id'
  | 'organizationId'
  | 'version'
  | 'name'
  | 'role'
  | 'description'
  | 'systemPrompt'
  | 'model'
  | 'maxTurns'
  | 'contextWindow'
  | 'history'
  | 'requireTools'
  | 'skillIds'
  | 'skillRefs'
  | 'visibility'
  | 'mcpInstanceIds'
  | 'mcpTypes'
  | 'subagentIds'
  | 'allowedTools'
  | 'disallowedTools'
  | 'fallbackModels'
> & {
  /** Settings of the agent's model (`ModelSettings`). */
  modelSettings: unknown
  /** Form of the agent's answers (`Output`); null or `{}` for plain text. */
  output: unknown
}

export type ClaimDeps = {
  db: Db
  clock: Clock
  owner: string
  /** Lease duration (ms). */
  leaseDuration: number
  /** SQL suffixes of a SELECT that lock its rows: `rowLock` waits for locked rows, `freeRowLock` skips them. */
  rowLock: Prisma.Sql
  freeRowLock: Prisma.Sql
  /** Maximum number of running and of pending runs per organization. */
  limits: { running: number | undefined; pending: number | undefined }
  settings: Settings
  runHooks: readonly RunHooks[]
}

/** Maximum waiting time that is recorded for a run (ms, 24 days), limited by the column. */
export const MAX_WAITED = 2 ** 31 - 1

/** Maximum length of a text in list previews (characters). */
export const PREVIEW_LENGTH = 200

// Lock order, which prevents deadlocks: the execution, its delegates, its session, its chat, the mission counts if it
// completes a mission (`lockMissionCounts`), its organization, then its task or mission and the day's usage. On
// PostgreSQL, creating a chat also locks the chat counts. A transaction that changes the visibility of a mission takes
// that lock first (`lockCounts`), and the lock of the mission counts before it. Rows are inserted with `createMany`,
// which does not read them back.

const claimed = ({ owner, leaseDuration }: ClaimDeps, now: Date, attempt: number, seqReserved: number) => ({
  status: 'running' as const,
  attempt: attempt + 1,
  seqReserved: seqReserved + SEQ_BLOCK,
  leaseOwner: owner,
  leaseUntil: new Date(now.getTime() + leaseDuration),
})

/** Returns the row of a run that this process claims as it accepts it. */
export const begun = (deps: ClaimDeps, row: ExecutionRow, since: Date): ExecutionRow => ({
  ...row,
  ...claimed(deps, since, row.attempt, row.seqReserved),
  startedAt: since,
})

/**
 * Claims a pending run that holds its session's lock, for execution with this agent. Returns null if another process
 * was first, the run has ended, or its organization has no capacity.
 */
export async function claimPending(
  deps: ClaimDeps,
  row: ExecutionRow,
  { version: agentVersion }: AgentRow,
): Promise<ExecutionRow | null> {
  const now = deps.clock.now()
  const claim = deps.db.$transaction(async (tx) => {
    const waited = row.waitingSince ? Math.max(0, now.getTime() - row.waitingSince.getTime()) : 0
    const [execution] = await tx.execution.updateManyAndReturn({
      where: { id: row.id, status: 'pending', attempt: row.attempt, waitingFor: null },
      data: {
        ...claimed(deps, now, row.attempt, row.seqReserved),
        agentVersion,
        startedAt: row.startedAt ?? now,
        waitingSince: null,
        waitedMs: Math.min(row.waitedMs + waited, MAX_WAITED),
        updatedAt: now,
      },
    })
    if (!execution) return null
    if (!(await takeSlot(tx, deps, row.organizationId, await isDelegated(tx, row)))) throw new NoCapacity()
    if (row.attempt === 0) await writeMessage(tx, execution, 'user', execution.message, now)
    return execution
  })
  return claim.catch((error) => {
    if (error instanceof NoCapacity) return null
    throw error
  })
}

/** Thrown to roll back a claim if the organization has no capacity. */
class NoCapacity extends Error {
  override name = 'NoCapacity'
}

/**
 * Takes over a run whose process has died, on the condition that its attempt is unchanged. Also returns null while
 * another transaction holds its row: a hung process may hold it for long, and other runs must not wait for it.
 */
export async function takeOver(deps: ClaimDeps, row: ExecutionRow): Promise<ExecutionRow | null> {
  return deps.db.$transaction(async (tx) => {
    const free = await tx.$queryRaw<unknown[]>(Prisma.sql`
      SELECT "id" FROM "Execution" WHERE "id" = ${row.id} ${deps.freeRowLock}`)
    if (!free.length) return null
    const now = deps.clock.now()
    const [execution] = await tx.execution.updateManyAndReturn({
      where: { id: row.id, status: 'running', attempt: row.attempt, leaseUntil: row.leaseUntil },
      data: { ...claimed(deps, now, row.attempt, row.seqReserved), updatedAt: now },
    })
    return execution ?? null
  })
}

/**
 * Expires the leases of the remaining runs of this process, so that the next sweep of any process takes them over. If
 * this fails, the leases expire by themselves.
 */
export async function releaseLeases({ db, clock, owner }: ClaimDeps, log: Logger): Promise<void> {
  const where = { terminalSeq: null, status: 'running' as const, leaseOwner: owner }
  await db.execution
    .updateMany({ where, data: { leaseUntil: clock.now() } })
    .catch((error) => log.error({ err: error }, 'failed to release the leases of the remaining runs'))
}

/** Returns the time of the message before a position of a session, if there is one. Most sessions are no branches. */
async function writtenBefore(tx: Tx, { sessionId }: ExecutionRow, position: number): Promise<Date | undefined> {
  const find = (where: Prisma.MessageWhereInput) =>
    tx.message.findFirst({ where, orderBy: { position: 'desc' }, select: { createdAt: true } })
  const own = await find({ sessionId, position: { lt: position } })
  if (own) return own.createdAt
  // The first message of a branch follows a message of another session.
  const of = { parentSessionId: true, parentPosition: true }
  const branch = await tx.session.findUnique({ where: { id: sessionId }, select: of })
  if (!branch?.parentSessionId) return undefined
  return (await find({ sessionId: branch.parentSessionId, position: { lte: branch.parentPosition ?? 0 } }))?.createdAt
}

/**
 * Writes the question of a run to its session when the run starts, and the answer when it ends. No message is older
 * than its predecessor even if the clock was set back, because chats are sorted by these times.
 */
export async function writeMessage(
  tx: Tx,
  execution: ExecutionRow,
  role: 'user' | 'assistant',
  content: string,
  now: Date,
  {
    interrupted = false,
    toolCalls = [],
    replay = null,
    reasoning = null,
  }: {
    interrupted?: boolean
    toolCalls?: readonly CallRecord[]
    replay?: string | null
    reasoning?: string | null
  } = {},
): Promise<void> {
  const { organizationId, chatId, sessionId, id: executionId, queueSeq } = execution
  const position = queueSeq * 2 - (role === 'user' ? 1 : 0)
  const before = queueSeq === 1 ? execution.startedAt : await writtenBefore(tx, execution, position)
  const createdAt = before && before > now ? before : now
  const id = newSortableId(createdAt)
  const data = { id, organizationId, chatId, sessionId, executionId, position, role, content, createdAt }
  const calls = toolCalls as Prisma.InputJsonArray
  await tx.message.createMany({ data: { ...data, interrupted, replay, reasoning, toolCalls: calls } })
}
