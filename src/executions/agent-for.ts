import { fromVersion } from '../agents/rows.ts'
import { executable } from '../agents/visibility.ts'
import { actorOf } from '../auth/actor.ts'
import type { Db } from '../db/client.ts'
import { notFound } from '../errors.ts'
import { reachable as reachableSpace } from '../spaces/visibility.ts'
import type { ExecutionRow } from './engine/events/events.ts'
import type { AgentRow } from './engine/queue/claims.ts'

/**
 * Returns the agent of a run that is about to start or resume, if its user is still a member and may still run it;
 * otherwise the reason for the failure. A run starts with the agent's current version and resumes with that of its
 * start.
 */
export async function agentFor(db: Db, row: ExecutionRow): Promise<AgentRow | string> {
  const actor = await actorOf(db, row)
  const now = actor && (await db.agent.findFirst({ where: { AND: [{ id: row.agentId }, executable(actor)] } }))
  if (!now) return notFound('Agent').message
  const where = { id: row.spaceId, ...reachableSpace(actor) }
  if (!(await db.space.findFirst({ where, select: { id: true } }))) return notFound('Space').message
  const agent = row.attempt === 0 || row.agentVersion === now.version ? now : await agentThen(db, row)
  if (!row.missionId) return agent
  const mission = await db.mission.findUnique({ where: { id: row.missionId }, select: { maxTurns: true } })
  return { ...agent, maxTurns: mission?.maxTurns ?? agent.maxTurns }
}

/** Returns an agent at the version of a run. */
async function agentThen(db: Db, { agentId, agentVersion: version }: ExecutionRow): Promise<AgentRow> {
  const { agent } = await db.agentVersion.findUniqueOrThrow({ where: { agentId_version: { agentId, version } } })
  return fromVersion(agent)
}
