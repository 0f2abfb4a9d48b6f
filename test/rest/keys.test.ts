import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { apis, expectError, onEachApi } from '../support/api.ts'
import { tickingClock } from '../support/clock.ts'
import { startModelServer } from '../support/model-server.ts'
import { runProgram } from '../support/process.ts'
import { type Answer, request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'
import { use } from '../support/use.ts'

const DAY = 24 * 60 * 60 * 1000
const FORBIDDEN = "You don't have permission to access this resource"
const INVALID = 'Unauthorized. Invalid or expired token'

/** A clock without repeated times, moved forward at will. */
let ahead = 0
const ticking = tickingClock()
const clock = { now: () => new Date(ticking.now().getTime() + ahead) }

const model = await use(startModelServer())
const server = await use(startServer({ OPENAI_BASE_URL: model.baseUrl }, { clock }))

type Caller = { token: string }
const post = ({ token }: Caller, body: unknown, key?: string): Promise<Answer> =>
  request(server, 'POST', '/api/v1/keys', { token, body, ...(key && { headers: { 'Idempotency-Key': key } }) })
const list = async ({ token }: Caller) => (await request(server, 'GET', '/api/v1/keys', { token })).body.keys
const revoke = ({ token }: Caller, id: string) => request(server, 'DELETE', `/api/v1/keys/${id}`, { token })
const useToken = ({ token }: Caller) => request(server, 'GET', '/api/v1/profile', { token })

const created = async (maker: Caller, fields: object = {}) => {
  const { status, body } = await post(maker, { name: 'CI', ...fields })
  expect(status, JSON.stringify(body)).toBe(200)
  return body as { id: string; token: string; expiresAt: string | null; key: { scopes: string[]; preview: string } }
}

describe('POST /keys', () => {
  it('answers a working token, which is never shown again', async () => {
    const ann = await server.member()
    const before = clock.now()
    const { status, body } = await post(ann, {
      name: 'CI',
      expiresInDays: 90,
      scopes: ['agents:read', 'profile:write'],
    })
    expect(status).toBe(200)
    const key = {
      id: expect.stringMatching(/^\w{22}$/),
      name: 'CI',
      preview: `${body.token.slice(0, 8)}…`,
      scopes: ['agents:read', 'profile:write'],
      tokenId: ann.tokenId,
      createdAt: expect.any(String),
      expiresAt: new Date(Date.parse(body.key.createdAt) + 90 * DAY).toISOString(),
      lastUsedAt: null,
    }
    expect(body).toEqual({
      success: true,
      id: body.key.id,
      name: 'CI',
      token: body.token,
      expiresAt: key.expiresAt,
      key,
    })
    expect(body.token).toMatch(/^mst_[0-9A-Za-z]{36}$/)
    expect(Date.parse(body.key.createdAt)).toBeGreaterThanOrEqual(before.getTime())
    expect((await useToken(body)).status).toBe(200)
    const [listed] = await list(ann)
    expect(listed).toEqual({ ...body.key, lastUsedAt: expect.any(String) })
    const { db } = server.service.deps
    const stored = JSON.stringify([await db.token.findMany(), await db.auditEvent.findMany()])
    expect(stored).not.toContain(body.token.slice(8))
    expect(server.logs.join()).not.toContain(body.token.slice(8))
  })

  it('gives the scopes of its maker and no expiry by default', async () => {
    const ann = await server.member({ scopes: ['keys:write', 'tasks:read'] })
    const key = await created(ann)
    expect(key.key.scopes).toEqual(['keys:write', 'tasks:read'])
    expect(key.expiresAt).toBeNull()
    const nulls = await created(ann, { expiresInDays: null, scopes: null })
    expect([nulls.key.scopes, nulls.expiresAt]).toEqual([['keys:write', 'tasks:read'], null])
  })

  type Rank = [maker: string[], wanted: string[], status: 200 | 403]
  it.each<Rank>([
    [['*'], ['*'], 200],
    [['*'], ['agents:execute', 'tasks:write'], 200],
    [['keys:write', 'tasks:write'], ['tasks:read'], 200],
    [['keys:write', 'tasks:write'], ['tasks:write', 'keys:read', 'keys:write'], 200],
    [['keys:write', 'tasks:read'], ['tasks:write'], 403],
    [['keys:write', 'tasks:read'], ['tasks:read', 'tasks:write'], 403],
    [['keys:write'], ['agents:execute'], 403],
    [['keys:write', 'agents:write'], ['agents:execute'], 403],
    [['keys:write', 'agents:execute'], ['agents:read'], 403],
    [['keys:write'], ['*'], 403],
    [['keys:read'], ['keys:read'], 403],
  ])('POST /keys by a key with %j for a key with %j: %i', async (scopes, wanted, status) => {
    const maker = await server.member({ scopes })
    const before = await server.service.deps.db.token.count()
    const answer = await post(maker, { name: 'x', scopes: wanted })
    if (status === 403) expectError(answer, 403, FORBIDDEN)
    expect(answer.status).toBe(status)
    expect(await server.service.deps.db.token.count()).toBe(before + (status === 200 ? 1 : 0))
  })

  it('POST /keys by a restricted key gives no further scopes', async () => {
    const ann = await server.member()
    const less = await created(ann, { scopes: ['keys:write', 'tasks:read'] })
    expectError(await post(less, { name: 'x', scopes: ['*'] }), 403, FORBIDDEN)
    expect((await created(less)).key.scopes).toEqual(['keys:write', 'tasks:read'])
  })

  const SCOPES = 'Invalid scopes. Must be: *, agents:execute, or <resource>:read, <resource>:write'
  const days = (what: string) => `Invalid value for field: expiresInDays. Expected ${what}`
  type Bad = [message: string, body: Record<string, unknown>]
  it.each(
    onEachApi<Bad>([
      ['Missing required field: name', {}],
      ['Missing required field: name', { name: '' }],
      ['Missing required field: name', { name: ' \n' }],
      ['Missing required field: name', { name: null }],
      ['Invalid value for field: name. Expected string', { name: 7 }],
      ['Invalid value for field: name. Expected at most 200 characters', { name: 'x'.repeat(201) }],
      [days('at least 1'), { name: 'x', expiresInDays: 0 }],
      [days('at least 1'), { name: 'x', expiresInDays: -1 }],
      [days('at most 365'), { name: 'x', expiresInDays: 366 }],
      [days('integer'), { name: 'x', expiresInDays: 1.5 }],
      [days('at most 365'), { name: 'x', expiresInDays: 1e9 }],
      [days('number'), { name: 'x', expiresInDays: '90' }],
      [days('number'), { name: 'x', expiresInDays: true }],
      [days('number'), { name: 'x', expiresInDays: [90] }],
      [SCOPES, { name: 'x', scopes: ['everything'] }],
      [SCOPES, { name: 'x', scopes: ['tasks:read', 'tasks:delete'] }],
      [SCOPES, { name: 'x', scopes: ['Tasks:read'] }],
      [SCOPES, { name: 'x', scopes: ['tasks:execute'] }],
      [SCOPES, { name: 'x', scopes: [''] }],
      [SCOPES, { name: 'x', scopes: ['constructor'] }],
      ['Invalid value for field: scopes. Expected at least 1 item', { name: 'x', scopes: [] }],
      ['Invalid value for field: scopes. Expected array', { name: 'x', scopes: '*' }],
      ['Missing required field: scopes.0', { name: 'x', scopes: [null] }],
    ]),
  )('%s: 400 %s', async (api, message, body) => {
    const before = await server.service.deps.db.token.count()
    expectError(await apis[api](server, 'keys.create', body), 400, message)
    expect(await server.service.deps.db.token.count()).toBe(before)
  })

  it.each([1, 365])('accepts %i days, to the millisecond', async (expiresInDays) => {
    const { key, expiresAt } = (await post(server, { name: 'x', expiresInDays })).body
    expect(Date.parse(expiresAt) - Date.parse(key.createdAt)).toBe(expiresInDays * DAY)
  })

  it('ignores other fields of the body', async () => {
    const ann = await server.member()
    const own = { id: 'mine', token: 'mst_mine', userId: 'x', organizationId: 'x', preview: 'x', lastUsedAt: 'x' }
    const { body } = await post(ann, { name: 'x', ...own })
    expect(body.id).toMatch(/^\w{22}$/)
    expect(await server.service.deps.db.token.findUnique({ where: { id: body.id } })).toMatchObject({
      userId: ann.userId,
      organizationId: ann.organizationId,
    })
  })

  it('shows the token once: a repeated request omits it, and nothing secret is stored', async () => {
    const ann = await server.member()
    const first = await post(ann, { name: 'CI' }, 'key-1')
    const again = await post(ann, { name: 'CI' }, 'key-1')
    expect(again.status).toBe(200)
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expect(again.body).toEqual({ ...first.body, token: null })
    expectError(await post(ann, { name: 'Other' }, 'key-1'), 422, 'Idempotency-Key was used with another request')
    expect(await list(ann)).toHaveLength(2)
    const { token } = first.body
    expect((await useToken({ token })).status).toBe(200)
    for (const file of ['muster.db', 'muster.db-wal']) {
      const bytes = await readFile(join(server.folder, file)).catch(() => Buffer.alloc(0))
      for (const part of [token.slice(8), token.slice(4), token.slice(12, 30)]) {
        expect(bytes.includes(part), file).toBe(false)
      }
    }
    const records = JSON.stringify(await server.service.deps.db.idempotencyRecord.findMany())
    expect(records).toContain(first.body.id)
    expect(records).not.toContain('key-1')
  })
})

describe('GET /keys', () => {
  it('lists the caller’s own in this organization, newest first, page by page', async () => {
    const email = `${crypto.randomUUID()}@example.com`
    const ann = await server.member({ email })
    const elsewhere = await server.member({ email, organization: 'Elsewhere' })
    await server.member()
    const names = ['a', 'b', 'c']
    for (const name of names) await created(ann, { name })
    const page = async (query: string) =>
      (await request(server, 'GET', `/api/v1/keys${query}`, { token: ann.token })).body
    const first = await page('?limit=3')
    const second = await page(`?limit=3&cursor=${first.nextCursor}`)
    expect([...first.keys, ...second.keys].map(({ name }: { name: string }) => name)).toEqual(['c', 'b', 'a', 'test'])
    expect(second.nextCursor).toBeNull()
    expect(await list(elsewhere)).toHaveLength(1)
    for (const key of first.keys)
      expect(Object.keys(key).sort()).toEqual([
        'createdAt',
        'expiresAt',
        'id',
        'lastUsedAt',
        'name',
        'preview',
        'scopes',
        'tokenId',
      ])
  })

  it('is refused without the scope', async () => {
    const other = await server.member({ scopes: ['tasks:write'] })
    expectError(await request(server, 'GET', '/api/v1/keys', { token: other.token }), 403, FORBIDDEN)
    const reader = await server.member({ scopes: ['keys:read'] })
    expect(await list(reader)).toHaveLength(1)
    expectError(await revoke(reader, reader.tokenId), 403, FORBIDDEN)
  })
})

describe('DELETE /keys/{id}', () => {
  it('ends a key at once, for good, and takes it from the list', async () => {
    const ann = await server.member()
    const key = await created(ann)
    expect((await useToken(key)).status).toBe(200)
    expect((await revoke(ann, key.id)).body).toEqual({
      success: true,
      message: 'Key revoked successfully',
      derived: { keys: [], missions: [], runs: [] },
    })
    expectError(await useToken(key), 401, INVALID)
    expectError(await revoke(ann, key.id), 404, 'Key not found')
    expect((await list(ann)).map(({ id }: { id: string }) => id)).toEqual([ann.tokenId])
  })

  it('lets a key end itself', async () => {
    const ann = await server.member()
    expect((await revoke(ann, ann.tokenId)).status).toBe(200)
    expectError(await useToken(ann), 401, INVALID)
  })

  it('succeeds for one of two concurrent requests', async () => {
    const ann = await server.member()
    const { id } = await created(ann)
    const answers = await Promise.all([1, 2, 3].map(() => revoke(ann, id)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 404, 404])
  })

  it('gives the same 404 for a colleague’s, an admin’s, a foreign and an unknown key', async () => {
    const ann = await server.member()
    const others = [
      await server.member({ role: 'admin' }),
      await server.member(),
      await server.member({ organization: 'Elsewhere' }),
    ]
    for (const other of others) {
      expectError(await revoke(other, ann.tokenId), 404, 'Key not found')
      expectError(await revoke(ann, other.tokenId), 404, 'Key not found')
    }
    expectError(await revoke(ann, 'x'), 404, 'Key not found')
    for (const who of [ann, ...others]) expect((await useToken(who)).status).toBe(200)
  })
})

describe('an expired key', () => {
  it('is refused from that moment on, and stays in the list', async () => {
    const ann = await server.member()
    const key = await created(ann, { expiresInDays: 1 })
    ahead += DAY - 60_000
    expect((await useToken(key)).status).toBe(200)
    ahead += 60_001
    expectError(await useToken(key), 401, 'Token expired')
    expect((await list(ann)).map(({ id }: { id: string }) => id)).toContain(key.id)
    expect((await revoke(ann, key.id)).status).toBe(200)
    expectError(await useToken(key), 401, INVALID)
  })
})

describe('an open stream', () => {
  /** Opens a stream with its own key, of a run that emits one word and then waits. */
  async function open(ann: Member, fields: object = {}) {
    const key = await created(ann, fields)
    model.script({ tokens: 'Wait', end: 'hang' })
    const body = { name: 'Ada', systemPrompt: 'S' }
    const { id } = (await request(server, 'POST', '/api/v1/agents', { token: ann.token, body })).body
    const stream = await openStream(server, `/api/v1/agents/${id}/execute`, {
      method: 'POST',
      token: key.token,
      body: { message: 'Hello', stream: true },
    })
    const { data } = (await stream.next()) ?? {}
    expect((await stream.next())?.event).toBe('message')
    return { key, stream, executionId: data.executionId as string }
  }

  const cancel = (ann: Member, id: string) =>
    request(server, 'POST', `/api/v1/executions/${id}/cancel`, { token: ann.token })

  it('ends with its key, but not with another one, and the run continues', async () => {
    const ann = await server.member()
    const { stream, executionId } = await open(ann)
    await using first = stream
    const second = await open(ann)
    await using other = second.stream
    const [newest, older] = await list(ann)
    expect(newest.id).toBe(second.key.id)
    await revoke(ann, older.id)
    // No terminal event, because the run has not ended.
    expect(await first.rest()).toEqual([])
    const { status } = (await request(server, 'GET', `/api/v1/executions/${executionId}`, { token: ann.token })).body
      .execution
    expect(status).toBe('running')
    for (const id of [executionId, second.executionId]) await cancel(ann, id)
    expect((await other.rest()).map(({ event }) => event)).toEqual(['error'])
  })

  it('ends soon after another process revoked its key', async () => {
    const ann = await server.member()
    const { key, stream, executionId } = await open(ann)
    await using open_ = stream
    const { code, err } = await runProgram('src/admin/main.ts', ['token', 'revoke', key.id], server.folder, {
      DATA_DIR: server.folder,
      ...server.databaseEnv,
    })
    expect(code, err).toBe(0)
    await expect.poll(async () => (await useToken(key)).status).toBe(401)
    expectError(await useToken(key), 401, INVALID)
    expect(await open_.rest()).toEqual([])
    await cancel(ann, executionId)
  })

  it('ends soon after its key expires', async () => {
    const ann = await server.member()
    const { key, stream, executionId } = await open(ann, { expiresInDays: 1 })
    await using open_ = stream
    ahead += DAY
    expectError(await useToken(key), 401, 'Token expired')
    expect(await open_.rest()).toEqual([])
    await cancel(ann, executionId)
  })
})
