import { createSecretKey } from 'node:crypto'
import { exportSPKI, type JWTPayload, SignJWT, UnsecuredJWT } from 'jose'
import { afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { createIdTokens } from '../../src/auth/id-tokens.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { newToken } from '../../src/lib/token.ts'
import { readSettings } from '../../src/settings.ts'
import { APIS, apis, expectError } from '../support/api.ts'
import { startModelServer } from '../support/model-server.ts'
import { AUDIENCE, generateKey, type Key, type Oidc, startOidc } from '../support/oidc.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer, type TestServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'
import { use } from '../support/use.ts'

const INVALID = 'Invalid or expired token'
const FORMAT = 'Invalid token format. Token must start with mst_'
const FORBIDDEN = "You don't have permission to access this resource"

const oidc = await use(startOidc())
const model = await use(startModelServer())
const server = await use(
  startServer({
    OIDC_ISSUER: oidc.issuer,
    OIDC_AUDIENCE: AUDIENCE,
    ...model.env,
  }),
)

const seconds = () => Math.floor(Date.now() / 1000)

/** Claims of the provider about a user, valid for a minute. */
const claimsOf = (sub: string, more: JWTPayload = {}): JWTPayload => ({
  iss: oidc.issuer,
  aud: AUDIENCE,
  sub,
  iat: seconds(),
  exp: seconds() + 60,
  ...more,
})

let people = 0
/** A member whose subject is linked already. */
async function linked(
  options: Parameters<TestServer['member']>[0] = {},
): Promise<Member & { sub: string; as: string }> {
  const sub = `subject-${++people}`
  const member = await server.member(options)
  const { userId } = member
  await server.service.deps.db.userIdentity.create({
    data: { issuer: oidc.issuer, subject: sub, userId, createdAt: new Date() },
  })
  return { ...member, sub, as: await oidc.sign(claimsOf(sub)) }
}

const usage = (token: string, organizationId: string) =>
  request(server, 'GET', `/api/usage/organization/${organizationId}`, { token })

const environment = (token: string, spaceId: string, more: object = {}) =>
  request(server, 'POST', `/api/spaces/${spaceId}/environment`, {
    token,
    body: { environmentVariables: { A: 'x' }, ...more },
  })

async function createSpace(token: string, more: object = {}): Promise<string> {
  const body = { name: 'Space', ...more }
  return (await request(server, 'POST', '/api/v1/spaces', { token, body })).body.id
}

describe('a user who signs in at the provider', () => {
  it('is found by verified e-mail address, then by subject, and recorded in the audit log', async () => {
    const member = await server.member({ email: 'ada@example.com', organization: 'Signed in' })
    const person = { sub: 'ada', email: 'Ada@Example.com', email_verified: true }
    const token = await oidc.signIn(person)
    expect((await usage(token, member.organizationId)).status).toBe(200)
    const { db } = server.service.deps
    expect(await db.userIdentity.findMany({ where: { userId: member.userId } })).toMatchObject([
      { issuer: oidc.issuer, subject: 'ada' },
    ])
    const where = { organizationId: member.organizationId, action: 'user.link' }
    expect(await db.auditEvent.findMany({ where })).toMatchObject([{ actor: member.userId, target: member.userId }])
    const later = await oidc.signIn({ sub: 'ada' })
    expect((await usage(later, member.organizationId)).status).toBe(200)
    expect(await db.auditEvent.count({ where })).toBe(1)
  })

  it('is unknown until the provider has verified the e-mail address', async () => {
    const { organizationId } = await server.member({ email: 'eve@example.com' })
    const token = await oidc.signIn({ sub: 'eve', email: 'eve@example.com', email_verified: false })
    expectError(await usage(token, organizationId), 401, INVALID)
  })
})

describe('a subject', () => {
  it.each<[string, object]>([
    ['no e-mail address', {}],
    ['an address without a verification', { email: 'known@example.com' }],
    ['an unverified address', { email: 'known@example.com', email_verified: false }],
    ['an address whose verification is a word', { email: 'known@example.com', email_verified: 'yes' }],
    ['an address that looks like a known one (U+212A)', { email: '\u212Anown@example.com', email_verified: true }],
    ['an unknown address', { email: 'unknown@example.com', email_verified: true }],
    ['an address that is no text', { email: ['known@example.com'], email_verified: true }],
  ])('a subject with %s is linked to no user', async (_, claims) => {
    const { organizationId, userId } = await server.member({ email: 'known@example.com' })
    const token = await oidc.sign(claimsOf('unlinked', { ...claims }))
    expectError(await usage(token, organizationId), 401, INVALID)
    expect(await server.service.deps.db.userIdentity.count({ where: { userId } })).toBe(0)
  })

  it('stays with its user when another user gets its e-mail address', async () => {
    const ada = await linked({ organization: 'Of Ada' })
    const ben = await server.member({ email: 'ben@example.com', organization: 'Of Ben' })
    const token = await oidc.sign(claimsOf(ada.sub, { email: 'ben@example.com', email_verified: true }))
    expect((await usage(token, ada.organizationId)).status).toBe(200)
    expectError(await usage(token, ben.organizationId), 403, FORBIDDEN)
  })

  it('cannot take over a user with another subject, whatever its e-mail address', async () => {
    const email = 'taken@example.com'
    const { organizationId } = await linked({ email })
    const token = await oidc.sign(claimsOf('thief', { email, email_verified: true }))
    expectError(await usage(token, organizationId), 401, INVALID)
  })

  it('is linked once by concurrent requests, and of two subjects one wins', async () => {
    const email = 'crowd@example.com'
    const { organizationId, userId } = await server.member({ email })
    const call = async (sub: string) => {
      const token = await oidc.sign(claimsOf(sub, { email, email_verified: true }))
      return { sub, status: (await usage(token, organizationId)).status }
    }
    const answers = await Promise.all(['one', 'two', 'one', 'two', 'one', 'two'].map(call))
    const [identity, ...others] = await server.service.deps.db.userIdentity.findMany({ where: { userId } })
    expect([['one', 'two'], others]).toEqual([expect.arrayContaining([identity?.subject]), []])
    for (const { sub, status } of answers) expect(status).toBe(sub === identity?.subject ? 200 : 401)
  })
})

describe('an ID token', () => {
  let member: Awaited<ReturnType<typeof linked>>
  beforeAll(async () => {
    member = await linked()
  })

  const flipped = (text: string, at: number) => text.slice(0, at) + (text[at] === 'A' ? 'B' : 'A') + text.slice(at + 1)
  const parts = (token: string) => token.split('.') as [string, string, string]
  const encoded = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')

  it('is accepted as the provider made it', async () => {
    expect((await usage(member.as, member.organizationId)).status).toBe(200)
  })

  it('is refused after a change of any character of header, payload or signature', async () => {
    for (const [index, part] of parts(member.as).entries()) {
      // The last character of a part may carry unused bits.
      for (let at = 0; at < part.length - 1; at += 7) {
        const changed = parts(member.as)
        changed[index] = flipped(part, at)
        const { status, body } = await usage(changed.join('.'), member.organizationId)
        expect([index, at, status, body.message]).toEqual([index, at, 401, INVALID])
      }
    }
  })

  type Forge = (claims: JWTPayload, key: Key) => Promise<string> | string
  const withHeader = (header: Record<string, unknown>, payload: JWTPayload, signature = '') =>
    [encoded(header), encoded(payload), signature].join('.')
  const signedBy = (claims: JWTPayload, secret: Uint8Array, kid?: string) =>
    new SignJWT(claims)
      .setProtectedHeader({ alg: 'HS256', ...(kid && { kid }) })
      .sign(createSecretKey(secret), { crit: {} })

  it.each<[string, Forge]>([
    ['alg none', (claims) => new UnsecuredJWT(claims).encode()],
    ['alg None, with a kid', (claims, { kid }) => withHeader({ alg: 'None', kid }, claims)],
    ['no alg', (claims, { kid }) => withHeader({ kid }, claims, 'AAAA')],
    ['no signature', (claims, { kid }) => withHeader({ alg: 'RS256', kid }, claims)],
    [
      'HS256 with the public key in PEM as the secret',
      async (claims, { publicKey, kid }) => signedBy(claims, Buffer.from(await exportSPKI(publicKey)), kid),
    ],
    [
      'HS256 with the modulus as the secret',
      (claims, { jwk, kid }) => signedBy(claims, Buffer.from(String(jwk.n), 'base64url'), kid),
    ],
    ['HS256 with the client secret', (claims) => signedBy(claims, Buffer.alloc(32, 'secret'))],
    [
      'another key under the same kid',
      async (claims, { kid }) => oidc.sign(claims, { key: await generateKey(), header: { kid } }),
    ],
    ['a kid that there is none of', (claims) => oidc.sign(claims, { header: { kid: 'unknown' } })],
    ['a kid that is a path', (claims) => oidc.sign(claims, { header: { kid: '../../dev/null' } })],
    [
      'a key of its own in the header',
      async (claims) => {
        const key = await generateKey()
        const { d, p, q, dp, dq, qi, ...jwk } = key.jwk
        return oidc.sign(claims, { key, header: { jwk } })
      },
    ],
    [
      'the address of other keys in the header',
      async (claims) => oidc.sign(claims, { key: await generateKey(), header: { jku: `${oidc.issuer}/jwks` } }),
    ],
    [
      'an unknown critical header',
      (claims) => oidc.sign(claims, { header: { crit: ['x'], x: 1 } }).catch(() => 'a.b.c'),
    ],
    ['the type of an access token', (claims) => oidc.sign(claims, { header: { typ: 'at+jwt' } })],
    ['the type of a logout token', (claims) => oidc.sign(claims, { header: { typ: 'logout+jwt' } })],
    ['another audience', (claims) => oidc.sign({ ...claims, aud: 'another' })],
    ['no audience', ({ aud, ...claims }) => oidc.sign(claims)],
    ['two audiences and no party', (claims) => oidc.sign({ ...claims, aud: [AUDIENCE, 'another'] })],
    ['another party', (claims) => oidc.sign({ ...claims, azp: 'another' })],
    ['another issuer', (claims) => oidc.sign({ ...claims, iss: 'https://issuer.example' })],
    ['an issuer that only begins the same', (claims) => oidc.sign({ ...claims, iss: `${claims.iss}/` })],
    ['no issuer', ({ iss, ...claims }) => oidc.sign(claims)],
    ['no expiry', ({ exp, ...claims }) => oidc.sign(claims)],
    ['an expiry that is no number', (claims) => oidc.sign({ ...claims, exp: '9999999999' as never })],
    ['a time before which it is not good', (claims) => oidc.sign({ ...claims, nbf: seconds() + 60 })],
    ['no subject', ({ sub, ...claims }) => oidc.sign(claims)],
    [
      'an empty subject',
      async (claims) => {
        const email = 'nobody@example.com'
        await server.member({ email })
        return oidc.sign({ ...claims, sub: '', email, email_verified: true })
      },
    ],
    ['a subject that is no text', (claims) => oidc.sign({ ...claims, sub: 1 as never })],
    ['another subject', (claims) => oidc.sign({ ...claims, sub: 'somebody else' })],
    ['a payload that is a list', (_, { kid }) => withHeader({ alg: 'RS256', kid }, [] as never, 'AAAA')],
    ['five parts', (claims, { kid }) => `${withHeader({ alg: 'RSA-OAEP', enc: 'A256GCM', kid }, claims)}.AAAA.AAAA`],
    ['two parts', (claims) => `${encoded({ alg: 'RS256' })}.${encoded(claims)}`],
    ['a dot', () => '.'],
    ['dots', () => '..'],
    ['no JSON', () => 'AAAA.BBBB.CCCC'],
    ['6 KiB', () => `${'A'.repeat(2000)}.${'B'.repeat(2000)}.${'C'.repeat(2000)}`],
    ['a prefix of ours', (claims) => oidc.sign(claims).then((token) => `mst_${token}`)],
  ])('an ID token with %s is refused', async (_, forge) => {
    const token = await forge(claimsOf(member.sub), oidc.key)
    expectError(await usage(token, member.organizationId), 401, INVALID)
  })

  it.each(['PS256', 'ES256', 'ES384', 'EdDSA', 'RS512'])('is accepted when it is signed by a %s key', async (alg) => {
    const own = [oidc.key, await generateKey(alg)] as const
    await oidc.rotate(...own)
    const settings = readSettings({ OIDC_ISSUER: oidc.issuer, OIDC_AUDIENCE: AUDIENCE })
    const token = await oidc.sign(claimsOf('x'), { key: own[1] })
    const { subject } = (await createIdTokens(settings, systemClock, log)?.verify(token)) ?? {}
    expect(subject).toBe('x')
    await oidc.rotate(own[0])
  })

  it("is refused when its algorithm differs from its key's", async () => {
    const { privateKey, kid } = oidc.key
    const key = { ...oidc.key, alg: 'RS512', privateKey, kid }
    const token = await oidc.sign(claimsOf(member.sub), { key }).catch(() => 'a.b.c')
    expectError(await usage(token, member.organizationId), 401, INVALID)
  })

  it('an ID token for two audiences is accepted when this service is the authorized party', async () => {
    const token = await oidc.sign(claimsOf(member.sub, { aud: ['another', AUDIENCE], azp: AUDIENCE }))
    expect((await usage(token, member.organizationId)).status).toBe(200)
  })

  it('may have its audience in a list', async () => {
    const token = await oidc.sign(claimsOf(member.sub, { aud: [AUDIENCE] }))
    expect((await usage(token, member.organizationId)).status).toBe(200)
  })

  it('expires half a minute late, because clocks differ, and is refused if it is also invalid', async () => {
    const at = (exp: number) => oidc.sign(claimsOf(member.sub, { exp, iat: exp - 60 }))
    expect((await usage(await at(seconds() - 20), member.organizationId)).status).toBe(200)
    const expired = await at(seconds() - 31)
    expectError(await usage(expired, member.organizationId), 401, 'Token expired')
    const [header, payload, signature] = parts(expired)
    expectError(await usage([header, payload, flipped(signature, 5)].join('.'), member.organizationId), 401, INVALID)
  })

  it("opens every API, in the organization of a header or the user's only one", async () => {
    const { email } = await server.service.deps.db.user.findUniqueOrThrow({ where: { id: member.userId } })
    const body = { query: '{ profile { organization { id } } }' }
    const organizations = async (headers: Record<string, string> = {}) => {
      const options = { token: member.as, headers }
      return [
        (await request(server, 'GET', '/api/v1/profile', options)).body.profile?.organization.id,
        (await request(server, 'GET', '/trpc/profile.get', options)).body.result?.data.profile.organization.id,
        (await request(server, 'POST', '/graphql', { ...options, body })).body.data?.profile.organization.id,
      ]
    }
    expect(await organizations()).toEqual(Array(3).fill(member.organizationId))
    const second = await server.member({ email, organization: 'Second of an ID token' })
    expect(await organizations()).toEqual(Array(3).fill(undefined))
    const unnamed = await request(server, 'GET', '/api/v1/profile', { token: member.as })
    expectError(unnamed, 400, 'Missing required header: X-Organization')
    for (const { organizationId } of [member, second]) {
      expect(await organizations({ 'X-Organization': organizationId })).toEqual(Array(3).fill(organizationId))
    }
    const stranger = await server.member({ organization: 'Strange to an ID token' })
    const foreign = { token: member.as, headers: { 'X-Organization': stranger.organizationId } }
    expectError(await request(server, 'GET', '/api/v1/agents', foreign), 403, FORBIDDEN)
    const bad = await request(server, 'GET', '/api/v1/agents', { token: 'a.b.c' })
    expectError(bad, 401, `Unauthorized. ${INVALID}`)
    await server.service.deps.db.membership.deleteMany({ where: { organizationId: second.organizationId } })
  })

  it.each(APIS)('opens these routes: %s', async (api) => {
    const call = (token: string) => apis[api](server, 'usage.get', { orgId: member.organizationId }, { token })
    expect((await call(member.as)).status).toBe(200)
    expectError(await call('a.b.c'), 401, INVALID)
  })

  it('is refused before the body is checked', async () => {
    const init = '/api/spaces/none/init'
    expectError(await request(server, 'POST', init, { token: 'a.b.c', body: '{' }), 401, INVALID)
    const headers = { 'Idempotency-Key': 'k' }
    expectError(await request(server, 'POST', init, { token: 'a.b.c', body: {}, headers }), 401, INVALID)
  })

  it('is never logged', async () => {
    await usage(member.as, member.organizationId)
    const [header = '', payload = '', signature = ''] = parts(member.as)
    await usage([header, payload, flipped(signature, 9)].join('.'), member.organizationId)
    const logs = server.logs.join('')
    for (const part of [payload, signature.slice(20)]) expect(logs).not.toContain(part)
  })
})

describe('the holder of an ID token', () => {
  it('acts in the organization of the space, with its role there', async () => {
    const email = 'two@example.com'
    const one = await linked({ email, organization: 'One', role: 'admin' })
    const two = await server.member({ email, organization: 'Two', role: 'member' })
    const owner = await server.member({ organization: 'Two', role: 'owner' })
    const [inOne, inTwo] = [await createSpace(one.token), await createSpace(owner.token)]
    expect((await environment(one.as, inOne)).body).toMatchObject({ keys: ['A'], count: 1 })
    expectError(await environment(one.as, inTwo), 403, FORBIDDEN)
    expect((await environment(one.as, await createSpace(two.token))).status).toBe(200)
    const { db } = server.service.deps
    expect(await db.secret.count({ where: { organizationId: one.organizationId } })).toBe(1)
    expect(await db.secret.count({ where: { organizationId: two.organizationId } })).toBe(1)
    for (const { organizationId } of [one, two]) expect((await usage(one.as, organizationId)).status).toBe(200)
  })

  it('cannot find a space of a foreign organization, as if it did not exist', async () => {
    const { as } = await linked()
    const stranger = await server.member({ organization: 'Elsewhere', role: 'owner' })
    const foreign = await createSpace(stranger.token)
    const own = await linked({ role: 'owner' })
    const archived = await createSpace(own.token)
    await request(server, 'DELETE', `/api/v1/spaces/${archived}`, { token: own.token })
    const hidden = await createSpace(own.token, { visibility: 'private' })
    for (const id of [foreign, archived, hidden, 'unknown']) {
      expectError(await environment(as, id), 404, 'Space not found')
      const init = { token: as, body: { type: 'empty' } }
      expectError(await request(server, 'POST', `/api/spaces/${id}/init`, init), 404, 'Space not found')
      const execute = { token: as, body: { characterId: 'x', message: 'x', spaceId: id } }
      expectError(await request(server, 'POST', '/api/agent/execute', execute), 404, 'Space not found')
    }
    expectError(await usage(as, stranger.organizationId), 403, FORBIDDEN)
    expectError(await usage(as, 'unknown'), 403, FORBIDDEN)
  })

  it('may name the organization of the space only, even if the user has another one', async () => {
    const email = 'both@example.com'
    const one = await linked({ email, organization: 'Here' })
    const two = await server.member({ email, organization: 'There' })
    const space = await createSpace(one.token)
    expect((await environment(one.as, space, { orgId: one.organizationId })).status).toBe(200)
    for (const token of [one.as, one.token]) {
      expectError(await environment(token, space, { orgId: two.organizationId }), 403, FORBIDDEN)
      expectError(await environment(token, space, { orgId: 'unknown' }), 403, FORBIDDEN)
    }
  })

  it('must name a space to run an agent in', async () => {
    const { as } = await linked()
    for (const [body, message] of [
      [{ characterId: 'x', message: 'x' }, 'Missing required field: spaceId'],
      [{ characterId: 'x', message: 'x', spaceId: null }, 'Missing required field: spaceId'],
      [{ characterId: 'x', message: 'x', spaceId: 5 }, 'Invalid value for field: spaceId. Expected string'],
    ] as const) {
      expectError(await request(server, 'POST', '/api/agent/execute', { token: as, body }), 400, message)
    }
  })

  it('must name it in the body: a space in the URL starts nothing', async () => {
    const { as, token } = await linked()
    const [spaceId, other] = [await createSpace(token), await createSpace(token)]
    const agent = { name: 'Ada', systemPrompt: 'You are Ada.' }
    const characterId = (await request(server, 'POST', '/api/v1/agents', { token, body: agent })).body.id
    const path = '/api/agent/execute'
    const body = { characterId, message: 'Hi' }
    for (const stream of [false, true]) {
      const nowhere = await request(server, 'POST', path, { token: as, body: { ...body, stream } })
      expectError(nowhere, 400, 'Missing required field: spaceId')
      const inAddress = { token: as, body: { ...body, spaceId, stream } }
      const there = await request(server, 'POST', `${path}?spaceId=${other}`, inAddress)
      expectError(there, 400, 'Unknown parameter: spaceId')
    }
    expect((await request(server, 'POST', path, { token: as, body: { ...body, spaceId } })).status).toBe(200)
    const stream = await openStream(server, path, {
      method: 'POST',
      token: as,
      body: { ...body, spaceId, stream: true },
    })
    expect((await stream.rest()).at(-1)?.event).toBe('result')
    const where = { spaceId: { in: [spaceId, other] } }
    const runs = await server.service.deps.db.execution.findMany({ where, select: { spaceId: true } })
    expect(runs).toEqual(Array(2).fill({ spaceId }))
  })

  it('runs agents with all permissions of the user', async () => {
    const { as, token, organizationId } = await linked({ organization: 'All scopes' })
    const agent = { name: 'Ada', systemPrompt: 'You are Ada.', allowedTools: ['create_task'] }
    const characterId = (await request(server, 'POST', '/api/v1/agents', { token, body: agent })).body.id
    model.script({ toolCalls: [{ id: 'c', name: 'create_task', input: { title: 'Made' } }] }, { tokens: 'Done.' })
    const body = { characterId, message: 'Hi', spaceId: await createSpace(token) }
    expect((await request(server, 'POST', '/api/agent/execute', { token: as, body })).status).toBe(200)
    expect(await server.service.deps.db.task.count({ where: { organizationId } })).toBe(1)
  })

  it('loses all access with the next request after the membership has ended', async () => {
    const { as, token, organizationId, userId } = await linked({ organization: 'Left' })
    const space = await createSpace(token)
    expect((await environment(as, space)).status).toBe(200)
    await server.service.deps.db.membership.deleteMany({ where: { organizationId, userId } })
    expectError(await environment(as, space), 404, 'Space not found')
    expectError(await usage(as, organizationId), 403, FORBIDDEN)
  })

  type Who = Awaited<ReturnType<typeof linked>>
  // Both wait for the next check of memberships.
  it.concurrent.each<[string, (who: Who) => Promise<string>, (who: Who) => Promise<unknown>]>([
    [
      'the membership ends',
      async ({ as }) => as,
      ({ organizationId, userId }) =>
        server.service.deps.db.membership.deleteMany({ where: { organizationId, userId } }),
    ],
    ['the ID token expires', ({ sub }) => oidc.sign(claimsOf(sub, { exp: seconds() - 28 })), async () => {}],
  ])('loses an open stream when %s, and others continue', async (_, tokenOf, end) => {
    const [who, other] = [await linked(), await linked()]
    const space = await createSpace(other.token)
    const agent = { name: 'A', systemPrompt: 'x' }
    const { id: characterId } = (await request(server, 'POST', '/api/v1/agents', { token: other.token, body: agent }))
      .body
    const run = async (token: string) => {
      model.script({ tokens: ['one '], end: 'hang' })
      const body = { characterId, message: 'Hi', spaceId: space, stream: true }
      const stream = await openStream(server, '/api/agent/execute', { method: 'POST', token, body })
      while ((await stream.next())?.event !== 'message');
      return stream
    }
    await using going = await run(other.as)
    await using ending = await run(await tokenOf(who))
    await end(who)
    // The run is cancelled, which may be read before the stream ends.
    expect((await ending.rest()).every(({ event }) => event === 'error')).toBe(true)
    let open = true
    void going.next().then(
      () => {
        open = false
      },
      () => {},
    )
    await new Promise((resolve) => setImmediate(resolve))
    expect(open).toBe(true)
  })
})

it.each([
  ['an ID token', async () => oidc.sign(claimsOf('x')), INVALID],
  ['a look-alike of an ID token', async () => 'a.b.c', INVALID],
  ['no token at all', async () => 'nothing', FORMAT],
  ['an unknown token', async () => newToken('mst'), INVALID],
])('without a provider, %s is refused', async (_, token, message) => {
  await using other = await startServer()
  const options = { token: await token() }
  expectError(await request(other, 'GET', '/api/usage/organization/x', options), 401, message)
})

const warned: { fields: unknown; message: unknown }[] = []
const log = { warn: (fields: unknown, message: unknown) => void warned.push({ fields, message }) } as never

describe('the keys of the provider', () => {
  let idTokens: NonNullable<ReturnType<typeof createIdTokens>>
  const create = (more: Record<string, string> = {}) =>
    createIdTokens(readSettings({ OIDC_ISSUER: oidc.issuer, OIDC_AUDIENCE: AUDIENCE, ...more }), systemClock, log)!
  beforeEach(() => {
    idTokens = create()
    Object.assign(oidc.fetches, { jwks: 0, discovery: 0 })
  })
  afterEach(() => {
    oidc.broken = null
    vi.useRealTimers()
  })
  const verify = async (claims: JWTPayload = {}, options: Parameters<Oidc['sign']>[1] = {}) =>
    idTokens.verify(await oidc.sign(claimsOf('x', claims), options))
  const later = (seconds: number) => vi.setSystemTime(Date.now() + seconds * 1000)

  it('are fetched once, with the discovery document, by concurrent and later requests', async () => {
    await Promise.all(Array.from({ length: 10 }, () => verify()))
    await verify()
    expect(oidc.fetches).toEqual({ jwks: 1, discovery: 1 })
  })

  describe('of an issuer that differs from OIDC_ISSUER by a trailing slash', () => {
    it("use the provider's spelling of the issuer, and the log has both spellings once", async () => {
      const OIDC_ISSUER = `${oidc.issuer}/`
      idTokens = create({ OIDC_ISSUER })
      warned.length = 0
      for (let time = 0; time < 2; time++) expect((await verify()).issuer).toBe(oidc.issuer)
      expect(warned).toEqual([
        { fields: { configured: OIDC_ISSUER, spelling: oidc.issuer }, message: expect.stringContaining(oidc.issuer) },
      ])
      await expect(verify({ iss: OIDC_ISSUER })).rejects.toThrow(INVALID)
    })

    it('an issuer that differs by a trailing slash is refused with both spellings in the log', async () => {
      const OIDC_ISSUER = `${oidc.issuer}/`
      idTokens = create({ OIDC_ISSUER, OIDC_JWKS_URL: `${oidc.issuer}/jwks` })
      warned.length = 0
      await expect(verify()).rejects.toThrow(INVALID)
      expect(warned).toMatchObject([{ fields: { configured: OIDC_ISSUER, spelling: oidc.issuer } }])
    })
  })

  it('sign tokens of a mobile client in OIDC_CLIENT_IDS, and of no other', async () => {
    idTokens = create({ OIDC_CLIENT_IDS: 'ios-app, android-app' })
    for (const azp of ['ios-app', 'android-app', AUDIENCE]) expect((await verify({ azp })).subject).toBe('x')
    await expect(verify({ azp: 'another-app' })).rejects.toThrow(INVALID)
    await expect(verify({ azp: 'ios-app', aud: 'ios-app' })).rejects.toThrow(INVALID)
  })

  it.each([
    [true, 'x@example.com'],
    ['true', 'x@example.com'],
    [false, null],
    ['false', null],
    [1, null],
  ])('sign that email_verified is %j, which counts as %j', async (email_verified, email) => {
    expect((await verify({ email: 'X@example.com', email_verified })).email).toBe(email)
  })

  it('are fetched from OIDC_JWKS_URL without discovery', async () => {
    idTokens = create({ OIDC_JWKS_URL: `${oidc.issuer}/jwks` })
    await verify()
    expect(oidc.fetches).toEqual({ jwks: 1, discovery: 0 })
  })

  it('may change: a new one is found, and a removed one is refused', async () => {
    vi.useFakeTimers({ toFake: ['Date'] })
    const [before, after] = [oidc.key, await generateKey()]
    await verify()
    await oidc.rotate(after, before)
    later(31)
    await verify()
    await verify({}, { key: before })
    expect(oidc.fetches.jwks).toBe(2)
    await oidc.rotate(after)
    later(601)
    await verify()
    await expect(verify({}, { key: before })).rejects.toMatchObject({ status: 401, message: INVALID })
    await oidc.rotate(before)
  })

  it('are fetched again at most every half minute, however many unknown ones are named', async () => {
    vi.useFakeTimers({ toFake: ['Date'] })
    await verify()
    const unknown = (kid: string) => expect(verify({}, { header: { kid } })).rejects.toMatchObject({ status: 401 })
    for (let round = 0; round < 20; round++) await unknown(`a${round}`)
    expect(oidc.fetches.jwks).toBe(1)
    later(31)
    for (let round = 0; round < 20; round++) await unknown(`b${round}`)
    expect(oidc.fetches.jwks).toBe(2)
  })

  it.each<[string, Oidc['broken']]>([
    ['answers 500', (_, res) => void res.writeHead(500).end()],
    ['hangs up', (_, res) => void res.destroy()],
    ['says something else', (_, res) => void res.end('<html>')],
    [
      'speaks for another issuer',
      (_, res) => void res.end('{"issuer":"https://x.example","jwks_uri":"https://x.example"}'),
    ],
    [
      'names keys that are no address',
      (_, res) => void res.end(`{"issuer":"${oidc.issuer}","jwks_uri":"file:///etc"}`),
    ],
    [
      'answers with 2 MB',
      ({ url }, res) => {
        const { kty, n, e, kid, alg, use } = oidc.key.jwk
        const keys = { keys: [{ kty, n, e, kid, alg, use }] }
        const document = { issuer: oidc.issuer, jwks_uri: `${oidc.issuer}/jwks`, more: 'x'.repeat(2_000_000) }
        res.end(JSON.stringify(url === '/jwks' ? keys : document))
      },
    ],
  ])('keys of a provider that %s cause a 503, and can be fetched later', async (_, broken) => {
    oidc.broken = broken
    await expect(verify()).rejects.toMatchObject({ status: 503, detail: expect.stringContaining('identity provider') })
    oidc.broken = null
    await verify()
  })

  it('stay valid while the provider is away, also when callers name unknown keys', async () => {
    vi.useFakeTimers({ toFake: ['Date'] })
    await verify()
    oidc.broken = (_, res) => void res.destroy()
    later(31)
    await expect(verify({}, { header: { kid: 'unknown' } })).rejects.toMatchObject({ status: 503 })
    await verify()
  })
})
