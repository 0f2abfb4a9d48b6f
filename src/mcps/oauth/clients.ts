import { dataKeyOf, readDataKey } from '../../crypto/data-key.ts'
import { seal, unseal } from '../../crypto/envelope.ts'
import { keyLock, lockRows } from '../../db/client.ts'
import { notFound } from '../../errors.ts'
import { AuthorizationProblem } from '../client/unreachable.ts'
import type { OAuthClient } from './authorization.ts'
import type { ConnectionDeps, OAuthServer } from './connections.ts'

// This service's clients at the authorization servers of MCP servers (contract-2.md section 2.13).

/** Returns the encryption context of a client's secret, registered at an issuer or given for an address. */
const clientPlace = ({ organizationId, id }: Pick<OAuthServer, 'organizationId' | 'id'>, at: string) => [
  'mcp client',
  organizationId,
  id,
  at,
]

/** Encrypts the secret of a client that was given by hand. It is valid for the server's present address only. */
export const sealClientSecret = (
  dataKey: Buffer,
  server: Pick<OAuthServer, 'organizationId' | 'id' | 'url'>,
  secret: string,
) => seal(dataKey, clientPlace(server, server.url), Buffer.from(secret))

/**
 * Returns the client that was given by hand for a server; null if none was. It is bound to the issuer that it is first
 * used with, so that another one never gets its secret. Throws an {@link AuthorizationProblem} for another issuer.
 */
export async function givenClient(
  deps: ConnectionDeps,
  server: OAuthServer,
  issuer: string,
  redirectUri: string,
): Promise<OAuthClient | null> {
  const { id: mcpId, organizationId, clientId, clientSecret } = server
  if (clientId === null) return null
  if (clientSecret === null) return { client_id: clientId }
  const bound = await deps.db.mcpClient.findFirst({ where: { mcpId, isGiven: true } })
  if (bound && bound.issuer !== issuer) {
    throw new AuthorizationProblem(
      `the authorization server has changed to ${new URL(issuer).origin}: give the clientSecret again`,
    )
  }
  const dataKey = await readDataKey(deps, organizationId)
  const secret = unseal(dataKey, clientPlace(server, server.url), clientSecret).toString()
  const client = { client_id: clientId, client_secret: secret }
  if (!bound) await storeClient(deps, server, { issuer, redirectUri, isGiven: true }, client)
  return client
}

/**
 * Returns the client that was registered for a server at an issuer, with the time of its registration. Returns null if
 * none was, or for another address, or if its secret has ended.
 */
export async function registeredClient(
  deps: ConnectionDeps,
  server: OAuthServer,
  issuer: string,
  redirectUri: string,
): Promise<{ client: OAuthClient; since: Date } | null> {
  const row = await deps.db.mcpClient.findUnique({ where: { mcpId_issuer: { mcpId: server.id, issuer } } })
  if (!row || row.isGiven || row.redirectUri !== redirectUri) return null
  const dataKey = await readDataKey(deps, server.organizationId)
  const client = JSON.parse(unseal(dataKey, clientPlace(server, issuer), row.sealed).toString()) as OAuthClient
  const until = client.client_secret_expires_at
  return until && until * 1000 <= deps.clock.now().getTime() ? null : { client, since: row.createdAt }
}

/** Stores a client for the server at an issuer. Throws 404 if the server was deleted meanwhile. */
export async function storeClient(
  { db, clock, settings, wrappingKey }: ConnectionDeps,
  server: OAuthServer,
  { issuer, ...how }: { issuer: string; redirectUri: string; isGiven: boolean },
  client: OAuthClient,
): Promise<void> {
  const { organizationId, id: mcpId } = server
  const now = clock.now()
  await db.$transaction(async (tx) => {
    await lockRows(tx, 'McpServer', [mcpId], keyLock(settings))
    if (!(await tx.mcpServer.count({ where: { id: mcpId } }))) throw notFound('MCP')
    const dataKey = await dataKeyOf(tx, { wrappingKey }, organizationId, now)
    const sealed = seal(dataKey, clientPlace(server, issuer), Buffer.from(JSON.stringify(client)))
    const data = { ...how, sealed, createdAt: now }
    await tx.mcpClient.upsert({
      where: { mcpId_issuer: { mcpId, issuer } },
      create: { organizationId, mcpId, issuer, ...data },
      update: data,
      select: { mcpId: true },
    })
  })
}
