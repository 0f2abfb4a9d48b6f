import { type Db, Prisma, type Tx } from '../../../db/client.ts'
import type { Clock } from '../../../lib/clock.ts'
import { newSortableId } from '../../../lib/id.ts'
import { SEQ_BLOCK } from '../events/event-log.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { CallRecord } from '../run/steps.ts'
import { isDelegated, takeSlot } from './concurrency.ts'

/** What a run needs to know of its agent, as it was when the run began. */
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
  /** Settings of its model, as `ModelSettings` has them. */
  modelSettings: unknown
}

export type ClaimDeps = {
  db: Db
  clock: Clock
  owner: string
  /** In milliseconds. */
  leaseDuration: number
  /** What stands at the end of a SELECT that locks its rows; and of one that leaves out those that somebody has locked. */
  rowLock: Prisma.Sql
  freeRowLock: Prisma.Sql
  /** How many runs of an organization may run, and wait. */
  limits: { running: number | undefined; pending: number | undefined }
  /** Takes the locks of what `settle` changes that come before the organization's. */
  lockSettled: (tx: Tx, ended: ExecutionRow) => Promise<void>
  /**
   * What else changes when an execution ends, last in the same transaction: many runs may count in one row, which is
   * locked from then on.
   */
  settle: (tx: Tx, ended: ExecutionRow, now: Date) => Promise<void>
}

/** How much of a run's waiting is counted at most (ms, 24 days): what the column holds. */
export const MAX_WAITED = 2 ** 31 - 1

/** How much of a text is told where a list shows it. */
export const PREVIEW_LENGTH = 200

// Locks are taken in one order, so that no two transactions wait for each other: the execution, those that its calls have
// started, its session, its chat, the counts of missions if it completes one (`lockMissionCounts`), its organization, then
// what it was for (a task, a mission) and its day's usage. With a new chat PostgreSQL takes the lock of its counts, too:
// whoever changes what hides a mission takes that one first (`lockCounts`), and those of missions before it. Rows are made
// by `createMany`, which reads nothing back.

const claimed = ({ owner, leaseDuration }: ClaimDeps, now: Date, attempt: number, seqReserved: number) => ({
  status: 'running' as const,
  attempt: attempt + 1,
  seqReserved: seqReserved + SEQ_BLOCK,
  leaseOwner: owner,
  leaseUntil: new Date(now.getTime() + leaseDuration),
})

/** The row of a run that this process claims as it accepts it. */
export const begun = (deps: ClaimDeps, row: ExecutionRow, since: Date): ExecutionRow => ({
  ...row,
  ...claimed(deps, since, row.attempt, row.seqReserved),
  startedAt: since,
})

/**
 * Claims a pending run that holds its session's lock, to be run with this agent. Null when another process was first,
 * when it has ended, or when its organization has no room for it yet.
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
    if (!(await takeSlot(tx, deps, row.organizationId, await isDelegated(tx, row)))) throw new NoRoom()
    if (row.attempt === 0) await writeMessage(tx, execution, 'user', execution.message, now)
    return execution
  })
  return claim.catch((error) => {
    if (error instanceof NoRoom) return null
    throw error
  })
}

/** The organization has no room for a run, whose claim is undone. */
class NoRoom extends Error {
  override name = 'NoRoom'
}

/**
 * Takes over a run whose process has died: the attempt as read is the condition. Null, too, while somebody has its row
 * locked: a process that hangs may have it for long, and others wait to be taken over.
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

/** Returns when the message before a position of a session was written, if there is one. Most sessions are no branches. */
async function writtenBefore(tx: Tx, { sessionId }: ExecutionRow, position: number): Promise<Date | undefined> {
  const find = (where: Prisma.MessageWhereInput) =>
    tx.message.findFirst({ where, orderBy: { position: 'desc' }, select: { createdAt: true } })
  const own = await find({ sessionId, position: { lt: position } })
  if (own) return own.createdAt
  // The first message of a branch comes behind one of another session.
  const of = { parentSessionId: true, parentPosition: true }
  const branch = await tx.session.findUnique({ where: { id: sessionId }, select: of })
  if (!branch?.parentSessionId) return undefined
  return (await find({ sessionId: branch.parentSessionId, position: { lte: branch.parentPosition ?? 0 } }))?.createdAt
}

/**
 * Writes what a run leaves in its session's history: its question when it begins, its answer when it ends. No message is
 * older than the one before it, though the clock was put back meanwhile: chats are listed by these times.
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
  }: { interrupted?: boolean; toolCalls?: readonly CallRecord[]; replay?: string | null } = {},
): Promise<void> {
  const { organizationId, chatId, sessionId, id: executionId, queueSeq } = execution
  const position = queueSeq * 2 - (role === 'user' ? 1 : 0)
  const before = queueSeq === 1 ? execution.startedAt : await writtenBefore(tx, execution, position)
  const createdAt = before && before > now ? before : now
  const id = newSortableId(createdAt)
  const data = { id, organizationId, chatId, sessionId, executionId, position, role, content, createdAt }
  await tx.message.createMany({ data: { ...data, interrupted, replay, toolCalls: toolCalls as Prisma.InputJsonArray } })
}
