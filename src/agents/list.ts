import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Prisma } from '../db/client.ts'
import { totalOf } from '../db/totals.ts'
import { whereWithoutIndex } from '../db/without-index.ts'
import type { Deps } from '../deps.ts'
import { encodeCursor, pageQuery, toPage } from '../lib/page.ts'
import { having } from '../lib/search.ts'
import { type Head, LIST_COLUMNS, loadAgents } from './agent-cache.ts'
import { filterReferences } from './references.ts'
import { type ListAgents, type ListPublicAgents, Visibility } from './schema.ts'
import { findRare, findTagged, type Listed } from './search.ts'
import { listed, sharedBy } from './visibility.ts'

// The list of the organization's agents, with the parts that the public directory shares.

/**
 * Returns the condition for agents that match a filter and a search. Rare tags and texts are resolved to ids first; the
 * remaining conditions must not choose the index, because SQLite would read all other agents.
 */
export async function matching(
  deps: Pick<Deps, 'db' | 'settings'>,
  where: Listed,
  { search, tag, category }: { search?: string | undefined; tag?: string | undefined; category?: string | undefined },
): Promise<Prisma.AgentWhereInput> {
  const list = where as Prisma.AgentWhereInput
  const wanted = [
    list,
    having(search),
    tag === undefined ? {} : { tagRows: { some: { tag } } },
    category === undefined ? {} : { category },
  ]
  const named =
    (tag === undefined ? null : await findTagged(deps, tag, where)) ??
    (search ? await findRare(deps, search, where) : null)
  return named ? { id: { in: named }, ...whereWithoutIndex({ AND: wanted }) } : { AND: wanted }
}

/** Counts only if the rows do not determine the count. */
export async function pageOfAgents<Row extends Head>(
  where: Prisma.AgentWhereInput,
  input: z.output<typeof ListPublicAgents>,
  count: () => Promise<number>,
  read: (query: Omit<ReturnType<typeof pageQuery>, 'where'> & { where: Prisma.AgentWhereInput }) => Promise<Row[]>,
) {
  const { where: after, ...page } = pageQuery(input)
  const found = await read({ where: { AND: [where, after ?? {}] }, ...page })
  const { rows, nextCursor } = toPage(found, input)
  const total = after || nextCursor ? await count() : rows.length
  return { rows, nextCursor, total }
}

/** Returns the filter for the kept totals of shared agents, of those with a tag if one is given. */
export const totalsOf = (visibilities: readonly string[], tag: string | undefined): Prisma.TotalWhereInput =>
  tag === undefined
    ? { list: 'agents', value: { in: [...visibilities] } }
    : { list: 'tagged agents', value: { in: visibilities.map((visibility) => `${visibility} ${tag}`) } }

/** Returns the filter of `list`: its input on top of {@link listed}. */
export const listedBy = (actor: Actor, deps: Pick<Deps, 'db' | 'settings'>, input: z.output<typeof ListAgents>) =>
  matching(deps, listed(actor, input), input)

/**
 * Returns how many agents match `where`, the result of {@link listedBy}. Counts rows if the filters include a search, a
 * category, or a tag among the caller's own agents.
 */
export function countListed(
  { organizationId, userId }: Actor,
  { db }: Pick<Deps, 'db'>,
  input: z.output<typeof ListAgents>,
  where: Prisma.AgentWhereInput,
): Promise<number> {
  const { owner, visibility, tag, category, search } = input
  if (search || category !== undefined || (owner && tag !== undefined)) return db.agent.count({ where })
  if (!owner) return totalOf(db, { organizationId, ...totalsOf(sharedBy(input), tag) })
  return totalOf(db, { organizationId, list: 'agents', userId, value: visibility ?? { in: Visibility.options } })
}

/** GET /agents (contract.md section 2). */
export async function list(actor: Actor, deps: Deps, input: z.output<typeof ListAgents>) {
  const where = await listedBy(actor, deps, input)
  const { rows, nextCursor, total } = await pageOfAgents(
    where,
    input,
    () => countListed(actor, deps, input, where),
    // All heads fit in a page.
    ({ where, orderBy, take }) => deps.db.agent.findMany({ where, orderBy, take, select: LIST_COLUMNS }),
  )
  const { agents, count } = await loadAgents(deps, where, rows)
  const last = count < rows.length ? rows[count - 1] : undefined
  return {
    agents: await filterReferences(actor, deps, agents),
    nextCursor: last ? encodeCursor(last) : nextCursor,
    total,
  }
}
