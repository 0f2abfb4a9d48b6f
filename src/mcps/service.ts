import type { z } from 'zod'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { dataKeyOf } from '../crypto/data-key.ts'
import { lockRows, rowLock, type Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { type AppError, badRequest, forbidden, notFound } from '../errors.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { newId } from '../lib/id.ts'
import { findType, listTypes } from './catalogue.ts'
import { setCredentials } from './credentials.ts'
import { isLooser, type Modes, modeIn } from './modes.ts'
import { sealClientSecret } from './oauth/clients.ts'
import type { OAuthServer } from './oauth/connections.ts'
import { grantsToRevoke, revokeLater } from './oauth/revocation.ts'
import { find, isDeclared, type McpRow, NAMES, readConnections, textOf, toConnection, toMcp } from './rows.ts'
import type { CreateMcp, UpdateMcp } from './schema.ts'

/**
 * Permits the owner and admins to change a server. One of the operator is formally owned by an owner of the
 * organization, whose role counts alone.
 */
const authorize = <Row extends { ownerId: string; source: string }>(actor: Actor, row: Row): Authorized<Row> =>
  permit(row, (row.ownerId === actor.userId && !isDeclared(row)) || isAdmin(actor))

/** GET /mcps/{id}. */
export async function get(actor: Actor, deps: Deps, id: string) {
  const row = await find(actor, deps, id)
  return { mcp: toMcp(row, (await readConnections(actor, deps, [row]))(row)) }
}

/**
 * Returns the address, headers and authentication of a new server. Without an address it must be of a well-known type.
 * The only credential of a type with a token is that token, unless headers are given. Throws 400 for any other type.
 */
function resolveEndpoint({ settings }: Pick<Deps, 'settings'>, input: z.output<typeof CreateMcp>) {
  const headers = input.headers ?? {}
  const type = input.mcpType ? findType(settings, input.mcpType) : null
  const isPlain = !Object.keys(headers).length && !Object.keys(input.credentials ?? {}).length
  const signsIn = type?.auth === 'oauth' && isPlain && (!input.url || input.url === type.url)
  const auth = input.auth ?? (signsIn ? 'oauth' : 'headers')
  if (input.url) return { url: input.url, headers, auth }
  if (!type) throw noAddress(settings, input.mcpType)
  const [credential, ...others] = Object.keys(input.credentials ?? {})
  const isToken = type.auth !== 'none' && credential !== undefined && !others.length && !Object.keys(headers).length
  return { auth, url: type.url, headers: isToken ? { Authorization: `Bearer \${${credential}}` } : headers }
}

function noAddress(settings: Deps['settings'], mcpType: string | null | undefined): AppError {
  const known = listTypes(settings).map((type) => type.mcpType)
  const detail = `Specify the url of the server, or one of these as mcpType: ${known.join(', ')}`
  if (!mcpType) return badRequest('Missing required field: url', { detail })
  return badRequest(`Unknown mcpType without url. Known types: ${known.join(', ')}`, { detail })
}

/** POST /mcps. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateMcp>) {
  const { mcpType, name, description, isActive, transport, permissions } = input
  const { url, headers, auth } = resolveEndpoint(deps, input)
  const { clientId = null, clientSecret = null, scope = null } = input
  checkClient({ auth, clientId, hasSecret: clientSecret !== null })
  const { organizationId, userId: ownerId } = actor
  const now = deps.clock.now()
  const named = { name, description: description ?? null, mcpType: mcpType ?? 'custom', url }
  const row = await deps.db.$transaction(async (tx) => {
    const { id } = await tx.mcpServer.create({
      data: {
        id: newId(),
        organizationId,
        ownerId,
        ...named,
        ...textOf(named),
        isActive: isActive ?? true,
        transport: transport ?? 'streamable-http',
        headers,
        permissions: permissions ?? [],
        auth,
        clientId,
        scope,
        writtenBy: ownerId,
        createdAt: now,
        updatedAt: now,
      },
      select: { id: true },
    })
    await setCredentials(tx, actor, deps, id, input.credentials ?? {}, now)
    if (clientSecret !== null) await setClientSecret(tx, deps, { id, organizationId, url }, clientSecret, now)
    await audit(tx, actor, 'mcp.create', id, now)
    return tx.mcpServer.findUniqueOrThrow({ where: { id }, include: NAMES })
  })
  return { id: row.id, name: row.name, mcpType: row.mcpType, mcp: toMcp(row, toConnection(row, undefined)) }
}

/**
 * PATCH /mcps/{id}, by its owner or an admin. Credentials are changed individually, because their values cannot be read
 * back; null removes all of them. The connections of users and the client secret end if the address changes, and the
 * connections also if the authentication or the client does. The users' tokens are revoked afterwards.
 */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateMcp>) {
  const mcp = authorize(actor, await find(actor, deps, input.id))
  if (isDeclared(mcp)) checkTightening(mcp, input)
  const { id: mcpId } = mcp
  const { name, description, url, transport, credentials, clientId, clientSecret, scope } = input
  const mcpType = input.mcpType === null ? 'custom' : input.mcpType
  const isActive = input.isActive === null ? true : input.isActive
  const headers = input.headers === null ? {} : input.headers
  const permissions = input.permissions === null ? [] : input.permissions
  const auth = input.auth === null ? 'headers' : input.auth
  const now = deps.clock.now()
  const changes = omitUndefined({
    mcpType,
    name,
    description,
    isActive,
    url,
    transport,
    headers,
    permissions,
    auth,
    clientId,
    scope,
  })
  if (hasChanges(mcp, changes) || credentials !== undefined || clientSecret !== undefined) {
    const deleted = await deps.db.$transaction(async (tx) => {
      await lockRows(tx, 'McpServer', [mcpId], rowLock(deps.settings))
      const row = authorize(actor, await find(actor, { db: tx }, mcpId))
      await checkMove(tx, actor, row, input)
      const after = { ...row, ...changes }
      const isMoved = after.url !== row.url
      const keepsSecret = row.clientSecret !== null && !isMoved && after.clientId === row.clientId
      checkClient({ ...after, hasSecret: clientSecret === undefined ? keepsSecret : clientSecret !== null })
      const endsSecret = clientSecret === null || (clientSecret === undefined && !keepsSecret)
      const data = {
        ...changes,
        ...textOf(after),
        ...(endsSecret && { clientSecret: null }),
        writtenBy: actor.userId,
        updatedAt: now,
      }
      await tx.mcpServer.updateMany({ where: { id: mcpId }, data })
      const endsConnections =
        isMoved || clientSecret !== undefined || after.auth !== row.auth || after.clientId !== row.clientId
      const grants = endsConnections ? await endConnections(tx, deps, row) : []
      if (clientSecret) await setClientSecret(tx, deps, after, clientSecret, now)
      if (credentials === null) await tx.mcpCredential.deleteMany({ where: { mcpId } })
      await setCredentials(tx, actor, deps, mcpId, credentials ?? {}, now)
      await audit(tx, actor, 'mcp.update', mcpId, now)
      return grants
    })
    await revokeLater(deps, deleted)
  }
  return get(actor, deps, mcpId)
}

/** Ends all connections of users to a server. Returns the grants to revoke after the commit. */
async function endConnections(tx: Tx, deps: Deps, { organizationId, id: mcpId }: McpRow) {
  const grants = await grantsToRevoke(tx, deps, { organizationId, mcpId })
  await tx.mcpConnection.deleteMany({ where: { mcpId } })
  await tx.mcpSignIn.deleteMany({ where: { mcpId } })
  await tx.mcpClient.deleteMany({ where: { mcpId } })
  return grants
}

/** Throws 403 for a change of a declared server other than of `permissions`, and 400 for looser ones. */
function checkTightening(row: McpRow, { id: _, permissions, ...others }: z.output<typeof UpdateMcp>): void {
  if (Object.keys(omitUndefined(others)).length) {
    throw forbidden({ detail: 'The operator declares this server (MCP_CONFIG). Only its permissions can be changed.' })
  }
  const least = row.operatorModes as Modes
  const loose = permissions?.find(({ tool, mode }) => isLooser(mode, modeIn(least, tool)))
  if (!loose) return
  const { tool } = loose
  const detail = `The operator set ${tool} to ${modeIn(least, tool)}. Permissions of this server can only be tightened.`
  throw badRequest('Invalid permissions. Looser than those of the operator', { detail })
}

/**
 * Checks a change of the address. A credential may be sent only to the address it was given for, including path and
 * query, because servers of several people may share a host. Otherwise another user could redirect and read it. Throws
 * 400 unless all credentials set by others are given again or removed.
 */
async function checkMove(
  tx: Tx,
  { userId }: Actor,
  { id: mcpId, url: before }: McpRow,
  { url, credentials }: z.output<typeof UpdateMcp>,
): Promise<void> {
  if (!url || addressOf(url) === addressOf(before) || credentials === null) return
  const given = Object.keys(credentials ?? {})
  const kept = await tx.mcpCredential.count({ where: { mcpId, name: { notIn: given }, updatedBy: { not: userId } } })
  if (kept)
    throw badRequest('Invalid url. For another server the credentials must be given again', {
      detail: 'Send `credentials` together with `url`: those of the old server are never sent to another.',
    })
}

/** Throws 400 for a client that cannot be used. */
function checkClient({
  auth,
  clientId,
  hasSecret,
}: {
  auth: string
  clientId: string | null
  hasSecret: boolean
}): void {
  const detail =
    'Send `clientId` and `clientSecret` as the authorization server of the MCP server gave them. They must be given again when `url` changes.'
  if (auth === 'client_credentials' && !clientId) throw badRequest('Missing required field: clientId', { detail })
  if (auth === 'client_credentials' && !hasSecret) throw badRequest('Missing required field: clientSecret', { detail })
  if (hasSecret && !clientId) throw badRequest('Missing required field: clientId', { detail })
}

async function setClientSecret(
  tx: Tx,
  deps: Deps,
  server: Pick<OAuthServer, 'id' | 'organizationId' | 'url'>,
  secret: string,
  now: Date,
): Promise<void> {
  const dataKey = await dataKeyOf(tx, deps, server.organizationId, now)
  const clientSecret = sealClientSecret(dataKey, server, secret)
  await tx.mcpServer.updateMany({ where: { id: server.id }, data: { clientSecret } })
}

const addressOf = (url: string) => URL.parse(url)?.href

/**
 * DELETE /mcps/{id}: with its credentials, and from all spaces. Its users' tokens are revoked afterwards. A server of
 * the operator can be deleted once it is no longer declared.
 */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const row = authorize(actor, await find(actor, deps, id))
  if (isDeclared(row) && row.isActive) {
    throw forbidden({ detail: 'The operator declares this server (MCP_CONFIG), and can remove it there.' })
  }
  const deleted = await deps.db.$transaction(async (tx) => {
    const grants = await grantsToRevoke(tx, deps, { organizationId: row.organizationId, mcpId: row.id })
    const { count } = await tx.mcpServer.deleteMany({ where: { id: row.id } })
    if (!count) throw notFound('MCP')
    await audit(tx, actor, 'mcp.delete', id, deps.clock.now())
    return grants
  })
  await revokeLater(deps, deleted)
  return { message: 'MCP deleted successfully' }
}
