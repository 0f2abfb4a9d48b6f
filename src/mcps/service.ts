import type { z } from 'zod'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { dataKeyOf } from '../crypto/data-key.ts'
import { type Db, lockRows, type Prisma, rowLock, type Tx } from '../db/client.ts'
import { totalOf } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { type AppError, badRequest, forbidden, notFound } from '../errors.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { newId } from '../lib/id.ts'
import { listPage } from '../lib/page.ts'
import { having, searchedIn } from '../lib/search.ts'
import { findType, listTypes } from './catalogue.ts'
import { setCredentials } from './credentials.ts'
import { isLooser, type Modes, modeIn, permissionsOf } from './modes.ts'
import { sealClientSecret } from './oauth/clients.ts'
import { type ConnectionState, type OAuthServer, stateOf } from './oauth/connections.ts'
import { grantsToRevoke, revokeLater } from './oauth/revocation.ts'
import type { CreateMcp, ListMcps, Mcp, UpdateMcp } from './schema.ts'

/** An MCP server with the names of its credentials. */
export type McpRow = Prisma.McpServerGetPayload<{ include: typeof NAMES }>

const NAMES = {
  credentials: { select: { name: true }, orderBy: { name: 'asc' } },
} satisfies Prisma.McpServerInclude

/** The JSON column with long texts, which long lists cut. */
export const LONG_TEXTS = ['headers'] as const

/** Returns the column with the texts of a server that searches look in. */
export const textOf = ({
  name,
  description,
  mcpType,
  url,
}: Pick<McpRow, 'name' | 'mcpType' | 'url'> & { description?: string | null }) =>
  searchedIn(name, description, mcpType, url)

/** Filters the organization's servers, which every member sees (contract.md section 2). */
export const reachable = ({ organizationId }: Actor): Prisma.McpServerWhereInput => ({ organizationId })

/** Returns whether the operator declares the server (MCP_CONFIG). */
export const isDeclared = ({ source }: { source: string }) => source === 'operator'

/**
 * Permits the owner and admins to change a server. One of the operator is formally owned by an owner of the
 * organization, whose role counts alone.
 */
const authorize = <Row extends { ownerId: string; source: string }>(actor: Actor, row: Row): Authorized<Row> =>
  permit(row, (row.ownerId === actor.userId && !isDeclared(row)) || isAdmin(actor))

/** Returns the headers of a server as stored: with `${NAME}` for credentials, never their values. */
export const headersOf = ({ headers }: { headers: Prisma.JsonValue }) => headers as Record<string, string>

/** The caller's connection to a server. */
export type OwnConnection = { connection: ConnectionState; connectedAs: string | null }

/** Columns of {@link OwnConnection}. */
export const CONNECTION = { url: true, hasEnded: true, account: true } as const satisfies Prisma.McpConnectionSelect

/** Returns the caller's connection to a server: `none` also for one without OAuth. */
export function toConnection(
  server: { url: string; auth: string },
  row: Prisma.McpConnectionGetPayload<{ select: typeof CONNECTION }> | undefined,
): OwnConnection {
  const connection = server.auth === 'oauth' ? stateOf(server.url, row) : 'none'
  return { connection, connectedAs: connection === 'none' ? null : (row?.account ?? null) }
}

/** Reads the caller's connections to some servers, in at most one statement. */
async function readConnections({ userId }: Actor, { db }: { db: Tx }, rows: readonly McpRow[]) {
  const ids = rows.flatMap(({ id, auth }) => (auth === 'oauth' ? id : []))
  const where = { userId, mcpId: { in: ids } }
  const found = ids.length ? await db.mcpConnection.findMany({ where, select: { ...CONNECTION, mcpId: true } }) : []
  const byServer = new Map(found.map((row) => [row.mcpId, row]))
  return (row: McpRow) => toConnection(row, byServer.get(row.id))
}

const toMcp = (row: McpRow & { truncated?: boolean }, connection: OwnConnection): z.input<typeof Mcp> => ({
  id: row.id,
  ...(row.truncated && { truncated: true }),
  mcpType: row.mcpType,
  name: row.name,
  description: row.description,
  isActive: row.isActive,
  ownerId: row.ownerId,
  organizationId: row.organizationId,
  source: row.source as z.input<typeof Mcp>['source'],
  url: row.url,
  transport: row.transport as z.input<typeof Mcp>['transport'],
  headers: headersOf(row),
  credentialsSet: row.credentials.map(({ name }) => name),
  auth: row.auth as z.input<typeof Mcp>['auth'],
  clientId: row.clientId,
  clientSecretSet: row.clientSecret !== null,
  scope: row.scope,
  ...connection,
  permissions: permissionsOf(row),
  usageCount: row.usageCount,
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
})

/** Returns the filter of `list`: its input on top of {@link reachable}. */
export const listedBy = (actor: Actor, { search }: z.output<typeof ListMcps>): Prisma.McpServerWhereInput => ({
  AND: [reachable(actor), having(search)],
})

/** Returns how many servers {@link listedBy} finds. Counts rows if there is a search. */
export const countListed = (actor: Actor, db: Db, input: z.output<typeof ListMcps>): Promise<number> =>
  input.search
    ? db.mcpServer.count({ where: listedBy(actor, input) })
    : totalOf(db, { organizationId: actor.organizationId, list: 'mcps' })

/** GET /mcps, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListMcps>) {
  const { rows, nextCursor } = await listPage<McpRow & { truncated?: boolean }>(
    input,
    LONG_TEXTS,
    ({ where: after, ...page }) =>
      db.mcpServer.findMany({ where: { AND: [listedBy(actor, input), after ?? {}] }, include: NAMES, ...page }),
  )
  const total = input.cursor !== undefined || nextCursor ? await countListed(actor, db, input) : rows.length
  const connectionOf = await readConnections(actor, { db }, rows)
  return { mcps: rows.map((row) => toMcp(row, connectionOf(row))), total, nextCursor }
}

/** Finds a server. Throws 404 if the caller cannot reach it. */
export async function find(actor: Actor, { db }: { db: Tx }, id: string): Promise<McpRow> {
  const row = await db.mcpServer.findFirst({ where: { id, ...reachable(actor) }, include: NAMES })
  if (!row) throw notFound('MCP')
  return row
}

/** Returns the reachable ids with their types, in at most one statement. */
export async function typesOf(actor: Actor, db: Tx, ids: readonly string[]): Promise<Map<string, string>> {
  const where = { id: { in: [...new Set(ids)] }, ...reachable(actor) }
  const rows = ids.length ? await db.mcpServer.findMany({ where, select: { id: true, mcpType: true } }) : []
  return new Map(rows.map(({ id, mcpType }) => [id, mcpType]))
}

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
