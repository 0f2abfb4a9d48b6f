import { resolve } from 'node:path'
import { changeEncryptionKey } from '../crypto/secrets.ts'
import { databaseFile } from '../db/client.ts'
import { Key } from '../lib/setting-fields.ts'
import type { Admin, Answer } from './command.ts'
import { AdminError } from './option-values.ts'

/** Changes the encryption key beside running servers: to NEW_ENCRYPTION_KEY, or to a new key file. */
export async function rotateKey({ database, settings, now }: Admin): Promise<Answer> {
  const { ENCRYPTION_KEY: before, NEW_ENCRYPTION_KEY: given, DATA_DIR } = settings
  if (before && !given) throw new AdminError('Set NEW_ENCRYPTION_KEY to the new key (openssl rand -base64 32).')
  const { error } = Key.optional().safeParse(given)
  if (error) throw new AdminError(`NEW_ENCRYPTION_KEY ${error.issues[0]?.message}`)
  if (before && before === given)
    throw new AdminError('NEW_ENCRYPTION_KEY is the key in use. Give a new one (openssl rand -base64 32).')
  await changeEncryptionKey(database, settings, given ?? null, now)
  const file = resolve(DATA_DIR, 'encryption.key')
  const next = given
    ? 'Before their next start, set ENCRYPTION_KEY to the new key.'
    : `The new key is in ${file}; their next start reads it.`
  const backup = databaseFile(settings) ? 'npm run admin -- backup FILE' : 'pg_dump'
  const text = `Changed the encryption key. Running servers continue. ${next}
Backups made until now open with the old key only: make a new one (${backup}), and keep the new key elsewhere too.`
  return { json: { rotated: true, keyFile: given ? null : file }, text }
}
