import { cut } from '../../../lib/text.ts'
import type { Warning, WarningCode } from '../../../wire.ts'

/** The maximum number of warnings of a run, and of characters of each. */
const MAX_WARNINGS = 50
const MAX_LENGTH = 500

/**
 * Adds a warning to a run for the person who reads its answer: it names the omission and the fix. Drops duplicates and
 * everything beyond {@link MAX_WARNINGS}. The text contains no secrets and no prompts.
 */
export type Warn = (code: WarningCode, text: string) => void

/** The warnings of one attempt at a run. */
export type Warnings = {
  readonly warn: Warn
  /** All warnings of the run, including those of earlier attempts. */
  readonly all: readonly Warning[]
  /** Publishes the warnings so far and every later one, until called with `null`. */
  publishTo(publish: ((warning: Warning) => void) | null): void
}

/** Creates the warnings of an attempt. `known`: those that an earlier attempt has published. */
export function createWarnings(known: readonly Warning[]): Warnings {
  const all = [...known]
  let published = all.length
  let publish: ((warning: Warning) => void) | null = null
  const publishRest = () => {
    while (publish && published < all.length) publish(all[published++]!)
  }
  return {
    all,
    warn(code, given) {
      const text = cut(given.replace(/[\s\0]+/g, ' ').trim(), MAX_LENGTH).toWellFormed()
      const isDuplicate = all.some((warning) => warning.code === code && warning.text === text)
      if (isDuplicate || all.length >= MAX_WARNINGS) return
      all.push({ code, text })
      publishRest()
    },
    publishTo(given) {
      publish = given
      publishRest()
    },
  }
}

/** Reads the column of an execution. */
export const warningsOf = ({ warnings }: { warnings: string | null }): Warning[] =>
  warnings === null ? [] : JSON.parse(warnings)

/** Serializes warnings for the column of an execution. */
export const toColumn = (warnings: readonly Warning[]): string | null =>
  warnings.length ? JSON.stringify(warnings) : null

/** Joins two lists and removes duplicates. */
export function joined(some: readonly Warning[], others: readonly Warning[]): Warning[] {
  const { all, warn } = createWarnings(some)
  for (const { code, text } of others) warn(code, text)
  return [...all]
}
