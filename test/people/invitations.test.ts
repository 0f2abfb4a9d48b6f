import { createServer, Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { createLog } from '../../src/lib/log.ts'
import { createMailer } from '../../src/mail/service.ts'
import { graphql } from '../graphql/support.ts'
import { apis, expectError, onEachApi } from '../support/api.ts'
import { signedIn } from '../support/browser-session.ts'
import { createCertificate } from '../support/certificate.ts'
import { movableClock } from '../support/clock.ts'
import { listen } from '../support/listen.ts'
import { startMailServer } from '../support/mail-server.ts'
import { ownPage, request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { createTrigger, dropTrigger } from '../support/trigger.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"
const INVALID = 'Invalid or expired invitation'

const clock = movableClock()
const mail = await use(startMailServer())
const server = await use(startServer({ SMTP_URL: mail.url, MAIL_FROM: 'Muster <muster@example.com>' }, { clock }))

// Wrong codes of one test must not count against the next.
beforeEach(() => server.service.deps.db.signInLimit.deleteMany({}))

let count = 0
async function people() {
  const organization = `Inviting ${++count}`
  const owner = await server.member({ organization, role: 'owner' })
  const admin = await server.member({ organization, role: 'admin' })
  const member = await server.member({ organization })
  const path = `/api/v1/organizations/${owner.organizationId}/invitations`
  return { organization, owner, admin, member, path, email: `guest-${count}@example.com` }
}

const invite = async (path: string, { token }: Member, body: object) => request(server, 'POST', path, { body, token })
const codeOf = (url: string) => url.split('#')[1]!
const accept = (body: object, headers: Record<string, string> = {}) =>
  request(server, 'POST', '/api/auth/accept', { body, token: null, headers: { ...ownPage(server), ...headers } })
const eventsOf = async ({ token }: Member, action: string) =>
  (await request(server, 'GET', `/api/v1/audit?action=${action}`, { token })).body.events
const userOf = (email: string) =>
  server.service.deps.db.user.findUnique({ where: { email }, include: { memberships: true } })

describe('creating invitations', () => {
  it.each(onEachApi([['']] as const))('%s: an admin invites, lists and withdraws', async (api) => {
    const { admin, owner, email } = await people()
    const id = owner.organizationId
    const { token } = admin
    const created = await apis[api](server, 'organizations.createInvitation', { id, email, role: 'member' }, { token })
    expect(created.body).toMatchObject({
      mailed: true,
      url: expect.stringMatching(/\/app\/accept#[0-9A-Za-z]{43}$/),
      invitation: { email, role: 'member', createdBy: admin.userId },
    })
    const list = await apis[api](server, 'organizations.listInvitations', { id }, { token })
    expect(list.body.invitations).toEqual([created.body.invitation])
    expect(JSON.stringify(list.body)).not.toContain(codeOf(created.body.url))
    const [event] = await eventsOf(admin, 'invitation.create')
    expect(event).toMatchObject({ actor: { id: admin.userId }, changes: { email, role: 'member' } })
    expect(JSON.stringify(event)).not.toContain(codeOf(created.body.url))
    const input = { id, invitationId: created.body.id }
    expect((await apis[api](server, 'organizations.deleteInvitation', input, { token })).status).toBe(200)
    expectError(
      await apis[api](server, 'organizations.deleteInvitation', input, { token }),
      404,
      'Invitation not found',
    )
    expectError(await accept({ code: codeOf(created.body.url), name: 'G' }), 401, INVALID)
  })

  it('leaves one invitation per address, whatever the number of concurrent requests', async () => {
    const { admin, path, email } = await people()
    await Promise.all(Array.from({ length: 6 }, () => invite(path, admin, { email, role: 'member' })))
    const { body } = await request(server, 'GET', path, { token: admin.token })
    expect(body.invitations).toHaveLength(1)
  })

  it('is accepted once by several concurrent requests', async () => {
    const { admin, path, email } = await people()
    const { body } = await invite(path, admin, { email, role: 'member' })
    const answers = await Promise.all(
      Array.from({ length: 4 }, () => accept({ code: codeOf(body.url), name: 'Guest' })),
    )
    // The other requests found no invitation, or the account of the first one.
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 401, 401, 401])
    expect((await userOf(email))?.memberships).toHaveLength(1)
  })

  it('asks a person who accepts two invitations at once to sign in for the second', async () => {
    const [one, other] = [await people(), await people()]
    const email = one.email
    const invitations = [await invite(one.path, one.admin, { email, role: 'member' })]
    invitations.push(await invite(other.path, other.admin, { email, role: 'member' }))
    // Both find no user, and hash the password meanwhile.
    const answers = await Promise.all(
      invitations.map(({ body }) => accept({ code: codeOf(body.url), name: 'Guest', password: 'Hm5-tree-wolf' })),
    )
    const [refused] = answers.filter(({ status }) => status !== 200)
    expectError(refused!, 401, 'Sign in required')
    expect((await userOf(email))?.memberships).toHaveLength(1)
  })

  it('GraphQL invites, lists and withdraws', async () => {
    const { admin, owner, email } = await people()
    const id = owner.organizationId
    const { token } = admin
    const create = `mutation ($input: CreateInvitationInput!) {
      createInvitation(input: $input) { url mailed invitation { id email role } } }`
    const { data } = await graphql(server, create, { input: { id, email, role: 'member' } }, { token })
    expect(data.createInvitation).toMatchObject({ mailed: true, invitation: { email, role: 'member' } })
    const list = 'query ($id: String!) { invitations(id: $id) { totalCount nodes { id email role createdBy } } }'
    const listed = await graphql(server, list.replace('String!', 'ID!'), { id }, { token })
    expect(listed.data.invitations).toMatchObject({ totalCount: 1, nodes: [{ email, createdBy: admin.userId }] })
    const end =
      'mutation ($id: ID!, $invitationId: ID!) { deleteInvitation(id: $id, invitationId: $invitationId) { deletedId } }'
    const invitationId = data.createInvitation.invitation.id
    const ended = await graphql(server, end, { id, invitationId }, { token })
    expect(ended.data.deleteInvitation).toEqual({ deletedId: invitationId })
  })

  it('mails the link to the invited address', async () => {
    const { admin, organization, path, email } = await people()
    const { body } = await invite(path, admin, { email: ` ${email.toUpperCase()} `, role: 'admin' })
    const mine = () => mail.mails.find(({ to }) => to.includes(email))
    await expect.poll(mine).toBeDefined()
    expect(mine()!.text).toContain(body.url)
    expect(mine()!.text).toContain(`Subject: Invitation to ${organization}`)
    expect(mine()!.text).toContain('From: Muster <muster@example.com>')
  })

  it('is mailed again after a temporary refusal, and not after a final one', async () => {
    const { admin, path, email } = await people()
    const isMailed = (address: string) => mail.mails.some(({ to }) => to.includes(address))
    const isLogged = (address: string) =>
      server.logs.some((line) => line.includes('failed to send a mail') && line.includes(address))
    for (const code of [451, 550]) {
      mail.refusals.push(code)
      const address = `${code}-${email}`
      await invite(path, admin, { email: address, role: 'member' })
      const expected = code === 451 ? isMailed : isLogged
      await expect.poll(() => expected(address), { timeout: 30_000 }).toBe(true)
      expect([isMailed(address), isLogged(address), mail.refusals]).toEqual([code === 451, code === 550, []])
    }
  })

  it('is mailed under one id, also if the answer of the mail server is lost', async () => {
    const { admin, path, email } = await people()
    mail.delays.push(() => Promise.reject(new Error('The connection breaks')))
    await invite(path, admin, { email, role: 'member' })
    const mine = () => mail.mails.filter(({ to }) => to.includes(email))
    await expect.poll(() => mine().length, { timeout: 30_000 }).toBe(2)
    const [id, again] = mine().map(({ text }) => /^Message-ID: (<.+@example.com>)\r$/im.exec(text)?.[1])
    expect([id, again]).toEqual([expect.any(String), id])
  })

  it.each([
    [
      'of an unknown certificate',
      'smtps',
      () => createTlsServer(createCertificate('localhost')),
      'NODE_EXTRA_CA_CERTS',
    ],
    ['of a port without encryption', 'smtps', () => createServer((socket) => socket.end('220 Hi\r\n')), 'smtp://'],
    ['of a mail server that hangs up', 'smtp', () => createServer((socket) => socket.destroy()), 'check SMTP_URL'],
  ])(
    'an invitation that cannot be mailed because %s is logged with the setting to change',
    async (_, scheme, make, advice) => {
      const mailServer = make().on('tlsClientError', () => {})
      const SMTP_URL = `${scheme}://127.0.0.1:${await listen(mailServer)}`
      const lines: string[] = []
      const log = createLog('info', { write: (line) => void lines.push(line) })
      const mailer = createMailer({ ...server.service.deps.settings, SMTP_URL }, log, { isPaused: () => false })!
      mailer.send({ to: 'ada@example.com', subject: 'x', text: 'a secret link' })
      await expect.poll(() => lines.length).toBe(1)
      expect(JSON.parse(lines[0]!)).toMatchObject({ level: 40, to: 'ada@example.com' })
      expect(JSON.parse(lines[0]!).msg).toContain(advice)
      await mailer.stop()
      expect(lines.join()).not.toContain('a secret link')
      mailServer.close()
    },
  )

  it.each([
    ['login', 'user:canary%40pass@', (text: string) => text.includes('AUTH')],
    ['mail', '', (text: string) => text.includes('canary-code')],
  ])('is in no log, as is no password, if the mail server quotes the %s in its refusal', async (_, login, isQuoted) => {
    const quoting = createServer((socket) => {
      socket.write('220 Hi\r\n')
      socket.on('error', () => {})
      let text = ''
      let isMail = false
      socket.on('data', (chunk) => {
        text += chunk
        if (!text.endsWith(isMail ? '\r\n.\r\n' : '\r\n')) return
        isMail = text.startsWith('DATA')
        if (isQuoted(text)) socket.write(`550 Refused: ${text.trim().replaceAll('\r\n', ' ')}\r\n`)
        else if (text.startsWith('EHLO')) socket.write('250-Hi\r\n250 AUTH PLAIN\r\n')
        else socket.write(isMail ? '354 Go on\r\n' : '250 Hi\r\n')
        text = ''
      })
    })
    const SMTP_URL = `smtp://${login}127.0.0.1:${await listen(quoting)}`
    const lines: string[] = []
    const log = createLog('info', { write: (line) => void lines.push(line) })
    const mailer = createMailer({ ...server.service.deps.settings, SMTP_URL }, log, { isPaused: () => false })!
    mailer.send({ to: 'ada@example.com', subject: 'x', text: 'Open this:\nhttps://example.com/#canary-code\n' })
    await expect.poll(() => lines.length).toBe(1)
    await mailer.stop()
    quoting.close()
    expect(JSON.parse(lines[0]!).err).toMatchObject({ responseCode: 550, message: expect.stringContaining('Refused') })
    const secrets = ['canary', Buffer.from('\0user\0canary@pass').toString('base64')]
    expect(secrets.filter((secret) => lines.join().includes(secret))).toEqual([])
  })

  it('is mailed once, also if the mail server takes half a minute to accept it', async () => {
    // The patience of each connection (ms).
    const patience = new Map<Socket, number>()
    const { setTimeout } = Socket.prototype
    using _watched = vi.spyOn(Socket.prototype, 'setTimeout').mockImplementation(function (
      this: Socket,
      time,
      callback,
    ) {
      patience.set(this, time)
      return setTimeout.call(this, time, callback)
    })
    const { log, settings } = server.service.deps
    const mailer = createMailer(settings, log, { isPaused: () => false })!
    const late = Promise.withResolvers<number>()
    mail.delays.push(async () => {
      const toMail = [...patience].filter(([{ remotePort }]) => String(remotePort) === new URL(mail.url).port)
      for (const [socket, time] of toMail) if (time > 0 && time <= 30_000) socket.emit('timeout')
      late.resolve(toMail.length)
    })
    mailer.send({ to: 'patient@example.com', subject: 'x', text: 'x' })
    expect(await late.promise).toBe(1)
    await mailer.stop()
    expect(mail.mails.filter(({ to }) => to.includes('patient@example.com'))).toHaveLength(1)
  })

  it('mails the name of the organization as one line, whatever it contains', async () => {
    const { admin, path, email } = await people()
    const { db } = server.service.deps
    await db.organization.update({
      where: { id: admin.organizationId },
      data: { name: 'Acme\r\nBcc: eve@example.com' },
    })
    await invite(path, admin, { email, role: 'member' })
    const mine = () => mail.mails.find(({ to }) => to.includes(email))
    await expect.poll(mine).toBeDefined()
    expect(mine()!.text).toContain('Subject: Invitation to Acme Bcc: eve@example.com')
    expect(mine()!.text).toContain('join the organization Acme Bcc: eve@example.com on Muster')
  })

  it('is refused beyond 1,000 open ones', async () => {
    const { admin, path, email } = await people()
    const { organizationId, userId: createdBy } = admin
    const { db } = server.service.deps
    const createdAt = clock.now()
    const row = { organizationId, createdBy, createdAt, expiresAt: new Date(+createdAt + 60_000), mailOnly: false }
    const open = Array.from({ length: 1000 }, (_, index) => {
      const id = `${organizationId}-${index}`
      return { ...row, id, email: `${id}@example.com`, role: 'member' as const, digest: id }
    })
    await db.invitation.createMany({ data: open })
    const refused = await invite(path, admin, { email, role: 'member' })
    expectError(refused, 400, 'Too many open invitations. At most 1000')
    const other = await people()
    expect((await invite(other.path, other.admin, { email: other.email, role: 'member' })).status).toBe(200)
    clock.advance(60_000)
    expect((await invite(path, admin, { email, role: 'member' })).status).toBe(200)
  })

  it('is deleted alone', async () => {
    const { admin, path, email } = await people()
    const [one, other] = [email, `other-${email}`].map((email) => invite(path, admin, { email, role: 'member' }))
    const { id } = (await one!).body
    const { invitation } = (await other!).body
    expect((await request(server, 'DELETE', `${path}/${id}`, { token: admin.token })).status).toBe(200)
    const { invitations } = (await request(server, 'GET', path, { token: admin.token })).body
    expect(invitations).toEqual([invitation])
  })

  it('creating invitations by mail only hides the link from the answer, and verifies the address', async () => {
    const { admin, path, email } = await people()
    const { body } = await invite(path, admin, { email, role: 'member', mailOnly: true })
    expect(body).toMatchObject({ url: null, mailed: true })
    const mine = () => mail.mails.find(({ to }) => to.includes(email))
    await expect.poll(mine).toBeDefined()
    const [, code] = /accept#([0-9A-Za-z]{43})/.exec(mine()!.text) ?? []
    expect((await accept({ code, name: 'Guest' })).body.user.emailVerified).toBe(true)
  })

  it('repeats a request without the link', async () => {
    const { admin, path, email } = await people()
    const options = { body: { email, role: 'member' }, token: admin.token, headers: { 'Idempotency-Key': 'once' } }
    const first = await request(server, 'POST', path, options)
    const second = await request(server, 'POST', path, options)
    expect(second.body).toEqual({ ...first.body, url: null })
  })

  it('ends the earlier invitation of the same address', async () => {
    const { admin, path, email } = await people()
    const first = (await invite(path, admin, { email, role: 'member' })).body
    const second = (await invite(path, admin, { email, role: 'member' })).body
    expectError(await accept({ code: codeOf(first.url), name: 'G' }), 401, INVALID)
    expect((await accept({ code: codeOf(second.url), name: 'G' })).status).toBe(200)
  })

  it('is refused for members, strangers, keys without *, and for owners by admins', async () => {
    const { organization, owner, admin, member, path, email } = await people()
    const stranger = await server.member({ organization: 'Strangers', role: 'owner' })
    expectError(await invite(path, member, { email, role: 'member' }), 403, FORBIDDEN)
    expectError(await invite(path, stranger, { email, role: 'member' }), 403, FORBIDDEN)
    expectError(await invite(path, admin, { email, role: 'owner' }), 403, FORBIDDEN)
    const narrow = await server.member({ organization, role: 'owner', scopes: ['members:write'] })
    expectError(await invite(path, narrow, { email, role: 'admin' }), 403, FORBIDDEN)
    for (const by of [member, stranger]) expectError(await request(server, 'GET', path, by), 403, FORBIDDEN)
    expect((await request(server, 'GET', path, owner)).body.invitations).toEqual([])
    // Mail servers would read several addresses, or another one.
    const wrong = [
      'nobody',
      'a@example.com,',
      'x,a@example.com',
      '<a@example.com>',
      'A"a@example.com',
      'a@example.com.',
    ]
    for (const email of wrong) {
      const refused = await invite(path, admin, { email, role: 'member' })
      expectError(refused, 400, 'Invalid value for field: email. Expected an e-mail address')
    }
  })

  it('is refused for the address of a member', async () => {
    const { admin, path, organization } = await people()
    await server.member({ organization, email: `present-${count}@example.com` })
    const answer = await invite(path, admin, { email: `present-${count}@example.com`, role: 'member' })
    expectError(answer, 409, 'The user is a member of the organization')
  })
})

describe('accepting invitations', () => {
  it('creates a new user once, signed in and a member', async () => {
    const { admin, owner, path, email, organization } = await people()
    const { url, id } = (await invite(path, admin, { email, role: 'admin' })).body
    const code = codeOf(url)
    const offer = await request(server, 'POST', '/api/auth/invitation', { body: { code }, token: null })
    expect(offer.body.invitation).toEqual({ organizationName: organization, email, role: 'admin', hasAccount: false })
    expectError(await accept({ code }), 400, 'Missing required field: name')
    const password = 'a quiet river in spring'
    const { status, body, headers } = await accept({ code, name: ' Guest ', password })
    expect([status, body.user, body.role]).toMatchObject([
      200,
      { email, name: 'Guest', emailVerified: false, hasPassword: true },
      'admin',
    ])
    const cookie = headers.get('set-cookie')!.split(';')[0]!
    const me = await request(server, 'GET', `/api/v1/organizations/${owner.organizationId}`, {
      token: null,
      headers: { Cookie: cookie },
    })
    expect(me.body.organization.role).toBe('admin')
    expect(await eventsOf(admin, 'invitation.accept')).toMatchObject([
      { target: id, actor: { id: body.user.id, kind: 'user' }, changes: { email, role: 'admin' } },
    ])
    expectError(await accept({ code, name: 'Guest', password }), 401, INVALID)
  })

  it('leaves a person who is a member by then the present role', async () => {
    const { admin, organization, path, email } = await people()
    const code = codeOf((await invite(path, admin, { email, role: 'member' })).body.url)
    const { userId } = await server.member({ organization, email, role: 'admin' })
    const { headers } = await signedIn(server, userId)
    expect((await accept({ code }, headers)).body).toMatchObject({ user: { email }, role: 'admin' })
  })

  it('makes one of two concurrent users a member', async () => {
    const { admin, path, email } = await people()
    const code = codeOf((await invite(path, admin, { email, role: 'member' })).body.url)
    const answers = await Promise.all([1, 2, 3].map((n) => accept({ code, name: `Guest ${n}` })))
    const statuses = answers.map(({ status }) => status).sort()
    expect(statuses[0]).toBe(200)
    expect(statuses.filter((status) => status === 200)).toHaveLength(1)
    expect((await userOf(email))?.memberships).toHaveLength(1)
  })

  it('lets an existing user join only in their own session', async () => {
    const { admin, owner, path } = await people()
    const known = await server.member({ organization: 'Elsewhere', email: `known-${count}@example.com` })
    const other = await server.member({ organization: 'Elsewhere' })
    const body = { email: `known-${count}@example.com`, role: 'member' }
    const code = codeOf((await invite(path, admin, body)).body.url)
    const refused = await accept({ code, name: 'Thief', password: 'a quiet river in spring' })
    expectError(refused, 401, 'Sign in required')
    expect(refused.headers.get('set-cookie')).toBeNull()
    const thief = await signedIn(server, other.userId)
    expectError(await accept({ code }, thief.headers), 403, FORBIDDEN)
    const before = await userOf(body.email)
    const own = await signedIn(server, known.userId)
    const { status } = await accept({ code, name: 'Renamed', password: 'another quiet river' }, own.headers)
    expect(status).toBe(200)
    const after = await userOf(body.email)
    expect(after?.memberships.map(({ organizationId }) => organizationId)).toContain(owner.organizationId)
    expect({ ...after, memberships: [] }).toEqual({ ...before, memberships: [] })
    expectError(await accept({ code }, own.headers), 401, INVALID)
  })

  it('ends after 7 days, and with the rights of its creator', async () => {
    const { admin, owner, path, email } = await people()
    const { id, url } = (await invite(path, admin, { email, role: 'member' })).body
    clock.advance(7 * 24 * 3_600_000)
    expectError(await accept({ code: codeOf(url), name: 'G' }), 401, INVALID)
    expect((await request(server, 'GET', path, { token: admin.token })).body.invitations).toEqual([])
    const late = await request(server, 'DELETE', `${path}/${id}`, { token: admin.token })
    expectError(late, 404, 'Invitation not found')
    const second = codeOf((await invite(path, admin, { email, role: 'member' })).body.url)
    const body = { role: 'member' }
    const role = `/api/v1/organizations/${owner.organizationId}/members/${admin.userId}`
    expect((await request(server, 'PATCH', role, { body, token: owner.token })).status).toBe(200)
    expectError(await accept({ code: second, name: 'G' }), 401, INVALID)
    // An owner who has become an admin may make no owners.
    const change = async (to: string) =>
      expect((await request(server, 'PATCH', role, { body: { role: to }, token: owner.token })).status).toBe(200)
    await change('owner')
    const third = codeOf((await invite(path, admin, { email, role: 'owner' })).body.url)
    await change('admin')
    expectError(await accept({ code: third, name: 'G' }), 401, INVALID)
    clock.advance(3_600_000)
  })

  it('is refused if its creator loses the rights while it is accepted', async () => {
    const { admin, path, email } = await people()
    const { db } = server.service.deps
    const code = codeOf((await invite(path, admin, { email, role: 'admin' })).body.url)
    await createTrigger(db, {
      name: 'demoted',
      event: 'AFTER DELETE',
      table: 'Invitation',
      effect: `UPDATE "Membership" SET "role" = 'member' WHERE "userId" = '${admin.userId}'`,
    })
    const answer = await accept({ code, name: 'G', password: 'a long enough password' })
    await dropTrigger(db, 'demoted')
    expectError(answer, 401, INVALID)
    expect(await userOf(email)).toBeNull()
  })

  it('is refused from a page of another origin, and with a poor password', async () => {
    const { admin, path, email } = await people()
    const code = codeOf((await invite(path, admin, { email, role: 'member' })).body.url)
    expectError(await accept({ code, name: 'G' }, { Origin: 'https://evil.example' }), 403, FORBIDDEN)
    expect((await accept({ code, name: 'G', password: 'short' })).body.message).toBe(
      'Invalid value for field: password. Expected at least 12 characters',
    )
    expect(await userOf(email)).toBeNull()
  })

  it('limits the guessing of codes, and counts no right one', async () => {
    clock.advance(3_600_000)
    const { admin, path, email } = await people()
    const code = codeOf((await invite(path, admin, { email, role: 'member' })).body.url)
    for (let i = 0; i < 6; i++) {
      const offer = await request(server, 'POST', '/api/auth/invitation', { body: { code }, token: null })
      expect(offer.status).toBe(200)
    }
    const answers = []
    for (let i = 0; i < 8; i++) answers.push((await accept({ code: `guess-${i}`, name: 'G' })).status)
    expect(answers).toEqual([401, 401, 401, 401, 401, 429, 429, 429])
    clock.advance(3_600_000)
  })
})

describe('a forgotten password', () => {
  it("is replaced by a mailed link, at most three times in the link's lifetime", async () => {
    const email = 'forgetful@example.com'
    await server.member({ organization: 'Forgetful', email })
    const forgot = (address: string) =>
      request(server, 'POST', '/api/auth/forgot', { body: { email: address }, token: null })
    const { body } = await forgot(email)
    expect(body.message).toBe('If there is an account with this address, a link to a new password is on its way.')
    expect((await forgot('unknown@example.com')).body).toEqual(body)
    const mine = () => mail.mails.filter(({ to }) => to.includes(email))
    await expect.poll(mine).toHaveLength(1)
    const [, code] = /\/app\/password#([0-9A-Za-z]{43})/.exec(mine()[0]!.text) ?? []
    for (let i = 0; i < 4; i++) await forgot(email)
    // Its mail comes after those of the requests before it.
    await server.member({ organization: 'Forgetful', email: 'next@example.com' })
    await forgot('next@example.com')
    await expect.poll(() => mail.mails.some(({ to }) => to.includes('next@example.com'))).toBe(true)
    expect(mine()).toHaveLength(3)
    const signedIn = await request(server, 'POST', '/api/auth/link', { body: { code }, token: null })
    expect(signedIn.body.user).toMatchObject({ email, hasPassword: false })
    expect(mail.mails.some(({ to }) => to.includes('unknown@example.com'))).toBe(false)
  })
})

describe('without SMTP_URL', () => {
  it('the answer has the link, and a link by mail only is refused', async () => {
    await using silent = await startServer()
    const profile = await request(silent, 'GET', '/api/v1/profile')
    const path = `/api/v1/organizations/${profile.body.profile.organization.id}/invitations`
    const body = { email: 'a@example.com', role: 'member' }
    const { body: created } = await request(silent, 'POST', path, { body })
    expect(created).toMatchObject({ mailed: false, url: expect.stringContaining('/app/accept#') })
    expectError(
      await request(silent, 'POST', path, { body: { ...body, mailOnly: true } }),
      400,
      'Invalid mailOnly. This server sends no mail',
    )
  })
})

describe('a paused server', () => {
  it('mails no invitation, and logs that', async () => {
    const before = mail.mails.length
    await using paused = await startServer({ SMTP_URL: mail.url, PAUSED: 'true' })
    const { organizationId, token } = await paused.member({ organization: 'Paused', role: 'owner' })
    const path = `/api/v1/organizations/${organizationId}/invitations`
    const body = { email: 'guest@example.com', role: 'member' }
    expect((await request(paused, 'POST', path, { token, body })).status).toBe(200)
    await expect.poll(() => paused.logs.join('')).toContain('a mail was not sent: the server is paused')
    await paused.service.stop()
    expect(mail.mails.length).toBe(before)
  })
})
