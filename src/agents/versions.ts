import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { invalidCursor } from '../errors.ts'
import { decodePosition, encodePosition, MAX_ROWS, readPage, withByteBudget } from '../lib/page.ts'
import { filterReferences } from './references.ts'
import { type AgentRow, find, fromVersion, shortened, toAgent } from './rows.ts'
import type { ListVersions } from './schema.ts'

const versionCursor = ({ version }: { version: number }) => encodePosition(version)

function versionAt(cursor: string): number {
  const [version] = /^\d{1,9}$/.exec(decodePosition(cursor)) ?? []
  if (!version) throw invalidCursor()
  return Number(version)
}

const MAX_VERSION = 2 ** 31 - 1

/**
 * Filters versions. They keep the visibility of their time: private ones belong to the owner (contract-2.md section
 * 8.6).
 */
export const seenVersions = ({ userId }: Actor): Prisma.AgentVersionWhereInput => ({
  OR: [{ visibility: { not: 'private' } }, { of: { userId } }],
})

/** GET /agents/{id}/versions, newest first. */
export async function versions(
  actor: Actor,
  deps: Deps,
  { id, limit = MAX_ROWS, cursor }: z.output<typeof ListVersions>,
) {
  const below = cursor === undefined ? MAX_VERSION : versionAt(cursor)
  const { id: agentId } = await find(actor, deps, id)
  type VersionRow = Prisma.AgentVersionGetPayload<object>
  const { rows, hasMore } = await readPage<VersionRow, number>(limit, below, {
    read: (most, lt) =>
      deps.db.agentVersion.findMany({
        where: { agentId, version: { lt }, ...seenVersions(actor) },
        orderBy: { version: 'desc' },
        ...withByteBudget({ take: most + 1 }),
      }),
    positionOf: ({ version }) => version,
    cut: (row) => ({ ...row, agent: shortened(fromVersion(row.agent)) }) as VersionRow,
  })
  const nextCursor = hasMore ? versionCursor(rows.at(-1)!) : null
  const agents = await filterReferences(
    actor,
    deps,
    rows.map(({ agent }) => fromVersion(agent)),
  )
  return {
    versions: rows.map(({ version, createdAt, userId }, index) => ({
      version,
      createdAt: createdAt.toISOString(),
      userId,
      agent: agents[index]!,
    })),
    nextCursor,
  }
}

/** Returns the version that records a changed agent. */
export const toVersion = (actor: Actor, row: AgentRow): Prisma.AgentVersionCreateManyInput => ({
  organizationId: row.organizationId,
  agentId: row.id,
  version: row.version,
  visibility: row.visibility,
  userId: actor.userId,
  createdAt: row.updatedAt,
  agent: toAgent(row) as Prisma.InputJsonObject,
})
