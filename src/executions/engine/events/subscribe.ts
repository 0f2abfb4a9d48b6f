import type { Db } from '../../../db/client.ts'
import { throwRefusal, unavailable } from '../../../errors.ts'
import { unlessAborted } from '../../../lib/unless-aborted.ts'
import type { Live } from '../run/live.ts'
import { hasStored, type Journal, leave, more, take } from './event-log.ts'
import {
  EDGE_COLUMNS,
  type Edge,
  type ExecutionEvent,
  type ExecutionRow,
  isTerminal,
  META_SEQ,
  metaEvent,
  readEvents,
  terminalEvent,
} from './events.ts'
import type { Notices } from './notices.ts'

export type FollowDeps = {
  db: Db
  journal: Journal
  notices: Notices
  /** Aborted when this process ends. */
  stopped: AbortSignal
}

/**
 * The events of an execution after a number, in order, without a gap or a double, up to its terminal event: from the
 * database, and live from this process where it runs here. Batches, none empty. Every face streams from it.
 * Ends early when the signal aborts; throws 503 when this process ends first, or the signal says so: whoever follows
 * shall come back.
 */
export async function* follow(
  deps: FollowDeps,
  row: Edge,
  after: number,
  signal: AbortSignal,
): AsyncGenerator<readonly ExecutionEvent[]> {
  let last = after
  let current = row
  const fresh = (events: readonly ExecutionEvent[]) => {
    // They are in order. What a filter leaves has room for more, and is kept while the stream waits.
    const from = events.findIndex(({ seq }) => seq > last)
    const news = from < 0 ? [] : events.slice(from)
    last = news.at(-1)?.seq ?? last
    return news
  }
  if (last < META_SEQ) yield fresh([metaEvent(row)])
  while (!signal.aborted && !deps.stopped.aborted) {
    const channel = deps.journal.find(row.id)
    const follower = channel && deps.journal.follow(channel)
    // What runs here ends with this process, which its followers are told.
    const notice = follower ? null : deps.notices.expect(row.id, AbortSignal.any([signal, deps.stopped]))
    const stop = () => follower && leave(follower)
    signal.addEventListener('abort', stop)
    try {
      // The row first: once it says that the run has ended, all of its events are there.
      if (!follower && !terminalEvent(current)) {
        current = await deps.db.execution.findUniqueOrThrow({ where: { id: row.id }, select: EDGE_COLUMNS })
      }
      // Of one that has ended all is stored, whatever this process knows of it.
      if (!channel || hasStored(channel) || terminalEvent(current)) {
        for await (const events of readEvents(deps.db, row.id, last)) {
          const news = fresh(events)
          if (news.length) yield news
        }
      }
      const terminal = terminalEvent(current)
      if (terminal) {
        if (terminal.seq !== last) yield [terminal]
        return
      }
      while (follower && (await more(follower))) {
        const news = fresh(take(follower))
        if (news.length) yield news
        if (news.some(isTerminal)) return
      }
      await notice?.happened
    } finally {
      notice?.[Symbol.dispose]()
      stop()
      signal.removeEventListener('abort', stop)
    }
  }
  throwRefusal(signal)
  if (!signal.aborted) throw unavailable()
}

/** Returns an execution once it has ended, or as it is when one of the signals aborts. Throws 503 if this process ends. */
export async function whenEnded(
  { db, live, notices, stopped }: Omit<FollowDeps, 'journal'> & { live: Live },
  { id }: ExecutionRow,
  signals: readonly AbortSignal[],
): Promise<ExecutionRow> {
  const patience = AbortSignal.any([...signals, stopped])
  for (;;) {
    using notice = notices.expect(id, patience)
    const here = await unlessAborted(live.ended(id), patience)
    if (here) return here
    const current = await db.execution.findUniqueOrThrow({ where: { id } })
    if (current.terminalSeq !== null || signals.some(({ aborted }) => aborted)) return current
    if (stopped.aborted) throw unavailable()
    if (!live.has(id)) await notice.happened
  }
}
