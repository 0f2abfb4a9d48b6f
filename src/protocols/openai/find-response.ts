import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import { AppError, notFound } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import { find } from '../../executions/service.ts'
import { findSessionId } from '../shared/runs.ts'
import { previousNotFound } from './errors.ts'
import { echoOf, type ResponseRef, readResponseId } from './response.ts'

/** Finds a response that the caller can read. Throws 404 for any other, and for a deleted one. */
export async function findResponse(actor: Actor, deps: Deps, id: string): Promise<ResponseRef> {
  const read = readResponseId(id)
  const row = read && (await find(actor, deps, read.executionId))
  if (!row || echoOf(row).isDeleted) throw notFound('Execution')
  return { row, after: read.after }
}

/** Returns the run of the response that a request to an agent continues. Throws 404 if there is none. */
export async function findPrevious(actor: Actor, deps: Deps, id: string, agent: CachedAgent): Promise<ExecutionRow> {
  const { row } = await findResponse(actor, deps, id).catch((error) => {
    throw error instanceof AppError && error.status === 404 ? previousNotFound() : error
  })
  // Its chat may be deleted.
  const isThere = row.agentId === agent.id && (await findSessionId(actor, deps, agent, row.sessionId))
  if (!isThere) throw previousNotFound()
  return row
}
