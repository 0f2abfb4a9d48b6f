import { deriveKey, openMasterKey } from '../crypto/secrets.ts'
import type { Tx } from '../db/client.ts'
import type { DeletedGrant } from '../mcps/oauth/revocation.ts'
import type { Admin } from './command.ts'

/** Time after which a command begins no further revocation (ms). One that has begun may take 10 s more. */
const PATIENCE = 10_000

/** Revocation of the tokens that a command deletes, at the authorization servers of MCP servers. */
type Revocation = {
  /** Reads the tokens that a transaction is about to delete. Returns none, and logs it, without the encryption key. */
  read(tx: Tx, where: { organizationId: string; userId: string }): Promise<DeletedGrant[]>
  /** Revokes deleted tokens, unless the database is a copy. Returns how many of them are confirmed. Throws nothing. */
  revoke(grants: readonly DeletedGrant[]): Promise<number>
}

/** Opens the revocation of deleted tokens. Failures are logged, so that they never stop a command. */
export async function openRevocation({ database, settings, log, now }: Admin): Promise<Revocation> {
  // Other commands start faster without it.
  const { grantsToRevoke, revokeAll } = await import('../mcps/oauth/revocation.ts')
  const { client } = database
  const installation = await client.installation.findUnique({ where: { id: 1 }, select: { pausedBy: true } })
  const isPaused = settings.PAUSED || installation?.pausedBy != null
  const key = await openMasterKey(database, settings, now).then(
    (masterKey) => ({ wrappingKey: deriveKey(masterKey, 'data keys') }),
    (error: unknown) => ({ error }),
  )
  return {
    async read(tx, where) {
      if ('wrappingKey' in key) return grantsToRevoke(tx, { ...key, log }, where)
      const count = await tx.mcpConnection.count({ where })
      if (count) log.warn({ err: key.error, count }, 'failed to read deleted tokens of a user, which are not revoked')
      return []
    },
    revoke: (grants) => revokeAll({ settings, log, pause: { isPaused: () => isPaused } }, grants, PATIENCE),
  }
}
