import type { z } from 'zod'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { dataKeyOf, dataKeyPlace } from '../crypto/data-key.ts'
import { seal, unseal } from '../crypto/envelope.ts'
import { type Db, lockRows, type Prisma, rowLock, type Tx } from '../db/client.ts'
import { totalOf } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { AppError, badRequest, forbidden, notFound, paused } from '../errors.ts'
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
import { secretsOf } from './declared-secrets.ts'
import { type CreateMcp, type ListMcps, MAX_CREDENTIALS, type Mcp, type Permission, type UpdateMcp } from './schema.ts'
import { UnreachableServer } from './unreachable.ts'

/** An MCP server with the names of its credentials. */
export type McpRow = Prisma.McpServerGetPayload<{ include: typeof NAMES }>

const NAMES = {
  credentials: { select: { name: true }, orderBy: { name: 'asc' } },
} satisfies Prisma.McpServerInclude

/** The JSON column with long texts, which long lists cut. */
export const LONG_TEXTS = ['headers'] as const

/** Every member sees the organization's servers (contract.md section 2). */
export const reachable = ({ organizationId }: Actor): Prisma.McpServerWhereInput => ({ organizationId })

const isOperators = ({ source }: { source: string }) => source === 'operator'

/** A server of the operator is formally owned by an owner of the organization, whose role counts alone. */
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

const toMcp = (row: McpRow & { truncated?: boolean }): z.input<typeof Mcp> => ({
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
  return { mcps: rows.map(toMcp), total, nextCursor }
}

/** Finds a server. Throws 404 if the caller cannot reach it. */
async function find(actor: Actor, { db }: { db: Tx }, id: string): Promise<McpRow> {
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
  return { mcp: toMcp(await find(actor, deps, id)) }
}

/**
 * Returns the address and headers of a new server. Without an address it must be of a well-known type. The only
 * credential of a type with a bearer token is that token, unless headers are given. Throws 400 for any other type.
 */
function wayTo({ settings }: Pick<Deps, 'settings'>, input: z.output<typeof CreateMcp>) {
  const headers = input.headers ?? {}
  if (input.url) return { url: input.url, headers }
  const type = input.mcpType ? findType(settings, input.mcpType) : null
  if (!type) throw noAddress(settings, input.mcpType)
  const [credential, ...others] = Object.keys(input.credentials ?? {})
  const isToken = type.auth !== 'none' && credential !== undefined && !others.length && !Object.keys(headers).length
  return { url: type.url, headers: isToken ? { Authorization: `Bearer \${${credential}}` } : headers }
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
  const { url, headers } = wayTo(deps, input)
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
        writtenBy: ownerId,
        createdAt: now,
        updatedAt: now,
      },
      select: { id: true },
    })
    await setCredentials(tx, actor, deps, id, input.credentials ?? {}, now)
    await audit(tx, actor, 'mcp.create', id, now)
    return tx.mcpServer.findUniqueOrThrow({ where: { id }, include: NAMES })
  })
  return { id: row.id, name: row.name, mcpType: row.mcpType, mcp: toMcp(row) }
}

/**
 * PATCH /mcps/{id}, by its owner or an admin. Credentials are changed individually, because their values cannot be read
 * back; null removes all of them.
 */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateMcp>) {
  const mcp = authorize(actor, await find(actor, deps, input.id))
  if (isOperators(mcp)) checkTightening(mcp, input)
  const { id: mcpId } = mcp
  const { name, description, url, transport, credentials } = input
  const mcpType = input.mcpType === null ? 'custom' : input.mcpType
  const isActive = input.isActive === null ? true : input.isActive
  const headers = input.headers === null ? {} : input.headers
  const permissions = input.permissions === null ? [] : input.permissions
  const now = deps.clock.now()
  const said = omitUndefined({ mcpType, name, description, isActive, url, transport, headers, permissions })
  if (hasChanges(mcp, said) || credentials !== undefined) {
    await deps.db.$transaction(async (tx) => {
      await lockRows(tx, 'McpServer', [mcpId], rowLock(deps.settings))
      const row = authorize(actor, await find(actor, { db: tx }, mcpId))
      await checkMove(tx, actor, row, input)
      const data = { ...said, writtenBy: actor.userId, updatedAt: now }
      await tx.mcpServer.updateMany({ where: { id: mcpId }, data })
      if (credentials === null) await tx.mcpCredential.deleteMany({ where: { mcpId } })
      await setCredentials(tx, actor, deps, mcpId, credentials ?? {}, now)
      await audit(tx, actor, 'mcp.update', mcpId, now)
    })
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

const addressOf = (url: string) => URL.parse(url)?.href

/**
 * DELETE /mcps/{id}: with its credentials, and from all spaces. A server of the operator can be deleted once it is no
 * longer declared.
 */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const row = authorize(actor, await find(actor, deps, id))
  if (isOperators(row) && row.isActive) {
    throw forbidden({ detail: 'The operator declares this server (MCP_CONFIG), and can remove it there.' })
  }
  await deps.db.$transaction(async (tx) => {
    const { count } = await tx.mcpServer.deleteMany({ where: { id: row.id } })
    if (!count) throw notFound('MCP')
    await audit(tx, actor, 'mcp.delete', id, deps.clock.now())
  })
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
    throw badRequest(`Invalid credentials. At most ${MAX_CREDENTIALS}`, { detail: 'Take some away with null.' })
  }
}

/** Returns the credentials of a server by name, for its requests only. Returns none if its address has changed. */
async function readCredentials(
  { db, wrappingKey }: ConnectDeps,
  { id: mcpId, organizationId, url }: ServerRow,
): Promise<Map<string, string>> {
  const place = { organizationId, mcpId }
  const rows = await db.mcpCredential.findMany({ where: { ...place, mcp: { url } } })
  if (!rows.length) return new Map()
  const { wrapped } = await db.dataKey.findUniqueOrThrow({ where: { organizationId }, select: { wrapped: true } })
  const dataKey = unseal(wrappingKey, dataKeyPlace(organizationId), wrapped)
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
    const client = await connect(deps, row, signal).catch((error: unknown) => {
      signal.throwIfAborted()
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

/** Returns the public reason why a server cannot be used. Other errors are only logged. */
export const whyUnreachable = (error: unknown): string =>
  isNotSent(error) || error instanceof UnreachableServer ? error.message : 'the connection failed'

export type ConnectDeps = Pick<Deps, 'db' | 'settings' | 'wrappingKey' | 'log' | 'operatorServers'>

type ServerRow = Pick<
  Prisma.McpServerGetPayload<object>,
  'id' | 'organizationId' | 'source' | 'url' | 'transport' | 'headers' | 'writtenBy'
>

/** The run that a connection is for: its space, and whether its agent belongs to another organization. */
export type ConnectFor = { spaceId: string | null; isForeign: boolean }

const NO_RUN: ConnectFor = { spaceId: null, isForeign: false }

/**
 * Connects to a server with its credentials filled in. Throws the signal's reason, or an error that states why the
 * server cannot be reached.
 */
export async function connect(
  deps: ConnectDeps,
  row: ServerRow,
  signal: AbortSignal,
  run: ConnectFor = NO_RUN,
): Promise<McpClient> {
  const declared = isOperators(row) ? await deps.operatorServers.find(row.id) : null
  if (declared?.kind === 'program') return deps.operatorServers.connect(row.id, declared, run.spaceId, signal)
  const { url: stored, headers: templates, transport } = declared ?? { ...row, headers: headersOf(row) }
  // Imported on demand, because the import would dominate the start-up time.
  const [{ connectMcp }, credentials] = await Promise.all([
    import('./client.ts'),
    declared ? new Map<string, string>() : readCredentials(deps, row),
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
  return connectMcp(
    { url, transport, headers, ...leads, proxyFor, toolTimeout, secrets, onFailure, mayRedirect: !others.length },
    signal,
  )
}

/** Returns a header's value with a secret in it. A value that no header can have is refused without repeating it. */
function headerOf(value: string): string {
  if (!/^[\t\x20-\x7e]*$/.test(value)) throw new SecretNotAllowed('A secret is no text that a header can contain')
  return value
}
