import { existsSync, statfsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url))

const common = {
  // Vite would load a different build of graphql than Node does for its dependents; there may be only one.
  resolve: { alias: [{ find: /^graphql$/, replacement: fileURLToPath(import.meta.resolve('graphql')) }] },
  root: file('..'),
}

// Databases are placed in memory if there is enough, because each commit waits for a disk otherwise. Data still
// survives a killed process.
if (roomAt('/dev/shm') > 4 * 2 ** 30) process.env.TMPDIR = '/dev/shm'

/** Returns the free space of a folder (bytes), 0 if it does not exist. */
function roomAt(folder: string): number {
  if (!existsSync(folder)) return 0
  const { bavail, bsize } = statfsSync(folder)
  return bavail * bsize
}

// More room for young objects (MB) saves a tenth of a test's processor time.
const execArgv = ['--max-semi-space-size=64']

// Generous time limits, which only broken tests reach, because a machine may be slow.
const timeouts = { testTimeout: 30_000, hookTimeout: 30_000, expect: { poll: { timeout: 15_000 } } }

// A browser needs several processes, beside the other workers' tests.
const browserTimeouts = { testTimeout: 120_000, hookTimeout: 120_000, expect: { poll: { timeout: 60_000 } } }

/**
 * Tests that also run on PostgreSQL: those whose database behavior may differ, such as concurrent transactions (the
 * engine, missions, idempotency), our own SQL for searching, sorting and counting, visibility, and GraphQL's own
 * statements. Excluded: tests that reach the database only through services covered elsewhere (protocols, errors,
 * stream clients, uploads), tests without a database (models, addresses, documents, programs), tests that wait for the
 * clock, and SQLite's own files, locks and plans.
 */
const ON_POSTGRESQL = [
  'test/db/{fast-path,pages,search,totals}.test.ts',
  'test/engine/{acceptance,approvals,cancel,delegation,event-log,fencing,history,limits,pause,recovery,retention}.test.ts',
  'test/engine/{sessions,states,summaries}.test.ts',
  'test/tools/files.test.ts',
  'test/missions/kill.test.ts',
  'test/webhooks/*.test.ts',
  'test/protocols/openai.test.ts',
  'test/graphql/{executions,nodes}.test.ts',
  'test/rest/{agents,attachments,changes,chats,counts,executions,missions}.test.ts',
  'test/people/{ended-sessions,invitations,service-accounts,sessions,sign-in-provider}.test.ts',
  'test/rest/{audit-retention,limits,organizations}.test.ts',
  'test/rest/{pages,queries,spaces,tasks,usage,visibility}.test.ts',
  'test/security/{isolation,revocation}.test.ts',
  'test/protocols/mcp-servers.test.ts',
  'test/mcps/operator.test.ts',
  'test/{idempotency,tasks.property,values}.test.ts',
]

const withPostgres = process.env.SKIP_POSTGRES !== '1'

export default defineConfig({
  ...common,
  test: {
    globalSetup: [file('../test/support/postgres-shared.ts'), file('../test/support/sqlite-shared.ts')],
    // One more than there are cores, because some wait for a clock or another process.
    maxWorkers: availableParallelism() + 1,
    // The files of a worker share their imports, which saves a third of the work.
    isolate: false,
    reporters: ['default', file('reporter.ts')],
    projects: [
      {
        ...common,
        test: {
          name: 'sqlite',
          include: ['test/**/*.test.ts'],
          exclude: ['test/soak/**', 'test/browser/**'],
          execArgv,
          ...timeouts,
        },
      },
      { ...common, test: { name: 'browser', include: ['test/browser/**/*.test.ts'], execArgv, ...browserTimeouts } },
      ...(withPostgres
        ? [
            {
              ...common,
              test: {
                name: 'postgresql',
                include: ON_POSTGRESQL,
                env: { DATABASE: 'postgresql' },
                execArgv,
                ...timeouts,
              },
            },
          ]
        : []),
    ],
  },
})
