import type { Db } from '../../../db/client.ts'
import { stoppedBeforeEnd, throwRefusal } from '../../../errors.ts'
import { raceAbort } from '../../../lib/race-abort.ts'
import type { Live } from '../run/live.ts'
import type { EventLog } from './event-log.ts'
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
import { drain, hasStored, unsubscribe, waitForMore } from './run-stream.ts'

export type FollowDeps = {
  db: Db
  eventLog: EventLog
  notices: Notices
  /** Aborted when this process ends. */
  stopped: AbortSignal
}

/**
 * Yields the events of an execution after a number, in order, once each, up to the terminal event. They come from the
 * database, and live from this process if the execution runs here. Batches are never empty. All APIs stream from it.
 * Ends early when the signal aborts. Throws 503 if this process ends first or the signal's reason says so, because the
 * client should then reconnect.
 */
export async function* followRun(
  deps: FollowDeps,
  row: Edge,
  after: number,
  signal: AbortSignal,
): AsyncGenerator<readonly ExecutionEvent[]> {
  let last = after
  let current = row
  const fresh = (events: readonly ExecutionEvent[]) => {
    // Slices, because a filtered array would reserve more memory for the duration of the stream.
    const from = events.findIndex(({ seq }) => seq > last)
    const news = from < 0 ? [] : events.slice(from)
    last = news.at(-1)?.seq ?? last
    return news
  }
  if (last < META_SEQ) yield fresh([metaEvent(row)])
  while (!signal.aborted && !deps.stopped.aborted) {
    using source = openSource(deps, row.id, last, signal)
    const { stream, subscriber } = source
    // Reads the row first: once it has ended, all of its events are stored.
    if (!subscriber && !terminalEvent(current)) {
      current = await deps.db.execution.findUniqueOrThrow({ where: { id: row.id }, select: EDGE_COLUMNS })
    }
    // All events of an ended run are stored, whatever this process has seen.
    if (!stream || hasStored(stream) || terminalEvent(current)) {
      yield* freshIn(readEvents(deps.db, row.id, last), fresh)
    }
    const terminal = terminalEvent(current)
    if (terminal) {
      if (terminal.seq !== last) yield [terminal]
      return
    }
    while (subscriber && (await waitForMore(subscriber))) {
      const news = fresh(drain(subscriber))
      if (news.length) yield news
      if (news.some(isTerminal)) return
    }
    await source.noticed
  }
  throwRefusal(signal)
  if (!signal.aborted) throw stoppedBeforeEnd(row.id)
}

/**
 * Opens the source of a run's further events: the stream of this process if the run executes here, otherwise a notice
 * that another process has stored some.
 */
function openSource({ eventLog, notices, stopped }: FollowDeps, id: string, after: number, signal: AbortSignal) {
  const stream = eventLog.find(id)
  const subscriber = stream && eventLog.subscribe(stream, after)
  // A local run ends with this process, and its subscribers get that end.
  const notice = subscriber ? null : notices.expect(id, AbortSignal.any([signal, stopped]))
  const stop = () => subscriber && unsubscribe(subscriber)
  signal.addEventListener('abort', stop)
  return {
    stream,
    subscriber,
    noticed: notice?.happened,
    [Symbol.dispose]() {
      notice?.[Symbol.dispose]()
      stop()
      signal.removeEventListener('abort', stop)
    },
  }
}

type Batch = readonly ExecutionEvent[]

/** Yields the events of each batch that are new to a subscriber. */
async function* freshIn(batches: AsyncIterable<Batch>, fresh: (batch: Batch) => Batch): AsyncGenerator<Batch> {
  for await (const batch of batches) {
    const news = fresh(batch)
    if (news.length) yield news
  }
}

/**
 * Returns an execution once it has ended, or as it is when one of the signals aborts. Throws 503 if this process ends.
 */
export async function whenEnded(
  { db, live, notices, stopped }: Omit<FollowDeps, 'eventLog'> & { live: Live },
  { id }: ExecutionRow,
  signals: readonly AbortSignal[],
): Promise<ExecutionRow> {
  for (;;) {
    // A local run ends with this process. Combined signals would keep the whole request in memory until a full
    // collection.
    const here = await raceAbort(live.ended(id), ...signals)
    if (here) return here
    using notice = notices.expect(id, AbortSignal.any([...signals, stopped]))
    const current = await db.execution.findUniqueOrThrow({ where: { id } })
    if (current.terminalSeq !== null || signals.some(({ aborted }) => aborted)) return current
    if (stopped.aborted) throw stoppedBeforeEnd(id)
    if (!live.has(id)) await notice.happened
  }
}
