import { audit } from '../../auth/audit.ts'
import { dataKeyOf, readDataKey } from '../../crypto/data-key.ts'
import { seal, unseal } from '../../crypto/envelope.ts'
import type { Prisma } from '../../db/client.ts'
import type { Deps } from '../../deps.ts'
import { resumeConnected } from '../../executions/engine/queue/connections.ts'
import { newSecret } from '../../lib/id.ts'
import { tokenDigest } from '../../lib/token.ts'
import type { AuthorizationProblem } from '../client/unreachable.ts'
import type { Grant } from './authorization.ts'
import { logRevocation, type OAuthServer, storeGrant } from './connections.ts'
import { contextOf, type Flow, isCurrent } from './prepare-sign-in.ts'

// The sign-in of a member in a browser: at its first page, and at the callback (contract-2.md section 2.13).

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
