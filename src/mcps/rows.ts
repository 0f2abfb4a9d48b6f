import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Prisma, Tx } from '../db/client.ts'
import { notFound } from '../errors.ts'
import { searchedIn } from '../lib/search.ts'
import { permissionsOf } from './modes.ts'
import { type ConnectionState, stateOf } from './oauth/connections.ts'
import type { Mcp } from './schema.ts'

// Finds the rows of MCP servers and converts them for the API, with the caller's connections.

/** An MCP server with the names of its credentials. */
export type McpRow = Prisma.McpServerGetPayload<{ include: typeof NAMES }>

/** Includes the names of a server's credentials, never their values. */
export const NAMES = {
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
export async function readConnections({ userId }: Actor, { db }: { db: Tx }, rows: readonly McpRow[]) {
  const ids = rows.flatMap(({ id, auth }) => (auth === 'oauth' ? id : []))
  const where = { userId, mcpId: { in: ids } }
  const found = ids.length ? await db.mcpConnection.findMany({ where, select: { ...CONNECTION, mcpId: true } }) : []
  const byServer = new Map(found.map((row) => [row.mcpId, row]))
  return (row: McpRow) => toConnection(row, byServer.get(row.id))
}

export const toMcp = (row: McpRow & { truncated?: boolean }, connection: OwnConnection): z.input<typeof Mcp> => ({
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
