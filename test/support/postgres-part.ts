import { beforeEach } from 'vitest'

/**
 * Files whose other statements reach PostgreSQL in `test/security/isolation.test.ts`, which calls every procedure with the
 * caller's own ids too.
 */
const IN_PART = /(rest\/(agents|chats|missions|spaces|tasks)|people\/(sessions|sign-in-provider))\.test\.ts$/

/** Titles, with those of their groups, of tests whose database behavior may differ. */
const MAY_DIFFER = /concurrent|search|sort|order|filter|count|total|page|cursor|hidden|visib|private|statement|race/i

const nameOf = (task: { name: string; suite?: { name: string; suite?: object } | undefined }): string =>
  task.suite ? `${nameOf(task.suite as typeof task)} ${task.name}` : task.name

// Skips the other tests of these files, which NIGHTLY=1 runs.
beforeEach(({ task, skip }) => {
  if (process.env.NIGHTLY === '1' || !IN_PART.test(task.file.filepath)) return
  if (!MAY_DIFFER.test(nameOf(task))) skip()
})
