import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { SkillsClient } from '@modelcontextprotocol/client/ext/skills'
import { beforeAll, describe, expect, it } from 'vitest'
import { ok } from '../support/api.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const server = await use(startServer())
const { ann, eve } = await server.people('ann', 'eve')
const space: string = (await send('POST', '/spaces', { name: 'Plans', visibility: 'organization' })).id
await send('POST', '/skills', {
  name: 'haiku',
  displayName: 'Haiku',
  description: 'Writes a "haiku".',
  prompt: '# Haiku\nFive, seven, five.',
})
beforeAll(async () => {
  await write('docs/plan #1.md', '# Plan')
  await write('picture.png', Buffer.from([0x89, 0x50, 0]).toString('base64'), 'base64')
})

async function send(method: string, path: string, body: object, { token } = ann) {
  return ok(request(server, method, `/api/v1${path}`, { body, token }))
}

const write = (path: string, content: string, encoding = 'utf8') =>
  send('PUT', `/spaces/${space}/files/content?path=${encodeURIComponent(path)}`, { content, encoding })

async function connect({ token } = ann, era: '2025' | '2026' = '2026') {
  const mode = { versionNegotiation: { mode: { pin: '2026-07-28' } } } as const
  const client = new Client({ name: 'test', version: '1.0.0' }, era === '2026' ? mode : {})
  const headers = { Authorization: `Bearer ${token}` }
  await client.connect(new StreamableHTTPClientTransport(new URL(`${server.url}/mcp`), { requestInit: { headers } }))
  return Object.assign(client, { [Symbol.asyncDispose]: () => client.close() })
}

describe.each(['2025', '2026'] as const)('a client of %s', (era) => {
  it('has the skills of its organization as prompts', async () => {
    await using client = await connect(ann, era)
    const { prompts } = await client.listPrompts()
    expect(prompts).toContainEqual(expect.objectContaining({ name: 'haiku', title: 'Haiku' }))
    const { messages } = await client.getPrompt({ name: 'haiku', arguments: { task: 'About rain' } })
    const text = '# Haiku\nFive, seven, five.\n\nAbout rain'
    expect(messages).toEqual([{ role: 'user', content: { type: 'text', text } }])
    await using other = await connect(eve, era)
    expect((await other.listPrompts()).prompts.map(({ name }) => name)).not.toContain('haiku')
    await expect(other.getPrompt({ name: 'haiku' })).rejects.toThrow('Unknown prompt')
  })

  it('reads the files of spaces as resources', async () => {
    await using client = await connect(ann, era)
    const { resources } = await client.listResources()
    const plan = resources.find(({ name }) => name === 'plan #1.md')
    expect(plan).toMatchObject({ title: 'Plans: docs/plan #1.md', mimeType: 'text/markdown', size: 6 })
    expect((await client.readResource({ uri: plan!.uri })).contents).toMatchObject([{ text: '# Plan' }])
    const picture = resources.find(({ name }) => name === 'picture.png')
    expect((await client.readResource({ uri: picture!.uri })).contents).toMatchObject([
      { mimeType: 'image/png', blob: 'iVAA' },
    ])
    await using other = await connect(eve, era)
    expect((await other.listResources()).resources.map(({ uri }) => uri)).not.toContain(plan!.uri)
    await expect(other.readResource({ uri: plan!.uri })).rejects.toThrow(/not found/i)
    await expect(client.readResource({ uri: `muster://spaces/${space}/files/%E0` })).rejects.toThrow(/not found/i)
  })
})

describe('the skills extension', () => {
  it('lists the skills, and reads them as SKILL.md', async () => {
    await using client = await connect()
    const skills = new SkillsClient(client)
    const { skills: found } = await skills.list()
    const haiku = found.find(({ uri }) => uri === 'skill://haiku/SKILL.md')!
    expect(haiku).toMatchObject({ frontmatter: { name: 'haiku', description: 'Writes a "haiku".' } })
    expect((await skills.get(haiku.uri)).skill).toEqual(haiku)
    expect(await skills.read(haiku)).toMatchObject({ verified: true, body: '\n# Haiku\nFive, seven, five.\n' })
  })
})

describe('a subscription', () => {
  it('reports changed skills and files of its own organization', async () => {
    await using client = await connect()
    const notices: string[] = []
    client.setNotificationHandler('notifications/prompts/list_changed', () => void notices.push('prompts'))
    client.setNotificationHandler('notifications/resources/list_changed', () => void notices.push('resources'))
    const subscription = await client.listen({ promptsListChanged: true, resourcesListChanged: true })
    const file = (who: Member, id: string) =>
      send('PUT', `/spaces/${id}/files/content?path=a.md`, { content: 'A' }, who)
    const other = (await send('POST', '/spaces', { name: 'S' }, eve)).id
    await file(eve, other)
    await file(ann, space)
    await expect.poll(() => notices).toEqual(['resources'])
    await send('POST', '/skills', { name: 'limerick', description: 'L', prompt: 'L' })
    await expect.poll(() => notices).toEqual(['resources', 'prompts', 'resources'])
    await subscription.close()
  })
})

describe('a token without the scopes', () => {
  it('has neither prompts nor resources', async () => {
    await using client = await connect(await server.member({ organization: 'Acme', scopes: ['tasks:read'] }))
    const { prompts, resources } = client.getServerCapabilities() ?? {}
    expect({ prompts, resources }).toEqual({})
  })
})
