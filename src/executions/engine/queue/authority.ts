import type { Actor } from '../../../auth/actor.ts'
import { fromColumn } from '../../../auth/scopes.ts'
import { type Db, Prisma, type Role } from '../../../db/client.ts'
import { forbidden, notFound, unauthorized } from '../../../errors.ts'
import type { ExecutionRow } from '../events/events.ts'

/** Current state of an MCP server at the time of a call. */
export type ServerNow = {
  url: string
  permissions: Prisma.JsonValue
  /** Whether the space of the run or its agent still has the server. */
  isAttached: boolean
  /** When its settings or credentials last changed (ms). */
  updatedAt: number
}

/** Rights of a run at this moment. `server` is null if the server is inactive, deleted or was not asked for. */
export type Authority = { actor: Actor; server: ServerNow | null }

type Run = Pick<ExecutionRow, 'organizationId' | 'userId' | 'scopes' | 'tokenId' | 'missionId' | 'spaceId' | 'agentId'>

type Row = {
  role: Role
  slug: string
  hasSpace: unknown
  tokenEnded: unknown
  url?: string | null
  permissions?: unknown
  inSpace?: unknown
  ofAgent?: unknown
  updatedAt?: unknown
}

/**
 * Reads in one statement the current rights of a run (contract-2.md section 8.4). They depend on the membership of its
 * user, the token that started the run, its space and, if `mcpId` names one, the MCP server. Throws 403 after the
 * membership has ended, 401 after the token was revoked, and 404 for a space that the user cannot reach any more. A
 * mission's runs outlive the token that wrote the mission, unless its revocation cascaded.
 */
export async function readAuthority(db: Db, run: Run, mcpId: string | null): Promise<Authority> {
  const { organizationId, userId, spaceId, tokenId, missionId } = run
  // Subqueries instead of joins, because SQLite replans a join with parameters on each execution.
  const [row] = await db.$queryRaw<Row[]>(Prisma.sql`
    SELECT m."role",
      (SELECT o."slug" FROM "Organization" o WHERE o."id" = m."organizationId") AS "slug",
      EXISTS (SELECT 1 FROM "Space" s WHERE s."id" = ${spaceId} AND s."archivedAt" IS NULL
        AND (s."visibility" <> 'private' OR s."ownerId" = m."userId" OR m."role" <> 'member')) AS "hasSpace",
      EXISTS (SELECT 1 FROM "Token" t WHERE t."id" = ${missionId === null ? tokenId : null}
        AND t."revokedAt" IS NOT NULL) AS "tokenEnded"
      ${mcpId === null ? Prisma.empty : serverColumns(run, mcpId)}
    FROM "Membership" m WHERE m."organizationId" = ${organizationId} AND m."userId" = ${userId}`)
  if (!row) throw forbidden()
  if (row.tokenEnded) throw unauthorized('The token that started this run was revoked')
  if (!row.hasSpace) throw notFound('Space')
  const scopes = fromColumn(run.scopes)
  const actor = { userId, organizationId, organizationSlug: row.slug, role: row.role, scopes, tokenId: tokenId ?? '' }
  return { actor, server: mcpId === null ? null : serverOf(row, mcpId) }
}

const serverColumns = ({ spaceId, agentId }: Run, mcpId: string) => Prisma.sql`,
  (SELECT c."url" FROM "McpServer" c
    WHERE c."id" = ${mcpId} AND c."organizationId" = m."organizationId" AND c."isActive" = ${true}) AS "url",
  (SELECT c."permissions" FROM "McpServer" c WHERE c."id" = ${mcpId}) AS "permissions",
  EXISTS (SELECT 1 FROM "SpaceMcp" r
    WHERE r."spaceId" = ${spaceId} AND r."mcpId" = ${mcpId} AND r."enabled" = ${true}) AS "inSpace",
  (SELECT a."mcpInstanceIds" FROM "Agent" a
    WHERE a."id" = ${agentId} AND a."organizationId" = m."organizationId") AS "ofAgent",
  (SELECT c."updatedAt" FROM "McpServer" c WHERE c."id" = ${mcpId}) AS "updatedAt"`

function serverOf({ url, permissions, inSpace, ofAgent, updatedAt }: Row, mcpId: string): ServerNow | null {
  if (!url) return null
  const attached = jsonOf(ofAgent) as string[] | null | undefined
  return {
    url,
    permissions: jsonOf(permissions) as Prisma.JsonValue,
    isAttached: Boolean(inSpace) || Boolean(attached?.includes(mcpId)),
    updatedAt: new Date(updatedAt as string | number | Date).getTime(),
  }
}

/** Parses a JSON column of a raw row, which SQLite returns as text. */
const jsonOf = (value: unknown): unknown => (typeof value === 'string' ? JSON.parse(value) : value)
