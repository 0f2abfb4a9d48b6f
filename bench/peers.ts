import { setTimeout as sleep } from 'node:timers/promises'
import { bare, type Contender, JSON_HEADERS, MESSAGE, muster, peers, type Workload } from './contenders.ts'
import { call, type Lab } from './lab.ts'
import { load } from './load.ts'
import { median } from './numbers.ts'
import { memoryOfFamily, type Program } from './processes.ts'
import type { Effort } from './rows/row.ts'
import { DELAY, readTogether, TOKENS } from './rows/runs.ts'
import { readStream, type StreamTarget } from './sse.ts'

const SETTLE = 2_000
/** Warm-up of each kind of request: one after another, so that a busy machine answers in time, then together (s). */
const WARM_UP = { requests: 20, seconds: 3 }

type Row = 'list' | 'get' | 'run' | 'first' | 'streams' | 'start' | 'idle' | 'loaded'
export type Measured = { name: string; version: string; rows: Partial<Record<Row, number>>; failed: string | null }

const unique = (body: unknown) => JSON.parse(JSON.stringify(body).replace('[<id>]', crypto.randomUUID()))

const ask = ({ url }: Program, { path, method = 'GET', headers = {}, body }: Workload) =>
  call({ url, headers }, method, path, body === undefined ? undefined : unique(body))

const targetOf = ({ url }: Program, { path, ...rest }: { path: string } & Omit<StreamTarget, 'url'>) => ({
  ...rest,
  url: url + path,
})

/** A contender that runs for all rounds, with its measurements. */
async function ready(contender: Contender, model: Program) {
  const second = await contender.start(model.url, 'second')
  await contender.requests(second)
  await second.stop()
  const server = await contender.start(model.url, 'first')
  const requests = await contender.requests(server)
  const samples = new Map<Row, number[]>()
  const keep = (row: Row, value: number) => void samples.set(row, [...(samples.get(row) ?? []), value])
  for (const each of ['list', 'get', 'run'] as const) {
    for (let left = WARM_UP.requests; left; left--) await ask(server, requests[each])
    await load({ ...requests[each], program: server }, WARM_UP.seconds)
  }
  return { contender, server, requests, samples, keep }
}

type Ready = Awaited<ReturnType<typeof ready>>

async function measureRound({ contender, server, requests, keep }: Ready, models: Models, effort: Effort) {
  for (const row of ['list', 'get', 'run'] as const) {
    keep(row, (await load({ ...requests[row], program: server }, effort.seconds)).rate)
  }
  const more: number[] = []
  for (let pair = 0; pair < effort.repeats; pair++) {
    const { first } = await readStream(models.direct)
    more.push((await readStream(targetOf(server, requests.stream))).first - first)
  }
  keep('first', median(more))
  // Restarted on its data, with a slow model.
  const began = performance.now()
  const fresh = await contender.start(models.slow.url, 'second')
  try {
    await ask(fresh, requests.list)
    keep('start', performance.now() - began)
    const { stream } = await contender.requests(fresh)
    keep('streams', await readTogether(targetOf(fresh, stream)))
  } finally {
    await fresh.stop()
  }
}

type Models = { fast: Program; slow: Program; direct: StreamTarget }

/** Memory of a server that has answered each kind of request once. */
async function measureIdle(contender: Contender, models: Models): Promise<number> {
  const server = await contender.start(models.fast.url, 'first')
  try {
    const { list, run, stream, also } = await contender.requests(server)
    for (const each of also ? [list, run, also] : [list, run]) await ask(server, each)
    await readStream(targetOf(server, stream))
    await sleep(SETTLE)
    return memoryOfFamily(server.pid)
  } finally {
    await server.stop()
  }
}

type Comparison = { version: string; onPostgresql: boolean; rounds: number; effort: Effort }

/** Installs the peers and measures them in the same rounds as the bare server and the service itself. */
export async function comparePeers(lab: Lab, comparison: Comparison): Promise<Measured[]> {
  const { version, onPostgresql, rounds, effort } = comparison
  const say = (what: string) => process.stderr.write(`\r\x1b[Kpeers: ${what}`)
  const [fast, slow] = [await lab.model(20, 0), await lab.model(TOKENS, DELAY)]
  const question = { model: 'test-model', stream: true, messages: [{ role: 'user', content: MESSAGE }] }
  const url = `${fast.url}/chat/completions`
  const models = { fast, slow, direct: { url, headers: JSON_HEADERS, body: question, marker: '"content":"token' } }
  const found: Measured[] = []
  const running: { of: Measured; one: Ready }[] = []
  /** Reports a failure of one contender, and continues with the others. */
  async function attempt(of: Measured, work: () => Promise<void>): Promise<void> {
    if (of.failed) return
    try {
      await work()
    } catch (error) {
      of.failed = (error instanceof Error ? error.message : String(error)).split('\n').slice(0, 3).join(' ')
    }
  }
  const entries = [
    { name: 'bare node:http', make: async () => bare(lab) },
    { name: 'Muster', make: async () => muster(lab, version) },
    ...peers(lab, onPostgresql),
  ]
  for (const { name, make } of entries) {
    const of: Measured = { name, version: '', rows: {}, failed: null }
    found.push(of)
    say(`${name} is made ready`)
    await attempt(of, async () => {
      const contender = await make()
      of.version = contender.version
      of.rows.idle = await measureIdle(contender, models)
      running.push({ of, one: await ready(contender, fast) })
    })
  }
  for (let round = 1; round <= rounds; round++) {
    for (const { of, one } of running) {
      say(`round ${round} of ${rounds}: ${of.name}`)
      await attempt(of, () => measureRound(one, models, effort))
    }
  }
  for (const { of, one } of running) {
    of.rows.loaded = memoryOfFamily(one.server.pid)
    for (const [row, values] of one.samples) of.rows[row] = median(values)
    await one.server.stop()
  }
  process.stderr.write('\r\x1b[K')
  return found
}

const ROWS: readonly (readonly [row: Row, what: string, unit: string])[] = [
  ['list', 'list 10 agents', '/s'],
  ['get', 'get an agent', '/s'],
  ['run', 'run of 20 tokens, conversation stored', '/s'],
  ['first', "first token, over the model's own", ' ms'],
  ['streams', '200 streams of 100 tokens at 20 ms', ' tokens/s'],
  ['start', 'start to first 200, existing data', ' ms'],
  ['idle', 'memory, idle', ' MiB'],
  ['loaded', 'memory, after load', ' MiB'],
]

/** Rows that are also shown as a ratio to the bare server. */
const RATIOS: ReadonlySet<Row> = new Set(['list', 'get', 'run', 'streams'])

/** Formats the result as Markdown. */
export function peersTable(measured: readonly Measured[]): string {
  const [reference] = measured
  const cell = ({ rows }: Measured, row: Row, unit: string) => {
    const value = rows[row]
    if (value === undefined) return 'not measured'
    const text = value.toLocaleString('en', { maximumFractionDigits: value < 20 ? 1 : 0 }) + unit
    const bare = reference?.rows[row]
    return RATIOS.has(row) && bare && rows !== reference.rows ? `${text} (${(value / bare).toFixed(2)} x)` : text
  }
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  const failures = measured.flatMap(({ name, failed }) => (failed ? `${name}: ${failed}` : []))
  return [
    line(['', ...measured.map(({ name, version }) => `${name} ${version}`)]),
    line(['---', ...measured.map(() => '---:')]),
    ...ROWS.map(([row, what, unit]) => line([what, ...measured.map((each) => cell(each, row, unit))])),
    ...failures.map((failure) => `\nNot measured to the end. ${failure}`),
  ].join('\n')
}
