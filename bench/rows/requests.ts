import { call, type Lab, type Service } from '../lab.ts'
import { load, type Target } from '../load.ts'
import type { Program } from '../processes.ts'
import type { Row } from './row.ts'

const AGENT = {
  name: 'Ada',
  role: 'Librarian',
  systemPrompt: 'You are a helpful librarian. You know every book in the house and answer in a few short sentences.',
  description: 'Finds what you look for, and what you did not know you were looking for',
  tags: ['books', 'search'],
}
const AGENTS = 10
const MESSAGE = 'Where is the atlas?'

type Name = 'list' | 'get' | 'create' | 'execute'
type Workloads = Record<Name, Omit<Target, 'program'>>

/** Creates ten agents. Returns the requests to the service. */
export async function populate(service: Service): Promise<Workloads> {
  let id = ''
  for (let count = 0; count < AGENTS; count++)
    ({ id } = await call<{ id: string }>(service, 'POST', '/api/v1/agents', AGENT))
  const { headers } = service
  // Private agents are not listed, so the list stays at ten.
  const body = { ...AGENT, visibility: 'private' }
  return {
    list: { path: '/api/v1/agents', headers },
    get: { path: `/api/v1/agents/${id}`, headers },
    create: { path: '/api/v1/agents', method: 'POST', headers, body },
    execute: {
      path: `/api/v1/agents/${id}/execute`,
      method: 'POST',
      headers,
      body: { message: MESSAGE },
    },
  }
}

type Pair = { service: Service; bare: Program; workloads: Workloads }

const pairs = new WeakMap<Lab, Promise<Pair>>()

/** The service and the bare server of this file's rows. */
function pairOf(lab: Lab): Promise<Pair> {
  const made = pairs.get(lab) ?? makePair(lab)
  pairs.set(lab, made)
  return made
}

async function makePair(lab: Lab): Promise<Pair> {
  const [service, bare] = await Promise.all([lab.service(lab.folder()), lab.bare()])
  return { service, bare, workloads: await populate(service) }
}

function requestRow(name: Name, what: string, goal?: NonNullable<Row['goal']>): Row {
  return {
    name,
    what,
    unit: 'requests/s',
    reference: 'bare node:http',
    ...(goal && { goal }),
    async prepare(lab) {
      const { service, bare, workloads } = await pairOf(lab)
      const workload = workloads[name]
      const { method = 'GET', path, body } = workload
      const answer = await call(service, method, path, body)
      await call({ url: bare.url, headers: service.headers }, 'PUT', `/${name}`, answer)
      return async ({ seconds }) => {
        const theirs = await load({ ...workload, program: bare, path: `/${name}` }, seconds)
        const ours = await load({ ...workload, program: service }, seconds)
        return { value: ours.rate, reference: theirs.rate, cpu: [ours.cpu, theirs.cpu] }
      }
    },
  }
}

/** Measures the processor time of a run that is started through a door, beside the same run over REST. */
function doorRow(name: string, what: string, requestOf: (agent: string) => Omit<Target, 'program'>): Row {
  return {
    name,
    what,
    unit: 'µs of CPU',
    reference: 'execute over REST',
    goal: { of: 'ratio', atMost: 1.1 },
    async prepare(lab) {
      const { service, workloads } = await pairOf(lab)
      const { execute } = workloads
      const asked = requestOf(execute.path.split('/')[4] ?? '')
      const door = { ...execute, ...asked, headers: { ...execute.headers, ...asked.headers } }
      await call({ ...service, headers: door.headers }, 'POST', door.path, door.body)
      return async ({ seconds }) => {
        // The database grows meanwhile, so the reference is measured before and after.
        const before = await load({ ...execute, program: service }, seconds)
        const ours = await load({ ...door, program: service }, seconds)
        const after = await load({ ...execute, program: service }, seconds)
        if (ours.cpu === null || before.cpu === null || after.cpu === null) {
          throw new Error('The processor time of a process is unknown here')
        }
        const theirs = (before.cpu + after.cpu) / 2
        return { value: ours.cpu, reference: theirs, cpu: [ours.cpu, theirs] }
      }
    },
  }
}

const chatCompletions = doorRow('chat-completions', 'chat completion, offline model', (model) => ({
  path: '/openai/v1/chat/completions',
  body: { model, messages: [{ role: 'user', content: MESSAGE }] },
}))

/** Returns a call of the tool `run_agent`, by a client without questions and tasks. */
export const runAgentRequest = (id: string): Omit<Target, 'program'> => ({
  path: '/mcp',
  method: 'POST',
  headers: {
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/call',
    'mcp-name': 'run_agent',
  },
  body: {
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: {
      name: 'run_agent',
      arguments: { id, message: MESSAGE },
      _meta: {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientCapabilities': {},
      },
    },
  },
})

const runAgent = doorRow('mcp-run-agent', 'run_agent over MCP, offline model', runAgentRequest)

/** Signs an admin in, as a browser does. Returns the headers of its requests. */
async function signIn(service: Service): Promise<Record<string, string>> {
  type Profile = { profile: { organization: { id: string } } }
  const { profile } = await call<Profile>(service, 'GET', '/api/v1/profile')
  const path = `/api/v1/organizations/${profile.organization.id}/invitations`
  const email = `${crypto.randomUUID()}@example.com`
  const { url } = await call<{ url: string }>(service, 'POST', path, { email, role: 'admin' })
  const response = await fetch(`${service.url}/api/auth/accept`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-Muster-Request': '1', Origin: service.url },
    body: JSON.stringify({ code: url.split('#')[1], name: 'Ada' }),
  })
  const [cookie = ''] = response.headers.getSetCookie()
  return { Cookie: cookie.split(';', 1)[0]! }
}

/** Measures a request with the cookie of a browser beside the same with a token. */
function cookieRow(name: 'list' | 'get', what: string): Row {
  return {
    name: `${name}-cookie`,
    what: `${what}, by cookie`,
    unit: 'requests/s',
    reference: 'by token',
    goal: { of: 'ratio', atLeast: 0.9 },
    async prepare(lab) {
      const { service, workloads } = await pairOf(lab)
      const byToken = { ...workloads[name], program: service }
      const byCookie = { ...byToken, headers: await signIn(service) }
      return async ({ seconds }) => {
        const theirs = await load(byToken, seconds)
        const ours = await load(byCookie, seconds)
        return { value: ours.rate, reference: theirs.rate, cpu: [ours.cpu, theirs.cpu] }
      }
    },
  }
}

export const requestRows: Row[] = [
  requestRow('get', 'get an agent', { of: 'ratio', atLeast: 0.36 }),
  requestRow('list', 'list 10 agents', { of: 'ratio', atLeast: 0.3 }),
  cookieRow('get', 'get an agent'),
  cookieRow('list', 'list 10 agents'),
  requestRow('create', 'create an agent'),
  requestRow('execute', 'execute, offline model'),
  chatCompletions,
  runAgent,
]
