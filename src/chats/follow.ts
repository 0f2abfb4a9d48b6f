import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { throwRefusal, unavailable } from '../errors.ts'
import type { Edge } from '../executions/engine/events/events.ts'
import { contentOf } from '../executions/follow.ts'
import { readable, readableOf } from '../executions/service.ts'
import type { ChatEvent } from '../wire.ts'
import { createChannel } from './channel.ts'
import { createRunFinder } from './find-runs.ts'
import { type Run, toPosition } from './position.ts'
import type { FollowChat } from './schema.ts'
import { createSent } from './sent.ts'
import { find, reachable } from './service.ts'

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
  const sent = createSent()
  const channel = createChannel()
  let lastStatus: string | null = null

  const statusEvent = (status: ChatStatus, at: Date, run: Run | null): ChatEvent => {
    lastStatus = status
    const executionId = run?.id ?? null
    const data = { executionId, status, at: at.toISOString() }
    return { event: 'status', id: sent.idOf(run), executionId, at, data }
  }

  /** Subscribes to a run from a number on. */
  const subscribeTo = (edge: Edge, seq: number): Run => {
    const run = sent.add(edge, seq)
    const batches = deps.engine.follow(edge, seq, inner)
    channel.carry(run, contentOf(deps, batches, seq, content))
    return run
  }

  const finder = createRunFinder(deps, ofChat, sent, subscribeTo)

  /** Begins after the event that the client has seen last, or now. Yields a reset if that event is unknown. */
  async function* begin(): AsyncGenerator<readonly ChatEvent[]> {
    const position = lastEventId === null ? null : toPosition(lastEventId)
    if (position !== null && (await finder.resume(position))) return
    await finder.beginNow()
    if (lastEventId === null) return
    const executionId = position?.[0]?.executionId ?? null
    const at = deps.clock.now()
    yield [{ event: 'reset', id: sent.idOf(null), executionId, at, data: { executionId } }]
  }

  /** Stops sending runs that the caller may not read any more. */
  async function dropUnreadable(): Promise<void> {
    const ids = sent.open().map(({ id }) => id)
    const allowed = await readableOf(actor, db, ids)
    for (const id of ids) if (!allowed.has(id)) sent.drop(id)
  }

  /** Yields the events of runs until one of them has ended, or there is news of the chat. */
  async function* runEvents(news: ReturnType<typeof channel.until>): AsyncGenerator<readonly ChatEvent[]> {
    for (let batch = await channel.take(news); batch; batch = await channel.take(news)) {
      const run = sent.get(batch.run.id)
      if (run !== batch.run) continue
      const chatEvents = batch.events.map((event) => sent.toEvent(run, event))
      if (chatEvents.length) yield chatEvents
      if (run.isOver) return
    }
  }

  try {
    yield* begin()
    while (!inner.aborted) {
      // Armed before the rows are read.
      using notice = deps.chatNotices.expect(chatId, inner)
      const chat = await db.chat.findFirst({
        where: { AND: [{ id: chatId }, reachable(actor)] },
        select: { status: true, updatedAt: true },
      })
      if (!chat) return
      await dropUnreadable()
      for (const edge of await finder.discover()) {
        const run = subscribeTo(edge, 0)
        if (!isActive(lastStatus)) yield [statusEvent('working', edge.createdAt, run)]
      }
      // The end of a run precedes the new status of the chat.
      const isDue = isActive(chat.status) || !sent.open().length || lastStatus === null
      if (chat.status !== lastStatus && isDue) yield [statusEvent(chat.status, chat.updatedAt, sent.newest())]
      yield* runEvents(channel.until(notice.happened))
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
