import { copyFile, mkdir, readdir, readFile, rename, rm, stat, truncate, writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { describe, expect, it } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { NewInstallationError } from '../../src/installation.ts'
import { bodyOf } from '../../src/protocols/a2a/push.ts'
import { createDeliverer } from '../../src/webhooks/deliverer.ts'
import { createFolder } from '../support/folder.ts'
import { startModelServer } from '../support/model-server.ts'
import { upload } from '../support/multipart.ts'
import { spawnServer } from '../support/process.ts'
import { startReceiver } from '../support/receiver.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'

/** Sets up a folder with a server's data, as `DATA_DIR`. */
async function createPlace() {
  const { path, [Symbol.asyncDispose]: dispose } = await createFolder()
  return {
    path,
    database: join(path, 'muster.db'),
    start: (env: Record<string, string> = {}) => startServer(env, { folder: path }),
    async admin(...args: string[]) {
      const { code, out, err } = await runAdmin(args, { DATA_DIR: path })
      expect(err).toBe('')
      expect(code).toBe(0)
      return out
    },
    [Symbol.asyncDispose]: dispose,
  }
}

const titlesOf = async (server: { url: string }, token: string): Promise<string[]> => {
  const { body } = await request({ ...server, token }, 'GET', '/api/v1/tasks')
  return body.tasks.map(({ title }: { title: string }) => title).sort()
}
const addTask = (server: { url: string }, token: string, title: string) =>
  request({ ...server, token }, 'POST', '/api/v1/tasks', { body: { title } })

const readiness = async (server: { url: string }) => (await (await fetch(`${server.url}/readyz`)).json()).status

/** Copies the database and its log at this moment, as a killed process leaves them. */
async function copyLive(from: string, to: string): Promise<void> {
  await mkdir(to, { recursive: true })
  for (const name of await readdir(from))
    if (/^muster\.db(-wal)?$|key$|json$/.test(name)) await copyFile(join(from, name), join(to, name))
}

type Place = Awaited<ReturnType<typeof createPlace>>

/** Starts a server, and makes a backup of it between two tasks. */
async function backUp(place: Place) {
  const first = await place.start()
  const { token } = first
  await addTask(first, token, 'before')
  const backup = join(place.path, 'backup.db')
  await place.admin('backup', backup)
  await addTask(first, token, 'after')
  return { first, token, backup }
}

/** Backs up a server, and copies what a killed process would leave of it. Stops the server. */
async function crash(place: Place, crashed: Place) {
  const { first, token, backup } = await backUp(place)
  await copyLive(place.path, crashed.path)
  await first.service.stop()
  return { token, backup }
}

describe('a backup', () => {
  it('a backup restored beside an old log starts whole and paused, with the log set aside', async () => {
    await using place = await createPlace()
    await using crashed = await createPlace()
    const { token, backup } = await crash(place, crashed)
    await copyFile(backup, crashed.database)
    // The command line leaves the old log alone too.
    const refused = await runAdmin(['token', 'list'], { DATA_DIR: crashed.path })
    expect(refused.err).toContain('muster.db-wal')
    const again = await crashed.start()
    expect(await titlesOf(again, token)).toEqual(['before'])
    expect(await readiness(again)).toBe('paused')
    expect(again.logs.filter((line) => line.includes('muster.db-wal.replaced-'))).toHaveLength(1)
    await addTask(again, token, 'new')
    await again.service.stop()
    expect(new Sqlite(crashed.database).pragma('integrity_check', { simple: true })).toBe('ok')
  })

  it('stays paused over a crash and a restart, until resume ends the pause on the running server', async () => {
    await using place = await createPlace()
    await using copy = await createPlace()
    const first = await place.start()
    const { token } = first
    await place.admin('backup', copy.database)
    await first.service.stop()
    await copyFile(join(place.path, 'encryption.key'), join(copy.path, 'encryption.key'))
    const restored = await copy.start()
    expect(await readiness(restored)).toBe('paused')
    await restored.service.stop()
    await using again = await copy.start()
    expect(await readiness(again)).toBe('paused')
    expect(await copy.admin('resume')).toContain('The pause has ended')
    await expect.poll(() => readiness(again)).toBe('ok')
    // The original never carries the mark of a backup.
    await using original = await place.start()
    expect(await readiness(original)).toBe('ok')
    expect(token).toBeTruthy()
  })

  it('is restored by the command restore, which saves the previous database', async () => {
    await using place = await createPlace()
    const { first, token, backup } = await backUp(place)
    expect((await runAdmin(['restore', backup], { DATA_DIR: place.path })).err).toContain('Another Muster server')
    await first.service.stop()
    await writeFile(join(place.path, 'text.db'), 'no database')
    expect((await runAdmin(['restore', join(place.path, 'text.db')], { DATA_DIR: place.path })).err).toContain(
      'no database',
    )
    expect((await runAdmin(['restore', place.path], { DATA_DIR: place.path })).err).toContain('is a folder')
    expect(await place.admin('restore', backup)).toContain('paused')
    const again = await place.start()
    expect(await titlesOf(again, token)).toEqual(['before'])
    expect(await readiness(again)).toBe('paused')
    await again.service.stop()
    const [aside = ''] = (await readdir(place.path)).filter((name) => /\.before-\d+$/.test(name))
    await rename(join(place.path, aside), place.database)
    await using back = await place.start()
    expect(await titlesOf(back, token)).toEqual(['after', 'before'])
  })

  it('is restored again, with nothing lost, if the first restore was killed between its steps', async () => {
    await using place = await createPlace()
    await using crashed = await createPlace()
    const { token, backup } = await crash(place, crashed)
    const [old, draft] = [`${crashed.database}.before-20260101000000`, `${crashed.database}.restoring`]
    const settings = { DATA_DIR: crashed.path, ENCRYPTION_KEY: '' }
    await rename(crashed.database, old)
    await copyFile(backup, draft)
    await writeFile(crashed.database, '')
    const refused = await crashed.start().catch((error: Error) => error)
    expect(refused).toMatchObject({ name: 'NewInstallationError', message: expect.stringContaining('restore FILE') })
    expect((await runAdmin(['restore', backup], settings)).err).toBe('')
    // Killed before it moved the log.
    const names = async () => (await readdir(crashed.path)).filter((name) => /\.before-2\d+(-wal)?$/.test(name)).sort()
    const [aside = '', log = ''] = await names()
    await rename(join(crashed.path, log), `${crashed.database}-wal`)
    expect((await runAdmin(['restore', backup], settings)).err).toBe('')
    const copy = await crashed.start()
    expect([await readiness(copy), await titlesOf(copy, token)]).toEqual(['paused', ['before']])
    await copy.service.stop()
    const replaced = (await readdir(crashed.path)).find((name) => name.includes('-wal.replaced-'))!
    await rename(join(crashed.path, aside), crashed.database)
    await rename(join(crashed.path, replaced), `${crashed.database}-wal`)
    await using back = await crashed.start()
    expect(await titlesOf(back, token)).toEqual(['after', 'before'])
  })

  it('accepts a token revoked after the backup, until the operator revokes it there too', async () => {
    await using place = await createPlace()
    const first = await place.start()
    const { token } = first
    const key = (await request(first, 'POST', '/api/v1/keys', { body: { name: 'Key', scopes: ['tasks:read'] } })).body
    const backup = join(place.path, 'backup.db')
    await place.admin('backup', backup)
    expect((await request(first, 'DELETE', `/api/v1/keys/${key.id}`)).status).toBe(200)
    const statusOf = async (server: { url: string }) =>
      (await request({ ...server, token: key.token }, 'GET', '/api/v1/tasks')).status
    expect(await statusOf(first)).toBe(401)
    await first.service.stop()
    expect(await place.admin('restore', backup)).toContain('tokens that were revoked since')
    const copy = await place.start()
    expect([await readiness(copy), await statusOf(copy)]).toEqual(['paused', 200])
    await copy.service.stop()
    await place.admin('token', 'revoke', key.id)
    await using again = await place.start()
    expect([await readiness(again), await statusOf(again)]).toEqual(['paused', 401])
    expect((await request({ ...again, token }, 'GET', '/api/v1/tasks')).status).toBe(200)
  })
})

describe('the webhooks and push notifications of a copy', () => {
  it('send nothing while it is paused, and everything that is left once it is resumed', async () => {
    await using place = await createPlace()
    await using copy = await createPlace()
    await using receiver = await startReceiver()
    await using model = await startModelServer()
    const env = {
      OPENAI_BASE_URL: model.baseUrl,
      DEFAULT_MODEL: 'compatible/test-model',
      ALLOW_PRIVATE_NETWORK: 'true',
      LEASE_DURATION: '2',
    }
    const original = await place.start(env)
    const { token } = original
    const headers = { 'A2A-Version': '1.0' }
    const post = async (path: string, body: object) => (await request(original, 'POST', path, { body, headers })).body
    const { id } = await post('/api/v1/agents', { name: 'Ada', systemPrompt: 'You are Ada.' })
    await post('/api/v1/webhooks', { url: `${receiver.url}/hook`, events: ['task.created'] })

    const resume = Promise.withResolvers<void>()
    model.script({ tokens: ['one ', resume.promise, 'two'] })
    const { result } = await post(`/a2a/agents/${id}`, {
      jsonrpc: '2.0',
      id: 1,
      method: 'SendMessage',
      params: {
        message: { messageId: 'm', role: 'ROLE_USER', parts: [{ text: 'Hello' }] },
        configuration: { taskPushNotificationConfig: { url: `${receiver.url}/push` }, returnImmediately: true },
      },
    })
    const states = () => receiver.at('/push').map(({ body }) => body.task.status.state)
    await expect.poll(states).toEqual(['TASK_STATE_WORKING'])

    // The copy is made while a delivery and a run are under way.
    const held: ServerResponse[] = []
    receiver.answer = (response) => void held.push(response)
    await addTask(original, token, 'before')
    await expect.poll(() => held.length).toBe(1)
    await place.admin('backup', copy.database)
    receiver.answer = null
    held[0]?.writeHead(204).end()
    resume.resolve()
    await expect.poll(states).toEqual(['TASK_STATE_WORKING', 'TASK_STATE_COMPLETED'])
    await original.service.stop()
    const sent = receiver.received.length

    await copyFile(join(place.path, 'encryption.key'), join(copy.path, 'encryption.key'))
    await using restored = await copy.start(env)
    expect(await readiness(restored)).toBe('paused')
    await addTask(restored, token, 'while paused')
    const deliverer = createDeliverer(restored.service.deps, bodyOf)
    await deliverer.tick()
    await deliverer.stop()
    expect(receiver.received).toHaveLength(sent)

    await copy.admin('resume')
    const hook = () => receiver.at('/hook').map(({ body, headers }) => [body.data.title, headers['webhook-id']])
    await expect
      .poll(() =>
        hook()
          .slice(1)
          .map(([title]) => title)
          .sort(),
      )
      .toEqual(['before', 'while paused'])
    // The receiver can tell that it has had the first one.
    expect(hook().filter((one) => one[1] === hook()[0]![1])).toHaveLength(2)
    await expect.poll(states).toEqual(['TASK_STATE_WORKING', 'TASK_STATE_COMPLETED', 'TASK_STATE_CANCELED'])
    expect(receiver.at('/push').at(-1)?.body.task.id).toBe(result.task.id)
  })
})

describe('a plain copy of the database', () => {
  it('starts paused if a newer start happened in its folder, and normally in a moved folder', async () => {
    await using place = await createPlace()
    await using elsewhere = await createPlace()
    const first = await place.start()
    await first.service.stop()
    await copyFile(place.database, join(place.path, 'old.db'))
    const second = await place.start()
    expect(await readiness(second)).toBe('ok')
    await second.service.stop()
    for (const name of ['muster.db', 'encryption.key', 'starts.json'])
      await copyFile(join(place.path, name), join(elsewhere.path, name))
    const moved = await elsewhere.start()
    expect(await readiness(moved)).toBe('ok')
    await moved.service.stop()
    await copyFile(join(place.path, 'old.db'), place.database)
    await using older = await place.start()
    expect(await readiness(older)).toBe('paused')
  })

  it('is separated from a newer log, even if no start lies between the two', async () => {
    await using place = await createPlace()
    await using crashed = await createPlace()
    const first = await place.start()
    await addTask(first, first.token, 'early')
    // Two checkpoints, as an idle server makes them, each followed by a write.
    const checkpoint = async (title: string) => {
      await expect
        .poll(
          async () =>
            new Sqlite(place.database, { readonly: true }).prepare('SELECT 1').get() &&
            (await stat(place.database)).mtimeMs,
        )
        .toBeGreaterThan((await stat(`${place.database}-wal`)).mtimeMs)
      await addTask(first, first.token, title)
    }
    await checkpoint('one')
    await copyFile(place.database, join(crashed.path, 'old.db'))
    await checkpoint('two')
    await checkpoint('three')
    await copyLive(place.path, crashed.path)
    await first.service.stop()
    await copyFile(join(crashed.path, 'old.db'), crashed.database)
    await using again = await crashed.start()
    expect(await titlesOf(again, first.token)).toEqual(['early'])
    expect(await readiness(again)).toBe('paused')
  })
})

describe('a server that is killed', () => {
  it('leaves all but the last moments in the file itself, and files that only their owner reads', async () => {
    await using folder = await createFolder()
    await using copy = await createFolder()
    await using server = await spawnServer(folder.path, { DATA_DIR: folder.path })
    const token = /mst_\w+/.exec(server.out)?.[0] ?? ''
    expect(server.out).toContain(`A new installation was made in ${join(folder.path, 'muster.db')}`)
    await addTask(server, token, 'kept')
    const inFile = () => {
      try {
        const database = new Sqlite(join(copy.path, 'muster.db'), { readonly: true })
        return database.prepare('SELECT "title" FROM "Task"').pluck().all()
      } catch {
        return []
      }
    }
    await expect
      .poll(async () => {
        await copyFile(join(folder.path, 'muster.db'), join(copy.path, 'muster.db'))
        return inFile()
      })
      .toEqual(['kept'])
    const names = (await readdir(folder.path)).filter((name) => !name.startsWith('.'))
    for (const name of names) {
      const { mode } = await stat(join(folder.path, name))
      expect([name, mode & 0o077]).toEqual([name, 0])
    }
    await server.stop('SIGKILL')
  })
})

describe('a new installation', () => {
  it('is never made in a file of another program, whose log stays beside it', async () => {
    await using place = await createPlace()
    const theirs = new Sqlite(join(place.path, 'theirs.db'))
    theirs.exec('PRAGMA journal_mode = WAL; PRAGMA user_version = 1; CREATE TABLE "Customer" ("id" INTEGER)')
    theirs.pragma('wal_checkpoint(TRUNCATE)')
    theirs.exec('PRAGMA user_version = 9; INSERT INTO "Customer" VALUES (1)')
    for (const suffix of ['', '-wal']) await copyFile(`${theirs.name}${suffix}`, `${place.database}${suffix}`)
    theirs.close()
    const files = () => Promise.all(['', '-wal'].map((suffix) => readFile(`${place.database}${suffix}`)))
    const before = await files()
    const foreign = `${place.database} belongs to another program: it has a table Customer`
    await expect(place.start()).rejects.toThrow(foreign)
    expect(await files()).toEqual(before)
    await rm(`${place.database}-wal`)
    for (const command of ['backup copy.db', 'move --to postgresql://127.0.0.1:1/muster', 'token list'])
      expect((await runAdmin(command.split(' '), { DATA_DIR: place.path })).err).toContain(foreign)
  })

  const kinds = {
    'a key': async (path: string) =>
      writeFile(join(path, 'encryption.key'), `${Buffer.alloc(32, 1).toString('base64')}\n`),
    'media of an installation': async (path: string) => {
      await mkdir(join(path, 'media', 'muster-0123456789abcdef', 'ab'), { recursive: true })
      await writeFile(join(path, 'media', 'muster-0123456789abcdef', 'ab', 'ab'.repeat(11)), 'x')
    },
    'media of an earlier version': async (path: string) => {
      await mkdir(join(path, 'media', 'ab'), { recursive: true })
      await writeFile(join(path, 'media', 'ab', 'ab'.repeat(11)), 'x')
    },
    'a log without its database': async (path: string) => {
      await writeFile(join(path, 'muster.db-wal'), Buffer.alloc(10_000))
      await writeFile(join(path, 'muster.db'), '')
    },
  }

  it.each(Object.entries(kinds))('is refused beside %s, unless the operator allows it', async (_, leave) => {
    await using place = await createPlace()
    await leave(place.path)
    await expect(place.start()).rejects.toThrow(NewInstallationError)
    await expect(place.start()).rejects.toThrow(/ALLOW_NEW_INSTALLATION=true/)
    await using server = await place.start({ ALLOW_NEW_INSTALLATION: 'true' })
    expect(server.token).toMatch(/^mst_/)
    expect(server.service.newInstallation).toBe(place.database)
  })

  it('resumes after its first start was killed, and the next start installs nothing', async () => {
    await using place = await createPlace()
    const first = await place.start()
    await upload(first, 'x')
    await first.service.stop()
    // Simulates a process that was killed between the key and the rows: an empty database with the mark of a first
    // start.
    await rm(join(place.path, 'media'), { recursive: true })
    await truncate(place.database)
    await expect(place.start()).rejects.toThrow(/encryption\.key/)
    await writeFile(join(place.path, 'first-start'), '')
    const again = await place.start()
    expect(again.service.newInstallation).toBe(place.database)
    await again.service.stop()
    await using third = await place.start()
    expect(third.service.newInstallation).toBeNull()
  })
})
