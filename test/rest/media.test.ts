import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, describe, expect, it, onTestFinished } from 'vitest'
import type { Tx } from '../../src/db/client.ts'
import { overrideMembers } from '../../src/db/override-members.ts'
import { newToken } from '../../src/lib/token.ts'
import { create, receive } from '../../src/media/service.ts'
import { apis, expectError, ok } from '../support/api.ts'
import { tickingClock } from '../support/clock.ts'
import { createFolder } from '../support/folder.ts'
import { startModelServer } from '../support/model-server.ts'
import { BOUNDARY, filePart, filesIn, form, post, upload } from '../support/multipart.ts'
import { spawnServer } from '../support/process.ts'
import { checkDocumented, credentialsOf, request } from '../support/rest.ts'
import { seeded } from '../support/seeded.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const MIB = 1024 * 1024
const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
)
const GIF = Buffer.from('R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7', 'base64')
const JPEG = Buffer.concat([
  Buffer.from('ffd8ffe000104a46494600010100000100010000', 'hex'),
  randomBytes(64),
  Buffer.from('ffd9', 'hex'),
])
const WEBP = Buffer.from('UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA', 'base64')
const PDF = '%PDF-1.4\n%âãÏÓ\n'
const SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
const XML = `<?xml version="1.0"?>${SVG}`
const HTML = '<!doctype html><html><script>alert(document.domain)</script></html>'

const model = await use(startModelServer())
const server = await use(startServer({ OPENAI_BASE_URL: model.baseUrl }, { clock: tickingClock() }))
const { ann, ben, eve } = await server.people('ann', 'ben', 'eve')

const mediaFolder = () => join(server.folder, 'media', readdirSync(join(server.folder, 'media'))[0] ?? '')

/** Compares the files on disk with the database, and their total size with the quota. */
async function expectNothingLeftOver(): Promise<void> {
  const { db } = server.service.deps
  const rows = await db.media.findMany()
  const files = await filesIn(mediaFolder())
  expect(files.map((path) => path.slice(mediaFolder().length + 1)).sort()).toEqual(
    rows.map(({ id }) => join(id.slice(0, 2).toLowerCase(), id)).sort(),
  )
  for (const { id, mediaBytes } of await db.organization.findMany()) {
    const own = rows.filter(({ organizationId }) => organizationId === id)
    expect(Number(mediaBytes)).toBe(own.reduce((sum, { size }) => sum + size, 0))
  }
}
afterEach(expectNothingLeftOver)

const rowCount = () => server.service.deps.db.media.count()

const call = (method: string, path: string, { token } = ann) => request(server, method, `/api/v1${path}`, { token })

/** The content as a browser gets it. */
async function content(id: string, { token } = ann) {
  const path = `/api/v1/media/${id}/content`
  const response = await fetch(server.url + path, { headers: { Authorization: `Bearer ${token}` } })
  const bytes = Buffer.from(await response.arrayBuffer())
  const isJson = response.headers.get('content-type')?.startsWith('application/json')
  const body = isJson ? JSON.parse(bytes.toString()) : bytes.toString('latin1')
  checkDocumented('GET', path, response, body)
  return { status: response.status, headers: response.headers, bytes, body }
}

const uploaded = async (data: string | Uint8Array, name = 'a.bin', { token } = ann) => {
  return (await ok(upload(server, data, { name, token }))).media
}

describe('POST /media', () => {
  it('answers the upload, which is listed, shown and returned byte by byte', async () => {
    const bytes = randomBytes(3 * MIB + 7)
    const { status, body } = await upload(server, bytes, { name: 'résumé – 報告 👩🏽.bin', token: ann.token })
    expect(status).toBe(200)
    const media = {
      id: expect.stringMatching(/^\w{22}$/),
      name: 'résumé – 報告 👩🏽.bin',
      mimeType: 'application/octet-stream',
      size: bytes.length,
      organizationId: ann.organizationId,
      userId: ann.userId,
      url: `/api/v1/media/${body.id}/content`,
      createdAt: expect.any(String),
    }
    expect(body).toEqual({ success: true, id: body.media.id, name: media.name, media })
    expect((await call('GET', `/media/${body.id}`, ben)).body).toEqual({ success: true, media: body.media })
    const list = (await call('GET', '/media?limit=1', ben)).body
    expect(list.media).toEqual([body.media])
    const given = await content(body.id, ben)
    expect(given.headers.get('content-length')).toBe(String(bytes.length))
    expect(createHash('sha256').update(given.bytes).digest()).toEqual(createHash('sha256').update(bytes).digest())
  })

  it('lists newest first, page by page, only within the organization', async () => {
    const ids = []
    for (const name of ['1', '2', '3']) ids.unshift((await uploaded(name, name, eve)).id)
    const first = (await call('GET', '/media?limit=2', eve)).body
    const rest = (await call('GET', `/media?limit=2&cursor=${first.nextCursor}`, eve)).body
    expect([...first.media, ...rest.media].map(({ id }: { id: string }) => id)).toEqual(ids)
    expect(rest.nextCursor).toBeNull()
  })

  it('ignores other fields and files under other names', async () => {
    const parts = [
      { disposition: 'form-data; name="note"', content: 'x'.repeat(5000) },
      filePart('other.png', PNG, 'picture'),
      filePart('me.gif', GIF),
      filePart('last.png', PNG, 'more'),
    ]
    const { status, body } = await post(server, form(parts), { token: ann.token })
    expect({ status, ...body.media }).toMatchObject({
      status: 200,
      name: 'me.gif',
      mimeType: 'image/gif',
      size: GIF.length,
    })
  })

  it('POST /media with an Idempotency-Key uploads once, and refuses the key for another file', async () => {
    const headers = { 'Idempotency-Key': 'upload-1' }
    const before = await rowCount()
    const first = await upload(server, PNG, { name: 'a.png', token: ann.token, headers })
    const again = await upload(server, PNG, { name: 'a.png', token: ann.token, headers })
    expect(again.body).toEqual(first.body)
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expect(first.headers.get('idempotent-replayed')).toBeNull()
    const other = await upload(server, GIF, { name: 'a.png', token: ann.token, headers })
    expectError(other, 422, 'Idempotency-Key was used with another request')
    expect(await rowCount()).toBe(before + 1)
  })

  it('is for members with the scope, and reveals nothing to others', async () => {
    const reader = await server.member({ organization: 'Acme', scopes: ['media:read'] })
    const FORBIDDEN = "You don't have permission to access this resource"
    expectError(await upload(server, PNG, { token: reader.token }), 403, FORBIDDEN)
    expectError(await upload(server, PNG, { token: null }), 401, 'Authorization header required')
    const { id } = await uploaded(PNG)
    for (const path of [`/media/${id}`, `/media/${'x'.repeat(22)}`]) {
      expectError(await call('GET', path, eve), 404, 'Media not found')
      expectError(await call('DELETE', path, eve), 404, 'Media not found')
      const { status, body, headers } = await content(path.slice(7), eve)
      expectError({ status, body, headers }, 404, 'Media not found')
    }
    const blind = await server.member({ organization: 'Acme', scopes: ['agents:read'] })
    expect((await content(id, blind)).status).toBe(403)
  })
})

describe('the type of a file', () => {
  type Row = [what: string, name: string, data: string | Uint8Array, mimeType: string | null, disposition: string]
  it.each<Row>([
    ['a png', 'a.png', PNG, 'image/png', 'inline'],
    ['a jpeg', 'a.jpg', JPEG, 'image/jpeg', 'inline'],
    ['a gif', 'a.gif', GIF, 'image/gif', 'inline'],
    ['a webp', 'a.webp', WEBP, 'image/webp', 'inline'],
    ['a png that is called a page', 'a.html', PNG, 'image/png', 'inline'],
    ['a page that is called a png', 'a.png', HTML, null, 'attachment'],
    ['an svg that is called a png', 'a.png', SVG, null, 'attachment'],
    ['an svg', 'a.svg', SVG, null, 'attachment'],
    ['an svg that begins as XML', 'a.svg', XML, null, 'attachment'],
    ['a script', 'a.js', 'alert(1)', null, 'attachment'],
    ['a pdf', 'a.pdf', PDF, 'application/pdf', 'attachment'],
    ['a text', 'a.txt', 'Hello', null, 'attachment'],
    ['a text that begins with GIF', 'a.txt', 'GIF is said like gift', null, 'attachment'],
    ['a text that begins with GIF89a', 'a.gif', 'GIF89a, or so it says: ünï', null, 'attachment'],
    ['a text that begins with BM', 'a.txt', 'BMW and Audi', null, 'attachment'],
    ['a text that begins with ID3', 'a.txt', 'ID3 tags are old', null, 'attachment'],
    ['a bmp', 'a.bmp', Buffer.concat([Buffer.from('BM'), Buffer.alloc(60)]), 'image/bmp', 'attachment'],
    ['an icon', 'a.ico', Buffer.concat([Buffer.from([0, 0, 1, 0]), Buffer.alloc(60)]), 'image/x-icon', 'attachment'],
  ])('follows from its content: %s', async (_, name, data, mimeType, disposition) => {
    const media = await uploaded(data, name)
    if (mimeType) expect(media.mimeType).toBe(mimeType)
    else expect(media.mimeType).not.toMatch(/^(image|text)\//)
    const { headers, bytes } = await content(media.id)
    expect(headers.get('content-type')).toBe(media.mimeType)
    expect(headers.get('content-disposition')?.split(';')[0]).toBe(disposition)
    expect(headers.get('x-content-type-options')).toBe('nosniff')
    expect(headers.get('content-security-policy')).toBe("default-src 'none'; sandbox")
    expect(headers.get('cache-control')).toMatch(/^private/)
    expect(bytes).toEqual(Buffer.from(data as string))
  })

  it('is found for any mutilated file, and for random bytes, without a failure', async () => {
    const whole = [PNG, GIF, JPEG, WEBP, Buffer.from(PDF), Buffer.from('504b0304140000000800', 'hex'), Buffer.from(XML)]
    for (let round = 0; round < 100; round++) {
      const bytes = Buffer.concat([whole[round % whole.length]!, randomBytes(round)])
      for (let flip = 0; flip < round % 7; flip++) bytes[Math.floor(Math.random() * bytes.length)] = Math.random() * 256
      await uploaded(bytes.subarray(0, 1 + Math.floor(Math.random() * bytes.length)))
    }
  })
})

const NASTY = [
  ...[
    '../',
    '..\\',
    '/',
    '\\',
    './',
    'C:\\',
    '//',
    '....//',
    '%2e%2e%2f',
    '..%00/',
    '\0',
    '\x01',
    '\x1b[2J',
    '\x7f',
    '\x85',
  ],
  ...[
    '"',
    '\\"',
    "'",
    ';',
    '; filename=evil.html',
    '"; filename="evil.html',
    '\r\nX-Evil: 1',
    '\nX-Evil: 1',
    '\r',
    '\t',
    ' ',
  ],
  ...[
    '\u202e',
    '\u202d',
    '\u2066',
    '\u200b',
    '\ufeff',
    '\u2028',
    'é',
    '報',
    '👩🏽‍💻',
    '\ud83d',
    '%',
    '%0d%0aX-Evil: 1',
    '%00',
    '*',
    '()',
    '<>',
    '|',
    '?',
    ':',
    '~',
    '$(id)',
    '`id`',
    '&',
    '=',
  ],
  ...[
    'CON',
    'NUL',
    'aux.txt',
    'COM1',
    '.',
    '..',
    '.htaccess',
    '.env',
    'muster.db',
    'drafts',
    'a'.repeat(300),
    'ü'.repeat(300),
    '.png',
    '.svg',
    '.html',
    'x',
  ],
]

describe('a file name', () => {
  it('a file name of many hostile ones leads nowhere, and leaves the header valid', async () => {
    const rounds = process.env.NIGHTLY === '1' ? 200 : 60
    const random = seeded(20_261)
    // The parent folder is shared: other files come and go there.
    const outside = async () => (await readdir(server.folder)).filter((name) => !/\.db/.test(name)).sort()
    const before = await outside()
    const tally: Record<number, number> = {}
    for (let round = 0; round < rounds; round++) {
      const name = Array.from({ length: 1 + random(5) }, () => NASTY[random(NASTY.length)]).join('')
      const inQuotes = `form-data; name="file"; filename="${name}"`
      const extended = `form-data; name="file"; filename*=UTF-8''${encodeURIComponent(name.toWellFormed())}`
      const disposition = round % 3 ? inQuotes : extended
      const { status, body } = await post(server, form([{ disposition, content: HTML }]), { token: eve.token })
      tally[status] = (tally[status] ?? 0) + 1
      if (status === 400) continue
      expect(status, JSON.stringify({ name, body })).toBe(200)
      expect([...body.media.name].length).toBeLessThanOrEqual(255)
      expect(body.media.name).not.toMatch(/[\p{Cc}/\\]|(?!\p{Join_Control})\p{Cf}|^\.*$|^\s|\s$/u)
      const { headers } = await content(body.id, eve)
      const [, encoded = ''] =
        /^attachment; filename="[\w .,+@=~-]+"; filename\*=UTF-8''((?:[\w!#$&+.^`|~-]|%[0-9A-F]{2})+)$/.exec(
          headers.get('content-disposition') ?? '',
        ) ?? []
      expect(decodeURIComponent(encoded), headers.get('content-disposition') ?? '').toBe(body.media.name)
      expect(headers.get('x-evil')).toBeNull()
      expect(headers.get('content-type')).not.toMatch(/html/)
    }
    // Names that break the lines of the form's own header are no file names.
    expect(tally[200]).toBeGreaterThan(rounds * 0.7)
    expect((tally[200] ?? 0) + (tally[400] ?? 0)).toBe(rounds)
    expect(await outside()).toEqual(before)
  })

  it('is preserved if it is a common one', async () => {
    for (const name of [
      'Quarterly report (final) *new*.pdf',
      '\u06a9\u062a\u0627\u0628\u200c\u0647\u0627 👩🏽\u200d💻.pdf',
      "it's 100% done.txt",
      'a;b=c.txt',
      '.gitignore',
      'ß–€.md',
      '=?utf-8?B?.txt',
      '100%25 done.txt',
      '90%zz.txt',
      '%ff.txt',
    ]) {
      const media = await uploaded('x', name)
      expect(media.name).toBe(name)
      const disposition = (await content(media.id)).headers.get('content-disposition') ?? ''
      expect(disposition).not.toMatch(/[*'()].*[*'()].*[*'()].*[*'()]/)
      expect(decodeURIComponent(disposition.split("''")[1] ?? '')).toBe(name)
    }
  })
})

it('an encoded name, or one with accents apart, is read and offered in two forms', async () => {
  for (const [given, name] of [
    ['=?UTF-8?Q?r=C3=A9sum=C3=A9_2.txt?=', 'résumé 2.txt'],
    ['=?utf-8?B?csOpc3Vtw6k=?= =?utf-8?B?IDIudHh0?=', 'résumé 2.txt'],
    // As aiohttp writes it.
    ['r%C3%A9sum%C3%A9%202.txt', 'résumé 2.txt'],
    // As macOS writes it.
    ['résumé 2.txt'.normalize('NFD'), 'résumé 2.txt'],
  ] as const) {
    const media = await uploaded('x', given)
    expect(media.name).toBe(name)
    expect((await content(media.id)).headers.get('content-disposition')).toBe(
      `attachment; filename="r_sum_ 2.txt"; filename*=UTF-8''r%C3%A9sum%C3%A9%202.txt`,
    )
  }
})

describe('an invalid upload', () => {
  const type = `multipart/form-data; boundary=${BOUNDARY}`
  const MALFORMED = 'Malformed multipart body'
  const MISSING = 'Missing required field: file'
  const text = (content: string) => ({ disposition: 'form-data; name="file"', content })
  type Row = [what: string, contentType: string, body: Buffer, status: number, message: string]
  const good = form([filePart('a.png', PNG)])
  it.each<Row>([
    ['JSON', 'application/json', Buffer.from('{"file":"x"}'), 415, 'Unsupported content type'],
    ['JSON that is called a form', type, Buffer.from('{"file":"x"}'), 400, MALFORMED],
    [
      'a form of another kind',
      'application/x-www-form-urlencoded',
      Buffer.from('file=x'),
      415,
      'Unsupported content type',
    ],
    ['the bare file', 'image/png', PNG, 415, 'Unsupported content type'],
    ['another multipart type', `multipart/mixed; boundary=${BOUNDARY}`, good, 415, 'Unsupported content type'],
    ['no boundary', 'multipart/form-data', good, 400, MALFORMED],
    ['a boundary without a value', 'multipart/form-data; boundary=', good, 400, MALFORMED],
    ['parameters without a boundary', 'multipart/form-data; charset=utf-8', good, 400, MALFORMED],
    ['another boundary', 'multipart/form-data; boundary=other', good, 400, MALFORMED],
    ['nothing', type, Buffer.alloc(0), 400, MALFORMED],
    ['a form without fields', type, form([]), 400, MISSING],
    ['no field of that name', type, form([filePart('a.png', PNG, 'picture')]), 400, MISSING],
    ['a text in its place', type, form([text('Hello')]), 400, MISSING],
    ['an empty file', type, form([filePart('a.png', '')]), 400, MISSING],
    [
      'two files',
      type,
      form([filePart('a.png', PNG), filePart('b.png', PNG)]),
      400,
      'Invalid value for field: file. Expected one file',
    ],
    [
      'two large files',
      type,
      form([filePart('a', randomBytes(MIB)), filePart('b', randomBytes(MIB))]),
      400,
      'Invalid value for field: file. Expected one file',
    ],
    ['a form that ends in its file', type, good.subarray(0, -40), 400, MALFORMED],
    ['a form that ends in its header', type, good.subarray(0, 60), 400, MALFORMED],
    ['a form that ends in its boundary', type, good.subarray(0, 8), 400, MALFORMED],
    ['a form that ends before its last boundary', type, form([filePart('a.png', PNG)], ''), 400, MALFORMED],
    ['a form that ends in another file', type, form([filePart('b', randomBytes(MIB), 'other')], ''), 400, MALFORMED],
    ['a large form that ends in its file', type, form([filePart('a', randomBytes(3 * MIB))], ''), 400, MALFORMED],
    ['a nameless part', type, form([{ disposition: 'form-data', content: 'x' }]), 400, MISSING],
    ['a part without a disposition', type, form([{ disposition: '', content: 'x' }]), 400, MISSING],
    ['random bytes', type, randomBytes(100_000), 400, MALFORMED],
  ])('such as %s is refused, and the server continues', async (_, contentType, body, status, message) => {
    const before = await rowCount()
    const answer = await post(server, body, { token: ann.token, headers: { 'Content-Type': contentType } })
    expectError(answer, status, message)
    expect(await rowCount()).toBe(before)
    expect((await call('GET', '/media?limit=1')).status).toBe(200)
  })

  it.each([
    ['of exactly 25 MiB is taken', 25 * MIB, 200],
    ['of one byte more is refused', 25 * MIB + 1, 413],
    ['with a 26th megabyte is refused', 26 * MIB, 413],
    ['of 40 MiB is refused', 40 * MIB, 413],
  ])('such as a file %s is refused', async (_, size, status) => {
    const before = await rowCount()
    const answer = await upload(server, Buffer.alloc(size, 'x'), { token: ann.token })
    if (status === 413) expectError(answer, 413, 'Request body too large')
    expect(answer.status).toBe(status)
    expect(await rowCount()).toBe(before + (status === 200 ? 1 : 0))
  })

  it('an invalid upload without an end is refused at the 26th megabyte, whatever it contains', async () => {
    for (const head of [
      form([filePart('a', '')], '').subarray(0, -2),
      Buffer.from(''),
      form([], `--${BOUNDARY}\r\nX-Header: `),
    ]) {
      const headers = { Authorization: `Bearer ${ann.token}`, 'Content-Type': type, 'Transfer-Encoding': 'chunked' }
      const sent = httpRequest(`${server.url}/api/v1/media`, { method: 'POST', headers })
      sent.on('error', () => {})
      const answered = once(sent, 'response')
      sent.write(head)
      const chunk = Buffer.alloc(MIB, 'x')
      let isAnswered = false
      void answered.then(() => {
        isAnswered = true
      })
      for (let count = 0; count < 100 && !isAnswered; count++) {
        if (!sent.write(chunk)) await Promise.race([once(sent, 'drain'), answered])
      }
      const [{ statusCode }] = await answered
      expect(statusCode).toBe(413)
      sent.destroy()
    }
  })

  it('an invalid upload whose client disconnects in mid-file leaves nothing', async () => {
    const before = await rowCount()
    for (const cut of [200, 70_000, 2 * MIB]) {
      const body = form([filePart('a', randomBytes(3 * MIB))])
      const socket = connect(Number(new URL(server.url).port), '127.0.0.1')
      await once(socket, 'connect')
      const head = `POST /api/v1/media HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${ann.token}\r\nContent-Type: ${type}\r\nContent-Length: ${body.length}\r\n\r\n`
      socket.write(head)
      await new Promise((resolve) => socket.write(body.subarray(0, cut), resolve))
      const drafts = () => readdir(join(mediaFolder(), 'drafts'))
      await expect.poll(async () => (await drafts()).length).toBe(1)
      socket.destroy()
      await expect.poll(drafts).toEqual([])
    }
    expect(await rowCount()).toBe(before)
  })

  it('an invalid upload with an unknown outcome, because the database has gone away, stays', async () => {
    const { deps } = server.service
    const actor = await deps.actors.of(credentialsOf(`Bearer ${ann.token}`))
    const received = await receive(actor, deps, Readable.from([Buffer.from('kept')]), 'a.txt')
    const $transaction = async (work: (tx: Tx) => Promise<unknown>) => {
      await deps.db.$transaction(work)
      throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
    }
    const db = overrideMembers(deps.db, { $transaction })
    await expect(create(actor, { ...deps, db }, received, async (_, answer) => answer)).rejects.toThrow('ECONNRESET')
    const { media } = (await request(server, 'GET', '/api/v1/media?limit=1', { token: ann.token })).body
    expect(media[0]).toMatchObject({ name: 'a.txt', size: 4 })
    const headers = { Authorization: `Bearer ${ann.token}` }
    expect(await (await fetch(server.url + media[0].url, { headers })).text()).toBe('kept')
  })
})

it('a download of a file whose size has changed on the disk ends with its connection', async () => {
  const { id } = await uploaded('a stored file')
  const [path = ''] = (await filesIn(mediaFolder())).filter((path) => path.endsWith(id))
  for (const content of ['', 'a stored', 'a stored file and more']) {
    await writeFile(path, content)
    const download = fetch(`${server.url}/api/v1/media/${id}/content`, {
      headers: { authorization: `Bearer ${ann.token}` },
    })
    await expect(download.then((answer) => answer.text())).rejects.toThrow()
  }
})

it('an upload creates a deleted folder again, and an unusable folder gives a 503', async () => {
  await using own = await startServer()
  const folder = join(own.folder, 'media')
  await rm(folder, { recursive: true })
  const { id } = await ok(upload(own, 'after'))
  await rm(folder, { recursive: true })
  await writeFile(folder, 'a file')
  const refused = await upload(own, Buffer.alloc(MIB))
  expect([refused.status, refused.body.detail]).toEqual([503, expect.stringContaining('MEDIA_DIR')])
  // Neither failure is remembered.
  await rm(folder)
  expect((await request(own, 'GET', `/api/v1/media/${id}/content`)).status).toBe(500)
  expect((await upload(own, 'again')).status).toBe(200)
})

describe('the quota', () => {
  it('is never exceeded, also by two concurrent uploads, and deleting frees it', async () => {
    await using small = await startServer({ MEDIA_QUOTA: '1000' })
    const send = (size: number) => upload(small, Buffer.alloc(size, 'x'))
    const first = await send(400)
    const answers = await Promise.all([send(600), send(600), send(600)])
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 413, 413])
    for (const answer of answers.filter(({ status }) => status === 413))
      expectError(answer, 413, 'Media quota exceeded')
    expectError(await send(1), 413, 'Media quota exceeded')
    expectError(await send(1001), 413, 'Media quota exceeded')
    expect((await request(small, 'DELETE', `/api/v1/media/${first.body.id}`)).status).toBe(200)
    expect((await send(400)).status).toBe(200)
    expectError(await send(1), 413, 'Media quota exceeded')
    expect(await filesIn(join(small.folder, 'media'))).toHaveLength(2)
  })

  it('counts unfinished uploads until their connections end', async () => {
    await using small = await startServer({ MEDIA_QUOTA: String(1000 * 1000) })
    const head = (length: number) =>
      `POST /api/v1/media HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${small.token}\r\nContent-Type: multipart/form-data; boundary=${BOUNDARY}\r\nContent-Length: ${length}\r\n\r\n`
    const body = form([filePart('a', randomBytes(900_000))])
    const socket = connect(Number(new URL(small.url).port), '127.0.0.1')
    await once(socket, 'connect')
    socket.write(head(body.length))
    socket.write(body.subarray(0, 800_000))
    const { uploads } = small.service.deps
    await expect.poll(() => [...uploads.values()][0] ?? 0).toBeGreaterThan(700_000)
    expectError(await upload(small, randomBytes(300_000)), 413, 'Media quota exceeded')
    expect((await upload(small, randomBytes(100_000))).status).toBe(200)
    socket.destroy()
    await expect.poll(() => uploads.size).toBe(0)
    expect((await upload(small, randomBytes(300_000))).status).toBe(200)
    expect(await filesIn(join(small.folder, 'media'))).toHaveLength(2)
  })

  it('ends an upload as soon as its bytes exceed it, and keeps none of them', async () => {
    await using small = await startServer({ MEDIA_QUOTA: '1000' })
    expectError(await upload(small, randomBytes(5 * MIB)), 413, 'Media quota exceeded')
    expect(await filesIn(join(small.folder, 'media'))).toEqual([])
    expect(small.service.deps.uploads.size).toBe(0)
  })

  it('is separate for each organization', async () => {
    await using small = await startServer({ MEDIA_QUOTA: '1000' })
    const other = await small.member({ organization: 'Other' })
    const full = Buffer.alloc(1000, 'x')
    expect((await upload(small, full)).status).toBe(200)
    expect((await upload(small, full, { token: other.token })).status).toBe(200)
  })
})

describe('DELETE /media/{id}', () => {
  it('is for the uploader and for admins, and leaves no file behind', async () => {
    const admin = await server.member({ organization: 'Acme', role: 'admin' })
    for (const who of [ann, admin]) {
      const { id } = await uploaded(PNG)
      expectError(await call('DELETE', `/media/${id}`, ben), 403, "You don't have permission to access this resource")
      expect((await call('DELETE', `/media/${id}`, who)).body).toEqual({
        success: true,
        message: 'Media deleted successfully',
      })
      expectError(await call('DELETE', `/media/${id}`, who), 404, 'Media not found')
      expectError(await call('GET', `/media/${id}`, who), 404, 'Media not found')
      expect((await filesIn(mediaFolder())).filter((path) => path.includes(id))).toEqual([])
    }
  })

  it('succeeds even if the file cannot be removed, which is recorded for a later start', async () => {
    const { id } = await uploaded(PNG)
    const { storage } = server.service.deps
    const { remove } = storage
    storage.remove = () => Promise.reject(new Error('The storage is away'))
    onTestFinished(() => {
      storage.remove = remove
    })
    expect((await call('DELETE', `/media/${id}`)).status).toBe(200)
    expectError(await call('GET', `/media/${id}`), 404, 'Media not found')
    expect(await server.service.deps.db.mediaDraft.count({ where: { id } })).toBe(1)
    await remove(id)
  })

  it('succeeds for one of two concurrent requests, and frees the quota once', async () => {
    const { id } = await uploaded(PNG)
    const answers = await Promise.all([1, 2, 3].map(() => call('DELETE', `/media/${id}`)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 404, 404])
  })

  it('lets an active download finish', async () => {
    const bytes = randomBytes(8 * MIB)
    const { id } = await uploaded(bytes)
    const response = await fetch(`${server.url}/api/v1/media/${id}/content`, {
      headers: { Authorization: `Bearer ${ann.token}` },
    })
    await call('DELETE', `/media/${id}`)
    expect(Buffer.from(await response.arrayBuffer()).equals(bytes)).toBe(true)
    const { status, headers, body } = await content(id)
    expectError({ status, headers, body }, 404, 'Media not found')
  })

  it('deletes a media whose stored file is missing, which the content says before', async () => {
    const { id } = await uploaded(PNG)
    await server.service.deps.storage.remove(id)
    server.logs.length = 0
    const { status, body } = await content(id)
    expect([status, body.detail]).toEqual([500, expect.stringContaining('file of this media is missing')])
    expect(server.logs.join('')).toContain('restore the file from a backup')
    expect((await call('DELETE', `/media/${id}`)).status).toBe(200)
  })

  it('is unaffected by a client that disconnects during a download', async () => {
    const { id } = await uploaded(randomBytes(20 * MIB))
    server.logs.length = 0
    const controller = new AbortController()
    const response = await fetch(`${server.url}/api/v1/media/${id}/content`, {
      headers: { Authorization: `Bearer ${ann.token}` },
      signal: controller.signal,
    })
    await response.body?.getReader().read()
    controller.abort()
    await expect.poll(() => server.logs.some((line) => line.includes(`/media/${id}/content`))).toBe(true)
    await sleep(50)
    expect(server.logs.filter((line) => JSON.parse(line).level >= 50)).toEqual([])
  })
})

describe('attachments of a message', () => {
  const createAgent = async () =>
    (await request(server, 'POST', '/api/v1/agents', { token: ann.token, body: { name: 'Ada', systemPrompt: 'S' } }))
      .body.id
  const execute = (agentId: string, body: object, { token } = ann) =>
    request(server, 'POST', `/api/v1/agents/${agentId}/execute`, { token, body })
  const picture = (bytes: Buffer, type: string) => ({
    type: 'image_url',
    image_url: { url: `data:${type};base64,${bytes.toString('base64')}` },
  })
  const textPart = (text: string) => ({ type: 'text', text })
  const lastPrompt = () => model.requests.at(-1)?.body.messages.map(({ content }) => content)

  it('reach the model in their order: images whole, other files by name', async () => {
    const agentId = await createAgent()
    const [gif, pdf, png] = [await uploaded(GIF, 'a.gif'), await uploaded(PDF, 'b.pdf'), await uploaded(PNG, 'c.png')]
    const mediaIds = [png.id, pdf.id, gif.id]
    const { status, body } = await execute(agentId, { message: 'What is it?', mediaIds: [...mediaIds, png.id] })
    expect(status, JSON.stringify(body)).toBe(200)
    expect(lastPrompt()).toEqual([
      'S',
      [
        textPart('What is it?'),
        picture(PNG, 'image/png'),
        textPart('[Attached file: b.pdf (application/pdf), which this model does not support]'),
        picture(GIF, 'image/gif'),
      ],
    ])
    const { execution } = (await call('GET', `/executions/${body.executionId}`)).body
    expect(execution.mediaIds).toEqual(mediaIds)
  })

  it('are sent again at later turns, until they are deleted', async () => {
    const agentId = await createAgent()
    const png = await uploaded(PNG, 'a.png')
    const gif = await uploaded(GIF, 'b.gif')
    const { sessionId } = (await execute(agentId, { message: 'One', mediaIds: [png.id] })).body
    await execute(agentId, { message: 'Two', sessionId, mediaIds: [gif.id] })
    const reply = model.fallback
    const answer = typeof reply === 'object' && typeof reply.tokens === 'string' ? reply.tokens : ''
    expect(lastPrompt()).toEqual([
      'S',
      [textPart('One'), picture(PNG, 'image/png')],
      answer,
      [textPart('Two'), picture(GIF, 'image/gif')],
    ])
    await call('DELETE', `/media/${png.id}`)
    expect((await execute(agentId, { message: 'Three', sessionId })).status).toBe(200)
    expect(lastPrompt()).toEqual(['S', 'One', answer, [textPart('Two'), picture(GIF, 'image/gif')], answer, 'Three'])
  })

  it('are sent as far as they fit, the latest first', async () => {
    const agentId = await createAgent()
    const large = Buffer.concat([PNG, Buffer.alloc(12 * MIB)])
    const ids = []
    for (const name of ['a.png', 'b.png', 'c.png']) ids.push((await uploaded(large, name)).id)
    const { sessionId } = (await execute(agentId, { message: 'One', mediaIds: ids.slice(0, 2) })).body
    expect(lastPrompt()?.[1]).toHaveLength(3)
    await execute(agentId, { message: 'Two', sessionId, mediaIds: ids.slice(2) })
    const types = (content: unknown) =>
      (content as { type: string; text?: string }[]).map(({ type, text }) => text ?? type)
    const prompt = lastPrompt() ?? []
    expect([types(prompt[1]), types(prompt[3])]).toEqual([
      ['One', 'image_url', '[Attached file: b.png (image/png)]'],
      ['Two', 'image_url'],
    ])
  })

  it('attachments of a message that have vanished from the disk do not fail the run', async () => {
    const agentId = await createAgent()
    const png = await uploaded(PNG, 'a.png')
    await server.service.deps.storage.remove(png.id)
    expect((await execute(agentId, { message: 'Hello', mediaIds: [png.id] })).status).toBe(200)
    expect(lastPrompt()).toEqual(['S', 'Hello\n\n[Attached file: a.png, which no longer exists]'])
    await call('DELETE', `/media/${png.id}`)
  })

  it('attachments of a message that are unknown, foreign or too many are refused', async () => {
    const agentId = await createAgent()
    const own = await uploaded(PNG)
    const foreign = await uploaded(PNG, 'a.png', eve)
    for (const id of ['x', foreign.id]) {
      for (const api of ['REST', 'tRPC'] as const) {
        const input = { id: agentId, message: 'Hello', mediaIds: [own.id, id] }
        expectError(await apis[api](server, 'agents.execute', input, { token: ann.token }), 404, 'Media not found')
      }
    }
    const many = Array.from({ length: 21 }, (_, index) => `${index}`)
    expectError(
      await execute(agentId, { message: 'Hello', mediaIds: many }),
      400,
      'Invalid value for field: mediaIds. Expected at most 20 items',
    )
    expectError(
      await execute(agentId, { message: 'Hello', mediaIds: 'x' }),
      400,
      'Invalid value for field: mediaIds. Expected array',
    )
  })
})

describe.runIf(process.platform === 'linux')('in its own process', () => {
  /** The memory of a process as Linux reports it, in MiB. */
  const memory = async (pid: number, field: 'VmRSS' | 'VmHWM') => {
    const status = await readFile(`/proc/${pid}/status`, 'utf8')
    return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) / 1024
  }

  it('8 concurrent uploads of 25 MiB increase its memory by at most 64 MiB', async () => {
    await using folder = await createFolder()
    const token = newToken('mst')
    await using spawned = await spawnServer(folder.path, { BOOTSTRAP_TOKEN: token, DATA_DIR: folder.path })
    const pid = spawned.child.pid ?? 0
    const send = async () => {
      const chunk = randomBytes(MIB)
      const body = Readable.from(
        (function* () {
          yield form([filePart('a', '')], '').subarray(0, -2)
          for (let count = 0; count < 25; count++) yield chunk
          yield Buffer.from(`\r\n--${BOUNDARY}--\r\n`)
        })(),
      )
      const headers = { Authorization: `Bearer ${token}`, 'Content-Type': `multipart/form-data; boundary=${BOUNDARY}` }
      const sent = httpRequest(`${spawned.url}/api/v1/media`, { method: 'POST', headers })
      const answered = once(sent, 'response')
      await pipeline(body, sent)
      const [response] = await answered
      expect(response.statusCode).toBe(200)
      response.resume()
    }
    await send()
    const before = await memory(pid, 'VmRSS')
    // Resets the peak.
    await writeFile(`/proc/${pid}/clear_refs`, '5')
    await Promise.all(Array.from({ length: 8 }, send))
    const peak = await memory(pid, 'VmHWM')
    expect(peak - before).toBeLessThan(64)
    // The system must have reported a value.
    expect(peak).toBeGreaterThan(before / 2)
  })
})
