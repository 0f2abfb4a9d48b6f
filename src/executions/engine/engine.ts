import type { Logger } from 'pino'
import type { Bus } from '../../bus/index.ts'
import { type Db, freeRowLock, rowLock } from '../../db/client.ts'
import { AppError, unavailable } from '../../errors.ts'
import type { Clock } from '../../lib/clock.ts'
import { isUnavailable } from '../../lib/database-errors.ts'
import { newId } from '../../lib/id.ts'
import { unlessAborted } from '../../lib/unless-aborted.ts'
import type { MediaStorage } from '../../media/storage.ts'
import type { Pause } from '../../pause.ts'
import type { Settings } from '../../settings.ts'
import type { Telemetry } from '../../telemetry/telemetry.ts'
import { createCompaction } from './events/compaction.ts'
import { createJournal } from './events/event-log.ts'
import type { Edge, ExecutionEvent, ExecutionRow } from './events/events.ts'
import { createNotices } from './events/notices.ts'
import { follow, whenEnded } from './events/subscribe.ts'
import { createCaretaker } from './maintenance/maintenance.ts'
import { createRecovery } from './maintenance/recovery.ts'
import { UNEXPECTED } from './models/model-errors.ts'
import { createModelKnowledge } from './models/model-knowledge.ts'
import type { Models } from './models/models.ts'
import { accept, type NamedRequest, type Request, SessionTaken } from './queue/accept.ts'
import * as waits from './queue/approvals.ts'
import { createCancel } from './queue/cancel.ts'
import { createRoom } from './queue/capacity.ts'
import * as claims from './queue/claims.ts'
import { countRunning } from './queue/concurrency.ts'
import * as endings from './queue/endings.ts'
import { createAttempts } from './run/attempt.ts'
import { createBreaker } from './run/breaker.ts'
import { BEGIN, loadCheckpoint } from './run/checkpoint.ts'
import { failedWith } from './run/failures.ts'
import { createLive, type Launch } from './run/live.ts'
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
   * The agent of a run that is about to begin or to go on, if its user may still run it (contract.md section 2); else why
   * the run fails.
   */
  agentFor: (db: Db, row: ExecutionRow) => Promise<claims.AgentRow | string>
  lockSettled: claims.ClaimDeps['lockSettled']
  settle: claims.ClaimDeps['settle']
  openTools: OpenTools
  telemetry: Telemetry
  pause: Pause
}

/** What runs agents: accepts, runs, recovers and ends executions, and shows their events. */
export type Engine = {
  /**
   * Accepts a run and, where its session is free, begins it. Throws what `accept` throws, 403 where it would
   * interrupt what its user may not cancel, 503 in a drain.
   */
  accept(request: Request): Promise<ExecutionRow>
  follow(row: Edge, after: number, signal: AbortSignal): AsyncGenerator<readonly ExecutionEvent[]>
  /** Aborted when this process ends: streams end then. */
  stopped: AbortSignal
  /** The execution once it has ended, or as it is when the signal aborts. */
  ended(row: ExecutionRow, signal: AbortSignal): Promise<ExecutionRow>
  /** Cancels it and its descendants if they have not ended, on somebody's word, and returns it as it then is. */
  cancel(row: ExecutionRow, by: endings.Canceller): Promise<ExecutionRow>
  /** A run whose approvals have been decided: it goes on when there is room for it. */
  goOn(row: Pick<ExecutionRow, 'id' | 'organizationId'>): void
  /**
   * Takes care of what was left behind, now and from then on, if runs are on in this process. `alone`: no other process
   * uses this database.
   */
  start(alone: boolean): Promise<void>
  /** Accepts nothing more, gives live runs time to end, hands the rest back, ends the streams. */
  drain(): Promise<void>
}

/** What a run leaves of whose remains the database refuses something. */
const NOTHING = {
  text: '',
  toolCalls: [],
  usage: { ...BEGIN.usage, usageEstimated: true },
  warnings: [],
  replay: null,
  events: [],
}

/** How long a cancel waits for the run's end before it answers (ms). */
const CANCEL_PATIENCE = 5_000
/** How long the end of a process waits for each of: its last runs to let go, and the database to hear of it (ms). */
const HAND_BACK_PATIENCE = 1_000

export function createEngine(deps: EngineDeps): Engine {
  const { settings, db, clock, bus, log, pause } = deps
  const owner = newId()
  const leaseDuration = settings.LEASE_DURATION
  const limits = { running: settings.MAX_RUNNING_PER_ORGANIZATION, pending: settings.MAX_PENDING_RUNS }
  const lock = rowLock(settings)
  const locks = { rowLock: lock, freeRowLock: freeRowLock(settings) }
  const { settle, lockSettled } = deps
  const claimDeps: claims.ClaimDeps = { db, clock, owner, leaseDuration, ...locks, limits, settle, lockSettled }
  const onStored = (ids: string[]) => bus.publish('execution', ids)
  const journal = createJournal({ db, clock, log, owner, rowLock: lock, onStored })
  const notices = createNotices(bus)
  const compaction = createCompaction(db)
  const stopped = new AbortController()
  const leaving = new AbortController()
  const asking = { breaker: createBreaker(clock), knowledge: createModelKnowledge(clock) }
  /** Whether runs are on in this process, or only accepted for others. */
  const runs = settings.ROLE !== 'api'
  let draining = false
  const room = createRoom({
    db,
    limits: { process: runs ? settings.MAX_RUNNING : 0, organization: limits.running },
    log,
    taken: () => live.taken(),
    begin: beginPending,
  })

  const attempt = createAttempts({
    ...deps,
    asking,
    claimDeps,
    journal,
    draining: leaving.signal,
    stopped: stopped.signal,
    end,
  })
  const live = createLive({
    journal,
    log,
    attempt,
    stopped: stopped.signal,
    onLeft(executionId) {
      deps.telemetry.left(executionId)
      if (room.isWanted()) background(room.fill())
    },
  })
  const { cancelTree, findBusy, stopMarked } = createCancel({ db, bus, claimDeps, live, afterwards })
  const followDeps = { db, journal, live, notices, stopped: stopped.signal }

  const subscriptions = [
    bus.subscribe('cancel', (ids) => {
      if (!ids) background(stopMarked(), 'what is to be cancelled could not be looked for')
      for (const id of ids ?? []) live.cancel(id)
    }),
    bus.subscribe('pending', (ids) => {
      if (!runs || draining || pause.isPaused()) return
      for (const organizationId of ids ?? []) room.wait(organizationId)
      background(room.fill())
    }),
  ]

  /** Launches a run, if it can begin, already while it is written that it has. */
  async function acceptAndLaunch(request: NamedRequest, hasRoom: boolean, launch: Launch): Promise<ExecutionRow> {
    const claimed = Promise.withResolvers<void>()
    let launched: ExecutionRow | undefined
    const onBegun = (row: ExecutionRow) => {
      if (launched) return
      launched = row
      launch(row, request.agent, BEGIN, claimed.promise)
    }
    let accepted: ExecutionRow | undefined
    try {
      accepted = await accept(claimDeps, request, hasRoom, onBegun)
      if (accepted.status === 'running' && !launched) launch(accepted, request.agent)
      return accepted
    } finally {
      if (launched && accepted?.status !== 'running') live.stop(launched.id, 'lost')
      claimed.resolve()
    }
  }

  /** A run that shall be cancelled has no other outcome. */
  const finish = async (row: ExecutionRow, outcome: endings.Outcome, remains: endings.Remains) =>
    (await endings.finish(claimDeps, row, outcome, remains)) ??
    (await endings.finish(claimDeps, row, endings.CANCELLED, remains))

  /**
   * The terminal write. Null when the run was taken away. One of which the database refuses something, for whatever
   * reason, ends as failed without it: it would never end otherwise.
   */
  async function end(row: ExecutionRow, outcome: endings.Outcome, remains: endings.Remains) {
    const ended = await finish(row, outcome, remains).catch((error) => {
      if (isUnavailable(error)) throw error
      log.error(
        { err: error, executionId: row.id },
        'the end of a run could not be stored: it fails, and leaves nothing',
      )
      return finish(row, failedWith(UNEXPECTED), { ...remains, ...NOTHING, model: row.model })
    })
    if (!ended) return null
    if (remains.scattered) compaction.add(row.id)
    afterwards(ended)
    return ended.execution
  }

  /** What changes with a run, when it is accepted and when it ends. */
  function tellOwners({ chatId, taskId }: ExecutionRow): void {
    bus.publish('chat', [chatId])
    if (taskId) bus.publish('task', [taskId])
  }

  function afterwards({ execution, next, abandoned }: endings.Ended): void {
    deps.telemetry.ended(execution)
    bus.publish('execution', [execution.id])
    tellOwners(execution)
    if (next) begin(next, execution.organizationId)
    for (const row of abandoned) background(cancelTree(row, execution), 'what a run had started could not be cancelled')
  }

  /** Begins a pending run when its turn comes: here, if there is room, or wherever there is some first. */
  function begin(id: string, organizationId: string): void {
    if (runs && !draining && !pause.isPaused() && room.isFor(organizationId)) background(beginPending(id))
    else bus.publish('pending', [organizationId])
  }

  /** Begins a pending run that holds its session's lock. False when there is no room for it. */
  async function beginPending(id: string): Promise<boolean> {
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
      if (limits.running !== undefined) room.wait(pending.organizationId)
      return limits.running === undefined
    }
    launch(row, agent, row.attempt > 1 ? await loadCheckpoint(db, row) : BEGIN)
    bus.publish('execution', [id])
    return true
  }

  /** Ends a run that has not begun, or waits: as cancelled where somebody wants that, as failed otherwise. */
  async function endPending(row: ExecutionRow, error: string): Promise<void> {
    const outcome = row.wantsCancel ? endings.CANCELLED : failedWith(error)
    const ended = await endings.finishPending(claimDeps, row, outcome)
    if (ended) afterwards(ended)
  }

  /** The sweep, and the heartbeat, come to what failed. */
  const background = (task: Promise<unknown>, failure = 'a pending run could not be begun') => {
    task.catch((error) => log.error({ err: error }, `${failure}; the sweep will try again`))
  }

  /** Cancels what a session has under way. */
  async function interrupt(sessionId: string, request: Request): Promise<void> {
    for (const row of await findBusy(sessionId, request)) await engine.cancel(row, request.actor)
  }

  /** Whoever looks next takes over what is left. Without it, they do when the leases end. */
  async function handBack(): Promise<void> {
    const where = { terminalSeq: null, status: 'running' as const, leaseOwner: owner }
    await db.execution
      .updateMany({ where, data: { leaseUntil: clock.now() } })
      .catch((error) => log.error({ err: error }, 'the runs that are left could not be handed back'))
  }

  async function expireApproval(approval: waits.ApprovalRow): Promise<void> {
    const verdict = { status: 'expired', reason: null, decidedBy: null } as const
    try {
      await db.$transaction((tx) => waits.decide(tx, approval, verdict, clock.now()))
    } catch (error) {
      // Another server has expired it, or somebody decided at the last moment.
      if (error instanceof AppError && error.status === 409) return
      throw error
    }
    bus.publish('chat', [approval.chatId])
    engine.goOn(await db.execution.findUniqueOrThrow({ where: { id: approval.executionId } }))
  }

  const recover = createRecovery({ ...deps, claimDeps, live, isFull: room.isFull, end })

  const caretaker = createCaretaker({
    ...deps,
    owner,
    heldRows: live.heldRows,
    stop: live.stop,
    recover: async (left) => void (draining || (await recover(left))),
    expire: (row) => endPending(row, 'timeout'),
    expireApproval,
    begin: async () => void (pause.isPaused() || (await room.fill())),
    compact: compaction.run,
  })

  const engine: Engine = {
    async accept(request) {
      const { actor, model, agent } = request
      let { sessionId = request.conversation.branch?.of } = request.conversation
      for (;;) {
        if (draining && !request.delegated) throw unavailable()
        if (request.onBusy === 'interrupt' && sessionId) await interrupt(sessionId, request)
        const hasRoom = !pause.isPaused() && (request.delegated || room.isFor(actor.organizationId))
        try {
          return await live.claim(async (launch) => {
            // Counted as accepted by now: the end of this process waits for it.
            const modelName = await deps.models.nameOf(model ?? agent.model, actor.organizationId)
            const row = await acceptAndLaunch({ ...request, modelName }, hasRoom, launch)
            tellOwners(row)
            const isHeldUp = row.status === 'pending' && (!hasRoom || limits.running !== undefined)
            if (isHeldUp) bus.publish('pending', [actor.organizationId])
            return row
          }, hasRoom)
        } catch (error) {
          if (!(error instanceof SessionTaken)) throw error
          sessionId = error.sessionId
        }
      }
    },
    stopped: stopped.signal,
    follow: (row, after, signal) => follow(followDeps, row, after, signal),
    ended: (row, signal) => whenEnded(followDeps, row, signal),
    goOn(row) {
      bus.publish('execution', [row.id])
      begin(row.id, row.organizationId)
    },
    async cancel(row, by) {
      const gone = await cancelTree(row, by)
      return gone ?? engine.ended(row, AbortSignal.timeout(CANCEL_PATIENCE))
    },
    async start(alone) {
      if (!runs) return
      await countRunning(claimDeps)
      await caretaker.start(alone)
    },
    async drain() {
      draining = true
      leaving.abort()
      const patience = AbortSignal.timeout(settings.DRAIN_TIMEOUT)
      await unlessAborted(live.quiet(patience), patience)
      stopped.abort()
      journal.dismiss()
      for (const id of live.ids()) live.stop(id, 'drained')
      await live.quiet(AbortSignal.timeout(HAND_BACK_PATIENCE))
      caretaker.stop()
      for (const unsubscribe of subscriptions) unsubscribe()
      notices.stop()
      await unlessAborted(handBack(), AbortSignal.timeout(HAND_BACK_PATIENCE))
    },
  }
  return engine
}
