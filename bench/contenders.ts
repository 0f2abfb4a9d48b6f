import { execFile } from 'node:child_process'
import { cpSync, readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { call, type Lab } from './lab.ts'
import type { Target } from './load.ts'
import { type Program, start } from './processes.ts'
import type { StreamTarget } from './sse.ts'

export const MESSAGE = 'Where is the atlas?'
const SYSTEM = 'You are a helpful librarian.'

export type Workload = Omit<Target, 'program'>

/** A server to compare: ten agents on the bench's model, and its requests. */
export type Contender = {
  name: string
  version: string
  /** Has two instances, so that two can run beside each other. */
  start: (model: string, place: Place) => Promise<Program>
  /** Returns the requests of a running server. */
  requests: (server: Program) => Promise<Requests>
}

type Place = 'first' | 'second'
type Requests = Record<'list' | 'get' | 'run', Workload> & {
  stream: Omit<StreamTarget, 'url'> & { path: string }
  /** Further requests, sent once before memory is measured. */
  also?: Workload
}

export const JSON_HEADERS = { 'content-type': 'application/json' }

/** Node's part of every server's environment, without any telemetry collector. */
const QUIET = { HOME: process.env.HOME ?? '', MASTRA_TELEMETRY_DISABLED: '1', LANGSMITH_TRACING: 'false' }

export function bare(lab: Lab): Contender {
  const paths = (name: string): Workload => ({ path: `/${name}`, headers: JSON_HEADERS })
  const messages = [
    { role: 'system', content: SYSTEM },
    { role: 'user', content: MESSAGE },
  ]
  return {
    name: 'bare node:http',
    version: process.version,
    start: (model) => lab.bare(model),
    async requests({ url }) {
      const agents = Array.from({ length: 10 }, (_, id) => ({ id, name: 'Ada', systemPrompt: SYSTEM, tools: [] }))
      const server = { url, headers: JSON_HEADERS }
      await call(server, 'PUT', '/list', { success: true, agents })
      await call(server, 'PUT', '/get', { success: true, agent: agents[0] })
      return {
        list: paths('list'),
        get: paths('get'),
        run: { ...paths('store'), method: 'POST', body: { message: MESSAGE } },
        stream: {
          path: '/relay',
          headers: JSON_HEADERS,
          body: { model: 'test-model', stream: true, messages },
          marker: '"content":"token',
        },
      }
    },
  }
}

export function muster(lab: Lab, version: string): Contender {
  const folders = { first: lab.folder(), second: lab.folder() }
  let headers: Record<string, string> = {}
  return {
    name: 'Muster',
    version,
    async start(model, place) {
      const service = await lab.service(folders[place], { env: { OPENAI_BASE_URL: model } })
      headers = service.headers
      return service
    },
    async requests({ url }) {
      const agent = { name: 'Ada', systemPrompt: SYSTEM, model: 'compatible/test-model' }
      const server = { url, headers }
      const list = () => call<{ agents: { id: string }[] }>(server, 'GET', '/api/v1/agents')
      for (let { length } = (await list()).agents; length < 10; length++) {
        await call(server, 'POST', '/api/v1/agents', agent)
      }
      const { id } = (await list()).agents[0]!
      const run = { path: `/api/v1/agents/${id}/execute`, headers }
      return {
        list: { path: '/api/v1/agents', headers },
        get: { path: `/api/v1/agents/${id}`, headers },
        run: { ...run, method: 'POST', body: { message: MESSAGE } },
        stream: { ...run, body: { message: MESSAGE, stream: true }, marker: '"text_delta"' },
        also: { path: '/graphql', method: 'POST', headers, body: { query: '{ __typename }' } },
      }
    },
  }
}

const PEERS = join(import.meta.dirname, 'peers')
const npm = (args: string[], cwd: string) =>
  promisify(execFile)('npm', args, { cwd, timeout: 10 * 60_000, maxBuffer: 64 * 1024 * 1024, env: nodeFirst() })

/** The peers run on the Node of this process. */
const nodeFirst = () => ({ ...process.env, ...QUIET, PATH: `${dirname(process.execPath)}:${process.env.PATH}` })

const freePort = () =>
  new Promise<number>((resolve, reject) => {
    const server = createServer().once('error', reject)
    server.listen(0, () => {
      const { port } = server.address() as { port: number }
      server.close(() => resolve(port))
    })
  })

type Peer = {
  name: string
  folder: string
  /** The package whose version is shown. */
  of: string
  build?: string[]
  args: (port: number) => string[]
  host: string
  requests: Contender['requests']
}

const post = (path: string, body: unknown): Workload => ({ path, method: 'POST', headers: JSON_HEADERS, body })

const MASTRA: Peer = {
  name: 'Mastra',
  folder: 'mastra',
  of: '@mastra/core',
  build: ['exec', '--', 'mastra', 'build'],
  args: () => ['.mastra/output/index.mjs'],
  host: 'localhost',
  async requests() {
    const messages = [{ role: 'user', content: MESSAGE }]
    const body = { messages, memory: { thread: '[<id>]', resource: 'bench' } }
    return {
      list: { path: '/api/agents' },
      get: { path: '/api/agents/ada3' },
      run: post('/api/agents/ada3/generate', body),
      stream: { path: '/api/agents/ada3/stream', headers: JSON_HEADERS, body, marker: '"type":"text-delta"' },
    }
  },
}

const VOLTAGENT: Peer = {
  name: 'VoltAgent',
  folder: 'voltagent',
  of: '@voltagent/core',
  args: () => ['index.js'],
  host: 'localhost',
  async requests() {
    const body = { input: MESSAGE, options: { userId: 'bench', conversationId: '[<id>]' } }
    return {
      list: { path: '/agents' },
      get: { path: '/agents/ada3' },
      run: post('/agents/ada3/text', body),
      stream: { path: '/agents/ada3/stream', headers: JSON_HEADERS, body, marker: '"type":"text-delta"' },
    }
  },
}

const LANGGRAPH: Peer = {
  name: 'LangGraph JS',
  folder: 'langgraph',
  of: '@langchain/langgraph',
  args: (port) => [
    'node_modules/@langchain/langgraph-cli/dist/cli/cli.mjs',
    ...['dev', '--no-browser', '--host', '127.0.0.1', '--port', String(port)],
  ],
  host: '127.0.0.1',
  async requests({ url }) {
    const server = { url, headers: JSON_HEADERS }
    const [assistant] = await call<{ assistant_id: string }[]>(server, 'POST', '/assistants/search', { limit: 10 })
    // Creates a thread for each run, and stores it.
    const input = { messages: [{ role: 'human', content: MESSAGE }] }
    const body = { assistant_id: assistant!.assistant_id, on_completion: 'keep', input }
    return {
      list: post('/assistants/search', { limit: 10 }),
      get: { path: `/assistants/${assistant!.assistant_id}` },
      run: post('/runs/wait', body),
      stream: {
        path: '/runs/stream',
        headers: JSON_HEADERS,
        body: { ...body, stream_mode: ['messages-tuple'] },
        marker: '"content":"token',
      },
    }
  },
}

/**
 * The peers by name, each with the package.json that installs it into its own folder. LangGraph's `dev` server cannot
 * use PostgreSQL.
 */
export const peers = (lab: Lab, onPostgresql: boolean) =>
  [MASTRA, VOLTAGENT, ...(onPostgresql ? [] : [LANGGRAPH])].map((peer) => ({
    name: peer.name,
    make: () => install(lab, peer),
  }))

async function install(lab: Lab, peer: Peer): Promise<Contender> {
  const folder = lab.folder()
  cpSync(join(PEERS, peer.folder), folder, { recursive: true })
  await npm(['install', '--ignore-scripts', '--no-audit', '--no-fund'], folder)
  if (peer.build) await npm(peer.build, folder)
  const folders = { first: lab.folder(), second: lab.folder() }
  const { dependencies } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  return {
    name: peer.name,
    version: dependencies[peer.of],
    async start(model, place) {
      const port = await freePort()
      const database = await lab.databaseUrl(folders[place])
      const env = {
        ...QUIET,
        NODE_ENV: 'production',
        BENCH_FOLDER: folders[place],
        OPENAI_BASE_URL: model,
        PORT: String(port),
        ...(database !== null && { DATABASE_URL: database }),
      }
      const address = `http://${peer.host}:${port}`
      return start(peer.args(port), address, { cwd: folder, env, patience: 60_000 })
    },
    requests: peer.requests,
  }
}
