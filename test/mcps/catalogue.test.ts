import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { readSettings } from '../../src/settings.ts'
import { createFolder } from '../support/folder.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

/** MCP servers by type (contract-2.md section 1.16). */

const WIKI = { mcpType: 'wiki', name: 'Our wiki', url: 'https://wiki.example.com/mcp', auth: 'bearer' }
const LINEAR = { mcpType: 'linear', name: 'Linear (proxy)', url: 'https://proxy.example.com/linear', auth: 'none' }

const catalogue = (content: string): string => {
  const path = join(folder, `${crypto.randomUUID()}.json`)
  writeFileSync(path, content)
  return path
}
const { path: folder } = await use(createFolder())
const server = await use(startServer({ MCP_CATALOGUE: catalogue(JSON.stringify({ types: [WIKI, LINEAR] })) }))

const create = async (body: object) => request(server, 'POST', '/api/v1/mcps', { body: { name: 'M', ...body } })

test('the catalogue lists the shipped types, and those of MCP_CATALOGUE, which win', async () => {
  const { types } = (await request(server, 'GET', '/api/v1/mcps/catalogue')).body
  expect(types).toContainEqual(WIKI)
  expect(types).toContainEqual(LINEAR)
  expect(types).toContainEqual({
    mcpType: 'github',
    name: 'GitHub',
    url: 'https://api.githubcopilot.com/mcp/',
    auth: 'bearer',
  })
  const names = types.map(({ mcpType }: { mcpType: string }) => mcpType)
  expect(new Set(names).size).toBe(names.length)
  expect(names).toEqual([...names].sort())
  for (const { url } of types) expect(url).toMatch(/^https:\/\//)
})

describe('a server without url', () => {
  test('gets the address of its type, and sends its only credential as the bearer token', async () => {
    const { status, body } = await create({ mcpType: 'github', credentials: { GITHUB_TOKEN: { value: 'ghp_x' } } })
    expect(status).toBe(200)
    expect(body.mcp).toMatchObject({
      mcpType: 'github',
      url: 'https://api.githubcopilot.com/mcp/',
      credentialsSet: ['GITHUB_TOKEN'],
      headers: { Authorization: `Bearer \${GITHUB_TOKEN}` },
    })
  })

  test('keeps its own headers, and needs none if the type requires none', async () => {
    const headers = { 'X-Api-Key': `\${KEY}` }
    const given = await create({ mcpType: 'wiki', headers, credentials: { KEY: { value: 'k' } } })
    expect(given.body.mcp).toMatchObject({ url: WIKI.url, headers })
    const open = await create({ mcpType: 'linear', credentials: { KEY: { value: 'k' } } })
    expect(open.body.mcp).toMatchObject({ url: LINEAR.url, headers: {} })
  })

  test('a server without url of an unknown type is refused with the names of the known types', async () => {
    const { status, body } = await create({ mcpType: 'gitbub' })
    expect(status).toBe(400)
    expect(body.message).toMatch(/^Unknown mcpType without url\. Known types: .*github.*linear.*wiki/)
    const missing = await create({})
    expect([missing.status, missing.body.message]).toEqual([400, 'Missing required field: url'])
    expect(missing.body.detail).toContain('github')
  })
})

test('a server with its own url keeps it, whether its type is known or not', async () => {
  const url = 'https://mcp.example.com/mcp'
  for (const mcpType of ['github', 'mine'])
    expect((await create({ mcpType, url })).body.mcp).toMatchObject({ mcpType, url })
})

describe('an invalid MCP_CATALOGUE stops the start', () => {
  test.each([
    ['that is missing', () => join(folder, 'none.json'), 'cannot be read'],
    ['that is no JSON', () => catalogue('{'), 'must name a JSON file'],
    ['of another form', () => catalogue('{"types": [{"mcpType": "x"}]}'), 'types.0.name'],
    [
      'with an address that is none',
      () => catalogue(JSON.stringify({ types: [{ ...WIKI, url: 'wiki' }] })),
      'types.0.url',
    ],
  ])('an invalid MCP_CATALOGUE stops the start for a file %s', (_, path, reason) => {
    expect(() => readSettings({ MCP_CATALOGUE: path() })).toThrow(reason)
  })
})
