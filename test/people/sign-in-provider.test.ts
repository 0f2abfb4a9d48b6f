import { once } from 'node:events'
import { get } from 'node:http'
import { text } from 'node:stream/consumers'
import { type JWTPayload, SignJWT, UnsecuredJWT } from 'jose'
import { beforeEach, describe, expect, it } from 'vitest'
import { claimOf, roleOf, verifiedEmail } from '../../src/auth/provider-claims.ts'
import type { Db, Tx } from '../../src/db/client.ts'
import { overrideMembers } from '../../src/db/override-members.ts'
import { signInByProvider } from '../../src/sessions/sign-in-provider.ts'
import { expectError } from '../support/api.ts'
import { newLink, setPassword, signedIn } from '../support/browser-session.ts'
import { movableClock } from '../support/clock.ts'
import { type Answer, CLIENT_ID, CLIENT_SECRET, respond, startIssuer } from '../support/issuer.ts'
import { generateKey } from '../support/oidc.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const START = '/api/auth/oidc/start'
const PASSWORD = 'eleven blue kettles sing'

const clock = movableClock()
const settings = () => ({
  OIDC_ISSUER: issuer.issuer,
  OIDC_CLIENT_ID: CLIENT_ID,
  OIDC_CLIENT_SECRET: CLIENT_SECRET,
  OIDC_ORGANIZATION: 'home',
  OIDC_ALLOWED_DOMAINS: 'home.example, other.example',
  OIDC_ROLE_CLAIM: 'realm.groups',
  OIDC_ROLE_MAP: '{"admins": "admin", "staff": "member"}',
})
const issuer = await use(startIssuer(clock))
const server = await use(startServer(settings(), { clock }))
await server.member({ organization: 'Home', role: 'owner' })
beforeEach(async () => {
  Object.assign(issuer, { broken: {}, reusesCodes: false })
  await db().signInLimit.deleteMany({})
})

const db = () => server.service.deps.db
let people = 0
const newAddress = (domain = 'home.example') => `person-${++people}@${domain}`

/** A browser that follows no redirect by itself, and keeps its cookies. */
function openBrowser({ url }: Pick<TestServer, 'url'> = server) {
  const jar = new Map<string, string>()
  const visit = async (address: string | URL, method = 'GET') => {
    const headers = { Cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; ') }
    const response = await fetch(new URL(address, url), { method, headers, redirect: 'manual' })
    for (const cookie of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? []
      if (value) jar.set(name, value)
      else jar.delete(name)
    }
    await response.text()
    return { status: response.status, headers: response.headers, to: response.headers.get('location') ?? '' }
  }
  return {
    jar,
    visit,
    /** Begins to sign in. Returns the address of the provider. */
    begin: async (returnTo?: string) =>
      (await visit(START + (returnTo === undefined ? '' : `?returnTo=${encodeURIComponent(returnTo)}`))).to,
    session: () =>
      request({ url, token: '' }, 'GET', '/api/auth/session', {
        token: null,
        headers: { Cookie: `muster=${jar.get('muster')}` },
      }),
  }
}
type TestBrowser = ReturnType<typeof openBrowser>

const problemOf = (address: string) => new URL(address).searchParams.get('problem')

/** Signs in at the provider. Returns the final page of the browser. */
async function signIn(answer: Answer, browser: TestBrowser = openBrowser()) {
  const { to } = await browser.visit(issuer.grant(await browser.begin(), answer))
  return { browser, to, problem: problemOf(to) }
}

const person = (sub: string, email: string, more: JWTPayload = {}): Answer => ({
  claims: { sub, email, email_verified: true, ...more },
})

describe('a person who signs in with the identity provider', () => {
  it('goes through the code flow with PKCE, state and nonce, to the requested page', async () => {
    const email = newAddress('elsewhere.example')
    const { userId, organizationId } = await server.member({ email, organization: 'Provided' })
    const browser = openBrowser()
    const begun = await browser.visit(`${START}?returnTo=${encodeURIComponent('/app/chat/1?x=ä#y')}`)
    expect([begun.status, begun.headers.get('cache-control'), begun.headers.get('referrer-policy')]).toEqual([
      302,
      'no-store',
      'no-referrer',
    ])
    const { origin, pathname, searchParams } = new URL(begun.to)
    expect(origin + pathname).toBe(`${issuer.issuer}/authorize`)
    expect(Object.fromEntries(searchParams)).toEqual({
      client_id: CLIENT_ID,
      redirect_uri: `${server.url}/api/auth/oidc/callback`,
      response_type: 'code',
      scope: 'openid email profile',
      state: expect.stringMatching(/^\w{43}$/),
      nonce: expect.stringMatching(/^\w{43}$/),
      code_challenge: expect.stringMatching(/^[\w-]{43}$/),
      code_challenge_method: 'S256',
    })
    expect(begun.headers.get('set-cookie')).toMatch(
      /^muster-oidc-\w{8}=[\w.-]+; Path=\/; HttpOnly; SameSite=Lax; Max-Age=600$/,
    )
    const finished = await browser.visit(issuer.grant(begun.to, person('provided', email.toUpperCase())))
    expect(finished.to).toBe(`${server.url}/app/chat/1?x=%C3%A4#y`)
    expect([...browser.jar.keys()]).toEqual(['muster'])
    const { body } = await browser.session()
    expect(body).toMatchObject({ user: { id: userId, email }, session: { method: 'oidc' } })
    const where = { organizationId, actor: userId }
    const events = await db().auditEvent.findMany({ where, orderBy: { id: 'asc' } })
    expect(events.map(({ action }) => action)).toEqual(expect.arrayContaining(['user.link', 'session.create']))
    const logs = server.logs.join('')
    for (const secret of ['code-1', 'access-', CLIENT_SECRET, email, searchParams.get('state')!]) {
      expect(logs).not.toContain(secret)
    }
  })

  it('is found by subject from then on, also after a change of the e-mail address', async () => {
    const email = newAddress()
    await signIn(person('constant', email))
    const { browser } = await signIn({ claims: { sub: 'constant', email: newAddress(), email_verified: false } })
    expect((await browser.session()).body.user.email).toBe(email)
  })

  it('may get the address, its verification and groups from the userinfo endpoint', async () => {
    const email = newAddress()
    const userinfo = { email, email_verified: true, name: ' Ada\0Lovelace\n', realm: { groups: ['x', 'admins'] } }
    const { browser } = await signIn({ claims: { sub: 'informed' }, userinfo })
    const { body } = await browser.session()
    expect(body).toMatchObject({ user: { email, name: 'Ada Lovelace', emailVerified: true }, role: 'admin' })
  })

  it('may use three tabs at once, and a fourth ends the others', async () => {
    const browser = openBrowser()
    const answer = person('tabs', newAddress())
    const begun = [await browser.begin('/app/1'), await browser.begin('/app/2'), await browser.begin('/app/3')]
    const paths = []
    for (const address of begun) {
      paths.push(new URL((await browser.visit(issuer.grant(address, answer))).to).pathname)
    }
    expect(paths).toEqual(['/app/1', '/app/2', '/app/3'])
    const [first] = [await browser.begin(), await browser.begin(), await browser.begin(), await browser.begin()]
    expect(browser.jar.size).toBe(2)
    expect(problemOf((await browser.visit(issuer.grant(first!, answer))).to)).toBe('expired')
  })

  it('becomes one user in two concurrent first sign-ins', async () => {
    const email = newAddress()
    const answers = await Promise.all([1, 2, 3].map(() => signIn(person('twice', email))))
    expect(answers.map(({ problem }) => problem)).toEqual([null, null, null])
    expect(await db().userIdentity.count({ where: { subject: 'twice' } })).toBe(1)
  })

  it('ends the previous session of the browser', async () => {
    const { userId } = await server.member()
    const { secret, id } = await signedIn(server, userId)
    const browser = openBrowser()
    browser.jar.set('muster', secret)
    await signIn(person('newcomer', newAddress()), browser)
    expect(browser.jar.get('muster')).not.toBe(secret)
    expect(await db().browserSession.count({ where: { id } })).toBe(0)
  })
})

describe('the answer of a provider', () => {
  const bad = (change: NonNullable<Answer['change']>): Answer => ({ ...person('bad', newAddress()), change })
  const signed = (sign: NonNullable<Answer['sign']>): Answer => ({ ...person('bad', newAddress()), sign })
  const without = (name: string) => bad(({ [name]: _, ...claims }) => claims)

  it.each<[string, () => Answer, string]>([
    ['for another client', () => bad((claims) => ({ ...claims, aud: 'another' })), 'invalid_answer'],
    [
      'for two clients without a party',
      () => bad((claims) => ({ ...claims, aud: [CLIENT_ID, 'b'] })),
      'invalid_answer',
    ],
    ['for another party', () => bad((claims) => ({ ...claims, aud: [CLIENT_ID, 'b'], azp: 'b' })), 'invalid_answer'],
    ['of another issuer', () => bad((claims) => ({ ...claims, iss: 'https://evil.example' })), 'invalid_answer'],
    ['with another nonce', () => bad((claims) => ({ ...claims, nonce: 'x' })), 'invalid_answer'],
    ['without a nonce', () => without('nonce'), 'invalid_answer'],
    ['without a subject', () => without('sub'), 'invalid_answer'],
    ['with an endless subject', () => bad((claims) => ({ ...claims, sub: 'x'.repeat(256) })), 'invalid_answer'],
    ['with a NUL in the subject', () => bad((claims) => ({ ...claims, sub: 'a\0b' })), 'invalid_answer'],
    ['without a time', () => without('exp'), 'invalid_answer'],
    ['that is too old', () => bad((claims) => ({ ...claims, exp: claims.iat! - 60 })), 'clock'],
    ['that begins later', () => bad((claims) => ({ ...claims, nbf: claims.iat! + 600 })), 'clock'],
    ['without a signature', () => signed((claims) => new UnsecuredJWT(claims).encode()), 'invalid_answer'],
    [
      'signed by another key',
      () =>
        signed(async (claims, { kid }) => {
          const { alg, privateKey } = await generateKey()
          return new SignJWT(claims).setProtectedHeader({ alg, kid }).sign(privateKey)
        }),
      'invalid_answer',
    ],
    [
      'signed with the client secret',
      () =>
        signed((claims) =>
          new SignJWT(claims).setProtectedHeader({ alg: 'HS256' }).sign(Buffer.from(CLIENT_SECRET.padEnd(32))),
        ),
      'invalid_answer',
    ],
    ['without an ID token', () => ({ tokens: ({ id_token, ...body }) => body }), 'invalid_answer'],
    ['with another type of token', () => ({ tokens: (body) => ({ ...body, token_type: 'mac' }) }), 'provider_error'],
    ['with an unverified address', () => bad((claims) => ({ ...claims, email_verified: false })), 'unverified'],
    ['with an address verified by a word', () => bad((claims) => ({ ...claims, email_verified: 'yes' })), 'unverified'],
    [
      'with an address of Microsoft’s kind',
      () => bad(({ email_verified, ...claims }) => ({ ...claims, xms_edov: true })),
      'unverified',
    ],
    ['without an address', () => ({ claims: { sub: 'nobody' } }), 'unverified'],
    [
      'with an address that is no text',
      () => bad((claims) => ({ ...claims, email: ['x@home.example'] })),
      'unverified',
    ],
    [
      'with a verification that has no address beside it',
      () => ({ claims: { sub: 'mixed', email: newAddress() }, userinfo: { sub: 'mixed', email_verified: true } }),
      'unverified',
    ],
    ['with an unknown address', () => person('stranger', newAddress('elsewhere.example')), 'unknown'],
    ['with an address below an allowed domain', () => person('sub', newAddress('evil.home.example')), 'unknown'],
    [
      'with an address that ends like an allowed domain',
      () => person('end', newAddress('evilhome.example')),
      'unknown',
    ],
    [
      'with information about another subject',
      () => ({ claims: { sub: 'victim' }, userinfo: { sub: 'thief', email: newAddress(), email_verified: true } }),
      'invalid_answer',
    ],
  ])('%s is refused with a page that shows the reason', async (_, answer, problem) => {
    const users = await db().user.count()
    const { browser, to } = await signIn(answer())
    expect(problemOf(to)).toBe(problem)
    expect([...browser.jar]).toEqual([])
    expect(await db().user.count()).toBe(users)
    const page = await (await fetch(to)).text()
    expect(page).toMatch(/role="alert" id="problem">[A-Z][^<]{40,}<\/p>/)
  })

  it.each<[string, (back: URL) => void, string]>([
    [
      'for a sign-in that was cancelled',
      (back) => (back.search = `?error=access_denied&state=${stateOf(back)}`),
      'refused',
    ],
    ['that it is not well', (back) => (back.search = `?error=server_error&state=${stateOf(back)}`), 'provider_down'],
    [
      'that the request is wrong',
      (back) => (back.search = `?error=invalid_scope&state=${stateOf(back)}`),
      'provider_error',
    ],
    [
      'with the name of another issuer',
      (back) => back.searchParams.set('iss', 'https://evil.example'),
      'invalid_answer',
    ],
    ['with a wrong code', (back) => back.searchParams.set('code', 'guessed'), 'expired'],
    ['without a code', (back) => back.searchParams.delete('code'), 'invalid_answer'],
    ['with two codes', (back) => back.searchParams.append('code', 'another'), 'invalid_answer'],
    ['without a state', (back) => back.searchParams.delete('state'), 'expired'],
    ['with an unknown state', (back) => back.searchParams.set('state', 'x'.repeat(43)), 'expired'],
    [
      'with a state that only begins right',
      (back) => back.searchParams.set('state', `${stateOf(back).slice(0, 8)}x`),
      'expired',
    ],
  ])('%s is refused', async (_, change, problem) => {
    const browser = openBrowser()
    const back = issuer.grant(await browser.begin(), person('changed', newAddress()))
    change(back)
    expect(problemOf((await browser.visit(back)).to)).toBe(problem)
    expect(browser.jar.has('muster')).toBe(false)
  })
  const stateOf = (back: URL) => back.searchParams.get('state') ?? ''

  it('the answer of a provider with the name of the issuer signs in', async () => {
    const browser = openBrowser()
    const back = issuer.grant(await browser.begin(), person('named', newAddress()))
    back.searchParams.set('iss', issuer.issuer)
    expect(problemOf((await browser.visit(back)).to)).toBeNull()
  })

  it('counts only in the browser of its request, and once', async () => {
    const [own, other] = [openBrowser(), openBrowser()]
    const answer = person('bound', newAddress())
    const back = issuer.grant(await own.begin(), answer)
    await other.begin()
    expect(problemOf((await other.visit(back)).to)).toBe('expired')
    issuer.reusesCodes = true
    const flow = [...own.jar]
    const before = issuer.redeemed.length
    expect(problemOf((await own.visit(back)).to)).toBeNull()
    for (const [name, value] of flow) own.jar.set(name, value)
    expect(problemOf((await own.visit(back)).to)).toBe('expired')
    expect(issuer.redeemed.length).toBe(before + 1)
  })

  it('is not accepted for another sign-in of the same browser', async () => {
    const browser = openBrowser()
    const [one, two] = [await browser.begin(), await browser.begin()]
    const back = issuer.grant(one, person('mixed', newAddress()))
    back.searchParams.set('state', new URL(two).searchParams.get('state') ?? '')
    expect(problemOf((await browser.visit(back)).to)).toBe('expired')
  })

  it('comes too late after ten minutes', async () => {
    const browser = openBrowser()
    const back = issuer.grant(await browser.begin(), person('late', newAddress()))
    clock.advance(10 * 60_000)
    expect(problemOf((await browser.visit(back)).to)).toBe('expired')
  })

  it('the answer of a provider with a changed cookie is refused', async () => {
    const browser = openBrowser()
    const back = issuer.grant(await browser.begin(), person('changed', newAddress()))
    const [[name, value] = ['', '']] = browser.jar
    const bytes = Buffer.from(value, 'base64url')
    expect(bytes.toString('latin1')).not.toMatch(/verifier|returnTo/)
    bytes[bytes.length - 1]! ^= 1
    for (const forged of [bytes.toString('base64url'), value.slice(0, 20), '.', 'x']) {
      browser.jar.set(name, forged)
      expect(problemOf((await browser.visit(back)).to)).toBe('expired')
    }
  })

  it('an answer with a wrong code counts: after five from one network further ones are refused', async () => {
    const guess = async () => {
      const browser = openBrowser()
      const back = issuer.grant(await browser.begin())
      back.searchParams.set('code', 'guessed')
      return problemOf((await browser.visit(back)).to)
    }
    const problems = []
    for (let time = 0; time < 6; time++) problems.push(await guess())
    expect(problems).toEqual([...Array(5).fill('expired'), 'too_many'])
  })
})

describe('a provider', () => {
  const NO_ANSWER: [string, string, ReturnType<typeof respond>, string][] = [
    ['fails', '/token', respond(500, 'oops', 'text/plain'), 'provider_down'],
    ['hangs up', '/token', (req) => void req.socket.destroy(), 'provider_down'],
    ['answers with a page', '/token', respond(200, '<html>', 'text/html'), 'provider_error'],
    ['answers with broken JSON', '/token', respond(200, '{"access_token":'), 'provider_error'],
    ['refuses the client', '/token', respond(401, '{"error": "invalid_client"}'), 'provider_error'],
    ['redirects', '/token', respond(307, '', 'text/plain', { Location: 'http://127.0.0.1:9/' }), 'provider_error'],
    ['answers without end', '/token', respond(200, ' '.repeat(2 * 1024 * 1024)), 'provider_error'],
    ['fails about the person', '/userinfo', respond(503, '{}'), 'provider_down'],
  ]
  it.each(NO_ANSWER)(
    'a provider that %s leads to a page with the reason, and works again later',
    async (_, path, answer, problem) => {
      issuer.broken = { [path]: answer }
      const claims = {
        sub: 'patient',
        ...(path === '/token' && { email: 'patient@home.example', email_verified: true }),
      }
      expect((await signIn({ claims })).problem).toBe(problem)
      issuer.broken = {}
      expect((await signIn(person('patient', 'patient@home.example'))).problem).toBeNull()
    },
  )

  it('a provider that quotes the request in its refusal leaves no secret of it in the log', async () => {
    const quoting: ReturnType<typeof respond> = async (req, res) => {
      const form = `${await text(req)} client_secret=${CLIENT_SECRET}`
      respond(400, JSON.stringify({ error: 'invalid_client', error_description: `refused: ${form}` }))(req, res)
    }
    issuer.broken = { '/token': quoting }
    const browser = openBrowser()
    const back = issuer.grant(await browser.begin(), person('quoted', newAddress()))
    expect(problemOf((await browser.visit(back)).to)).toBe('provider_error')
    const logged = server.logs.join('')
    expect(logged).toMatch(/"reason":"the provider answered 400 invalid_client refused: .*\[removed\]/)
    expect(logged).not.toContain(CLIENT_SECRET)
    expect(logged).not.toContain(back.searchParams.get('code'))
  })

  it('a provider that was corrected after a failed sign-in is asked for its document again', async () => {
    await using other = await startServer(settings())
    const discovery = '/.well-known/openid-configuration'
    const found = await (await fetch(issuer.issuer + discovery)).text()
    // An authentik provider without a signing key signs so.
    issuer.broken = { [discovery]: respond(200, found.replace('RS256', 'HS256')) }
    const attempt = async () => problemOf((await signIn(person('corrected', newAddress()), openBrowser(other))).to)
    expect(await attempt()).toBe('invalid_answer')
    issuer.broken = {}
    expect(await attempt()).toBe('unknown')
  })

  it('a provider that is away at the first sign-in leads to a page, and is asked again', async () => {
    await using other = await startServer(settings())
    const discovery = '/.well-known/openid-configuration'
    const failures: [ReturnType<typeof respond>, string][] = [
      [(req) => void req.socket.destroy(), 'provider_down'],
      [respond(503, 'away', 'text/plain'), 'provider_down'],
      [respond(404, 'nothing', 'text/plain'), 'provider_error'],
      [respond(200, '{"issuer": "https://evil.example", "jwks_uri": "https://evil.example/"}'), 'provider_error'],
    ]
    for (const [answer, problem] of failures) {
      issuer.broken = { [discovery]: answer }
      const { to } = await openBrowser(other).visit(`${START}?returnTo=/app/tasks`)
      const { pathname, searchParams } = new URL(to)
      expect([pathname, Object.fromEntries(searchParams)]).toEqual([
        '/app/sign-in',
        { problem, returnTo: '/app/tasks' },
      ])
    }
    issuer.broken = {}
    expect(new URL(await openBrowser(other).begin()).origin).toBe(issuer.issuer)
    expect(other.logs.join('')).toContain('sign-in with the identity provider failed')
  })
})

describe('the path to return to', () => {
  it.each([
    'https://evil.example',
    '//evil.example',
    '/\\evil.example',
    '/\t/evil.example',
    'javascript:alert(1)',
    'app',
    '',
    `/${'x'.repeat(3_000)}`,
  ])('%j is ignored, so that the console opens', async (returnTo) => {
    const browser = openBrowser()
    const { to } = await browser.visit(
      issuer.grant(await browser.begin(returnTo), person('wanderer', 'w@home.example')),
    )
    expect(to).toBe(`${server.url}/app`)
  })

  it.each(['/.//evil.example', '/app/..//evil.example', '/%2F/evil.example'])('%s stays here', async (returnTo) => {
    const browser = openBrowser()
    const { to } = await browser.visit(
      issuer.grant(await browser.begin(returnTo), person('wanderer', 'w@home.example')),
    )
    expect(new URL(to).origin).toBe(server.url)
  })
})

describe('the first sign-in of an address', () => {
  it('ends the password, sessions and tokens of a user with an unverified address', async () => {
    const email = newAddress()
    const { userId, token } = await server.member({ email })
    await setPassword(server, userId, PASSWORD)
    await db().user.update({ where: { id: userId }, data: { emailVerified: false }, select: { id: true } })
    const planted = await signedIn(server, userId)
    await newLink(server, userId)
    expect((await request(server, 'GET', '/api/v1/profile', { token })).status).toBe(200)
    const { browser } = await signIn(person('owner of the address', email))
    expect((await browser.session()).body.user).toMatchObject({ id: userId, emailVerified: true, hasPassword: false })
    expectError(
      await request(server, 'GET', '/api/v1/profile', { token }),
      401,
      'Unauthorized. Invalid or expired token',
    )
    const { status } = await request(server, 'GET', '/api/auth/session', { token: null, headers: planted.headers })
    expect(status).toBe(401)
    expect(await db().oneTimeLink.count({ where: { userId } })).toBe(0)
  })

  it('keeps the password of a user whose address was verified', async () => {
    const email = newAddress()
    const { userId, token } = await server.member({ email })
    await setPassword(server, userId, PASSWORD)
    await signIn(person('known', email))
    expect((await db().user.findUniqueOrThrow({ where: { id: userId } })).passwordHash).not.toBeNull()
    expect((await request(server, 'GET', '/api/v1/profile', { token })).status).toBe(200)
  })

  it('is refused for a user who is linked to another subject, with an audit event', async () => {
    const email = newAddress()
    const { organizationId, userId } = await server.member({ email })
    await signIn(person('original', email))
    expect((await signIn(person('thief', email))).problem).toBe('other_identity')
    const where = { organizationId, action: 'session.fail', target: userId }
    expect(await db().auditEvent.count({ where })).toBe(1)
  })

  it('makes a member of an invited person, with the invited role, and uses the invitation up', async () => {
    const email = newAddress('elsewhere.example')
    const { token, organizationId } = await server.member({ organization: 'Inviting', role: 'admin' })
    const path = `/api/v1/organizations/${organizationId}/invitations`
    await request(server, 'POST', path, { body: { email, role: 'admin' }, token })
    const { browser } = await signIn(person('invited', email, { name: 'Grace' }))
    const { body } = await browser.session()
    expect(body).toMatchObject({ user: { name: 'Grace' }, organization: { id: organizationId }, role: 'admin' })
    expect((await request(server, 'GET', path, { token })).body.invitations).toEqual([])
    const where = { organizationId, actor: body.user.id }
    const events = await db().auditEvent.findMany({ where })
    expect(events.map(({ action }) => action)).toEqual(
      expect.arrayContaining(['invitation.accept', 'member.add', 'user.link']),
    )
  })

  it('makes no member if the inviter has left, or the invitation is too old', async () => {
    const [left, old] = [newAddress('elsewhere.example'), newAddress('elsewhere.example')]
    const { token, organizationId, userId } = await server.member({ organization: 'Leaving', role: 'admin' })
    const path = `/api/v1/organizations/${organizationId}/invitations`
    for (const email of [left, old]) await request(server, 'POST', path, { body: { email, role: 'member' }, token })
    await db().invitation.updateMany({ where: { email: old }, data: { expiresAt: new Date(0) } })
    expect((await signIn(person('old', old))).problem).toBe('unknown')
    await db().membership.deleteMany({ where: { organizationId, userId } })
    expect((await signIn(person('left', left))).problem).toBe('unknown')
  })

  it('joins OIDC_ORGANIZATION from an allowed domain, once: a removed member stays away', async () => {
    const email = newAddress('OTHER.example')
    const answer = person('joining', email)
    const { browser } = await signIn(answer)
    const { user, organization, role } = (await browser.session()).body
    expect([organization.slug, role]).toEqual(['home', 'member'])
    const owner = await server.member({ organization: 'Home', role: 'owner' })
    const path = `/api/v1/organizations/${organization.id}/members/${user.id}`
    expect((await request(server, 'DELETE', path, { token: owner.token })).status).toBe(200)
    expect((await (await signIn(answer)).browser.session()).body.organizations).toEqual([])
    await db().userIdentity.deleteMany({ where: { userId: user.id } })
    expect((await (await signIn(answer)).browser.session()).body.organizations).toEqual([])
  })

  it('joins a user of another organization, too', async () => {
    const email = newAddress()
    await server.member({ email, organization: 'Elsewhere' })
    const { browser } = await signIn(person('both', email))
    const slugs = (await browser.session()).body.organizations.map(({ slug }: { slug: string }) => slug)
    expect(slugs).toEqual(['elsewhere', 'home'])
  })
})

describe('the role claim', () => {
  const signInAs = async (sub: string, email: string, groups: unknown) => {
    const { browser } = await signIn(person(sub, email, { realm: { groups } }))
    return (await browser.session()).body.role
  }

  it('sets the role at each sign-in, and the audit log has the change', async () => {
    const email = newAddress()
    const roles = []
    for (const groups of [['staff'], ['staff', 'admins'], 'admins', [], ['unknown', 7, null], undefined]) {
      roles.push(await signInAs('climber', email, groups))
    }
    expect(roles).toEqual(['member', 'admin', 'admin', 'member', 'member', 'member'])
    const { id } = await db().user.findUniqueOrThrow({ where: { email }, select: { id: true } })
    const changes = await db().auditEvent.findMany({
      where: { action: 'member.update', target: id },
      orderBy: { id: 'asc' },
    })
    expect(changes.map(({ changes }) => JSON.parse(changes ?? '').role)).toEqual([
      { from: 'member', to: 'admin' },
      { from: 'admin', to: 'member' },
    ])
  })

  it('leaves the role as it is if the provider withholds the groups, and the log says so', async () => {
    const email = newAddress()
    await signInAs('popular', email, ['admins'])
    const { browser } = await signIn(person('popular', email, { _claim_names: { realm: 'src1' } }))
    expect((await browser.session()).body.role).toBe('admin')
    expect(server.logs.join('')).toContain('OIDC_ROLE_CLAIM=roles')
  })

  it('leaves an owner an owner, and touches no other organization', async () => {
    const email = newAddress()
    await server.member({ email, organization: 'Home', role: 'owner' })
    expect(await signInAs('owner', email, ['staff'])).toBe('owner')
    const other = newAddress('elsewhere.example')
    await server.member({ email: other, organization: 'Elsewhere', role: 'admin' })
    expect(await signInAs('other', other, ['staff'])).toBe('admin')
  })

  it('leaves a user an owner who becomes one at that moment', async () => {
    const email = newAddress()
    await signInAs('promoted', email, ['staff'])
    const { deps } = server.service
    const { id: userId } = await db().user.findUniqueOrThrow({ where: { email }, select: { id: true } })
    const promoting = overrideMembers(deps.db, {
      $transaction: async (work: (tx: Tx) => Promise<unknown>) => {
        await deps.db.membership.updateMany({ where: { userId }, data: { role: 'owner' } })
        return deps.db.$transaction(work)
      },
    }) as Db
    const client = { address: undefined, userAgent: undefined }
    const context = { deps: { ...deps, db: promoting }, client, requestId: 'x', cookie: undefined, setCookie() {} }
    const identity = { issuer: issuer.issuer, subject: 'promoted', email, name: null, role: 'admin' } as const
    await signInByProvider(context, identity)
    expect(await db().auditEvent.count({ where: { action: 'member.update', target: userId } })).toBe(0)
  })

  it('ends the open streams of an admin who is demoted', async () => {
    const email = newAddress()
    await signInAs('demoted', email, ['admins'])
    const { id: userId } = await db().user.findUniqueOrThrow({ where: { email }, select: { id: true } })
    const { headers } = await signedIn(server, userId)
    const chat = (await request(server, 'POST', '/api/v1/chats', { body: {}, token: null, headers })).body
    const stream = await fetch(`${server.url}/api/v1/chats/${chat.id}/events`, { headers })
    expect(stream.status).toBe(200)
    await signInAs('demoted', email, [])
    await stream.text().catch(() => '')
  })
})

describe('a claim', () => {
  const microsoft = 'https://login.microsoftonline.com/0000/v2.0'
  it.each([
    [{ email: 'A@x.example', email_verified: true }, 'a@x.example'],
    [{ email: 'a@x.example', email_verified: 'true' }, 'a@x.example'],
    [{ email: 'a@x.example' }, null],
    [{ email: 'a@x.example', xms_edov: true }, null],
    [{ iss: microsoft, email: 'a@x.example', xms_edov: true }, 'a@x.example'],
    [{ iss: microsoft, email: 'a@x.example', xms_edov: '1' }, 'a@x.example'],
    [{ iss: microsoft, email: 'a@x.example', xms_edov: 0 }, null],
    [{ iss: microsoft, email: 'a@x.example', xms_edov: true, email_verified: false }, null],
    [{ iss: `https://evil.example/${microsoft}`, email: 'a@x.example', xms_edov: true }, null],
  ])('%j verifies %s', (claims, email) => {
    expect(verifiedEmail(claims)).toBe(email)
  })

  it('has nothing behind a claim that is null', () => {
    expect(claimOf({ realm: null }, 'realm.roles')).toBeUndefined()
  })

  it('maps to no role by the name of a built-in property', () => {
    expect(roleOf(['constructor', '__proto__'], { admins: 'admin' })).toBe('member')
  })
})

it('without an identity provider there is no button, and the routes report that', async () => {
  await using other = await startServer()
  const page = await (await fetch(`${other.url}/app/sign-in`)).text()
  expect(page).not.toContain('oidc')
  const browser = openBrowser(other)
  for (const path of [START, '/api/auth/oidc/callback?code=x&state=y']) {
    expect(problemOf((await browser.visit(path)).to)).toBe('off')
  }
  const own = await (await fetch(`${server.url}/app/sign-in?returnTo=/app/tasks`)).text()
  expect(own).toContain('href="/api/auth/oidc/start?returnTo=%2Fapp%2Ftasks"')
})

it('both routes accept only GET, so that a link checker uses up no code', async () => {
  const browser = openBrowser()
  const back = issuer.grant(await browser.begin(), person('checked', newAddress()))
  for (const method of ['HEAD', 'POST', 'DELETE']) expect((await browser.visit(back, method)).status).toBe(405)
  expect((await browser.visit('/api/auth/oidc/else')).status).toBe(404)
  expect(problemOf((await browser.visit(back)).to)).toBeNull()
})

it.runIf(onPostgres)('a sign-in can start on one server and end on another one, once', async () => {
  await using other = await startServer(
    { ...settings(), ...server.databaseEnv, DATA_DIR: server.folder },
    { folder: server.folder },
  )
  const browser = openBrowser()
  const back = issuer.grant(await browser.begin(), person('moving', newAddress()))
  const flow = [...browser.jar]
  const there = new URL(back.pathname + back.search, other.url)
  const headers = { Cookie: flow.map((pair) => pair.join('=')).join('; '), Host: new URL(server.url).host }
  const [answer] = await once(get(there, { headers }), 'response')
  answer.resume()
  expect(problemOf(answer.headers.location)).toBeNull()
  issuer.reusesCodes = true
  expect(problemOf((await browser.visit(back)).to)).toBe('expired')
})
