import type { Logger } from 'pino'
import type { Bus } from '../../bus/index.ts'
import { type Db, Prisma } from '../../db/client.ts'
import { unavailable } from '../../errors.ts'
import type { Clock } from '../../lib/clock.ts'
import { newId } from '../../lib/id.ts'
import type { Settings } from '../../settings.ts'
import * as claims from './claims.ts'
import { type ExecutionEvent, type ExecutionRow, type MessageData, readEvents } from './events.ts'
import { follow } from './follow.ts'
import { type Channel, createJournal, SEQ_BLOCK } from './journal.ts'
import { UNEXPECTED } from './model-errors.ts'
import type { Models } from './models.ts'
import { createNotices } from './notices.ts'
import { buildPrompt } from './prompt.ts'
import { run, TimeoutError } from './run.ts'

export type EngineDeps = {
  settings: Settings
  db: Db
  clock: Clock
  bus: Bus
  log: Logger
  models: Models
  /** The agent of a run that is about to begin, if its user may still run it (contract.md section 2). */
  agentFor: (db: Db, row: ExecutionRow) => Promise<claims.AgentRow | null>
}

/** What runs agents: accepts, runs, recovers and ends executions, and shows their events. */
export type Engine = {
  /** Accepts a run and, where its session is free, begins it. 409 `Session is busy`, 503 while the server drains. */
  accept(request: claims.Request): Promise<ExecutionRow>
  follow(row: ExecutionRow, after: number, signal: AbortSignal): AsyncGenerator<readonly ExecutionEvent[]>
  /** The execution once it has ended, or as it is when the signal aborts. */
  ended(row: ExecutionRow, signal: AbortSignal): Promise<ExecutionRow>
  /** Cancels it if it has not ended, and returns it as it then is. */
  cancel(row: ExecutionRow): Promise<ExecutionRow>
  /** Takes care of what was left behind, now and from then on. `alone`: no other process uses this database. */
  start(alone: boolean): Promise<void>
  /** Accepts nothing more, gives live runs time to end, hands the rest back, ends the streams. */
  drain(): Promise<void>
}

const DEFAULT_MAX_TURNS = 50
const SWEEP_INTERVAL = 2_000
const SWEEP_SIZE = 100
/** How long a cancel waits for the run's end before it answers (ms). */
const CANCEL_PATIENCE = 5_000
const RETRY_INTERVAL = 500

/** Why a run is stopped from outside. */
class Stop extends Error {
  readonly why: 'cancelled' | 'lost' | 'drained'
  constructor(why: Stop['why']) {
    super(why)
    this.why = why
  }
}

type Live = { row: ExecutionRow; controller: AbortController; ended: Promise<ExecutionRow | null> }

export function createEngine(deps: EngineDeps): Engine {
  const { settings, db, clock, bus, log, models } = deps
  const owner = newId()
  const leaseDuration = settings.LEASE_DURATION
  const claimDeps = { db, clock, owner, leaseDuration }
  const journal = createJournal({ db, clock, log, owner, leaseDuration })
  const notices = createNotices(bus)
  const live = new Map<string, Live>()
  const timers: NodeJS.Timeout[] = []
  const stopped = new AbortController()
  let draining = false

  bus.subscribe('cancel', (ids) => {
    for (const id of ids) live.get(id)?.controller.abort(new Stop('cancelled'))
  })

  function launch(row: ExecutionRow, agent: claims.AgentRow): void {
    const controller = new AbortController()
    const channel = journal.open(row, () => controller.abort(new Stop('lost')))
    const ended = work(row, agent, channel, controller)
      .catch((error) => {
        log.error({ err: error, executionId: row.id }, 'a run could not be ended')
        channel.close(null)
        return null
      })
      .finally(() => live.delete(row.id))
    live.set(row.id, { row, controller, ended })
  }

  async function work(row: ExecutionRow, agent: claims.AgentRow, channel: Channel, controller: AbortController) {
    const remains = { text: '', model: row.model, usage: { inputTokens: 0, outputTokens: 0, usageEstimated: false } }
    const { signal } = controller
    const patience = (row.startedAt ?? row.createdAt).getTime() + settings.EXECUTION_TIMEOUT - clock.now().getTime()
    const timer = setTimeout(() => controller.abort(new TimeoutError('The run took too long')), Math.max(0, patience))
    let outcome: claims.Outcome
    try {
      const { id, model } = await models.resolve(row.modelOverride ?? agent.model)
      remains.model = id
      const prompt = await buildPrompt(db, agent, row)
      const maxTurns = agent.maxTurns ?? DEFAULT_MAX_TURNS
      const idleTimeout = settings.MODEL_IDLE_TIMEOUT
      for await (const data of run(
        { model, agentName: agent.name, prompt, maxTurns, idleTimeout, signal },
        remains.usage,
      )) {
        remains.text = textSoFar(remains.text, data)
        const room = channel.append(data)
        if (room) await room
      }
      outcome = { status: 'completed', result: remains.text }
    } catch (error) {
      const why = signal.aborted ? signal.reason : error
      if (why instanceof Stop && why.why !== 'cancelled') {
        channel.close(null)
        return null
      }
      if (why instanceof Stop) outcome = { status: 'cancelled' }
      else if (why instanceof TimeoutError) outcome = { status: 'failed', error: 'timeout' }
      else outcome = { status: 'failed', error: models.describeError(why) }
      if (outcome.status === 'failed') {
        // A provider's error holds the prompt: only what nobody expected is logged as it is.
        const unexpected = outcome.error === UNEXPECTED && { err: why }
        log.warn({ executionId: row.id, cause: outcome.error, ...unexpected }, 'a run failed')
      }
    } finally {
      clearTimeout(timer)
    }
    const ended = await conclude(row, outcome, { ...remains, ...(await channel.drain()) })
    channel.close(ended)
    return ended
  }

  /** The terminal write, again until the database takes it. A run that shall be cancelled has not completed. */
  async function conclude(row: ExecutionRow, outcome: claims.Outcome, remains: claims.Remains) {
    for (;;) {
      try {
        const ended =
          (await claims.finish(claimDeps, row, outcome, remains)) ??
          (await claims.finish(claimDeps, row, { status: 'cancelled' }, remains))
        if (ended) afterwards(ended)
        return ended?.execution ?? null
      } catch (error) {
        log.error({ err: error, executionId: row.id }, 'the end of a run could not be stored, trying again')
        await new Promise((resolve) => setTimeout(resolve, RETRY_INTERVAL))
      }
    }
  }

  function afterwards({ execution, next }: claims.Ended): void {
    bus.publish('execution', [execution.id])
    if (next) void beginPending(next).catch((error) => log.error({ err: error }, 'a pending run could not be begun'))
  }

  /** Begins a pending run that holds its session's lock. */
  async function beginPending(id: string): Promise<void> {
    if (draining) return
    const pending = await db.execution.findUnique({ where: { id, status: 'pending' } })
    if (!pending) return
    const agent = await deps.agentFor(db, pending)
    if (!agent) {
      const ended = await claims.finishPending(claimDeps, pending, { status: 'failed', error: 'Agent not found' })
      if (ended) afterwards(ended)
      return
    }
    const row = await claims.claimPending(claimDeps, pending)
    if (!row) return
    launch(row, agent)
    bus.publish('execution', [id])
  }

  /**
   * Goes on with a run whose process has died: again if it had shown nothing, otherwise it ends as interrupted
   * (contract.md section 4, "Durability").
   */
  async function recover(left: ExecutionRow): Promise<void> {
    const row = await claims.takeOver(claimDeps, left)
    if (!row) return
    log.warn({ executionId: row.id, attempt: row.attempt }, 'taking over a run whose process has died')
    let text = ''
    let shown = false
    for await (const events of readEvents(db, row.id, 0)) {
      shown = true
      for (const { event, data } of events) if (event === 'message') text = textSoFar(text, data)
    }
    const agent = shown || row.wantsCancel ? null : await deps.agentFor(db, row)
    if (agent) {
      launch(row, agent)
      bus.publish('execution', [row.id])
      return
    }
    const outcome: claims.Outcome = row.wantsCancel
      ? { status: 'cancelled' }
      : { status: 'failed', error: shown ? 'interrupted' : 'Agent not found' }
    const { model, inputTokens, outputTokens, usageEstimated } = row
    const usage = { inputTokens, outputTokens, usageEstimated }
    await conclude(row, outcome, { text, model, usage, events: [], terminalSeq: row.seqReserved - SEQ_BLOCK + 1 })
  }

  /** Whatever no process takes care of: expired leases, pending runs whose turn it is, pending runs that waited too long. */
  async function sweep(alone: boolean): Promise<void> {
    const now = clock.now()
    const left = await db.execution.findMany({
      where: { status: 'running', ...(!alone && { leaseUntil: { lt: now } }) },
      take: alone ? Number.MAX_SAFE_INTEGER : SWEEP_SIZE,
    })
    for (const row of left) if (!live.has(row.id)) await recover(row)
    const tooOld = new Date(now.getTime() - settings.QUEUE_TIMEOUT)
    const stale = await db.execution.findMany({
      where: { status: 'pending', createdAt: { lt: tooOld } },
      take: SWEEP_SIZE,
    })
    for (const row of stale) {
      const ended = await claims.finishPending(claimDeps, row, { status: 'failed', error: 'timeout' })
      if (ended) afterwards(ended)
    }
    const ready = await db.$queryRaw<{ id: string }[]>(Prisma.sql`
      SELECT e."id" FROM "Execution" e
      JOIN "Session" s ON s."id" = e."sessionId" AND s."activeExecutionId" = e."id"
      WHERE e."status" = 'pending' LIMIT ${SWEEP_SIZE}`)
    for (const { id } of ready) await beginPending(id)
  }

  async function heartbeat(): Promise<void> {
    const held = [...live.values()]
    if (!held.length) return
    const kept = await db.execution.updateManyAndReturn({
      where: { id: { in: held.map(({ row }) => row.id) }, leaseOwner: owner, status: 'running' },
      data: { leaseUntil: new Date(clock.now().getTime() + leaseDuration) },
      select: { id: true, attempt: true, wantsCancel: true },
    })
    const found = new Map(kept.map((row) => [row.id, row]))
    for (const { row, controller } of held) {
      const mine = found.get(row.id)
      if (mine?.attempt !== row.attempt) controller.abort(new Stop('lost'))
      else if (mine.wantsCancel) controller.abort(new Stop('cancelled'))
    }
  }

  /** Repeats a task without overlap until the engine stops; its failures are logged. */
  function every(interval: number, what: string, task: () => Promise<void>): void {
    const timer = setInterval(async () => {
      if (busy) return
      busy = true
      await task().catch((error) => log.error({ err: error }, `${what} failed, trying again`))
      busy = false
    }, interval)
    let busy = false
    timers.push(timer)
  }

  async function ended(row: ExecutionRow, signal: AbortSignal): Promise<ExecutionRow> {
    for (;;) {
      using notice = notices.expect(row.id, signal)
      const here = await live.get(row.id)?.ended
      if (here) return here
      const current = await db.execution.findUniqueOrThrow({ where: { id: row.id } })
      if (current.terminalSeq !== null || signal.aborted) return current
      if (stopped.signal.aborted) throw unavailable()
      if (!live.has(row.id)) await notice.happened
    }
  }

  return {
    async accept(request) {
      if (draining) throw unavailable()
      if (request.onBusy === 'interrupt' && request.conversation.sessionId) {
        const sessionId = request.conversation.sessionId
        const busy = await db.execution.findMany({ where: { sessionId, status: { in: ['pending', 'running'] } } })
        // The waiting ones first, lest the end of the running one begins them.
        for (const row of busy.sort((a, b) => b.queueSeq - a.queueSeq)) await this.cancel(row)
      }
      const row = await claims.accept(claimDeps, request)
      if (row.status === 'running') launch(row, request.agent)
      return row
    },
    follow: (row, after, signal) =>
      follow({ db, journal, notices }, row, after, AbortSignal.any([signal, stopped.signal])),
    ended,
    async cancel(row) {
      if (row.status === 'pending') {
        const gone = await claims.finishPending(claimDeps, row, { status: 'cancelled' })
        if (gone) {
          afterwards(gone)
          return gone.execution
        }
      }
      const data = { wantsCancel: true, updatedAt: clock.now() }
      const { count } = await db.execution.updateMany({ where: { id: row.id, status: 'running' }, data })
      if (count) bus.publish('cancel', [row.id])
      return ended(row, AbortSignal.timeout(CANCEL_PATIENCE))
    },
    async start(alone) {
      await sweep(alone)
      every(SWEEP_INTERVAL, 'the sweep', () => sweep(false))
      every(leaseDuration / 3, 'the heartbeat', heartbeat)
    },
    async drain() {
      draining = true
      const patience = AbortSignal.timeout(settings.DRAIN_TIMEOUT)
      const late = new Promise((resolve) => patience.addEventListener('abort', resolve))
      await Promise.race([late, Promise.all([...live.values()].map((run) => run.ended))])
      await journal.flush()
      const left = [...live.values()]
      for (const { controller } of left) controller.abort(new Stop('drained'))
      await Promise.all(left.map((run) => run.ended))
      stopped.abort()
      for (const timer of timers) clearInterval(timer)
      const ids = left.map(({ row }) => row.id)
      const data = { leaseUntil: clock.now() }
      await db.execution.updateMany({ where: { id: { in: ids }, leaseOwner: owner, status: 'running' }, data })
    },
  }
}

/** The text of the step that is on, or of the last one. */
function textSoFar(text: string, data: MessageData): string {
  if (data.messageType === 'stream_event') return text + data.delta.text
  if (data.messageType === 'tool_result') return ''
  return text
}
