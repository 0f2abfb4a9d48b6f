import { cp, open, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { expect, it } from 'vitest'
import { Prisma } from '../../src/db/client.ts'
import { lockDatabase } from '../../src/db/sqlite/file-lock.ts'
import { createFolder } from '../support/folder.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

const UNAVAILABLE = 'Service temporarily unavailable. Please retry.'
const PAGE = 4096

/** Overwrites every page of the file that holds the mark, as a failing disk does. */
async function damagePages(path: string, mark: string): Promise<void> {
  await using file = await open(path, 'r+')
  const page = Buffer.alloc(PAGE)
  let damaged = 0
  for (let at = 0; (await file.read(page, 0, PAGE, at)).bytesRead; at += PAGE) {
    if (!page.includes(mark)) continue
    await file.write(Buffer.alloc(PAGE, 0xff), 0, PAGE, at)
    damaged++
  }
  expect(damaged).toBeGreaterThan(0)
}

it.skipIf(onPostgres)('a server that read a damaged page is not ready, and asks for a backup', async () => {
  await using folder = await createFolder()
  const mark = 'written over later '
  const first = await startServer({}, { folder: folder.path })
  const { token } = first
  const body = { name: 'Ada', systemPrompt: mark.repeat(5_000) }
  const { id } = (await request(first, 'POST', '/api/v1/agents', { body })).body
  await first.service.stop()

  await using server = await startServer({}, { folder: folder.path })
  expect((await fetch(`${server.url}/readyz`)).status).toBe(200)
  await damagePages(join(folder.path, 'muster.db'), mark)
  expect((await request(server, 'GET', `/api/v1/agents/${id}`, { token })).status).toBe(500)
  for (const path of ['/readyz', '/api/health']) {
    const answer = await request(server, 'GET', path)
    expect([answer.status, answer.body.detail]).toEqual([503, expect.stringContaining('restore a backup')])
  }
  expect((await fetch(`${server.url}/healthz`)).status).toBe(200)
  expect(server.logs.filter((line) => line.includes('the database file is damaged'))).toHaveLength(1)
})

it.skipIf(onPostgres)('a server whose lock another one has taken is not ready, and says so once', async () => {
  await using server = await startServer()
  const file = join(server.folder, 'muster.db')
  await rm(`${file}.lock`)
  const other = lockDatabase(file)
  await expect.poll(async () => (await fetch(`${server.url}/readyz`)).status).toBe(503)
  const { body } = await request(server, 'GET', '/readyz')
  expect(body.detail).toContain('Another server uses the same database file')
  expect(server.logs.filter((line) => line.includes('stop one of the two servers'))).toHaveLength(1)
  other.release()
})

it.skipIf(onPostgres)('a file whose server was killed while it closed it gets its name back', async () => {
  await using folder = await createFolder()
  const file = join(folder.path, 'muster.db')
  const first = await startServer({}, { folder: folder.path })
  const { token } = first
  await request(first, 'POST', '/api/v1/tasks', { token, body: { title: 'kept' } })
  await first.service.stop()
  await rename(file, `${file}.closing`)
  // As a start that was refused leaves it.
  await writeFile(file, '')
  {
    await using server = await startServer({}, { folder: folder.path })
    const { tasks } = (await request(server, 'GET', '/api/v1/tasks', { token })).body
    expect(tasks).toMatchObject([{ title: 'kept' }])
    expect(server.logs.join('')).toContain('has its name back')
  }
  // A file of that name beside one with content stays.
  await cp(file, `${file}.closing`)
  await using again = await startServer({}, { folder: folder.path })
  expect((await request(again, 'GET', '/api/v1/tasks', { token })).body.tasks).toHaveLength(1)
  expect((await stat(`${file}.closing`)).size).toBeGreaterThan(0)
})

it.skipIf(onPostgres).each([
  ['deleted', (file: string) => rm(file)],
  ['replaced by a copy', (file: string) => rename(`${file}.copy`, file)],
  ['overwritten by a copy', (file: string) => cp(`${file}.copy`, file)],
  ['left without its log', (file: string) => rm(`${file}-wal`)],
  ['moved and moved back', (file: string) => rename(file, `${file}.aside`)],
])('a server whose file was %s writes nothing more, and spoils no other file', async (how, move) => {
  await using folder = await createFolder()
  const file = join(folder.path, 'muster.db')
  const first = await startServer({}, { folder: folder.path })
  const { token } = first
  const add = (to: TestServer, title: string) => request(to, 'POST', '/api/v1/tasks', { token, body: { title } })
  const titles = async (of: TestServer): Promise<string[]> =>
    (await request(of, 'GET', '/api/v1/tasks', { token })).body.tasks.map(({ title }: { title: string }) => title)
  await add(first, 'before')
  await first.service.stop()
  await cp(file, `${file}.copy`)
  {
    // As `admin backup` marks it.
    const copy = new Sqlite(`${file}.copy`)
    copy.pragma('user_version = -1234567890')
    copy.close()
  }

  {
    await using server = await startServer({}, { folder: folder.path })
    expect((await add(server, 'since')).status).toBe(200)
    await move(file)
    if (how === 'left without its log')
      await expect.poll(async () => (await add(server, 'in the log')).status).toBe(503)
    const refused = await add(server, 'lost')
    expect([refused.status, refused.body.detail]).toEqual([503, expect.stringContaining('moved or replaced')])
    expect((await fetch(`${server.url}/readyz`)).status).toBe(503)
    // The log beside the path is emptied, because it belongs to the file that was moved.
    if (how.includes('moved') || how.includes('replaced')) {
      await expect.poll(async () => (await stat(`${file}-wal`)).size).toBe(0)
    }
    if (how === 'moved and moved back') {
      await rename(`${file}.aside`, file)
      expect((await add(server, 'again')).status).toBe(200)
    }
  }
  if (how === 'deleted') return
  await using after = await startServer({}, { folder: folder.path })
  const found = (await titles(after)).filter((title) => title !== 'in the log')
  expect(found).toEqual(
    how.includes('copy') ? ['before'] : [...(how.includes('back') ? ['again'] : []), 'since', 'before'],
  )
})

/** Limits the file to its present size, as a full disk does, or removes the limit. */
async function boundFile({ service: { deps } }: TestServer, bound: 'full' | 'free'): Promise<void> {
  // SQLite raises a smaller limit to the present number of pages.
  await deps.db.$transaction((tx) =>
    tx.$queryRaw(Prisma.raw(`PRAGMA max_page_count = ${bound === 'full' ? 1 : 2 ** 30}`)),
  )
}

it.skipIf(onPostgres)(
  'a full disk gives 503 without losing acknowledged writes, and writes resume with space',
  async () => {
    await using server = await startServer()
    const add = (title: string) =>
      request(server, 'POST', '/api/v1/tasks', { body: { title, description: 'x'.repeat(50_000) } })
    const titles = async () =>
      (await request(server, 'GET', '/api/v1/tasks?limit=1000')).body.tasks.map((task: { title: string }) => task.title)
    expect((await add('before')).status).toBe(200)
    await boundFile(server, 'full')
    const during = await Promise.all(['a', 'b', 'c'].map(add))
    const refused = during.filter(({ status }) => status === 503)
    expect(refused.length).toBeGreaterThan(0)
    for (const { body } of refused) expect(body.message).toBe(UNAVAILABLE)
    const kept = during.flatMap(({ status }, index) => (status === 200 ? ['a', 'b', 'c'][index]! : []))
    expect((await titles()).sort()).toEqual([...kept, 'before'].sort())
    expect((await fetch(`${server.url}/readyz`)).status).toBe(200)
    await boundFile(server, 'free')
    expect((await add('after')).status).toBe(200)
    expect((await titles()).sort()).toEqual([...kept, 'after', 'before'].sort())
  },
)

it.runIf(onPostgres).each(['XX001', 'XX002'])(
  'a server whose PostgreSQL reports damage is not ready: %s',
  async (code) => {
    await using server = await startServer()
    const { db } = server.service.deps
    // Imitates PostgreSQL's own report of a damaged page or index.
    const report = (tx: Pick<typeof db, '$executeRaw'>) =>
      tx.$executeRaw(Prisma.raw(`DO $$ BEGIN RAISE EXCEPTION 'damaged' USING ERRCODE = '${code}'; END $$`))
    expect((await fetch(`${server.url}/readyz`)).status).toBe(200)
    await expect(code === 'XX001' ? report(db) : db.$transaction(report)).rejects.toThrow()
    for (const path of ['/readyz', '/api/health']) {
      const answer = await request(server, 'GET', path)
      expect([answer.status, answer.body.detail]).toEqual([503, expect.stringContaining(code)])
    }
    expect((await fetch(`${server.url}/healthz`)).status).toBe(200)
    expect(server.logs.filter((line) => line.includes('damaged page or index'))).toHaveLength(1)
  },
)
