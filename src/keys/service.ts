import { audit, operator } from '../auth/audit.ts'
import { newToken, tokenDigest, tokenPreview } from '../auth/tokens.ts'
import type { Tx } from '../db/client.ts'
import { newId } from '../lib/id.ts'

export type NewToken = {
  organizationId: string
  userId: string
  name: string
  scopes: readonly string[]
  expiresAt: Date | null
}

/**
 * Stores a token's digest and returns the token, which is never to be seen again. `token` is one that exists already
 * (BOOTSTRAP_TOKEN).
 */
export async function createToken(
  tx: Tx,
  deps: { tokenKey: Buffer; prefix: string; now: Date },
  input: NewToken,
  token = newToken(deps.prefix),
) {
  const row = await tx.token.create({
    data: {
      id: newId(),
      ...input,
      scopes: [...input.scopes],
      digest: tokenDigest(deps.tokenKey, token),
      preview: tokenPreview(token),
      createdAt: deps.now,
    },
    select: { id: true, name: true, expiresAt: true },
  })
  await audit(tx, operator(input.organizationId), 'key.create', row.id, deps.now)
  return { ...row, token }
}

/** Revokes a token for good, if it is not already. When it was; null when there is none of that id. */
export async function revokeToken(tx: Tx, id: string, at: Date): Promise<Date | null> {
  const { count } = await tx.token.updateMany({ where: { id, revokedAt: null }, data: { revokedAt: at } })
  const token = await tx.token.findUnique({ where: { id }, select: { organizationId: true, revokedAt: true } })
  if (token && count) await audit(tx, operator(token.organizationId), 'key.revoke', id, at)
  return token?.revokedAt ?? null
}
