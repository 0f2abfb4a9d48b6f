import type { Actor } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import { AppError } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import { readable } from '../../executions/service.ts'
import { digestOf } from '../../idempotency.ts'
import { canonical } from '../../lib/json.ts'
import type { Context } from '../../trpc.ts'
import type { RunRequest } from './runs.ts'

// Requests whose callers left before the answer, such as those behind a proxy that gives up after a minute. Libraries
// of OpenAI, LangChain and the AI SDK repeat them without an Idempotency-Key, up to six times.

/** Time in which a repetition of such a request joins its run (ms). */
const LIFETIME = 10 * 60 * 1000

/** Returns the id and the digest of the record for a request that was not answered. */
function recordOf({ organizationId, userId }: Actor, deps: Deps, { agent, path, name, message, body }: RunRequest) {
  const id = digestOf(deps, organizationId, userId, 'unanswered', path, agent.id, name ?? '', message)
  return { id, digest: () => digestOf(deps, canonical(body)) }
}

/** Stores that the caller of a run gets no answer, so that the next same request joins the run. */
async function store(actor: Actor, deps: Deps, request: RunRequest, executionId: string): Promise<void> {
  const { id, digest } = recordOf(actor, deps, request)
  const { organizationId } = actor
  const now = deps.clock.now()
  const data = { organizationId, inputDigest: digest(), executionId, answer: null, leaseUntil: null, createdAt: now }
  await deps.db.idempotencyRecord.upsert({ where: { id }, create: { id, ...data }, update: data })
}

/**
 * Returns the run of an earlier request that is the same and whose caller got no answer, or null. A run is returned
 * once, because a later request may be meant anew. One that has failed or was cancelled is not returned.
 */
export async function takeUnanswered(actor: Actor, deps: Deps, request: RunRequest): Promise<ExecutionRow | null> {
  const { db, clock } = deps
  const { id, digest } = recordOf(actor, deps, request)
  const record = await db.idempotencyRecord.findUnique({ where: { id } })
  if (!record?.executionId || record.createdAt.getTime() <= clock.now().getTime() - LIFETIME) return null
  if (record.inputDigest !== digest()) return null
  const { count } = await db.idempotencyRecord.deleteMany({ where: { id, createdAt: record.createdAt } })
  if (!count) return null
  const isUseful = { OR: [{ terminalSeq: null, wantsCancel: false }, { status: 'completed' as const }] }
  return db.execution.findFirst({ where: { AND: [{ id: record.executionId }, isUseful, readable(actor)] } })
}

/**
 * Waits for the whole answer to a request. Returns null if the caller has left. Unless the request has an
 * Idempotency-Key, its repetition then joins the run, as after the 503 of a server that stops. `request`: null for a
 * request that continues a run, which its repetition finds by itself.
 */
export async function answerWhole<Answer>(
  { deps, gone }: Pick<Context, 'deps' | 'gone'>,
  actor: Actor,
  { row, request }: { row: ExecutionRow; request?: RunRequest | null },
  wait: () => Promise<Answer>,
): Promise<Answer | null> {
  let isLost = false
  try {
    const answer = await wait()
    isLost = gone().aborted
    return isLost ? null : answer
  } catch (error) {
    isLost = error instanceof AppError && error.status === 503 && error.executionId !== undefined
    throw error
  } finally {
    if (isLost && request) await store(actor, deps, request, row.id)
  }
}
