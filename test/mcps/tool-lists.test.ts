import { expect, it } from 'vitest'
import type { McpClient } from '../../src/mcps/client/client.ts'
import { JSON_TYPE, reply, tool } from '../support/hostile-mcp.ts'
import { use } from '../support/use.ts'
import { never, startClientLab } from './client-lab.ts'

/** Lists of tools in the forms in which MCP servers send them. */

const lab = await use(startClientLab())

it.each<[string, unknown, string[]]>([
  ['null', { tools: null }, []],
  ['nothing', {}, []],
  ['null as a whole', null, []],
  ['left out as a whole (C#)', undefined, []],
  ['the list alone', [tool('act')], ['act']],
  ['an object by names', { tools: { act: { inputSchema: { type: 'object' } } } }, ['act']],
  ['tools without inputs', { tools: [tool('act', { inputSchema: { type: 'null' } })] }, ['act']],
  ['functions of OpenAI', { tools: [{ type: 'function', function: { name: 'act', parameters: {} } }] }, ['act']],
])('a list of tools may be %s', async (_, result, names) => {
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list' || !message) return false
    response.writeHead(200, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result }))
    return true
  }
  expect(await lab.using(async ({ tools }) => tools.map(({ name }) => name))).toEqual(names)
})

it('a tool whose schema consists of its properties alone has these', async () => {
  const properties = { q: { type: 'string' }, n: { type: 'number' } }
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list') return false
    reply(response, message, { tools: [tool('act', { inputSchema: properties })] })
    return true
  }
  const inputSchema = { type: 'object', properties }
  expect(await lab.using(async ({ tools }) => tools)).toMatchObject([{ name: 'act', inputSchema }])
})

it('a tool with a large schema has shorter descriptions, or is named as unusable', async () => {
  const described = (length: number) => ({ type: 'string', title: 'T', description: 'd'.repeat(length) })
  const inputSchema = {
    type: 'object',
    properties: { description: described(20_000), list: { type: 'array', items: described(15_000) } },
  }
  const huge = { type: 'object', properties: { p: { enum: ['x'.repeat(33_000)] } } }
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list') return false
    reply(response, message, { tools: [tool('act', { inputSchema }), tool('huge', { inputSchema: huge })] })
    return true
  }
  const [tools, omitted] = await lab.using(async (client) => [client.tools, client.omitted] as const)
  const shorter = { type: 'string', description: expect.stringMatching(/^d{50,300}…?$/) }
  const properties = { description: shorter, list: { type: 'array', items: shorter } }
  expect(tools).toEqual([{ name: 'act', description: '', inputSchema: { type: 'object', properties } }])
  expect(omitted).toEqual(['huge'])
})

it('a tool without a description has its title', async () => {
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list') return false
    reply(response, message, {
      tools: [
        { name: 'a', title: 'Do it' },
        { name: 'b', annotations: { title: 'Or not' } },
      ],
    })
    return true
  }
  const descriptions = await lab.using(async ({ tools }) => tools.map(({ description }) => description))
  expect(descriptions).toEqual(['Do it', 'Or not'])
})

it('a tool that is for the page of its server alone is no tool of the model', async () => {
  const ui = (...visibility: string[]) => ({ _meta: { ui: { resourceUri: 'ui://page', visibility } } })
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list') return false
    const pages = [tool('poll', ui('app')), tool('save', { _meta: { 'openai/visibility': 'private' } })]
    reply(response, message, { tools: [tool('show', ui()), ...pages, tool('both', ui('model', 'app'))] })
    return true
  }
  expect(await lab.using(async ({ tools }) => tools.map(({ name }) => name))).toEqual(['show', 'both'])
})

it.each<[string, unknown]>([
  ['the result of a call', { content: [{ type: 'text', text: 'No workspace is chosen' }], isError: true }],
  ['a text', 'No workspace is chosen'],
])('a server that refuses to list its tools with %s is quoted', async (_, result) => {
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list') return false
    response.writeHead(200, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result }))
    return true
  }
  const refused = await lab.using(async () => {}).catch((error: unknown) => error)
  expect(refused).toMatchObject({ messageForPeople: 'it answered with the error -32603: No workspace is chosen' })
})

it.each([200, 400, 500])('a list of tools ends at a page that the server refuses to show with %s', async (status) => {
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list' || !message) return false
    const answer = message.params?.cursor
      ? { error: { code: -32602, message: 'Invalid cursor' } }
      : { result: { tools: [tool('act')], nextCursor: 'p2' } }
    response.writeHead(message.params?.cursor ? status : 200, JSON_TYPE)
    response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, ...answer }))
    return true
  }
  expect(await lab.using(async ({ tools, hasMore }) => [tools.length, hasMore])).toEqual([1, true])
})

it('a list of more tools than a run can have keeps the wanted ones', async () => {
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list') return false
    const from = Number(message.params?.cursor ?? 0)
    const tools = Array.from({ length: 150 }, (_, index) => tool(`t${from + index}`))
    reply(response, message, { tools, nextCursor: from < 300 ? String(from + 150) : undefined })
    return true
  }
  const seen = ({ tools, hasMore }: McpClient) => [tools.length, tools.at(-1)?.name, hasMore]
  expect(await lab.using(async (client) => seen(client))).toEqual([200, 't199', true])
  const isWanted = (name: string) => /^t44\d$|^t7$/.test(name)
  const wanted = lab.using(async (client) => [...seen(client), (await client.list(never)).length], { isWanted })
  expect(await wanted).toEqual([11, 't449', false, 11])
})
