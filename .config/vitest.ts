import { existsSync, statfsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url))

const common = {
  // Vite would take another build of graphql than Node does for the packages that use it: there may be only one.
  resolve: { alias: [{ find: /^graphql$/, replacement: fileURLToPath(import.meta.resolve('graphql')) }] },
  root: file('..'),
}

// Databases are put in memory where there is room: each of their commits waits for a disk, where there is one. What
// outlives a process that is killed is the same.
if (roomAt('/dev/shm') > 4 * 2 ** 30) process.env.TMPDIR = '/dev/shm'

/** In bytes; none where there is no such folder. */
function roomAt(folder: string): number {
  if (!existsSync(folder)) return 0
  const { bavail, bsize } = statfsSync(folder)
  return bavail * bsize
}

// The ends of what is waited for, met only by what is broken: a machine may be slow.
const timeouts = { testTimeout: 30_000, hookTimeout: 30_000, expect: { poll: { timeout: 15_000 } } }

/**
 * What runs on PostgreSQL a second time: whatever goes through the database in a way that may differ there. That is how
 * transactions meet (the engine, missions, idempotency, what is done by many at once), what our own SQL finds, sorts and
 * counts, who sees what, and GraphQL's own statements. Not: what comes to the database only through services
 * that are tried there already (protocols, errors, streams' clients, uploads), what never does (models, addresses, the
 * documents, programs), what waits for the clock, and what is SQLite's own (its files, locks and plans).
 */
const ON_POSTGRESQL = [
  'test/db/{fast-path,pages,search,totals}.test.ts',
  'test/engine/{acceptance,approvals,cancel,delegation,fencing,history,journal,limits,pause,recovery,retention}.test.ts',
  'test/engine/{sessions,states}.test.ts',
  'test/missions/kill.test.ts',
  'test/graphql/{executions,nodes}.test.ts',
  'test/rest/{agents,attachments,chats,counts,executions,missions}.test.ts',
  'test/rest/{pages,queries,spaces,tasks,usage,visibility}.test.ts',
  'test/security/{isolation,revocation}.test.ts',
  'test/{idempotency,tasks.property,values}.test.ts',
]

const withPostgres = process.env.SKIP_POSTGRES !== '1'

export default defineConfig({
  ...common,
  test: {
    globalSetup: [file('../test/support/postgres-shared.ts'), file('../test/support/sqlite-shared.ts')],
    // One more than can compute: some wait for a clock or another process.
    maxWorkers: availableParallelism() + 1,
    // The files of a worker share what they import: a third less to compute.
    isolate: false,
    reporters: ['default', file('reporter.ts')],
    projects: [
      {
        ...common,
        test: {
          name: 'sqlite',
          include: ['test/**/*.test.ts'],
          exclude: ['test/soak/**', 'test/browser/**'],
          ...timeouts,
        },
      },
      { ...common, test: { name: 'browser', include: ['test/browser/**/*.test.ts'], ...timeouts } },
      ...(withPostgres
        ? [
            {
              ...common,
              test: {
                name: 'postgresql',
                include: ON_POSTGRESQL,
                env: { DATABASE: 'postgresql' },
                ...timeouts,
              },
            },
          ]
        : []),
    ],
  },
})
