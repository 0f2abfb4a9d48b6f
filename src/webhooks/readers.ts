import { type EventRow, endsOfEvents, type FeedPosition, isBehind, positionOf, readEvents } from '../db/events.ts'
import type { Deps } from '../deps.ts'
import { matches } from '../events/schema.ts'
import { findMailReaders, findWebhookReaders, type Notified } from './fan-out.ts'

/** Maximum number of events that the readers of one organization take at once. */
const READ = 200
/** How long loaded readers are used (ms), unless a notice says that they have changed. */
const LIFETIME = 5_000
/** Minimum time between two writes of a reader's position without a delivery or mail (ms). */
const STORING_INTERVAL = 10_000

/** A webhook, or a member with mail notifications, as it was loaded. */
export type Reader = {
  /** Identifies the reader and its present settings: after a change, events count that it did not want before. */
  key: string
  organizationId: string
  patterns: readonly string[]
  /** The only subject whose events count; null for all. */
  subjectId: string | null
  /** Events up to here have their deliveries and mails, as the database says. */
  position: FeedPosition
  /** Prepares deliveries or mails of events, and moves the position. */
  take(events: readonly EventRow[], from: FeedPosition, upTo: FeedPosition): Promise<Taken>
  /** Moves the position. Returns false if the reader was changed since it was loaded, also by another server. */
  move(from: FeedPosition, upTo: FeedPosition): Promise<boolean>
}

/**
 * `unseen`: the owner can see none of the events, and the position stays. `ended`: the position has moved, and no event
 * is wanted any more. `stale`: the reader was changed.
 */
export type Taken = 'moved' | 'unseen' | 'ended' | 'stale'

type Follower = Reader & {
  /** This process has found no wanted event between the position and here. */
  seen: FeedPosition
  movedAt: number
}

export type Readers = {
  /** Loads the readers again if they may have changed. Returns whether it did. */
  load(): Promise<boolean>
  /** Makes the next `load` read the database. */
  forget(): void
  hasAny(): boolean
  /** Returns whether a reader wants events of one of these kinds: `execution`, `task` and so on. */
  want(kinds: readonly string[]): boolean
  /** Hands new events to the readers that want them. Returns whether there may be more. */
  advance(): Promise<boolean>
}

/**
 * Creates the readers of new events, in memory. Events that no reader wants cost a statement for their organization,
 * and no write. A reader is moved only as it was loaded, so that a change of its patterns skips no event.
 */
export function createReaders(deps: Deps, notify: ((notified: Notified) => Promise<void>) | null): Readers {
  const { db, settings } = deps
  let followers: Follower[] = []
  let loadedAt = Number.NEGATIVE_INFINITY

  const forget = () => {
    loadedAt = Number.NEGATIVE_INFINITY
  }

  async function load(): Promise<boolean> {
    if (performance.now() - loadedAt < LIFETIME) return false
    const before = new Map(followers.map((follower) => [follower.key, follower]))
    // A notice during the load makes the next one.
    loadedAt = performance.now()
    try {
      const found = [...(await findWebhookReaders(deps)), ...(notify ? await findMailReaders(deps, notify) : [])]
      followers = found.map((reader) => {
        const { seen = reader.position, movedAt = performance.now() } = before.get(reader.key) ?? {}
        return { ...reader, movedAt, seen: isBehind(reader.position, seen) ? reader.position : seen }
      })
    } catch (error) {
      forget()
      throw error
    }
    return true
  }

  async function advance(): Promise<boolean> {
    let hasMore = false
    const groups = Map.groupBy(followers, ({ organizationId }) => organizationId)
    const ends = await endsOfEvents(db, settings, [...groups.keys()])
    for (const [organizationId, group] of groups) {
      const end = ends.get(organizationId)
      const late = end ? group.filter(({ seen }) => isBehind(end, seen)) : []
      if (end && late.length && (await advanceTo(end, organizationId, late))) hasMore = true
    }
    return hasMore
  }

  /** Hands the next events of an organization to its readers that have not seen them. Returns whether more is left. */
  async function advanceTo(end: FeedPosition, organizationId: string, late: readonly Follower[]): Promise<boolean> {
    const from = late.map(({ seen }) => seen).reduce((first, seen) => (isBehind(first, seen) ? seen : first))
    const selection = { upTo: end, ...wantedBy(late) }
    const events = await readEvents(db, settings, organizationId, from, READ, selection)
    const last = events.length === READ ? events.at(-1) : undefined
    const upTo = last ? positionOf(last) : end
    let hasMore = last !== undefined
    for (const follower of late) if (await hand(follower, events, upTo)) hasMore = true
    return hasMore
  }

  /** Hands events to a reader that wants them. Returns whether it has to be loaded again. */
  async function hand(follower: Follower, events: readonly EventRow[], upTo: FeedPosition): Promise<boolean> {
    const { patterns, position, seen, subjectId } = follower
    if (!isBehind(upTo, seen)) return false
    const wanted = events.filter(
      (event) =>
        isBehind(event, seen) && matches(patterns, event.type) && (subjectId === null || event.subjectId === subjectId),
    )
    let taken: Taken = wanted.length ? await follower.take(wanted, position, upTo) : 'unseen'
    const isDue = performance.now() - follower.movedAt >= STORING_INTERVAL
    if (taken === 'unseen' && isDue) taken = (await follower.move(position, upTo)) ? 'moved' : 'stale'
    if (taken === 'stale') {
      forget()
      return true
    }
    if (taken === 'ended') followers = followers.filter((other) => other !== follower)
    follower.seen = upTo
    if (taken === 'moved') Object.assign(follower, { position: upTo, movedAt: performance.now() })
    return false
  }

  return {
    load,
    forget,
    hasAny: () => followers.length > 0,
    want: (kinds) =>
      followers.some(({ patterns }) => patterns.some((p) => p === '*' || kinds.includes(p.split('.', 1)[0] ?? ''))),
    advance,
  }
}

/** Maximum number of subjects in one statement. With more, all events of their readers' patterns are read. */
const SUBJECTS = 500

function wantedBy(readers: readonly Reader[]): { patterns: string[]; subjectIds: string[] } {
  const subjectIds = [...new Set(readers.flatMap(({ subjectId }) => subjectId ?? []))]
  const isFew = subjectIds.length <= SUBJECTS
  const broad = readers.filter(({ subjectId }) => subjectId === null || !isFew)
  const patterns = [...new Set(broad.flatMap(({ patterns }) => patterns))]
  return { patterns, subjectIds: isFew ? subjectIds : [] }
}
