import { describe, expect, test } from 'vitest'
import { slugOf } from '../../src/agents/slugs.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

/** The slugs of agents (contract-2.md section 1.15). */

const server = await use(startServer())
const member = await server.member({ organization: 'Slugs' })

const send = (method: string, path: string, body?: object, token = member.token) =>
  request(server, method, `/api/v1/agents${path}`, { token, ...(body && { body }) })
const create = async (fields: object, token = member.token) =>
  (await send('POST', '', { systemPrompt: 'Be brief.', ...fields }, token)).body

describe('a slug', () => {
  test.each([
    ['Ada', 'ada'],
    ['  Zoë Ångström  ', 'zoe-angstrom'],
    ['Sales & Support (EU)', 'sales-support-eu'],
    ['日本', 'agent'],
    ['--', 'agent'],
    [`${'a'.repeat(63)} b`, 'a'.repeat(63)],
    ['x'.repeat(200), 'x'.repeat(64)],
  ])('is made from the name %j', (name, slug) => {
    expect(slugOf(name)).toBe(slug)
  })

  test('is in the answer, numbered for equal names, and free again after archiving', async () => {
    const first = await create({ name: 'Grace' })
    const second = await create({ name: 'Grace' })
    expect([first.slug, first.agent.slug, second.slug]).toEqual(['grace', 'grace', 'grace-2'])
    await send('DELETE', `/${first.id}`)
    expect((await create({ name: 'grace!' })).slug).toBe('grace')
  })

  test('differs among agents of one name that are created concurrently', async () => {
    const made = await Promise.all(Array.from({ length: 12 }, () => create({ name: 'Twin' })))
    const slugs = made.map(({ slug }) => slug as string)
    expect(new Set(slugs).size).toBe(12)
    for (const slug of slugs) expect(slug).toMatch(/^twin(-[a-z0-9]+)?$/)
  })

  test('can be given, is refused if another agent has it, and survives a rename', async () => {
    const { id, slug } = await create({ name: 'Hedy', slug: 'inventor' })
    expect(slug).toBe('inventor')
    const taken = await send('POST', '', { name: 'Other', systemPrompt: 'x', slug: 'inventor' })
    expect([taken.status, taken.body.message]).toEqual([409, 'Agent slug already exists'])
    const other = await create({ name: 'Other' })
    expect((await send('PATCH', `/${other.id}`, { slug: 'inventor' })).status).toBe(409)
    await send('PATCH', `/${id}`, { name: 'Hedy Lamarr' })
    expect((await send('GET', `/${id}`)).body.agent.slug).toBe('inventor')
    for (let times = 0; times < 2; times++) await send('PATCH', `/${id}`, { slug: null })
    expect((await send('GET', `/${id}`)).body.agent.slug).toBe('hedy-lamarr')
  })

  test('is the same in two organizations, and copies get their own', async () => {
    const { token } = await server.member({ organization: 'Elsewhere' })
    expect((await create({ name: 'Joan', slug: 'joan' })).slug).toBe('joan')
    const there = await create({ name: 'Joan' }, token)
    expect(there.slug).toBe('joan')
    expect((await create({ name: 'Copy', basedOnAgentId: there.id }, token)).slug).toBe('copy')
  })

  test.each(['', 'Ada', 'a b', 'ä', 'a'.repeat(65)])('is refused as %j', async (slug) => {
    const { status, body } = await send('POST', '', { name: 'Bad', systemPrompt: 'x', slug })
    expect([status, body.message]).toEqual([400, 'Invalid slug. Must be 1 to 64 characters of a-z, 0-9 and -'])
  })
})

test('advanced_tools and characterDescription of older clients are stored and returned', async () => {
  const { id } = await create({ name: 'Old', advanced_tools: ['github', 'slack'], characterDescription: 'An old hand' })
  const { agent } = (await send('GET', `/${id}`)).body
  expect([agent.advanced_tools, agent.description]).toEqual([['github', 'slack'], 'An old hand'])
  await send('PATCH', `/${id}`, { advanced_tools: [], characterDescription: 'Older', description: 'Wins' })
  const changed = (await send('GET', `/${id}`)).body.agent
  expect([changed.advanced_tools, changed.description]).toEqual([[], 'Wins'])
})
