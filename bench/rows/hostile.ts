import { hostile } from '../../test/graphql/hostile.ts'
import type { Service } from '../lab.ts'
import { cpuTimeOf } from '../processes.ts'
import type { Row } from './row.ts'

/** Processor time is told in steps of 10 ms. */
const REQUESTS = 300

/** Processor time of the server (µs) for each of many requests, one after the other, once it knows them. */
async function costOf({ url, pid, headers }: Service, body: string): Promise<number> {
  async function ask() {
    for (let count = 0; count < REQUESTS; count++) {
      const signal = AbortSignal.timeout(10_000)
      await (await fetch(`${url}/graphql`, { method: 'POST', headers, body, signal })).text()
    }
    return cpuTimeOf(pid)
  }
  const before = await ask()
  const after = await ask()
  if (before === null || after === null) throw new Error('The processor time of a process is known on Linux only')
  return ((after - before) * 1000) / REQUESTS
}

const refusal: Row = {
  name: 'hostile',
  what: `GraphQL: the dearest of ${Object.keys(hostile).length} hostile documents to refuse`,
  unit: 'µs of CPU',
  reference: '{ __typename } as long',
  goal: { of: 'ratio', atMost: 5 },
  once: true,
  async prepare(lab) {
    return async () => {
      const service = await lab.service(lab.folder())
      const samples = []
      for (const query of Object.values(hostile)) {
        const value = await costOf(service, JSON.stringify({ query }))
        const asLong = { query: '{ __typename }', operationName: null, extensions: { padding: query } }
        samples.push({ value, reference: await costOf(service, JSON.stringify(asLong)) })
      }
      await service.stop()
      const [dearest] = samples.sort((a, b) => b.value / b.reference - a.value / a.reference)
      return dearest!
    }
  },
}

export const hostileRows: Row[] = [refusal]
