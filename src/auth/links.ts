import type { KeyObject } from 'node:crypto'
import type { LinkPurpose, Tx } from '../db/client.ts'
import { newId, newSecret } from '../lib/id.ts'
import { tokenDigest } from '../lib/token.ts'

/** Lifetime of a link (ms). */
export const LINK_LIFETIME = 15 * 60_000

/**
 * Creates a code that signs a user in once (contract-2.md section 3.4). Returns the code, which cannot be read again.
 */
export async function createLink(
  tx: Tx,
  sessionKey: KeyObject,
  { userId, purpose }: { userId: string; purpose: LinkPurpose },
  now: Date,
): Promise<string> {
  const code = newSecret()
  const data = { id: newId(), userId, purpose, digest: tokenDigest(sessionKey, code), createdAt: now }
  await tx.oneTimeLink.create({
    data: { ...data, expiresAt: new Date(now.getTime() + LINK_LIFETIME) },
    select: { id: true },
  })
  return code
}

/** Uses a code up, in a transaction. Returns null for an unknown, used or expired one. */
export async function takeLink(
  tx: Tx,
  sessionKey: KeyObject,
  code: string,
  now: Date,
): Promise<{ userId: string; purpose: LinkPurpose } | null> {
  const link = await tx.oneTimeLink.findUnique({ where: { digest: tokenDigest(sessionKey, code) } })
  if (!link || link.expiresAt <= now) return null
  const { count } = await tx.oneTimeLink.deleteMany({ where: { id: link.id } })
  return count ? { userId: link.userId, purpose: link.purpose } : null
}
