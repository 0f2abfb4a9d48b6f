import type { Logger } from 'pino'
import { type Db, Prisma } from '../../db/client.ts'
import { padded } from '../../db/dialects.ts'
import type { Clock } from '../../lib/clock.ts'
import {
  type ExecutionEvent,
  type ExecutionRow,
  forgetFrom,
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
/** How many event numbers are reserved ahead at a time. */
export const SEQ_BLOCK = 256
/** A follower with so much waiting (bytes, roughly) is sent to the database instead. */
const MAX_WAITING = 256 * 1024

/** More segments than this, and smaller ones on average (bytes, roughly), are worth putting together. */
const MANY_SEGMENTS = 16
const SMALL_SEGMENT = 8 * 1024

type MessageEvent = Extract<ExecutionEvent, { event: 'message' }>

/** What one execution, in one attempt, says in this process. */
export type Channel = {
  readonly row: ExecutionRow
  /** Numbers the event, stores it soon and shows it to followers. Await what it returns: room in the numbers. */
  append(data: MessageData): Promise<void> | undefined
  /**
   * No more events: resolves to what is not stored yet, as far as is known (`unsure`), the terminal event's number, and
   * whether what is stored lies in many small segments, for the terminal write.
   */
  drain(): Promise<{ events: readonly MessageEvent[]; unsure: boolean; terminalSeq: number; scattered: boolean }>
  /** Shows how it ended; null when the run was taken away from this process. */
  close(ended: ExecutionRow | null): void
  follow(): Follower
}

export type Follower = {
  /** Whether events may stand in the database that `next` will not tell. */
  readonly stored: boolean
  /** The next events; null when it is time to look into the database again. */
  next(): Promise<readonly ExecutionEvent[] | null>
  end(): void
}

export type Journal = {
  open(row: ExecutionRow, onLost: () => void): Channel
  find(executionId: string): Channel | undefined
  /** Writes what is waiting now; tries once. */
  flush(): Promise<void>
  /** Sends all followers away. */
  dismiss(): void
}

type Seat = { waiting: ExecutionEvent[]; size: number; over: boolean; wake: (() => void) | null }

type State = {
  readonly row: ExecutionRow
  readonly onLost: () => void
  nextSeq: number
  reserved: number
  /** What is not stored yet. */
  tail: MessageEvent[]
  /** Some of the tail may be stored: a write failed, and it may have been only the word of it that got lost. */
  unsure: boolean
  /** Until something of the attempt is stored, followers see nothing (contract.md section 4, "Durability"). */
  stored: boolean
  /** They wait for something to be stored: the first of the attempt, or what must not be lost once it was seen. */
  held: boolean
  /** The number of the last event that they have seen. */
  shown: number
  /** How many segments are stored, and of what size together (bytes, roughly). */
  segments: number
  size: number
  ending: boolean
  readonly seats: Set<Seat>
  room: PromiseWithResolvers<void> | null
}

/**
 * The events of all executions that run in this process: one flusher writes the new segments of all of them in one
 * transaction, fenced per execution, while followers in this process see them at once (design: "Events").
 */
export function createJournal(deps: {
  db: Db
  clock: Clock
  log: Logger
  owner: string
  /** Keeps rows that a statement of a transaction reads as they are until its end (db/client.ts). */
  rowLock: Prisma.Sql
  /** Is told of which executions events have been stored: who follows them elsewhere reads them. */
  onStored: (executionIds: string[]) => void
}): Journal {
  const { db, clock, log, owner, rowLock } = deps
  const states = new Map<string, { state: State; channel: Channel }>()
  let timer: NodeJS.Timeout | null = null
  let flushing: Promise<void> | null = null
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

  const withNews = () => [...states.values()].flatMap(({ state }) => (state.tail.length && !state.ending ? state : []))

  async function write(): Promise<void> {
    const all = wanted === 'all'
    wanted = null
    const begun = performance.now()
    const batches = withNews().flatMap((state) => {
      if (!all && !isAwaited(state)) return []
      const reserve = state.nextSeq + SEQ_BLOCK / 2 > state.reserved ? state.reserved + SEQ_BLOCK : null
      return { state, events: [...state.tail], reserve }
    })
    if (!batches.length) return
    const at = clock.now()
    const storing = db.$transaction(async (tx) => {
      // One statement locks the rows and tells which attempts are still ours: the fence. The heartbeat keeps the leases.
      const owned = await tx.$queryRaw<{ id: string; attempt: number }[]>(Prisma.sql`
        SELECT "id", "attempt" FROM "Execution"
        WHERE "leaseOwner" = ${owner} AND "status" = 'running'
          AND "id" IN (${Prisma.join(padded(batches.map(({ state }) => state.row.id)))}) ${rowLock}`)
      const attempts = new Map(owned.map((row) => [row.id, row.attempt]))
      const mine = batches.filter(({ state }) => attempts.get(state.row.id) === state.row.attempt)
      for (const { state, reserve } of mine) {
        if (reserve === null) continue
        await tx.execution.update({
          where: { id: state.row.id },
          data: { seqReserved: reserve },
          select: { id: true },
        })
      }
      for (const { state, events } of mine) {
        if (state.unsure) await forgetFrom(tx, state.row.id, events[0]!.seq)
      }
      await tx.executionEvent.createMany({
        data: mine.flatMap(({ state, events }) => toSegments(state.row.id, at, events)),
      })
      return new Set(mine)
    })
    const kept = await storing.catch((error) => {
      for (const { state } of batches) state.unsure = true
      throw error
    })
    deps.onStored([...kept].map(({ state }) => state.row.id))
    for (const batch of batches) {
      const { state, events, reserve } = batch
      if (!kept.has(batch)) {
        state.onLost()
        state.room?.resolve()
        continue
      }
      state.reserved = reserve ?? state.reserved
      state.tail = state.tail.slice(events.length)
      state.unsure = false
      state.segments++
      for (const event of events) state.size += sizeOf(event)
      state.stored = true
      if (state.held) {
        const first = state.tail.findIndex(({ data }) => isToLast(data))
        state.held = first >= 0
        show(state, [...events, ...(state.held ? state.tail.slice(0, first) : state.tail)])
      }
      if (state.room && state.nextSeq <= state.reserved) {
        state.room.resolve()
        state.room = null
      }
    }
    const patience = (performance.now() - begun) / FLUSH_SHARE
    if (all) interval = Math.min(Math.max(patience, FLUSH_INTERVAL), MAX_FLUSH_INTERVAL)
  }

  function show(state: State, given: readonly ExecutionEvent[]): void {
    const events = given.filter(({ seq }) => seq > state.shown)
    state.shown = events.at(-1)?.seq ?? state.shown
    for (const seat of state.seats) {
      if (seat.over) continue
      for (const event of events) {
        seat.waiting.push(event)
        seat.size += sizeOf(event)
      }
      if (seat.size > MAX_WAITING) leave(seat)
      else seat.wake?.()
    }
  }

  return {
    open(row, onLost) {
      const state: State = {
        row,
        onLost,
        nextSeq: row.seqReserved - SEQ_BLOCK + 1,
        reserved: row.seqReserved,
        tail: [],
        unsure: false,
        stored: false,
        held: true,
        shown: 0,
        segments: 0,
        size: 0,
        ending: false,
        seats: new Set(),
        room: null,
      }
      const channel: Channel = {
        row,
        append(data) {
          const event: MessageEvent = { seq: state.nextSeq++, at: clock.now(), event: 'message', data }
          state.tail.push(event)
          state.held ||= isToLast(data)
          if (!state.held) show(state, [event])
          if (state.nextSeq > state.reserved) state.room ??= Promise.withResolvers()
          schedule(isAwaited(state))
          return state.room?.promise
        },
        async drain() {
          state.ending = true
          await flushing
          const scattered = state.segments > MANY_SEGMENTS && state.size / state.segments < SMALL_SEGMENT
          return { events: state.tail, unsure: state.unsure, terminalSeq: state.nextSeq, scattered }
        },
        close(ended) {
          if (states.get(row.id)?.channel === channel) states.delete(row.id)
          state.room?.resolve()
          const terminal = ended && terminalEvent(ended)
          if (terminal) show(state, [...state.tail, terminal])
          for (const seat of state.seats) {
            seat.over = true
            seat.wake?.()
          }
        },
        follow() {
          const seat: Seat = {
            waiting: state.tail.filter(({ seq }) => seq <= state.shown),
            size: 0,
            over: false,
            wake: null,
          }
          state.seats.add(seat)
          if (state.tail.length && isAwaited(state)) schedule(true)
          return {
            // An earlier attempt may have stored some.
            stored: state.stored || row.attempt > 1,
            async next() {
              while (!seat.waiting.length && !seat.over) {
                await new Promise<void>((resolve) => {
                  seat.wake = resolve
                })
              }
              const events = seat.waiting
              seat.waiting = []
              seat.size = 0
              return events.length ? events : null
            },
            end() {
              state.seats.delete(seat)
              leave(seat)
            },
          }
        },
      }
      states.set(row.id, { state, channel })
      return channel
    },
    find: (executionId) => states.get(executionId)?.channel,
    async flush() {
      // What is being written does not have what came since.
      while (flushing) await flushing
      await flushAll()
    },
    dismiss() {
      for (const { state } of states.values()) for (const seat of state.seats) leave(seat)
    },
  }
}

/** Whether somebody waits until what there is of a run is stored: a follower, or the run for room in its numbers. */
const isAwaited = ({ held, seats, room }: State): boolean => (held && seats.size > 0) || room !== null

function leave(seat: Seat): void {
  seat.over = true
  seat.waiting = []
  seat.wake?.()
}

/** A run that goes on after a crash says once what its tools were asked and have answered. */
const isToLast = (data: MessageData): boolean =>
  data.messageType === 'assistant'
    ? data.content.some(({ type }) => type === 'tool_use')
    : data.messageType !== 'stream_event'

/** The heap that an event costs, roughly: what matters is that it grows with the text. */
function sizeOf(event: ExecutionEvent): number {
  const data = event.event === 'message' ? event.data : null
  const text =
    data?.messageType === 'stream_event' ? data.delta.text : data?.messageType === 'tool_result' ? data.content : ''
  return 200 + text.length * 2
}
