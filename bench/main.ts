/**
 * `npm run bench -- [--postgresql] [--quick] [--json FILE] [ROW…]`: measures the real service in its own process beside
 * a bare node:http server in the same run, and profiles it. Without names: every row, and the profile. `--postgresql`:
 * runs all of it on a new PostgreSQL with its default durability.
 *
 * `npm run bench -- growth [--million] [--postgresql]`: measures every list, filter and report at 1,000, 10,000 and
 * 100,000 rows of everything, and at a million.
 *
 * `npm run bench -- --peers [--postgresql]`: measures Mastra, VoltAgent and LangGraph JS, too, which are installed into
 * a temporary folder; on PostgreSQL the first two, with their own stores. bench/README.md has the last tables.
 */
import { writeFile } from 'node:fs/promises'
import { cpus, loadavg } from 'node:os'
import { readOptions } from '../.config/options.ts'
import packageJson from '../package.json' with { type: 'json' }
import { startPostgres } from '../test/support/postgres.ts'
import { durabilityOf } from './durability.ts'
import { type Growth, growth } from './growth.ts'
import { createLab } from './lab.ts'
import { comparePeers, type Measured, peersTable } from './peers.ts'
import { type Profile, profile } from './profile.ts'
import { growthTable, profileTable, resultTable, toResult } from './report.ts'
import { hostileRows } from './rows/hostile.ts'
import { manyStreamRows } from './rows/many-streams.ts'
import { processRows } from './rows/process.ts'
import { requestRows } from './rows/requests.ts'
import type { Effort, Row, Sample } from './rows/row.ts'
import { runRows } from './rows/runs.ts'
import { schedulerRows } from './rows/scheduler.ts'
import { taskRows } from './rows/tasks.ts'
import { turnRows } from './rows/turns.ts'
import { twoServerRows } from './rows/two-servers.ts'
import { usageRows } from './rows/usage.ts'
import { webhookRows } from './rows/webhooks.ts'

const USAGE = [
  'Usage: npm run bench -- [--postgresql] [--quick] [--json FILE] [--peers] [ROW…]',
  '       npm run bench -- growth [--million] [--postgresql]',
].join('\n')

const { values: options, positionals } = readOptions(USAGE, {
  options: {
    postgresql: { type: 'boolean' },
    quick: { type: 'boolean' },
    json: { type: 'string' },
    million: { type: 'boolean' },
    peers: { type: 'boolean' },
  },
  allowPositionals: true,
})

const COMMON = [
  ...requestRows,
  ...runRows,
  ...taskRows,
  ...turnRows,
  ...usageRows,
  ...webhookRows,
  ...hostileRows,
  ...manyStreamRows,
  ...schedulerRows,
  ...processRows,
]
// Their targets are for SQLite.
const ROWS: Row[] = options.postgresql ? [...COMMON.map(({ goal: _, ...row }) => row), ...twoServerRows] : COMMON
const { version: VERSION } = packageJson
const PROFILE = 'profile'
const USUAL = [...ROWS.map(({ name }) => name), PROFILE]
/** Takes minutes and a gigabyte, or ten of both with `--million`, so it runs only by name. */
const GROWTH = 'growth'
const NAMES = [...USUAL, GROWTH]
const SIZES = [1_000, 10_000, 100_000]
const MILLION = 1_000_000

const unknown = positionals.find((name) => !NAMES.includes(name))
if (unknown) {
  console.error(`There is no row named ${unknown}. Rows: ${NAMES.join(', ')}`)
  process.exit(1)
}
const chosen = positionals.length || options.peers ? positionals : USUAL
const effort: Effort = options.quick ? { seconds: 1, repeats: 20 } : { seconds: 3, repeats: 100 }
const rounds = options.peers ? (options.quick ? 1 : 3) : options.quick ? 2 : 5
/** Time limit of the whole run (ms). */
const PATIENCE = (options.million || options.peers ? 60 : 15) * 60_000

// Exiting ends all started processes (lab.ts).
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130))
setTimeout(() => {
  console.error('The benchmark took too long.')
  process.exit(1)
}, PATIENCE).unref()

const postgres = options.postgresql ? await startPostgres({ fsync: 'on' }) : null
const database = postgres ? await durabilityOf(postgres) : 'SQLite, synchronous=FULL'
const lab = createLab(postgres)
const rows = []
for (const row of ROWS) {
  if (chosen.includes(row.name)) rows.push({ row, measure: await row.prepare(lab), samples: [] as Sample[] })
}
const failures: string[] = []
// The first round warms up and does not count.
for (let round = 0; round <= rounds && rows.length; round++) {
  for (const { row, measure, samples } of rows) {
    if (row.once && round !== 1) continue
    process.stderr.write(`\r\x1b[K${round ? `round ${round} of ${rounds}` : 'warming up'}: ${row.name}`)
    try {
      const sample = await measure(round ? effort : { seconds: 1, repeats: 10 })
      if (round) samples.push(sample)
    } catch (error) {
      failures.push(`${row.name}: ${error instanceof Error ? error.message : error}`)
    }
  }
}
process.stderr.write('\r\x1b[K')
const results = rows.flatMap(({ row, samples }) => (samples.length ? toResult(row, samples) : []))
const profiles: Profile[] = chosen.includes(PROFILE) ? await profile(lab, effort.seconds * 2) : []
const sizes = options.million ? [...SIZES, MILLION] : SIZES
const grown: Growth[] = chosen.includes(GROWTH) ? await growth(lab, sizes, options.quick ? 5 : 21) : []
const comparison = { version: VERSION, onPostgresql: postgres !== null, rounds, effort }
const compared: Measured[] = options.peers ? await comparePeers(lab, comparison) : []
lab.close()
await postgres?.[Symbol.asyncDispose]()

const machine = `${cpus().length} x ${cpus()[0]?.model.trim()}, Node ${process.version}, ${process.platform}, ${database}`
const [busy = 0] = loadavg()
console.log(`${machine}, load ${busy.toFixed(1)}; medians of ${rounds} rounds, 16 requests in flight\n`)
if (results.length) console.log(`${resultTable(results)}\n`)
if (profiles.length) console.log(profileTable(profiles))
if (grown.length) console.log(growthTable(sizes, grown))
if (compared.length) console.log(peersTable(compared))
if (options.json) {
  const report = { at: new Date().toISOString(), machine, rounds, effort, results, profiles, sizes, grown, compared }
  await writeFile(options.json, `${JSON.stringify(report, null, 2)}\n`)
}
for (const failure of failures) console.error(`\nA measurement failed. ${failure}`)
process.exit(failures.length ? 1 : 0)
