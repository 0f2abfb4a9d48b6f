import type { Actor } from '../auth/actor.ts'
import type { Tx } from '../db/client.ts'
import { coreSkills, fieldsOf, isForeign, type SkillOutput, type SkillRow, type Viewer, whereRows } from './rows.ts'

// Versions of skills, at which agents and spaces attach them.

/** The newest version of a skill, and whether it belongs to another organization. */
export type Newest = { version: number; foreign: boolean }

/** Finds the newest versions of the reachable ids, in at most one statement. */
export async function findVersions(viewer: Viewer, db: Tx, ids: readonly string[]): Promise<Map<string, Newest>> {
  const where = whereRows(viewer, ids)
  const select = { id: true, version: true, organizationId: true } as const
  const rows = where ? await db.skill.findMany({ where, select }) : []
  const own = [...coreSkills.values()].map(({ id, version }) => [id, { version, foreign: false }] as const)
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

/** Records the version of a changed skill, by which it can be attached. */
export async function recordVersion(tx: Tx, { userId }: Actor, row: SkillRow): Promise<void> {
  const { organizationId, id: skillId, version, updatedAt: createdAt } = row
  const data = { organizationId, skillId, version, userId, createdAt, ...fieldsOf(row) }
  await tx.skillVersion.createMany({ data })
}
