import { setTimeout as sleep } from 'node:timers/promises'
import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { type EventRow, endOfEvents, type FeedPosition, isBehind, readEvents } from '../db/events.ts'
import type { Deps } from '../deps.ts'
import { gone, invalidField, throwRefusal, unavailable } from '../errors.ts'
import { decodePosition, encodePosition } from '../lib/page.ts'
import { type ListEvents, matches } from './schema.ts'
import { show, type VisibleEvent } from './show.ts'

/** How long events are stored (ms). */
const EVENT_LIFETIME = 30 * 24 * 60 * 60 * 1000
const DEFAULT_LIMIT = 100
/** Number of events that are read at once, and maximum number of reads for one answer. */
const READ = 500
const MAX_READS = 10

type Cursor = FeedPosition & { at: number }

const START: Cursor = { position: 0, sequence: 0, at: 0 }

const encode = ({ position, sequence, at }: Cursor): string => encodePosition(position, sequence, at)

function decode(cursor: string): Cursor {
  const [, position, sequence, at] = /^(\d{1,16})\.(\d{1,16})\.(\d{1,15})$/.exec(decodePosition(cursor)) ?? []
  if (!at) throw invalidField('since', 'a cursor of this feed')
  return { position: Number(position), sequence: Number(sequence), at: Number(at) }
}

const cursorOf = ({ position, sequence, at }: EventRow): Cursor => ({ position, sequence, at: at.getTime() })

/**
 * Throws 410 with the oldest cursor if events behind a position may have been removed already. The newest event of an
 * organization is never removed, so that a reader with its cursor misses none.
 */
async function checkStored(actor: Actor, { db, settings, clock }: Deps, since: Cursor): Promise<void> {
  if (since.at >= clock.now().getTime() - EVENT_LIFETIME) return
  const [oldest] = await readEvents(db, settings, actor.organizationId, START, 1)
  if (!oldest || !isBehind(oldest, since)) return
  throw gone(encode({ ...cursorOf(oldest), sequence: oldest.sequence - 1 }))
}

type Page = { events: { event: VisibleEvent; cursor: Cursor }[]; cursor: Cursor; hasMore: boolean }

/** Reads the events behind a position that the caller can see. */
async function read(
  actor: Actor,
  deps: Deps,
  since: Cursor,
  { types, limit = DEFAULT_LIMIT }: Pick<z.output<typeof ListEvents>, 'types' | 'limit'>,
): Promise<Page> {
  const events: Page['events'] = []
  let cursor = since
  for (let reads = 0; reads < MAX_READS; reads++) {
    const found = await readEvents(deps.db, deps.settings, actor.organizationId, cursor, READ)
    const wanted = types?.length ? found.filter(({ type }) => matches(types, type)) : found
    const visible = await show(actor, deps, wanted)
    for (const [index, event] of visible.entries()) {
      const row = wanted[index]!
      if (!event) continue
      cursor = cursorOf(row)
      events.push({ event, cursor })
      if (events.length === limit) return { events, cursor, hasMore: row !== found.at(-1) || found.length === READ }
    }
    const last = found.at(-1)
    if (last) cursor = cursorOf(last)
    if (found.length < READ) return { events, cursor, hasMore: false }
  }
  return { events, cursor, hasMore: true }
}

/** Returns the position of a cursor. Throws 400 for a foreign one, and 410. */
async function positionOf(actor: Actor, deps: Deps, since: string | undefined): Promise<Cursor> {
  if (since === undefined) return START
  const cursor = decode(since)
  await checkStored(actor, deps, cursor)
  return cursor
}

/** GET /events: the events of the last 30 days that the caller can see, oldest first. */
export async function list(actor: Actor, deps: Deps, input: z.output<typeof ListEvents>) {
  const since = await positionOf(actor, deps, input.since)
  const { events, cursor: last, hasMore } = await read(actor, deps, since, input)
  const cursor = encode({ ...last, at: last.at || deps.clock.now().getTime() })
  return { events: events.map(({ event }) => event), cursor, hasMore, nextCursor: hasMore ? cursor : null }
}

/** Polling interval of a stream (ms). */
const INTERVAL = 1_000

/** An event of the stream, with its cursor as id. */
export type FeedEvent = { id: string; event: VisibleEvent }

/**
 * GET /events as a stream: yields batches of events behind a position, or from now on, until the signal aborts or the
 * server stops. Throws before the first one as {@link list} does.
 */
export async function follow(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof ListEvents>,
  streamTo: (actor: Actor) => AbortSignal,
): Promise<AsyncGenerator<readonly FeedEvent[]>> {
  const { db, settings, clock } = deps
  const since =
    input.since === undefined
      ? { ...(await endOfEvents(db, settings, actor.organizationId)), at: clock.now().getTime() }
      : await positionOf(actor, deps, input.since)
  return batches(actor, deps, since, input.types, streamTo(actor))
}

async function* batches(
  actor: Actor,
  deps: Deps,
  since: Cursor,
  types: readonly string[] | undefined,
  left: AbortSignal,
): AsyncGenerator<readonly FeedEvent[]> {
  const signal = AbortSignal.any([left, deps.engine.stopped])
  for (let cursor = since; !signal.aborted; ) {
    const page = await read(actor, deps, cursor, { types: types && [...types], limit: DEFAULT_LIMIT })
    cursor = page.cursor
    if (page.events.length) yield page.events.map(({ event, cursor: at }) => ({ id: encode(at), event }))
    if (!page.hasMore) await sleep(INTERVAL, undefined, { signal }).catch(() => {})
  }
  throwRefusal(left)
  if (!left.aborted) throw unavailable()
}
