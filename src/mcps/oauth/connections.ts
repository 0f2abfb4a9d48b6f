import { setTimeout as sleep } from 'node:timers/promises'
import { readDataKey } from '../../crypto/data-key.ts'
import { seal, unseal } from '../../crypto/envelope.ts'
import type { Prisma, Tx } from '../../db/client.ts'
import type { Deps } from '../../deps.ts'
import { AuthorizationNeeded } from '../../executions/engine/run/abort.ts'
import { retryWhileUnavailable } from '../../executions/engine/run/retry.ts'
import { newId } from '../../lib/id.ts'
import { abortable } from '../../lib/race-abort.ts'
import { AuthorizationProblem, LATE } from '../client/unreachable.ts'
import type { Grant } from './authorization.ts'
import { includesScope, joinScopes } from './scope.ts'

// The tokens of members for MCP servers (contract-2.md section 2.13).

/** A token is refreshed this long before its end (ms), so that it does not end on its way. */
const MARGIN = 30_000
/** Maximum wait of a request for a refresh (ms). The refresh goes on. */
const MAX_WAIT = 10_000
/** Maximum time of a refresh (ms): a late answer has the only valid tokens if the server has replaced the old ones. */
const REFRESH = { one: 60_000, all: 70_000 }
/** Maximum time to store the tokens of a refresh (ms). */
const STORE = 30_000
/** Lease of a refresh (ms): more than a refresh can take, whatever the clocks of the servers say. */
const LEASE = 120_000
/** Interval at which a server looks whether another one has finished a refresh (ms). */
const POLL = 100

export type ConnectionDeps = Pick<Deps, 'db' | 'settings' | 'wrappingKey' | 'clock' | 'log' | 'tokenRefreshes'>

/** The columns of an MCP server that decide which tokens it gets. */
export type OAuthServer = Pick<
  Prisma.McpServerGetPayload<object>,
  | 'id'
  | 'organizationId'
  | 'name'
  | 'url'
  | 'transport'
  | 'auth'
  | 'clientId'
  | 'clientSecret'
  | 'scope'
  | 'updatedAt'
  | 'writtenBy'
>

type ConnectionRow = Prisma.McpConnectionGetPayload<object>

/** The state of a connection for the caller. */
export type ConnectionState = 'connected' | 'expired' | 'none'

/** Returns the state of a member's connection to a server at `url`. */
export const stateOf = (
  url: string,
  row: Pick<ConnectionRow, 'url' | 'hasEnded'> | null | undefined,
): ConnectionState => {
  if (!row || row.url !== url) return 'none'
  return row.hasEnded ? 'expired' : 'connected'
}

type Owner = { organizationId: string; mcpId: string; userId: string; url: string }

/** Returns the encryption context of tokens. For another user, server or address they do not decrypt. */
const contextOf = ({ organizationId, mcpId, userId, url }: Owner) => ['mcp tokens', organizationId, mcpId, userId, url]

/** Stores the tokens of a member in a transaction, instead of earlier ones. */
export async function storeGrant(tx: Tx, dataKey: Buffer, owner: Owner, grant: Grant, now: Date): Promise<void> {
  const { mcpId, userId, url } = owner
  const data = { ...tokenColumns(dataKey, owner, grant, now), url, issuer: grant.issuer, neededScope: null }
  await tx.mcpConnection.upsert({
    where: { mcpId_userId: { mcpId, userId } },
    create: { ...owner, ...data, createdAt: now },
    update: { ...data, version: { increment: 1 }, refreshId: null, refreshUntil: null, createdAt: now },
    select: { mcpId: true },
  })
}

const tokenColumns = (dataKey: Buffer, owner: Owner, grant: Grant, now: Date) => ({
  sealed: seal(dataKey, contextOf(owner), Buffer.from(JSON.stringify(grant))),
  account: grant.account ?? null,
  scope: grant.scope ?? null,
  hasEnded: false,
  expiresAt: grant.expiresIn === undefined ? null : new Date(now.getTime() + grant.expiresIn * 1000),
  updatedAt: now,
})

/** Decrypts the tokens of a connection. */
async function openGrant(deps: Pick<Deps, 'db' | 'wrappingKey'>, row: ConnectionRow): Promise<Grant> {
  return unsealGrant(await readDataKey(deps, row.organizationId), row)
}

/** Decrypts the tokens of a connection with the key of its organization. */
export const unsealGrant = (dataKey: Buffer, row: ConnectionRow): Grant =>
  JSON.parse(unseal(dataKey, contextOf(row), row.sealed).toString())

/**
 * The token to send with a request, the version of the connection that it is from, and the scopes that it has and that
 * were asked for.
 */
type Token = { text: string; version: number; until: number; scope: string | null; asked: string | null }

/** Gives the requests of one connection their token. */
export type Bearer = {
  /** Returns the token. Throws {@link AuthorizationNeeded} if the user must connect first. */
  token(): Promise<string>
  /** Makes the next request read the token again, in case the user has disconnected. */
  forget(): void
  /**
   * Returns another token after a refused one, possibly the same if no other can be had. Throws {@link
   * AuthorizationNeeded}.
   */
  renew(refused: string): Promise<string>
  /**
   * Records the scope that a refused request needs and throws {@link AuthorizationNeeded}. Returns if connecting again
   * would give no more.
   */
  widen(scope: string | undefined): Promise<void>
}

/** Returns the bearer of a server's requests for a user; undefined for a server without OAuth. */
export async function bearerFor(
  deps: ConnectionDeps,
  server: OAuthServer,
  userId: string,
  signal: AbortSignal,
): Promise<Bearer | undefined> {
  if (server.auth === 'oauth') return userBearer(deps, server, userId, signal)
  if (server.auth !== 'client_credentials') return undefined
  return (await import('./client-credentials.ts')).clientBearer(deps, server)
}

/** Creates the bearer of a member's tokens. */
function userBearer(deps: ConnectionDeps, server: OAuthServer, userId: string, signal: AbortSignal): Bearer {
  let known: Token | null = null
  const read = async (refused: number | null) => {
    const until = AbortSignal.any([signal, AbortSignal.timeout(MAX_WAIT)])
    try {
      known = await currentToken(deps, server, userId, refused, until)
      return known.text
    } catch (error) {
      throw until.aborted && !signal.aborted ? new AuthorizationProblem(LATE) : error
    }
  }
  return {
    async token() {
      return known && known.until > deps.clock.now().getTime() + MARGIN ? known.text : read(null)
    },
    forget() {
      known = null
    },
    async renew(refused) {
      if (known && known.text !== refused) return known.text
      return read(known?.version ?? null)
    },
    async widen(scope) {
      const had = joinScopes(known?.scope, known?.asked) ?? null
      if (!scope || !known || includesScope(had, scope)) return
      const data = { neededScope: joinScopes(known.scope, scope) ?? null, updatedAt: deps.clock.now() }
      await deps.db.mcpConnection.updateMany({ where: { mcpId: server.id, userId, version: known.version }, data })
      throw new AuthorizationNeeded(server)
    },
  }
}

/**
 * Reads the token of a member, refreshed if it ends soon or is of the `refused` version. One of all servers refreshes
 * and the others wait, because a refresh token can be used once. Throws {@link AuthorizationNeeded} without valid
 * tokens, the signal's reason, and an {@link AuthorizationProblem} if the authorization server does not answer.
 */
async function currentToken(
  deps: ConnectionDeps,
  server: OAuthServer,
  userId: string,
  refused: number | null,
  signal: AbortSignal,
): Promise<Token> {
  const { db, clock } = deps
  const where = { mcpId_userId: { mcpId: server.id, userId } }
  for (let isFresh = false; ; ) {
    signal.throwIfAborted()
    const row = await db.mcpConnection.findUnique({ where })
    if (!row || stateOf(server.url, row) !== 'connected') throw new AuthorizationNeeded(server)
    const now = clock.now().getTime()
    const until = row.expiresAt?.getTime() ?? Number.POSITIVE_INFINITY
    const grant = await openGrant(deps, row)
    const token = { text: grant.accessToken, version: row.version, until, scope: row.scope, asked: grant.asked ?? null }
    if (row.version !== refused && (isFresh || until > now + MARGIN)) return token
    if (grant.refreshToken === undefined) {
      if (row.version !== refused && until > now) return token
      await end(deps, row)
      throw new AuthorizationNeeded(server)
    }
    const refreshId = newId()
    const lease = { refreshId, refreshUntil: new Date(now + LEASE) }
    const { count } = await db.mcpConnection.updateMany({
      where: {
        mcpId: row.mcpId,
        userId,
        version: row.version,
        OR: [{ refreshUntil: null }, { refreshUntil: { lt: new Date(now) } }],
      },
      data: lease,
    })
    if (count) await abortable(tracked(deps, refresh(deps, server, row, grant, refreshId)), signal)
    else await sleep(POLL, undefined, { signal })
    isFresh = count > 0
  }
}

/** Counts a refresh among those in progress until it has ended. */
function tracked({ tokenRefreshes }: ConnectionDeps, refreshed: Promise<void>): Promise<void> {
  tokenRefreshes.add(refreshed)
  return refreshed.finally(() => tokenRefreshes.delete(refreshed))
}

/** Refreshes tokens under the lease `refreshId`, and stores them even if no request waits for them any more. */
async function refresh(
  deps: ConnectionDeps,
  server: OAuthServer,
  row: ConnectionRow,
  grant: Grant,
  refreshId: string,
): Promise<void> {
  const { db, clock, log } = deps
  const leased = { mcpId: row.mcpId, userId: row.userId, refreshId }
  const write = (data: Prisma.McpConnectionUpdateManyMutationInput) =>
    retryWhileUnavailable(() => db.mcpConnection.updateMany({ where: leased, data }), AbortSignal.timeout(STORE))
  const free = { refreshId: null, refreshUntil: null }
  const { openAuthorization } = await import('./authorization.ts')
  await using authorization = openAuthorization(deps.settings, server, REFRESH)
  let renewed: Grant
  try {
    renewed = await authorization.refresh(grant)
  } catch (error) {
    const { isFinal, message } = error as AuthorizationProblem
    log.warn(
      { mcpId: row.mcpId, userId: row.userId, reason: message, isFinal },
      'failed to refresh the tokens of a user',
    )
    await write(isFinal ? { ...free, hasEnded: true, updatedAt: clock.now() } : free)
    if (isFinal) return
    throw error
  }
  const dataKey = await readDataKey(deps, row.organizationId)
  const { count } = await write({
    ...tokenColumns(dataKey, row, renewed, clock.now()),
    ...free,
    version: { increment: 1 },
  })
  // The user has disconnected or connected again meanwhile, or the address has changed.
  if (!count) await authorization.revoke(renewed).catch(logRevocation(deps, row.mcpId))
}

/** Returns a function that logs a failed revocation of tokens that were not stored. */
export const logRevocation =
  ({ log }: Pick<Deps, 'log'>, mcpId: string) =>
  (err: unknown) =>
    log.warn({ mcpId, err }, 'failed to revoke unused tokens of a user')

/** Marks tokens as ended, unless they have changed meanwhile. */
async function end({ db, clock }: ConnectionDeps, { mcpId, userId, version }: ConnectionRow): Promise<void> {
  const where = { mcpId, userId, version }
  await db.mcpConnection.updateMany({ where, data: { hasEnded: true, updatedAt: clock.now() } })
}
