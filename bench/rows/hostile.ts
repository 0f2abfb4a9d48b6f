import { hostile } from '../../test/graphql/hostile.ts'
import type { Service } from '../lab.ts'
import { cpuTimeOf } from '../processes.ts'
import type { Row } from './row.ts'

/** Processor time has steps of 10 ms. */
const REQUESTS = 300

/** Processor time of the server for each of many sequential requests after a warm-up (µs). */
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
  what: `GraphQL: the most expensive of ${Object.keys(hostile).length} hostile documents to refuse`,
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

const AGENTS = 1000
const times = (count: number, field: string) => Array.from({ length: count }, (_, i) => `a${i}: ${field}`).join(' ')

/** The most expensive accepted documents: many lists, many lookups, many values. */
const dearest = [
  `{ agents(first: 130) { nodes { ${times(30, 'executions(first: 1) { totalCount }')} } } }`,
  `{ agents(first: 1000) { nodes { ${times(30, 'user { id }')} id name role model createdAt } } }`,
  `{ agents(first: 1000) { nodes { ${times(24, 'skillIds')} } } }`,
]

const admitted: Row = {
  name: 'admitted',
  what: `GraphQL: the most expensive of ${dearest.length} documents just below the limit`,
  unit: 'ms',
  reference: '{ agents(first: 1000) { nodes { id name } } }',
  once: true,
  async prepare(lab) {
    return async () => {
      const service = await lab.service(lab.folder())
      const ask = async (path: string, body: object): Promise<string> => {
        const init = { method: 'POST', headers: service.headers, body: JSON.stringify(body) }
        return (await fetch(service.url + path, { ...init, signal: AbortSignal.timeout(60_000) })).text()
      }
      for (let i = 0; i < AGENTS; i++) {
        const answer = await ask('/api/v1/agents', { name: `A${i}`, systemPrompt: 'p' })
        if (answer.includes('"error"')) throw new Error(answer)
      }
      const took = async (query: string): Promise<number> => {
        let best = Number.POSITIVE_INFINITY
        for (let i = 0; i < 3; i++) {
          const began = performance.now()
          const answer = await ask('/graphql', { query })
          if (answer.includes('"errors"')) throw new Error(answer.slice(0, 500))
          best = Math.min(best, performance.now() - began)
        }
        return best
      }
      const times = []
      for (const query of dearest) times.push(await took(query))
      const reference = await took('{ agents(first: 1000) { nodes { id name } } }')
      await service.stop()
      return { value: Math.max(...times), reference }
    }
  },
}

export const hostileRows: Row[] = [refusal, admitted]
