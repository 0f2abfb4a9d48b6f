import type { z } from 'zod'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { dataKeyOf, readDataKey } from '../crypto/data-key.ts'
import { seal, unseal } from '../crypto/envelope.ts'
import { type Db, lockRows, type Prisma, rowLock, type Tx } from '../db/client.ts'
import { totalOf } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { AppError, badRequest, conflict, forbidden, notFound, paused } from '../errors.ts'
import { AuthorizationNeeded } from '../executions/engine/run/abort.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { newId } from '../lib/id.ts'
import { listPage } from '../lib/page.ts'
import { createProxyFor } from '../lib/proxies.ts'
import { createQueues } from '../lib/queue.ts'
import {
  fillIn,
  fillUrl,
  formsOf,
  isNotSent,
  mentionsIn,
  resolveSecrets,
  SecretNotAllowed,
} from '../secrets/resolve.ts'
import { findType, listTypes } from './catalogue.ts'
import type { McpClient } from './client.ts'
import {
  bearerFor,
  type ConnectionDeps,
  type ConnectionState,
  type OAuthServer,
  sealClientSecret,
  stateOf,
} from './connections.ts'
import { secretsOf } from './declared-secrets.ts'
import { grantsToRevoke, revokeLater } from './revocation.ts'
import { type CreateMcp, type ListMcps, MAX_CREDENTIALS, type Mcp, type Permission, type UpdateMcp } from './schema.ts'
import { UnreachableServer } from './unreachable.ts'

/** An MCP server with the names of its credentials. */
export type McpRow = Prisma.McpServerGetPayload<{ include: typeof NAMES }>

const NAMES = {
  credentials: { select: { name: true }, orderBy: { name: 'asc' } },
} satisfies Prisma.McpServerInclude

/** The JSON column with long texts, which long lists cut. */
export const LONG_TEXTS = ['headers'] as const

/** Filters the organization's servers, which every member sees (contract.md section 2). */
export const reachable = ({ organizationId }: Actor): Prisma.McpServerWhereInput => ({ organizationId })

const isOperators = ({ source }: { source: string }) => source === 'operator'

/**
 * Permits the owner and admins to change a server. One of the operator is formally owned by an owner of the
 * organization, whose role counts alone.
 */
const authorize = <Row extends { ownerId: string; source: string }>(actor: Actor, row: Row): Authorized<Row> =>
  permit(row, (row.ownerId === actor.userId && !isOperators(row)) || isAdmin(actor))

/** Returns the headers of a server as stored: with `${NAME}` for credentials, never their values. */
export const headersOf = ({ headers }: { headers: Prisma.JsonValue }) => headers as Record<string, string>

type Modes = z.infer<typeof Permission>[]

/**
 * Returns the permissions of a server's tools: its own, tightened by those of the operator. A tool without an entry needs
 * no approval (contract.md section 7).
 */
export function permissionsOf(row: { permissions: Prisma.JsonValue; operatorModes: Prisma.JsonValue }): Modes {
  const [own, least] = [row.permissions as Modes, row.operatorModes as Modes]
  if (!least.length) return own
  const tools = new Set([...least, ...own].map(({ tool }) => tool))
  return Array.from(tools, (tool) => ({ tool, mode: stricter(modeIn(own, tool), modeIn(least, tool)) }))
}

/** Returns the mode of a tool: its own entry, otherwise that of `*`. */
export const modeIn = (modes: Modes, name: string): Mode =>
  (modes.find(({ tool }) => tool === name) ?? modes.find(({ tool }) => tool === '*'))?.mode ?? 'allow'

type Mode = Modes[number]['mode']
const MODES: readonly Mode[] = ['allow', 'ask', 'deny']
const isLooser = (one: Mode, other: Mode) => MODES.indexOf(one) < MODES.indexOf(other)
const stricter = (one: Mode, other: Mode) => (isLooser(one, other) ? other : one)

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

/** Returns how many servers {@link reachable} finds. */
export const countListed = ({ organizationId }: Actor, db: Db): Promise<number> =>
  totalOf(db, { organizationId, list: 'mcps' })

/** GET /mcps, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListMcps>) {
  const { rows, nextCursor } = await listPage<McpRow & { truncated?: boolean }>(
    input,
    LONG_TEXTS,
    ({ where: after, ...page }) =>
      db.mcpServer.findMany({ where: { AND: [reachable(actor), after ?? {}] }, include: NAMES, ...page }),
  )
  const total = input.cursor !== undefined || nextCursor ? await countListed(actor, db) : rows.length
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
 * Returns the address, headers and authentication of a new server. Without an address it must be of a well-known type. The
 * only credential of a type with a token is that token, unless headers are given. Throws 400 for any other type.
 */
function wayTo({ settings }: Pick<Deps, 'settings'>, input: z.output<typeof CreateMcp>) {
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
  const { url, headers, auth } = wayTo(deps, input)
  const { clientId = null, clientSecret = null, scope = null } = input
  checkClient({ auth, clientId, hasSecret: clientSecret !== null })
  const { organizationId, userId: ownerId } = actor
  const now = deps.clock.now()
  const row = await deps.db.$transaction(async (tx) => {
    const { id } = await tx.mcpServer.create({
      data: {
        id: newId(),
        organizationId,
        ownerId,
        mcpType: mcpType ?? 'custom',
        name,
        description: description ?? null,
        isActive: isActive ?? true,
        url,
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
  if (isOperators(mcp)) checkTightening(mcp, input)
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
      const data = { ...changes, ...(endsSecret && { clientSecret: null }), writtenBy: actor.userId, updatedAt: now }
      await tx.mcpServer.updateMany({ where: { id: mcpId }, data })
      const endsConnections =
        isMoved || clientSecret !== undefined || after.auth !== row.auth || after.clientId !== row.clientId
      const grants = endsConnections
        ? await grantsToRevoke(tx, deps, { organizationId: row.organizationId, mcpId })
        : []
      if (endsConnections) {
        await tx.mcpConnection.deleteMany({ where: { mcpId } })
        await tx.mcpSignIn.deleteMany({ where: { mcpId } })
        await tx.mcpClient.deleteMany({ where: { mcpId } })
      }
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
 * DELETE /mcps/{id}: with its credentials, and from all spaces. Its users' tokens are revoked afterwards. A server of the
 * operator can be deleted once it is no longer declared.
 */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const row = authorize(actor, await find(actor, deps, id))
  if (isOperators(row) && row.isActive) {
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

type Place = { organizationId: string; mcpId: string }

/** Returns the encryption context of a credential. With another server or name it does not decrypt. */
const placeOf = ({ organizationId, mcpId }: Place, name: string) => ['mcp credential', organizationId, mcpId, name]

async function setCredentials(
  tx: Tx,
  { organizationId, userId: updatedBy }: Actor,
  deps: Deps,
  mcpId: string,
  credentials: NonNullable<z.output<typeof CreateMcp>['credentials']>,
  now: Date,
): Promise<void> {
  const entries = Object.entries(credentials)
  if (!entries.length) return
  const place = { organizationId, mcpId }
  const dataKey = await dataKeyOf(tx, deps, organizationId, now)
  const names = entries.map(([name]) => name)
  await tx.mcpCredential.deleteMany({ where: { ...place, name: { in: names } } })
  const data = entries.flatMap(([name, credential]) => {
    if (!credential) return []
    const ciphertext = seal(dataKey, placeOf(place, name), Buffer.from(credential.value))
    return [{ ...place, name, ciphertext, isSecret: credential.isSecret ?? true, updatedAt: now, updatedBy }]
  })
  if (data.length) await tx.mcpCredential.createMany({ data })
  if ((await tx.mcpCredential.count({ where: place })) > MAX_CREDENTIALS) {
    throw badRequest(`Invalid credentials. At most ${MAX_CREDENTIALS}`, { detail: 'Remove some with null.' })
  }
}

/** Returns the credentials of a server by name, for its requests only. Returns none if its address has changed. */
async function readCredentials(
  deps: ConnectDeps,
  { id: mcpId, organizationId, url }: ServerRow,
): Promise<Map<string, string>> {
  const place = { organizationId, mcpId }
  const rows = await deps.db.mcpCredential.findMany({ where: { ...place, mcp: { url } } })
  if (!rows.length) return new Map()
  const dataKey = await readDataKey(deps, organizationId)
  return new Map(
    rows.map(({ name, ciphertext }) => [name, unseal(dataKey, placeOf(place, name), ciphertext).toString()]),
  )
}

/**
 * Maximum number of concurrent tool listings per organization and process, because reading a server's answer is
 * expensive.
 */
const MAX_LISTINGS = 4
const inTurn = createQueues(MAX_LISTINGS)

/** GET /mcps/{id}/tools: connects and lists the tools, in turn. Throws a 502 with the reason if that fails. */
export const listTools = (actor: Actor, deps: Deps, id: string, signal: AbortSignal) =>
  inTurn(actor.organizationId, signal, async () => {
    const row = await find(actor, deps, id)
    if (deps.pause.isPaused()) throw paused()
    const client = await connect(deps, row, signal, { ...NO_RUN, userId: actor.userId }).catch((error: unknown) => {
      signal.throwIfAborted()
      if (error instanceof AuthorizationNeeded) throw notConnected(row)
      const reason = whyUnreachable(error)
      deps.log.warn({ mcpId: row.id, reason, err: error }, 'failed to use an MCP server')
      throw new AppError(502, 'MCP server unreachable', {
        code: error instanceof SecretNotAllowed ? 'secret_not_allowed' : 'mcp_unreachable',
        detail: `The MCP server ${row.name} cannot be used: ${reason}`,
      })
    })
    const { tools } = client
    await client.close()
    return { tools: [...tools] }
  })

const notConnected = ({ name }: { name: string }) =>
  conflict('You are not connected to this MCP server', {
    detail: `Connect to the MCP server ${name} first: POST /api/v1/mcps/{id}/connect, or in the console under MCP servers.`,
  })

/** Returns the public reason why a server cannot be used. Other errors are only logged. */
export const whyUnreachable = (error: unknown): string =>
  isNotSent(error) || error instanceof UnreachableServer ? error.message : 'the connection failed'

export type ConnectDeps = ConnectionDeps & Pick<Deps, 'operatorServers'>

type ServerRow = Prisma.McpServerGetPayload<object>

/** The user that a connection is for; and the space of a run, and whether its agent belongs to another organization. */
export type ConnectFor = { userId: string; spaceId: string | null; isForeign: boolean }

const NO_RUN = { spaceId: null, isForeign: false }

/**
 * Connects to a server with its credentials filled in, or with the user's token. Throws the signal's reason, an
 * {@link AuthorizationNeeded} if the user must connect first, or an error that states why the server cannot be reached.
 */
export async function connect(
  deps: ConnectDeps,
  row: ServerRow,
  signal: AbortSignal,
  { userId, ...run }: ConnectFor,
): Promise<McpClient> {
  const declared = isOperators(row) ? await deps.operatorServers.find(row.id) : null
  if (declared?.kind === 'program') return deps.operatorServers.connect(row.id, declared, run.spaceId, signal)
  const {
    url: stored,
    headers: templates,
    transport,
  } = declared ?? { ...row, headers: row.auth === 'none' ? {} : headersOf(row) }
  // Imported on demand, because the import would dominate the start-up time.
  const [{ connectMcp }, credentials] = await Promise.all([
    import('./client.ts'),
    declared || row.auth === 'none' ? new Map<string, string>() : readCredentials(deps, row),
  ])
  const address = new URL(stored)
  const mentioned = mentionsIn([address.pathname, address.search, ...Object.values(templates)])
  const others = mentioned.filter((name) => !credentials.has(name))
  const { organizationId } = row
  // A member who tightened the permissions of a declared server did not write its address and headers.
  const writtenBy = declared ? null : row.writtenBy
  const use = { organizationId, writtenBy, url: address, ...run }
  const found = others.length ? await resolveSecrets(deps, use, others) : new Map<string, string>()
  const values = new Map([...found, ...credentials])
  const headers = new Headers([...credentials].filter(([name]) => !mentioned.includes(name)))
  for (const [name, template] of Object.entries(templates)) headers.set(name, headerOf(fillIn(template, values)))
  const url = mentioned.length ? fillUrl(address, values).href : stored
  const { ALLOW_PRIVATE_NETWORK, TOOL_TIMEOUT: toolTimeout } = deps.settings
  const secrets = [
    ...(mentioned.length ? formsOf(values.values()) : values.values()),
    ...(declared ? secretsOf(declared) : []),
  ]
  const onFailure = (tool: string, reason: string) =>
    deps.log.warn({ mcpId: row.id, tool, reason }, 'a call to an MCP server failed')
  const proxyFor = createProxyFor(deps.settings)
  // Addresses that the operator sets may be private, but no other address that they lead to.
  const leads = { allowPrivate: ALLOW_PRIVATE_NETWORK || declared !== null, staysOnOrigin: declared !== null }
  const bearer = await bearerFor(deps, row, userId, signal)
  const mayRedirect = !others.length
  return connectMcp(
    { url, transport, headers, bearer, ...leads, proxyFor, toolTimeout, secrets, onFailure, mayRedirect },
    signal,
  )
}

/** Returns a header's value with a secret in it. A value that no header can have is refused without repeating it. */
function headerOf(value: string): string {
  if (!/^[\t\x20-\x7e]*$/.test(value)) throw new SecretNotAllowed('A secret is no text that a header can contain')
  return value
}
