import type { Filled } from './filled.ts'
import { call } from './lab.ts'

type Caller = { url: string; headers: Record<string, string> }

/** Returns a request to a service as its member; `n` differs each time. */
export type Ask = (filled: Filled, n: number) => Promise<unknown>

const PAGE = 'limit=100'

const as = ({ service, ...headers }: Filled, who: 'owner' | 'member'): Caller => ({
  url: service.url,
  headers: headers[who],
})

const get =
  (path: string | ((filled: Filled) => string), who: 'owner' | 'member' = 'owner'): Ask =>
  (filled) => {
    const address = typeof path === 'string' ? path : path(filled)
    return call(as(filled, who), 'GET', `/api/${address.startsWith('usage') ? '' : 'v1/'}${address}`)
  }

/** Every list of REST with every filter, and other reads among many rows. */
function reads(): Map<string, Ask> {
  const asked = new Map<string, Ask>()
  const list = (path: string, prefix: string, ...filters: string[]) => {
    asked.set(path, get(`${path}?${PAGE}`))
    asked.set(`${path}, a member`, get(`${path}?${PAGE}`, 'member'))
    asked.set(
      `${path}, from the middle`,
      get(({ cursor }) => `${path}?${PAGE}&cursor=${cursor(prefix)}`),
    )
    for (const filter of filters) asked.set(`${path}?${filter}`, get(`${path}?${PAGE}&${filter}`))
  }
  /** A filter with a different value per service. */
  const filtered = (path: string, name: string, filter: (filled: Filled) => string) =>
    asked.set(
      `${path}?${name}`,
      get((filled) => `${path}?${PAGE}&${filter(filled)}`),
    )
  const inSpace = ({ spaceId }: Filled) => `spaceId=${spaceId}`
  const searches = ['librarian', 'agent+7+lib', 'nobody'].map((text) => `search=${text}`)
  const ofAgents = ['owner=me', 'visibility=public', 'tag=rare', 'tag=common', ...searches]
  list('agents', 'agent', ...ofAgents)
  list('public/agents', 'agent', 'tag=rare', 'search=nobody')
  for (const part of ['', '/versions']) asked.set(`agents/{id}${part}`, get(`agents/agent-7${part}`))
  const assigned = ['assignedTo=agent-1', 'assignedTo=me', 'assignedTo=none']
  list('tasks', 'task', 'status=pending', 'priority=high', ...assigned, 'count=true', 'status=pending&count=true')
  filtered('tasks', 'assignedTo&status', ({ userId }) => `assignedTo=${userId}&status=pending`)
  filtered('tasks', 'spaceId', inSpace)
  asked.set('tasks/{id}', get('tasks/task-7'))
  list('executions', 'exec', 'agentId=agent-1', 'status=failed', 'status=running', 'chatId=chat-7', 'taskId=task-1')
  for (const filter of [
    'missionId=mission-1',
    'count=true',
    'agentId=agent-1&status=failed',
    'agentId=agent-1&status=running',
  ]) {
    asked.set(`executions?${filter}`, get(`executions?${PAGE}&${filter}`))
  }
  filtered('executions', 'spaceId', inSpace)
  filtered('executions', 'since', () => `since=${new Date(Date.now() - 2 * 86_400_000).toISOString()}`)
  for (const part of ['', '/tree', '/logs']) asked.set(`executions/{id}${part}`, get(`executions/exec-7${part}`))
  list('spaces', 'space')
  asked.set(
    'spaces/{id}',
    get(({ spaceId }) => `spaces/${spaceId}`),
  )
  list('chats', 'chat', 'agentId=agent-1', 'status=error', 'status=working', 'mission=true', 'count=true')
  filtered('chats', 'spaceId', inSpace)
  asked.set('chats/{id}', get('chats/chat-7'))
  for (const part of ['', `/messages?${PAGE}`]) {
    asked.set(
      `chats/{id}${part && '/messages'}, a long one`,
      get(({ longChatId }) => `chats/${longChatId}${part}`),
    )
  }
  list('missions', 'mission', 'status=pending', 'status=running')
  asked.set('missions/{id}', get('missions/mission-7'))
  asked.set('missions/{id}/runs', get(`missions/mission-1/runs?${PAGE}`))
  list('skills', 'skill')
  list('mcps', 'mcp')
  list('media', 'media')
  list('keys', 'token')
  list('approvals', 'approval', 'status=pending', 'status=denied')
  for (const period of ['daily', 'weekly', 'monthly']) {
    asked.set(
      `usage?period=${period}`,
      get(({ organizationId }) => `usage/organization/${organizationId}?period=${period}`),
    )
  }
  return asked
}

const FIRST = '(first: 5) { nodes { id } }'

/** Related rows of the rows of each list of GraphQL. */
const HANGING: Readonly<Record<string, readonly string[]>> = {
  agents: [
    'user { name }',
    'skills { id }',
    'versions(first: 5) { nodes { version } }',
    'executions { totalCount }',
  ].concat(['chats', 'executions', 'missions', 'tasks'].map((list) => list + FIRST)),
  chats: ['agent { name }', 'mission { title }', 'messageCount', 'messages { totalCount }'].concat(
    ['executions', 'messages'].map((list) => list + FIRST),
  ),
  executions: ['agent { name }', 'chat { title }', 'mission { title }', 'space { name }', 'task { title }'].concat(
    ['approvals', 'children'].map((list) => list + FIRST),
  ),
  missions: ['agent { name }', 'space { name }', `runs${FIRST}`],
  spaces: ['agentRefs { agentId }', 'secretKeys', 'chats { totalCount }'].concat(
    ['chats', 'executions', 'missions', 'tasks'].map((list) => list + FIRST),
  ),
  tasks: ['assignedAgent { name }', 'space { name }', `executions${FIRST}`],
  approvals: ['chat { title }', 'execution { status }'],
}

/** Every list of GraphQL with the related rows of its first twenty rows. */
function hanging(): Map<string, Ask> {
  const asked = new Map<string, Ask>()
  for (const [list, fields] of Object.entries(HANGING)) {
    for (const field of ['', ...fields]) {
      const query = `{ ${list}(first: 20) { nodes { id ${field} } } }`
      asked.set(`{ ${list} { ${field.replace(/\(first.*/, '') || 'id'} } }`, async (filled) => {
        const { errors } = await call<{ errors?: unknown }>(as(filled, 'owner'), 'POST', '/graphql', { query })
        if (errors) throw new Error(`${query}: ${JSON.stringify(errors)}`)
      })
    }
  }
  return asked
}

/** Changes and creations of rows. Deletions are left out, because a row can be deleted only once. */
function writes(): Map<string, Ask> {
  const asked = new Map<string, Ask>()
  const post = <Answer>(filled: Filled, path: string, body: unknown = {}, method = 'POST') =>
    call<Answer>(as(filled, 'owner'), method, `/api/v1/${path}`, body)
  const make = (path: string, body: (n: number, filled: Filled) => object) =>
    asked.set(`POST ${path}`, (filled, n) => post(filled, path, body(n, filled)))
  const change = (path: string, body: (n: number) => object) =>
    asked.set(`PATCH ${path.replace(/\/.*/, '/{id}')}`, (filled, n) => post(filled, path, body(n), 'PATCH'))
  const remove = (path: string, prefix: string) =>
    asked.set(`DELETE ${path}/{id}`, (filled, n) =>
      call(as(filled, 'owner'), 'DELETE', `/api/v1/${path}/${prefix}-${31 + 20 * n}`),
    )
  const execute = (name: string, where: (filled: Filled) => object) =>
    asked.set(`execute, ${name}`, (filled) =>
      post(filled, 'agents/agent-1/execute', { message: 'Where is the atlas?', ...where(filled) }),
    )
  make('agents', (n) => ({ name: `Another ${n}`, systemPrompt: 'P', tags: ['common'] }))
  make('tasks', (n) => ({ title: `Another ${n}`, assignedTo: 'agent-1' }))
  make('missions', (n) => ({ title: `Another ${n}`, goal: 'G', agentId: 'agent-1' }))
  make('chats', () => ({ agentId: 'agent-1' }))
  make('spaces', (n) => ({ name: `Another ${n}` }))
  make('skills', (n) => ({ name: `another-${n}`, description: 'D', prompt: 'P' }))
  make('keys', (n) => ({ name: `Another ${n}` }))
  change('agents/agent-7', (n) => ({ name: `Changed ${n}` }))
  change('tasks/task-7', (n) => ({ title: `Changed ${n}` }))
  change('missions/mission-7', (n) => ({ title: `Changed ${n}` }))
  change('chats/chat-7', (n) => ({ title: `Changed ${n}` }))
  remove('tasks', 'task')
  remove('skills', 'skill')
  remove('agents', 'agent')
  execute('a new chat', () => ({}))
  execute('in a chat', () => ({ chatId: 'chat-7' }))
  execute('in a long chat', ({ longChatId }) => ({ chatId: longChatId }))
  execute('in a space', ({ spaceId }) => ({ spaceId }))
  return asked
}

/** Every request whose cost may grow, by name. */
export const ASKED: ReadonlyMap<string, Ask> = new Map([...reads(), ...hanging(), ...writes()])
