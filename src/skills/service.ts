import type { z } from 'zod'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Db, Prisma, Tx } from '../db/client.ts'
import { totalOf } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { badRequest, conflict, forbidden, notFound } from '../errors.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import { newId } from '../lib/id.ts'
import { cutTexts, encodeCursor, isBehind, isCursor, MAX_ROWS, pageQuery, readPage } from '../lib/page.ts'
import { having, searchable, searchedIn } from '../lib/search.ts'
import { CORE_SKILLS, toDisplayName } from './core.ts'
import { type CreateSkill, type ListSkills, type Skill, toolWarnings, type UpdateSkill } from './schema.ts'

/** The viewer: a user in an organization. */
type Viewer = Pick<Actor, 'organizationId' | 'userId'>
type SkillRow = Prisma.SkillGetPayload<object>
export type SkillOutput = z.input<typeof Skill>

/**
 * Returns disjoint filters for the organization's skills, private ones of their owner only, and all public ones
 * (contract.md section 7). An index has the rows of each filter in page order, but not of their union.
 */
export const listed = ({ organizationId, userId }: Viewer): Prisma.SkillWhereInput[] => [
  { visibility: 'public' },
  { organizationId, visibility: 'organization' },
  { organizationId, visibility: 'private', ownerId: userId },
]

const reachable = (viewer: Viewer): Prisma.SkillWhereInput => ({ OR: listed(viewer) })

/**
 * Checks that the caller may change a skill: its owner and admins may, within the organization (contract.md section 2).
 */
const authorize = (actor: Actor, skill: SkillRow): Authorized<SkillRow> =>
  permit(skill, skill.organizationId === actor.organizationId && (skill.ownerId === actor.userId || isAdmin(actor)))

const toSkill = (
  { organizationId }: Pick<Viewer, 'organizationId'>,
  row: Omit<SkillRow, 'searchText'>,
): SkillOutput => ({
  id: row.id,
  ...fieldsOf(row),
  visibility: row.visibility,
  source: row.organizationId === organizationId ? 'organization' : 'marketplace',
  organizationId: row.organizationId,
  ownerId: row.ownerId,
  version: row.version,
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
})

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
      (!search || textOf(skill).searchText.includes(searchable(search))),
  )

const textOf = ({ name, displayName, description }: Pick<SkillRow, 'name' | 'displayName' | 'description'>) =>
  searchedIn(name, displayName, description)

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

type ListedRow = Omit<SkillRow, 'prompt' | 'searchText'> & { prompt?: string }

/** Prefix of cursors of other organizations' skills, which follow the caller's own. */
const MARKETPLACE = 'm~'

const isForeign = ({ organizationId }: Viewer, row: { id: string; organizationId: string }) =>
  row.organizationId !== organizationId && !core.has(row.id)

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
  const skills = rows.map((row) => core.get(row.id) ?? show(row))
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

/** GET /skills/{id}. The prompt of a public skill is visible to everyone, because the skill is there to be used. */
export async function get(actor: Actor, { db }: Deps, id: string) {
  return { skill: core.get(id) ?? toSkill(actor, await find(actor, db, id)) }
}

async function find(actor: Actor, db: Tx, id: string): Promise<SkillRow> {
  const row = await db.skill.findFirst({ where: { id, ...reachable(actor) } })
  if (!row) throw notFound('Skill')
  return row
}

/** Returns the filter for the ids that are rows the viewer can reach, or null if there are none. */
function rowsOf(viewer: Viewer, ids: readonly string[]): Prisma.SkillWhereInput | null {
  const rows = [...new Set(ids)].filter((id) => !core.has(id))
  return rows.length ? { id: { in: rows }, ...reachable(viewer) } : null
}

/** The newest version of a skill, and whether it belongs to another organization. */
export type Newest = { version: number; foreign: boolean }

/** Finds the newest versions of the reachable ids, in at most one statement. */
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

/** An attached skill with its version; null for the newest. */
export type Pin = { skillId: string; version: number | null }

/** Returns the version at which a skill is attached: the newest if none is pinned or the policy says so. */
export const toAttachedAt = (pinned: number | null | undefined, newest: Newest, isLatest: boolean) => ({
  version: isLatest ? newest.version : (pinned ?? newest.version),
  latestVersion: newest.version,
  foreign: newest.foreign,
})

/** Returns skills at their pinned versions, by id. Takes at most one statement, none if nothing has changed. */
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

/** Returns the fields that a skill has at each version. */
const fieldsOf = (row: Omit<Prisma.SkillVersionGetPayload<object>, 'skillId' | 'version' | 'userId'>) => ({
  name: row.name,
  displayName: row.displayName,
  description: row.description,
  prompt: row.prompt,
  category: row.category as SkillOutput['category'],
  builtInTools: row.builtInTools as string[],
  requiredMCPs: row.requiredMCPs as string[],
})

/** Records the version of a changed skill, by which it can be attached. */
async function recordVersion(tx: Tx, { userId }: Actor, row: SkillRow): Promise<void> {
  const { organizationId, id: skillId, version, updatedAt: createdAt } = row
  const data = { organizationId, skillId, version, userId, createdAt, ...fieldsOf(row) }
  await tx.skillVersion.createMany({ data })
}

/** Finds skills in the order of the ids. */
export async function findMany(viewer: Viewer, db: Tx, ids: readonly string[]): Promise<SkillOutput[]> {
  const where = rowsOf(viewer, ids)
  const rows = where ? await db.skill.findMany({ where }) : []
  const known = new Map([...core, ...rows.map((row) => [row.id, toSkill(viewer, row)] as const)])
  return ids.flatMap((id) => known.get(id) ?? [])
}

const NEEDS_SERVERS = 'Attach MCP servers of these types too, or leave the skill out.'
const NAME_TAKEN = 'Choose another name, or change the skill that has this one.'

/**
 * Throws 400 if a skill requires MCP servers of missing types (contract.md section 7, "Skills"). Called when a skill is
 * attached.
 */
export function checkRequirements(skills: readonly SkillOutput[], mcpTypes: readonly string[]): void {
  for (const { name, requiredMCPs } of skills) {
    const missing = requiredMCPs.filter((type) => !mcpTypes.includes(type))
    if (missing.length)
      throw badRequest(`Skill ${name} requires the MCP servers: ${missing.join(', ')}`, { detail: NEEDS_SERVERS })
  }
}

/** Converts a violation of the unique name into a 409. */
async function unlessTaken<T>(write: Promise<T>): Promise<T> {
  try {
    return await write
  } catch (error) {
    throw isUniqueViolation(error) ? conflict('Skill name already exists', { detail: NAME_TAKEN }) : error
  }
}

/** POST /skills. Throws 409 if the organization has a skill of that name, even a private one. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateSkill>) {
  const { name, displayName, description, prompt, category, builtInTools, requiredMCPs, visibility } = input
  const { organizationId, userId: ownerId } = actor
  const now = deps.clock.now()
  const named = { name, displayName: displayName?.trim() ? displayName : toDisplayName(name), description }
  const row = await deps.db.$transaction(async (tx) => {
    const data = {
      id: newId(),
      organizationId,
      ownerId,
      ...named,
      ...textOf(named),
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
  deps.bus.publish('skill', [organizationId])
  return { id: row.id, name: row.name, skill: toSkill(actor, row), ...toolWarnings(builtInTools) }
}

/**
 * Finds a skill that the caller may change. Throws 403 for skills that are only visible: built-in ones and other
 * users'.
 */
async function findWritable(actor: Actor, { db }: Deps, id: string): Promise<Authorized<SkillRow>> {
  if (core.has(id)) throw forbidden()
  return authorize(actor, await find(actor, db, id))
}

/**
 * PATCH /skills/{id}. An empty change creates no version. Attachments keep their version until they are updated, or
 * follow at once under the policy `attachments: latest`.
 */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateSkill>) {
  const skill = await findWritable(actor, deps, input.id)
  const { name, description, prompt, visibility } = input
  const displayName = input.displayName === null ? toDisplayName(name ?? skill.name) : input.displayName
  const category = input.category === null ? 'other' : input.category
  const builtInTools = input.builtInTools === null ? [] : input.builtInTools
  const requiredMCPs = input.requiredMCPs === null ? [] : input.requiredMCPs
  const changes = omitUndefined({
    name,
    displayName,
    description,
    prompt,
    category,
    visibility,
    builtInTools,
    requiredMCPs,
  })
  const warnings = toolWarnings(builtInTools)
  if (!hasChanges(skill, changes)) return { skill: toSkill(actor, skill), ...warnings }
  const now = deps.clock.now()
  const row = await deps.db.$transaction(async (tx) => {
    const data = { ...changes, version: { increment: 1 }, updatedAt: now }
    const [changed] = await unlessTaken(tx.skill.updateManyAndReturn({ where: { id: skill.id }, data }))
    if (!changed) throw notFound('Skill')
    const text = textOf(changed)
    if (hasChanges(changed, text)) await tx.skill.updateMany({ where: { id: skill.id }, data: text })
    await recordVersion(tx, actor, changed)
    await audit(tx, actor, 'skill.update', skill.id, now)
    return changed
  })
  deps.bus.publish('skill', [skill.organizationId])
  return { skill: toSkill(actor, row), ...warnings }
}

/** DELETE /skills/{id}. Removes it from agents, spaces and later runs. */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const skill = await findWritable(actor, deps, id)
  await deps.db.$transaction(async (tx) => {
    const { organizationId } = skill
    const { count } = await tx.skill.deleteMany({ where: { id } })
    if (!count) throw notFound('Skill')
    // Locked against new attachments; other references to it find nothing from now on.
    await tx.spaceSkill.deleteMany({ where: { organizationId, skillId: id } })
    await audit(tx, actor, 'skill.delete', id, deps.clock.now())
  })
  deps.bus.publish('skill', [skill.organizationId])
  return { message: 'Skill deleted successfully' }
}
