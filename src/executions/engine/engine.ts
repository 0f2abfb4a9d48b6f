import type { Logger } from 'pino'
import type { Bus } from '../../bus/index.ts'
import { type Db, freeRowLock, rowLock } from '../../db/client.ts'
import { unavailable } from '../../errors.ts'
import type { Clock } from '../../lib/clock.ts'
import { newId } from '../../lib/id.ts'
import { onceDone } from '../../lib/once.ts'
import { raceAbort, raceTimeout } from '../../lib/race-abort.ts'
import { watchTask } from '../../lib/watch-task.ts'
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
import { createModelKnowledge } from './models/model-knowledge.ts'
import type { Models } from './models/models.ts'
import { accept } from './queue/accept.ts'
import { createCancel } from './queue/cancel.ts'
import type { Canceller } from './queue/cancel-marks.ts'
import * as claims from './queue/claims.ts'
import { countRunning } from './queue/concurrency.ts'
import type { Ended, FinalState, Outcome } from './queue/endings.ts'
import { createExpiry } from './queue/expiry.ts'
import { SessionTaken } from './queue/join-conversation.ts'
import { createPending } from './queue/pending.ts'
import type { Request } from './queue/requests.ts'
import { type RunHooks, registeredRunHooks } from './queue/run-hooks.ts'
import { createBreaker } from './run/breaker.ts'
import { BEGIN } from './run/checkpoint.ts'
import { finishAnyhow } from './run/finish.ts'
import { createLive } from './run/live.ts'
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
  cancel(row: ExecutionRow, by: Canceller): Promise<ExecutionRow>
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
  const locks = { rowLock: rowLock(settings), freeRowLock: freeRowLock(settings) }
  const { runHooks = registeredRunHooks() } = deps
  const claimDeps: claims.ClaimDeps = { settings, db, clock, owner, leaseDuration, ...locks, limits, runHooks }
  const onStored = (ids: string[]) => bus.publish('execution', ids)
  const eventLog = createEventLog({ db, clock, log, owner, ...locks, onStored })
  const notices = createNotices(bus)
  const compaction = createCompaction(db)
  const stopped = new AbortController()
  const leaving = new AbortController()
  const asking = { breaker: createBreaker(clock), knowledge: createModelKnowledge(clock) }
  /** Whether this process executes runs or only accepts them for other processes. */
  const runs = settings.ROLE !== 'api'
  let draining = false
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
      pending.useFreeSlot()
    },
  })
  const pending = createPending({
    ...deps,
    claimDeps,
    live,
    maxRunning: runs ? settings.MAX_RUNNING : 0,
    mayStart: () => runs && !draining && !pause.isPaused(),
    notifyRunEnded,
  })
  const { cancelTree, findBusy, stopMarked } = createCancel({ db, bus, claimDeps, live, notifyRunEnded })
  // Failures are only logged because the sweep and the heartbeat retry the work.
  const watchMarked = watchTask((error) =>
    log.error({ err: error }, 'failed to poll for cancelled runs; the sweep will retry'),
  )
  const followDeps = { db, eventLog, live, notices, stopped: stopped.signal }

  const subscriptions = [
    bus.subscribe('provider', asking.knowledge.forget),
    bus.subscribe('cancel', (ids) => {
      if (!ids) void watchMarked(stopMarked())
      for (const id of ids ?? []) live.cancel(id)
    }),
    bus.subscribe('pending', (ids) => pending.startAnnounced(ids ?? [])),
  ]

  async function endRun(row: ExecutionRow, outcome: Outcome, final: FinalState) {
    const ended = await finishAnyhow(claimDeps, log, row, outcome, final)
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

  function notifyRunEnded({ execution, next, abandoned, expired = [] }: Ended): void {
    deps.telemetry.ended(execution)
    bus.publish('execution', [execution.id])
    publishOwnerChanges(execution)
    if (expired.length) bus.publish('approval', expired)
    if (next) pending.startOrAnnounce(next, execution.organizationId)
    for (const row of abandoned)
      cancelTree(row, execution).catch((error) =>
        log.error({ err: error }, 'failed to cancel the delegates of a run; the sweep will retry'),
      )
  }

  /** Cancels the running and pending runs of a session. */
  async function interrupt(sessionId: string, request: Request): Promise<void> {
    for (const row of await findBusy(sessionId, request)) await engine.cancel(row, request.actor)
  }

  /** Accepts a run, and starts it if there is capacity. Throws {@link SessionTaken}. */
  async function acceptAndLaunch(request: Request): Promise<ExecutionRow> {
    const { actor, model, agent, conversation } = request
    const hasCapacity = !pause.isPaused() && (request.delegated || pending.hasCapacity(actor.organizationId))
    return live.claim(async (launch) => {
      // The claim already counts as accepted here, so shutdown waits for it.
      const modelName = await deps.models.nameOf(model ?? agent.model, actor.organizationId)
      // Read beside the acceptance, so that the model is asked right after it.
      const space = hasCapacity ? readSpace(db, conversation.spaceId).catch(() => null) : undefined
      const row = await accept(claimDeps, { ...request, modelName }, hasCapacity)
      if (row.status === 'running') launch(row, agent, BEGIN, space)
      publishOwnerChanges(row)
      const isHeldUp = row.status === 'pending' && (!hasCapacity || limits.running !== undefined)
      if (isHeldUp) bus.publish('pending', [actor.organizationId])
      return row
    }, hasCapacity)
  }

  const rescue = createRescuer({ ...deps, claimDeps, live, isFull: pending.isFull, end: endRun })

  const maintenance = createMaintenance({
    ...deps,
    owner,
    heldRows: live.heldRows,
    stop: live.stop,
    rescue: async (left) => void (draining || (await rescue(left))),
    expire: (row) => pending.end(row, 'timeout'),
    ...createExpiry({ db, clock, bus, resume: (row) => engine.resume(row) }),
    begin: async () => void (pause.isPaused() || (await pending.fill())),
    compact: compaction.run,
  })

  const engine: Engine = {
    async accept(request) {
      let { sessionId = request.conversation.branch?.of } = request.conversation
      for (;;) {
        if (draining && !request.delegated) throw unavailable()
        if (request.onBusy === 'interrupt' && sessionId) await interrupt(sessionId, request)
        try {
          return await acceptAndLaunch(request)
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
      pending.startOrAnnounce(row.id, row.organizationId)
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
      await raceTimeout(claims.releaseLeases(claimDeps, log), HAND_BACK_PATIENCE)
    },
  }
  return engine
}
