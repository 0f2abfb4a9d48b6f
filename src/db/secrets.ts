import { hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto'
import { link, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { isUniqueViolation } from '../lib/database-errors.ts'
import type { Settings } from '../settings.ts'
import type { Database } from './client.ts'

/** The encryption key is missing, malformed, or not the one of this database. */
export class EncryptionKeyError extends Error {
  override name = 'EncryptionKeyError'
}

/**
 * The installation's 32-byte key, from which all others are derived: ENCRYPTION_KEY, or on SQLite the file
 * `encryption.key` under DATA_DIR, made the first time (contract.md section 0). The database keeps a check value, so
 * that a process with another key stops here. Throws an EncryptionKeyError.
 */
export async function openMasterKey(
  { client, kind }: Database,
  { ENCRYPTION_KEY, DATA_DIR }: Pick<Settings, 'ENCRYPTION_KEY' | 'DATA_DIR'>,
  now: Date,
): Promise<Buffer> {
  const find = () => client.installation.findUnique({ where: { id: 1 } })
  let installation = await find()
  if (!ENCRYPTION_KEY && kind === 'postgresql') throw new EncryptionKeyError('PostgreSQL needs an ENCRYPTION_KEY.')
  const key = ENCRYPTION_KEY
    ? Buffer.from(ENCRYPTION_KEY, 'base64')
    : await keyFile(join(DATA_DIR, 'encryption.key'), installation === null)
  const keyCheck = deriveKey(key, 'check').toString('base64')
  if (!installation) {
    try {
      installation = await client.installation.create({ data: { id: 1, keyCheck, createdAt: now } })
    } catch (error) {
      if (!isUniqueViolation(error)) throw error
      installation = await find()
    }
  }
  if (!installation || !isEqual(installation.keyCheck, keyCheck)) {
    const source = ENCRYPTION_KEY ? 'ENCRYPTION_KEY' : join(DATA_DIR, 'encryption.key')
    throw new EncryptionKeyError(`${source} is not the key that this database was set up with.`)
  }
  return key
}

/** A 32-byte key for one purpose (`tokens`, `secrets`…), by HKDF-SHA256. */
export function deriveKey(master: Buffer, purpose: string): Buffer {
  return Buffer.from(hkdfSync('sha256', master, '', `muster ${purpose}`, 32))
}

async function keyFile(path: string, mayCreate: boolean): Promise<Buffer> {
  if (mayCreate) await createKeyFile(path)
  const text = await readFile(path, 'utf8').catch(() => {
    throw new EncryptionKeyError(`${path} cannot be read. It holds the key that this database was set up with.`)
  })
  const key = Buffer.from(text, 'base64')
  if (key.length !== 32) throw new EncryptionKeyError(`${path} is not a key: 32 bytes in base64 are expected.`)
  return key
}

/** Makes the file whole or not at all, and leaves alone one that is there, even if it came a moment ago. */
async function createKeyFile(path: string): Promise<void> {
  const draft = `${path}.${randomBytes(8).toString('hex')}`
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  try {
    await writeFile(draft, `${randomBytes(32).toString('base64')}\n`, { mode: 0o600, flag: 'wx', flush: true })
    await link(draft, path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    await rm(draft, { force: true })
  }
}

function isEqual(a: string, b: string): boolean {
  return a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b))
}
