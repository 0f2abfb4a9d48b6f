import type { Logger } from 'pino'
import type { Bus } from '../../../bus/index.ts'
import type { Db } from '../../../db/client.ts'
import type { Telemetry } from '../../../telemetry/telemetry.ts'
import { SEQ_BLOCK } from '../events/event-log.ts'
import type { ExecutionRow } from '../events/events.ts'
import * as waits from '../queue/approvals.ts'
import * as claims from '../queue/claims.ts'
import { isDelegated } from '../queue/concurrency.ts'
import * as endings from '../queue/endings.ts'
import { BEGIN, loadRemains } from '../run/checkpoint.ts'
import { failedWith } from '../run/failures.ts'
import type { Launch, Live } from '../run/live.ts'
import { recordsOf, replayOf } from '../run/steps.ts'

export type RecoveryDeps = {
  db: Db
  bus: Bus
  log: Logger
  telemetry: Telemetry
  claimDeps: claims.ClaimDeps
  live: Live
  /** Whether there is no room in this process. */
  isFull: () => boolean
  agentFor: (db: Db, row: ExecutionRow) => Promise<claims.AgentRow | string>
  /** The terminal write; null when the run was taken away. */
  end: (row: ExecutionRow, outcome: endings.Outcome, remains: endings.Remains) => Promise<ExecutionRow | null>
}

/**
 * Goes on with a run whose process has died: behind its last step, or again if it had shown nothing; otherwise it ends
 * as interrupted (contract.md section 4, "Durability"). Where there is no room here it waits for some, anywhere.
 */
export function createRecovery(deps: RecoveryDeps): (left: ExecutionRow) => Promise<void> {
  const { db, bus, log, claimDeps, live } = deps

  async function takeOver(left: ExecutionRow, hasRoom: boolean, launch: Launch): Promise<void> {
    const row = await claims.takeOver(claimDeps, left)
    if (!row) return
    log.warn({ executionId: row.id, attempt: row.attempt }, 'taking over a run whose process has died')
    deps.telemetry.takenOver()
    const { shown, said, warnings, checkpoint } = await loadRemains(db, row)
    const canGoOn = checkpoint !== null || !shown
    const agent = canGoOn && !row.wantsCancel ? await deps.agentFor(db, row) : 'interrupted'
    // What the model was asked by whoever had it before may have been counted, and is not known here.
    const from = checkpoint ?? { ...BEGIN, warnings, usage: { ...BEGIN.usage, usageEstimated: true } }
    const isFound = typeof agent !== 'string'
    if (isFound && (hasRoom || (await isDelegated(db, row)))) {
      launch(row, agent, from)
      bus.publish('execution', [row.id])
      return
    }
    if (isFound && (await waits.waitForRoom(claimDeps, row, from))) {
      bus.publish('execution', [row.id])
      bus.publish('pending', [row.organizationId])
      return
    }
    // One that could go on, and cannot even wait, shall be cancelled since.
    const isCancelled = row.wantsCancel || isFound
    const outcome: endings.Outcome = isCancelled ? endings.CANCELLED : failedWith(agent)
    const { model, inputTokens, outputTokens } = row
    await deps.end(row, outcome, {
      text: said.text,
      toolCalls: recordsOf(checkpoint?.steps ?? []),
      model,
      modelsTried: row.modelsTried as string[],
      usage: checkpoint?.usage ?? { inputTokens, outputTokens, usageEstimated: true },
      warnings,
      replay: replayOf(checkpoint?.steps ?? [], [], model),
      events: [],
      mayBeStored: false,
      terminalSeq: row.seqReserved - SEQ_BLOCK + 1,
      scattered: true,
    })
  }

  return async (left) => {
    if (live.has(left.id)) return
    const hasRoom = !deps.isFull()
    await live.claim((launch) => takeOver(left, hasRoom, launch), hasRoom)
  }
}
