import { describe, expect, it } from 'vitest'
import { apis, expectError, onEachApi } from '../support/api.ts'
import { tickingClock } from '../support/clock.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"

const server = await use(startServer({}, { clock: tickingClock() }))

type Caller = { token: string }
const get = ({ token }: Caller) => request(server, 'GET', '/api/v1/profile', { token })
const patch = ({ token }: Caller, body: unknown) => request(server, 'PATCH', '/api/v1/profile', { token, body })

describe('GET /profile', () => {
  it("shows the caller's user, organization, role, and all other memberships", async () => {
    const email = 'ann@example.com'
    const ann = await server.member({ email, organization: 'Acme', role: 'admin' })
    const beta = await server.member({ email, organization: 'Beta & Co' })
    const own = { id: ann.organizationId, name: 'Acme', slug: 'acme', role: 'admin' }
    const other = { id: beta.organizationId, name: 'Beta & Co', slug: 'beta-co', role: 'member' }
    const profile = {
      id: ann.userId,
      email,
      name: 'ann',
      image: null,
      notifications: { approvals: false, missions: false },
      organizations: [own, other],
    }
    expect((await get(ann)).body).toEqual({ success: true, profile: { ...profile, organization: own } })
    expect((await get(beta)).body).toEqual({ success: true, profile: { ...profile, organization: other } })
  })

  it('omits an organization that the caller has left, and refuses its tokens', async () => {
    const email = 'ben@example.com'
    const ben = await server.member({ email, organization: 'Acme' })
    const beta = await server.member({ email, organization: 'Beta & Co' })
    const membership = { organizationId: ben.organizationId, userId: ben.userId }
    await server.service.deps.db.membership.deleteMany({ where: { ...membership } })
    expectError(await get(ben), 403, FORBIDDEN)
    const { organizations } = (await get(beta)).body.profile
    expect(organizations.map(({ slug }: { slug: string }) => slug)).toEqual(['beta-co'])
  })

  it('needs the scope', async () => {
    expectError(await get(await server.member({ scopes: ['keys:write'] })), 403, FORBIDDEN)
    const reader = await server.member({ scopes: ['profile:read'] })
    expect((await get(reader)).status).toBe(200)
    expectError(await patch(reader, { name: 'x' }), 403, FORBIDDEN)
  })
})

describe('PATCH /profile', () => {
  it('changes the name and the picture everywhere and on every API', async () => {
    const email = 'cat@example.com'
    const cat = await server.member({ email, organization: 'Acme' })
    const beta = await server.member({ email, organization: 'Beta & Co' })
    const image = 'https://example.com/cat.png'
    const { status, body } = await patch(cat, { name: 'Cat 👩🏽‍💻', image })
    expect(status).toBe(200)
    expect(body.profile).toMatchObject({ id: cat.userId, email, name: 'Cat 👩🏽‍💻', image })
    expect((await get(cat)).body).toEqual(body)
    expect((await get(beta)).body.profile).toMatchObject({ name: 'Cat 👩🏽‍💻', image })
    expect((await apis.tRPC(server, 'profile.get', undefined, { token: cat.token })).body).toEqual(body)
    expect((await patch(cat, { image: null })).body.profile).toMatchObject({ name: 'Cat 👩🏽‍💻', image: null })
    expect((await patch(cat, { name: 'Kate' })).body.profile).toMatchObject({ name: 'Kate', image: null })
  })

  it('leaves everything else, and other users, unchanged', async () => {
    const dan = await server.member({ email: 'dan@example.com' })
    const eve = await server.member({ email: 'eve@example.com' })
    const before = [(await get(dan)).body, (await get(eve)).body]
    const own = {
      id: 'x',
      email: 'owner@example.com',
      organization: { role: 'owner' },
      role: 'owner',
      organizations: [],
    }
    const warnings = Object.keys(own).map((name) => `Unknown field: ${name}`)
    expect((await patch(dan, own)).body).toEqual({ ...before[0], warnings })
    expect((await patch(dan, {})).status).toBe(200)
    expect([(await get(dan)).body, (await get(eve)).body]).toEqual(before)
  })

  it.each(['https://example.com/a.png', 'data:image/png;base64,iVBORw0KGgo=', 'A'.repeat(22), ''])(
    'accepts the picture %o',
    async (image) => {
      const { status, body } = await patch(server, { image })
      expect([status, body.profile.image]).toEqual([200, image])
    },
  )

  it('names the allowed pictures in its error', async () => {
    const { body } = await patch(server, { image: 'file:///etc/passwd' })
    expect(body).toMatchObject({ statusCode: 400, detail: expect.stringContaining('http or https address') })
  })

  const tooLong = (field: string, most: number) =>
    `Invalid value for field: ${field}. Expected at most ${most} characters`
  const NO_IMAGE = 'Invalid value for field: image. Expected an http(s) address, a data image or a media id'
  type Bad = [message: string, body: Record<string, unknown>]
  it.each(
    onEachApi<Bad>([
      ['Missing required field: name', { name: null }],
      ['Missing required field: name', { name: '' }],
      ['Missing required field: name', { name: ' ' }],
      ['Invalid value for field: name. Expected string', { name: 7 }],
      [tooLong('name', 200), { name: 'x'.repeat(201) }],
      ['Invalid character in request: U+0000', { name: 'a\0b' }],
      ['Invalid value for field: image. Expected string', { image: 7 }],
      [tooLong('image', 4000), { image: `data:image/png;base64,${'A'.repeat(4000)}` }],
      [NO_IMAGE, { image: `https://example.com/${'x'.repeat(2000)}` }],
      [NO_IMAGE, { image: 'javascript:alert(1)' }],
      [NO_IMAGE, { image: 'data:text/html;base64,AAAA' }],
      [NO_IMAGE, { image: 'data:image/svg+xml;base64,AAAA' }],
      [NO_IMAGE, { image: '//example.com/cat.png' }],
      ['Invalid value for field: image. Expected string', { name: 'fine', image: false }],
    ]),
  )('%s: 400 %s, and changes nothing', async (api, message, body) => {
    const before = (await get(server)).body
    expectError(await apis[api](server, 'profile.update', body), 400, message)
    expect((await get(server)).body).toEqual(before)
  })
})
