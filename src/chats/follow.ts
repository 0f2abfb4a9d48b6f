import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { throwRefusal, unavailable } from '../errors.ts'
import {
  EDGE_COLUMNS,
  type Edge,
  type ExecutionEvent,
  isTerminal,
  META_SEQ,
} from '../executions/engine/events/events.ts'
import { LIVE } from '../executions/engine/queue/endings.ts'
import { contentOf } from '../executions/follow.ts'
import { readable, readableOf } from '../executions/service.ts'
import type { ChatEvent } from '../wire.ts'
import { createChannel } from './channel.ts'
import { MAX_PLACES, NOWHERE, type Place, type Run, toId, toPlace } from './place.ts'
import type { FollowChat } from './schema.ts'
import { find, reachable } from './service.ts'

/** Maximum number of runs that are replayed. Beyond it the client must read the messages instead. */
const MAX_MISSED = 100
/** Maximum number of runs that one search for new ones reads. */
const MAX_FOUND = 1_000
/** Maximum clock difference between servers (ms). A run may become visible after one that was accepted later. */
const LOOK_BACK = 10_000
const DAY = 24 * 60 * 60 * 1000

/**
 * GET /chats/{id}/events (contract-2.md section 1.12): yields the events of a chat from now on (of active runs from
 * their start), or after the event with an id, in non-empty batches. Throws 404 before the first event for a chat that
 * the caller cannot reach. Ends with the signal, and within 5 s after the chat was deleted or access was lost. Throws
 * 503 when this process shuts down.
 */
export async function follow(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof FollowChat>,
  streamTo: (actor: Actor) => AbortSignal,
): Promise<AsyncGenerator<readonly ChatEvent[]>> {
  await find(actor, deps, input.id)
  return events(actor, deps, input, streamTo(actor))
}

async function* events(
  actor: Actor,
  deps: Deps,
  { id: chatId, lastEventId = null, content }: z.output<typeof FollowChat>,
  signal: AbortSignal,
): AsyncGenerator<readonly ChatEvent[]> {
  const { db } = deps
  const left = new AbortController()
  const inner = AbortSignal.any([signal, left.signal, deps.engine.stopped])
  const ofChat: Prisma.ExecutionWhereInput = { AND: [{ chatId }, readable(actor)] }
  const runs = new Map<string, Run>()
  const channel = createChannel()
  let newest: Run | null = null
  let lastStatus: string | null = null

  const idOf = (run: Run | null): string => {
    const others = [...runs.values()].filter((other) => other !== run && other !== newest && !other.isOver)
    const named = [run, ...others.slice(-MAX_PLACES), newest === run ? null : newest].filter((other) => other !== null)
    return named.length ? toId(named.map(({ id: executionId, seq }) => ({ executionId, seq }))) : `${NOWHERE}:0`
  }

  const show = (run: Run, event: ExecutionEvent): ChatEvent => {
    run.seq = event.seq
    run.isOver = isTerminal(event)
    const chatEvent = { ...event, id: idOf(run), executionId: run.id, data: { ...event.data, executionId: run.id } }
    if (run.isOver && run !== newest) runs.delete(run.id)
    return chatEvent as ChatEvent
  }

  const statusEvent = (status: ChatStatus, at: Date, run: Run | null): ChatEvent => {
    lastStatus = status
    const executionId = run?.id ?? null
    const data = { executionId, status, at: at.toISOString() }
    return { event: 'status', id: idOf(run), executionId, at, data }
  }

  /** Subscribes to a run from a number on. Later runs are newer. */
  const subscribeTo = (edge: Edge, seq: number): Run => {
    const run = { ...edge, seq, isOver: false }
    runs.set(run.id, run)
    if (!newest || isAfter(run, newest)) {
      if (newest?.isOver) runs.delete(newest.id)
      newest = run
    }
    const batches = deps.engine.follow(edge, seq, inner)
    channel.carry(run, contentOf(deps, batches, seq, content))
    return run
  }

  /** Marks a run as completely sent. */
  const pass = (edge: Edge) => {
    newest = { ...edge, seq: edge.terminalSeq ?? META_SEQ, isOver: true }
    runs.set(edge.id, newest)
  }

  const known = new Set<string>()
  const fresh = (edges: readonly Edge[]) => edges.filter(({ id }) => !known.has(id) && known.add(id))
  const since = (time: Date | null, take: number) =>
    db.execution.findMany({
      where: time ? { AND: [ofChat, { createdAt: { gte: time } }] } : ofChat,
      select: EDGE_COLUMNS,
      orderBy: ORDER,
      take,
    })
  const live = () => db.execution.findMany({ where: { AND: [ofChat, LIVE] }, select: EDGE_COLUMNS, orderBy: ORDER })

  /** Resumes after an id. Returns false if its event no longer exists or too much has happened since. */
  async function resume(place: Place): Promise<boolean> {
    const isNowhere = place[0]?.executionId === NOWHERE
    const seqs = new Map(place.map(({ executionId, seq }) => [executionId, seq]))
    const where = { AND: [{ id: { in: [...seqs.keys()] } }, ofChat] }
    const named = isNowhere ? [] : await db.execution.findMany({ where, select: EDGE_COLUMNS, orderBy: ORDER })
    const own = named.find(({ id }) => id === place[0]?.executionId)
    const last = named.at(-1)
    if (!isNowhere && (!own || (await isForgotten(deps, own, seqs.get(own.id) ?? 0)))) return false
    const later = (await since(last?.createdAt ?? null, MAX_MISSED + seqs.size + 1)).filter(
      (edge) => !last || isAfter(edge, last),
    )
    if (later.length > MAX_MISSED) return false
    for (const edge of named) {
      const seq = seqs.get(edge.id) ?? 0
      known.add(edge.id)
      if (edge.terminalSeq !== null && seq >= edge.terminalSeq) pass(edge)
      else subscribeTo(edge, seq)
    }
    for (const edge of fresh([...(await live()), ...later])) subscribeTo(edge, 0)
    return true
  }

  async function beginNow(): Promise<void> {
    const last = await db.execution.findFirst({ where: ofChat, select: EDGE_COLUMNS, orderBy: NEWEST })
    for (const edge of fresh(await live())) subscribeTo(edge, 0)
    for (const edge of last ? fresh([last]) : []) pass(edge)
  }

  /** Marks runs accepted shortly before the newest one as sent, because {@link discover} looks back. */
  async function passOthers(): Promise<void> {
    const last = newest
    if (!last) return
    const before = await since(new Date(last.createdAt.getTime() - LOOK_BACK), MAX_FOUND)
    for (const edge of before) if (!isAfter(edge, last)) known.add(edge.id)
  }

  /** Finds newly accepted runs, oldest first. */
  async function discover(): Promise<Edge[]> {
    const from = newest && new Date(newest.createdAt.getTime() - LOOK_BACK)
    return fresh(await since(from, MAX_FOUND))
  }

  try {
    const place = lastEventId === null ? null : toPlace(lastEventId)
    const isResumed = place !== null && (await resume(place))
    if (!isResumed) await beginNow()
    await passOthers()
    if (lastEventId !== null && !isResumed) {
      const executionId = place?.[0]?.executionId ?? null
      const at = deps.clock.now()
      yield [{ event: 'reset', id: idOf(null), executionId, at, data: { executionId } }]
    }
    while (!inner.aborted) {
      // Armed before the rows are read.
      using notice = deps.chatNotices.expect(chatId, inner)
      const chat = await db.chat.findFirst({
        where: { AND: [{ id: chatId }, reachable(actor)] },
        select: { status: true, updatedAt: true },
      })
      if (!chat) return
      // Events of a run are sent only while the caller may read it.
      const open = [...runs.values()].filter(({ isOver }) => !isOver)
      const allowed = await readableOf(
        actor,
        db,
        open.map(({ id }) => id),
      )
      for (const run of open) if (!allowed.has(run.id)) runs.delete(run.id)
      for (const edge of await discover()) {
        const run = subscribeTo(edge, 0)
        if (!isActive(lastStatus)) yield [statusEvent('working', edge.createdAt, run)]
      }
      const isOn = [...runs.values()].some(({ isOver }) => !isOver)
      // The end of a run precedes the new status of the chat.
      if (chat.status !== lastStatus && (isActive(chat.status) || !isOn || lastStatus === null)) {
        yield [statusEvent(chat.status, chat.updatedAt, newest)]
      }
      const news = channel.until(notice.happened)
      for (let batch = await channel.take(news); batch; batch = await channel.take(news)) {
        const run = runs.get(batch.run.id)
        if (run !== batch.run) continue
        const chatEvents = batch.events.map((event) => show(run, event))
        if (chatEvents.length) yield chatEvents
        if (run.isOver) break
      }
    }
    throwRefusal(signal)
    if (!signal.aborted) throw unavailable()
  } finally {
    left.abort()
    channel.close()
  }
}

type ChatStatus = Prisma.ChatGetPayload<object>['status']

const isActive = (status: string | null) => status === 'working' || status === 'needs_attention'

const ORDER: Prisma.ExecutionOrderByWithRelationInput[] = [{ createdAt: 'asc' }, { id: 'asc' }]
const NEWEST: Prisma.ExecutionOrderByWithRelationInput[] = [{ createdAt: 'desc' }, { id: 'desc' }]

/** Returns whether a run was accepted after another one. */
const isAfter = (a: Edge, b: Edge): boolean =>
  a.createdAt > b.createdAt || (a.createdAt.getTime() === b.createdAt.getTime() && a.id > b.id)

/** Returns whether events after a number of an ended run were removed because of their age. */
async function isForgotten({ db, clock, settings }: Deps, { id, terminalSeq, createdAt }: Edge, seq: number) {
  if (terminalSeq === null || seq >= terminalSeq) return false
  if (createdAt.getTime() > clock.now().getTime() - settings.EVENT_RETENTION_DAYS * DAY) return false
  return !(await db.executionEvent.findFirst({ where: { executionId: id }, select: { firstSeq: true } }))
}
