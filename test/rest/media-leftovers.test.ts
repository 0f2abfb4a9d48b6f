import { mkdir, readFile, rm, utimes, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { createFolder } from '../support/folder.ts'
import { filesIn, upload } from '../support/multipart.ts'
import { request } from '../support/rest.ts'
import { startS3 } from '../support/s3.ts'
import { startServer, type TestServer } from '../support/server.ts'

const DAY = 24 * 60 * 60 * 1000
const HOURS_AGO = new Date(Date.now() - 2 * 60 * 60 * 1000)
const FOREIGN = 'X'.repeat(22)

/** Sets up a place for media in a folder or in a bucket, with access to its files. */
async function createPlace(kind: 'folder' | 'bucket') {
  const stack = new AsyncDisposableStack()
  const { path } = stack.use(await createFolder())
  const s3 = kind === 'bucket' ? stack.use(await startS3({ trusting: true })) : null
  const root = s3?.folder ?? join(path, 'media')
  const env = s3?.env ?? {}
  return {
    env,
    start: (more: Record<string, string> = {}) => startServer({ ...env, ...more }, { folder: path }),
    /** Restarts the server and waits until it has checked files without a row. */
    async restart(more: Record<string, string> = {}) {
      const server = await startServer({ ...env, ...more }, { folder: path })
      await expect.poll(() => server.logs.some((line) => line.includes('cleaned up media files'))).toBe(true)
      return server
    },
    /** Lists objects by the last part of their names. */
    names: async () => {
      const files = (await filesIn(root)).filter((file) => !s3 || file.endsWith('_object'))
      return files.map((file) => file.slice(root.length + 1).replace('._S3rver_object', ''))
    },
    /** Writes an object that no server has written. */
    async put(name: string) {
      const file = join(root, s3 ? `${name}._S3rver_object` : name)
      await mkdir(dirname(file), { recursive: true })
      await writeFile(file, 'old')
      if (s3) await writeFile(file.replace(/object$/, 'metadata.json'), '{"content-type":"text/plain"}')
      if (s3) await writeFile(file.replace(/object$/, 'object.md5'), '"d41d8cd98f00b204e9800998ecf8427e"')
      await utimes(file, HOURS_AGO, HOURS_AGO)
    },
    /** Makes all objects two hours old. */
    async age() {
      for (const file of await filesIn(root)) await utimes(file, HOURS_AGO, HOURS_AGO)
    },
    async forget() {
      for (const file of ['muster.db', 'muster.db-wal', 'muster.db-shm', 'encryption.key'])
        await rm(join(path, file), { force: true })
    },
    admin: (...args: string[]) => runAdmin(args, { DATA_DIR: path, ...env }),
    path,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}

async function uploadMany(server: TestServer, count: number): Promise<string[]> {
  const ids: string[] = []
  for (let n = 0; n < count; n++) ids.push((await upload(server, `file ${n}`)).body.id)
  return ids
}

const contentOf = async (server: TestServer, id: string, token: string) => {
  const headers = { Authorization: `Bearer ${token}` }
  const answer = await fetch(`${server.url}/api/v1/media/${id}/content`, { headers })
  return answer.ok ? await answer.text() : answer.status
}

/** Copies rows so that the installation has more than a few files. */
async function addRows(server: TestServer, count: number): Promise<void> {
  const { db } = server.service.deps
  const row = await db.media.findFirstOrThrow()
  const data = Array.from({ length: count }, (_, n) => ({ ...row, id: `${n}`.padStart(22, 'R') }))
  await db.media.createMany({ data })
}

describe.each(['folder', 'bucket'] as const)('media in a %s', (kind) => {
  it('stay at a start if they are foreign, or newer than the database', async () => {
    await using place = await createPlace(kind)
    const first = await place.start()
    const { token } = first
    const ids = await uploadMany(first, 3)
    // The state of an older backup.
    await first.service.deps.db.media.deleteMany({ where: { id: { not: ids[0] ?? '' } } })
    await first.service.stop()
    for (const name of [FOREIGN, `xx/${FOREIGN}`, 'backups/2026.tar', 'report.pdf', 'drafts/mine.txt'])
      await place.put(name)
    await place.age()
    const before = await place.names()
    expect(before).toHaveLength(8)
    await using again = await place.restart()
    expect(await place.names()).toEqual(before)
    expect(await contentOf(again, ids[0] ?? '', token)).toBe('file 0')
  })

  it('of another database stay, however new or empty the starting one is', async () => {
    await using place = await createPlace(kind)
    const first = await place.start()
    await uploadMany(first, 5)
    await first.service.stop()
    await place.age()
    const before = await place.names()
    await place.forget()
    await using _ = await place.restart({ ALLOW_NEW_INSTALLATION: 'true' })
    expect(await place.names()).toEqual(before)
  })

  it('go to the trash if their upload broke off: one of a hundred at a start, with a line each', async () => {
    await using place = await createPlace(kind)
    const first = await place.start()
    const ids = await uploadMany(first, 4)
    await addRows(first, 150)
    const { db } = first.service.deps
    // Simulates a process that ends between the file and its row.
    for (const id of ids.slice(1)) {
      await db.media.deleteMany({ where: { id } })
      await db.mediaDraft.create({ data: { id, createdAt: HOURS_AGO } })
    }
    await first.service.stop()
    const again = await place.restart()
    const trashed = (await place.names()).filter((name) => name.includes('/trash/'))
    expect(trashed).toHaveLength(1)
    expect(again.logs.filter((line) => line.includes('moved a file without a row to the trash'))).toHaveLength(1)
    expect(again.logs.filter((line) => line.includes('media-clean'))).toHaveLength(1)
    expect(await place.names()).toHaveLength(4)
    await again.service.stop()
    // Without --yes nothing is moved; with it the rest follows.
    expect((await place.admin('media-clean')).out).toContain(ids[3])
    expect(await place.names()).toHaveLength(4)
    expect((await place.admin('media-clean', '--yes')).out).toContain(ids[3])
    expect((await place.names()).filter((name) => name.includes('/trash/'))).toHaveLength(3)
  })

  it('return from the trash, and leave it after 14 days unless the database knows them', async () => {
    await using place = await createPlace(kind)
    const first = await place.start()
    const { token } = first
    const { storage } = first.service.deps
    const [kept = '', known = '', gone = '', young = ''] = await uploadMany(first, 4)
    const old = new Date(Date.now() - 16 * DAY).toISOString().slice(0, 10)
    const recent = new Date(Date.now() - 13 * DAY).toISOString().slice(0, 10)
    for (const id of [known, gone]) await storage.trash(id, old)
    for (const id of [kept, young]) await storage.trash(id, recent)
    await first.service.deps.db.media.deleteMany({ where: { id: { in: [gone, young] } } })
    await first.service.stop()
    expect((await place.admin('media-restore', kept)).out).toContain(kept)
    const again = await place.restart()
    expect(await contentOf(again, kept, token)).toBe('file 0')
    expect(await contentOf(again, known, token)).toBe('file 1')
    const left = (await place.names()).filter((name) => name.includes('/trash/'))
    expect(left.map((name) => name.split('/').at(-1))).toEqual([young])
    expect(again.logs.filter((line) => line.includes('deleted a file from the trash'))).toHaveLength(1)
    await again.service.stop()
  })

  it('of an earlier version, without a prefix, are readable, and deleted with their row', async () => {
    await using place = await createPlace(kind)
    await using server = await place.start()
    const id = (await upload(server, 'new')).body.id as string
    const { db, storage } = server.service.deps
    await storage.remove(id)
    const oldName = kind === 'bucket' ? id : `${id.slice(0, 2).toLowerCase()}/${id}`
    await place.put(oldName)
    expect(await contentOf(server, id, server.token)).toBe('old')
    expect((await request(server, 'DELETE', `/api/v1/media/${id}`)).status).toBe(200)
    expect(await place.names()).toEqual([])
    expect(await db.mediaDraft.count()).toBe(0)
  })
})

describe('a folder of media', () => {
  it('a folder of media and its files can be read by their owner alone', async () => {
    await using place = await createPlace('folder')
    await using server = await place.start()
    await upload(server, 'x')
    const { statSync } = await import('node:fs')
    const [file = ''] = await filesIn(join(place.path, 'media'))
    const modes: number[] = []
    for (let path = file; path !== place.path; path = dirname(path)) modes.push(statSync(path).mode & 0o777)
    expect(modes).toEqual([0o600, 0o700, 0o700, 0o700])
    expect(await readFile(file, 'utf8')).toBe('x')
  })
})
