import { existsSync, statfsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url))

const root = file('..')

// Compiled code of one worker serves the next.
process.env.NODE_COMPILE_CACHE ??= file('../node_modules/.cache/tests')

// Databases are placed in memory if there is enough, because each commit waits for a disk otherwise. Data still
// survives a killed process.
if (freeSpaceOf('/dev/shm') > 4 * 2 ** 30) process.env.TMPDIR = '/dev/shm'

// Libraries of the service and of the tests read these from the developer's shell by themselves.
for (const name of Object.keys(process.env)) if (/^(?:OTEL_|PG[A-Z]+$)/.test(name)) delete process.env[name]

/** Returns the free space of a folder (bytes), 0 if it does not exist. */
function freeSpaceOf(folder: string): number {
  if (!existsSync(folder)) return 0
  const { bavail, bsize } = statfsSync(folder)
  return bavail * bsize
}

const common = {
  // Node loads sources and tests as for `npm start`, in less time than Vite.
  experimental: { viteModuleRunner: false, nodeLoader: false },
  // More room for young objects (MB) saves a tenth of a test's processor time.
  execArgv: ['--max-semi-space-size=64'],
  setupFiles: [file('../test/support/each-test.ts')],
}

// Generous time limits, which only broken tests reach, because a machine may be slow, and whole matrices are long.
const patience = process.env.NIGHTLY === '1' ? 300_000 : 180_000
const timeouts = { testTimeout: patience, hookTimeout: patience, expect: { poll: { timeout: 90_000 } } }

// A browser needs several processes, beside the other workers' tests.
const browserTimeouts = { testTimeout: 240_000, hookTimeout: 240_000, expect: { poll: { timeout: 60_000 } } }

/**
 * Tests that `npm test` leaves out beside the browser's and those on PostgreSQL, because they take over a third of the
 * time: they start servers and programs in processes of their own and kill many of them, move megabytes, wait for a
 * time of trouble, or are suites of conformance tests.
 */
const LONG = [
  'test/{admin,e2e}/*.test.ts',
  'test/db/{copies,database-errors,failover,migrate,pooler}.test.ts',
  'test/engine/{database-away,long-replies,many,providers}.test.ts',
  'test/graphql/{changes,protocol}.test.ts',
  'test/http/unread.test.ts',
  'test/mcps/{hostile,oauth-conformance,programs}.test.ts',
  'test/outgoing.test.ts',
  'test/protocols/{killed,mcp-conformance}.test.ts',
  'test/rest/{client,media,media-s3}.test.ts',
  'test/{missions,webhooks}/kill.test.ts',
]

/**
 * Tests that also run on PostgreSQL: those whose database behavior may differ, such as concurrent transactions (the
 * engine, missions, idempotency), our own SQL for searching, sorting and counting, visibility, and GraphQL's own
 * statements. Excluded: tests that reach the database only through services covered elsewhere (protocols, errors,
 * stream clients, uploads), tests without a database (models, addresses, documents, programs), tests that wait for the
 * clock, and SQLite's own files, locks and plans. With NIGHTLY=1 also those whose statements the others have in part.
 * `test/support/postgres-part.ts` selects the tests of some files.
 */
const ON_POSTGRESQL = [
  'test/db/{fast-path,pages,search,totals,transactions}.test.ts',
  'test/engine/{acceptance,cancel,delegation,event-log,fencing,limits,recovery,retention,sessions,states}.test.ts',
  'test/tools/files.test.ts',
  'test/webhooks/{events,mails}.test.ts',
  'test/graphql/{executions,nodes}.test.ts',
  'test/rest/{agents,attachments,changes,chats,executions,missions,mission-changes,mission-runs}.test.ts',
  'test/people/{ended-sessions,invitations,service-accounts,sessions,sign-in-provider}.test.ts',
  'test/rest/{audit-retention,limits,organizations}.test.ts',
  'test/rest/{pages,queries,spaces,task-runs,tasks,usage,visibility}.test.ts',
  'test/security/{isolation,revocation}.test.ts',
  'test/protocols/mcp-servers.test.ts',
  'test/mcps/operator.test.ts',
  'test/tasks.property.test.ts',
  ...(process.env.NIGHTLY === '1'
    ? [
        'test/{idempotency,values}.test.ts',
        'test/rest/counts.test.ts',
        'test/webhooks/{deliveries,kill}.test.ts',
        'test/engine/{approvals,history,pause,summaries}.test.ts',
        'test/missions/{endings,kill}.test.ts',
        'test/mcps/{oauth,oauth-servers,oauth-tokens}.test.ts',
        'test/protocols/{openai,openai-tools}.test.ts',
      ]
    : []),
]

const withPostgres = process.env.SKIP_POSTGRES !== '1'

export default defineConfig({
  root,
  test: {
    experimental: common.experimental,
    globalSetup: ['postgres-shared', 'sqlite-shared', 'compiled'].map((name) => file(`../test/support/${name}.ts`)),
    // Two more than there are cores, because a third of the time is waiting for a clock or another process.
    maxWorkers: availableParallelism() + 2,
    // The files of a worker share their imports, which saves a third of the work.
    isolate: false,
    reporters: ['default', file('reporter.ts')],
    projects: [
      {
        root,
        test: {
          name: 'sqlite',
          include: ['test/**/*.test.ts'],
          exclude: ['test/soak/**', 'test/browser/**', ...LONG],
          ...common,
          ...timeouts,
        },
      },
      {
        root,
        test: {
          name: 'long',
          include: LONG,
          ...common,
          ...timeouts,
        },
      },
      {
        root,
        test: {
          name: 'browser',
          include: ['test/browser/**/*.test.ts'],
          ...common,
          ...browserTimeouts,
        },
      },
      ...(withPostgres
        ? [
            {
              root,
              test: {
                name: 'postgresql',
                include: ON_POSTGRESQL,
                env: { DATABASE: 'postgresql' },
                ...common,
                setupFiles: [...common.setupFiles, file('../test/support/postgres-part.ts')],
                ...timeouts,
              },
            },
          ]
        : []),
    ],
  },
})
