import { randomBytes } from 'node:crypto'
import { readDataKey } from '../crypto/data-key.ts'
import { seal, unseal } from '../crypto/envelope.ts'
import type { Db } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import type { Push } from './push.ts'

/** Number of random bytes in a signing secret. */
const SECRET_BYTES = 32

/** Creates a signing secret (protocols.md section 6). */
export const newSecret = (): string => `whsec_${randomBytes(SECRET_BYTES).toString('base64')}`

/** An encrypted part of a webhook. */
type Part = 'url' | 'secret' | 'push'

type Owner = { organizationId: string; id: string }

/** Returns the encryption context of a webhook's part. In another row or column it does not decrypt. */
const contextOf = ({ organizationId, id }: Owner, part: Part) => ['webhook', organizationId, id, part]

/** Encrypts the address of a webhook. */
export const sealUrl = (key: Buffer, owner: Owner, url: string) => seal(key, contextOf(owner, 'url'), Buffer.from(url))

/** Encrypts the signing secret of a webhook. */
export const sealSecret = (key: Buffer, owner: Owner, secret: string) =>
  seal(key, contextOf(owner, 'secret'), Buffer.from(secret))

/** Encrypts the configuration of a client's push notifications. */
export const sealPush = (key: Buffer, owner: Owner, push: Push) =>
  seal(key, contextOf(owner, 'push'), Buffer.from(JSON.stringify(push)))

type Sealed = Owner & {
  url: Uint8Array
  secret: Uint8Array
  oldSecret: Uint8Array | null
  oldSecretUntil: Date | null
  push: Uint8Array | null
}

/**
 * Decrypts the address of a webhook, the secrets that sign at this moment, newest first, and how the caller of a run is
 * notified; null for a webhook of the organization.
 */
export async function openWebhook(db: Db, { wrappingKey }: Pick<Deps, 'wrappingKey'>, row: Sealed, now: Date) {
  const key = await readDataKey({ db, wrappingKey }, row.organizationId)
  const open = (part: Part, sealed: Uint8Array) => unseal(key, contextOf(row, part), sealed).toString()
  const isOldValid = row.oldSecret !== null && row.oldSecretUntil !== null && row.oldSecretUntil > now
  const secrets = [row.secret, ...(isOldValid && row.oldSecret ? [row.oldSecret] : [])]
  return {
    url: open('url', row.url),
    secrets: secrets.map((secret) => open('secret', secret)),
    push: row.push && (JSON.parse(open('push', row.push)) as Push),
  }
}
