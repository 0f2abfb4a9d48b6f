import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { deriveKey, EncryptionKeyError, openMasterKey } from '../../src/db/secrets.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

const now = new Date('2026-01-02T03:04:05.678Z')
const given = (byte: number) => Buffer.alloc(32, byte).toString('base64')

let installation: TestDatabase
beforeEach(async () => {
  installation = await createTestDatabase()
})
afterEach(() => installation.dispose())

const open = (ENCRYPTION_KEY?: string) =>
  openMasterKey(installation.database, { ENCRYPTION_KEY, DATA_DIR: installation.folder }, now)
const keyFile = () => join(installation.folder, 'encryption.key')

test('the first start makes a key file that its owner alone can read, and later starts use it', async () => {
  const key = await open()
  expect(key).toHaveLength(32)
  expect(readFileSync(keyFile(), 'utf8')).toBe(`${key.toString('base64')}\n`)
  if (process.platform !== 'win32') expect(statSync(keyFile()).mode & 0o777).toBe(0o600)
  expect(await open()).toEqual(key)
})

test('processes that start at once on a new installation get the same key', async () => {
  const keys = await Promise.all(Array.from({ length: 8 }, () => open()))
  expect(new Set(keys.map((key) => key.toString('hex'))).size).toBe(1)
})

test('ENCRYPTION_KEY is the key, and no file is made', async () => {
  expect(await open(given(7))).toEqual(Buffer.alloc(32, 7))
  expect(() => statSync(keyFile())).toThrow('ENOENT')
})

test('a process with another key is refused, and its key is not named', async () => {
  await open(given(7))
  const other = open(given(8))
  await expect(other).rejects.toThrow(EncryptionKeyError)
  await expect(other).rejects.toThrow('ENCRYPTION_KEY is not the key that this database was set up with.')
})

test('a lost key file is not silently replaced by a new one', async () => {
  await open()
  rmSync(keyFile())
  await expect(open()).rejects.toThrow('cannot be read')
  expect(() => statSync(keyFile())).toThrow('ENOENT')
})

test('a key file that is no key is refused', async () => {
  writeFileSync(keyFile(), 'half a key')
  await expect(open()).rejects.toThrow('is not a key: 32 bytes in base64 are expected')
})

test('the keys for two purposes have nothing in common with each other, nor with their master', () => {
  const master = Buffer.alloc(32, 7)
  const keys = [master, deriveKey(master, 'tokens'), deriveKey(master, 'secrets')]
  expect(new Set(keys.map((key) => key.toString('hex'))).size).toBe(3)
  expect(deriveKey(master, 'tokens')).toEqual(keys[1])
})
