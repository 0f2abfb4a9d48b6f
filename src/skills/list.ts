import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Db, Prisma } from '../db/client.ts'
import { totalOf } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { cutTexts, encodeCursor, isBehind, isCursor, MAX_ROWS, pageQuery, readPage } from '../lib/page.ts'
import { having, searchable } from '../lib/search.ts'
import { CORE_SKILLS } from './core.ts'
import {
  coreSkills,
  isForeign,
  listed,
  type SkillOutput,
  type SkillRow,
  searchColumns,
  toSkill,
  type Viewer,
} from './rows.ts'
import type { ListSkills } from './schema.ts'

// The list of skills: the organization's, the built-in ones, and those of other organizations.

/** A filter of the list of skills. */
type Wanted = Pick<z.output<typeof ListSkills>, 'category' | 'search'>

const matching = ({ category, search }: Wanted): Prisma.SkillWhereInput => ({
  ...(category && { category }),
  ...having(search),
})

/** Counts the skills that {@link listed} finds and the built-in ones. With a filter it counts row by row. */
async function countAll(viewer: Viewer, db: Db, wanted: Wanted): Promise<number> {
  const { organizationId, userId } = viewer
  const shipped = shippedOf(wanted).length
  if (wanted.category || wanted.search) {
    const counts = await Promise.all(
      listed(viewer).map((where) => db.skill.count({ where: { AND: [where, matching(wanted)] } })),
    )
    return counts.reduce((sum, count) => sum + count, shipped)
  }
  const users = { in: ['', userId] }
  return shipped + (await totalOf(db, { organizationId: { in: ['', organizationId] }, list: 'skills', userId: users }))
}

/** Returns the built-in skills that {@link matching} would find if they were rows. */
const shippedOf = ({ category, search }: Wanted) =>
  CORE_SKILLS.filter(
    (skill) =>
      (category === undefined || skill.category === category) &&
      (!search || searchColumns(skill).searchText.includes(searchable(search))),
  )

const COLUMNS = {
  id: true,
  organizationId: true,
  ownerId: true,
  name: true,
  displayName: true,
  description: true,
  category: true,
  builtInTools: true,
  requiredMCPs: true,
  visibility: true,
  version: true,
  createdAt: true,
  updatedAt: true,
} as const

type ListedRow = Omit<SkillRow, 'prompt' | 'searchText'> & { prompt?: string }

/** Prefix of cursors of other organizations' skills, which follow the caller's own. */
const MARKETPLACE = 'm~'

/** Returns the cursor of a skill in the viewer's list. */
export const cursorOf = (viewer: Viewer, skill: Pick<SkillOutput, 'id' | 'organizationId' | 'createdAt'>): string =>
  (isForeign(viewer, skill) ? MARKETPLACE : '') + encodeCursor({ ...skill, createdAt: new Date(skill.createdAt) })

/** Returns whether a text has the form of such a cursor. */
export const isListCursor = (cursor: string): boolean =>
  isCursor(cursor.startsWith(MARKETPLACE) ? cursor.slice(MARKETPLACE.length) : cursor)

/**
 * Lists the organization's and the built-in skills, newest first, then other organizations' public ones, newest first.
 * So these never displace the caller's own from the first page. Reads the prompts only `withPrompts`, and cuts them
 * before a page ends early (contract-2.md section 1.20).
 */
export async function listPage(actor: Actor, { db }: Deps, input: z.output<typeof ListSkills>, withPrompts: boolean) {
  const { organizationId } = actor
  const select = { ...COLUMNS, ...(withPrompts && { prompt: true }) }
  const find = async (where: Prisma.SkillWhereInput, from: typeof input): Promise<ListedRow[]> => {
    const { where: after, ...query } = pageQuery(from)
    return db.skill.findMany({ where: { AND: [where, matching(input), after ?? {}] }, ...query, select })
  }
  const market: Prisma.SkillWhereInput = { visibility: 'public', organizationId: { not: organizationId } }
  const read = async (limit: number, cursor: string | undefined): Promise<ListedRow[]> => {
    const from = { ...input, limit, cursor }
    if (cursor?.startsWith(MARKETPLACE)) return find(market, { ...from, cursor: cursor.slice(MARKETPLACE.length) })
    const own = await findOwn(actor, from, find)
    return own.length > limit ? own : [...own, ...(await find(market, { ...from, cursor: undefined }))]
  }
  const toCursor = (row: ListedRow) => cursorOf(actor, { ...row, createdAt: row.createdAt.toISOString() })
  const { rows, hasMore } = await readPage<ListedRow & { truncated?: boolean }, string | undefined>(
    input.limit ?? MAX_ROWS,
    input.cursor,
    { read, positionOf: toCursor, cut: (row) => cutTexts(row, ['prompt']) },
  )
  const nextCursor = hasMore ? toCursor(rows.at(-1)!) : null
  const total = input.cursor !== undefined || nextCursor ? await countAll(actor, db, input) : rows.length
  const show = ({ truncated, ...row }: (typeof rows)[number]) => ({
    ...toSkill(actor, { prompt: '', ...row }),
    ...(truncated && { truncated }),
  })
  const skills = rows.map((row) => coreSkills.get(row.id) ?? show(row))
  return { skills, total, nextCursor }
}

/** Finds the organization's skills of a page, merged with the built-in ones. */
async function findOwn(
  { organizationId, userId: ownerId }: Actor,
  input: z.output<typeof ListSkills>,
  find: (where: Prisma.SkillWhereInput, from: typeof input) => Promise<ListedRow[]>,
): Promise<ListedRow[]> {
  // An index has the rows of each filter in page order, but not of their union.
  const wheres: Prisma.SkillWhereInput[] = [
    { organizationId, visibility: 'public' },
    { organizationId, visibility: 'organization' },
    { organizationId, visibility: 'private', ownerId },
  ]
  const found = await Promise.all(wheres.map((where) => find(where, input)))
  const shipped = shippedOf(input).map((skill) => ({
    ...skill,
    createdAt: new Date(skill.createdAt),
    updatedAt: new Date(skill.updatedAt),
  }))
  return [...found.flat(), ...shipped.filter((skill) => isBehind(skill, input))].sort(
    (a, b) => b.createdAt.getTime() - a.createdAt.getTime() || (a.id < b.id ? 1 : -1),
  )
}

/** GET /skills, by origin, without prompts. */
export async function list(actor: Actor, deps: Deps, input: z.output<typeof ListSkills>) {
  const { skills, ...page } = await listPage(actor, deps, input, false)
  const short = skills.map(({ prompt, ...skill }) => skill)
  const from = (wanted: SkillOutput['source']) => short.filter(({ source }) => source === wanted)
  const groups = { core: from('core'), organization: from('organization'), marketplace: from('marketplace') }
  return { skills: groups, ...page }
}
