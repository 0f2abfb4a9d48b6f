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
const placeOf = ({ organizationId, id }: Owner, part: Part) => ['webhook', organizationId, id, part]

export const sealUrl = (key: Buffer, owner: Owner, url: string) => seal(key, placeOf(owner, 'url'), Buffer.from(url))

export const sealSecret = (key: Buffer, owner: Owner, secret: string) =>
  seal(key, placeOf(owner, 'secret'), Buffer.from(secret))

export const sealPush = (key: Buffer, owner: Owner, push: Push) =>
  seal(key, placeOf(owner, 'push'), Buffer.from(JSON.stringify(push)))

type Sealed = Owner & { url: Uint8Array; secret: Uint8Array; oldSecret: Uint8Array | null; oldSecretUntil: Date | null }

/** Returns a function that decrypts parts of a webhook. */
async function opener(db: Db, { wrappingKey }: Pick<Deps, 'wrappingKey'>, owner: Owner) {
  const key = await readDataKey({ db, wrappingKey }, owner.organizationId)
  return (part: Part, sealed: Uint8Array) => unseal(key, placeOf(owner, part), sealed).toString()
}

/** Decrypts the address of a webhook and the secrets that sign at this moment, newest first. */
export async function openWebhook(db: Db, deps: Pick<Deps, 'wrappingKey'>, row: Sealed, now: Date) {
  const open = await opener(db, deps, row)
  const isOldValid = row.oldSecret !== null && row.oldSecretUntil !== null && row.oldSecretUntil > now
  const secrets = [row.secret, ...(isOldValid && row.oldSecret ? [row.oldSecret] : [])]
  return { url: open('url', row.url), secrets: secrets.map((secret) => open('secret', secret)) }
}

/** Decrypts how a caller of a run is notified. */
export async function openPush(
  db: Db,
  deps: Pick<Deps, 'wrappingKey'>,
  row: Owner & { push: Uint8Array | null },
): Promise<Push> {
  const open = await opener(db, deps, row)
  return JSON.parse(open('push', row.push ?? new Uint8Array()))
}
