import { availableParallelism, cpus } from 'node:os'
import { call, type Lab, type Service } from '../lab.ts'
import { load } from '../load.ts'
import type { Effort, Row, Sample } from './row.ts'

const MESSAGE = 'Where is the atlas?'
/** Two servers, their PostgreSQL, the model, and two load generators: with fewer cores the machine is the limit. */
const CORES = 6

type Found = { rate: number; cpu: number | null; busy: number }
type Measured = { two: Found; one: Found }

/** Runs per second over all servers, processor time of a server per run (µs), and the share of all cores in use (%). */
async function loadAll(services: Service[], path: string, seconds: number): Promise<Found> {
  const work = { method: 'POST', path, body: { message: MESSAGE } } as const
  const before = cpuTimes()
  const loads = await Promise.all(
    services.map((program) => load({ ...work, program, headers: program.headers }, seconds)),
  )
  const after = cpuTimes()
  return {
    rate: loads.reduce((sum, { rate }) => sum + rate, 0),
    cpu: loads[0]!.cpu,
    busy: 100 - (100 * (after.idle - before.idle)) / (after.all - before.all),
  }
}

function cpuTimes(): { idle: number; all: number } {
  const times = cpus().map(({ times }) => times)
  const idle = times.reduce((sum, time) => sum + time.idle, 0)
  return { idle, all: times.flatMap((time) => Object.values(time)).reduce((sum, time) => sum + time, 0) }
}

/** Loads one server fully, then two of them on the same database, each with the same load. */
async function prepare(lab: Lab): Promise<(effort: Effort) => Promise<Measured>> {
  const model = await lab.model(20, 0)
  const folder = lab.folder()
  const options = { env: { OPENAI_BASE_URL: model.url } }
  const first = await lab.service(folder, options)
  const second = await lab.service(folder, options)
  const agent = { name: 'Ada', systemPrompt: 'You are a helpful librarian.', model: 'compatible/test-model' }
  const { id } = await call<{ id: string }>(first, 'POST', '/api/v1/agents', agent)
  const path = `/api/v1/agents/${id}/execute`
  for (const service of [first, second]) await call(service, 'POST', path, { message: MESSAGE })
  return async ({ seconds }) => ({
    one: await loadAll([first], path, seconds),
    two: await loadAll([first, second], path, seconds),
  })
}

let latest: Promise<Measured> | undefined

const twoServers: Row = {
  name: 'two-servers',
  what: 'runs of two servers, conversation stored',
  unit: 'runs/s',
  reference: 'of one server',
  ...(availableParallelism() >= CORES && { goal: { of: 'ratio', atLeast: 1.6 } as const }),
  async prepare(lab) {
    const measure = await prepare(lab)
    return async (effort): Promise<Sample> => {
      latest = measure(effort)
      const { two, one } = await latest
      return { value: two.rate, reference: one.rate, cpu: [two.cpu, one.cpu] }
    }
  },
}

/** For the same requests, measured just before. */
const busy: Row = {
  name: 'two-servers-busy',
  what: 'share of all cores in use meanwhile',
  unit: '%',
  reference: 'with one server',
  prepare: async () => async () => {
    if (!latest) throw new Error('It is told of two-servers: name that, too')
    const { two, one } = await latest
    return { value: two.busy, reference: one.busy }
  },
}

export const twoServerRows: Row[] = [twoServers, busy]
