import type { z } from 'zod'
import type { Actor } from '../../auth/actor.ts'
import { audit } from '../../auth/audit.ts'
import { dataKeyOf, readDataKey } from '../../crypto/data-key.ts'
import { seal, unseal } from '../../crypto/envelope.ts'
import { keyLock, lockRows, type Prisma, type Tx } from '../../db/client.ts'
import type { Deps } from '../../deps.ts'
import { AppError, conflict, notFound, paused } from '../../errors.ts'
import { resumeConnected } from '../../executions/engine/queue/connections.ts'
import { newSecret } from '../../lib/id.ts'
import { tokenDigest } from '../../lib/token.ts'
import { publicAddress, type Settings } from '../../settings.ts'
import { AuthorizationProblem } from '../client/unreachable.ts'
import { find } from '../rows.ts'
import type { McpDisconnected } from '../schema.ts'
import type { Authorization, Grant, OAuthClient } from './authorization.ts'
import { givenClient, registeredClient, storeClient } from './clients.ts'
import { logRevocation, type OAuthServer, storeGrant } from './connections.ts'
import type { Discovered, Issuer } from './discovery.ts'
import { grantsToRevoke, revoke } from './revocation.ts'
import { joinScopes } from './scope.ts'

// The sign-in of a member at the authorization server of an MCP server (contract-2.md section 2.13).

/** Time in which a sign-in must be finished (ms). */
const LIFETIME = 10 * 60_000
/** Maximum number of sign-ins in progress of one user for one server. */
const MAX_SIGN_INS = 5

const PATH = '/api/mcps/oauth'
export const START_PATH = `${PATH}/start`
export const CALLBACK_PATH = `${PATH}/callback`
export const CLIENT_PATH = `${PATH}/client.json`

const redirectUriOf = (settings: Settings): string => publicAddress(settings) + CALLBACK_PATH

/** Returns the metadata document of this service as a client, whose address is its client id. */
export const clientMetadata = async (settings: Settings) => ({
  client_id: publicAddress(settings) + CLIENT_PATH,
  client_uri: publicAddress(settings),
  redirect_uris: [redirectUriOf(settings)],
  token_endpoint_auth_method: 'none',
  ...(await import('./registration.ts')).CLIENT_METADATA,
})

/** Secrets of a sign-in in progress. */
type Flow = { server: Issuer; client: OAuthClient; redirectUri: string; scope?: string; verifier?: string }

/** Reasons for a failed sign-in, as words that select the text of the console. */
export type ConnectProblem = 'expired' | 'other_user' | 'moved' | 'refused'

/** A sign-in that failed after the browser has left. The message is for the log. */
export class ConnectFailed extends Error {
  override name = 'ConnectFailed'
  readonly problem: ConnectProblem
  readonly server: ConnectedServer | undefined
  /** The code with which the authorization server has refused. */
  readonly code: string | undefined

  constructor(problem: ConnectProblem, message: string, server?: ConnectedServer, code?: string) {
    super(message)
    this.problem = problem
    this.code = code
    this.server = server && { mcpId: server.mcpId, organizationId: server.organizationId }
  }
}

/** The MCP server of a sign-in. */
export type ConnectedServer = { mcpId: string; organizationId: string }

type Owner = Pick<Prisma.McpSignInGetPayload<object>, 'organizationId' | 'mcpId' | 'userId' | 'url'>

const contextOf = ({ organizationId, mcpId, userId, url }: Owner) => ['mcp sign-in', organizationId, mcpId, userId, url]

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
async function isCurrent(tx: Tx, { settings }: Deps, { organizationId, mcpId: id, userId, url }: Owner) {
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

/** The browser that opens a page: its session. */
export type Visitor = { userId: string; sessionId: string }

/**
 * Begins a sign-in whose first page a browser has opened: binds it to the session, and returns the address at the
 * authorization server. Throws {@link ConnectFailed}, also for a session of another user.
 */
export async function openSignIn(deps: Deps, code: string, visitor: Visitor): Promise<URL> {
  const { db, sessionKey } = deps
  const row = await db.mcpSignIn.findUnique({ where: { id: tokenDigest(sessionKey, code) } })
  if (!row || row.expiresAt <= deps.clock.now()) throw new ConnectFailed('expired', 'an unknown or expired code')
  if (row.userId !== visitor.userId) throw new ConnectFailed('other_user', 'the session of another user', row)
  if (row.stateDigest !== null) throw new ConnectFailed('expired', 'the code was used before', row)
  return leave(deps, row, await openFlow(deps, row), visitor)
}

/**
 * Begins the sign-in at the authorization server: gives it a new state and the session, and returns the address there.
 * Throws {@link ConnectFailed} if the sign-in has gone on meanwhile.
 */
async function leave(deps: Deps, row: SignInRow, flow: Flow, { sessionId }: Visitor): Promise<URL> {
  const server = await serverOf(deps, row)
  const { openAuthorization } = await import('./authorization.ts')
  await using authorization = openAuthorization(deps.settings, server)
  const state = newSecret()
  const { redirectUri, scope } = flow
  const { address, verifier } = await authorization
    .begin(flow.server, flow.client, { redirectUri, scope, state })
    .catch((error: AuthorizationProblem) => {
      throw new ConnectFailed('refused', error.message, row, error.code)
    })
  const dataKey = await readDataKey(deps, row.organizationId)
  const { count } = await deps.db.mcpSignIn.updateMany({
    where: { id: row.id, stateDigest: row.stateDigest },
    data: {
      stateDigest: tokenDigest(deps.sessionKey, state),
      sessionId,
      sealed: seal(dataKey, contextOf(row), Buffer.from(JSON.stringify({ ...flow, verifier }))),
    },
  })
  if (!count) throw new ConnectFailed('expired', 'the code was used before', row)
  return address
}

type SignInRow = Prisma.McpSignInGetPayload<object>

/** Finds the MCP server of a sign-in. Throws if it has moved or no longer uses OAuth. */
async function serverOf({ db }: Deps, row: SignInRow): Promise<OAuthServer> {
  const { organizationId, mcpId: id, url } = row
  const server = await db.mcpServer.findFirst({ where: { organizationId, id, url, auth: 'oauth' } })
  if (!server) throw new ConnectFailed('moved', 'the address of the server has changed', row)
  return server
}

const openFlow = async (deps: Deps, row: SignInRow): Promise<Flow> =>
  JSON.parse(unseal(await readDataKey(deps, row.organizationId), contextOf(row), row.sealed).toString()) as Flow

/**
 * Finishes a sign-in with the answer in the address of the callback: redeems its code and stores the tokens. Runs that
 * wait for them continue. Returns the address of another page if the authorization server has to be asked again,
 * without the resource that it refuses. Throws {@link ConnectFailed}.
 */
export async function finishSignIn(
  deps: Deps,
  query: URLSearchParams,
  visitor: Visitor,
): Promise<ConnectedServer | URL> {
  const { db, clock, sessionKey } = deps
  const stateDigest = tokenDigest(sessionKey, query.get('state') ?? '')
  const row = await db.mcpSignIn.findUnique({ where: { stateDigest } })
  if (!row || row.expiresAt <= clock.now()) throw new ConnectFailed('expired', 'an unknown or expired state')
  const { organizationId, mcpId, userId } = row
  if (userId !== visitor.userId || row.sessionId !== visitor.sessionId) {
    throw new ConnectFailed('other_user', 'the session is not the one that has begun', row)
  }
  const { redirectUri, verifier = '', ...flow } = await openFlow(deps, row)
  const { openAuthorization, refusesResource } = await import('./authorization.ts')
  const { resource, ...plainly } = flow.server
  if (resource !== undefined && refusesResource(query.get('error') ?? '', query.get('error_description') ?? ''))
    return leave(deps, row, { ...flow, redirectUri, server: plainly }, visitor)
  const { count } = await db.mcpSignIn.deleteMany({ where: { id: row.id, stateDigest } })
  if (!count) throw new ConnectFailed('expired', 'the state was used before', row)
  const server = await serverOf(deps, row)
  await using authorization = openAuthorization(deps.settings, server)
  const answer = { query, redirectUri, verifier, scope: flow.scope }
  const grant = await authorization
    .redeem(flow.server, flow.client, answer)
    .catch(async (error: AuthorizationProblem) => {
      // The client may be unknown there by now: the next sign-in registers another one.
      if (error.isFinal) await db.mcpClient.deleteMany({ where: { mcpId, issuer: flow.server.issuer, isGiven: false } })
      throw new ConnectFailed('refused', error.message, row, error.code)
    })
  const now = clock.now()
  if (!(await storeTokens(deps, row, grant, now))) {
    await authorization.revoke(grant).catch(logRevocation(deps, mcpId))
    throw new ConnectFailed('moved', 'the membership or the server has ended meanwhile', row)
  }
  // Only after the tokens are stored, see resumeIfConnected.
  const resumed = await db.$transaction((tx) => resumeConnected(tx, { organizationId, userId, mcpId }, now))
  for (const run of resumed) {
    deps.bus.publish('chat', [run.chatId])
    deps.engine.resume(run)
  }
  return { mcpId, organizationId }
}

/** Stores the tokens of a sign-in. Returns false if the membership or the server has ended while its code was redeemed. */
function storeTokens(deps: Deps, { organizationId, mcpId, userId, url }: SignInRow, grant: Grant, now: Date) {
  return deps.db.$transaction(async (tx) => {
    if (!(await isCurrent(tx, deps, { organizationId, mcpId, userId, url }))) return false
    const dataKey = await dataKeyOf(tx, deps, organizationId, now)
    await storeGrant(tx, dataKey, { organizationId, mcpId, userId, url }, grant, now)
    await audit(tx, { organizationId, userId, tokenId: '' }, 'mcp.connect', mcpId, now)
    return true
  })
}

/**
 * DELETE /mcps/{id}/connection: forgets the caller's tokens at once, then revokes them. `revoked` states whether the
 * authorization server has confirmed that. Throws 404 without a connection.
 */
export async function disconnect(actor: Actor, deps: Deps, id: string): Promise<Disconnected> {
  const server = await find(actor, deps, id)
  const { userId } = actor
  const where = { organizationId: server.organizationId, mcpId: server.id, userId }
  const now = deps.clock.now()
  const deleted = await deps.db.$transaction(async (tx) => {
    const grants = await grantsToRevoke(tx, deps, where)
    await tx.mcpSignIn.deleteMany({ where })
    const { count } = await tx.mcpConnection.deleteMany({ where })
    if (!count) throw notFound('Connection')
    await audit(tx, actor, 'mcp.disconnect', server.id, now)
    return grants
  })
  return { message: 'Disconnected successfully', revoked: await revoke(deps, deleted) }
}

type Disconnected = Omit<z.input<typeof McpDisconnected>, 'success'>
