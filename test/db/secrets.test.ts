import { chownSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { seal, unseal } from '../../src/crypto/envelope.ts'
import { changeEncryptionKey, deriveKey, EncryptionKeyError, openMasterKey } from '../../src/crypto/secrets.ts'
import type { Prisma } from '../../src/db/client.ts'
import { overrideMembers } from '../../src/db/override-members.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { createFolder } from '../support/folder.ts'
import { hasPostgres, shareDatabase } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'

const now = new Date('2026-01-02T03:04:05.678Z')
const given = (byte: number) => Buffer.alloc(32, byte).toString('base64')

describe('the master key', () => {
  let installation: TestDatabase
  beforeEach(async () => {
    installation = await createTestDatabase()
  })
  afterEach(() => installation.dispose())

  const source = (ENCRYPTION_KEY?: string) => ({ ENCRYPTION_KEY, DATA_DIR: installation.folder })
  const open = (ENCRYPTION_KEY?: string) => openMasterKey(installation.database, source(ENCRYPTION_KEY), now)
  const rotate = (from: string | undefined, to: string | null) =>
    changeEncryptionKey(installation.database, source(from), to, now)
  const keyFile = () => join(installation.folder, 'encryption.key')
  const keyFiles = () => readdirSync(installation.folder).filter((name) => name.startsWith('encryption.key'))
  const wrapped = async () => (await installation.db.installation.findUniqueOrThrow({ where: { id: 1 } })).masterKey

  test('is created once, wrapped by the key in a file that only its owner can read', async () => {
    const key = await open()
    expect(key).toHaveLength(32)
    expect(readFileSync(keyFile(), 'utf8')).toMatch(/^[A-Za-z0-9+/]{43}=\n$/)
    if (process.platform !== 'win32') expect(statSync(keyFile()).mode & 0o777).toBe(0o600)
    expect(await open()).toEqual(key)
  })

  test('is the same for all processes that start at once on a new installation', async () => {
    const keys = await Promise.all(Array.from({ length: 8 }, () => open()))
    expect(new Set(keys.map((key) => key.toString('hex'))).size).toBe(1)
    expect(keyFiles()).toEqual(['encryption.key'])
  })

  test('is wrapped by ENCRYPTION_KEY if that is set, differs from it, and needs no key file', async () => {
    expect(await open(given(7))).not.toEqual(Buffer.alloc(32, 7))
    expect(await open(given(7))).toEqual(await open(given(7)))
    expect(keyFiles()).toEqual([])
  })

  test('stands nowhere in the database in plain form', async () => {
    const key = await open(given(7))
    expect(Buffer.from(await wrapped()).includes(key)).toBe(false)
  })

  test('is refused to a process with another encryption key, and the error omits that key', async () => {
    await open(given(7))
    const other = open(given(8))
    await expect(other).rejects.toThrow(EncryptionKeyError)
    await expect(other).rejects.toThrow('ENCRYPTION_KEY is not the key that this database was set up with.')
    await open(given(7))
  })

  test('is lost with the key file, and no new key replaces it silently', async () => {
    await open()
    rmSync(keyFile())
    await expect(open()).rejects.toThrow('cannot be read')
    expect(keyFiles()).toEqual([])
  })

  test('is refused if the key file is invalid', async () => {
    writeFileSync(keyFile(), 'half a key')
    await expect(open()).rejects.toThrow('is not a key: 32 bytes in base64 are expected')
  })

  test('stays the same after a change of the encryption key, and the old one opens nothing', async () => {
    const key = await open(given(7))
    await rotate(given(7), given(8))
    expect(await open(given(8))).toEqual(key)
    await expect(open(given(7))).rejects.toThrow('is not the key')
  })

  test('stays the same after a change of the key file, which leaves no other file behind', async () => {
    const key = await open()
    const before = readFileSync(keyFile(), 'utf8')
    await rotate(undefined, null)
    expect(await open()).toEqual(key)
    expect(readFileSync(keyFile(), 'utf8')).not.toBe(before)
    expect(keyFiles()).toEqual(['encryption.key'])
    if (process.platform !== 'win32') expect(statSync(keyFile()).mode & 0o777).toBe(0o600)
    writeFileSync(keyFile(), before)
    await expect(open()).rejects.toThrow('is not the key')
  })

  test('is found again after an interrupted change of the key file', async () => {
    const key = await open()
    const before = readFileSync(keyFile(), 'utf8')
    const wrappedBefore = await wrapped()
    await rotate(undefined, null)
    // Interrupted after the database was written, before the new file was in its place.
    const after = readFileSync(keyFile(), 'utf8')
    writeFileSync(`${keyFile()}.0123456789abcdef`, after)
    writeFileSync(keyFile(), before)
    expect(await open()).toEqual(key)
    expect(readFileSync(keyFile(), 'utf8')).toBe(after)
    expect(keyFiles()).toEqual(['encryption.key'])
    // Interrupted before the database was written.
    writeFileSync(`${keyFile()}.fedcba9876543210`, after)
    writeFileSync(keyFile(), before)
    await installation.db.installation.update({ where: { id: 1 }, data: { masterKey: wrappedBefore } })
    expect(await open()).toEqual(key)
    expect(readFileSync(keyFile(), 'utf8')).toBe(before)
  })

  test('survives several concurrent changes of the key file', async () => {
    const key = await open()
    for (let round = 0; round < 10; round++) {
      const changes = await Promise.allSettled(Array.from({ length: 3 }, () => rotate(undefined, null)))
      for (const change of changes) {
        if (change.status === 'rejected') expect(change.reason).toBeInstanceOf(EncryptionKeyError)
      }
      expect(changes.some(({ status }) => status === 'fulfilled')).toBe(true)
      expect(await open()).toEqual(key)
      expect(keyFiles()).toEqual(['encryption.key'])
    }
  })

  test('survives a change that another one overtook: the change is refused and leaves no trace', async () => {
    const key = await open()
    const [arrived, overtaken] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const { db } = installation
    const updateMany = async (args: Prisma.InstallationUpdateManyArgs) => {
      arrived.resolve()
      await overtaken.promise
      return db.installation.updateMany(args)
    }
    const late = overrideMembers(db.installation, { updateMany })
    const client = overrideMembers(db, { installation: late })
    const slow = changeEncryptionKey({ ...installation.database, client }, source(), null, now)
    await arrived.promise
    await rotate(undefined, null)
    overtaken.resolve()
    await expect(slow).rejects.toThrow('The encryption key was changed at the same moment')
    expect(await open()).toEqual(key)
    expect(keyFiles()).toEqual(['encryption.key'])
  })

  test('derives unrelated keys for two purposes', () => {
    const master = Buffer.alloc(32, 7)
    const hex = (purpose: string) => deriveKey(master, purpose).export().toString('hex')
    const keys = [master.toString('hex'), hex('tokens'), hex('secrets')]
    expect(new Set(keys).size).toBe(3)
    expect(hex('tokens')).toBe(keys[1])
  })
})

describe('a sealed value', () => {
  const key = Buffer.alloc(32, 1)
  const content = Buffer.from('content')

  test('opens in its own place with the same key, and looks different each time', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.array(fc.string()), (bytes, place) => {
        const sealed = seal(key, place, bytes)
        expect(unseal(key, place, sealed)).toEqual(Buffer.from(bytes))
        expect(seal(key, place, bytes)).not.toEqual(sealed)
      }),
    )
  })

  test.each([[['a']], [['a', 'b', '']], [['ab']], [['a,b']], [['b', 'a']], [[]]])('does not open at %j', (place) => {
    expect(() => unseal(key, place, seal(key, ['a', 'b'], content))).toThrow()
  })

  test('does not open with another key, with any bit changed, or when cut', () => {
    const sealed = seal(key, ['a'], content)
    expect(() => unseal(Buffer.alloc(32, 2), ['a'], sealed)).toThrow()
    for (let bit = 0; bit < sealed.length * 8; bit++) {
      const changed = Buffer.from(sealed)
      changed[bit >> 3]! ^= 1 << (bit & 7)
      expect(() => unseal(key, ['a'], changed)).toThrow()
    }
    for (let length = 0; length < sealed.length; length++) {
      expect(() => unseal(key, ['a'], sealed.subarray(0, length))).toThrow()
    }
  })
})

describe('npm run admin -- rotate-key', () => {
  /** Returns an environment with this encryption key, or one with a key file. */
  const keyed = (env: Record<string, string>, key: string) => ({ ...env, ...(key && { ENCRYPTION_KEY: key }) })

  /** The first server runs while the key changes from the first to the last; another one starts with the last. */
  async function goesOn(keys: [string, string, ...string[]], env: Record<string, string> = {}) {
    await using folder = await createFolder()
    const start = (key: string) => startServer(keyed(env, key), { folder: folder.path })
    const set = (server: { url: string; token: string }, path: string, name: string) =>
      request(server, 'POST', path, { body: { secrets: { [name]: 'x' } } })
    let token = ''
    let path = ''
    {
      await using server = await start(keys[0])
      const { id } = await server.service.deps.db.space.findFirstOrThrow()
      token = server.token
      path = `/api/v1/spaces/${id}/secrets`
      let rotating = true
      const statuses: number[] = []
      const caller = (async () => {
        do statuses.push((await set(server, path, 'DURING')).status)
        while (rotating)
      })()
      for (const [index, key] of keys.slice(1).entries()) {
        const change = { ...env, DATA_DIR: folder.path, NEW_ENCRYPTION_KEY: key }
        expect(await runAdmin(['rotate-key'], keyed(change, keys[index]!))).toMatchObject({ code: 0, err: '' })
      }
      rotating = false
      await caller
      expect(new Set(statuses)).toEqual(new Set([200]))
      expect((await set(server, path, 'AFTER')).status).toBe(200)
    }
    if (keys[0]) await expect(start(keys[0])).rejects.toThrow('is not the key')
    await using again = await start(keys.at(-1)!)
    const server = { url: again.url, token }
    expect((await request(server, 'GET', path)).body.secrets).toEqual(['AFTER', 'DURING'])
    expect((await set(server, path, 'DURING')).status).toBe(200)
  }

  test('writes a new key file beside a running server; tokens and secrets survive its restart', () =>
    goesOn(['', '', '', '']))

  test('changes to NEW_ENCRYPTION_KEY beside a running server, and the old key starts none', () =>
    goesOn([given(1), given(2), given(3)]))

  test('changes from a key file to ENCRYPTION_KEY', () => goesOn(['', given(1)]))

  test.skipIf(process.getuid?.() !== 0)('leaves the key file to its owner when root changes the key', async () => {
    await using folder = await createFolder()
    await (await startServer({}, { folder: folder.path }))[Symbol.asyncDispose]()
    const file = join(folder.path, 'encryption.key')
    const before = readFileSync(file)
    chownSync(file, 65534, 65534)
    expect(await runAdmin(['rotate-key'], { DATA_DIR: folder.path })).toMatchObject({ code: 0 })
    expect(readFileSync(file)).not.toEqual(before)
    expect(statSync(file)).toMatchObject({ uid: 65534, gid: 65534 })
  })

  test.runIf(hasPostgres)('works the same on PostgreSQL', async () => {
    await goesOn([given(1), given(2)], { DATABASE_URL: (await shareDatabase()).url })
  })

  test('names each missing setting and the remedy', async () => {
    await using folder = await createFolder()
    const env = { DATA_DIR: folder.path, ENCRYPTION_KEY: given(1) }
    await using server = await startServer(env, { folder: folder.path })
    const refused = (err: string) => ({ code: 1, out: '', err })
    const missing = 'Set NEW_ENCRYPTION_KEY to the new key (openssl rand -base64 32).'
    expect(await runAdmin(['rotate-key'], env)).toEqual(refused(missing))
    const same = { ...env, NEW_ENCRYPTION_KEY: given(1) }
    expect(await runAdmin(['rotate-key'], same)).toEqual(
      refused('NEW_ENCRYPTION_KEY is the key in use. Give a new one (openssl rand -base64 32).'),
    )
    const bad = await runAdmin(['rotate-key'], { ...env, NEW_ENCRYPTION_KEY: 'zz' })
    expect(bad).toEqual(refused('NEW_ENCRYPTION_KEY must be 32 bytes in base64 (openssl rand -base64 32)'))
    const other = { ...same, ENCRYPTION_KEY: given(2) }
    expect((await runAdmin(['rotate-key'], other)).err).toMatch(/^ENCRYPTION_KEY is not the key/)
    const { out } = await runAdmin(['rotate-key'], { ...env, NEW_ENCRYPTION_KEY: given(2) })
    expect(out).toMatch(/Before their next start, set ENCRYPTION_KEY to the new key/)
    expect(out).not.toContain(given(2))
    expect((await request(server, 'GET', '/api/v1/agents')).status).toBe(200)
  })
})
