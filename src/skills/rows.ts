import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Prisma, Tx } from '../db/client.ts'
import { notFound } from '../errors.ts'
import { searchedIn } from '../lib/search.ts'
import { CORE_SKILLS } from './core.ts'
import type { Skill } from './schema.ts'

/** The viewer: a user in an organization. */
export type Viewer = Pick<Actor, 'organizationId' | 'userId'>

export type SkillRow = Prisma.SkillGetPayload<object>

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

/** Converts a row for the API. */
export const toSkill = (
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

/** Returns the columns by which the list searches a skill. */
export const searchColumns = ({
  name,
  displayName,
  description,
}: Pick<SkillRow, 'name' | 'displayName' | 'description'>) => searchedIn(name, displayName, description)

/** The built-in skills by id. */
export const coreSkills = new Map(CORE_SKILLS.map((skill) => [skill.id, skill]))

/** Returns whether a skill belongs to another organization. */
export const isForeign = ({ organizationId }: Viewer, row: { id: string; organizationId: string }) =>
  row.organizationId !== organizationId && !coreSkills.has(row.id)

/** Finds a skill that the viewer can reach. Throws 404 for any other. */
export async function find(actor: Actor, db: Tx, id: string): Promise<SkillRow> {
  const row = await db.skill.findFirst({ where: { id, ...reachable(actor) } })
  if (!row) throw notFound('Skill')
  return row
}

/** Returns the filter for the ids that are rows the viewer can reach, or null if there are none. */
export function whereRows(viewer: Viewer, ids: readonly string[]): Prisma.SkillWhereInput | null {
  const rows = [...new Set(ids)].filter((id) => !coreSkills.has(id))
  return rows.length ? { id: { in: rows }, ...reachable(viewer) } : null
}

/** Returns the fields that a skill has at each version. */
export const fieldsOf = (row: Omit<Prisma.SkillVersionGetPayload<object>, 'skillId' | 'version' | 'userId'>) => ({
  name: row.name,
  displayName: row.displayName,
  description: row.description,
  prompt: row.prompt,
  category: row.category as SkillOutput['category'],
  builtInTools: row.builtInTools as string[],
  requiredMCPs: row.requiredMCPs as string[],
})

/** Finds skills in the order of the ids. */
export async function findMany(viewer: Viewer, db: Tx, ids: readonly string[]): Promise<SkillOutput[]> {
  const where = whereRows(viewer, ids)
  const rows = where ? await db.skill.findMany({ where }) : []
  const known = new Map([...coreSkills, ...rows.map((row) => [row.id, toSkill(viewer, row)] as const)])
  return ids.flatMap((id) => known.get(id) ?? [])
}
