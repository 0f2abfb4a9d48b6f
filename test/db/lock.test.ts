import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, linkSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { openDatabase } from '../../src/db/client.ts'
import { accessAdvice, DatabaseLockedError, lockDatabase } from '../../src/db/sqlite/file-lock.ts'

let folder: string
let file: string
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'muster-test-')))
  file = join(folder, 'muster.db')
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

/** Another process, which holds the lock until it is killed. */
async function otherServer() {
  const lock = join(import.meta.dirname, '..', '..', 'src', 'db', 'sqlite', 'file-lock.ts')
  const script = `
    const { lockDatabase } = await import(process.argv[1])
    lockDatabase(process.argv[2])
    console.log('locked')
    setInterval(() => {}, 1000)`
  const args = ['--input-type=module', '-e', script, lock, file]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(child.stdout, 'data')
  return child
}

test('a second server on the same file is refused, with the pid of the first', async () => {
  const other = await otherServer()
  try {
    expect(() => lockDatabase(file)).toThrow(DatabaseLockedError)
    expect(() => lockDatabase(file)).toThrow(`Another Muster server (pid ${other.pid}) uses ${file}.`)
  } finally {
    other.kill('SIGKILL')
  }
})

test('a lock that no server holds is explained by a program, or a file system without locks', () => {
  const holder = new Sqlite(`${file}.lock`)
  holder.exec('BEGIN EXCLUSIVE')
  expect(() => lockDatabase(file)).toThrow(/^Another program uses .*, or its file system knows no locks/)
  holder.close()
  lockDatabase(file).release()
})

test('a folder on a read-only file system is refused with the way to make it writable', () => {
  const refused = Object.assign(new Error('EROFS: read-only file system'), { code: 'EROFS' })
  expect(accessAdvice(refused)).toMatch(/read-only: mount it writable.* set DATA_DIR/)
})

test.runIf(existsSync('/dev/full'))('a full disk is reported with the file that could not be written', () => {
  symlinkSync('/dev/full', `${file}.pid`)
  expect(() => lockDatabase(file)).toThrow(`ENOSPC: no space left on device, write '${file}.pid'`)
})

test('the lock of a killed server is free at once', async () => {
  const other = await otherServer()
  other.kill('SIGKILL')
  await once(other, 'exit')
  lockDatabase(file).release()
})

test('a lock is held until its release, within one process too', () => {
  const lock = lockDatabase(file)
  expect(() => lockDatabase(file)).toThrow(`(pid ${process.pid})`)
  expect(() => lockDatabase(file)).toThrow(`(pid ${process.pid})`)
  lock.release()
  lockDatabase(file).release()
})

test('a lock whose file somebody deletes is soon held again', async () => {
  const lock = lockDatabase(file)
  rmSync(`${file}.lock`)
  rmSync(`${file}.pid`)
  await expect.poll(() => existsSync(`${file}.pid`)).toBe(true)
  expect(() => lockDatabase(file)).toThrow(`(pid ${process.pid})`)
  lock.release()
  lockDatabase(file).release()
})

test.each(['file', 'folder'])('a second server that opens a symbolic link to the %s is refused', (what) => {
  const linked = join(folder, 'linked')
  const path = join(linked, 'muster.db')
  if (what === 'folder') symlinkSync(folder, linked)
  else {
    mkdirSync(linked)
    symlinkSync(file, path)
  }
  for (const [first, second] of [[file, path] as const, [path, file] as const]) {
    const lock = lockDatabase(first)
    expect(() => lockDatabase(second)).toThrow(`(pid ${process.pid}) uses ${file}.`)
    lock.release()
  }
})

test("a symbolic link to a missing file locks the file's name", () => {
  const path = join(folder, 'linked.db')
  symlinkSync(file, path)
  const lock = lockDatabase(path)
  expect(() => lockDatabase(file)).toThrow(DatabaseLockedError)
  lock.release()
})

test('a hard-linked file is refused under both of its names', () => {
  lockDatabase(file).release()
  const other = join(folder, 'other.db')
  linkSync(file, other)
  for (const name of [file, other]) expect(() => lockDatabase(name)).toThrow(`${name} has hard links`)
})

test('a reader that takes no lock works beside a server', async () => {
  const lock = lockDatabase(file)
  const database = await openDatabase({ DATA_DIR: folder, DATABASE_URL: undefined, DATABASE_POOL_SIZE: 1 })
  expect(await database.client.organization.count()).toBe(0)
  await database.close()
  lock.release()
})
