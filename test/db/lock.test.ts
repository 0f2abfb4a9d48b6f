import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { openDatabase } from '../../src/db/client.ts'
import { DatabaseLockedError, lockDatabase } from '../../src/db/lock.ts'

let folder: string
let file: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'muster-test-'))
  file = join(folder, 'muster.db')
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

/** Another process that holds the lock until it is killed. */
async function otherServer() {
  const lock = join(import.meta.dirname, '..', '..', 'src', 'db', 'lock.ts')
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

test('the lock of a server that was killed is free at once', async () => {
  const other = await otherServer()
  other.kill('SIGKILL')
  await once(other, 'exit')
  lockDatabase(file).release()
})

test('a lock is held until it is released, within one process too', () => {
  const lock = lockDatabase(file)
  expect(() => lockDatabase(file)).toThrow(`(pid ${process.pid})`)
  expect(() => lockDatabase(file)).toThrow(`(pid ${process.pid})`)
  lock.release()
  lockDatabase(file).release()
})

test('what takes no lock works beside a server', async () => {
  const lock = lockDatabase(file)
  const database = await openDatabase({ DATA_DIR: folder, DATABASE_URL: undefined, DATABASE_POOL_SIZE: 1 })
  expect(await database.client.organization.count()).toBe(0)
  await database.close()
  lock.release()
})
