import crypto from 'node:crypto'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { networkOf } from '../../src/auth/sign-in-limits.ts'
import { inTransaction } from '../../src/idempotency.ts'
import { useLink } from '../../src/sessions/passwords.ts'
import { expectError } from '../support/api.ts'
import { newLink as makeLink, setPassword, signedIn } from '../support/browser-session.ts'
import { freePort } from '../support/free-port.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { ownPage, type RequestOptions, request } from '../support/rest.ts'
import { send } from '../support/send.ts'
import { type Member, record, startServer, type TestServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"
const WRONG = 'Wrong e-mail address or password'
const PASSWORD = 'eleven blue kettles sing'
const NEXT = 'twelve red kettles whistle'

const server = await use(startServer())
const proxied = await use(startServer({ TRUST_PROXY: 'true' }))
beforeEach(() => server.service.deps.db.signInLimit.deleteMany({}))

const db = () => server.service.deps.db

/** Sends a request without a token. */
const ask = (method: string, path: string, options: RequestOptions = {}) =>
  request(server, method, path, { token: null, ...options })

const login = (email: string, password: string, headers: Record<string, string> = {}) =>
  ask('POST', '/api/auth/login', { body: { email, password }, headers })

/** The cookies that the answer sets. */
const cookieOf = ({ headers }: { headers: Headers }) => /^muster=[^;]*/.exec(headers.get('set-cookie') ?? '')?.[0] ?? ''

let people = 0
async function person(options: Parameters<TestServer['member']>[0] = {}): Promise<Member & { email: string }> {
  const email = `person-${++people}@example.com`
  const member = await server.member({ email, ...options })
  await setPassword(server, member.userId, PASSWORD)
  return { ...member, email }
}

/** The locks that a transaction on PostgreSQL waits for. */
const waiting = () => db().$queryRaw<object[]>`SELECT 1 FROM pg_locks WHERE NOT "granted"`

const newLink = (userId: string, purpose?: 'reset_password') => makeLink(server, userId, purpose)

describe('signing in with a password', () => {
  it('gives a cookie that pages cannot read and that opens every API as its user', async () => {
    const { email, userId, organizationId } = await person({ role: 'admin' })
    const answer = await login(email.toUpperCase(), PASSWORD)
    expect(answer.status).toBe(200)
    expect(answer.body).toMatchObject({
      success: true,
      user: { id: userId, email, hasPassword: true },
      organization: { id: organizationId },
      role: 'admin',
      scopes: ['*'],
      session: { method: 'password', current: true },
    })
    expect(answer.headers.get('set-cookie')).toMatch(
      /^muster=[0-9A-Za-z]{43}; Path=\/; HttpOnly; SameSite=Lax; Max-Age=34560000$/,
    )
    const headers = { ...ownPage(server), Cookie: cookieOf(answer) }
    expect((await ask('GET', '/api/v1/profile', { headers })).body.profile.id).toBe(userId)
    const created = await ask('POST', '/api/v1/agents', { headers, body: { name: 'Ada', systemPrompt: 'x' } })
    expect(created.status).toBe(200)
    const trpc = await ask('GET', '/trpc/profile.get', { headers })
    expect(trpc.body.result.data.profile.id).toBe(userId)
    const graphql = await ask('POST', '/graphql', { headers, body: { query: '{ profile { id } }' } })
    expect(graphql.body.data.profile.id).toBe(userId)
    const stored = await db().browserSession.findMany({ where: { userId } })
    expect(JSON.stringify(stored)).not.toContain(cookieOf(answer).slice('muster='.length))
  })

  it('is refused in a streamed batch, whose answer can set no cookie', async () => {
    const { email, userId } = await person()
    const headers = { ...ownPage(server), 'trpc-accept': 'application/jsonl' }
    const inputs = { signIn: { email, password: PASSWORD }, acceptInvitation: { code: 'x'.repeat(43), name: 'Guest' } }
    for (const [name, input] of Object.entries(inputs)) {
      const { text } = await send(`${server.url}/trpc/sessions.${name}?batch=1`, {
        method: 'POST',
        headers: { ...headers, 'Content-Type': 'application/json' },
        body: JSON.stringify({ 0: input }),
      })
      expect(text).toContain('Sign in or out without streaming')
    }
    expect(await db().browserSession.count({ where: { userId } })).toBe(0)
  })

  it('answers equally for a wrong password, an unknown address and a user without a password', async () => {
    const { email } = await person()
    const other = await server.member({ email: `none-${++people}@example.com` })
    const { email: without } = await db().user.findUniqueOrThrow({ where: { id: other.userId } })
    const answers = []
    for (const each of [email, `unknown-${people}@example.com`, without, 'no address', 'K\u212A@example.com']) {
      const answer = await login(each, 'something else')
      expectError(answer, 401, WRONG)
      expect(answer.headers.get('set-cookie')).toBeNull()
      answers.push({ ...answer.body, requestId: '' })
    }
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1)
  })

  it('computes one hash for an unknown address, as for a known one', async () => {
    const { email } = await person()
    const hash = vi.spyOn(crypto, 'argon2')
    await login(email, 'wrong')
    await login(`unknown-${++people}@example.com`, 'wrong')
    const calls = hash.mock.calls.map(([name, { memory, passes }]) => ({ name, memory, passes }))
    hash.mockRestore()
    expect(calls).toEqual(Array(2).fill({ name: 'argon2id', memory: 19_456, passes: 2 }))
  })

  it('is refused the sixth time for an account, with the seconds to wait, while others sign in', async () => {
    const [one, two] = [await person(), await person()]
    for (let time = 0; time < 5; time++) expectError(await login(one.email, 'wrong'), 401, WRONG)
    const refused = await login(one.email, PASSWORD)
    const seconds = Number(refused.headers.get('retry-after'))
    expect(seconds).toBeGreaterThan(890)
    expect(seconds).toBeLessThanOrEqual(900)
    expectError(refused, 429, `Rate limit exceeded. Retry after ${seconds} seconds.`)
    expect(refused.body.detail).toContain('ask the operator for a sign-in link')
    expect((await login(two.email, PASSWORD)).status).toBe(200)
    // The same failures a quarter of an hour ago.
    for (const { key, times } of await db().signInLimit.findMany()) {
      await db().signInLimit.update({ where: { key }, data: { times: (times as number[]).map((at) => at - 900_000) } })
    }
    expect((await login(one.email, PASSWORD)).status).toBe(200)
  })

  it('is refused for an IP address after twenty failures, also concurrent ones', async () => {
    const { email } = await person()
    const tries = Array.from({ length: 25 }, (_, index) => login(`nobody-${index}@example.com`, 'wrong'))
    const statuses = (await Promise.all(tries)).map(({ status }) => status)
    expect(statuses.filter((status) => status === 401)).toHaveLength(20)
    expect((await login(email, PASSWORD)).status).toBe(429)
  })

  it.runIf(onPostgres)('is refused after five failures on two servers together, on both', async () => {
    const { email } = await person()
    await using other = await startServer({ ...server.databaseEnv, DATA_DIR: server.folder }, { folder: server.folder })
    const there = async (password: string) => {
      const options = { body: { email, password }, token: null }
      return (await request(other, 'POST', '/api/auth/login', options)).status
    }
    const statuses = await Promise.all([1, 2, 3, 4].map((n) => there(`wrong ${n}`)))
    expect([...statuses, (await login(email, 'wrong')).status]).toEqual(Array(5).fill(401))
    expect([await there(PASSWORD), (await login(email, PASSWORD)).status]).toEqual([429, 429])
  })

  it('ignores successes in its limits', async () => {
    const { email } = await person()
    for (let time = 0; time < 22; time++) expect((await login(email, PASSWORD)).status).toBe(200)
  })

  it('ends the previous session of the browser, which makes a planted cookie useless', async () => {
    const [attacker, victim] = [await person(), await person()]
    const planted = cookieOf(await login(attacker.email, PASSWORD))
    const answer = await login(victim.email, PASSWORD, { Cookie: planted })
    expect(cookieOf(answer)).not.toBe(planted)
    expectError(await ask('GET', '/api/auth/session', { headers: { Cookie: planted } }), 401, 'Sign in required')
    const chosen = `muster=${'A'.repeat(43)}`
    const other = await login(victim.email, PASSWORD, { Cookie: chosen })
    expect(cookieOf(other)).not.toBe(chosen)
    expectError(await ask('GET', '/api/auth/session', { headers: { Cookie: chosen } }), 401, 'Sign in required')
  })

  it('is in the audit log of each organization, failures too, and no password is in the log', async () => {
    const { email, userId, organizationId } = await person({ organization: 'Audited' })
    await login(email, 'quite-a-wrong-secret')
    await login(email, PASSWORD)
    const where = { organizationId, actor: userId, action: { in: ['session.create', 'session.fail'] } }
    await expect.poll(() => db().auditEvent.count({ where })).toBe(2)
    const events = await db().auditEvent.findMany({ where })
    for (const event of events) expect(event).toMatchObject({ ip: '127.0.0.1', requestId: expect.any(String) })
    expect(await db().auditEvent.count({ where: { actor: userId, NOT: { organizationId } } })).toBe(0)
    await login('stranger@example.com', 'quite-a-wrong-secret')
    await expect.poll(() => server.logs.join('')).toContain('unknown e-mail address')
    const logs = server.logs.join('')
    for (const secret of ['quite-a-wrong-secret', PASSWORD, 'stranger@']) expect(logs).not.toContain(secret)
  })
})

describe('a browser session', () => {
  it('a browser session of a user of several organizations names one in a header or a query', async () => {
    const one = await person({ organization: 'First of two' })
    const two = await server.member({ email: one.email, organization: 'Second of two' })
    const { headers } = await signedIn(server, one.userId)
    const missing = await ask('GET', '/api/v1/agents', { headers })
    expectError(missing, 400, 'Missing required header: X-Organization')
    for (const name of [two.organizationId, 'second-of-two']) {
      const inHeader = await ask('GET', '/api/v1/profile', { headers: { ...headers, 'X-Organization': name } })
      expect(inHeader.body.profile.organization.id).toBe(two.organizationId)
      const inQuery = await ask('GET', `/api/v1/profile?organization=${name}`, { headers })
      expect(inQuery.body.profile.organization.id).toBe(two.organizationId)
    }
    const write = await ask('POST', `/api/v1/agents?organization=${two.organizationId}`, { headers, body: {} })
    expect(write.status).toBe(400)
    const session = await ask('GET', '/api/auth/session', { headers })
    expect(session.body).toMatchObject({ organization: null, role: null, organizations: [{}, {}] })
  })

  it('a session or a token names an organization by a former slug until that ends', async () => {
    const { userId, organizationId, token } = await person({ organization: 'Renamed' })
    const { headers } = await signedIn(server, userId)
    for (const [hours, status] of [
      [1, 200],
      [-1, 403],
    ] as const) {
      const slug = `before-${organizationId.toLowerCase()}-${hours}`
      const endsAt = new Date(Date.now() + hours * 60 * 60_000)
      await db().formerSlug.create({ data: { slug, organizationId, endsAt } })
      for (const caller of [headers, { Authorization: `Bearer ${token}` }]) {
        const named = { ...caller, 'X-Organization': slug }
        expect((await ask('GET', '/api/v1/agents', { headers: named })).status).toBe(status)
        const session = await ask('GET', `/api/auth/session?organization=${slug}`, { headers: caller })
        expect(session.status).toBe(status)
        expect(session.body.organization?.id).toBe(status === 200 ? organizationId : undefined)
      }
    }
  })

  it('opens no door for clients of other protocols', async () => {
    const { userId } = await person()
    const { headers } = await signedIn(server, userId)
    for (const [method, path] of [
      ['GET', '/openai/v1/models'],
      ['POST', '/openai/v1/chat/completions'],
      ['POST', '/mcp'],
    ] as const) {
      expect((await ask(method, path, { headers, ...(method === 'POST' && { body: {} }) })).status, path).toBe(401)
    }
  })

  it('is refused if the header and the query name different organizations', async () => {
    const { userId } = await person({ organization: 'In the header' })
    const { headers } = await signedIn(server, userId)
    const named = { ...headers, 'X-Organization': 'in-the-header' }
    const answer = await ask('GET', '/api/v1/profile?organization=in-the-query', { headers: named })
    expectError(
      answer,
      400,
      'Invalid value for field: organization. Expected the organization of the header X-Organization',
    )
    expect((await ask('GET', '/api/v1/profile?organization=in-the-header', { headers: named })).status).toBe(200)
  })

  it('is refused in an organization without membership, and so is a token with that header', async () => {
    const stranger = await server.member({ organization: 'Elsewhere' })
    const { userId, token, organizationId } = await person()
    const { headers } = await signedIn(server, userId, stranger.organizationId)
    for (const path of ['/api/v1/agents', '/trpc/agents.list', '/api/auth/session']) {
      expect((await ask('GET', path, { headers })).status).toBe(403)
      const named = { 'X-Organization': stranger.organizationId }
      expect((await request(server, 'GET', path, { token, headers: named })).status).toBe(403)
    }
    const own = { token, headers: { 'X-Organization': organizationId } }
    expect((await request(server, 'GET', '/api/v1/agents', own)).status).toBe(200)
    const query = `/api/v1/agents?organization=${stranger.organizationId}`
    expectError(await request(server, 'GET', query, { token }), 403, FORBIDDEN)
  })

  it('is ignored beside an Authorization header', async () => {
    const [one, two] = [await person(), await person()]
    const { headers } = await signedIn(server, one.userId)
    expect((await request(server, 'GET', '/api/v1/profile', { token: two.token, headers })).body.profile.id).toBe(
      two.userId,
    )
    const bad = await request(server, 'GET', '/api/v1/profile', { token: 'wrong', headers })
    expect(bad.status).toBe(401)
  })

  const FOREIGN: [string, (own: Record<string, string>) => Record<string, string>][] = [
    ['without X-Muster-Request', ({ 'X-Muster-Request': _, ...rest }) => rest],
    ['with another X-Muster-Request', (own) => ({ ...own, 'X-Muster-Request': 'yes' })],
    ['without an Origin', ({ Origin: _, ...rest }) => rest],
    ['of another origin', (own) => ({ ...own, Origin: 'https://evil.example' })],
    ['of an opaque origin', (own) => ({ ...own, Origin: 'null' })],
    ['of another port', (own) => ({ ...own, Origin: 'http://127.0.0.1:1' })],
  ]

  it.each(FOREIGN)('does not write for a page %s, on any API', async (_, change) => {
    const { userId } = await person()
    const { headers } = await signedIn(server, userId)
    const foreign = change(headers)
    const agents = await db().agent.count()
    const body = { name: 'Ada', systemPrompt: 'x' }
    expectError(await ask('POST', '/api/v1/agents', { headers: foreign, body }), 403, FORBIDDEN)
    expect((await ask('POST', '/trpc/agents.create', { headers: foreign, body })).status).toBe(403)
    const query = { query: 'mutation { deleteKey(id: "x") { deletedId } }' }
    expect((await ask('POST', '/graphql', { headers: foreign, body: query })).status).toBe(403)
    expectError(await ask('DELETE', '/api/v1/agents/none', { headers: foreign }), 403, FORBIDDEN)
    const form = new FormData()
    form.set('file', new File(['x'], 'x.txt'))
    const upload = await fetch(`${server.url}/api/v1/media`, { method: 'POST', headers: foreign, body: form })
    expect(upload.status).toBe(403)
    expect(await db().agent.count()).toBe(agents)
    expect((await ask('GET', '/api/v1/agents', { headers: foreign })).status).toBe(200)
  })

  it.each(FOREIGN)('cannot be started, changed or ended for a page %s', async (_, change) => {
    const { email, userId } = await person()
    const { headers, id } = await signedIn(server, userId)
    const { Cookie, ...own } = change(headers) as { Cookie: string }
    const bare = async (path: string, body: object, more: object = {}) =>
      fetch(server.url + path, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', ...own, ...more },
        body: JSON.stringify(body),
      })
    const code = await newLink(userId)
    for (const more of [{}, { Cookie }]) {
      expect((await bare('/api/auth/login', { email, password: PASSWORD }, more)).status).toBe(403)
      expect((await bare('/trpc/sessions.signIn', { email, password: PASSWORD }, more)).status).toBe(403)
      expect((await bare('/api/auth/link', { code }, more)).status).toBe(403)
      expect((await bare('/api/auth/logout', {}, more)).status).toBe(403)
    }
    expect((await bare('/api/auth/password', { current: PASSWORD, new: NEXT }, { Cookie })).status).toBe(403)
    expect(await db().browserSession.findMany({ where: { userId }, select: { id: true } })).toEqual([{ id }])
    expect(await db().oneTimeLink.count({ where: { userId } })).toBe(1)
  })

  it('is hidden from pages of other origins, because CORS never allows credentials', async () => {
    await using open = await startServer({ CORS_ORIGINS: 'https://app.example.com' })
    const { userId } = await open.member()
    const { headers } = await signedIn(open, userId)
    const Origin = 'https://app.example.com'
    const answer = await fetch(`${open.url}/api/v1/agents`, { headers: { ...headers, Origin } })
    expect(answer.headers.get('access-control-allow-credentials')).toBeNull()
    const write = await fetch(`${open.url}/api/v1/agents`, { method: 'POST', headers: { ...headers, Origin } })
    expect(write.status).toBe(403)
  })

  it('has answers that no shared cache stores', async () => {
    const { userId, token } = await person()
    const { headers } = await signedIn(server, userId)
    for (const path of ['/api/v1/agents', '/api/auth/session', '/trpc/agents.list', '/graphql?query={__typename}']) {
      for (const options of [{ token: null, headers }, { token }, { token: null }]) {
        const answer = await request(server, 'GET', path, options)
        expect(answer.headers.get('vary')).toContain('Authorization, Cookie, X-Organization')
        expect(answer.headers.get('cache-control')).toContain('private')
      }
    }
  })

  it('lasts 30 days from its last use, which is recorded at most every five minutes', async () => {
    const { userId } = await person()
    const { id, headers } = await signedIn(server, userId)
    const read = () => db().browserSession.findUniqueOrThrow({ where: { id } })
    const before = await read()
    await ask('GET', '/api/v1/agents', { headers })
    expect(await read()).toEqual(before)
    const day = 24 * 60 * 60_000
    const shift = (days: number) => new Date(Date.now() - days * day)
    await db().browserSession.updateMany({
      where: { id },
      data: { lastSeenAt: shift(29), expiresAt: new Date(Date.now() + day) },
    })
    expect((await ask('GET', '/api/auth/session', { headers })).status).toBe(200)
    expect((await read()).expiresAt.getTime()).toBeGreaterThan(Date.now() + 29.9 * day)
    await db().browserSession.updateMany({ where: { id }, data: { expiresAt: shift(0) } })
    expectError(await ask('GET', '/api/auth/session', { headers }), 401, 'Sign in required')
  })

  it('a browser session that was read a moment ago costs no statement', async () => {
    const { userId } = await person()
    const { headers } = await signedIn(server, userId)
    const sessions = async () => {
      using recorded = record(() => ask('GET', '/api/v1/models', { headers }))
      expect((await recorded.result).status).toBe(200)
      return recorded.statements.filter((sql) => sql.includes('BrowserSession')).length
    }
    const time = vi.spyOn(performance, 'now').mockReturnValue(1_000)
    const counts = [await sessions(), await sessions(), await sessions()]
    time.mockRestore()
    expect(counts).toEqual([1, 0, 0])
  })

  it('can be ended from another browser at once, and is unknown to strangers', async () => {
    const [{ userId }, stranger] = [await person(), await person()]
    const [one, two] = [await signedIn(server, userId), await signedIn(server, userId)]
    const theirs = await signedIn(server, stranger.userId)
    // An expired session is not listed.
    const { id } = await signedIn(server, userId)
    await server.service.deps.db.browserSession.update({ where: { id }, data: { expiresAt: new Date(0) } })
    expect((await ask('GET', '/api/v1/agents', { headers: two.headers })).status).toBe(200)
    const list = await ask('GET', '/api/auth/sessions', { headers: one.headers })
    // Both may have begun in the same millisecond, so their order is undefined.
    const isCurrent = Object.fromEntries(
      list.body.sessions.map((each: { id: string; current: boolean }) => [each.id, each.current]),
    )
    expect(isCurrent).toEqual({ [one.id]: true, [two.id]: false })
    const end = (id: string) => ask('DELETE', `/api/auth/sessions/${id}`, { headers: one.headers })
    expectError(await end(theirs.id), 404, 'Session not found')
    expectError(await end('none'), 404, 'Session not found')
    const ended = await end(two.id)
    expect([ended.status, ended.headers.get('set-cookie')]).toEqual([200, null])
    expectError(await ask('GET', '/api/v1/agents', { headers: two.headers }), 401, 'Sign in required')
    expect((await ask('GET', '/api/v1/agents', { headers: theirs.headers })).status).toBe(200)
    expect((await end(one.id)).headers.get('set-cookie')).toMatch(/^muster=; .*Max-Age=0/)
  })

  it('ends by signing out, whose answer deletes the cookie', async () => {
    const { userId } = await person()
    const { headers } = await signedIn(server, userId)
    const answer = await ask('POST', '/api/auth/logout', { headers })
    expect(answer.headers.get('set-cookie')).toMatch(/^muster=; .*Max-Age=0/)
    expectError(await ask('GET', '/api/v1/agents', { headers }), 401, 'Sign in required')
    expect((await ask('POST', '/api/auth/logout')).status).toBe(200)
  })

  it.each([
    ['two cookies of that name', (secret: string) => `muster=${secret}; muster=other`],
    ['an unknown one', () => `muster=${'x'.repeat(43)}`],
    ['an empty one', () => 'muster='],
    ['the name of an https service', (secret: string) => `__Host-muster=${secret}`],
  ])('is not found by %s', async (_, cookie) => {
    const { userId } = await person()
    const { secret, headers } = await signedIn(server, userId)
    const answer = await ask('GET', '/api/v1/agents', { headers: { ...headers, Cookie: cookie(secret) } })
    expect(answer.status).toBe(401)
  })

  it('has a __Host- cookie if the service uses https', async () => {
    const port = await freePort()
    const PUBLIC_URL = 'https://muster.example.com/base'
    await using secure = await startServer({ PUBLIC_URL, PORT: String(port) })
    const local = { url: server.url, token: '' }
    const { userId } = await secure.member({ email: 'https@example.com' })
    await setPassword(secure, userId, PASSWORD)
    const body = JSON.stringify({ email: 'https@example.com', password: PASSWORD })
    const post = (Origin: string) =>
      fetch(`http://127.0.0.1:${port}/api/auth/login`, {
        method: 'POST',
        headers: { ...ownPage(local), Origin, 'Content-Type': 'application/json' },
        body,
      })
    const answer = await post('https://muster.example.com')
    expect(answer.headers.get('set-cookie')).toMatch(/^__Host-muster=.*; Path=\/; HttpOnly;.*; Secure$/)
    expect((await post(`http://127.0.0.1:${port}`)).status).toBe(403)
  })
})

it('a request for a new password answers equally for every address, and is logged', async () => {
  const { email, userId } = await person()
  const answers = []
  for (const each of [email, 'nobody-at-all@example.com', 'no address']) {
    const { status, body } = await ask('POST', '/api/auth/forgot', { body: { email: each } })
    answers.push([status, body.message])
  }
  expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1)
  expect(answers[0]).toEqual([200, expect.stringMatching(/^If there is an account/)])
  const logged = () => server.logs.filter((line) => line.includes('a user asked for a new password'))
  await expect.poll(logged).toEqual([expect.stringContaining(userId)])
  expect(server.logs.join('')).not.toContain('nobody-at-all')
})

describe('a one-time link', () => {
  it('signs its user in once', async () => {
    const { userId } = await person()
    const code = await newLink(userId)
    const use = () => ask('POST', '/api/auth/link', { body: { code } })
    const answers = await Promise.all([use(), use(), use()])
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 401, 401])
    const signedInAs = answers.find(({ status }) => status === 200)
    expect(signedInAs?.body).toMatchObject({ user: { id: userId }, session: { method: 'link' } })
    expectError(await use(), 401, 'Invalid or expired link')
  })

  it('ends after 15 minutes', async () => {
    const { userId } = await person()
    const code = await newLink(userId)
    await db().oneTimeLink.updateMany({ where: { userId }, data: { expiresAt: new Date() } })
    expectError(await ask('POST', '/api/auth/link', { body: { code } }), 401, 'Invalid or expired link')
  })

  it('a one-time link of a reset removes the password and ends every session and open link', async () => {
    const { userId, email } = await person()
    const { headers } = await signedIn(server, userId)
    const open = await newLink(userId)
    const code = await newLink(userId, 'reset_password')
    const answer = await ask('POST', '/api/auth/link', { body: { code } })
    expect(answer.body.user.hasPassword).toBe(false)
    expectError(await ask('POST', '/api/auth/link', { body: { code: open } }), 401, 'Invalid or expired link')
    expect((await ask('GET', '/api/auth/session', { headers })).status).toBe(401)
    const own = { ...ownPage(server), Cookie: cookieOf(answer) }
    const set = await ask('POST', '/api/auth/password', { headers: own, body: { new: NEXT } })
    expect(set.status).toBe(200)
    expect((await login(email, PASSWORD)).status).toBe(401)
    expect((await login(email, NEXT)).status).toBe(200)
  })

  it('verifies the address, which ends what another person may have made before', async () => {
    const { userId, email, token } = await person()
    const { headers } = await signedIn(server, userId)
    await db().user.updateMany({ where: { id: userId }, data: { emailVerified: false } })
    const answer = await ask('POST', '/api/auth/link', { body: { code: await newLink(userId) } })
    expect(answer.body.user).toMatchObject({ emailVerified: true, hasPassword: false })
    expect((await ask('GET', '/api/auth/session', { headers })).status).toBe(401)
    expect((await request(server, 'GET', '/api/v1/agents', { token })).status).toBe(401)
    expect((await login(email, PASSWORD)).status).toBe(401)
  })

  it('starts no session that a concurrent reset leaves', async () => {
    const { deps } = server.service
    const { userId } = await person()
    const [code, reset] = [await newLink(userId), await newLink(userId, 'reset_password')]
    const client = { address: undefined, userAgent: undefined }
    const used = { client, requestId: 'x', cookie: undefined, setCookie: () => {} }
    const { answer, session } = await inTransaction(deps, async (own) => {
      const { session } = await useLink({ deps: own, ...used }, code)
      const answer = ask('POST', '/api/auth/link', { body: { code: reset } })
      // On SQLite it waits anyway.
      if (onPostgres) await expect.poll(waiting, { interval: 5 }).not.toEqual([])
      return { answer, session }
    })
    expect((await answer).status).toBe(200)
    expect(await db().browserSession.count({ where: { id: session!.id } })).toBe(0)
  })
})

describe('a password', () => {
  const change = (headers: Record<string, string>, body: object) => ask('POST', '/api/auth/password', { headers, body })

  it('is changed with the present one, which ends the other sessions and open links', async () => {
    const { userId, email } = await person()
    const [one, two] = [await signedIn(server, userId), await signedIn(server, userId)]
    expectError(await change(one.headers, { new: NEXT }), 400, 'Missing required field: current')
    const wrong = await change(one.headers, { current: 'wrong', new: NEXT })
    expectError(wrong, 400, 'Invalid value for field: current. Expected your present password')
    const code = await newLink(userId)
    const { status, body } = await change(one.headers, { current: PASSWORD, new: NEXT })
    expect([status, body.ended]).toEqual([200, 1])
    expect((await ask('POST', '/api/auth/link', { body: { code } })).status).toBe(401)
    expect((await ask('GET', '/api/auth/session', { headers: one.headers })).status).toBe(200)
    expect((await ask('GET', '/api/auth/session', { headers: two.headers })).status).toBe(401)
    expect((await login(email, NEXT)).status).toBe(200)
  })

  it('starts no session if a concurrent request changes it', async () => {
    const { userId, email } = await person()
    const { headers, id } = await signedIn(server, userId)
    const gate = Promise.withResolvers<void>()
    const argon2 = crypto.argon2
    const hash = vi.spyOn(crypto, 'argon2').mockImplementationOnce((name, parameters, done) => {
      argon2(name, parameters, (error, key) => void gate.promise.then(() => done(error, key)))
    })
    const late = login(email, PASSWORD)
    await expect.poll(() => hash.mock.calls.length).toBe(1)
    expect((await change(headers, { current: PASSWORD, new: NEXT })).status).toBe(200)
    gate.resolve()
    expectError(await late, 401, WRONG)
    hash.mockRestore()
    expect(await db().browserSession.findMany({ where: { userId }, select: { id: true } })).toEqual([{ id }])
  })

  it('is changed by one of several concurrent requests', async () => {
    const { userId } = await person()
    const { headers } = await signedIn(server, userId)
    const next = ['one', 'two', 'three'].map((word) => `${NEXT} ${word}`)
    const answers = await Promise.all(next.map((password) => change(headers, { current: PASSWORD, new: password })))
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
  })

  it('cannot be guessed by changing it: the sixth try is refused', async () => {
    const { userId } = await person()
    const { headers } = await signedIn(server, userId)
    for (let time = 0; time < 5; time++)
      expect((await change(headers, { current: 'wrong', new: NEXT })).status).toBe(400)
    expect((await change(headers, { current: PASSWORD, new: NEXT })).status).toBe(429)
  })

  it('is set for the first time only in a session that has just started by a link', async () => {
    const { userId, token } = await server.member()
    const byPassword = await signedIn(server, userId)
    expectError(await change(byPassword.headers, { new: NEXT }), 403, FORBIDDEN)
    const withToken = await request(server, 'POST', '/api/auth/password', { token, body: { new: NEXT } })
    expectError(withToken, 403, FORBIDDEN)
    const answer = await ask('POST', '/api/auth/link', { body: { code: await newLink(userId) } })
    const headers = { ...ownPage(server), Cookie: cookieOf(answer) }
    const old = new Date(Date.now() - 16 * 60_000)
    await db().browserSession.updateMany({ where: { userId, method: 'link' }, data: { createdAt: old } })
    expectError(await change(headers, { new: NEXT }), 403, FORBIDDEN)
    await db().browserSession.updateMany({ where: { userId, method: 'link' }, data: { createdAt: new Date() } })
    expect((await change(headers, { new: NEXT })).status).toBe(200)
  })

  it.each([
    'short',
    'elevenchars',
    'password1234',
    'P@ssw0rd1234!',
    'qwertyuiop12',
    '123456789012',
    'aaaaaaaaaaaaaaaa',
    'abcabcabcabc',
    'iloveyou2024!!',
    'Welcome-2026-Admin',
    'mnbvcxzlkjhgf',
  ])('may not be %s', async (poor) => {
    const { userId } = await person()
    const { headers } = await signedIn(server, userId)
    const answer = await change(headers, { current: PASSWORD, new: poor })
    expect([answer.status, answer.body.message]).toEqual([400, expect.stringMatching(/^Invalid value for field: new/)])
  })

  it.each([
    'correct kettle battery',
    'äöüßéèñçøåæœ',
    '密码密码一二三四五六七八九十',
    'x7Gq-2Lw9-Zt4K',
    '9081726354617283',
  ])('may be %s', async (good) => {
    const { userId, email } = await person()
    const { headers } = await signedIn(server, userId)
    expect((await change(headers, { current: PASSWORD, new: good })).status).toBe(200)
    expect((await login(email, good.normalize('NFD'))).status).toBe(200)
  })
})

it.each([
  ['192.0.2.7', '192.0.2.7'],
  ['::ffff:192.0.2.7', '192.0.2.7'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
  ['2001:db8:1:2::1', '2001:db8:1:2'],
  ['2001:0DB8:0001:0002:ffff::', '2001:db8:1:2'],
  ['::1', '0:0:0:0'],
  ['fe80::1%eth0', 'fe80:0:0:0'],
  [undefined, ''],
])('the network of %s is %s', (address, network) => {
  expect(networkOf(address)).toBe(network)
})

it.each([
  ['192.0.2.7:50124', '192.0.2.7'],
  ['10.0.0.1, 192.0.2.7:50125', '192.0.2.7'],
  ['2001:db8::7', '2001:db8::7'],
  ['[2001:db8::7]', '2001:db8::7'],
  ['[2001:db8::7]:50124', '2001:db8::7'],
  ['unknown', '127.0.0.1'],
  ['192.0.2.7, ', '127.0.0.1'],
])('a proxy that forwards %s names the client %s', async (forwarded, address) => {
  const person = await proxied.member()
  const options = { token: person.token, body: { name: 'Ada', systemPrompt: 'x' } }
  const headers = { 'X-Forwarded-For': forwarded }
  const { body } = await request(proxied, 'POST', '/api/v1/agents', { ...options, headers })
  const where = { action: 'agent.create', target: body.id }
  const { ip } = await proxied.service.deps.db.auditEvent.findFirstOrThrow({ where })
  expect(ip?.replace('::ffff:', '')).toBe(address)
})
