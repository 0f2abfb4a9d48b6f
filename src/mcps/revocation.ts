import type { Prisma, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { type ConnectionDeps, type ConnectionRow, openGrant } from './connections.ts'
import { AuthorizationProblem } from './unreachable.ts'

// Revocation of members' tokens at authorization servers (RFC 7009). Their deletion never waits for it and never fails by it.

/** Maximum number of connections whose tokens are revoked after one deletion. */
const MAX_REVOKED = 1000
/** Maximum number of concurrent revocations of one deletion. */
const AT_ONCE = 4
/** Time after which no further revocation of a deletion begins (ms). */
const PATIENCE = 60_000

type RevocationDeps = ConnectionDeps & Pick<Deps, 'pause'>

/** Reads the connections that a transaction is about to delete, for {@link revokeLater} after its commit. */
export const connectionsToRevoke = (tx: Tx, where: Prisma.McpConnectionWhereInput): Promise<ConnectionRow[]> =>
  tx.mcpConnection.findMany({ where: { ...where, hasEnded: false }, take: MAX_REVOKED })

/** Begins to revoke the tokens of deleted connections. Logs one line if any authorization server has not done it. */
export function revokeLater(deps: RevocationDeps, rows: readonly ConnectionRow[]): void {
  if (rows.length) void revokeAll(deps, rows)
}

/** Revokes the tokens of a deleted connection. Returns false if the authorization server has not confirmed it. */
export const revoke = async (deps: RevocationDeps, row: ConnectionRow): Promise<boolean> =>
  (await revokeAll(deps, [row])) === 1

/** Revokes tokens. Returns how many of them the authorization servers have confirmed. */
async function revokeAll(deps: RevocationDeps, rows: readonly ConnectionRow[]): Promise<number> {
  const until = performance.now() + PATIENCE
  const failures: { mcpId: string; err: unknown }[] = []
  const waiting = rows.values()
  let confirmed = 0
  const work = async () => {
    for (const row of waiting) {
      const isRevoked = await revokeOne(deps, row, until).catch((err: unknown) => {
        failures.push({ mcpId: row.mcpId, err })
        return false
      })
      if (isRevoked) confirmed++
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  const [first] = failures
  if (first) deps.log.warn({ ...first, failed: failures.length }, 'failed to revoke deleted tokens of users')
  return confirmed
}

/** Returns false if the authorization server supports no revocation. Throws an {@link AuthorizationProblem} if it fails. */
async function revokeOne(deps: RevocationDeps, row: ConnectionRow, until: number): Promise<boolean> {
  if (deps.pause.isPaused()) throw new AuthorizationProblem('the service is paused')
  if (performance.now() > until) throw new AuthorizationProblem('the revocations before it took too long')
  const grant = await openGrant(deps, row)
  const { openAuthorization } = await import('./authorization.ts')
  await using authorization = openAuthorization(deps.settings, { url: row.url, transport: 'streamable-http' })
  return await authorization.revoke(grant)
}
