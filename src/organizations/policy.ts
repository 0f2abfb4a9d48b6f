import type { z } from 'zod'
import { type Actor, isAdmin, permit } from '../auth/actor.ts'
import { audit, changesOf } from '../auth/audit.ts'
import { type Db, Prisma, type Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { AppError, forbidden } from '../errors.ts'
import type { ToolUser } from '../executions/engine/run/tools.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { type Mode, type Modes, modeIn, stricter } from '../mcps/modes.ts'
import { permissionWarnings, READING_TOOLS } from '../skills/schema.ts'
import type { OrganizationId, Policy, UpdatePolicy } from './schema.ts'

const POLICY = { foreignAgents: true, builtInTools: true, attachments: true } as const
type PolicyRow = Prisma.OrganizationGetPayload<{ select: typeof POLICY }>

const toPolicy = (row: PolicyRow): z.input<typeof Policy> => ({
  foreignAgents: row.foreignAgents as z.input<typeof Policy>['foreignAgents'],
  builtInTools: row.builtInTools as z.input<typeof Policy>['builtInTools'],
  attachments: row.attachments as z.input<typeof Policy>['attachments'],
})

/** Reads the policy. Throws 403 for an organization other than the caller's, whether it exists or not. */
async function find(actor: Actor, { db }: { db: Tx }, { id }: z.output<typeof OrganizationId>): Promise<PolicyRow> {
  if (id !== actor.organizationId) throw forbidden()
  return db.organization.findUniqueOrThrow({ where: { id }, select: POLICY })
}

/** GET /organizations/{id}/policy, for any member (contract-2.md section 8.5). */
export async function getPolicy(actor: Actor, deps: Deps, input: z.output<typeof OrganizationId>) {
  return { policy: toPolicy(await find(actor, deps, input)) }
}

/** PATCH /organizations/{id}/policy, by admins. Active runs follow it from their next call on. */
export async function updatePolicy(actor: Actor, deps: Deps, input: z.output<typeof UpdatePolicy>) {
  const before = permit(await find(actor, deps, input), isAdmin(actor))
  const { id, foreignAgents, builtInTools, attachments } = input
  const changes = omitUndefined({ foreignAgents, builtInTools, attachments })
  if (hasChanges(before, changes)) {
    await deps.db.$transaction(async (tx) => {
      await tx.organization.update({ where: { id }, data: changes, select: { id: true } })
      await audit(tx, actor, 'policy.update', id, deps.clock.now(), changesOf(toPolicy(before), changes))
    })
  }
  return { ...(await getPolicy(actor, deps, input)), ...permissionWarnings(builtInTools) }
}

/** Returns the organizations whose attachments follow the newest version, in at most one statement. */
export async function organizationsOnLatest(db: Tx, organizationIds: readonly string[]): Promise<Set<string>> {
  const where = { id: { in: [...new Set(organizationIds)] }, attachments: 'latest' }
  const rows = organizationIds.length ? await db.organization.findMany({ where, select: { id: true } }) : []
  return new Set(rows.map(({ id }) => id))
}

type Pin = { skillId: string; version: number | null }

/**
 * Returns whether the attachments of an organization follow the newest versions. Asks the database only if a pin is
 * behind, because otherwise it makes no difference.
 */
export async function isOnLatest(
  db: Tx,
  organizationId: string,
  pins: readonly Pin[],
  newest: ReadonlyMap<string, { version: number }>,
): Promise<boolean> {
  const isBehind = ({ skillId, version }: Pin) => version !== null && newest.get(skillId)?.version !== version
  return pins.some(isBehind) && (await organizationsOnLatest(db, [organizationId])).has(organizationId)
}

type ModeRow = { foreignAgents: string; ofOrganization: unknown; ofSpace: unknown; ofAgent: unknown }

/**
 * Reads in one statement which built-in tools a run may call now (contract-2.md sections 2.11 and 8.5). The strictest
 * setting of organization, space and agent applies, and none adds a tool. An agent of another organization is also
 * limited by the policy of the run's organization.
 */
export async function readModes(db: Db, { row, agent }: ToolUser): Promise<(tool: string) => Mode> {
  const [found] = await db.$queryRaw<ModeRow[]>(Prisma.sql`
    SELECT o."foreignAgents", o."builtInTools" AS "ofOrganization",
      (SELECT s."permissions" FROM "Space" s WHERE s."id" = ${row.spaceId}) AS "ofSpace",
      (SELECT a."permissions" FROM "Agent" a WHERE a."id" = ${agent.id}) AS "ofAgent"
    FROM "Organization" o WHERE o."id" = ${row.organizationId}`)
  if (!found) throw forbidden()
  const isForeign = agent.organizationId !== row.organizationId
  const lists = [found.ofOrganization, found.ofSpace, found.ofAgent].map(permissionsIn)
  return (tool) => {
    if (isForeign && found.foreignAgents === 'off') return 'deny'
    if (isForeign && found.foreignAgents === 'read' && !READING_TOOLS.has(tool)) return 'deny'
    return lists.map((list) => modeIn(list, tool)).reduce(stricter)
  }
}

/** Parses permissions in a JSON column of a raw row, which SQLite returns as text. */
const permissionsIn = (value: unknown): Modes => (typeof value === 'string' ? JSON.parse(value) : value) ?? []

/** Throws 403, which becomes the result of the call, if a tool is denied to a run by now. */
export async function checkMode(db: Db, user: ToolUser, tool: string): Promise<'allow' | 'ask'> {
  const mode = (await readModes(db, user))(tool)
  if (mode === 'deny') throw new AppError(403, `The tool ${tool} is not permitted in this run`)
  return mode
}
