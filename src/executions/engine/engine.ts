import type { Logger } from 'pino'
import type { Bus } from '../../bus/index.ts'
import { type Db, freeRowLock, rowLock } from '../../db/client.ts'
import { unavailable } from '../../errors.ts'
import type { Clock } from '../../lib/clock.ts'
import { isUnavailable } from '../../lib/database-errors.ts'
import { newId } from '../../lib/id.ts'
import { onceDone } from '../../lib/once.ts'
import { raceAbort, raceTimeout } from '../../lib/race-abort.ts'
import type { MediaStorage } from '../../media/storage.ts'
import type { Pause } from '../../pause.ts'
import type { Settings } from '../../settings.ts'
import type { Telemetry } from '../../telemetry/telemetry.ts'
import { createCompaction } from './events/compaction.ts'
import { createEventLog } from './events/event-log.ts'
import type { Edge, ExecutionEvent, ExecutionRow } from './events/events.ts'
import { createNotices } from './events/notices.ts'
import { followRun, whenEnded } from './events/subscribe.ts'
import { createMaintenance } from './maintenance/maintenance.ts'
import { createRescuer } from './maintenance/rescuer.ts'
import { UNEXPECTED } from './models/model-errors.ts'
import { createModelKnowledge } from './models/model-knowledge.ts'
import type { Models } from './models/models.ts'
import { accept, type Request, SessionTaken } from './queue/accept.ts'
import { createCancel } from './queue/cancel.ts'
import { createCapacity } from './queue/capacity.ts'
import * as claims from './queue/claims.ts'
import { countRunning } from './queue/concurrency.ts'
import * as endings from './queue/endings.ts'
import { createExpiry } from './queue/expiry.ts'
import { type RunHooks, registeredRunHooks } from './queue/run-hooks.ts'
import { createBreaker } from './run/breaker.ts'
import { BEGIN, loadCheckpoint } from './run/checkpoint.ts'
import { failedWith } from './run/failures.ts'
import { createLive, type Launch } from './run/live.ts'
import { readSpace } from './run/space.ts'
import type { OpenTools } from './run/tools.ts'

export type EngineDeps = {
  settings: Settings
  db: Db
  clock: Clock
  bus: Bus
  log: Logger
  models: Models
  storage: MediaStorage
  /**
   * Returns the agent of a run that is about to start or resume if its user may still run it (contract.md section 2).
   * Otherwise returns the reason of the failure.
   */
  agentFor: (db: Db, row: ExecutionRow) => Promise<claims.AgentRow | string>
  /** By default those that the resources have registered. */
  runHooks?: readonly RunHooks[]
  openTools: OpenTools
  telemetry: Telemetry
  pause: Pause
}

/** Accepts, executes, recovers and finishes executions, and streams their events. */
export type Engine = {
  /**
   * Accepts a run and starts it if its session is free. Throws the errors of `accept`, 403 if it would interrupt a run
   * that its user may not cancel, and 503 during a drain.
   */
  accept(request: Request): Promise<ExecutionRow>
  follow(row: Edge, after: number, signal: AbortSignal): AsyncGenerator<readonly ExecutionEvent[]>
  /** Aborted when this process shuts down. Event streams end then. */
  stopped: AbortSignal
  /** Returns the execution once it has ended, or its current state if one of the signals aborts first. */
  ended(row: ExecutionRow, ...signals: AbortSignal[]): Promise<ExecutionRow>
  /**
   * Cancels the execution and its descendants unless they have ended, on behalf of `by`. Returns the resulting
   * execution.
   */
  cancel(row: ExecutionRow, by: endings.Canceller): Promise<ExecutionRow>
  /** Resumes a run whose approvals have been decided, as soon as there is capacity. */
  resume(row: Pick<ExecutionRow, 'id' | 'organizationId'>): void
  /**
   * Starts maintenance and recovers orphaned runs, unless this process only serves the API. `exclusive`: no other
   * process uses this database.
   */
  start(exclusive: boolean): Promise<void>
  /** Imports the modules of the first run. */
  preload(): Promise<unknown>
  /**
   * Rejects new runs, lets live runs finish until the timeout, hands the rest to other processes and ends the streams.
   */
  drain(): Promise<void>
}

/** Fallback result for a run whose final state the database rejects. */
const NOTHING = {
  text: '',
  toolCalls: [],
  usage: { ...BEGIN.usage, usageEstimated: true },
  warnings: [],
  replay: null,
  reasoning: null,
  events: [],
}

/** Maximum time a cancel request waits for the run to end before it responds (ms). */
const CANCEL_PATIENCE = 5_000
/**
 * Maximum time that shutdown waits for the last runs to stop, for maintenance, and for the lease release to be stored,
 * each (ms).
 */
const HAND_BACK_PATIENCE = 1_000

/** Creates the engine of this process. It does nothing until it is started. */
export function createEngine(deps: EngineDeps): Engine {
  const { settings, db, clock, bus, log, pause } = deps
  const owner = newId()
  const leaseDuration = settings.LEASE_DURATION
  const limits = { running: settings.MAX_RUNNING_PER_ORGANIZATION, pending: settings.MAX_PENDING_RUNS }
  const lock = rowLock(settings)
  const locks = { rowLock: lock, freeRowLock: freeRowLock(settings) }
  const { runHooks = registeredRunHooks() } = deps
  const claimDeps: claims.ClaimDeps = { settings, db, clock, owner, leaseDuration, ...locks, limits, runHooks }
  const onStored = (ids: string[]) => bus.publish('execution', ids)
  const eventLog = createEventLog({ db, clock, log, owner, rowLock: lock, onStored })
  const notices = createNotices(bus)
  const compaction = createCompaction(db)
  const stopped = new AbortController()
  const leaving = new AbortController()
  const asking = { breaker: createBreaker(clock), knowledge: createModelKnowledge(clock) }
  /** Whether this process executes runs or only accepts them for other processes. */
  const runs = settings.ROLE !== 'api'
  let draining = false
  const capacity = createCapacity({
    db,
    limits: { process: runs ? settings.MAX_RUNNING : 0, organization: limits.running },
    log,
    taken: () => live.taken(),
    begin: startPending,
  })

  // Imported by `preload`, or with an earlier run, because the modules would delay the start.
  const attempts = onceDone(async () => {
    const { createAttempts } = await import('./run/attempt.ts')
    const signals = { draining: leaving.signal, stopped: stopped.signal }
    return createAttempts({ ...deps, ...signals, asking, claimDeps, eventLog, end: endRun })
  })
  const live = createLive({
    eventLog,
    log,
    attempt: async (...given) => (await attempts())(...given),
    stopped: stopped.signal,
    onLeft(executionId) {
      deps.telemetry.left(executionId)
      if (capacity.isWanted()) background(capacity.fill())
    },
  })
  const { cancelTree, findBusy, stopMarked } = createCancel({ db, bus, claimDeps, live, notifyRunEnded })
  const followDeps = { db, eventLog, live, notices, stopped: stopped.signal }

  const subscriptions = [
    bus.subscribe('provider', asking.knowledge.forget),
    bus.subscribe('cancel', (ids) => {
      if (!ids) background(stopMarked(), 'failed to poll for cancelled runs')
      for (const id of ids ?? []) live.cancel(id)
    }),
    bus.subscribe('pending', (ids) => {
      if (!runs || draining || pause.isPaused()) return
      for (const organizationId of ids ?? []) capacity.wait(organizationId)
      background(capacity.fill())
    }),
  ]

  /** A run marked for cancellation can only end as cancelled. */
  const finish = async (row: ExecutionRow, outcome: endings.Outcome, final: endings.FinalState) =>
    (await endings.finish(claimDeps, row, outcome, final)) ??
    (await endings.finish(claimDeps, row, endings.CANCELLED, final))

  /**
   * Writes the final state. Returns null if another process took the run over. If the database rejects the data, the
   * run fails without it, because it would otherwise never end.
   */
  async function endRun(row: ExecutionRow, outcome: endings.Outcome, final: endings.FinalState) {
    const ended = await finish(row, outcome, final).catch((error) => {
      if (isUnavailable(error)) throw error
      log.error(
        { err: error, executionId: row.id },
        'failed to store the final state of a run; the run fails without a result',
      )
      return finish(row, failedWith(UNEXPECTED), { ...final, ...NOTHING, model: row.model })
    })
    if (!ended) return null
    if (final.scattered) compaction.add(row.id)
    notifyRunEnded(ended)
    return ended.execution
  }

  /** Notifies subscribers of the chat and the task that a run was accepted or has ended. */
  function publishOwnerChanges({ chatId, taskId }: ExecutionRow): void {
    bus.publish('chat', [chatId])
    if (taskId) bus.publish('task', [taskId])
  }

  function notifyRunEnded({ execution, next, abandoned, expired = [] }: endings.Ended): void {
    deps.telemetry.ended(execution)
    bus.publish('execution', [execution.id])
    publishOwnerChanges(execution)
    if (expired.length) bus.publish('approval', expired)
    if (next) startOrAnnounce(next, execution.organizationId)
    for (const row of abandoned) background(cancelTree(row, execution), 'failed to cancel the delegates of a run')
  }

  /** Starts a pending run here if there is capacity, otherwise announces it to all processes. */
  function startOrAnnounce(id: string, organizationId: string): void {
    if (runs && !draining && !pause.isPaused() && capacity.hasCapacity(organizationId)) background(startPending(id))
    else bus.publish('pending', [organizationId])
  }

  /** Starts a pending run that holds its session's lock. Returns false if there is no capacity. */
  async function startPending(id: string): Promise<boolean> {
    return !draining && !pause.isPaused() && live.claim((launch) => claimAndLaunch(id, launch))
  }

  async function claimAndLaunch(id: string, launch: Launch): Promise<boolean> {
    const pending = await db.execution.findUnique({ where: { id, status: 'pending', waitingFor: null } })
    if (!pending) return true
    const agent = pending.wantsCancel ? 'cancelled' : await deps.agentFor(db, pending)
    if (typeof agent === 'string') {
      await endPending(pending, agent)
      return true
    }
    const row = await claims.claimPending(claimDeps, pending, agent)
    if (!row) {
      if (limits.running !== undefined) capacity.wait(pending.organizationId)
      return limits.running === undefined
    }
    launch(row, agent, row.attempt > 1 ? await loadCheckpoint(db, row) : BEGIN)
    bus.publish('execution', [id])
    return true
  }

  /**
   * Ends a run that has not started or waits for an approval, as cancelled if it is marked for cancellation and as
   * failed otherwise.
   */
  async function endPending(row: ExecutionRow, error: string): Promise<void> {
    const outcome = row.wantsCancel ? endings.CANCELLED : failedWith(error)
    const ended = await endings.finishPending(claimDeps, row, outcome)
    if (ended) notifyRunEnded(ended)
  }

  /** Failures are only logged because the sweep and the heartbeat retry the work. */
  const background = (task: Promise<unknown>, failure = 'failed to start a pending run') => {
    task.catch((error) => log.error({ err: error }, `${failure}; the sweep will retry`))
  }

  /** Cancels the running and pending runs of a session. */
  async function interrupt(sessionId: string, request: Request): Promise<void> {
    for (const row of await findBusy(sessionId, request)) await engine.cancel(row, request.actor)
  }

  /**
   * Expires the leases of the remaining runs, so that the next sweep of any process takes them over. If this fails, the
   * leases expire by themselves.
   */
  async function handBack(): Promise<void> {
    const where = { terminalSeq: null, status: 'running' as const, leaseOwner: owner }
    await db.execution
      .updateMany({ where, data: { leaseUntil: clock.now() } })
      .catch((error) => log.error({ err: error }, 'failed to release the leases of the remaining runs'))
  }

  const rescue = createRescuer({ ...deps, claimDeps, live, isFull: capacity.isFull, end: endRun })

  const maintenance = createMaintenance({
    ...deps,
    owner,
    heldRows: live.heldRows,
    stop: live.stop,
    rescue: async (left) => void (draining || (await rescue(left))),
    expire: (row) => endPending(row, 'timeout'),
    ...createExpiry({ db, clock, bus, resume: (row) => engine.resume(row) }),
    begin: async () => void (pause.isPaused() || (await capacity.fill())),
    compact: compaction.run,
  })

  const engine: Engine = {
    async accept(request) {
      const { actor, model, agent } = request
      let { sessionId = request.conversation.branch?.of } = request.conversation
      for (;;) {
        if (draining && !request.delegated) throw unavailable()
        if (request.onBusy === 'interrupt' && sessionId) await interrupt(sessionId, request)
        const hasCapacity = !pause.isPaused() && (request.delegated || capacity.hasCapacity(actor.organizationId))
        try {
          return await live.claim(async (launch) => {
            // The claim already counts as accepted here, so shutdown waits for it.
            const modelName = await deps.models.nameOf(model ?? agent.model, actor.organizationId)
            // Read beside the acceptance, so that the model is asked right after it.
            const space = hasCapacity ? readSpace(db, request.conversation.spaceId).catch(() => null) : undefined
            const row = await accept(claimDeps, { ...request, modelName }, hasCapacity)
            if (row.status === 'running') launch(row, agent, BEGIN, space)
            publishOwnerChanges(row)
            const isHeldUp = row.status === 'pending' && (!hasCapacity || limits.running !== undefined)
            if (isHeldUp) bus.publish('pending', [actor.organizationId])
            return row
          }, hasCapacity)
        } catch (error) {
          if (!(error instanceof SessionTaken)) throw error
          sessionId = error.sessionId
        }
      }
    },
    stopped: stopped.signal,
    follow: (row, after, signal) => followRun(followDeps, row, after, signal),
    ended: (row, ...signals) => whenEnded(followDeps, row, signals),
    resume(row) {
      bus.publish('execution', [row.id])
      startOrAnnounce(row.id, row.organizationId)
    },
    async cancel(row, by) {
      const gone = await cancelTree(row, by)
      return gone ?? engine.ended(row, AbortSignal.timeout(CANCEL_PATIENCE))
    },
    async start(exclusive) {
      if (!runs) return
      await countRunning(claimDeps)
      await maintenance.start(exclusive)
    },
    preload: attempts,
    async drain() {
      draining = true
      leaving.abort()
      const patience = AbortSignal.timeout(settings.DRAIN_TIMEOUT)
      await raceAbort(live.quiet(patience), patience)
      stopped.abort()
      eventLog.dismiss()
      for (const id of live.ids()) live.stop(id, 'drained')
      await live.quiet(AbortSignal.timeout(HAND_BACK_PATIENCE))
      await raceTimeout(maintenance.stop(), HAND_BACK_PATIENCE)
      for (const unsubscribe of subscriptions) unsubscribe()
      notices.stop()
      await raceTimeout(handBack(), HAND_BACK_PATIENCE)
    },
  }
  return engine
}
