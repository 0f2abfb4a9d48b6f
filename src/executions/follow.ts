import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Deps } from '../deps.ts'
import { notFound } from '../errors.ts'
import { MAX_PAGE_BYTES, sizeOf } from '../lib/page.ts'
import {
  type ExecutionEvent,
  type ExecutionRow,
  edgeOf,
  META_SEQ,
  metaEvent,
  readEvents,
  terminalEvent,
} from './engine/events/events.ts'
import type { Content, FollowExecution, ReadLogs } from './schema.ts'
import { readableOf, see } from './service.ts'

/**
 * GET /executions/{id}/logs: returns the events so far; a page ends early if they are long. For a run that the caller
 * may not read, returns only the first and the last event.
 */
export async function logs(actor: Actor, deps: Deps, input: z.output<typeof ReadLogs>) {
  const { id, after = 0, limit = 10_000 } = input
  const { row, isReadable } = await see(actor, deps, id)
  const events: ExecutionEvent[] = after < META_SEQ ? [metaEvent(row)] : []
  let bytes = 0
  let isWhole = true
  for await (const batch of isReadable ? readEvents(deps.db, id, after) : []) {
    isWhole = events.length <= limit && bytes <= MAX_PAGE_BYTES
    if (!isWhole) break
    for (const event of batch) events.push(event)
    bytes += sizeOf(batch, (text) => Buffer.byteLength(text))
  }
  const terminal = terminalEvent(row)
  if (isWhole && terminal && terminal.seq > after) events.push(terminal)
  const page = (isReadable ? events : stateOf(events)).slice(0, limit)
  return {
    logs: page.map(({ at, ...event }) => ({ ...event, at: at.toISOString() })),
    nextAfter: isWhole && events.length <= limit ? null : page.at(-1)!.seq,
  }
}

/**
 * Returns the events after a number in batches, like {@link followFrom}. Throws before the first one, or not at all.
 * `isOver`: the caller has reconnected with the number of the last event, or a later one.
 */
export async function follow(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof FollowExecution>,
  streamTo: (actor: Actor) => AbortSignal,
): Promise<{ batches: AsyncGenerator<readonly ExecutionEvent[]>; isOver: boolean }> {
  const { row, isReadable } = await see(actor, deps, input.executionId)
  const { lastEventId, after = 0, content } = input
  const isOver = row.terminalSeq !== null && (lastEventId ?? 0) >= row.terminalSeq
  const batches = followFrom(actor, deps, row, { after: lastEventId ?? after, streamTo, isReadable, content })
  return { batches, isOver }
}

/**
 * Yields the events after a number of a visible execution, in batches, live while it runs and the caller has access.
 * `isReadable`: with texts. `isWhole`: throws 404 when the texts have to be left out, because the rest would look like a
 * complete answer. `content`: see {@link withoutStreamed}; clients of the hosted original (`TOKEN_PREFIX=td`) print the
 * streamed and the complete content, too.
 */
export function followFrom(
  actor: Actor,
  deps: Deps,
  row: ExecutionRow,
  { after, streamTo, isReadable = true, isWhole = false, content }: FollowOptions,
): AsyncGenerator<readonly ExecutionEvent[]> {
  // Only these columns, because they are retained for the duration of the stream.
  const { id, userId } = row
  const batches = contentOf(deps, deps.engine.follow(edgeOf(row), after, streamTo(actor)), after, content)
  return asReadable(actor, deps, { id, userId }, batches, { isReadable, isWhole })
}

type FollowOptions = {
  after: number
  /** Returns the signal of the stream to a caller. */
  streamTo: (actor: Actor) => AbortSignal
  isReadable?: boolean
  isWhole?: boolean
  content?: Content | null | undefined
}

type Batches = AsyncGenerator<readonly ExecutionEvent[]>

/**
 * Returns the events with all content of complete steps or only the rest, by the caller's choice, otherwise the
 * operator's.
 */
export const contentOf = (
  { settings }: Pick<Deps, 'settings'>,
  batches: Batches,
  after: number,
  content: Content | null | undefined,
): Batches =>
  (content ?? (settings.TOKEN_PREFIX === 'td' ? 'rest' : 'all')) === 'rest' ? withoutStreamed(batches, after) : batches

/**
 * Removes blocks from complete steps that were streamed as fragments (contract-2.md section 1.14). A resumed stream has
 * sent them before.
 */
async function* withoutStreamed(batches: Batches, after: number): Batches {
  const streamed = new Set<string>()
  const isLeftOut = (step: number, type: string) => after > META_SEQ || streamed.has(`${step} ${type}`)
  for await (const batch of batches) {
    yield batch.map((event): ExecutionEvent => {
      if (event.event !== 'message') return event
      const { data } = event
      if (data.messageType === 'stream_event') streamed.add(`${data.step} ${BLOCKS[data.delta.type]}`)
      if (data.messageType !== 'assistant') return event
      const content = data.content.filter(({ type }) => type === 'tool_use' || !isLeftOut(data.step, type))
      return { ...event, data: { ...data, content } }
    })
  }
}

/** Blocks of a complete step by the type of their fragments. */
const BLOCKS = { text_delta: 'text', thinking_delta: 'thinking' } as const

/** Interval of access checks in a stream (ms). */
const ACCESS_INTERVAL = 5_000

/**
 * Checks regularly during a stream whether the caller may still read the run. If not, its starter receives the rest
 * without texts, and any other stream ends; with `isWhole`, it throws 404.
 */
async function* asReadable(
  actor: Actor,
  { db, clock }: Deps,
  { id, userId }: { id: string; userId: string },
  batches: AsyncGenerator<readonly ExecutionEvent[]>,
  { isReadable, isWhole }: { isReadable: boolean; isWhole: boolean },
): AsyncGenerator<readonly ExecutionEvent[]> {
  let isShown = isReadable
  let checkedAt = clock.now().getTime()
  for await (const batch of batches) {
    const now = clock.now().getTime()
    if (isShown && now - checkedAt >= ACCESS_INTERVAL) {
      checkedAt = now
      isShown = (await readableOf(actor, db, [id])).has(id)
    }
    if (!isShown && isWhole) throw notFound('Execution')
    if (!isShown && userId !== actor.userId) return
    const visible = isShown ? batch : stateOf(batch)
    if (visible.length) yield visible
  }
}

/** Returns the events that only describe the state of a run, without texts. */
export const stateOf = (events: readonly ExecutionEvent[]): ExecutionEvent[] =>
  events.flatMap((event): ExecutionEvent[] => {
    if (event.event === 'message') return []
    if (event.event === 'meta') return [event]
    if (event.event === 'result') {
      const { resultObject: _, ...state } = event.data
      return [{ ...event, data: state }]
    }
    const { detail: _, ...state } = event.data
    return [{ ...event, data: state }]
  })
