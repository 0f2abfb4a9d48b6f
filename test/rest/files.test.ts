import { beforeAll, describe, expect, it } from 'vitest'
import { newId } from '../../src/lib/id.ts'
import { graphql } from '../graphql/support.ts'
import { APIS, type Api, apis, expectError, onEachApi } from '../support/api.ts'
import { type Answer, request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { createTrigger, dropTrigger } from '../support/trigger.ts'
import { use } from '../support/use.ts'

let now = Date.parse('2026-01-01T00:00:00Z')
const clock = { now: () => new Date(now) }

const server = await use(startServer({}, { clock }))
const { ann, ben } = await server.people('ann', 'ben')
const boss = await server.member({ organization: 'Acme', role: 'admin' })

type Fields = Record<string, unknown>
const MIB = 1024 * 1024

const on = (api: Api, procedure: string, input: Fields, { token } = ann): Promise<Answer> =>
  apis[api](server, procedure, input, { token })
const call = (procedure: string, input: Fields, who = ann) => on('REST', procedure, input, who)

const space = async (fields: Fields = {}): Promise<string> =>
  (await call('spaces.create', { name: 'Lab', ...fields })).body.id

async function write(id: string, path: string, content = 'x', who = ann): Promise<Answer> {
  const answer = await call('files.write', { id, path, content }, who)
  expect(answer.status, JSON.stringify(answer.body)).toBe(200)
  return answer
}
const paths = async (id: string, input: Fields = {}) =>
  (await call('files.list', { id, ...input })).body.files.map(({ path }: { path: string }) => path)

const counters = (id: string) =>
  server.service.deps.db.space.findUniqueOrThrow({ where: { id }, select: { fileCount: true, fileBytes: true } })
const counted = async (id: string) => {
  const files = await server.service.deps.db.spaceFile.findMany({ where: { spaceId: id }, select: { size: true } })
  return { fileCount: files.length, fileBytes: files.reduce((sum, { size }) => sum + size, 0) }
}

/** The URL of a file's content, with the given path. */
const content = (id: string, path: string) => `/api/v1/spaces/${id}/files/content?path=${path}`

describe('a file of a space', () => {
  it('has its path in the URL for every operation', async () => {
    const id = await space()
    const { token } = ann
    const url = content(id, encodeURIComponent('docs/Plan für %.md'))
    const file = { path: 'docs/Plan für %.md', content: '# Plän\n', encoding: 'utf8', size: 8 }
    const updatedAt = new Date(now).toISOString()
    const put = await request(server, 'PUT', url, { token, body: { content: file.content } })
    expect(put.body).toEqual({ success: true, ...file, updatedAt })
    const listed = (await call('files.list', { id })).body
    expect(listed).toEqual({ success: true, files: [{ path: file.path, size: 8, updatedAt }], nextCursor: null })
    expect((await request(server, 'GET', url, { token })).body).toEqual({ success: true, ...file, updatedAt })
    const deleted = await request(server, 'DELETE', url, { token })
    expect(deleted.body).toEqual({ success: true, message: 'File deleted successfully' })
    expectError(await request(server, 'GET', url, { token }), 404, 'File not found')
  })

  it.each(APIS)('%s: is written by those who may change the space, and read by those who reach it', async (api) => {
    const id = await space()
    const path = 'a/b.md'
    expect((await on(api, 'files.write', { id, path, content: 'one' })).body).toMatchObject({
      content: 'one',
      size: 3,
    })
    now += 1000
    expect((await on(api, 'files.write', { id, path, content: 'three' }, boss)).body).toMatchObject({ size: 5 })
    const updatedAt = new Date(now).toISOString()
    expect((await on(api, 'files.get', { id, path }, ben)).body).toMatchObject({ path, content: 'three', updatedAt })
    expect((await on(api, 'files.list', { id })).body.files).toEqual([{ path, size: 5, updatedAt }])
    expect(await counters(id)).toEqual({ fileCount: 1, fileBytes: 5 })
    expect((await on(api, 'files.delete', { id, path }, boss)).status).toBe(200)
    for (const procedure of ['files.get', 'files.delete']) {
      const answer = await on(api, procedure, { id, path })
      expectError(answer, 404, 'File not found')
      if (api === 'REST') expect(answer.body.detail).toMatch(/^The space has no file with this path\./)
    }
    expect(await counters(id)).toEqual({ fileCount: 0, fileBytes: 0 })
    const events = await server.service.deps.db.auditEvent.findMany({ where: { target: `${id}/${path}` } })
    const { userId } = boss
    expect(events.map(({ action }) => action).sort()).toEqual(['file.delete', 'file.write', 'file.write'])
    const deleted = events.find(({ action }) => action === 'file.delete')
    expect(deleted).toMatchObject({ actor: userId, organizationId: boss.organizationId })
  })

  it('belongs to its space alone', async () => {
    const [one, other] = [await space(), await space()]
    await write(one, 'a.md', 'one')
    await write(other, 'a.md', 'other')
    await call('files.delete', { id: other, path: 'a.md' })
    expect((await call('files.get', { id: one, path: 'a.md' })).body.content).toBe('one')
    expect(await paths(other)).toEqual([])
  })

  it('has one path for both Unicode spellings', async () => {
    const id = await space()
    await write(id, 'e\u0301.md', 'decomposed')
    await write(id, '\u00e9.md', 'composed')
    expect(await paths(id)).toEqual(['\u00e9.md'])
    expect((await call('files.get', { id, path: 'e\u0301.md' })).body).toMatchObject({ content: 'composed' })
  })

  it('is the one in the URL, whatever the body names', async () => {
    const [id, other] = [await space(), await space()]
    await write(id, 'a.md', 'one')
    const { body } = await call('files.get', { id, path: 'a.md' })
    const copy = { ...body, id: other, content: 'two' }
    await request(server, 'PUT', content(id, 'copy.md'), { token: ann.token, body: copy })
    expect([await paths(id), await paths(other)]).toEqual([['a.md', 'copy.md'], []])
    expect((await call('files.get', { id, path: 'a.md' })).body.content).toBe('one')
  })
})

describe('the content of a file', () => {
  const bytes = (...values: number[]) => Buffer.from(values).toString('base64')

  it.each([
    ['text', 'utf8', 'Plän 👩🏽‍💻\r\n', 'utf8'],
    ['nothing', 'utf8', '', 'utf8'],
    ['a mark of its byte order', 'utf8', '\ufefftext', 'utf8'],
    ['text in base64', 'base64', Buffer.from('Plän').toString('base64'), 'utf8'],
    ['nothing in base64', 'base64', '', 'utf8'],
    ['bytes that are no text', 'base64', bytes(0xff, 0xfe, 0x80), 'base64'],
    ['half a character', 'base64', bytes(0xf0, 0x9f), 'base64'],
    ['NUL, which no request may hold', 'base64', bytes(97, 0, 98), 'base64'],
    ['all 256 bytes', 'base64', bytes(...Array.from({ length: 256 }, (_, i) => i)), 'base64'],
  ])('is stored to the byte, and returned as text if it is text: %s', async (_, encoding, content, expected) => {
    const id = await space()
    const raw = Buffer.from(content, encoding as BufferEncoding)
    for (const api of APIS) {
      const put = await on(api, 'files.write', { id, path: 'a', content, encoding })
      const got = await on(api, 'files.get', { id, path: 'a' })
      expect(put.body).toEqual(got.body)
      expect(got.body).toMatchObject({ encoding: expected, size: raw.length })
      expect(Buffer.from(got.body.content, expected as BufferEncoding)).toEqual(raw)
    }
  })

  it.each(APIS)('%s: in base64 must be valid base64, including padding', async (api) => {
    const id = await space()
    for (const wrong of [
      'a',
      'ab',
      'abc',
      'abc=a',
      'YQ',
      'YR==',
      'YQ=',
      'YQ==\n',
      ' YQ==',
      'a-_b',
      'ä===',
      'YQ==YQ==',
    ]) {
      const answer = await on(api, 'files.write', { id, path: 'a', content: wrong, encoding: 'base64' })
      expectError(answer, 400, 'Invalid value for field: content. Expected base64')
    }
    expect(await counters(id)).toEqual({ fileCount: 0, fileBytes: 0 })
  })

  it('may be 1 MiB, in base64 or fully escaped, and no byte more', async () => {
    const id = await space()
    const put = (body: Fields) => request(server, 'PUT', content(id, 'a'), { token: ann.token, body })
    const full = Buffer.alloc(MIB, 0xff)
    expect((await put({ content: full.toString('base64'), encoding: 'base64' })).body).toMatchObject({ size: MIB })
    const { body } = await call('files.get', { id, path: 'a' })
    expect(Buffer.from(body.content, body.encoding)).toEqual(full)
    expect((await put({ content: '\n'.repeat(MIB) })).body).toMatchObject({ size: MIB, encoding: 'utf8' })
    const more = Buffer.alloc(MIB + 1, 0xff).toString('base64')
    expectError(await put({ content: more, encoding: 'base64' }), 400, 'File too large. At most 1 MiB')
    expectError(await put({ content: 'ä'.repeat(MIB / 2 + 1) }), 400, 'File too large. At most 1 MiB')
    expect(await counters(id)).toEqual({ fileCount: 1, fileBytes: MIB })
    const file = { id, path: 'b', content: full.toString('base64'), encoding: 'base64' }
    expect((await on('tRPC', 'files.write', file, ann)).status).toBe(200)
    const text =
      'mutation ($id: ID!, $content: String!) { writeSpaceFile(id: $id, path: "b", content: $content, encoding: base64) { size } }'
    const { data } = await graphql(server, text, file, { token: ann.token })
    expect(data.writeSpaceFile.size).toBe(MIB)
  })

  it('may come in a body of 4 MiB, while other bodies are limited to 1 MiB', async () => {
    const id = await space()
    const { token } = ann
    const padded = (length: number) => JSON.stringify({ content: 'x' }).padEnd(length)
    expect((await request(server, 'PUT', content(id, 'a'), { token, body: padded(4 * MIB) })).status).toBe(200)
    const answer = await request(server, 'PUT', content(id, 'a'), { token, body: padded(4 * MIB + 1) })
    expectError(answer, 413, 'Request body too large')
    const other = await request(server, 'PATCH', `/api/v1/spaces/${id}`, { token, body: padded(MIB + 1) })
    expectError(other, 413, 'Request body too large')
  })
})

describe('GET /spaces/{id}/files', () => {
  const TREE = [
    'README.md',
    'docs/a.md',
    'docs/b/c.md',
    'docs2/a.md',
    'docsa',
    'ä_%.md',
    'ä_x.md',
    'Docs/a.md',
    '😀.md',
  ]
  let id: string
  beforeAll(async () => {
    id = await space()
    for (const path of TREE) await write(id, path)
  })

  it('lists all of them by path, page by page', async () => {
    const all = TREE.toSorted()
    expect(await paths(id)).toEqual(all)
    for (const api of APIS) {
      const seen: string[] = []
      let cursor: string | null = ''
      for (let page = 1; cursor !== null; page++) {
        const { body }: Answer = await on(api, 'files.list', { id, limit: '4', ...(cursor && { cursor }) })
        seen.push(...body.files.map(({ path }: { path: string }) => path))
        cursor = body.nextCursor
        expect(cursor === null).toBe(page === 3)
      }
      expect(seen).toEqual(all)
    }
  })

  it.each([
    ['', TREE],
    ['docs', ['docs/a.md', 'docs/b/c.md', 'docs2/a.md', 'docsa']],
    ['docs/', ['docs/a.md', 'docs/b/c.md']],
    ['docs/a.md', ['docs/a.md']],
    ['docs/a.md/', []],
    ['a\u0308_', ['ä_%.md', 'ä_x.md']],
    ['ä_%', ['ä_%.md']],
    ['%', []],
    ['_', []],
    ['😀', ['😀.md']],
    ['nothing', []],
  ])('lists those that start with %j, literally', async (path, expected) => {
    expect(await paths(id, { path })).toEqual(expected.toSorted())
  })

  it('takes two statements beside the token, for 10 files or for 100', async () => {
    for (const size of [10, 100]) {
      const many = await space()
      const [{ organizationId, userId: updatedBy }, updatedAt] = [ann, clock.now()]
      const file = { organizationId, spaceId: many, content: Buffer.from('x'), size: 1, updatedBy, updatedAt }
      const data = Array.from({ length: size }, (_, i) => ({ ...file, path: `${i}` }))
      await server.service.deps.db.spaceFile.createMany({ data })
      const sent = await server.statementsOf(async () => expect(await paths(many)).toHaveLength(size))
      const mine = sent.filter((sql) => /Space/.test(sql))
      expect(mine).toHaveLength(2)
      expect(mine.join('\n')).not.toMatch(/content/)
    }
  })
})

/** Paths that lead out of the folder, or to another file, for some program on some system. */
const HOSTILE = [
  ...['..', '.', '../a', './a', 'a/..', 'a/.', 'a/../b', 'a/./b', 'a/b/../../..', '../../etc/passwd', '...', 'a/.../b'],
  ...['/', '/a', '/etc/passwd', '//a', '//server/share/a', 'a/', 'a//b', 'a/b//', '///'],
  ...['\\', 'a\\b', '..\\a', '\\a', '\\\\server\\share', 'a/..\\b', 'C:\\a', '.\\a'],
  ...['C:', 'C:/a', 'c:a', 'z:/a', 'C:../a'],
  ...['%2e%2e/a', '%2E%2E%2Fa', '..%2fa', 'a%2f..%2fb', '%2fetc/passwd', '%5c..%5ca', 'a%00', '%252e%252e/a', '%c0%ae'],
  ...[
    'a\0b',
    '\0',
    'a.md\0.png',
    'a\tb',
    'a\nb',
    'a\rb',
    'a\u001bb',
    'a\u007fb',
    'a\u0085b',
    'a\u2028b',
    'a\u2029b',
    '\u0001',
  ],
  ...['\uff0e\uff0e/a', '..\uff0fa', '\uff0fa', 'a\uff3cb', '\u2025/a', '\u2024\u2024/a', '\u2026/a', '\ufe52\ufe52/a'],
  ...['\uff23\uff1a/a', '\uff052e/a', 'a/\ufe68b'],
  ...['.\u200b./a', '.\u200d./a', '.\u00ad./a', '\ufeff../a', 'a\u202egpj.exe', '\u2066a', 'a\u200bb', 'a\ufffdb'],
  ...[' ..', '.. /a', '. ./a', ' a', 'a ', 'a/ b', 'a /b', '\u00a0../a', '\u3000a', 'a/ /b', 'a/\u00a0/b'],
  ...['x'.repeat(513), 'ä'.repeat(257), `${'a/'.repeat(256)}b`],
]

const FINE = [
  ...['a', 'a.md', '.env', '.github/workflows/ci.yml', 'a..b', '..a', 'a...', 'a/..b/c', '~', 'a~', '-rf', 'a b/c d'],
  ...[
    '100%',
    '50% off.md',
    '%',
    '%zz',
    'ab:c',
    '12:30.md',
    "it's",
    'a"b',
    '$HOME',
    '`a`',
    '*?<>|',
    '日本語/ファイル.md',
  ],
  ...['👩🏽‍💻.md', 'می‌خواهم', 'x'.repeat(512), 'ä'.repeat(256), '__proto__', 'constructor', 'NULL', '0'],
]

describe('a path', () => {
  it('is tried in at least 60 hostile forms', () => {
    expect(new Set(HOSTILE).size).toBeGreaterThanOrEqual(60)
  })

  it.each(onEachApi(HOSTILE.map((path) => [path])))('%s: %j leads nowhere', async (api, path) => {
    const id = await space()
    for (const procedure of ['files.get', 'files.write', 'files.delete', 'files.list']) {
      if (procedure === 'files.list' && /[^/]\/$/.test(path) && !path.endsWith('//')) continue
      expectError(await on(api, procedure, { id, path, content: 'x' }), 400, 'Invalid path')
    }
    expect(await counters(id)).toEqual({ fileCount: 0, fileBytes: 0 })
  })

  it.each([
    ...['.git/config', 'a/.git', '.GIT/x', '.git./x', 'a/git~1/x', '.git::$INDEX_ALLOCATION/x', '.g\u200cit/x'],
    ...['CON', 'con.txt', 'a/aux/b', 'nul', 'COM1.log', 'lpt9', 'COM¹', 'prn:x'],
  ])('%j is refused for a new file, because git or an operating system reserves it', async (path) => {
    const id = await space()
    const answer = await on('REST', 'files.write', { id, path, content: 'x' })
    expectError(answer, 400, 'Invalid path')
    expect(answer.body.detail).toMatch(/at most 512 bytes.*reserved/)
    expectError(await on('REST', 'files.delete', { id, path }), 404, 'File not found')
  })

  it.each(['.gitignore', '.github/x', 'git/config', 'console', 'com10', 'auxiliary', 'nullable.md', 'x.git'])(
    '%j is accepted',
    async (path) => {
      expect((await on('REST', 'files.write', { id: await space(), path, content: 'x' })).status).toBe(200)
    },
  )

  it.each([
    '..%2fa',
    '%2e%2e/a',
    'a%00b',
    '..%5ca',
    '%252e%252e%252fa',
    '..%c0%afa',
    '%ff',
    'a%0ab',
    '%EF%BC%8F',
    '+a',
    'a+',
  ])('a path written %s in a URL leads nowhere', async (path) => {
    const url = content(await space(), path)
    const { token } = ann
    expectError(await request(server, 'GET', url, { token }), 400, 'Invalid path')
    expectError(await request(server, 'PUT', url, { token, body: { content: 'x' } }), 400, 'Invalid path')
    expectError(await request(server, 'DELETE', url, { token }), 400, 'Invalid path')
  })

  it('may be anything else', async () => {
    const id = await space()
    for (const path of FINE) {
      await write(id, path, path)
      const file = { path: path.normalize('NFC'), content: path }
      for (const api of APIS) expect((await on(api, 'files.get', { id, path })).body).toMatchObject(file)
    }
    expect(await paths(id)).toEqual(FINE.map((path) => path.normalize('NFC')).sort())
  })
})

describe('a missing or invalid value gives a 400 that names it', () => {
  const wrong: [procedure: string, input: Fields, message: string][] = [
    ...['files.get', 'files.write', 'files.delete'].flatMap((procedure): [string, Fields, string][] => [
      [procedure, { content: 'x' }, 'Missing required field: path'],
      [procedure, { path: '', content: 'x' }, 'Missing required field: path'],
      [procedure, { path: ' ', content: 'x' }, 'Missing required field: path'],
    ]),
    ['files.write', { path: 'a' }, 'Missing required field: content'],
    ['files.write', { path: 'a', content: null }, 'Missing required field: content'],
    ['files.write', { path: 'a', content: 5 }, 'Invalid value for field: content. Expected string'],
    ['files.write', { path: 5, content: 'x' }, 'Invalid value for field: path. Expected string'],
    [
      'files.write',
      { path: 'a', content: 'x', encoding: 'hex' },
      'Invalid value for field: encoding. Expected one of: utf8, base64',
    ],
    ['files.write', { path: 'a', content: 'a\0' }, 'Invalid character in request: U+0000'],
    ['files.list', { limit: '0' }, 'Invalid value for field: limit. Expected at least 1'],
    ...['x', '!', Buffer.from('../a').toString('base64url')].map((cursor): [string, Fields, string] => [
      'files.list',
      { cursor },
      'Invalid value for field: cursor. Expected a nextCursor of this list',
    ]),
  ]

  it.each(onEachApi(wrong))('%s %s %j: %s', async (api, procedure, input, message) => {
    expectError(await on(api, procedure, { id: await space(), ...input }), 400, message)
  })
})

describe('the limits of a space', () => {
  const FULL = 50 * MIB
  const set = (id: string, data: { fileCount?: number; fileBytes?: number }) =>
    server.service.deps.db.space.update({ where: { id }, data })

  it.each(APIS)('%s: allow 2,000 files, and replacing one beyond that', async (api) => {
    const id = await space()
    const put = (path: string, text = 'x') => on(api, 'files.write', { id, path, content: text })
    await set(id, { fileCount: 1999 })
    expect((await put('last')).status).toBe(200)
    expectError(await put('more'), 400, 'Too many files. At most 2000 in a space')
    expect((await put('last', 'again')).status).toBe(200)
    await on(api, 'files.delete', { id, path: 'last' })
    expect((await put('more')).status).toBe(200)
    expect(await paths(id)).toEqual(['more'])
  })

  it.each(APIS)('%s: allow 50 MiB to the byte, counted after the write', async (api) => {
    const id = await space()
    const put = (path: string, length: number) => on(api, 'files.write', { id, path, content: 'x'.repeat(length) })
    await set(id, { fileBytes: FULL - 10 })
    expect((await put('a', 10)).status).toBe(200)
    expect((await put('empty', 0)).status).toBe(200)
    expectError(await put('b', 1), 400, 'Space is full. At most 50 MiB of files')
    expectError(await put('a', 11), 400, 'Space is full. At most 50 MiB of files')
    expect((await put('a', 9)).status).toBe(200)
    expect((await put('b', 1)).status).toBe(200)
    expect(await counters(id)).toEqual({ fileCount: 3, fileBytes: FULL })
    expect((await call('files.get', { id, path: 'a' })).body).toMatchObject({ size: 9 })
  })

  it('hold against eight concurrent writes, of which as many succeed as fit', async () => {
    const [byCount, byBytes] = [await space(), await space()]
    await set(byCount, { fileCount: 1997 })
    await set(byBytes, { fileBytes: FULL - 30 })
    for (const [id, text] of [
      [byCount, 'x'],
      [byBytes, 'x'.repeat(10)],
    ] as const) {
      const answers = await Promise.all(
        Array.from({ length: 8 }, (_, i) => call('files.write', { id, path: `${i}`, content: text })),
      )
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 200, 400, 400, 400, 400, 400])
      expect(await paths(id)).toHaveLength(3)
    }
    expect(await counters(byCount)).toEqual({ fileCount: 2000, fileBytes: 3 })
    expect(await counters(byBytes)).toEqual({ fileCount: 3, fileBytes: FULL })
  })

  it('count correctly under concurrent writes, replacements and deletions', async () => {
    const id = await space()
    const doings = Array.from({ length: 60 }, (_, i) => {
      const path = `${i % 4}.md`
      if (i % 3 === 2) return call('files.delete', { id, path })
      return call('files.write', { id, path, content: 'x'.repeat(i) }, i % 2 ? ann : boss)
    })
    for (const { status } of await Promise.all(doings)) expect([200, 404]).toContain(status)
    expect(await counters(id)).toEqual(await counted(id))
    expect((await call('spaces.get', { id })).body.space.fileCount).toBe((await counted(id)).fileCount)
  })
})

it('GraphQL: a file that is deleted before it can be shown gives a 404', async () => {
  const { db } = server.service.deps
  const id = await space()
  await createTrigger(db, {
    name: 'gone',
    event: 'AFTER INSERT',
    table: 'AuditEvent',
    when: `NEW."action" = 'file.write'`,
    effect: `DELETE FROM "SpaceFile" WHERE "spaceId" || '/' || "path" = NEW."target"`,
  })
  const text = 'mutation ($id: ID!) { writeSpaceFile(id: $id, path: "a.md", content: "x") { path } }'
  const { message, errors } = await graphql(server, text, { id }, { token: ann.token })
  await dropTrigger(db, 'gone')
  expect(message).toBe('File not found')
  expect(errors?.[0]?.extensions).toMatchObject({ statusCode: 404 })
})

it.each(APIS)('%s: a private space hides and protects its files from other users', async (api) => {
  const id = await space({ visibility: 'private' })
  await write(id, 'a.md', 'secret')
  for (const target of [id, newId()]) {
    for (const procedure of ['files.list', 'files.get', 'files.write', 'files.delete']) {
      const input = { id: target, path: 'a.md', content: 'x' }
      expectError(await on(api, procedure, input, ben), 404, 'Space not found')
    }
  }
  expect((await call('files.get', { id, path: 'a.md' })).body.content).toBe('secret')
})

it.each(APIS)('%s: reading needs spaces:read, writing needs spaces:write', async (api) => {
  const id = await space()
  await write(id, 'a.md')
  const input = { id, path: 'a.md', content: 'x' }
  const status = async (scope: string, procedure: string) => {
    const { token } = await server.member({ organization: 'Acme', role: 'admin', scopes: [scope] })
    return (await apis[api](server, procedure, input, { token })).status
  }
  for (const [scope, expected] of [
    ['spaces:read', [200, 200, 403, 403]],
    ['spaces:write', [200, 200, 200, 200]],
    ['chats:write', [403, 403, 403, 403]],
  ] as const) {
    const row = []
    for (const procedure of ['files.list', 'files.get', 'files.write', 'files.delete']) {
      row.push(await status(scope, procedure))
    }
    expect(row, scope).toEqual(expected)
  }
})
