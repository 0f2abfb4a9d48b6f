import { expect, it } from 'vitest'
import { newToken } from '../../src/lib/token.ts'
import { APIS, apis } from '../support/api.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'
import { use } from '../support/use.ts'

/** Each secret names the place where it was put, and must appear nowhere else. */
const PROMPT = 'canary-prompt-c8e1a7'
const MESSAGE = 'canary-message-41d0b9'
const ANSWER = 'canary-answer-2f6e55'
const KEY = 'canary-provider-key-93aa07'
const QUERY = 'canary-query-b7c210'
const INPUT = 'canary-input-e04d18'

const unknown = newToken('mst')

const model = await use(startModelServer())
const server = await use(startServer({ ...model.env, OPENAI_API_KEY: KEY, LOG_LEVEL: 'trace' }))
const member = await server.member()

it('the log omits tokens, prompts, messages, answers, keys, query strings and inputs', async () => {
  const { token } = member
  for (const api of APIS) {
    const call = (procedure: string, input: Record<string, unknown>, as = token) =>
      apis[api](server, procedure, input, { token: as })
    const { id } = (await call('agents.create', { name: 'Ada', systemPrompt: PROMPT })).body
    await call('agents.update', { id, systemPrompt: `${PROMPT}!`, description: 5 })

    model.script({ tokens: ANSWER })
    const { executionId } = (await call('agents.execute', { id, message: MESSAGE })).body
    await call('executions.get', { id: executionId })
    await call('executions.events', { executionId })

    // A provider whose error repeats the whole request, and one that breaks off.
    model.script(({ headers, body }) => ({
      error: { status: 500, message: `${headers.authorization} ${JSON.stringify(body)}` },
    }))
    await call('agents.execute', { id, message: MESSAGE })
    model.script({ tokens: [ANSWER], end: 'drop' })
    await call('agents.execute', { id, message: MESSAGE })

    await call('agents.create', { name: INPUT, systemPrompt: INPUT, maxTurns: INPUT, visibility: INPUT })
    await call('agents.list', { search: INPUT, cursor: INPUT })
    await call('agents.list', {}, unknown)
    await call('agents.list', {}, `${token}x`)
  }
  const agents = `/api/v1/agents?token=${token}&secret=${QUERY}`
  await request(server, 'GET', agents)
  await request(server, 'GET', `/trpc/agents.list?connectionParams=${encodeURIComponent(`{"token":"${token}"}`)}`)
  await request(server, 'GET', `/trpc/agents.list?input=${QUERY}`)
  await request(server, 'GET', `/nope?${QUERY}`)
  await request(server, 'POST', agents, { body: `{"name":"${INPUT}"` })
  await request(server, 'POST', agents, { body: INPUT, headers: { 'Content-Type': 'text/plain' } })
  await (await openStream(server, `/api/v1/executions/none/events?${QUERY}`)).close()

  const logs = server.logs.join('')
  expect(logs).toContain('"request"')
  expect(logs).toContain('a run failed')
  for (const secret of [token, server.token, unknown, PROMPT, MESSAGE, ANSWER, KEY, QUERY, INPUT]) {
    const line = server.logs.find((text) => text.includes(secret))
    expect(line, secret).toBeUndefined()
  }
})

it('a token stands nowhere in the database, and no answer shows it to its holder', async () => {
  const { db } = server.service.deps
  const rows = await db.token.findMany()
  expect(rows.map(({ id }) => id)).toContain(member.tokenId)
  const random = member.token.slice(member.token.indexOf('_') + 5)
  expect(JSON.stringify([rows, await db.auditEvent.findMany()])).not.toContain(random)
})

it('an error of a provider about its key reaches no caller', async () => {
  const { body: agent } = await request(server, 'POST', '/api/v1/agents', { body: { name: 'A', systemPrompt: 'x' } })
  model.script(({ headers }) => ({ error: { status: 401, message: `Incorrect API key: ${headers.authorization}` } }))
  const path = `/api/v1/agents/${agent.id}/execute`
  const stream = await openStream(server, path, { method: 'POST', body: { message: 'Hi', stream: true } })
  const events = await stream.rest()
  expect(events.at(-1)?.event).toBe('error')
  const { executionId } = events[0]!.data
  const { body } = await request(server, 'GET', `/api/v1/executions/${executionId}`)
  expect(body.execution.error).toContain('Incorrect API key')
  expect(stream.text + JSON.stringify(body)).not.toContain(KEY)
})
