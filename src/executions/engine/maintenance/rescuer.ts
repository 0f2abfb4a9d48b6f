import type { Logger } from 'pino'
import type { Bus } from '../../../bus/index.ts'
import type { Db } from '../../../db/client.ts'
import type { Telemetry } from '../../../telemetry/telemetry.ts'
import type { ExecutionRow } from '../events/events.ts'
import { SEQ_BLOCK } from '../events/run-stream.ts'
import * as waits from '../queue/approvals.ts'
import * as claims from '../queue/claims.ts'
import { isDelegated } from '../queue/concurrency.ts'
import * as endings from '../queue/endings.ts'
import { BEGIN, type Recovered, recoverCheckpoint } from '../run/checkpoint.ts'
import { failedWith } from '../run/failures.ts'
import type { Launch, Live } from '../run/live.ts'
import { reasoningOf, recordsOf, replayOf } from '../run/steps.ts'

export type RescuerDeps = {
  db: Db
  bus: Bus
  log: Logger
  telemetry: Telemetry
  claimDeps: claims.ClaimDeps
  live: Live
  /** Whether this process has no free slot. */
  isFull: () => boolean
  agentFor: (db: Db, row: ExecutionRow) => Promise<claims.AgentRow | string>
  /** Writes the final state. Returns null if another process took the run over. */
  end: (row: ExecutionRow, outcome: endings.Outcome, final: endings.FinalState) => Promise<ExecutionRow | null>
}

/**
 * Resumes a run whose process has died: after its last step, or from the start if it had published nothing. Otherwise
 * the run ends as interrupted (contract.md section 4, "Durability"). Without capacity here, the run waits until any
 * process has some.
 */
export function createRescuer(deps: RescuerDeps): (left: ExecutionRow) => Promise<void> {
  const { db, bus, log, claimDeps, live } = deps

  async function takeOver(left: ExecutionRow, hasCapacity: boolean, launch: Launch): Promise<void> {
    const row = await claims.takeOver(claimDeps, left)
    if (!row) return
    log.warn({ executionId: row.id, attempt: row.attempt }, 'taking over a run of a dead process')
    deps.telemetry.takenOver()
    const recovered = await recoverCheckpoint(db, row)
    const { hasOutput, warnings, checkpoint } = recovered
    const canResume = checkpoint !== null || !hasOutput
    const agent = canResume && !row.wantsCancel ? await deps.agentFor(db, row) : 'interrupted'
    // The dead process may have used tokens that are counted nowhere.
    const from = checkpoint ?? { ...BEGIN, warnings, usage: { ...BEGIN.usage, usageEstimated: true } }
    const isFound = typeof agent !== 'string'
    if (isFound && (hasCapacity || (await isDelegated(db, row)))) {
      launch(row, agent, from)
      bus.publish('execution', [row.id])
      return
    }
    if (isFound && (await waits.waitForCapacity(claimDeps, row, from))) {
      bus.publish('execution', [row.id])
      bus.publish('pending', [row.organizationId])
      return
    }
    // A run that could resume but cannot even be suspended was marked for cancellation meanwhile.
    const isCancelled = row.wantsCancel || isFound
    await deps.end(row, isCancelled ? endings.CANCELLED : failedWith(agent), finalOf(row, recovered))
  }

  return async (left) => {
    if (live.has(left.id)) return
    const hasCapacity = !deps.isFull()
    await live.claim((launch) => takeOver(left, hasCapacity, launch), hasCapacity)
  }
}

/** Returns the final state of a run that cannot resume: its published text, and its complete steps. */
function finalOf(row: ExecutionRow, { answer, warnings, checkpoint }: Recovered): endings.FinalState {
  const { model, inputTokens, outputTokens } = row
  const steps = checkpoint?.steps ?? []
  return {
    text: answer.text,
    toolCalls: recordsOf(steps),
    model,
    modelsTried: row.modelsTried as string[],
    usage: checkpoint?.usage ?? { inputTokens, outputTokens, usageEstimated: true },
    warnings,
    replay: replayOf(steps, [], model),
    reasoning: reasoningOf(steps, []),
    events: [],
    mayBeStored: false,
    terminalSeq: row.seqReserved - SEQ_BLOCK + 1,
    scattered: true,
  }
}
