import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { Db, Prisma } from '../../../db/client.ts'
import { chunk } from '../../../lib/chunk.ts'
import type { Clock } from '../../../lib/clock.ts'
import { createRegistry } from '../../../lib/registry.ts'
import { type Batch, inWrites, lengthOfAll, MAX_WRITE, writeOwned } from './event-writes.ts'
import type { ExecutionRow, MessageData } from './events.ts'
import {
  acknowledge,
  addSubscriber,
  appendTo,
  closeStream,
  isAwaited,
  openStream,
  type RunStream,
  SEQ_BLOCK,
  type Sealed,
  type Subscriber,
  sealed,
  sendToDatabase,
} from './run-stream.ts'

/**
 * Time for which events are collected before a write (ms). It grows with the duration of writes, so that writing takes
 * a small share of the time.
 */
const FLUSH_INTERVAL = 50
const MAX_FLUSH_INTERVAL = 250
const FLUSH_SHARE = 0.05
const RETRY_INTERVAL = 500
/** Maximum number of executions whose events one transaction stores, because streams wait during it. */
const MAX_IN_TRANSACTION = 500

export type EventLog = {
  /**
   * Opens the stream of one attempt of an execution. `onLost` is called when another process has taken the execution
   * over.
   */
  open(row: ExecutionRow, onLost: () => void): RunStream
  /**
   * Numbers an event, schedules its write and publishes it to subscribers. The caller awaits the returned promise,
   * which resolves when numbers are reserved.
   */
  append(stream: RunStream, data: MessageData): Promise<void> | undefined
  /** Stops further events. Waits for a write in progress, and returns the rest, which is stored with the end of the run. */
  seal(stream: RunStream): Promise<Sealed>
  /**
   * Publishes the terminal event and ends the stream. `ended` is null if another process has taken the execution over.
   */
  close(stream: RunStream, ended: ExecutionRow | null): void
  find(executionId: string): RunStream | undefined
  /** Subscribes to the events after a number. Events that are not stored yet wait for the subscriber already. */
  subscribe(stream: RunStream, after: number): Subscriber
  /** Writes all waiting events. Tries once. */
  flush(): Promise<void>
  /** Sends all subscribers to the database. */
  dismiss(): void
}

export type EventLogDeps = {
  db: Db
  clock: Clock
  log: Logger
  owner: string
  /** Locks the selected rows until the end of the transaction (db/client.ts). */
  rowLock: Prisma.Sql
  /** Is called with the executions whose events were stored, for subscribers in other processes. */
  onStored: (executionIds: string[]) => void
}

/**
 * Creates the event log of the executions of this process. One flusher writes the new segments of all of them in few
 * transactions, fenced per execution, while subscribers in this process get events at once (docs/architecture/run.md).
 */
export function createEventLog(deps: EventLogDeps): EventLog {
  const { clock, log } = deps
  const streams = createRegistry<string, RunStream>()
  let timer: NodeJS.Timeout | null = null
  let flushing: Promise<void> | null = null
  /** The running transaction of a flush. */
  let storing: Promise<void> | null = null
  /** The scope of the next write: all waiting events, or only those that a subscriber or run waits for. */
  let wanted: 'all' | 'urgent' | null = null
  let interval = FLUSH_INTERVAL
  /** Whether the last write failed. The next one then waits for its interval, whatever the number of waiters. */
  let failed = false

  function schedule(soon: boolean): void {
    timer ??= setTimeout(flushAll, interval)
    if (!soon) return
    wanted ??= 'urgent'
    if (!flushing && !failed) void flush()
  }

  function flushAll(): Promise<void> {
    if (timer) clearTimeout(timer)
    timer = null
    wanted = 'all'
    return flush()
  }

  function flush(): Promise<void> {
    flushing ??= writeDue()
      .then(
        () => {
          failed = false
        },
        (error) => {
          if (!failed) log.error({ err: error }, 'events could not be stored, trying again')
          failed = true
          if (timer) clearTimeout(timer)
          timer = setTimeout(flushAll, RETRY_INTERVAL)
        },
      )
      .then(() => {
        flushing = null
        if (wanted && !failed) void flush()
      })
    return flushing
  }

  async function flushNow(): Promise<void> {
    // A write in progress misses newer events. The next one covers them for all waiters.
    if (flushing) wanted = 'all'
    await flushing
    await (flushing ?? flushAll())
  }

  const hasUnpersisted = ({ unpersisted, isEnding }: RunStream) => unpersisted.length > 0 && !isEnding

  async function writeDue(): Promise<void> {
    const all = wanted === 'all'
    wanted = null
    const begun = performance.now()
    const due = streams.values().filter((stream) => hasUnpersisted(stream) && (all || isAwaited(stream)))
    for (const part of chunk(due, MAX_IN_TRANSACTION)) {
      storing = store(part.filter(hasUnpersisted))
      await storing
    }
    const patience = (performance.now() - begun) / FLUSH_SHARE
    if (all && due.length) interval = Math.min(Math.max(patience, FLUSH_INTERVAL), MAX_FLUSH_INTERVAL)
  }

  /** Stores the events of some executions, and publishes those that waited for that. */
  async function store(some: readonly RunStream[]): Promise<void> {
    if (!some.length) return
    const batches = some.map((stream): Batch => {
      const reserve = stream.nextSeq + SEQ_BLOCK / 2 > stream.reserved ? stream.reserved + SEQ_BLOCK : null
      return { stream, events: [...stream.unpersisted], reserve }
    })
    for (const [index, part] of inWrites(batches).entries()) {
      // A large write blocks the event loop, so other requests get a turn between two of them.
      if (index) await nextTurn()
      await storePart(part)
    }
  }

  /** Stores batches in one transaction. */
  async function storePart(batches: readonly Batch[]): Promise<void> {
    const at = clock.now()
    const kept = await writeOwned(deps, batches, at).catch((error) => {
      for (const { stream } of batches) stream.mayBeStored = true
      throw error
    })
    deps.onStored([...kept].map(({ stream }) => stream.row.id))
    for (const batch of batches) {
      if (kept.has(batch)) acknowledge(batch)
      else {
        batch.stream.onLost()
        batch.stream.reservation?.resolve()
      }
    }
  }

  return {
    open(row, onLost) {
      const stream = openStream(row, onLost)
      streams.set(row.id, stream)
      return stream
    },
    append(stream, data) {
      appendTo(stream, data, clock.now())
      schedule(isAwaited(stream))
      return stream.reservation?.promise
    },
    async seal(stream) {
      // The final transaction of a run already writes the whole answer twice.
      if (lengthOfAll(stream.unpersisted) > MAX_WRITE) {
        await flushNow()
        await nextTurn()
      }
      stream.isEnding = true
      await storing?.catch(() => {})
      return sealed(stream)
    },
    close(stream, ended) {
      if (streams.get(stream.row.id) === stream) streams.delete(stream.row.id)
      closeStream(stream, ended)
    },
    subscribe(stream, after) {
      const subscriber = addSubscriber(stream, after)
      if (stream.unpersisted.length && isAwaited(stream)) schedule(true)
      return subscriber
    },
    find: (executionId) => streams.get(executionId),
    flush: flushNow,
    dismiss() {
      for (const { subscribers } of streams.values()) for (const subscriber of subscribers) sendToDatabase(subscriber)
    },
  }
}
