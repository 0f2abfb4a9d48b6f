import type { z } from 'zod'
import type { Prisma } from '../db/client.ts'
import { totalOf } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { notFound } from '../errors.ts'
import { LIST_COLUMNS } from './agent-cache.ts'
import { matching, pageOfAgents, totalsOf } from './list.ts'
import { strings } from './rows.ts'
import type { AgentCard, ListPublicAgents } from './schema.ts'
import { slugOf } from './slugs.ts'
import { publiclyVisible } from './visibility.ts'

// The public directory: cards of all organizations' agents (contract-2.md section 1.15).

const CARD = {
  ...LIST_COLUMNS,
  name: true,
  slug: true,
  role: true,
  description: true,
  tags: true,
  organization: { select: { name: true } },
} as const

type CardRow = Prisma.AgentGetPayload<{ select: typeof CARD }>

const toCard = (row: CardRow): z.output<typeof AgentCard> => ({
  id: row.id,
  name: row.name,
  slug: row.slug ?? slugOf(row.name),
  role: row.role,
  description: row.description,
  tags: strings(row.tags),
  organizationName: row.organization.name,
})

/** Returns the filter of `listPublic`. */
export const publiclyVisibleBy = (deps: Pick<Deps, 'db' | 'settings'>, input: z.output<typeof ListPublicAgents>) =>
  matching(deps, publiclyVisible('listed'), input)

/** Returns how many agents match `where`, the result of {@link publiclyVisibleBy}. Counts rows if there is a search. */
export const countPubliclyVisible = (
  { db }: Pick<Deps, 'db'>,
  { search, tag }: z.output<typeof ListPublicAgents>,
  where: Prisma.AgentWhereInput,
): Promise<number> =>
  search ? db.agent.count({ where }) : totalOf(db, { organizationId: '', ...totalsOf(['public'], tag) })

/** GET /public/agents: all organizations' public agents, as cards. */
export async function listPublic(deps: Deps, input: z.output<typeof ListPublicAgents>) {
  const where = await publiclyVisibleBy(deps, input)
  const { rows, ...page } = await pageOfAgents(
    where,
    input,
    () => countPubliclyVisible(deps, input, where),
    (query) => deps.db.agent.findMany({ ...query, select: CARD }),
  )
  return { agents: rows.map(toCard), ...page }
}

/** GET /public/agents/{id}: the card of a public or unlisted agent. */
export async function getPublic({ db }: Deps, id: string) {
  const row = await db.agent.findFirst({ where: { id, ...publiclyVisible('byId') }, select: CARD })
  if (!row) throw notFound('Agent')
  return { agent: toCard(row) }
}
