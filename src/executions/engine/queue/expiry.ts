import type { Bus } from '../../../bus/index.ts'
import type { Db } from '../../../db/client.ts'
import { AppError } from '../../../errors.ts'
import type { Clock } from '../../../lib/clock.ts'
import type { ExecutionRow } from '../events/events.ts'
import { type ApprovalRow, decide } from './approvals.ts'
import { expireConnection as expire } from './connections.ts'

type ExpiryDeps = { db: Db; clock: Clock; bus: Bus; resume: (row: ExecutionRow) => void }

/** Creates the functions that end the waits of runs for people who have not acted in time. The runs continue. */
export function createExpiry({ db, clock, bus, resume }: ExpiryDeps) {
  async function expireApproval(approval: ApprovalRow): Promise<void> {
    const decision = { status: 'expired', reason: null, decidedBy: null } as const
    try {
      await db.$transaction((tx) => decide(tx, approval, decision, clock.now()))
    } catch (error) {
      // Another server expired the approval, or a user decided at the last moment.
      if (error instanceof AppError && error.status === 409) return
      throw error
    }
    bus.publish('approval', [approval.id])
    bus.publish('chat', [approval.chatId])
    resume(await db.execution.findUniqueOrThrow({ where: { id: approval.executionId } }))
  }

  /** Expires the wait of a run whose user did not connect to an MCP server. */
  async function expireConnection(row: ExecutionRow): Promise<void> {
    if (!(await db.$transaction((tx) => expire(tx, row, clock.now())))) return
    bus.publish('chat', [row.chatId])
    resume(row)
  }

  return { expireApproval, expireConnection }
}
