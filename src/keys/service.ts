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
  return { ...row, token }
}
