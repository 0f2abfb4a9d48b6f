import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { Db, Prisma } from '../../../db/client.ts'
import { chunk } from '../../../lib/chunk.ts'
import type { Clock } from '../../../lib/clock.ts'
import { createRegistry } from '../../../lib/registry.ts'
import { type Batch, inWrites, lengthOfAll, MAX_WRITE, writeOwned } from './event-writes.ts'
import { type ExecutionEvent, type ExecutionRow, type MessageData, terminalEvent } from './events.ts'

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
/** Number of event numbers that are reserved at a time. */
export const SEQ_BLOCK = 256
/** Maximum size of a subscriber's queue (bytes, estimated). Beyond it the subscriber reads from the database. */
const MAX_WAITING = 256 * 1024
/**
 * Size of a queue after which only a part of it is taken (bytes, estimated). A slow reader occupies the memory of it.
 */
const MAX_TAKEN = 128 * 1024

/** A run is compacted if it has more segments than this, of a smaller average size (bytes, estimated). */
const MANY_SEGMENTS = 16
const SMALL_SEGMENT = 8 * 1024

export type MessageEvent = Extract<ExecutionEvent, { event: 'message' }>

/** A subscriber of an execution in this process. */
export type Subscriber = {
  readonly stream: RunStream
  waiting: ExecutionEvent[]
  size: number
  isEnded: boolean
  wake: ((hasMore: boolean) => void) | null
}

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
  /**
   * Stops further events. Resolves with the events that are not acknowledged as stored, and with `mayBeStored` if a
   * failed write may have stored them. Also has the number of the terminal event, and whether the stored events lie in
   * many small segments.
   */
  seal(
    stream: RunStream,
  ): Promise<{ events: readonly MessageEvent[]; mayBeStored: boolean; terminalSeq: number; scattered: boolean }>
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

/**
 * Returns whether the database may have events that a new subscriber of the stream does not get, such as those of
 * earlier attempts.
 */
export const hasStored = ({ stored, row }: RunStream): boolean => stored || row.attempt > 1

/** Waits for events. Returns false if the subscriber must read from the database again. */
export const waitForMore = (subscriber: Subscriber): Promise<boolean> =>
  new Promise((resolve) => {
    if (subscriber.waiting.length || subscriber.isEnded) resolve(subscriber.waiting.length > 0)
    else subscriber.wake = resolve
  })

/** Takes the events that wait for the subscriber, or the first ones of a long queue. */
export function take(subscriber: Subscriber): readonly ExecutionEvent[] {
  const { waiting, size } = subscriber
  let taken = size
  let count = waiting.length
  if (size > MAX_TAKEN) for (taken = 0, count = 0; taken < MAX_TAKEN; count++) taken += sizeOf(waiting[count]!)
  subscriber.waiting = waiting.slice(count)
  subscriber.size = size - taken
  return count === waiting.length ? waiting : waiting.slice(0, count)
}

/** Ends the subscriber. */
export function unsubscribe(subscriber: Subscriber): void {
  const { stream } = subscriber
  stream.subscribers = stream.subscribers.filter((other) => other !== subscriber)
  sendToDatabase(subscriber)
}

/** The events of one attempt of an execution in this process. */
export type RunStream = {
  readonly row: ExecutionRow
  readonly onLost: () => void
  nextSeq: number
  reserved: number
  /** Events that are not acknowledged as stored. */
  unpersisted: MessageEvent[]
  /** Whether a failed write may have stored a part of them, because only its acknowledgement was lost. */
  mayBeStored: boolean
  /**
   * Whether an event of the attempt is stored. Before that, subscribers see nothing (contract.md section 4,
   * "Durability").
   */
  stored: boolean
  /**
   * Whether unpersisted events are hidden from subscribers until they are stored: none is stored yet, or one must
   * survive a crash once it is visible.
   */
  blocked: boolean
  /** The number of the last published event. */
  lastPublishedSeq: number
  /** Number of stored segments, and their total size (bytes, estimated). */
  segments: number
  size: number
  isEnding: boolean
  subscribers: readonly Subscriber[]
  reservation: PromiseWithResolvers<void> | null
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

  /** Publishes stored events, and releases a run that waited for numbers. */
  function acknowledge({ stream, events, reserve }: Batch): void {
    stream.reserved = reserve ?? stream.reserved
    stream.unpersisted = stream.unpersisted.slice(events.length)
    stream.mayBeStored = false
    stream.segments++
    for (const event of events) stream.size += sizeOf(event)
    stream.stored = true
    if (stream.lastPublishedSeq < events.at(-1)!.seq) {
      stream.blocked = stream.unpersisted.some(({ data }) => mustSurviveCrash(data))
      const first = stream.unpersisted.findIndex(({ data }) => mustSurviveCrash(data) || isClosing(data))
      publish(stream, [...events, ...(first >= 0 ? stream.unpersisted.slice(0, first) : stream.unpersisted)])
    }
    if (stream.reservation && stream.nextSeq <= stream.reserved) {
      stream.reservation.resolve()
      stream.reservation = null
    }
  }

  function publish(stream: RunStream, given: readonly ExecutionEvent[]): void {
    const events = given.filter(({ seq }) => seq > stream.lastPublishedSeq)
    stream.lastPublishedSeq = events.at(-1)?.seq ?? stream.lastPublishedSeq
    for (const subscriber of stream.subscribers) {
      if (subscriber.isEnded) continue
      for (const event of events) {
        subscriber.waiting.push(event)
        subscriber.size += sizeOf(event)
      }
      if (subscriber.size > MAX_WAITING) sendToDatabase(subscriber)
      else subscriber.wake?.(true)
    }
  }

  return {
    open(row, onLost) {
      const stream: RunStream = {
        row,
        onLost,
        nextSeq: row.seqReserved - SEQ_BLOCK + 1,
        reserved: row.seqReserved,
        unpersisted: [],
        mayBeStored: false,
        stored: false,
        blocked: true,
        lastPublishedSeq: 0,
        segments: 0,
        size: 0,
        isEnding: false,
        subscribers: [],
        reservation: null,
      }
      streams.set(row.id, stream)
      return stream
    },
    append(stream, data) {
      const event: MessageEvent = { seq: stream.nextSeq++, at: clock.now(), event: 'message', data }
      stream.unpersisted.push(event)
      stream.blocked ||= mustSurviveCrash(data)
      if (!stream.blocked && !isClosing(data)) publish(stream, [event])
      if (stream.nextSeq > stream.reserved) stream.reservation ??= Promise.withResolvers()
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
      const { unpersisted: events, mayBeStored, nextSeq: terminalSeq, segments, size } = stream
      const scattered = segments > MANY_SEGMENTS && size / segments < SMALL_SEGMENT
      return { events, mayBeStored, terminalSeq, scattered }
    },
    close(stream, ended) {
      const { row, unpersisted, reservation, subscribers } = stream
      if (streams.get(row.id) === stream) streams.delete(row.id)
      reservation?.resolve()
      const terminal = ended && terminalEvent(ended)
      if (terminal) publish(stream, [...unpersisted, terminal])
      for (const subscriber of subscribers) {
        subscriber.isEnded = true
        subscriber.wake?.(subscriber.waiting.length > 0)
      }
    },
    subscribe(stream, after) {
      const waiting = stream.unpersisted.filter(({ seq }) => seq > after && seq <= stream.lastPublishedSeq)
      const size = waiting.reduce((sum, event) => sum + sizeOf(event), 0)
      const subscriber: Subscriber = { stream, waiting, size, isEnded: false, wake: null }
      stream.subscribers = stream.subscribers.concat(subscriber)
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

/** Returns whether a subscriber waits for the stream's events to be stored, or the run for numbers. */
const isAwaited = ({ blocked, subscribers, reservation }: RunStream): boolean =>
  (blocked && subscribers.length > 0) || reservation !== null

/** Sends a subscriber to the database. */
function sendToDatabase(subscriber: Subscriber): void {
  subscriber.isEnded = true
  subscriber.waiting = []
  subscriber.size = 0
  subscriber.wake?.(false)
}

/**
 * Returns whether an event must survive a crash once it is visible: a resumed run publishes tool calls and their
 * results once.
 */
const mustSurviveCrash = (data: MessageData): boolean =>
  data.messageType === 'assistant'
    ? data.content.some(({ type }) => type === 'tool_use')
    : data.messageType !== 'stream_event'

/**
 * Returns whether an event is the final answer. Subscribers get it with the terminal event, which is published right
 * after its write.
 */
const isClosing = (data: MessageData): boolean => data.messageType === 'assistant' && !mustSurviveCrash(data)

/** Estimates the memory of an event (bytes). The estimate grows with the text. */
function sizeOf(event: ExecutionEvent): number {
  const data = event.event === 'message' ? event.data : null
  const text =
    data?.messageType === 'stream_event' ? data.delta.text : data?.messageType === 'tool_result' ? data.content : ''
  return 200 + text.length * 2
}
