import { type Filled, startFilled } from './filled.ts'
import { call, type Lab } from './lab.ts'
import { median, time } from './numbers.ts'

/** How long a request takes (ms, p50), by how many rows of everything its organization has. */
export type Growth = { name: string; ms: number[] }

type Request = { who: 'owner' | 'member'; path: string }

const PAGE = 'limit=100'

/** Every list with every filter, and what else reads among many rows. */
function requestsOf({ organizationId, userId, spaceId, longChatId, cursor }: Filled): Map<string, Request> {
  const requests = new Map<string, Request>()
  const add = (path: string, name = path, who: Request['who'] = 'owner') => requests.set(name, { who, path })
  const list = (path: string, prefix: string, ...filters: (string | [filter: string, name: string])[]) => {
    add(`${path}?${PAGE}`, path)
    add(`${path}?${PAGE}`, `${path}, a member`, 'member')
    add(`${path}?${PAGE}&cursor=${cursor(prefix)}`, `${path}, from the middle`)
    for (const each of filters) {
      const [filter, name] = typeof each === 'string' ? [each, each] : each
      add(`${path}?${PAGE}&${filter}`, `${path}?${name}`)
    }
  }
  const space: [string, string] = [`spaceId=${spaceId}`, 'spaceId']
  list(
    'agents',
    'agent',
    'owner=me',
    'visibility=public',
    'tag=rare',
    'tag=common',
    'search=librarian',
    'search=nobody',
  )
  list('public/agents', 'agent', 'tag=rare', 'search=nobody')
  add('agents/agent-7', 'agents/{id}')
  add('agents/agent-7/versions', 'agents/{id}/versions')
  list('tasks', 'task', ...['status', 'priority'].map((field) => `${field}=${field === 'status' ? 'pending' : 'high'}`))
  for (const filter of ['assignedTo=agent-1', 'assignedTo=me', 'assignedTo=none', 'count=true']) {
    add(`tasks?${PAGE}&${filter}`, `tasks?${filter}`)
  }
  add(`tasks?${PAGE}&assignedTo=${userId}&status=pending`, 'tasks?assignedTo&status')
  add(`tasks?${PAGE}&status=pending&count=true`, 'tasks?status&count=true')
  add(`tasks?${PAGE}&spaceId=${spaceId}`, 'tasks?spaceId')
  add('tasks/task-7', 'tasks/{id}')
  list('executions', 'exec', 'agentId=agent-1', 'status=failed', 'status=running', space, 'chatId=chat-7')
  const since = new Date(Date.now() - 2 * 86_400_000).toISOString()
  for (const filter of ['taskId=task-1', 'missionId=mission-1', 'count=true', 'agentId=agent-1&status=failed']) {
    add(`executions?${PAGE}&${filter}`, `executions?${filter}`)
  }
  add(`executions?${PAGE}&agentId=agent-1&status=running`, 'executions?agentId&status=running')
  add(`executions?${PAGE}&since=${since}`, 'executions?since')
  for (const part of ['', '/tree', '/logs']) add(`executions/exec-7${part}`, `executions/{id}${part}`)
  list('spaces', 'space')
  add(`spaces/${spaceId}`, 'spaces/{id}')
  list('chats', 'chat', 'agentId=agent-1', 'status=error', 'status=working', 'mission=true', 'count=true', space)
  add('chats/chat-7', 'chats/{id}')
  add(`chats/${longChatId}`, 'chats/{id}, a long one')
  add(`chats/${longChatId}/messages?${PAGE}`, 'chats/{id}/messages, a long one')
  list('missions', 'mission', 'status=pending', 'status=running')
  add('missions/mission-7', 'missions/{id}')
  add(`missions/mission-1/runs?${PAGE}`, 'missions/{id}/runs')
  list('skills', 'skill')
  list('mcps', 'mcp')
  list('media', 'media')
  list('keys', 'token')
  list('approvals', 'approval', 'status=pending', 'status=denied')
  for (const period of ['daily', 'weekly', 'monthly']) {
    add(`usage/organization/${organizationId}?period=${period}`, `usage?period=${period}`)
  }
  return requests
}

/** Measures every request at every size in turn, so many times. */
export async function growth(lab: Lab, sizes: readonly number[], repeats: number): Promise<Growth[]> {
  const filled: Filled[] = []
  for (const size of sizes) {
    process.stderr.write(`\r\x1b[Kgrowth: ${size.toLocaleString('en')} rows of everything`)
    filled.push(await startFilled(lab, size))
  }
  const requests = filled.map(requestsOf)
  const found: Growth[] = []
  for (const name of requests[0]!.keys()) {
    process.stderr.write(`\r\x1b[Kgrowth: ${name}`)
    const samples: number[][] = sizes.map(() => [])
    for (let round = -1; round < repeats; round++) {
      for (const [index, { service, ...headers }] of filled.entries()) {
        const { who, path } = requests[index]!.get(name)!
        const asked = { url: `${service.url}/api${path.startsWith('usage') ? '' : '/v1'}/`, headers: headers[who] }
        const ms = await time(() => call(asked, 'GET', path))
        if (round >= 0) samples[index]!.push(ms)
      }
    }
    found.push({ name, ms: samples.map(median) })
  }
  for (const { service } of filled) await service.stop()
  process.stderr.write('\r\x1b[K')
  return found
}
