import { setTimeout as sleep } from 'node:timers/promises'
import { call, type Lab, type Service } from '../lab.ts'
import { load } from '../load.ts'
import { memoryOf, type Program } from '../processes.ts'
import { readStream } from '../sse.ts'
import { populate } from './requests.ts'
import type { Row } from './row.ts'

/** A folder with the database of a stopped service that was used a little, with the parts of requests. */
async function usedBefore(lab: Lab) {
  const folder = lab.folder()
  const service = await lab.service(folder)
  const workloads = await populate(service)
  for (let count = 0; count < 10; count++) await call(service, 'POST', workloads.execute.path, workloads.execute.body)
  await service.stop()
  return { folder, workloads }
}

/** Time from the start of a process to its first answer (ms). */
async function timeToAnswer<P extends Program>(start: () => Promise<P>, ask: (program: P) => Promise<unknown>) {
  const started = performance.now()
  const program = await start()
  await ask(program)
  const ms = performance.now() - started
  await program.stop()
  return ms
}

const start: Row = {
  name: 'start',
  what: 'start to first answer, existing data',
  unit: 'ms',
  reference: 'bare node:http',
  goal: { of: 'value', atMost: 550 },
  async prepare(lab) {
    const { folder, workloads } = await usedBefore(lab)
    return async () => ({
      reference: await timeToAnswer(
        () => lab.bare(),
        ({ url }) => fetch(url),
      ),
      value: await timeToAnswer(
        () => lab.service(folder),
        (service) => call(service, 'GET', workloads.list.path),
      ),
    })
  },
}

/** One call over REST, one over GraphQL and one stream load everything that is loaded on first use. */
async function touch(service: Service, execute: string): Promise<void> {
  await call(service, 'GET', '/api/v1/agents')
  await call(service, 'POST', '/graphql', { query: '{ __typename }' })
  const body = { message: 'Hello', stream: true }
  await readStream({ url: service.url + execute, headers: service.headers, body, marker: '"text_delta"' })
}

const SETTLE = 2_000

function memoryRow(name: string, what: string, loaded: boolean, goal?: NonNullable<Row['goal']>): Row {
  return {
    name,
    what,
    unit: 'MiB',
    reference: 'bare node:http',
    ...(goal && { goal }),
    async prepare(lab) {
      const { folder, workloads } = await usedBefore(lab)
      return async ({ seconds }) => {
        const [service, bare] = await Promise.all([lab.service(folder), lab.bare()])
        await touch(service, workloads.execute.path)
        await fetch(bare.url)
        if (loaded) {
          await load({ ...workloads.list, program: bare, path: '/' }, seconds)
          for (const workload of [workloads.list, workloads.execute]) {
            await load({ ...workload, program: service }, seconds)
          }
        }
        await sleep(SETTLE)
        const sample = { value: memoryOf(service.pid), reference: memoryOf(bare.pid) }
        await Promise.all([service.stop(), bare.stop()])
        return { value: sample.value ?? Number.NaN, reference: sample.reference ?? Number.NaN }
      }
    },
  }
}

export const processRows: Row[] = [
  start,
  memoryRow('memory', 'memory (RSS), idle', false, { of: 'value', atMost: 150 }),
  memoryRow('memory-load', 'memory (RSS), after load', true, { of: 'value', atMost: 260 }),
]
