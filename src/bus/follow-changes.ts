import { createHash } from 'node:crypto'
import { throwRefusal } from '../errors.ts'
import type { Clock } from '../lib/clock.ts'
import type { Bus, Notices } from './index.ts'

/** Clocks of servers differ (ms). */
const LOOK_BACK = 10_000
/** Maximum number of ids that wait for a slow reader. Beyond it the reader looks for changes by their time. */
const MAX_WAITING = 10_000

type Deps = { bus: Bus; clock: Clock }

/** The rows to look at: those with the ids or, if notices may have been missed (null), all that changed `since`. */
export type Looked = { ids: readonly string[] | null; since: Date }

/**
 * Yields what a channel reports until the signal aborts. It reports from the call on, even before the first value is
 * taken. For a slow reader notices are merged: each id is there once. `since` is the time of the notices before, with a
 * margin.
 */
export function followIds(
  { bus, clock }: Deps,
  channel: keyof Notices,
  signal: AbortSignal,
): AsyncGenerator<Looked, void, undefined> {
  const waiting = new Set<string>()
  let missed = false
  let wake = () => {}
  let since = clock.now()
  const unsubscribe = bus.subscribe(channel, (ids) => {
    for (const id of ids ?? []) waiting.add(id)
    missed ||= ids === null || waiting.size > MAX_WAITING
    if (missed) waiting.clear()
    wake()
  })
  let isOpen = true
  const end = () => {
    if (!isOpen) return
    isOpen = false
    signal.removeEventListener('abort', end)
    unsubscribe()
    wake()
  }
  if (signal.aborted) end()
  else signal.addEventListener('abort', end)

  return (async function* () {
    try {
      while (!signal.aborted) {
        if (missed || waiting.size) {
          const looked = { ids: missed ? null : [...waiting], since: new Date(since.getTime() - LOOK_BACK) }
          since = clock.now()
          waiting.clear()
          missed = false
          yield looked
        } else {
          const { promise, resolve } = Promise.withResolvers<void>()
          wake = resolve
          await promise
        }
      }
      throwRefusal(signal)
    } finally {
      end()
    }
  })()
}

/**
 * Yields an event for each change that `find` sees from the call on, read when it is taken: several changes at once are
 * one event. `find` yields ids of rows that the caller can see. `read` returns null for a row that has been deleted
 * meanwhile. An event that equals the one before of the same row is left out. Ends with the signal.
 */
export function followChanges<Found extends { id: string }, Event>(
  deps: Deps,
  channel: keyof Notices,
  signal: AbortSignal,
  find: (looked: Looked) => AsyncIterable<Found>,
  read: (found: Found) => Promise<Event | null>,
): AsyncGenerator<Event, void, undefined> {
  return readChanges(followIds(deps, channel, signal), signal, find, read)
}

async function* readChanges<Found extends { id: string }, Event>(
  notices: AsyncIterable<Looked>,
  signal: AbortSignal,
  find: (looked: Looked) => AsyncIterable<Found>,
  read: (found: Found) => Promise<Event | null>,
): AsyncGenerator<Event, void, undefined> {
  const digests = new Map<string, string>()
  for await (const looked of notices) {
    for await (const found of find(looked)) {
      throwRefusal(signal)
      if (signal.aborted) return
      const event = await read(found)
      if (event === null) continue
      const digest = createHash('sha1').update(JSON.stringify(event)).digest('base64')
      const isNew = digests.get(found.id) !== digest
      // The latest are last.
      digests.delete(found.id)
      digests.set(found.id, digest)
      if (digests.size > MAX_WAITING) digests.delete(digests.keys().next().value ?? '')
      if (isNew) yield event
    }
  }
}
