import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { dataKeyContext } from '../../src/crypto/data-key.ts'
import { seal, unseal } from '../../src/crypto/envelope.ts'
import { contextOf } from '../../src/secrets/resolve.ts'
import { APIS, apis, expectError } from '../support/api.ts'
import { tickingClock } from '../support/clock.ts'
import { type Answer, request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"
const BAD_NAME = 'Invalid secret name. Must be UPPER_SNAKE_CASE: A-Z, 0-9 and _, a letter first, at most 100 characters'

/** More hosts than a secret may have. */
const HOSTS = Array.from({ length: 21 }, (_, index) => `h${index}.example`)

const server = await use(startServer({ LOG_LEVEL: 'trace' }, { clock: tickingClock() }))
const owner = await server.member({ organization: 'Acme', role: 'owner' })
const member = await server.member({ organization: 'Acme' })

const call = ({ token }: { token: string }, method: string, path: string, body?: unknown, headers = {}) =>
  request(server, method, path, { token, headers, ...(body !== undefined && { body }) })

async function createSpace(who: Member, more: object = {}): Promise<string> {
  return (await call(who, 'POST', '/api/v1/spaces', { name: 'Space', ...more })).body.id
}

const ofSpace = (id: string) => `/api/v1/spaces/${id}/secrets`
const ofOrganization = ({ organizationId }: Member) => `/api/v1/organizations/${organizationId}/env`

/** The two places of secrets, each empty, written by the owner of Acme. */
const PLACES: [string, () => Promise<string>][] = [
  ['a space', async () => ofSpace(await createSpace(owner))],
  [
    'the organization',
    async () => {
      const path = ofOrganization(owner)
      const { secrets } = (await call(owner, 'GET', path)).body
      if (secrets.length) await call(owner, 'DELETE', path, { keys: secrets })
      return path
    },
  ],
]

describe.each(PLACES)('the secrets of %s', (_, empty) => {
  it('are listed by their names, in order, after they were set', async () => {
    const path = await empty()
    const set = await call(owner, 'POST', path, { secrets: { B_2: 'two', A: 'one' } })
    expect([set.status, set.body]).toEqual([200, { success: true, keys: ['B_2', 'A'] }])
    const { body } = await call(owner, 'GET', path)
    expect(body).toMatchObject({ success: true, secrets: ['A', 'B_2'], count: 2 })
    if (path.includes('/spaces/')) expect(body.spaceId).toBe(path.split('/')[4])
    await call(owner, 'POST', path, { secrets: { A: 'another' } })
    expect((await call(owner, 'GET', path)).body.count).toBe(2)
  })

  it('can be deleted by one name in the path, or by several in the body or the query', async () => {
    const path = await empty()
    await call(owner, 'POST', path, { secrets: { A: '1', B: '2', C: '3', D: '4', E: '5' } })
    expect((await call(owner, 'DELETE', `${path}/A`)).body).toMatchObject({ success: true, keys: ['A'] })
    expect((await call(owner, 'DELETE', path, { keys: ['B', 'C', 'B'] })).body.keys).toEqual(['B', 'C'])
    expect((await call(owner, 'DELETE', `${path}?keys=D&keys=E`)).body.keys).toEqual(['D', 'E'])
    expect((await call(owner, 'GET', path)).body).toMatchObject({ secrets: [], count: 0 })
  })

  it('stay unchanged if one of those to delete is missing', async () => {
    const path = await empty()
    await call(owner, 'POST', path, { secrets: { A: '1' } })
    expectError(await call(owner, 'DELETE', `${path}/B`), 404, 'Secret not found')
    expectError(await call(owner, 'DELETE', path, { keys: ['A', 'B'] }), 404, 'Secret not found')
    expect((await call(owner, 'GET', path)).body.secrets).toEqual(['A'])
  })

  it.each<[string, unknown, string]>([
    ['nothing', undefined, 'Missing required field: secrets'],
    ['no secrets', { secrets: {} }, 'Missing required field: secrets'],
    ['null', { secrets: null }, 'Missing required field: secrets'],
    ['a list', { secrets: ['A'] }, 'Invalid value for field: secrets. Expected object'],
    ['a text', { secrets: 'A=1' }, 'Invalid value for field: secrets. Expected object'],
    ['an empty value', { secrets: { A: '' } }, 'Missing required field: secrets.A'],
    ['a blank value', { secrets: { A: ' \n' } }, 'Missing required field: secrets.A'],
    ['no value', { secrets: { A: null } }, 'Missing required field: secrets.A'],
    ['a number', { secrets: { A: 5 } }, 'Invalid value for field: secrets.A. Expected string'],
    ['an object', { secrets: { A: { B: 'x' } } }, 'Invalid value for field: secrets.A. Expected string'],
    [
      'too many hosts',
      { secrets: { A: { value: 'x', hosts: HOSTS } } },
      'Invalid value for field: secrets.A.hosts. Expected a list of at most 20 hosts',
    ],
    ['NUL', { secrets: { A: 'a\0b' } }, 'Invalid character in request: U+0000'],
    [
      'too many characters',
      { secrets: { A: 'x'.repeat(65_537) } },
      'Invalid value for field: secrets.A. Expected at most 65536 characters',
    ],
    [
      'too many bytes',
      { secrets: { A: 'ä'.repeat(32_769) } },
      'Invalid value for field: secrets.A. Expected at most 65536 bytes',
    ],
    ...[
      'a',
      'Aa',
      '_A',
      '1A',
      'A-B',
      'A.B',
      'A B',
      '',
      'Ä',
      'A\n',
      '__proto__x',
      '../A',
      '$A',
      'А',
      'A'.repeat(101),
    ].map((name): [string, unknown, string] => [
      `the name ${JSON.stringify(name)}`,
      { secrets: { OK: 'x', [name]: 'x' } },
      BAD_NAME,
    ]),
    ['the name __proto__', '{"secrets": {"__proto__": "x"}}', 'Missing required field: secrets'],
  ])('are not set by %s', async (_, body, message) => {
    const path = await empty()
    const answer = await call(owner, 'POST', path, body)
    expectError(answer, 400, message)
    if (message === BAD_NAME) expect(answer.body.detail).toBe('Correct name 2 of 2.')
    expect((await call(owner, 'GET', path)).body.count).toBe(0)
  })

  it.each<[string, unknown, string]>([
    ['no names', undefined, 'Missing required field: keys'],
    ['null', { keys: null }, 'Missing required field: keys'],
    ['an empty list', { keys: [] }, 'Invalid value for field: keys. Expected at least 1 item'],
    ['a bad name', { keys: ['A', 'b'] }, BAD_NAME],
    ['a number', { keys: [5] }, 'Invalid value for field: keys.0. Expected string'],
    ['no JSON', '{"keys"', 'Invalid JSON in request body'],
    ['a list', '["A"]', 'Invalid value for field: body. Expected object'],
  ])('are not deleted by %s', async (_, body, message) => {
    const path = await empty()
    await call(owner, 'POST', path, { secrets: { A: '1' } })
    expectError(await call(owner, 'DELETE', path, body), 400, message)
    expectError(await call(owner, 'DELETE', `${path}/a-b`), 400, BAD_NAME)
    expect((await call(owner, 'GET', path)).body.count).toBe(1)
  })

  it('are at most 200, and each at most 64 KiB', async () => {
    const path = await empty()
    const many = (from: number, to: number) =>
      Object.fromEntries(Array.from({ length: to - from }, (_, index) => [`K_${from + index}`, 'x']))
    expect((await call(owner, 'POST', path, { secrets: many(0, 199) })).status).toBe(200)
    expectError(await call(owner, 'POST', path, { secrets: many(199, 201) }), 400, 'Too many secrets. At most 200')
    const answers = await Promise.all(
      [200, 201, 202].map((at) => call(owner, 'POST', path, { secrets: many(at, at + 1) })),
    )
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 400, 400])
    const largest = { K_0: 'x'.repeat(65_536), K_1: 'ä'.repeat(32_768), K_2: ' \u{1f511} ' }
    expect((await call(owner, 'POST', path, { secrets: largest })).status).toBe(200)
    expect((await call(owner, 'GET', path)).body.count).toBe(200)
  })

  it('are set once per Idempotency-Key, and a replay needs write permission', async () => {
    const path = await empty()
    const headers = { 'Idempotency-Key': `key of ${path}` }
    const first = await call(owner, 'POST', path, { secrets: { A: '1' } }, headers)
    await call(owner, 'DELETE', `${path}/A`)
    const again = await call(owner, 'POST', path, { secrets: { A: '1' } }, headers)
    expect([again.body, again.headers.get('idempotent-replayed')]).toEqual([first.body, 'true'])
    expect((await call(owner, 'GET', path)).body.count).toBe(0)
    const other = await call(owner, 'POST', path, { secrets: { A: '2' } }, headers)
    expectError(other, 422, 'Idempotency-Key was used with another request')
    expectError(await call(member, 'POST', path, { secrets: { A: '1' } }, headers), 403, FORBIDDEN)
  })

  it('leave the names, and never a value, in the audit log', async () => {
    const path = await empty()
    await call(owner, 'POST', path, { secrets: { A: 'audited', B: 'audited' } })
    await call(owner, 'DELETE', path, { keys: ['A', 'B'] })
    const scope = path.includes('/spaces/') ? path.split('/')[4] : 'organization'
    const where = { organizationId: owner.organizationId, target: `${scope}/A,B` }
    const events = await server.service.deps.db.auditEvent.findMany({ where, orderBy: { at: 'asc' } })
    expect(events.map(({ action, actor }) => [action, actor])).toEqual([
      ['secret.set', owner.userId],
      ['secret.delete', owner.userId],
    ])
  })
})

it.each([
  ['a space', 'setSpaceSecrets(id: "x", secrets: $secrets)'],
  ['the organization', 'setOrganizationSecrets(orgId: "x", secrets: $secrets)'],
])('GraphQL reports a secret of %s without a name or a value', async (_, mutation) => {
  const query = `mutation ($secrets: [SecretInput!]!) { ${mutation} }`
  const refused = async (secrets: unknown) =>
    (await call(owner, 'POST', '/graphql', { query, variables: { secrets } })).body.errors[0].message
  expect(await refused([{ name: 'A', value: '1' }, { name: 'B' }])).toBe('Missing required field: secrets.1.value')
  expect(await refused([{ value: '1' }])).toBe('Missing required field: secrets.0.name')
  expect(await refused([{ name: 'A', value: 1 }])).toBe('Invalid value for field: secrets.0.value. Expected string')
  expect(await refused(null)).toBe('Missing required field: secrets')
})

describe('a caller', () => {
  const answers = async (who: Member, path: string): Promise<number[]> => {
    const all: Answer[] = []
    for (const [method, body] of [
      ['GET', undefined],
      ['POST', { secrets: { A: 'x' } }],
      ['DELETE', { keys: ['A'] }],
    ] as const) {
      all.push(await call(who, method, path, body))
    }
    return all.map(({ status }) => status)
  }

  it('a caller who is a member sees the names of a space, and writes those of their own', async () => {
    const admin = await server.member({ organization: 'Acme', role: 'admin' })
    const ours = ofSpace(await createSpace(owner))
    expect(await answers(owner, ours)).toEqual([200, 200, 200])
    expect(await answers(admin, ours)).toEqual([200, 200, 200])
    expect(await answers(member, ours)).toEqual([200, 403, 403])
    expect(await answers(member, ofSpace(await createSpace(member)))).toEqual([200, 200, 200])
  })

  it('a caller who cannot reach a space finds none: private, archived, foreign, unknown', async () => {
    const stranger = await server.member({ organization: 'Strangers', role: 'owner' })
    const hidden = await createSpace(owner, { visibility: 'private' })
    const archived = await createSpace(owner)
    await call(owner, 'DELETE', `/api/v1/spaces/${archived}`)
    for (const [who, id] of [
      [member, hidden],
      [owner, archived],
      [stranger, hidden],
      [owner, await createSpace(stranger)],
      [owner, 'unknown'],
    ] as const) {
      expect(await answers(who, ofSpace(id))).toEqual([404, 404, 404])
      expectError(await call(who, 'GET', ofSpace(id)), 404, 'Space not found')
    }
  })

  it('a caller who is no admin sees the names of their own organization only', async () => {
    const stranger = await server.member({ organization: 'Strangers', role: 'owner' })
    expect(await answers(member, ofOrganization(owner))).toEqual([200, 403, 403])
    expect(await answers(owner, ofOrganization(owner))).toEqual([200, 200, 200])
    for (const path of [ofOrganization(stranger), '/api/v1/organizations/unknown/env']) {
      expect(await answers(owner, path)).toEqual([403, 403, 403])
      expectError(await call(owner, 'GET', path), 403, FORBIDDEN)
    }
  })

  it('a caller with a token for reading cannot write, whatever their role', async () => {
    const email = 'reader@example.com'
    const reader = await server.member({ organization: 'Acme', role: 'owner', email, scopes: ['secrets:read'] })
    const writer = await server.member({ organization: 'Acme', role: 'owner', email, scopes: ['secrets:write'] })
    const other = await server.member({ organization: 'Acme', role: 'owner', email, scopes: ['spaces:write'] })
    const path = ofSpace(await createSpace(owner))
    expect(await answers(reader, path)).toEqual([200, 403, 403])
    expect(await answers(writer, path)).toEqual([200, 200, 200])
    expect(await answers(other, path)).toEqual([403, 403, 403])
  })
})

describe('a secret value', () => {
  const CANARY = 'canary-secret-7d41f0'

  it('is nowhere in responses, events, logs, the database, its journal or a backup', async () => {
    await using own = await startServer({ LOG_LEVEL: 'trace' })
    const { db } = own.service.deps
    const space = await db.space.findFirstOrThrow()
    const answers: unknown[] = []
    const send = async (method: string, path: string, body?: unknown, headers = {}) => {
      const answer = await request(own, method, path, { headers, ...(body !== undefined && { body }) })
      answers.push(answer.body)
      return answer
    }
    const secrets = { CANARY, OTHER: `x${CANARY}x` }
    const paths = [ofSpace(space.id), `/api/v1/organizations/${space.organizationId}/env`]
    for (const path of paths) {
      const headers = { 'Idempotency-Key': `${path} ${path.length}` }
      for (let round = 0; round < 2; round++) await send('POST', path, { secrets }, headers)
      await send('POST', path, { secrets: { CANARY: `${CANARY}2` } }, headers)
      await send('GET', path)
      // The error does not quote the request.
      await send('POST', path, { secrets: { [CANARY]: CANARY } })
      await send('POST', path, { secrets: { A: [CANARY] } })
      await send('POST', path, { secrets: CANARY })
      await send('POST', path, `{"secrets": {"A": "${CANARY}"`)
      await send('POST', `${path}/nope`, { secrets })
      await send('DELETE', path, { keys: [CANARY] })
    }
    await send('POST', `/api/spaces/${space.id}/environment`, { environmentVariables: secrets })
    for (const api of APIS) {
      answers.push((await apis[api](own, 'secrets.set', { id: space.id, secrets })).body)
      answers.push((await apis[api](own, 'secrets.set', { id: space.id, secrets: { x: CANARY } })).body)
      answers.push((await apis[api](own, 'secrets.list', { id: space.id })).body)
    }
    const query = 'mutation ($id: ID!, $secrets: [SecretInput!]!) { setSpaceSecrets(id: $id, secrets: $secrets) }'
    const mutate = (secrets: unknown) => send('POST', '/graphql', { query, variables: { id: space.id, secrets } })
    const { body: done } = await mutate([{ name: 'CANARY', value: CANARY }])
    expect(done.data).toEqual({ setSpaceSecrets: ['CANARY'] })
    await mutate([{ name: 'CANARY', value: { x: CANARY } }])
    await mutate([{ name: 'a', value: CANARY }])
    await mutate(CANARY)
    for (const value of [`"${CANARY}"`, CANARY, `{ x: "${CANARY}" }`, `"${CANARY}`]) {
      const literal = `secrets: [{ name: "CANARY", value: ${value} }]`
      await send('POST', '/graphql', { query: `mutation { setSpaceSecrets(id: "${space.id}", ${literal}) }` })
    }
    await send('GET', `/api/v1/spaces/${space.id}`)
    const agent = await send('POST', '/api/v1/agents', { name: 'A', systemPrompt: 'x' })
    const run = await send('POST', `/api/v1/agents/${agent.body.id}/execute`, { message: 'Hi' })
    await send('GET', `/api/v1/executions/${run.body.executionId}/logs`)
    expect(answers.length).toBeGreaterThan(25)
    expect(await db.secret.count()).toBe(4)
    expect((await runAdmin(['backup', join(own.folder, 'backup.db')], { DATA_DIR: own.folder })).code).toBe(0)

    const files = readdirSync(own.folder, { withFileTypes: true, recursive: true }).flatMap((file) =>
      file.isFile() ? [[file.name, readFileSync(join(file.parentPath, file.name))] as const] : [],
    )
    expect(files.map(([name]) => name)).toEqual(
      expect.arrayContaining(['backup.db', 'encryption.key', 'muster.db', 'muster.db-wal']),
    )
    for (const form of [
      CANARY,
      Buffer.from(CANARY).toString('base64').slice(0, 24),
      Buffer.from(CANARY).toString('hex'),
    ]) {
      for (const [name, bytes] of files) expect([name, bytes.includes(form)]).toEqual([name, false])
      expect(own.logs.find((line) => line.includes(form))).toBeUndefined()
      expect(JSON.stringify(answers)).not.toContain(form)
    }
    // Proves that the search finds a value.
    expect(files.some(([name, bytes]) => name.startsWith('muster.db') && bytes.includes('OTHER'))).toBe(true)
  })

  it('is a different text each time it is stored', async () => {
    const path = ofSpace(await createSpace(owner))
    const texts = new Set<string>()
    for (let round = 0; round < 3; round++) {
      await call(owner, 'POST', path, { secrets: { A: 'same', B: 'same' } })
      for (const row of await rows(path)) texts.add(Buffer.from(row.ciphertext).toString('hex'))
    }
    expect(texts.size).toBe(6)
  })

  const rows = (path: string) =>
    server.service.deps.db.secret.findMany({ where: { scope: path.split('/')[4]! }, orderBy: { name: 'asc' } })

  type Row = Awaited<ReturnType<typeof rows>>[number]

  /** The value of a row, as a holder of the keys reads it. */
  async function read(row: Row): Promise<string> {
    const { organizationId } = row
    const { db, wrappingKey } = server.service.deps
    const { wrapped } = await db.dataKey.findUniqueOrThrow({ where: { organizationId } })
    const dataKey = unseal(wrappingKey, dataKeyContext(organizationId), wrapped)
    return unseal(dataKey, contextOf(row), row.ciphertext).toString()
  }

  it('opens with the keys of its organization, in its own row and in no other', async () => {
    const [here, there] = [ofSpace(await createSpace(owner)), ofSpace(await createSpace(owner))]
    for (const path of [here, there]) await call(owner, 'POST', path, { secrets: { A: `of ${path}`, B: 'b' } })
    const [a, b] = (await rows(here)) as [Row, Row]
    const [elsewhere] = (await rows(there)) as [Row]
    expect(await read(a)).toBe(`of ${here}`)
    for (const { ciphertext } of [b, elsewhere]) await expect(read({ ...a, ciphertext })).rejects.toThrow()
    await expect(read({ ...a, name: 'C' })).rejects.toThrow()
    const stranger = await server.member({ organization: 'Strangers', role: 'owner' })
    const foreign = ofSpace(await createSpace(stranger))
    await call(stranger, 'POST', foreign, { secrets: { A: 'theirs' } })
    const [theirs] = (await rows(foreign)) as [Row]
    await expect(read({ ...a, ciphertext: theirs.ciphertext })).rejects.toThrow()
    await expect(read({ ...a, organizationId: theirs.organizationId })).rejects.toThrow()
  })

  it("cannot be set if the organization's key was copied from another one", async () => {
    const { db, wrappingKey } = server.service.deps
    const [one, two] = await Promise.all(
      ['Moved from', 'Moved to'].map((organization) => server.member({ organization, role: 'owner' })),
    )
    const set = (who: Member) => call(who, 'POST', ofOrganization(who), { secrets: { A: 'x' } })
    for (const who of [one!, two!]) expect((await set(who)).status).toBe(200)
    const find = (who: Member) => db.dataKey.findUniqueOrThrow({ where: { organizationId: who.organizationId } })
    const { wrapped } = await find(one!)
    await db.dataKey.update({ where: { organizationId: two!.organizationId }, data: { wrapped } })
    expectError(await set(two!), 500, 'An unexpected error occurred')
    const context = dataKeyContext(two!.organizationId)
    const rewrapped = seal(wrappingKey, context, unseal(wrappingKey, dataKeyContext(one!.organizationId), wrapped))
    await db.dataKey.update({ where: { organizationId: two!.organizationId }, data: { wrapped: rewrapped } })
    expect((await set(two!)).status).toBe(200)
  })
})

it("several requests may set an organization's first secrets at once, up to 200", async () => {
  await using other = await startServer()
  const { id, organizationId } = await other.service.deps.db.space.findFirstOrThrow()
  for (const path of [ofSpace(id), `/api/v1/organizations/${organizationId}/env`]) {
    const set = (at: number) => {
      const secrets = Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`K_${at}_${index}`, 'x']))
      return request(other, 'POST', path, { body: { secrets } })
    }
    const statuses = (await Promise.all(Array.from({ length: 8 }, (_, at) => set(at)))).map(({ status }) => status)
    expect(statuses.sort()).toEqual([200, 200, 200, 200, 200, 200, 400, 400])
    const { body } = await request(other, 'GET', path)
    expect(body.count).toBe(180)
    expect((await request(other, 'DELETE', path, { body: { keys: body.secrets } })).body.keys).toEqual(body.secrets)
  }
})
