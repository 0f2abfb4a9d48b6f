import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Logger } from 'pino'
import { type Db, Prisma, type Tx } from '../../../db/client.ts'
import { padToPowerOfTwo } from '../../../db/fast-path/index.ts'
import type { Clock } from '../../../lib/clock.ts'
import { inParts } from '../../../lib/parts.ts'
import {
  type ExecutionEvent,
  type ExecutionRow,
  forgetFrom,
  lengthOf,
  type MessageData,
  terminalEvent,
  toSegments,
} from './events.ts'

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
/** Maximum length of the events of one transaction (characters), except for a longer single event. */
const MAX_WRITE = 512 * 1024
/** Number of event numbers that are reserved at a time. */
export const SEQ_BLOCK = 256
/** Maximum size of a follower's queue (bytes, estimated). Beyond it the follower reads from the database. */
const MAX_WAITING = 256 * 1024

/** A run is compacted if it has more segments than this, of a smaller average size (bytes, estimated). */
const MANY_SEGMENTS = 16
const SMALL_SEGMENT = 8 * 1024

type MessageEvent = Extract<ExecutionEvent, { event: 'message' }>

/** A subscriber of an execution in this process. */
export type Follower = {
  readonly channel: Channel
  waiting: ExecutionEvent[]
  size: number
  over: boolean
  wake: ((more: boolean) => void) | null
}

export type Journal = {
  /**
   * Opens the channel of one attempt of an execution. `onLost` is called when another process has taken the execution
   * over.
   */
  open(row: ExecutionRow, onLost: () => void): Channel
  /**
   * Numbers an event, schedules its write and publishes it to followers. The caller awaits the returned promise, which
   * resolves when numbers are reserved.
   */
  append(channel: Channel, data: MessageData): Promise<void> | undefined
  /**
   * Stops further events. Resolves with the events that are not acknowledged as stored, with `mayBeStored` if a failed
   * write may have stored them, the number of the terminal event, and whether the stored events lie in many small
   * segments.
   */
  drain(
    channel: Channel,
  ): Promise<{ events: readonly MessageEvent[]; mayBeStored: boolean; terminalSeq: number; scattered: boolean }>
  /**
   * Publishes the terminal event and ends the channel. `ended` is null if another process has taken the execution over.
   */
  close(channel: Channel, ended: ExecutionRow | null): void
  find(executionId: string): Channel | undefined
  follow(channel: Channel): Follower
  /** Writes all waiting events. Tries once. */
  flush(): Promise<void>
  /** Sends all followers to the database. */
  dismiss(): void
}

/**
 * Whether the database may have events that a new follower of the channel does not get, such as those of earlier
 * attempts.
 */
export const hasStored = ({ stored, row }: Channel): boolean => stored || row.attempt > 1

/** Waits for events. Returns false if the follower must read from the database again. */
export const more = (follower: Follower): Promise<boolean> =>
  new Promise((resolve) => {
    if (follower.waiting.length || follower.over) resolve(follower.waiting.length > 0)
    else follower.wake = resolve
  })

/** Returns and empties the follower's queue. */
export function take(follower: Follower): readonly ExecutionEvent[] {
  const events = follower.waiting
  follower.waiting = []
  follower.size = 0
  return events
}

/** Ends the follower. */
export function leave(follower: Follower): void {
  const { channel } = follower
  channel.followers = channel.followers.filter((other) => other !== follower)
  send(follower)
}

/** The events of one attempt of an execution in this process. */
export type Channel = {
  readonly row: ExecutionRow
  readonly onLost: () => void
  nextSeq: number
  reserved: number
  /** Events that are not acknowledged as stored. */
  tail: MessageEvent[]
  /** Whether a failed write may have stored a part of the tail, because only its acknowledgement was lost. */
  mayBeStored: boolean
  /**
   * Whether an event of the attempt is stored. Before that, followers see nothing (contract.md section 4,
   * "Durability").
   */
  stored: boolean
  /**
   * Whether the tail is hidden from followers until it is stored: it is the first one, or has events that must survive
   * once they are visible.
   */
  held: boolean
  /** The number of the last published event. */
  shown: number
  /** Number of stored segments, and their total size (bytes, estimated). */
  segments: number
  size: number
  ending: boolean
  followers: readonly Follower[]
  room: PromiseWithResolvers<void> | null
}

export type JournalDeps = {
  db: Db
  clock: Clock
  log: Logger
  owner: string
  /** Locks the selected rows until the end of the transaction (db/client.ts). */
  rowLock: Prisma.Sql
  /** Is called with the executions whose events were stored, for followers in other processes. */
  onStored: (executionIds: string[]) => void
}

/**
 * Creates the event log of the executions of this process. One flusher writes the new segments of all of them in few
 * transactions, fenced per execution, while followers in this process get events at once (docs/architecture/run.md).
 */
export function createJournal(deps: JournalDeps): Journal {
  const { db, clock, log } = deps
  const channels = new Map<string, Channel>()
  let timer: NodeJS.Timeout | null = null
  let flushing: Promise<void> | null = null
  /** The running transaction of a flush. */
  let storing: Promise<void> | null = null
  /** The scope of the next write: all waiting events, or only those that a follower or run waits for. */
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
    flushing ??= write()
      .then(
        () => {
          failed = false
        },
        (error) => {
          log.error({ err: error }, 'events could not be stored, trying again')
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

  const hasNews = ({ tail, ending }: Channel) => tail.length > 0 && !ending

  async function write(): Promise<void> {
    const all = wanted === 'all'
    wanted = null
    const begun = performance.now()
    const due = [...channels.values()].filter((channel) => hasNews(channel) && (all || isAwaited(channel)))
    for (const part of inParts(due, MAX_IN_TRANSACTION)) {
      storing = store(part.filter(hasNews))
      await storing
    }
    const patience = (performance.now() - begun) / FLUSH_SHARE
    if (all && due.length) interval = Math.min(Math.max(patience, FLUSH_INTERVAL), MAX_FLUSH_INTERVAL)
  }

  /** Stores the events of some executions, and publishes those that waited for that. */
  async function store(some: readonly Channel[]): Promise<void> {
    if (!some.length) return
    const batches = some.map((channel): Batch => {
      const reserve = channel.nextSeq + SEQ_BLOCK / 2 > channel.reserved ? channel.reserved + SEQ_BLOCK : null
      return { channel, events: [...channel.tail], reserve }
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
    const kept = await db
      .$transaction((tx) => writeOwned(tx, deps, batches, at))
      .catch((error) => {
        for (const { channel } of batches) channel.mayBeStored = true
        throw error
      })
    deps.onStored([...kept].map(({ channel }) => channel.row.id))
    for (const batch of batches) {
      if (kept.has(batch)) acknowledge(batch)
      else {
        batch.channel.onLost()
        batch.channel.room?.resolve()
      }
    }
  }

  /** Publishes stored events, and releases a run that waited for numbers. */
  function acknowledge({ channel, events, reserve }: Batch): void {
    channel.reserved = reserve ?? channel.reserved
    channel.tail = channel.tail.slice(events.length)
    channel.mayBeStored = false
    channel.segments++
    for (const event of events) channel.size += sizeOf(event)
    channel.stored = true
    if (channel.shown < events.at(-1)!.seq) {
      channel.held = channel.tail.some(({ data }) => isToLast(data))
      const first = channel.tail.findIndex(({ data }) => isToLast(data) || isClosing(data))
      show(channel, [...events, ...(first >= 0 ? channel.tail.slice(0, first) : channel.tail)])
    }
    if (channel.room && channel.nextSeq <= channel.reserved) {
      channel.room.resolve()
      channel.room = null
    }
  }

  function show(channel: Channel, given: readonly ExecutionEvent[]): void {
    const events = given.filter(({ seq }) => seq > channel.shown)
    channel.shown = events.at(-1)?.seq ?? channel.shown
    for (const follower of channel.followers) {
      if (follower.over) continue
      for (const event of events) {
        follower.waiting.push(event)
        follower.size += sizeOf(event)
      }
      if (follower.size > MAX_WAITING) send(follower)
      else follower.wake?.(true)
    }
  }

  return {
    open(row, onLost) {
      const channel: Channel = {
        row,
        onLost,
        nextSeq: row.seqReserved - SEQ_BLOCK + 1,
        reserved: row.seqReserved,
        tail: [],
        mayBeStored: false,
        stored: false,
        held: true,
        shown: 0,
        segments: 0,
        size: 0,
        ending: false,
        followers: [],
        room: null,
      }
      channels.set(row.id, channel)
      return channel
    },
    append(channel, data) {
      const event: MessageEvent = { seq: channel.nextSeq++, at: clock.now(), event: 'message', data }
      channel.tail.push(event)
      channel.held ||= isToLast(data)
      if (!channel.held && !isClosing(data)) show(channel, [event])
      if (channel.nextSeq > channel.reserved) channel.room ??= Promise.withResolvers()
      schedule(isAwaited(channel))
      return channel.room?.promise
    },
    async drain(channel) {
      // The final transaction of a run already writes the whole answer twice.
      if (lengthOfAll(channel.tail) > MAX_WRITE) {
        await flushNow()
        await nextTurn()
      }
      channel.ending = true
      await storing?.catch(() => {})
      const { tail: events, mayBeStored, nextSeq: terminalSeq, segments, size } = channel
      const scattered = segments > MANY_SEGMENTS && size / segments < SMALL_SEGMENT
      return { events, mayBeStored, terminalSeq, scattered }
    },
    close(channel, ended) {
      const { row, tail, room, followers } = channel
      if (channels.get(row.id) === channel) channels.delete(row.id)
      room?.resolve()
      const terminal = ended && terminalEvent(ended)
      if (terminal) show(channel, [...tail, terminal])
      for (const follower of followers) {
        follower.over = true
        follower.wake?.(follower.waiting.length > 0)
      }
    },
    follow(channel) {
      const waiting = channel.tail.filter(({ seq }) => seq <= channel.shown)
      const follower: Follower = { channel, waiting, size: 0, over: false, wake: null }
      channel.followers = channel.followers.concat(follower)
      if (channel.tail.length && isAwaited(channel)) schedule(true)
      return follower
    },
    find: (executionId) => channels.get(executionId),
    flush: flushNow,
    dismiss() {
      for (const { followers } of channels.values()) for (const follower of followers) send(follower)
    },
  }
}

/** Unstored events of an execution, and the new limit of its reserved numbers, or null. */
type Batch = { channel: Channel; events: readonly MessageEvent[]; reserve: number | null }

const lengthOfAll = (events: readonly MessageEvent[]): number =>
  events.reduce((sum, { data }) => sum + lengthOf(data), 0)

/** Divides events into transactions of a limited size. Mostly there is one. */
function inWrites(batches: readonly Batch[]): Batch[][] {
  const writes: Batch[][] = [[]]
  let length = 0
  for (const { channel, events, reserve } of batches) {
    let from = 0
    const addUpTo = (end: number) => {
      writes.at(-1)!.push({ channel, events: events.slice(from, end), reserve: from === 0 ? reserve : null })
      from = end
    }
    for (const [index, { data }] of events.entries()) {
      const more = lengthOf(data)
      if (length && length + more > MAX_WRITE) {
        if (index > from) addUpTo(index)
        writes.push([])
        length = 0
      }
      length += more
    }
    addUpTo(events.length)
  }
  return writes
}

/** Writes the batches of attempts that this process still owns. Returns them. */
async function writeOwned(
  tx: Tx,
  { owner, rowLock }: JournalDeps,
  batches: readonly Batch[],
  at: Date,
): Promise<ReadonlySet<Batch>> {
  // One statement locks the rows and finds the owned attempts: the fence. The heartbeat extends the leases.
  const owned = await tx.$queryRaw<{ id: string; attempt: number }[]>(Prisma.sql`
    SELECT "id", "attempt" FROM "Execution"
    WHERE "leaseOwner" = ${owner} AND "status" = 'running'
      AND "id" IN (${Prisma.join(padToPowerOfTwo(batches.map(({ channel }) => channel.row.id)))}) ${rowLock}`)
  const attempts = new Map(owned.map((row) => [row.id, row.attempt]))
  const mine = batches.filter(({ channel: { row } }) => attempts.get(row.id) === row.attempt)
  for (const { channel, reserve } of mine) {
    if (reserve === null) continue
    await tx.execution.update({
      where: { id: channel.row.id },
      data: { seqReserved: reserve },
      select: { id: true },
    })
  }
  for (const { channel, events } of mine) {
    if (channel.mayBeStored) await forgetFrom(tx, channel.row.id, events[0]!.seq)
  }
  await tx.executionEvent.createMany({
    data: mine.flatMap(({ channel, events }) => toSegments(channel.row.id, at, events)),
  })
  return new Set(mine)
}

/** Whether a follower waits for the channel's events to be stored, or the run for numbers. */
const isAwaited = ({ held, followers, room }: Channel): boolean => (held && followers.length > 0) || room !== null

/** Sends a follower to the database. */
function send(follower: Follower): void {
  follower.over = true
  follower.waiting = []
  follower.wake?.(false)
}

/**
 * Whether an event must survive a crash once it is visible: a resumed run publishes tool calls and their results once.
 */
const isToLast = (data: MessageData): boolean =>
  data.messageType === 'assistant'
    ? data.content.some(({ type }) => type === 'tool_use')
    : data.messageType !== 'stream_event'

/**
 * Whether an event is the final answer. Followers get it with the terminal event, which is published right after its
 * write.
 */
const isClosing = (data: MessageData): boolean => data.messageType === 'assistant' && !isToLast(data)

/** Estimates the memory of an event (bytes). The estimate grows with the text. */
function sizeOf(event: ExecutionEvent): number {
  const data = event.event === 'message' ? event.data : null
  const text =
    data?.messageType === 'stream_event' ? data.delta.text : data?.messageType === 'tool_result' ? data.content : ''
  return 200 + text.length * 2
}
