import type { Actor } from '../auth/actor.ts'
import { type Db, Prisma, type Tx } from '../db/client.ts'
import { isHiddenBy } from '../db/counting.ts'
import { padToPowerOfTwo } from '../db/fast-path/index.ts'
import { notFound } from '../errors.ts'
import { chunk } from '../lib/chunk.ts'

// A branch is a session that continues another one from a position on (contract-2.md section 1.12). The path of a
// branch consists of its sessions from the first turn on, each up to the position where the next one begins.

const PART = {
  id: true,
  chatId: true,
  rootSessionId: true,
  activeBranchId: true,
  parentSessionId: true,
  parentPosition: true,
} as const

type Part = Prisma.SessionGetPayload<{ select: typeof PART }>

/** Returns the sessions on the path of a branch, with the position up to which each belongs to it. */
function wayOf(branch: Part | undefined, byId: ReadonlyMap<string, Part>): ReadonlyMap<string, number> {
  const way = new Map<string, number>()
  let upTo = Number.POSITIVE_INFINITY
  for (let part = branch; part; part = byId.get(part.parentSessionId ?? '')) {
    way.set(part.id, upTo)
    upTo = part.parentPosition ?? 0
  }
  return way
}

/** Maximum number of conditions in one OR. SQLite nests them, at most 1,000 deep. */
const MAX_TOGETHER = 100

function anyOf(conditions: readonly Prisma.MessageWhereInput[]): Prisma.MessageWhereInput {
  if (conditions.length <= MAX_TOGETHER) return { OR: [...conditions] }
  return anyOf([...chunk(conditions, MAX_TOGETHER)].map(anyOf))
}

/** Returns the filter for messages on the active branches of some chats. Sessions without branches are not filtered. */
async function inActiveBranches(
  db: Tx,
  organizationId: string,
  chatIds: readonly string[],
): Promise<Prisma.MessageWhereInput> {
  if (!chatIds.length) return {}
  const where = { organizationId, chatId: { in: [...chatIds] }, chat: { isBranched: true } }
  const parts = await db.session.findMany({ where, select: PART })
  const byId = new Map(parts.map((part) => [part.id, part]))
  const left: string[] = []
  const cut: Prisma.MessageWhereInput[] = []
  for (const [rootId, group] of Map.groupBy(parts, ({ id, rootSessionId }) => rootSessionId ?? id)) {
    if (group.length === 1) continue
    const way = wayOf(byId.get(byId.get(rootId)?.activeBranchId ?? rootId), byId)
    for (const { id } of group) {
      const upTo = way.get(id)
      if (upTo === undefined) left.push(id)
      else if (Number.isFinite(upTo)) cut.push({ sessionId: id, position: { gt: upTo } })
    }
  }
  const inactive = [...[...chunk(left, MAX_TOGETHER)].map((ids) => ({ sessionId: { in: ids } })), ...cut]
  return inactive.length ? { NOT: anyOf(inactive) } : {}
}

/**
 * Returns the filter for messages on the path of one branch. Throws 404 for a session that is not visible or belongs to
 * another chat.
 */
async function inBranch(
  db: Tx,
  organizationId: string,
  visible: Prisma.SessionWhereInput,
  chatIds: readonly string[],
  id: string,
): Promise<Prisma.MessageWhereInput> {
  const where = { AND: [{ id, chatId: { in: [...chatIds] } }, visible] }
  const branch = await db.session.findFirst({ where, select: PART })
  if (!branch) throw notFound('Session')
  const root = branch.rootSessionId ?? branch.id
  const group = { organizationId, chatId: branch.chatId, OR: [{ id: root }, { rootSessionId: root }] }
  const parts = await db.session.findMany({ where: group, select: PART })
  const way = wayOf(branch, new Map(parts.map((part) => [part.id, part])))
  return anyOf(
    Array.from(way, ([id, upTo]) => ({ sessionId: id, ...(Number.isFinite(upTo) && { position: { lte: upTo } }) })),
  )
}

/** Returns the filter for the requested messages of some chats: `all`, those of one branch, or of the active ones. */
export async function ofBranch(
  db: Tx,
  { organizationId }: Actor,
  visible: Prisma.SessionWhereInput,
  chatIds: readonly string[],
  branch: string | undefined,
): Promise<Prisma.MessageWhereInput> {
  if (branch === 'all') return {}
  return branch === undefined
    ? inActiveBranches(db, organizationId, chatIds)
    : inBranch(db, organizationId, visible, chatIds, branch)
}

/** Counts the messages on the active branches of some chats, in one statement. `hidden` applies to sessions `t`. */
export async function countActive(
  db: Db,
  organizationId: string,
  chatIds: readonly string[],
  hidden: Prisma.Sql,
): Promise<ReadonlyMap<string, number>> {
  if (!chatIds.length) return new Map()
  const rows = await db.$queryRaw<{ chatId: string; count: number | bigint }[]>(Prisma.sql`
    WITH RECURSIVE "way" ("chatId", "id", "upTo", "parentId", "parentPosition") AS (
      SELECT s."chatId", s."id", 2147483647, s."parentSessionId", s."parentPosition"
        FROM "Session" t JOIN "Session" s ON s."id" = coalesce(t."activeBranchId", t."id")
        WHERE t."organizationId" = ${organizationId} AND t."chatId" IN (${Prisma.join(padToPowerOfTwo([...chatIds]))})
          AND t."rootSessionId" IS NULL AND NOT ${hidden}
      UNION ALL SELECT s."chatId", s."id", w."parentPosition", s."parentSessionId", s."parentPosition"
        FROM "way" w JOIN "Session" s ON s."id" = w."parentId")
    SELECT w."chatId", count(*) AS "count"
    FROM "way" w JOIN "Message" m ON m."sessionId" = w."id" AND m."position" <= w."upTo" GROUP BY w."chatId"`)
  return new Map(rows.map(({ chatId, count }) => [chatId, Number(count)]))
}

/** Returns the condition for sessions `t` that the caller may not see. */
export const hiddenSessions = (
  { organizationId, userId }: Actor,
  agents: Parameters<typeof isHiddenBy>[1],
): Prisma.Sql =>
  Prisma.sql`(${isHiddenBy(organizationId, agents)} OR (t."wasPrivate" = ${true}
    AND (SELECT a."userId" FROM "Agent" a WHERE a."id" = t."agentId") <> ${userId}))`

/** Returns the message before each of these messages, by id, in one statement. */
export async function parentsOf(db: Tx, ids: readonly string[]): Promise<ReadonlyMap<string, string>> {
  if (!ids.length) return new Map()
  const rows = await db.$queryRaw<{ id: string; parentId: string | null }[]>(Prisma.sql`
    WITH RECURSIVE "way" ("id", "sessionId", "upTo") AS (
      SELECT m."id", m."sessionId", m."position" - 1 FROM "Message" m WHERE m."id" IN (${Prisma.join(padToPowerOfTwo([...ids]))})
      UNION ALL SELECT w."id", s."parentSessionId", s."parentPosition"
        FROM "way" w JOIN "Session" s ON s."id" = w."sessionId"
        WHERE s."parentSessionId" IS NOT NULL AND NOT EXISTS (
          SELECT 1 FROM "Message" p WHERE p."sessionId" = w."sessionId" AND p."position" <= w."upTo"))
    SELECT w."id", (
      SELECT p."id" FROM "Message" p WHERE p."sessionId" = w."sessionId" AND p."position" <= w."upTo"
      ORDER BY p."position" DESC LIMIT 1) AS "parentId"
    FROM "way" w`)
  return new Map(rows.flatMap(({ id, parentId }) => (parentId === null ? [] : [[id, parentId] as const])))
}
