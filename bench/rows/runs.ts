import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { call, type Lab } from '../lab.ts'
import { load } from '../load.ts'
import { median } from '../numbers.ts'
import { runToEnd } from '../processes.ts'
import { readStream, type StreamTarget } from '../sse.ts'
import type { Row } from './row.ts'

const MESSAGE = 'Where is the atlas?'

/** A service with one agent on the scripted model, the model itself, and a bare server before it. */
export async function conversation(lab: Lab, tokens: number, delay: number, settings: Record<string, string> = {}) {
  const model = await lab.model(tokens, delay)
  const folder = lab.folder()
  const env = { OPENAI_BASE_URL: model.url, ...settings }
  const [service, bare] = await Promise.all([lab.service(folder, { env }), lab.bare(model.url)])
  const agent = { name: 'Ada', systemPrompt: 'You are a helpful librarian.', model: 'compatible/test-model' }
  const { id } = await call<{ id: string }>(service, 'POST', '/api/v1/agents', agent)
  const path = `/api/v1/agents/${id}/execute`
  const messages = [
    { role: 'system', content: agent.systemPrompt },
    { role: 'user', content: MESSAGE },
  ]
  const question = {
    headers: { 'content-type': 'application/json' },
    body: { model: 'test-model', stream: true, messages },
    marker: '"content":"token',
  }
  const ours: StreamTarget = {
    url: service.url + path,
    headers: service.headers,
    body: { message: MESSAGE, stream: true },
    marker: '"text_delta"',
  }
  return {
    folder,
    service,
    bare,
    path,
    ours,
    direct: { ...question, url: `${model.url}/chat/completions` },
    relayed: { ...question, url: `${bare.url}/relay` },
  }
}

const runs: Row = {
  name: 'runs',
  what: 'runs, conversation stored',
  unit: 'runs/s',
  reference: 'node:http + 2 inserts',
  goal: { of: 'value', atLeast: 500 },
  async prepare(lab) {
    const { service, bare, path } = await conversation(lab, 20, 0)
    const work = { method: 'POST', headers: service.headers, body: { message: MESSAGE } } as const
    // The first run loads the same code as the others.
    await call(service, 'POST', path, { message: MESSAGE })
    return async ({ seconds }) => {
      const theirs = await load({ ...work, program: bare, path: '/store' }, seconds)
      const ours = await load({ ...work, program: service, path }, seconds)
      return { value: ours.rate, reference: theirs.rate, cpu: [ours.cpu, theirs.cpu] }
    }
  },
}

/** Delay of the first token by the service compared with the model itself (ms), for a number of sequential pairs. */
async function measureFirst({ ours, direct }: { ours: StreamTarget; direct: StreamTarget }, repeats: number) {
  const [more, theirs]: [number[], number[]] = [[], []]
  for (let pair = 0; pair < repeats; pair++) {
    const { first } = await readStream(direct)
    more.push((await readStream(ours)).first - first)
    theirs.push(first)
  }
  return { value: median(more), reference: median(theirs) }
}

/** Time of runs before the first tokens of a service are measured (s), the same for all contenders. */
const WARM_UP = 4
/** Time of runs before each further measurement (s), because other rows have used the machine meanwhile. */
const AGAIN = 1
/** Idle time of a service (ms). */
const PAUSE = 10_000

/** Two measurements that differ only in the service's work just before. */
const warmFirst = (
  what: Pick<Row, 'name' | 'what' | 'goal'>,
  before: (busy: () => Promise<unknown>) => unknown,
): Row => ({
  ...what,
  unit: 'ms',
  reference: 'the model itself',
  async prepare(lab) {
    const { service, path, ...targets } = await conversation(lab, 20, 0)
    const work = {
      program: service,
      path,
      method: 'POST',
      headers: service.headers,
      body: { message: MESSAGE },
    } as const
    await load(work, WARM_UP)
    return async ({ repeats }) => {
      await before(() => load(work, AGAIN))
      return measureFirst(targets, repeats)
    }
  },
})

const firstToken = warmFirst(
  { name: 'first-token', what: 'time to first token, more than direct', goal: { of: 'value', atMost: 2 } },
  (busy) => busy(),
)

const firstAfterPause = warmFirst({ name: 'first-token-idle', what: `the same, after ${PAUSE / 1000} s idle` }, () =>
  sleep(PAUSE),
)

const firstOfAll: Row = {
  name: 'first-token-cold',
  what: 'the same, the first of a new process',
  unit: 'ms',
  reference: 'the model itself',
  once: true,
  async prepare(lab) {
    const targets = await conversation(lab, 20, 0)
    return ({ repeats }) => measureFirst(targets, repeats)
  },
}

const READER = fileURLToPath(import.meta.resolve('../streams.ts'))
const STREAMS = 200
export const TOKENS = 100
export const DELAY = 20

/** Tokens per second over all streams, from the first request to the end of the last, read in a separate process. */
export async function readTogether(target: StreamTarget): Promise<number> {
  const input = JSON.stringify({ target, count: STREAMS })
  const { tokens, ms } = (await runToEnd([READER, input], 180_000)) as { tokens: number; ms: number }
  if (tokens !== STREAMS * TOKENS) throw new Error(`${target.url}: ${tokens} tokens instead of ${STREAMS * TOKENS}`)
  return tokens / (ms / 1000)
}

/** Number of warm-up rounds with as many streams, after which V8 has compiled their code. */
const BURSTS = 4

const measureStreams = async ({ ours, relayed }: Awaited<ReturnType<typeof conversation>>) => {
  const reference = await readTogether(relayed)
  return { value: await readTogether(ours), reference }
}

const streams: Row = {
  name: 'streams',
  what: `${STREAMS} streams of ${TOKENS} tokens at ${DELAY} ms`,
  unit: 'tokens/s',
  reference: 'bare relay',
  goal: { of: 'ratio', atLeast: 0.97 },
  async prepare(lab) {
    const targets = await conversation(lab, TOKENS, DELAY)
    for (let burst = 0; burst < BURSTS; burst++) await measureStreams(targets)
    return () => measureStreams(targets)
  },
}

const firstStreams: Row = {
  name: 'streams-cold',
  what: 'the same, the first of a new process',
  unit: 'tokens/s',
  reference: 'bare relay',
  async prepare(lab) {
    return async () => {
      const targets = await conversation(lab, TOKENS, DELAY)
      const sample = await measureStreams(targets)
      await Promise.all([targets.service.stop(), targets.bare.stop()])
      return sample
    }
  },
}

export const runRows: Row[] = [runs, firstToken, firstAfterPause, firstOfAll, streams, firstStreams]
