import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Logger } from 'pino'
import { type Db, Prisma, type Tx } from '../../../db/client.ts'
import { padded } from '../../../db/fast-path/index.ts'
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
 * How long events wait for company before they are written (ms). The more runs there are the longer it takes, and the
 * longer they wait, so that writing leaves most of the time to the runs.
 */
const FLUSH_INTERVAL = 50
const MAX_FLUSH_INTERVAL = 250
const FLUSH_SHARE = 0.05
const RETRY_INTERVAL = 500
/** How many executions' events are stored in one transaction: streams wait while they are put into it. */
const MAX_IN_TRANSACTION = 500
/** Maximum length of what is stored in one transaction (characters), apart from an event that is longer by itself. */
const MAX_WRITE = 512 * 1024
/** How many event numbers are reserved ahead at a time. */
export const SEQ_BLOCK = 256
/** A follower with so much waiting (bytes, roughly) is sent to the database instead. */
const MAX_WAITING = 256 * 1024

/** More segments than this, and smaller ones on average (bytes, roughly), are worth putting together. */
const MANY_SEGMENTS = 16
const SMALL_SEGMENT = 8 * 1024

type MessageEvent = Extract<ExecutionEvent, { event: 'message' }>

/** Somebody who follows an execution in this process. */
export type Follower = {
  readonly channel: Channel
  waiting: ExecutionEvent[]
  size: number
  over: boolean
  wake: ((more: boolean) => void) | null
}

export type Journal = {
  /** For the events of one execution, in one attempt. `onLost` is told when it was taken away from this process. */
  open(row: ExecutionRow, onLost: () => void): Channel
  /** Numbers the event, stores it soon and shows it to followers. Await what it returns: room in the numbers. */
  append(channel: Channel, data: MessageData): Promise<void> | undefined
  /**
   * No more events: resolves to what is not stored yet, as far as is known (`mayBeStored`), the terminal event's number, and
   * whether what is stored lies in many small segments, for the terminal write.
   */
  drain(
    channel: Channel,
  ): Promise<{ events: readonly MessageEvent[]; mayBeStored: boolean; terminalSeq: number; scattered: boolean }>
  /** Shows how it ended; null when the run was taken away from this process. */
  close(channel: Channel, ended: ExecutionRow | null): void
  find(executionId: string): Channel | undefined
  follow(channel: Channel): Follower
  /** Writes what is waiting now; tries once. */
  flush(): Promise<void>
  /** Sends all followers away. */
  dismiss(): void
}

/** Whether events may stand in the database that a new follower is not told: an earlier attempt may have stored some. */
export const hasStored = ({ stored, row }: Channel): boolean => stored || row.attempt > 1

/** Waits for more; false when it is time to look into the database again. */
export const more = (follower: Follower): Promise<boolean> =>
  new Promise((resolve) => {
    if (follower.waiting.length || follower.over) resolve(follower.waiting.length > 0)
    else follower.wake = resolve
  })

/** What has come. */
export function take(follower: Follower): readonly ExecutionEvent[] {
  const events = follower.waiting
  follower.waiting = []
  follower.size = 0
  return events
}

/** Follows no more. */
export function leave(follower: Follower): void {
  const { channel } = follower
  channel.followers = channel.followers.filter((other) => other !== follower)
  send(follower)
}

/** What one execution, in one attempt, says in this process. */
export type Channel = {
  readonly row: ExecutionRow
  readonly onLost: () => void
  nextSeq: number
  reserved: number
  /** What is not stored yet. */
  tail: MessageEvent[]
  /** Some of the tail may be stored: a write failed, and it may have been only the word of it that got lost. */
  mayBeStored: boolean
  /** Until something of the attempt is stored, followers see nothing (contract.md section 4, "Durability"). */
  stored: boolean
  /** They see nothing of the tail before it is stored: it is the first, or has what must not be lost once it was seen. */
  held: boolean
  /** The number of the last event that they have seen. */
  shown: number
  /** How many segments are stored, and of what size together (bytes, roughly). */
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
  /** Keeps rows that a statement of a transaction reads as they are until its end (db/client.ts). */
  rowLock: Prisma.Sql
  /** Is told of which executions events have been stored: who follows them elsewhere reads them. */
  onStored: (executionIds: string[]) => void
}

/**
 * The events of all executions that run in this process: one flusher writes the new segments of all of them in few
 * transactions, fenced per execution, while followers in this process see them at once (docs/architecture/run.md).
 */
export function createJournal(deps: JournalDeps): Journal {
  const { db, clock, log } = deps
  const channels = new Map<string, Channel>()
  let timer: NodeJS.Timeout | null = null
  let flushing: Promise<void> | null = null
  /** The part of a flush that is being written. */
  let storing: Promise<void> | null = null
  /** What the next write is for: all that waits, or only what somebody waits for. */
  let wanted: 'all' | 'urgent' | null = null
  let interval = FLUSH_INTERVAL
  /** The last write failed: the next one is tried when it is time, however many wait for it. */
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
    // What is being written does not have what came since: the one behind it does, for all who wait.
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

  /** Writes what some executions have said, and shows it to those who have waited for that. */
  async function store(some: readonly Channel[]): Promise<void> {
    if (!some.length) return
    const batches = some.map((channel): Batch => {
      const reserve = channel.nextSeq + SEQ_BLOCK / 2 > channel.reserved ? channel.reserved + SEQ_BLOCK : null
      return { channel, events: [...channel.tail], reserve }
    })
    for (const [index, part] of inWrites(batches).entries()) {
      // Each write of megabytes blocks the event loop: other requests get a turn between two of them.
      if (index) await nextTurn()
      await storePart(part)
    }
  }

  /** Does so in one transaction. */
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

  /** What is stored may be seen, and what has waited for it goes on. */
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
      // The final transaction of a run writes the whole answer twice already.
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

/** What an execution has said and is not stored yet, and up to which number it reserves those of its events with it. */
type Batch = { channel: Channel; events: readonly MessageEvent[]; reserve: number | null }

const lengthOfAll = (events: readonly MessageEvent[]): number =>
  events.reduce((sum, { data }) => sum + lengthOf(data), 0)

/** Divides what executions have said into transactions of a bounded size. Mostly there is one. */
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

/** Writes the batches of the attempts that are still this process's, and returns those: the others were taken away. */
async function writeOwned(
  tx: Tx,
  { owner, rowLock }: JournalDeps,
  batches: readonly Batch[],
  at: Date,
): Promise<ReadonlySet<Batch>> {
  // One statement locks the rows and tells which attempts are still ours: the fence. The heartbeat keeps the leases.
  const owned = await tx.$queryRaw<{ id: string; attempt: number }[]>(Prisma.sql`
    SELECT "id", "attempt" FROM "Execution"
    WHERE "leaseOwner" = ${owner} AND "status" = 'running'
      AND "id" IN (${Prisma.join(padded(batches.map(({ channel }) => channel.row.id)))}) ${rowLock}`)
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

/** Whether somebody waits until what there is of a run is stored: a follower, or the run for room in its numbers. */
const isAwaited = ({ held, followers, room }: Channel): boolean => (held && followers.length > 0) || room !== null

/** To the database. */
function send(follower: Follower): void {
  follower.over = true
  follower.waiting = []
  follower.wake?.(false)
}

/** A run that goes on after a crash says once what its tools were asked and have answered. */
const isToLast = (data: MessageData): boolean =>
  data.messageType === 'assistant'
    ? data.content.some(({ type }) => type === 'tool_use')
    : data.messageType !== 'stream_event'

/** What a run says last: its followers are told with the end, which is there as soon as it is written. */
const isClosing = (data: MessageData): boolean => data.messageType === 'assistant' && !isToLast(data)

/** The heap that an event costs, roughly: what matters is that it grows with the text. */
function sizeOf(event: ExecutionEvent): number {
  const data = event.event === 'message' ? event.data : null
  const text =
    data?.messageType === 'stream_event' ? data.delta.text : data?.messageType === 'tool_result' ? data.content : ''
  return 200 + text.length * 2
}
