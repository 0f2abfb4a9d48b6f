import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { call, type Lab } from '../lab.ts'
import { percentile } from '../numbers.ts'
import { type Program, start } from '../processes.ts'
import type { StreamTarget } from '../sse.ts'
import type { Row, Sample } from './row.ts'

const TICKING = fileURLToPath(import.meta.resolve('../ticking.ts'))
const TICKS = fileURLToPath(import.meta.resolve('../ticks.ts'))
const COLLECTED = { nodeArgs: ['--expose-gc', '--import', import.meta.resolve('../collector.ts')], ipc: true }
const READERS = 2
/** Time for which all of them are active (s). */
const DURATION = 20
/** Number of streams that were read before. */
const WARM = 40
const MESSAGE = 'Tell me the time.'

type Ticks = [sentAt: number, took: number][]
type Found = { delivery: number; memory: number }

/** The resident memory of a server after a forced collection (bytes). */
async function collect({ process: server }: Program): Promise<number> {
  const answer = once(server, 'message', { signal: AbortSignal.timeout(20_000) })
  server.send('collect')
  return (await answer)[0]
}

/**
 * A number of concurrent streams, read in other processes: delivery (ms, p99) while all are active, and memory for each
 * (KB).
 */
async function readMany(server: Program, target: StreamTarget, count: number): Promise<Found> {
  const input = JSON.stringify({ target, count: count / READERS })
  const read = () => start([TICKS, input], /(reading)/, { ipc: true, patience: 120_000 })
  const before = await collect(server)
  const programs = await Promise.all(Array.from({ length: READERS }, read))
  const results = Promise.all(programs.map(({ process: reader }) => once(reader, 'message')))
  const memory = ((await collect(server)) - before) / count / 1_000
  const from = performance.timeOrigin + performance.now()
  const streams = (await results).flatMap(([ticks]) => ticks as (Ticks | null)[])
  const whole = streams.filter((ticks) => ticks !== null)
  if (whole.length < count) throw new Error(`${target.url}: ${count - whole.length} of ${count} streams were cut`)
  const to = Math.min(...whole.map((ticks) => ticks.at(-1)![0]))
  const together = whole.flatMap((ticks) => ticks.filter(([sentAt]) => sentAt > from && sentAt < to))
  return {
    delivery: percentile(
      99,
      together.map(([, took]) => took),
    ),
    memory,
  }
}

async function measure(lab: Lab, count: number): Promise<{ service: Found; bare: Found }> {
  const model = await start([TICKING, String(DURATION)], /"baseUrl":"([^"]+)"/)
  const env = { OPENAI_BASE_URL: model.url }
  const [service, bare] = await Promise.all([
    lab.service(lab.folder(), { env, ...COLLECTED }),
    lab.bare(model.url, COLLECTED),
  ])
  const agent = { name: 'Ada', systemPrompt: 'You tell the time.', model: 'compatible/m' }
  const { id } = await call<{ id: string }>(service, 'POST', '/api/v1/agents', agent)
  const { headers } = service
  const messages = [{ role: 'user', content: MESSAGE }]
  const relayed = { url: `${bare.url}/relay`, headers, body: { model: 'm', stream: true, messages }, marker: '' }
  const ours = {
    ...relayed,
    url: `${service.url}/api/v1/agents/${id}/execute`,
    body: { message: MESSAGE, stream: true },
  }
  // The first streams load and compile code once.
  await Promise.all([readMany(bare, relayed, WARM), readMany(service, ours, WARM)])
  const found = { bare: await readMany(bare, relayed, count), service: await readMany(service, ours, count) }
  await Promise.all([service.stop(), bare.stop(), model.stop()])
  return found
}

/** Delivery and memory of a number of streams: both rows measure the same streams. */
function rowsOf(count: number, names: Record<keyof Found, string>, goals: Partial<Found>): Row[] {
  const measured = new WeakMap<Lab, ReturnType<typeof measure>>()
  const row = (of: keyof Found, what: string, unit: string): Row => ({
    name: names[of],
    what: `${count.toLocaleString('en')} streams, an event a second each: ${what}`,
    unit,
    ...(goals[of] !== undefined && { goal: { of: 'value', atMost: goals[of] } }),
    reference: 'bare relay',
    once: true,
    async prepare(lab) {
      return async (): Promise<Sample> => {
        const found = measured.get(lab) ?? measure(lab, count)
        measured.set(lab, found)
        const { service, bare } = await found
        return { value: service[of], reference: bare[of] }
      }
    },
  })
  return [row('delivery', 'delivery', 'ms, p99'), row('memory', 'memory for each', 'KB')]
}

/** Each stream takes two sockets of the server: its client's and its model's. */
const hasDescriptorsFor = (count: number): boolean => {
  const { userLimits } = process.report.getReport() as { userLimits?: { open_files: { soft: number | 'unlimited' } } }
  const files = userLimits?.open_files.soft
  return files === undefined || files === 'unlimited' || files > 2 * count + 500
}

const THOUSAND = { delivery: 'streams-1000', memory: 'streams-memory' }
const THREE_THOUSAND = { delivery: 'streams-3000', memory: 'streams-3000-memory' }

/** The larger ones run only if the limit of open files (`ulimit -n`) allows it. */
export const manyStreamRows: Row[] = [
  ...rowsOf(1_000, THOUSAND, { delivery: 250, memory: 40 }),
  ...(hasDescriptorsFor(3_000) ? rowsOf(3_000, THREE_THOUSAND, { memory: 40 }) : []),
]
