import { LRUCache } from 'lru-cache'
import type { Clock } from '../../../lib/clock.ts'

/**
 * Lessons from a model's rejections: the changes that it needs, some for certain settings only, and a prompt size that it
 * accepts (`maxSize`, bytes).
 */
export type Lessons = { readonly changes: ReadonlySet<string>; readonly maxSize: number | null }

/**
 * Remembers lessons from rejections, so that later runs avoid them. Each process learns separately. Keys begin with the
 * id of an organization or of a session, and a blank.
 */
export type ModelKnowledge = {
  of(key: string): Lessons
  learn(key: string, lessons: { changes?: Iterable<string>; maxSize?: number }): void
  /** Forgets the lessons of these organizations, whose providers have changed, or of all for null. */
  forget(organizationIds: readonly string[] | null): void
}

const MAX_MODELS = 1_000
/** Maximum number of changes that are remembered of a model. Callers choose the values of settings. */
const MAX_CHANGES = 200
/** Lifetime of a lesson (ms). The server may have reloaded the model with other settings. */
const LIFETIME = 60 * 60 * 1000
const NOTHING: Lessons = { changes: new Set(), maxSize: null }

/** Creates an empty store of lessons. */
export function createModelKnowledge(clock: Clock): ModelKnowledge {
  const known = new LRUCache<string, Lessons & { since: number }>({ max: MAX_MODELS })
  const of = (key: string): Lessons & { since?: number } => {
    const lessons = known.get(key)
    return lessons && clock.now().getTime() - lessons.since < LIFETIME ? lessons : NOTHING
  }
  return {
    of,
    learn(key, { changes = [], maxSize }) {
      const before = of(key)
      known.set(key, {
        changes: new Set([...before.changes, ...changes].slice(-MAX_CHANGES)),
        maxSize: maxSize ?? before.maxSize,
        since: before.since ?? clock.now().getTime(),
      })
    },
    forget(organizationIds) {
      for (const key of known.keys())
        if (!organizationIds || organizationIds.includes(key.split(' ', 1)[0] ?? '')) known.delete(key)
    },
  }
}
