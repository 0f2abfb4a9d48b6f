import type { z } from 'zod'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Db, Prisma, Tx } from '../db/client.ts'
import { totalOf } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { badRequest, conflict, forbidden, notFound } from '../errors.ts'
import { given, isNews } from '../lib/changes.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import { newId } from '../lib/id.ts'
import { encodeCursor, isBehind, isCursor, MAX_ROWS, pageOf, pageQuery } from '../lib/page.ts'
import { cut } from '../lib/text.ts'
import { CORE_SKILLS, toDisplayName } from './core.ts'
import { type CreateSkill, type ListSkills, type Skill, type UpdateSkill, unknownTools } from './schema.ts'

/** Who looks: a user in an organization. */
type Viewer = Pick<Actor, 'organizationId' | 'userId'>
type SkillRow = Prisma.SkillGetPayload<object>
export type SkillOutput = z.input<typeof Skill>

/**
 * The organization's, private ones for their owner only, and everybody's public ones (contract.md section 7): filters
 * that have no row in common. An index has the rows of each in the order of a page, and none has those of all.
 */
export const listed = ({ organizationId, userId }: Viewer): Prisma.SkillWhereInput[] => [
  { visibility: 'public' },
  { organizationId, visibility: 'organization' },
  { organizationId, visibility: 'private', ownerId: userId },
]

const reachable = (viewer: Viewer): Prisma.SkillWhereInput => ({ OR: listed(viewer) })

/** Changing is for the owner and for admins, within the organization (contract.md section 2). */
const authorize = (actor: Actor, skill: SkillRow): Authorized<SkillRow> =>
  permit(skill, skill.organizationId === actor.organizationId && (skill.ownerId === actor.userId || isAdmin(actor)))

const toSkill = ({ organizationId }: Pick<Viewer, 'organizationId'>, row: SkillRow): SkillOutput => ({
  id: row.id,
  name: row.name,
  displayName: row.displayName,
  description: row.description,
  prompt: row.prompt,
  category: row.category as SkillOutput['category'],
  builtInTools: row.builtInTools as string[],
  requiredMCPs: row.requiredMCPs as string[],
  visibility: row.visibility,
  source: row.organizationId === organizationId ? 'organization' : 'marketplace',
  organizationId: row.organizationId,
  ownerId: row.ownerId,
  version: row.version,
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
})

/** Counts what {@link listed} finds and the skills that come with the service: those of one category row by row. */
async function countAll(viewer: Viewer, db: Db, category: SkillOutput['category'] | undefined): Promise<number> {
  const { organizationId, userId } = viewer
  const shipped = shippedOf(category).length
  if (category) {
    const counts = await Promise.all(
      listed(viewer).map((where) => db.skill.count({ where: { AND: [where, { category }] } })),
    )
    return counts.reduce((sum, count) => sum + count, shipped)
  }
  const users = { in: ['', userId] }
  return shipped + (await totalOf(db, { organizationId: { in: ['', organizationId] }, list: 'skills', userId: users }))
}

const shippedOf = (category: SkillOutput['category'] | undefined) =>
  CORE_SKILLS.filter((skill) => category === undefined || skill.category === category)

const core = new Map(CORE_SKILLS.map((skill) => [skill.id, skill]))

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

type ListedRow = Omit<SkillRow, 'prompt'> & { prompt?: string }

/** What stands before the cursors of other organizations' skills, which follow when one's own are all shown. */
const MARKETPLACE = 'm~'

const isForeign = ({ organizationId }: Viewer, row: { id: string; organizationId: string }) =>
  row.organizationId !== organizationId && !core.has(row.id)

/** Makes the cursor of a skill in the list that somebody sees. */
export const cursorOf = (viewer: Viewer, skill: Pick<SkillOutput, 'id' | 'organizationId' | 'createdAt'>): string =>
  (isForeign(viewer, skill) ? MARKETPLACE : '') + encodeCursor({ ...skill, createdAt: new Date(skill.createdAt) })

/** Tells whether a text has the form of such a cursor. */
export const isListCursor = (cursor: string): boolean =>
  isCursor(cursor.startsWith(MARKETPLACE) ? cursor.slice(MARKETPLACE.length) : cursor)

/**
 * Lists the organization's skills and those that come with the service, newest first, and behind them other
 * organizations' public ones, newest first: however many there are, they leave the first page to one's own. The prompts
 * are read only `withPrompts`.
 */
export async function listPage(actor: Actor, { db }: Deps, input: z.output<typeof ListSkills>, withPrompts: boolean) {
  const { organizationId } = actor
  const { category } = input
  const inMarketplace = input.cursor?.startsWith(MARKETPLACE) ?? false
  const select = { ...COLUMNS, ...(withPrompts && { prompt: true }) }
  const find = async (where: Prisma.SkillWhereInput, from: typeof input): Promise<ListedRow[]> => {
    const { where: after, ...query } = pageQuery(from)
    return db.skill.findMany({ where: { AND: [where, category ? { category } : {}, after ?? {}] }, ...query, select })
  }
  const own = inMarketplace ? [] : await findOwn(actor, input, find)
  const isFull = own.length > (input.limit ?? MAX_ROWS)
  const cursor = inMarketplace ? input.cursor?.slice(MARKETPLACE.length) : undefined
  const market: Prisma.SkillWhereInput = { visibility: 'public', organizationId: { not: organizationId } }
  const foreign = isFull ? [] : await find(market, { ...input, cursor })
  const toCursor = (row: ListedRow) => cursorOf(actor, { ...row, createdAt: row.createdAt.toISOString() })
  const { rows, nextCursor } = pageOf([...own, ...foreign], input.limit, toCursor)
  const total = input.cursor !== undefined || nextCursor ? await countAll(actor, db, category) : rows.length
  const skills = rows.map((row) => core.get(row.id) ?? toSkill(actor, { prompt: '', ...row }))
  return { skills, total, nextCursor }
}

/** One's own skills of a page and those that come with the service, which have their place among them. */
async function findOwn(
  { organizationId, userId: ownerId }: Actor,
  input: z.output<typeof ListSkills>,
  find: (where: Prisma.SkillWhereInput, from: typeof input) => Promise<ListedRow[]>,
): Promise<ListedRow[]> {
  // An index has the rows of each in the order of a page, and none has those of all.
  const wheres: Prisma.SkillWhereInput[] = [
    { organizationId, visibility: 'public' },
    { organizationId, visibility: 'organization' },
    { organizationId, visibility: 'private', ownerId },
  ]
  const found = await Promise.all(wheres.map((where) => find(where, input)))
  const shipped = shippedOf(input.category).map((skill) => ({
    ...skill,
    createdAt: new Date(skill.createdAt),
    updatedAt: new Date(skill.updatedAt),
  }))
  return [...found.flat(), ...shipped.filter((skill) => isBehind(skill, input))].sort(
    (a, b) => b.createdAt.getTime() - a.createdAt.getTime() || (a.id < b.id ? 1 : -1),
  )
}

/** GET /skills, by where they come from, without their prompts. */
export async function list(actor: Actor, deps: Deps, input: z.output<typeof ListSkills>) {
  const { skills, ...page } = await listPage(actor, deps, input, false)
  const short = skills.map(({ prompt, ...skill }) => skill)
  const from = (wanted: SkillOutput['source']) => short.filter(({ source }) => source === wanted)
  const groups = { core: from('core'), organization: from('organization'), marketplace: from('marketplace') }
  return { skills: groups, ...page }
}

/** GET /skills/{id}. A public skill is there to be used: its prompt is shown, whoever's it is. */
export async function get(actor: Actor, { db }: Deps, id: string) {
  return { skill: core.get(id) ?? toSkill(actor, await find(actor, db, id)) }
}

async function find(actor: Actor, db: Tx, id: string): Promise<SkillRow> {
  const row = await db.skill.findFirst({ where: { id, ...reachable(actor) } })
  if (!row) throw notFound('Skill')
  return row
}

/** Those of the ids that are rows which somebody can reach; null when none can be. */
function rowsOf(viewer: Viewer, ids: readonly string[]): Prisma.SkillWhereInput | null {
  const rows = [...new Set(ids)].filter((id) => !core.has(id))
  return rows.length ? { id: { in: rows }, ...reachable(viewer) } : null
}

/** The newest version of a skill, and whether it is of another organization. */
export type Newest = { version: number; foreign: boolean }

/** The newest versions of those of the ids that somebody can reach: one statement at most. */
export async function findVersions(viewer: Viewer, db: Tx, ids: readonly string[]): Promise<Map<string, Newest>> {
  const where = rowsOf(viewer, ids)
  const select = { id: true, version: true, organizationId: true } as const
  const rows = where ? await db.skill.findMany({ where, select }) : []
  const own = [...core.values()].map(({ id, version }) => [id, { version, foreign: false }] as const)
  return new Map([
    ...own,
    ...rows.map((row) => [row.id, { version: row.version, foreign: isForeign(viewer, row) }] as const),
  ])
}

/** A skill that is attached, and at which version; null for the newest. */
export type Pin = { skillId: string; version: number | null }

/** Shows at which version a skill is attached: at the newest where none is pinned, or the policy says so. */
export const toAttachedAt = (pinned: number | null | undefined, newest: Newest, isLatest: boolean) => ({
  version: isLatest ? newest.version : (pinned ?? newest.version),
  latestVersion: newest.version,
  foreign: newest.foreign,
})

/** Skills as they were at the versions that are pinned, by id: one statement at most, none where nothing has changed. */
export async function atPins(
  db: Tx,
  skills: readonly SkillOutput[],
  pins: ReadonlyMap<string, number | null>,
): Promise<SkillOutput[]> {
  const older = skills.flatMap(({ id: skillId, version: newest }) => {
    const version = pins.get(skillId) ?? newest
    return version === newest ? [] : { skillId, version }
  })
  const rows = older.length ? await db.skillVersion.findMany({ where: { OR: older } }) : []
  const found = new Map(rows.map((row) => [row.skillId, row]))
  return skills.map((skill) => {
    const row = found.get(skill.id)
    return row ? { ...skill, ...fieldsOf(row), version: row.version } : skill
  })
}

const fieldsOf = (row: Prisma.SkillVersionGetPayload<object>) => ({
  name: row.name,
  displayName: row.displayName,
  description: row.description,
  prompt: row.prompt,
  category: row.category as SkillOutput['category'],
  builtInTools: row.builtInTools as string[],
  requiredMCPs: row.requiredMCPs as string[],
})

/** Every change of a skill leaves its version, by which it is attached. */
async function recordVersion(tx: Tx, { userId }: Actor, row: SkillRow): Promise<void> {
  const { organizationId, id: skillId, version, updatedAt: createdAt } = row
  const { name, displayName, description, prompt, category, builtInTools, requiredMCPs } = toSkill(row, row)
  const fields = { name, displayName, description, prompt, category, builtInTools, requiredMCPs }
  await tx.skillVersion.createMany({ data: { organizationId, skillId, version, userId, createdAt, ...fields } })
}

/** The same as skills, in the order of the ids. */
export async function findMany(viewer: Viewer, db: Tx, ids: readonly string[]): Promise<SkillOutput[]> {
  const where = rowsOf(viewer, ids)
  const rows = where ? await db.skill.findMany({ where }) : []
  const known = new Map([...core, ...rows.map((row) => [row.id, toSkill(viewer, row)] as const)])
  return ids.flatMap((id) => known.get(id) ?? [])
}

/**
 * Said where a skill is attached: 400 for one that needs MCP servers of types that are not there (contract.md section
 * 7, "Skills").
 */
export function checkRequirements(skills: readonly SkillOutput[], mcpTypes: readonly string[]): void {
  for (const { name, requiredMCPs } of skills) {
    const missing = requiredMCPs.filter((type) => !mcpTypes.includes(type))
    if (missing.length) throw badRequest(`Skill ${name} requires the MCP servers: ${missing.join(', ')}`)
  }
}

/** A name is unique in the organization. */
async function unlessTaken<T>(write: Promise<T>): Promise<T> {
  try {
    return await write
  } catch (error) {
    throw isUniqueViolation(error) ? conflict('Skill name already exists') : error
  }
}

/** POST /skills. 409 when the organization has one of that name, were it a private one. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateSkill>) {
  const { name, displayName, description, prompt, category, builtInTools, requiredMCPs, visibility } = input
  const { organizationId, userId: ownerId } = actor
  const now = deps.clock.now()
  const row = await deps.db.$transaction(async (tx) => {
    const data = {
      id: newId(),
      organizationId,
      ownerId,
      name,
      displayName: displayName?.trim() ? displayName : toDisplayName(name),
      description,
      prompt,
      category: category ?? 'other',
      builtInTools: builtInTools ?? [],
      requiredMCPs: requiredMCPs ?? [],
      visibility: visibility ?? 'organization',
      version: 1,
      createdAt: now,
      updatedAt: now,
    }
    const created = await unlessTaken(tx.skill.create({ data }))
    await recordVersion(tx, actor, created)
    await audit(tx, actor, 'skill.create', created.id, now)
    return created
  })
  return { id: row.id, name: row.name, skill: toSkill(actor, row), ...warningsOf(builtInTools) }
}

/** Names the built-in tools of a request that there are not: they are kept, and runs do without. */
function warningsOf(builtInTools: readonly string[] | null | undefined): { warnings?: string[] } {
  const unknown = unknownTools(builtInTools ?? [])
  return unknown.length ? { warnings: unknown.map((name) => cut(`Unknown built-in tool: ${name}`, 100)) } : {}
}

/** What the caller may change. 403 for what they only see: shipped skills, other people's. */
async function findWritable(actor: Actor, { db }: Deps, id: string): Promise<Authorized<SkillRow>> {
  if (core.has(id)) throw forbidden()
  return authorize(actor, await find(actor, db, id))
}

/**
 * PATCH /skills/{id}. A change of nothing makes no version. Where it is attached the version stays that was attached,
 * until somebody takes the newer one, or at once by the policy `attachments: latest`.
 */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateSkill>) {
  const skill = await findWritable(actor, deps, input.id)
  const { name, description, prompt, visibility } = input
  const displayName = input.displayName === null ? toDisplayName(name ?? skill.name) : input.displayName
  const category = input.category === null ? 'other' : input.category
  const builtInTools = input.builtInTools === null ? [] : input.builtInTools
  const requiredMCPs = input.requiredMCPs === null ? [] : input.requiredMCPs
  const said = given({ name, displayName, description, prompt, category, visibility, builtInTools, requiredMCPs })
  const warnings = warningsOf(builtInTools)
  if (!isNews(skill, said)) return { skill: toSkill(actor, skill), ...warnings }
  const now = deps.clock.now()
  const row = await deps.db.$transaction(async (tx) => {
    const data = { ...said, version: { increment: 1 }, updatedAt: now }
    const [changed] = await unlessTaken(tx.skill.updateManyAndReturn({ where: { id: skill.id }, data }))
    if (!changed) throw notFound('Skill')
    await recordVersion(tx, actor, changed)
    await audit(tx, actor, 'skill.update', skill.id, now)
    return changed
  })
  return { skill: toSkill(actor, row), ...warnings }
}

/** DELETE /skills/{id}. It is gone from agents and spaces, and from runs that begin later. */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const skill = await findWritable(actor, deps, id)
  await deps.db.$transaction(async (tx) => {
    const { organizationId } = skill
    const { count } = await tx.skill.deleteMany({ where: { id } })
    if (!count) throw notFound('Skill')
    // Once nobody attaches it any more. What names it elsewhere finds nothing from now on.
    await tx.spaceSkill.deleteMany({ where: { organizationId, skillId: id } })
    await audit(tx, actor, 'skill.delete', id, deps.clock.now())
  })
  return { message: 'Skill deleted successfully' }
}
