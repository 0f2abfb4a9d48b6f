import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, expect, it, vi } from 'vitest'
import { createActors } from '../../src/auth/actors.ts'
import type { Bus } from '../../src/bus/index.ts'
import type { Db } from '../../src/db/client.ts'
import { overrideMembers } from '../../src/db/override-members.ts'
import { newToken } from '../../src/lib/token.ts'
import { APIS, apis, expectError, onEachApi } from '../support/api.ts'
import { type Answer, credentialsOf, request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const MISSING = 'Authorization header required'
const FORMAT = 'Invalid token format. Token must start with mst_'
const EXPIRED = 'Token expired'
const FORBIDDEN = "You don't have permission to access this resource"

let now = new Date('2026-01-01T00:00:00Z')
const clock = { now: () => now }

const server = await use(startServer({}, { clock }))
const port = Number(new URL(server.url).port)

const revoke = ({ tokenId, token }: Member) => request(server, 'DELETE', `/api/v1/keys/${tokenId}`, { token })

/** As the operator's command line does, without a notice to the server. */
const revokeElsewhere = ({ tokenId: id }: Member) =>
  server.service.deps.db.token.update({ where: { id }, data: { revokedAt: clock.now() } })

const endMembership = ({ organizationId, userId }: Member) =>
  server.service.deps.db.membership.deleteMany({ where: { organizationId, userId } })

/** The errors of invalid and expired tokens: under `/api/v1` they differ from the rest. */
const invalid = (api: string) =>
  api === 'REST' ? 'Unauthorized. Invalid or expired token' : 'Invalid or expired token'

const mistyped = (token: string) => token.slice(0, -1) + (token.endsWith('0') ? '1' : '0')

describe('the Authorization header', () => {
  type Row = [what: string, header: (member: Member) => string | null, status: number, message?: string]
  const rows: Row[] = [
    ['a good token', ({ token }) => `Bearer ${token}`, 200],
    ['none', () => null, 401, MISSING],
    ['an empty one', () => '', 401, FORMAT],
    ['bearer in lower case', ({ token }) => `bearer ${token}`, 200],
    ['BEARER in upper case', ({ token }) => `BEARER ${token}`, 200],
    ['Bearer alone', () => 'Bearer', 401, FORMAT],
    ['Bearer and a blank', () => 'Bearer ', 401, FORMAT],
    ['two blanks', ({ token }) => `Bearer  ${token}`, 401, FORMAT],
    ['a tab', ({ token }) => `Bearer\t${token}`, 401, FORMAT],
    ['the token alone', ({ token }) => token, 401, FORMAT],
    ['something after the token', ({ token }) => `Bearer ${token} x`, 401, FORMAT],
    ['Basic', ({ token }) => `Basic ${btoa(`user:${token}`)}`, 401, FORMAT],
    ['another prefix', ({ token }) => `Bearer ${token.replace('mst_', 'sk_')}`, 401, FORMAT],
    ['a prefix in upper case', ({ token }) => `Bearer ${token.replace('mst_', 'MST_')}`, 401, FORMAT],
    ['no underscore', ({ token }) => `Bearer ${token.replace('mst_', 'mst-')}`, 401, FORMAT],
    ['the prefix alone', () => 'Bearer mst_', 401, 'invalid'],
    ['a bad checksum', ({ token }) => `Bearer ${mistyped(token)}`, 401, 'invalid'],
    ['a token too long', ({ token }) => `Bearer ${token}0`, 401, 'invalid'],
    ['a token too short', ({ token }) => `Bearer ${token.slice(0, -1)}`, 401, 'invalid'],
    ['an unknown, well-formed token', () => `Bearer ${newToken('mst')}`, 401, 'invalid'],
    ['8 KiB', () => `Bearer mst_${'x'.repeat(8192)}`, 401, 'invalid'],
    ['bytes that are no ASCII', () => 'Bearer mst_\xe4\xff', 401, FORMAT],
    ['SQL', () => `Bearer mst_'OR'1'='1`, 401, 'invalid'],
  ]

  it.each(onEachApi(rows))('the Authorization header with %s: %s', async (api, _, header, status, message = '') => {
    const value = header(await server.member())
    const headers = value === null ? undefined : { Authorization: value }
    for (const procedure of ['agents.list', 'agents.create', 'executions.events']) {
      const answer = await apis[api](server, procedure, {}, { token: null, ...(headers && { headers }) })
      if (status !== 200) expectError(answer, status, message === 'invalid' ? invalid(api) : message)
      else expect([200, 400, 404]).toContain(answer.status)
    }
  })

  type Ended = [what: string, end: (member: Member) => unknown, status: number, message: string]
  const ended: Ended[] = [
    ['revoked', revoke, 401, 'invalid'],
    [
      'expired',
      () => {
        now = new Date(now.getTime() + 60_000)
      },
      401,
      EXPIRED,
    ],
  ]
  it.each(onEachApi(ended))('%s: with a token that was %s is refused from the next request on', async (...row) => {
    const [api, , end, status, message] = row
    const member = await server.member({ expiresAt: new Date(now.getTime() + 60_000) })
    const call = () => apis[api](server, 'agents.list', {}, { token: member.token })
    expect((await call()).status).toBe(200)
    await end(member)
    expectError(await call(), status, message === 'invalid' ? invalid(api) : message)
  })

  const endedElsewhere: Ended[] = [
    ['revoked', revokeElsewhere, 401, 'invalid'],
    ["deprived of its user's membership", endMembership, 403, FORBIDDEN],
  ]
  it.each(onEachApi(endedElsewhere))(
    '%s: with a token that was %s by another process is refused soon',
    async (...row) => {
      const [api, , end, status, message] = row
      const member = await server.member()
      const call = () => apis[api](server, 'agents.list', {}, { token: member.token })
      expect((await call()).status).toBe(200)
      await end(member)
      await expect.poll(async () => (await call()).status).toBe(status)
      expectError(await call(), status, message === 'invalid' ? invalid(api) : message)
    },
  )

  it('a recently used token costs no statement, and one after a second', async () => {
    const { token, userId } = await server.member()
    const actors = createActors(server.service.deps)
    const time = vi.spyOn(performance, 'now').mockReturnValue(1_000)
    const lookups = async () => {
      const before = server.queries.length
      expect(await actors.of(credentialsOf(`Bearer ${token}`))).toMatchObject({ userId })
      return server.queries.slice(before).filter((sql) => sql.includes('t."digest"')).length
    }
    expect([await lookups(), await lookups(), await lookups()]).toEqual([1, 0, 0])
    time.mockReturnValue(2_000)
    expect([await lookups(), await lookups()]).toEqual([1, 0])
    time.mockRestore()
    actors.stop()
  })

  it('a recently used token is looked up again once notifications may have been missed', async () => {
    const { deps } = server.service
    const member = await server.member()
    let miss = () => {}
    const bus: Bus = {
      publish: deps.bus.publish,
      subscribe(_, handler) {
        miss = () => handler(null)
        return () => {}
      },
    }
    const actors = createActors({ ...deps, bus })
    const look = () => actors.of(credentialsOf(`Bearer ${member.token}`))
    const time = vi.spyOn(performance, 'now').mockReturnValue(1_000)
    await look()
    await revokeElsewhere(member)
    expect(await look()).toMatchObject({ tokenId: member.tokenId })
    miss()
    await expect(look()).rejects.toMatchObject({ status: 401 })
    time.mockRestore()
  })

  it('a token that is revoked during its lookup is not cached as valid', async () => {
    const { deps } = server.service
    const member = await server.member()
    const db = overrideMembers(deps.db, {
      async $queryRaw(...query: Parameters<Db['$queryRaw']>) {
        const rows = await deps.db.$queryRaw(...query)
        await revoke(member)
        return rows
      },
    })
    const actors = createActors({ ...deps, db })
    const header = `Bearer ${member.token}`
    expect(await actors.of(credentialsOf(header))).toMatchObject({ tokenId: member.tokenId })
    await expect(actors.of(credentialsOf(header))).rejects.toMatchObject({ status: 401 })
    actors.stop()
  })

  it('a token that expires in a millisecond is valid, and invalid then', async () => {
    const { token } = await server.member({ expiresAt: new Date(now.getTime() + 1) })
    expect((await request(server, 'GET', '/api/v1/agents', { token })).status).toBe(200)
    now = new Date(now.getTime() + 1)
    expectError(await request(server, 'GET', '/api/v1/agents', { token }), 401, EXPIRED)
  })

  it('counts once: the first of two wins', async () => {
    const good = `Authorization: Bearer ${server.token}`
    const bad = `Authorization: Bearer ${newToken('mst')}`
    expect((await raw([good, bad])).status).toBe(200)
    expectError(await raw([bad, good]), 401, invalid('REST'))
  })

  it('the Authorization header of 64 KiB is refused unread', async () => {
    expectError(await raw([`Authorization: Bearer mst_${'x'.repeat(65_536)}`]), 431, 'Request Header Fields Too Large')
  })

  it.each(['\x00', '\x01', '\x0b', '\x1b[2J', '\x7f', 'a\rb'])(
    'the Authorization header with the control character %j is refused',
    async (it) => {
      const { status, body } = await raw([`Authorization: Bearer mst_${it}${server.token.slice(4)}`])
      expect([400, 401]).toContain(status)
      expect(body).toMatchObject({ error: true, statusCode: status })
    },
  )

  it('the Authorization header of 100 random bytes is refused, a hundred times', async () => {
    for (let round = 0; round < 100; round++) {
      const bytes = randomBytes(100)
        .toString('latin1')
        .replace(/[\r\n]/g, '')
      const { status, body } = await raw([`Authorization: ${bytes}`])
      expect([400, 401]).toContain(status)
      expect(body).toMatchObject({ error: true, statusCode: status })
    }
    expect((await request(server, 'GET', '/api/v1/agents')).status).toBe(200)
  })

  it('is optional on other paths', async () => {
    for (const path of ['/healthz', '/readyz', '/api/health', '/api/openapi.json']) {
      expect((await request(server, 'GET', path, { token: null })).status).toBe(200)
    }
  })

  /** Sends GET /api/v1/agents with these header lines of arbitrary bytes. Returns the answer. */
  async function raw(lines: string[]): Promise<Answer> {
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    const head = ['GET /api/v1/agents HTTP/1.1', 'Host: localhost', 'Connection: close', ...lines]
    socket.write(`${head.join('\r\n')}\r\n\r\n`, 'latin1')
    const [answer = '', body = ''] = (await text(socket)).split('\r\n\r\n')
    const [first = '', ...rest] = answer.split('\r\n')
    const headers = new Headers(rest.map((line) => line.split(': ', 2) as [string, string]))
    return { status: Number(first.split(' ')[1]), headers, body: JSON.parse(body) }
  }
})

it('the prefix of tokens is a setting', async () => {
  await using other = await startServer({ TOKEN_PREFIX: 'td' })
  expect(other.token).toMatch(/^td_[0-9A-Za-z]{36}$/)
  expect((await request(other, 'GET', '/api/v1/agents')).status).toBe(200)
  const answer = await request(other, 'GET', '/api/v1/agents', { token: newToken('mst') })
  expectError(answer, 401, 'Invalid token format. Token must start with td_')
})

it('the last use of a token is written at most once a minute', async () => {
  const { token, tokenId } = await server.member()
  const use = async () => {
    server.queries.length = 0
    await Promise.all(APIS.map((api) => apis[api](server, 'agents.list', {}, { token })))
    await apis.REST(server, 'agents.list', {}, { token })
    return server.queries.filter((sql) => /^UPDATE/i.test(sql))
  }
  const lastUsedAt = async () =>
    (await server.service.deps.db.token.findUnique({ where: { id: tokenId } }))?.lastUsedAt?.toISOString()
  const first = now.toISOString()
  await apis.REST(server, 'agents.list', {}, { token })
  expect(await lastUsedAt()).toBe(first)
  for (const seconds of [0, 30, 30]) {
    now = new Date(now.getTime() + seconds * 1000)
    await server.forgetActors()
    expect(await use()).toEqual([])
  }
  expect(await lastUsedAt()).toBe(first)
  now = new Date(now.getTime() + 1)
  await server.forgetActors()
  expect(await use()).not.toEqual([])
  expect(await lastUsedAt()).toBe(now.toISOString())
})
