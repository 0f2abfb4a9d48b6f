import { readDataKey } from '../../crypto/data-key.ts'
import type { Prisma, Tx } from '../../db/client.ts'
import type { Deps } from '../../deps.ts'
import { whenCommitted } from '../../idempotency.ts'
import type { Pause } from '../../pause.ts'
import { AuthorizationProblem } from '../client/unreachable.ts'
import type { Grant } from './authorization.ts'
import { unsealGrant } from './connections.ts'

// Revocation of members' tokens at authorization servers (RFC 7009). Their deletion never waits for it and never fails
// by it.

/** Maximum number of connections whose tokens are revoked after one deletion. */
const MAX_REVOKED = 1000
/** Maximum number of concurrent revocations of one deletion. */
const CONCURRENCY = 4
/** Time after which a server begins no further revocation of a deletion (ms). */
const PATIENCE = 60_000

/** The tokens of a connection that a transaction deletes. */
export type DeletedGrant = { mcpId: string; url: string; grant: Grant }

/**
 * Reads the tokens that a transaction is about to delete, for {@link revokeLater}: afterwards nothing has them. Tokens
 * that cannot be decrypted are logged and left out.
 */
export async function grantsToRevoke(
  tx: Tx,
  { wrappingKey, log }: Pick<Deps, 'wrappingKey' | 'log'>,
  where: Prisma.McpConnectionWhereInput & { organizationId: string },
): Promise<DeletedGrant[]> {
  const rows = await tx.mcpConnection.findMany({ where, take: MAX_REVOKED })
  if (!rows.length) return []
  const dataKey = await readDataKey({ db: tx, wrappingKey }, where.organizationId)
  return rows.flatMap((row) => {
    const { mcpId, url } = row
    try {
      return { mcpId, url, grant: unsealGrant(dataKey, row) }
    } catch (error) {
      log.warn({ mcpId, err: error }, 'failed to read deleted tokens of a user, which are not revoked')
      return []
    }
  })
}

/** Begins to revoke deleted tokens once their deletion is committed. Logs one line if any of it fails. */
export const revokeLater = (deps: Deps, grants: readonly DeletedGrant[]): Promise<void> =>
  whenCommitted(deps, () => void revokeAll(deps, grants))

/**
 * Revokes deleted tokens. Returns whether the authorization servers have confirmed it: false in a transaction of the
 * whole request, which waits for no other server.
 */
export async function revoke(deps: Deps, grants: readonly DeletedGrant[]): Promise<boolean> {
  if (!deps.afterCommit) return grants.length > 0 && (await revokeAll(deps, grants)) === grants.length
  await revokeLater(deps, grants)
  return false
}

type RevocationDeps = Pick<Deps, 'settings' | 'log'> & { pause: Pick<Pause, 'isPaused'> }

/**
 * Revokes tokens, and begins none after `patience` ms. Returns how many of them the authorization servers have
 * confirmed. Logs one line if any of it fails, and throws nothing.
 */
export async function revokeAll(
  deps: RevocationDeps,
  grants: readonly DeletedGrant[],
  patience = PATIENCE,
): Promise<number> {
  const until = performance.now() + patience
  const failures: { mcpId: string; err: unknown }[] = []
  const waiting = grants.values()
  let confirmed = 0
  const work = async () => {
    for (const deleted of waiting) {
      const isRevoked = await revokeOne(deps, deleted, until).catch((err: unknown) => {
        failures.push({ mcpId: deleted.mcpId, err })
        return false
      })
      if (isRevoked) confirmed++
    }
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, work))
  const [first] = failures
  if (first) deps.log.warn({ ...first, failed: failures.length }, 'failed to revoke deleted tokens of users')
  return confirmed
}

/**
 * Returns false if the authorization server supports no revocation. Throws an {@link AuthorizationProblem} if it fails.
 */
async function revokeOne(deps: RevocationDeps, { url, grant }: DeletedGrant, until: number): Promise<boolean> {
  if (deps.pause.isPaused()) throw new AuthorizationProblem('the service is paused')
  if (performance.now() > until) throw new AuthorizationProblem('the revocations before it took too long')
  const { openAuthorization } = await import('./authorization.ts')
  await using authorization = openAuthorization(deps.settings, { url, transport: 'streamable-http' })
  return await authorization.revoke(grant)
}
