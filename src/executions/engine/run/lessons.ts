import type { Change } from './change.ts'

// What is remembered of a rejection: a change, or a change with the values of settings that the rejection was about.

/** The settings of a run by the changes that leave them out. */
export type Values = ReadonlyMap<string, unknown>

/**
 * Returns what to remember of a change, which is one of those that a rejection `offered`. Providers reject a setting for
 * its value (`reasoningEffort: minimal`) or beside another one, and accept those of other agents.
 */
export function lessonOf(change: Change, offered: readonly Change[], values: Values): string {
  if (!values.has(change)) return change
  const about = offered.filter((each) => values.has(each)).map((each) => [each, values.get(each)])
  return `${change} ${JSON.stringify(about)}`
}

/** Returns the changes that lessons demand of a run, whose settings are only read if a lesson depends on them. */
export function recall(lessons: readonly string[], settings: () => Values): Set<Change> {
  let values: Values | null = null
  const changes = lessons.flatMap((lesson) => {
    const [, change = lesson, about] = /^(.+?) (\[\[.*)$/s.exec(lesson) ?? []
    if (about === undefined) return change as Change
    values ??= settings()
    return isAbout(about, values) ? (change as Change) : []
  })
  return new Set(changes)
}

/** Returns whether a run has the values that a rejection was about. */
const isAbout = (about: string, values: Values): boolean =>
  (JSON.parse(about) as [string, unknown][]).every(
    ([name, value]) => JSON.stringify(values.get(name)) === JSON.stringify(value),
  )
