import { registerHooks } from 'node:module'
import { expect, test } from 'vitest'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'

const loaded: string[] = []
registerHooks({
  resolve(specifier, context, next) {
    if (specifier.includes('query_compiler')) loaded.push(specifier)
    return next(specifier, context)
  },
})

test('Prisma’s compiler is loaded by what needs it, and not by the start, runs, lists and GraphQL', async () => {
  await using server = await startServer()
  const ask = async (method: 'GET' | 'POST' | 'PATCH', path: string, body?: object) => {
    const answer = await request(server, method, path, { ...(body && { body }) })
    expect(answer.status, JSON.stringify(answer.body)).toBe(200)
    return answer.body
  }
  const { id } = await ask('POST', '/api/v1/agents', { name: 'Ada', systemPrompt: 'You are Ada.', tags: ['a'] })
  await ask('PATCH', `/api/v1/agents/${id}`, { name: 'Eve' })
  await ask('GET', '/api/v1/agents?search=eve&tag=a')
  const { sessionId, executionId } = await ask('POST', `/api/v1/agents/${id}/execute`, { message: 'Hello' })
  await ask('POST', `/api/v1/agents/${id}/execute`, { message: 'Again', sessionId, idempotencyKey: 'key' })
  await using stream = await openStream(server, `/api/v1/executions/${executionId}/events`)
  expect((await stream.rest()).at(-1)?.event).toBe('result')
  await ask('POST', '/api/v1/tasks', { title: 'A task', assignedAgentId: id })
  for (const list of ['agents', 'chats', 'spaces', 'tasks', 'missions', 'skills', 'mcps', 'media', 'keys', 'approvals'])
    await ask('GET', `/api/v1/${list}`)
  for (const path of ['', '/tree', '/logs']) await ask('GET', `/api/v1/executions/${executionId}${path}`)
  const query = `{
    organization { members(first: 2) { nodes { user { name } } } }
    agents(first: 2) { totalCount nodes { name chats(first: 2) { totalCount nodes { title agent { name } } } } }
    tasks(first: 2) { nodes { title space { name } } }
  }`
  expect(await ask('POST', '/graphql', { query })).not.toHaveProperty('errors')
  expect(loaded).toEqual([])
  await server.service.deps.db.agent.aggregate({ _sum: { version: true } })
  expect(loaded).not.toEqual([])
})
