import { randomBytes } from 'node:crypto'
import { readDataKey } from '../crypto/data-key.ts'
import { seal, unseal } from '../crypto/envelope.ts'
import type { Db } from '../db/client.ts'
import type { Deps } from '../deps.ts'

/** Number of random bytes in a signing secret. */
const SECRET_BYTES = 32

/** Creates a signing secret (protocols.md section 6). */
export const newSecret = (): string => `whsec_${randomBytes(SECRET_BYTES).toString('base64')}`

type Owner = { organizationId: string; id: string }

/** Returns the encryption context of a webhook's part. In another row or column it does not decrypt. */
const placeOf = ({ organizationId, id }: Owner, part: 'url' | 'secret') => ['webhook', organizationId, id, part]

export const sealUrl = (key: Buffer, owner: Owner, url: string) => seal(key, placeOf(owner, 'url'), Buffer.from(url))

export const sealSecret = (key: Buffer, owner: Owner, secret: string) =>
  seal(key, placeOf(owner, 'secret'), Buffer.from(secret))

type Sealed = Owner & { url: Uint8Array; secret: Uint8Array; oldSecret: Uint8Array | null; oldSecretUntil: Date | null }

/** Decrypts the address of a webhook and the secrets that sign at this moment, newest first. */
export async function openWebhook(db: Db, { wrappingKey }: Pick<Deps, 'wrappingKey'>, row: Sealed, now: Date) {
  const key = await readDataKey({ db, wrappingKey }, row.organizationId)
  const open = (part: 'url' | 'secret', sealed: Uint8Array) => unseal(key, placeOf(row, part), sealed).toString()
  const isOldValid = row.oldSecret !== null && row.oldSecretUntil !== null && row.oldSecretUntil > now
  const secrets = [row.secret, ...(isOldValid && row.oldSecret ? [row.oldSecret] : [])]
  return { url: open('url', row.url), secrets: secrets.map((secret) => open('secret', secret)) }
}
