import type { Actor } from '../../auth/actor.ts'
import { dataKeyOf } from '../../crypto/data-key.ts'
import { seal } from '../../crypto/envelope.ts'
import { keyLock, lockRows, type Prisma, type Tx } from '../../db/client.ts'
import type { Deps } from '../../deps.ts'
import { AppError, conflict, paused } from '../../errors.ts'
import { newSecret } from '../../lib/id.ts'
import { tokenDigest } from '../../lib/token.ts'
import { publicAddress } from '../../settings.ts'
import { AuthorizationProblem } from '../client/unreachable.ts'
import { find } from '../rows.ts'
import type { Authorization, OAuthClient } from './authorization.ts'
import { givenClient, registeredClient, storeClient } from './clients.ts'
import type { OAuthServer } from './connections.ts'
import type { Discovered, Issuer } from './discovery.ts'
import { joinScopes } from './scope.ts'
import { CLIENT_PATH, redirectUriOf, START_PATH } from './sign-in-paths.ts'

// Prepares the sign-in of a member at the authorization server of an MCP server, before the browser leaves
// (contract-2.md section 2.13).

/** Time in which a sign-in must be finished (ms). */
const LIFETIME = 10 * 60_000
/** Maximum number of sign-ins in progress of one user for one server. */
const MAX_SIGN_INS = 5

/** Secrets of a sign-in in progress. */
export type Flow = { server: Issuer; client: OAuthClient; redirectUri: string; scope?: string; verifier?: string }

type Owner = Pick<Prisma.McpSignInGetPayload<object>, 'organizationId' | 'mcpId' | 'userId' | 'url'>

/** Returns the encryption context of the secrets of a sign-in. */
export const contextOf = ({ organizationId, mcpId, userId, url }: Owner) => [
  'mcp sign-in',
  organizationId,
  mcpId,
  userId,
  url,
]

/**
 * POST /mcps/{id}/connect: finds the authorization server and prepares a sign-in of the caller. Returns the address of
 * a page that needs the caller's browser session and leads on. Throws 409 for a server without OAuth, and 502 with the
 * reason if its authorization server cannot be used.
 */
export async function connect(actor: Actor, deps: Deps, id: string): Promise<{ url: string }> {
  const server = await find(actor, deps, id)
  if (server.auth !== 'oauth') {
    throw conflict('This MCP server needs no connection', {
      detail: 'Only servers with `auth: oauth` have connections of users. Change `auth` of the server first.',
    })
  }
  if (deps.pause.isPaused()) throw paused()
  const { organizationId, userId } = actor
  const owner = { organizationId, mcpId: server.id, userId, url: server.url }
  const where = { mcpId_userId: { mcpId: server.id, userId } }
  const before = await deps.db.mcpConnection.findUnique({ where, select: { neededScope: true } })
  const flow = await prepare(deps, server, userId, before?.neededScope).catch((error: unknown) => {
    throw toAppError(deps, server, error)
  })
  const code = newSecret()
  const now = deps.clock.now()
  await deps.db.$transaction(async (tx) => {
    if (!(await isCurrent(tx, deps, owner))) {
      throw conflict('The MCP server or your membership has ended or changed', {
        detail: 'It happened while the connection was prepared. Get the MCP server, and connect again.',
      })
    }
    const dataKey = await dataKeyOf(tx, deps, organizationId, now)
    const others = await tx.mcpSignIn.findMany({
      where: { mcpId: server.id, userId },
      orderBy: { createdAt: 'desc' },
      select: { id: true },
    })
    const old = others.slice(MAX_SIGN_INS - 1).map((row) => row.id)
    if (old.length) await tx.mcpSignIn.deleteMany({ where: { id: { in: old } } })
    await tx.mcpSignIn.create({
      data: {
        ...owner,
        id: tokenDigest(deps.sessionKey, code),
        sealed: seal(dataKey, contextOf(owner), Buffer.from(JSON.stringify(flow))),
        createdAt: now,
        expiresAt: new Date(now.getTime() + LIFETIME),
      },
      select: { id: true },
    })
  })
  return { url: `${publicAddress(deps.settings)}${START_PATH}?code=${code}` }
}

/** Returns whether the member and the server with this address are still there. The server then stays. */
export async function isCurrent(tx: Tx, { settings }: Deps, { organizationId, mcpId: id, userId, url }: Owner) {
  await lockRows(tx, 'McpServer', [id], keyLock(settings))
  const isMember = await tx.membership.count({ where: { organizationId, userId } })
  return isMember > 0 && (await tx.mcpServer.count({ where: { organizationId, id, url, auth: 'oauth' } })) > 0
}

/** Finds the authorization server of an MCP server, and this service's client there. */
async function prepare(
  deps: Deps,
  server: OAuthServer,
  userId: string,
  needed: string | null | undefined,
): Promise<Flow> {
  const { openAuthorization } = await import('./authorization.ts')
  await using authorization = openAuthorization(deps.settings, server)
  const { scope: wanted, ...issuer } = await authorization.discover()
  // The metadata have no other page.
  if (issuer.metadata && issuer.metadata.authorization_endpoint === issuer.metadata.token_endpoint) {
    throw new AuthorizationProblem(
      'the authorization server has no page on which users sign in: use `auth: client_credentials`',
    )
  }
  const scope = joinScopes(server.scope ?? wanted, needed)
  const redirectUri = redirectUriOf(deps.settings)
  const client = await clientFor(deps, authorization, { server, userId }, { ...issuer, scope }, redirectUri)
  return { server: issuer, client, redirectUri, ...(scope && { scope }) }
}

/**
 * Returns this service's client at an authorization server: the one given by hand, or a registered one, or its metadata
 * document. Registers it if necessary, and again if the user has not returned from a sign-in with it: servers that
 * have forgotten a client refuse it on their own page.
 */
async function clientFor(
  deps: Deps,
  authorization: Authorization,
  { server, userId }: { server: OAuthServer; userId: string },
  { scope, ...issuer }: Discovered,
  redirectUri: string,
): Promise<OAuthClient> {
  const given = await givenClient(deps, server, issuer.issuer, redirectUri)
  if (given) return given
  const known = await registeredClient(deps, server, issuer.issuer, redirectUri)
  if (known && !(await hasUnfinished(deps, server, userId, known.since))) return known.client
  if (!known && (await isDocumentRead(deps, server, userId, issuer, redirectUri)))
    return { client_id: publicAddress(deps.settings) + CLIENT_PATH, token_endpoint_auth_method: 'none' }
  if (issuer.metadata && !issuer.metadata.registration_endpoint) {
    throw new AuthorizationProblem(
      `the authorization server does not register clients: give a clientId, for the address ${redirectUri}`,
    )
  }
  const client = await authorization.register(issuer, redirectUri, scope).catch((error: unknown) => {
    if (!known) throw error
    return known.client
  })
  if (client !== known?.client)
    await storeClient(deps, server, { issuer: issuer.issuer, redirectUri, isGiven: false }, client)
  return client
}

/**
 * Returns whether an authorization server reads the metadata document of this service. If the server registers clients,
 * too, it must accept clients without a secret, and the user must have returned from the last sign-in. A server that
 * cannot read the document says so on its own page only.
 */
async function isDocumentRead(
  deps: Deps,
  server: OAuthServer,
  userId: string,
  { metadata }: Issuer,
  redirectUri: string,
): Promise<boolean> {
  if (!redirectUri.startsWith('https:') || !metadata?.client_id_metadata_document_supported) return false
  if (!metadata.registration_endpoint) return true
  const methods = metadata.token_endpoint_auth_methods_supported
  if (methods && !methods.includes('none')) return false
  return !(await hasUnfinished(deps, server, userId, new Date(deps.clock.now().getTime() - LIFETIME)))
}

/** Returns whether a user has left for a server since a time, and has not returned. */
const hasUnfinished = async ({ db }: Deps, { id: mcpId }: OAuthServer, userId: string, since: Date) =>
  (await db.mcpSignIn.count({ where: { mcpId, userId, stateDigest: { not: null }, createdAt: { gte: since } } })) > 0

function toAppError(deps: Deps, { id: mcpId, name }: OAuthServer, error: unknown): unknown {
  if (!(error instanceof AuthorizationProblem)) return error
  const { message } = error
  deps.log.warn({ mcpId, err: error }, 'failed to prepare the connection of a user')
  return new AppError(502, 'MCP server cannot be connected', {
    code: 'mcp_unreachable',
    detail: `The MCP server ${name} cannot be connected: ${message}`,
  })
}
