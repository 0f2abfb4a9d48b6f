import type { ModelSettings } from '../../../lib/model-settings.ts'
import type { Change } from './change.ts'
import { isOption } from './request-changes.ts'

// What is remembered of a rejection: a change, or a change with the values of settings that the rejection was about.

/** The settings of a run by the changes that leave them out. */
export type Values = ReadonlyMap<string, unknown>

/**
 * Returns what to remember of a change, which is one of those that a rejection `offered`. Providers reject a setting for
 * its value (`reasoningEffort: minimal`) or beside another one, and accept those of other agents.
 */
export function lessonOf(change: Change, offered: readonly Change[], values: Values): string {
  if (!settingOf(change, values)) return change
  const names = new Set(offered.flatMap((each) => settingOf(each, values) ?? []))
  return `${change} ${JSON.stringify([...names].map((name) => [name, values.get(name)]))}`
}

/** Returns the name in `values` of the setting that a change leaves out, at least in part; null if it leaves out none. */
function settingOf(change: Change, values: Values): string | null {
  if (values.has(change)) return change
  const providerOptions = values.get('providerOptions') as ModelSettings['providerOptions']
  return change.startsWith('omit:') && isOption(change.slice(5), { providerOptions }) ? 'providerOptions' : null
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
