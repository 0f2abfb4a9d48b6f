import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { startModelServer } from '../support/model-server.ts'
import { toFetch } from '../support/rest.ts'
import { startServer } from '../support/server.ts'

const CANARIES = ['canary-in-header-1', 'canary-by-name-2', 'canary-before-3', 'canary-refused-4', 'canary-graphql-5']

it('the credentials of an MCP server appear only at that server', async () => {
  await using mcp = await startMcpServer()
  const model = await startModelServer()
  await using server = await startServer({
    LOG_LEVEL: 'trace',
    ALLOW_PRIVATE_NETWORK: 'true',
    OPENAI_BASE_URL: model.baseUrl,
    DEFAULT_MODEL: 'compatible/test-model',
  })
  const answers: string[] = []
  const call = async (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) => {
    const response = await fetch(
      server.url + path,
      toFetch(server, method, { ...(body !== undefined && { body }), headers }),
    )
    const text = await response.text()
    answers.push(text)
    return text.startsWith('{') ? JSON.parse(text) : text
  }
  const [header, byName, before, refused, graphql] = CANARIES as [string, string, string, string, string]
  const fields = {
    name: 'M',
    url: mcp.url,
    headers: { Authorization: `Bearer \${TOKEN}` },
    credentials: { TOKEN: { value: before, isSecret: true }, 'X-Key': { value: byName, isSecret: false } },
  }
  const { id } = await call('POST', '/api/v1/mcps', fields, { 'Idempotency-Key': 'canary' })
  await call('POST', '/api/v1/mcps', fields, { 'Idempotency-Key': 'canary' })
  await call('PATCH', `/api/v1/mcps/${id}`, { credentials: { TOKEN: { value: header } } })
  await call('PATCH', `/api/v1/mcps/${id}`, { credentials: { 'NOT ONE': { value: refused } } })
  await call('PATCH', `/api/v1/mcps/${id}`, { credentials: { TOKEN: { value: `${refused}\nx` } } })
  await call('PATCH', `/api/v1/mcps/${id}`, { credentials: { command: { value: refused } } })
  await call('POST', '/graphql', {
    query: 'mutation ($input: CreateMcpInput!) { createMcp(input: $input) { id credentialsSet } }',
    variables: { input: { name: 'G', url: mcp.url, credentials: [{ name: 'A', value: graphql }] } },
  })
  for (const path of ['', `/${id}`, `/${id}/tools`]) await call('GET', `/api/v1/mcps${path}`)
  await call('GET', `/trpc/mcps.get?input=${encodeURIComponent(JSON.stringify({ id }))}`)
  await call('POST', '/graphql', { query: '{ mcps { nodes { id headers { name value } credentialsSet } } }' })

  // GraphQL quotes the place of an error in the document, which is the caller's own text.
  const wrong = `mutation { createMcp(input: { name: "G", x: 1, credentials: [{ name: "A", value: "${graphql}" }] }) { id } }`
  await fetch(`${server.url}/graphql`, toFetch(server, 'POST', { body: { query: wrong } }))

  // A run whose server repeats its request, and one whose server fails while repeating it.
  model.script({ toolCalls: [{ id: 'c1', name: 'headers', input: {} }] }, ({ body }) => ({
    tokens: [JSON.stringify(body.messages.at(-1))],
  }))
  const agent = { name: 'A', systemPrompt: 'x', mcpInstanceIds: [id] }
  const { id: agentId } = await call('POST', '/api/v1/agents', agent)
  const stream: string = await call('POST', `/api/v1/agents/${agentId}/execute`, { message: 'Hi', stream: true })
  expect(stream).toContain('[removed]')
  expect(stream).toContain('event: result')
  const [, executionId, chatId] = /"executionId":"([^"]+)","chatId":"([^"]+)"/.exec(stream) ?? []
  for (const path of ['', '/logs', '/events', '/tree']) await call('GET', `/api/v1/executions/${executionId}${path}`)
  await call('GET', `/api/v1/chats/${chatId}/messages`)
  await call('GET', `/api/v1/agents/${agentId}/versions`)
  await call('PATCH', `/api/v1/mcps/${id}`, { url: `${server.url}/nothing` })
  await call('GET', `/api/v1/mcps/${id}/tools`)

  const sent = JSON.stringify(mcp.requests.map(({ headers }) => headers))
  expect([header, byName].map((canary) => sent.includes(canary))).toEqual([true, true])
  const prompts = JSON.stringify(model.requests)
  expect((await runAdmin(['backup', join(server.folder, 'copy.db')], { DATA_DIR: server.folder })).code).toBe(0)
  const files = readdirSync(server.folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), 'latin1'))
  expect(files.length).toBeGreaterThan(1)
  const places = { responses: answers.join(), logs: server.logs.join(), prompts, files: files.join() }
  for (const [place, text] of Object.entries(places)) {
    expect(text.length, place).toBeGreaterThan(1000)
    expect(
      CANARIES.filter((canary) => text.includes(canary) || text.includes(btoa(canary).slice(0, -4))),
      place,
    ).toEqual([])
  }
  await model.close()
})
