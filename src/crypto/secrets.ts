import { createSecretKey, hkdfSync, type KeyObject, randomBytes } from 'node:crypto'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Database } from '../db/client.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import type { Settings } from '../settings.ts'
import { seal, unseal } from './envelope.ts'
import { createKeyFile, draftKeyFile, findDrafts, putInPlace, readKeyFile } from './key-file.ts'

/** Thrown if the encryption key is missing, malformed, or does not match the database. */
export class EncryptionKeyError extends Error {
  override name = 'EncryptionKeyError'
}

/** Source of the encryption key: ENCRYPTION_KEY, or a file under DATA_DIR. */
type Source = Pick<Settings, 'ENCRYPTION_KEY' | 'DATA_DIR'>

const CONTEXT = ['master key']

const pathOf = ({ DATA_DIR }: Source) => join(DATA_DIR, 'encryption.key')

/**
 * Opens the installation's 32-byte master key, from which all others are derived. It is created on first use and stored
 * in the database, wrapped by the encryption key: ENCRYPTION_KEY, or on SQLite the file `encryption.key` under
 * DATA_DIR, which is created on first use too (contract.md section 0). Throws an EncryptionKeyError for a different
 * encryption key.
 */
export async function openMasterKey({ client, kind }: Database, source: Source, now: Date): Promise<Buffer> {
  const find = () => client.installation.findUnique({ where: { id: 1 }, select: { masterKey: true } })
  const found = await find()
  if (!source.ENCRYPTION_KEY && kind === 'postgresql')
    throw new EncryptionKeyError('PostgreSQL needs an ENCRYPTION_KEY. Make one: openssl rand -base64 32')
  const encryptionKey = source.ENCRYPTION_KEY
    ? Buffer.from(source.ENCRYPTION_KEY, 'base64')
    : await fromFile(pathOf(source), found === null)
  if (found) return unwrap(source, encryptionKey, found.masterKey)
  const masterKey = randomBytes(32)
  try {
    const data = { id: 1, masterKey: seal(encryptionKey, CONTEXT, masterKey), createdAt: now }
    await client.installation.create({ data, select: { id: true } })
    return masterKey
  } catch (error) {
    const others = isUniqueViolation(error) && (await find())
    if (!others) throw error
    return unwrap(source, encryptionKey, others.masterKey)
  }
}

async function fromFile(path: string, mayCreate: boolean): Promise<Buffer> {
  if (mayCreate) await createKeyFile(path)
  const key = await readKeyFile(path).catch(({ code }: NodeJS.ErrnoException) => {
    throw new EncryptionKeyError(
      `${path} cannot be read (${code}). It holds the key that this database was set up with: put it back, or let this user read it.`,
    )
  })
  if (!key) throw new EncryptionKeyError(`${path} is not a key: 32 bytes in base64 are expected. Put its copy back.`)
  return key
}

async function unwrap(source: Source, encryptionKey: Buffer, wrapped: Uint8Array): Promise<Buffer> {
  const masterKey = tryUnwrap(encryptionKey, wrapped)
  if (masterKey) return masterKey
  const path = pathOf(source)
  // A key file change was interrupted after the database had the new key.
  for (const draft of source.ENCRYPTION_KEY ? [] : await findDrafts(path)) {
    const unwrapped = tryUnwrap(draft.key, wrapped)
    if (!unwrapped) continue
    await putInPlace(draft, path)
    return unwrapped
  }
  const name = source.ENCRYPTION_KEY ? 'ENCRYPTION_KEY' : path
  throw new EncryptionKeyError(
    `${name} is not the key that this database was set up with. Use the key that was kept with it.`,
  )
}

function tryUnwrap(encryptionKey: Buffer, wrapped: Uint8Array): Buffer | null {
  try {
    return unseal(encryptionKey, CONTEXT, wrapped)
  } catch {
    return null
  }
}

/**
 * Rewraps the master key with another encryption key: the given one (base64), or that of a new key file, which replaces
 * the old one. Running servers hold the master key and continue; their next start needs the new encryption key. Throws
 * an EncryptionKeyError, also after a concurrent change.
 */
export async function changeEncryptionKey(database: Database, source: Source, given: string | null, now: Date) {
  const masterKey = await openMasterKey(database, source, now)
  const { installation } = database.client
  const { masterKey: before } = await installation.findUniqueOrThrow({ where: { id: 1 }, select: { masterKey: true } })
  const draft = given === null ? await draftKeyFile(pathOf(source)) : null
  const wrapped = seal(draft?.key ?? Buffer.from(given ?? '', 'base64'), CONTEXT, masterKey)
  const { count } = await installation.updateMany({ where: { id: 1, masterKey: before }, data: { masterKey: wrapped } })
  if (!count) {
    if (draft) await rm(draft.path, { force: true })
    throw new EncryptionKeyError(
      'The encryption key was changed at the same moment by another process. No change was made; try again.',
    )
  }
  if (draft) await putInPlace(draft, pathOf(source))
}

/** Derives a 32-byte key for one purpose (`tokens`, `secrets`…) by HKDF-SHA256. */
export function deriveKey(master: Buffer, purpose: string): KeyObject {
  return createSecretKey(Buffer.from(hkdfSync('sha256', master, '', `muster ${purpose}`, 32)))
}
