import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Db, Prisma } from '../db/client.ts'
import { totalOf } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { listPage } from '../lib/page.ts'
import { having } from '../lib/search.ts'
import { LONG_TEXTS, type McpRow, NAMES, reachable, readConnections, toMcp } from './rows.ts'
import type { ListMcps } from './schema.ts'

// The list of the organization's MCP servers.

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
