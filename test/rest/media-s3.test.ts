import { randomBytes } from 'node:crypto'
import { readdir, readlink } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import { expect, test } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { createFolder } from '../support/folder.ts'
import { listen } from '../support/listen.ts'
import { filesIn, upload } from '../support/multipart.ts'
import { postgresEnv } from '../support/postgres.ts'
import { hasPostgres, shareDatabase } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { startS3 } from '../support/s3.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const MIB = 1024 * 1024
const UNAVAILABLE = 'Service temporarily unavailable. Please retry.'

const s3 = await use(startS3())
const server = await use(startServer(s3.env))

const contentOf = async (id: string) => {
  const headers = { Authorization: `Bearer ${server.token}` }
  const answer = await fetch(`${server.url}/api/v1/media/${id}/content`, { headers })
  return { status: answer.status, bytes: Buffer.from(await answer.arrayBuffer()) }
}

const objects = async () => (await filesIn(s3.folder)).filter((path) => path.endsWith('_object'))
const drafts = () => filesIn(`${server.folder}/media`)

test('an upload is in the bucket, is downloaded unchanged, and disappears with its row', async () => {
  const bytes = randomBytes(24 * MIB)
  const { status, body } = await upload(server, bytes, { name: 'big.bin' })
  expect([status, body.media.size]).toEqual([200, bytes.length])
  expect([(await objects()).length, await drafts()]).toEqual([1, []])
  const content = await contentOf(body.id)
  expect([content.status, content.bytes.equals(bytes)]).toEqual([200, true])
  expect((await request(server, 'DELETE', `/api/v1/media/${body.id}`)).status).toBe(200)
  expect(await objects()).toEqual([])
  expect((await contentOf(body.id)).status).toBe(404)
})

test('a refused upload leaves nothing in the bucket or on the machine', async () => {
  expect((await upload(server, randomBytes(26 * MIB))).status).toBe(413)
  expect((await upload(server, '')).status).toBe(400)
  expect([await objects(), await drafts()]).toEqual([[], []])
})

test('the row of a lost object gives a 500', async () => {
  const { body } = await upload(server, 'soon gone')
  await server.service.deps.storage.remove(body.id)
  expect((await contentOf(body.id)).status).toBe(500)
})

/** Files in a folder that this process has open, if the system shows them. */
async function openFiles(folder: string): Promise<string[]> {
  const names = await readdir('/proc/self/fd').catch(() => [])
  const paths = await Promise.all(names.map((name) => readlink(`/proc/self/fd/${name}`).catch(() => '')))
  return paths.filter((path) => path.startsWith(folder))
}

test('while the bucket does not answer, media give 503, without leftovers or open files', async () => {
  await using other = await startS3()
  await using away = await startServer(other.env)
  const { body } = await upload(away, 'there')
  await other.stop()
  const refused = await upload(away, randomBytes(2 * MIB))
  expect([refused.status, refused.body.message]).toEqual([503, UNAVAILABLE])
  expect(refused.body.detail).toMatch(/^The media storage does not answer \(ECONNREFUSED\)\. .*S3_ENDPOINT/)
  await expect.poll(() => openFiles(`${away.folder}/media`)).toEqual([])
  expect((await request(away, 'GET', `/api/v1/media/${body.id}/content`)).status).toBe(503)
  expect(await away.service.deps.db.media.count()).toBe(1)
  expect(await filesIn(`${away.folder}/media`)).toEqual([])
  expect((await request(away, 'GET', '/api/v1/media')).status).toBe(200)
  for (const command of [['media-clean'], ['media-restore', 'all']]) {
    const { code, err } = await runAdmin(command, { ...other.env, DATA_DIR: away.folder })
    expect([code, err]).toEqual([
      1,
      expect.stringMatching(/retry\. The media storage does not answer \(ECONNREFUSED\)/),
    ])
  }
})

test('an upload is repeated if the bucket is busy or drops the connection, and not if it refuses', async () => {
  const answers: ((res: ServerResponse) => unknown)[] = []
  const busy = createServer((req, res) => {
    if (req.method === 'PUT') return answers.shift()?.(res) ?? res.end()
    res.writeHead(404, { 'Content-Type': 'application/xml' }).end('<Error><Code>NoSuchBucket</Code></Error>')
  })
  const port = await listen(busy)
  await using strange = await startServer({ ...s3.env, S3_ENDPOINT: `http://127.0.0.1:${port}` })
  answers.push(
    (res) => res.socket?.destroy(),
    (res) => res.writeHead(503).end('<Error><Code>SlowDown</Code></Error>'),
  )
  const { status, body } = await upload(strange, 'worth a repetition')
  expect([status, answers]).toEqual([200, []])
  const quoted = '<CanonicalRequest>x-amz-security-token:canary</CanonicalRequest><Token-0>canary</Token-0>'
  answers.push((res) => res.writeHead(403).end(`<Error><Code>AccessDenied</Code>${quoted}</Error>`))
  const refused = await upload(strange, 'x')
  expect([refused.status, refused.body.detail]).toEqual([503, expect.stringMatching(/AccessDenied.*S3_BUCKET/)])
  // Buckets quote the request that they refuse, with the token of its session.
  expect(strange.logs.filter((line) => line.includes('canary'))).toEqual([])
  expect(strange.logs.join('')).toContain('"type":"AccessDenied"')
  // A lost file would be a 500 that asks for a new upload.
  const lost = await request(strange, 'GET', `/api/v1/media/${body.id}/content`)
  expect([lost.status, lost.body.detail]).toEqual([503, expect.stringContaining('NoSuchBucket')])
  busy.close()
  busy.closeAllConnections()
})

test.each(['oss-cn-shanghai.aliyuncs.com', 'media.cos.ap-beijing.myqcloud.com'])(
  'the bucket is in the host name for services that require it: %s',
  async (host) => {
    const urls: string[] = []
    const proxy = createServer((req, res) => {
      urls.push(`${req.method} ${req.url}`)
      req.resume().on('end', () => res.end())
    })
    const env = { S3_ENDPOINT: `http://${host}`, HTTP_PROXY: `http://127.0.0.1:${await listen(proxy)}` }
    await using hosted = await startServer({ ...s3.env, ...env })
    expect((await upload(hosted, 'x')).status).toBe(200)
    const named = host.startsWith('media.') ? host : `media.${host}`
    expect(urls.at(-1)).toContain(`PUT http://${named}/muster-`)
    proxy.close()
    proxy.closeAllConnections()
  },
)

test.runIf(hasPostgres)('on PostgreSQL without shared storage the start warns, and media give 503', async () => {
  const database = await shareDatabase()
  await using folder = await createFolder()
  const { MEDIA_DIR: _, ...env } = postgresEnv(database.url, folder.path)
  await using homeless = await startServer(env)
  expect(homeless.logs.filter((line) => line.includes('S3_BUCKET or MEDIA_DIR'))).toHaveLength(1)
  const refused = await upload(homeless, 'x')
  expect([refused.status, refused.body.message]).toEqual([503, 'Media storage is not configured'])
  expect(refused.body.detail).toContain('S3_BUCKET')
  expect(refused.headers.get('retry-after')).toBeNull()
  expect((await request(homeless, 'GET', '/api/v1/media')).body.media).toEqual([])
})
