/**
 * `npm run test:soak -- [--rounds N] [NAME…]`: the durability proofs of the tests at full length, against the real
 * process, killed and restarted. Writes its results to `bench/soak.md` after a complete run. Runs 100 rounds by
 * default; the first failure ends it. `mutations` runs only by name.
 */
import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { cpus } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { readOptions } from '../../.config/options.ts'
import { watchTransitions } from '../engine/invariants.ts'
import { startCluster } from '../support/cluster.ts'
import { createFolder } from '../support/folder.ts'
import { startPostgres } from '../support/postgres.ts'
import { CROWDED, crash } from './crash.ts'
import { enumeration } from './enumeration.ts'
import { canFillDisk, fullDisk } from './full-disk.ts'
import { killedKeys, parallelKeys } from './keys.ts'
import { mutations } from './mutations.ts'
import { readers } from './readers.ts'
import { failedOver, killed, rollingRestart, type ServersReport } from './servers.ts'
import { createSubject } from './service.ts'
import { killedWebhooks, sharedWebhooks } from './webhooks.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const VITEST = join(ROOT, 'node_modules', 'vitest', 'vitest.mjs')

const { values, positionals } = readOptions('Usage: npm run test:soak -- [--rounds N] [NAME…]', {
  options: { rounds: { type: 'string', default: '100' } },
  allowPositionals: true,
})
const rounds = Number(values.rounds)

/** Silences the log, because servers report every database outage. */
const QUIET = { LOG_LEVEL: 'fatal' }

type Proof = { name: string; what: string; run: () => Promise<string> }

/** Runs tests at their full length. Their titles have the number of repetitions. */
async function tests(file: string, pattern: string, env: Record<string, string> = {}): Promise<string> {
  await using folder = await createFolder()
  const output = join(folder.path, 'report.json')
  const args = ['run', '--config', '.config/vitest.ts', '--reporter', 'json', '--outputFile', output]
  await promisify(execFile)(process.execPath, [VITEST, ...args, file, '-t', pattern], {
    cwd: ROOT,
    env: { ...process.env, NIGHTLY: '1', ...env },
  })
  const { testResults } = JSON.parse(await readFile(output, 'utf8')) as {
    testResults: { assertionResults: { title: string; status: string }[] }[]
  }
  const passed = testResults.flatMap((result) => result.assertionResults).filter(({ status }) => status === 'passed')
  if (!passed.length) throw new Error(`${file} has no test like ${pattern}`)
  if (passed.length > 10) return `passed: ${passed.length} tests`
  return passed.map(({ title }) => `passed: ${title}`).join('<br>')
}

const tell = ({ accepted, byOutcome, ends, resumed, settledAfter, seed }: ServersReport): string =>
  [
    `${accepted} accepted, none missing, none twice: ${Object.entries(byOutcome)
      .map(([outcome, count]) => `${count} ${outcome}`)
      .join('; ')}`,
    `${ends} ends of a server; ${resumed} streams taken up again on either server, all to their ends`,
    `all settled ${(settledAfter / 1_000).toFixed(1)} s after the last of it; seed ${seed}`,
  ].join('<br>')

const PROOFS: Proof[] = [
  {
    name: 'crash',
    what: `\`kill -9\` at a random moment with 8 runs in flight, ${rounds} rounds`,
    async run() {
      await using subject = await createSubject(CROWDED)
      const { seed, accepted, byOutcome, resumed, slowestRecovery } = await crash(subject, rounds)
      const outcomes = Object.entries(byOutcome).map(([outcome, count]) => `${count} ${outcome}`)
      return [
        `${accepted} accepted, none missing: ${outcomes.join('; ')}`,
        `${resumed} cut streams resumed to their ends; no second terminal event, no second answer, no chat left working`,
        `all settled at most ${(slowestRecovery / 1_000).toFixed(1)} s after the restart; seed ${seed}`,
      ].join('<br>')
    },
  },
  {
    name: 'keys-killed',
    what: `\`kill -9\` between effect and answer, ${rounds} rounds`,
    async run() {
      await using subject = await createSubject()
      const { replayed } = await killedKeys(subject, rounds)
      return `one row each; ${replayed} retries, all answered with the same id`
    },
  },
  {
    name: 'keys-parallel',
    what: `50 parallel POSTs with one key, ${rounds} rounds`,
    async run() {
      const { requests, replayed } = await parallelKeys(rounds)
      return `one effect each: ${requests} requests, ${replayed} of them replays`
    },
  },
  {
    name: 'readers',
    what: '20 readers that never read, 15 MiB produced for each',
    async run() {
      const { dropped, grownBy } = await readers(20, 15, true)
      if (grownBy > 32) throw new Error(`The server holds ${grownBy} MiB for readers that never read`)
      return `all runs completed, another stream went on, ${dropped} dropped; ${grownBy} MiB held more than without them`
    },
  },
  {
    name: 'servers',
    what: `two servers on PostgreSQL, 200 runs in flight, \`kill -9\` of one every 4 s, the database restarted twice, ${rounds} s`,
    async run() {
      await using postgres = await startPostgres()
      await using cluster = await startCluster(await postgres.createDatabase(), [QUIET, QUIET])
      const restartDatabase = async () => {
        await postgres.stop()
        await sleep(1_000)
        await postgres.start()
      }
      const transitions = await watchTransitions(cluster.db)
      const violence = { seconds: rounds, ends: 2, inFlight: 200, pause: 4_000, databaseRestarts: 2, restartDatabase }
      return tell(await killed({ cluster, transitions, ...violence }))
    },
  },
  {
    name: 'rolling-restart',
    what: `two servers on PostgreSQL behind a proxy that asks /readyz, 50 runs in flight, restarted in turn, ${rounds} s`,
    async run() {
      await using postgres = await startPostgres()
      const env = { ...QUIET, SHUTDOWN_DELAY: '5' }
      await using cluster = await startCluster(await postgres.createDatabase(), [env, env])
      const transitions = await watchTransitions(cluster.db)
      const restarts = { seconds: rounds, ends: 2, inFlight: 50, pause: 2_000 }
      const report = await rollingRestart({ cluster, transitions, ...restarts })
      return `no request failed, none was repeated<br>${tell(report)}`
    },
  },
  {
    name: 'failover',
    what: `two servers on PostgreSQL with a synchronous standby, 100 runs in flight, the primary crashes and the standby is promoted, ${rounds} s`,
    async run() {
      await using postgres = await startPostgres()
      await using standby = await postgres.addStandby()
      const url = standby.beside(await postgres.createDatabase())
      await using cluster = await startCluster(url, [QUIET, QUIET])
      const transitions = await watchTransitions(cluster.db)
      async function failOver() {
        await postgres.crash()
        await standby.promote()
      }
      const report = await failedOver({ cluster, transitions, seconds: rounds, inFlight: 100, failOver })
      if (report.readyAfter > 10_000) throw new Error(`the servers were ready only after ${report.readyAfter} ms`)
      return `both servers ready ${report.readyAfter} ms after the promotion<br>${tell(report)}`
    },
  },
  {
    name: 'full-disk',
    what: 'a server on PostgreSQL whose disk fills up with 50 runs in flight and 50 more, and then grows',
    async run() {
      if (!canFillDisk) return 'skipped: only root of Linux can mount a small disk'
      const { stored, refused, accepted } = await fullDisk(50)
      return `${stored} tasks stored until the disk was full; ${accepted} runs accepted, all completed; ${refused} refused, none stored`
    },
  },
  {
    name: 'webhooks',
    what: `\`kill -9\` while events are made and delivered, ${2 * rounds} rounds on each database; two servers, 500 events`,
    async run() {
      await using postgres = await startPostgres()
      const killed = async (url: string | null) => {
        const { committed, received, missing, invented } = await killedWebhooks(2 * rounds, url)
        if (missing.length + invented.length)
          throw new Error(
            `of ${committed} changes ${missing.length} are missing (${missing.slice(0, 5)}), and ${invented.length} are invented (${invented.slice(0, 5)})`,
          )
        return `${url ? 'PostgreSQL' : 'SQLite'}: ${committed} changes, all delivered, by ${received} requests`
      }
      const counts = await Promise.all([killed(null), killed(await postgres.createDatabase())])
      const times = await sharedWebhooks(500, await postgres.createDatabase())
      if (times.some((count) => count !== 1)) throw new Error('two servers delivered an event twice, or not at all')
      return `${counts.join('<br>')}<br>two servers delivered each of ${times.length} events once`
    },
  },
  {
    name: 'fence',
    what: 'late writes of a worker that lost its runs',
    run: () => tests('test/engine/fencing.test.ts', 'paused beyond its lease|the fence keeps the first worker'),
  },
  {
    name: 'cancel',
    what: 'races of cancel and completion',
    run: () => tests('test/engine/cancel.test.ts', 'cancels raced against completion'),
  },
  {
    name: 'fuzz',
    what: 'requests generated from the OpenAPI document, 300 of each operation',
    run: () => tests('test/rest/fuzz.test.ts', 'still answers|answers as documented', { FUZZ_RUNS: '300' }),
  },
  {
    name: 'enumeration',
    what: `wrong passwords of accounts and of unknown addresses, ${rounds * 2} of each`,
    async run() {
      const { medians, percent, ms } = await enumeration(rounds * 2)
      const each = Object.entries(medians).map(([name, time]) => `${name} ${time.toFixed(2)} ms`)
      return `medians: ${each.join(', ')}; they differ by ${percent.toFixed(1)} % and ${ms.toFixed(2)} ms`
    },
  },
  {
    name: 'mutations',
    what: 'every filter, authorization, check of scopes and composite key, removed one at a time',
    run: () => mutations(),
  },
]

// It takes hours, and has its own report.
const ALONE = 'mutations'
const chosen = PROOFS.filter(({ name }) => (positionals.length ? positionals.includes(name) : name !== ALONE))
const found: string[] = []
for (const { name, what, run } of chosen) {
  const started = Date.now()
  const finding = await run()
  const seconds = Math.round((Date.now() - started) / 1_000)
  console.log(`${name} (${seconds} s): ${finding.replaceAll('<br>', '\n  ')}`)
  found.push(`| ${name} | ${what} | ${finding} | ${seconds} s |`)
}
if (!positionals.length) {
  const machine = `${cpus().length} x ${cpus()[0]?.model.trim()}, Node ${process.version}, ${process.platform}`
  const report = [
    '# Soak',
    '',
    `Results of \`npm run test:soak\`: ${new Date().toISOString()}, ${machine}.`,
    '',
    '| proof | work | result | duration |',
    '|---|---|---|---|',
    ...found,
  ]
  await writeFile(join(ROOT, 'bench', 'soak.md'), `${report.join('\n')}\n`)
}
process.exit()
