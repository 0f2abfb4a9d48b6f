import type { ListTasksRequest, ListTasksResponse } from '@a2a-js/sdk'
import { TaskState } from '@a2a-js/sdk'
import { RequestMalformedError } from '@a2a-js/sdk/errors'
import { z } from 'zod'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import { type Actor, requireScope } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import { invalidCursor } from '../../errors.ts'
import { ListExecutions } from '../../executions/schema.ts'
import { findMany, list } from '../../executions/service.ts'
import { isCursor } from '../../lib/page.ts'
import type { Run } from '../shared/wait.ts'
import { findSession, namesOf } from './contexts.ts'
import { STATES, toTask } from './tasks.ts'

/** Number of tasks on a page, unless the client asks for another. */
const PAGE = 50
const MAX_PAGE = 100

const Since = z.object({ statusTimestampAfter: ListExecutions.shape.since })

/** Lists the tasks of an agent that the caller can see. Throws the errors of `list`, and those of the protocol. */
export async function listTasks(
  actor: Actor,
  deps: Deps,
  agent: CachedAgent,
  params: ListTasksRequest,
): Promise<ListTasksResponse> {
  const { contextId, status, pageToken, historyLength, statusTimestampAfter, includeArtifacts } = params
  if (status === TaskState.UNRECOGNIZED) {
    throw new RequestMalformedError('Invalid status: send a state of tasks, such as TASK_STATE_COMPLETED')
  }
  const pageSize = Math.min(Math.max(params.pageSize ?? PAGE, 1), MAX_PAGE)
  const none = { tasks: [], nextPageToken: '', pageSize, totalSize: 0 }
  if (pageToken && !isCursor(pageToken)) throw invalidCursor('pageToken', 'a nextPageToken')
  const session = contextId ? await findSession(actor, deps, agent, contextId) : null
  if (contextId && !session) return none
  const wanted = STATES[status]
  if (status !== TaskState.TASK_STATE_UNSPECIFIED && !wanted) return none
  const { status: ofRuns, ...waits } = wanted ?? {}
  requireScope(actor, 'executions:read')
  const since = Since.parse({ statusTimestampAfter: statusTimestampAfter || undefined }).statusTimestampAfter
  const input = {
    agentId: agent.id,
    limit: pageSize,
    count: true,
    status: ofRuns,
    chatId: session?.chatId,
    cursor: pageToken || undefined,
  }
  const page = await list(actor, deps, input, {
    ...waits,
    ...(session && { sessionId: session.id }),
    ...(since && { updatedAt: { gte: new Date(since) } }),
  })
  // Pages follow the creation of tasks, because no index has the time of their last change; each page follows that.
  const runs = (page.executions as Run[]).toSorted((one, other) => (one.updatedAt < other.updatedAt ? 1 : -1))
  const whole = includeArtifacts ? await wholeOf(actor, deps, runs) : runs
  const ids = whole.map(({ sessionId }) => sessionId)
  const names = await namesOf(actor, deps, agent, ids)
  const tasks = whole.map((run) =>
    toTask(run, {
      contextId: names.get(run.sessionId) ?? run.sessionId,
      settings: deps.settings,
      historyLength: historyLength ?? 0,
    }),
  )
  return { tasks, nextPageToken: page.nextCursor ?? '', pageSize, totalSize: page.total ?? tasks.length }
}

/** Returns runs with their answers, in the same order. */
async function wholeOf(actor: Actor, deps: Deps, runs: readonly Run[]): Promise<Run[]> {
  const ids = runs.map(({ id }) => id)
  const found = new Map((await findMany(actor, deps, ids, { isWhole: true })).map((run) => [run.id, run]))
  return ids.flatMap((id) => found.get(id) ?? [])
}
