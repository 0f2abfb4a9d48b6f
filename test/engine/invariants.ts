import { type Db, Prisma } from '../../src/db/client.ts'
import { type ExecutionEvent, type ExecutionRow, readEvents } from '../../src/executions/engine/events/events.ts'
import { createTrigger } from '../support/trigger.ts'

/**
 * Checks the invariants of an idle database (contract.md section 4, "Durability"), for executions since a time. Returns
 * each violation as a sentence.
 */
export async function violations(db: Db, since = new Date(0)): Promise<string[]> {
  const found: string[] = []
  const where = { createdAt: { gte: since } }
  const executions = await db.execution.findMany({ where, orderBy: [{ sessionId: 'asc' }, { queueSeq: 'asc' }] })
  for (const row of executions) found.push(...(await violationsOf(db, row)))
  found.push(...overlaps(executions))
  const cancels = await db.auditEvent.findMany({ where: { action: 'execution.cancel' }, select: { target: true } })
  const audited = Map.groupBy(cancels, ({ target }) => target)
  for (const { id, status } of executions) {
    const times = audited.get(id)?.length ?? 0
    if (times > Number(status === 'cancelled')) found.push(`${id} (${status}): was cancelled ${times} times`)
  }

  const steps = await db.executionStep.findMany({ where: { execution: { status: 'completed' } } })
  for (const { executionId, step } of steps) found.push(`${executionId} has completed, and keeps step ${step}`)
  const locked = await db.session.findMany({ where: { activeExecutionId: { not: null } } })
  for (const { id, activeExecutionId } of locked) found.push(`session ${id} is locked by ${activeExecutionId}`)
  const sessions = await db.session.findMany({ include: { messages: { select: { id: true } } } })
  for (const { id, messageCount, messages } of sessions) {
    if (messageCount !== messages.length)
      found.push(`session ${id} counts ${messageCount} of ${messages.length} messages`)
  }
  const busy = await db.chat.findMany({ where: { status: { in: ['working', 'needs_attention'] } } })
  for (const { id, status } of busy) found.push(`chat ${id} is still ${status}`)
  const counted = await db.organization.findMany({ where: { running: { not: 0 } } })
  for (const { slug, running } of counted) found.push(`organization ${slug} counts ${running} running`)
  return found
}

async function violationsOf(db: Db, row: ExecutionRow): Promise<string[]> {
  const { id, status, terminalSeq, result } = row
  const found: string[] = []
  const check = (holds: boolean, what: string) => holds || found.push(`${id} (${status}): ${what}`)
  check(status === 'completed' || status === 'failed' || status === 'cancelled', 'has not ended')
  check(terminalSeq !== null && row.completedAt !== null, 'has no terminal event')
  check(row.leaseOwner === null && row.leaseUntil === null, 'has a lease')
  check((status === 'failed') === (row.error !== null), 'has an error unless it failed')
  check((status === 'completed') === (result !== null), 'has a result unless it completed')

  const segments = await db.executionEvent.findMany({ where: { executionId: id }, orderBy: { firstSeq: 'asc' } })
  let last = 1
  for (const { firstSeq, lastSeq } of segments) {
    check(firstSeq > last && lastSeq >= firstSeq, `has events ${firstSeq}-${lastSeq} after ${last}`)
    last = lastSeq
  }
  check(terminalSeq !== null && terminalSeq > last, `ends with ${terminalSeq}, though it has shown ${last}`)

  const messages = await db.message.findMany({ where: { executionId: id } })
  const [answer, ...more] = messages.filter(({ role }) => role === 'assistant')
  check(more.length === 0, 'has more than one answer')
  if (status === 'completed') {
    check(answer?.content === result && !answer?.interrupted, 'has an answer that is not its result')
    const events = await storedEvents(db, id)
    check(lastStepOf(events) === result, 'has deltas that are not its result')
    check(
      messages.some(({ role }) => role === 'user'),
      'has no question',
    )
  } else check(answer?.interrupted ?? true, 'has an answer that does not say that it is not whole')
  return found
}

/** Runs of one session follow one another in the order of their acceptance. */
function overlaps(executions: ExecutionRow[]): string[] {
  const found: string[] = []
  let before: ExecutionRow | undefined
  for (const row of executions.filter(({ startedAt }) => startedAt !== null)) {
    const sameSession = before?.sessionId === row.sessionId
    if (sameSession && before!.completedAt! > row.startedAt!)
      found.push(`${row.id} began before ${before!.id} had ended`)
    before = row
  }
  return found
}

const ALLOWED = new Set([
  '-pending',
  '-running',
  'pending-running',
  'pending-cancelled',
  'pending-failed',
  'running-running',
  'running-pending',
  'running-completed',
  'running-failed',
  'running-cancelled',
])

/**
 * Makes the database record every change of a status from now on. Returns a function that lists the undocumented
 * changes since its last call.
 */
export async function watchTransitions(db: Db): Promise<() => Promise<string[]>> {
  await db.$executeRaw(Prisma.sql`CREATE TABLE "_seen" ("id" TEXT, "before" TEXT, "after" TEXT, "attempt" INTEGER)`)
  await createTrigger(db, {
    name: '_born',
    event: 'AFTER INSERT',
    table: 'Execution',
    effect: `INSERT INTO "_seen" VALUES (NEW."id", '', NEW."status", NEW."attempt")`,
  })
  await createTrigger(db, {
    name: '_moved',
    event: 'AFTER UPDATE',
    table: 'Execution',
    when: ['status', 'attempt', 'terminalSeq', 'result']
      .map((c) => `OLD."${c}" IS DISTINCT FROM NEW."${c}"`)
      .join(' OR '),
    effect: `INSERT INTO "_seen" VALUES (NEW."id", OLD."status", NEW."status", NEW."attempt")`,
  })
  return async () => {
    const rows = await db.$queryRaw<{ id: string; before: string; after: string }[]>(Prisma.sql`
      DELETE FROM "_seen" RETURNING *`)
    return rows.flatMap(({ id, before, after }) =>
      ALLOWED.has(`${before}-${after}`) ? [] : `${id}: ${before} → ${after}`,
    )
  }
}

/** The text of the last step's deltas, which start again when a run resumes. */
function lastStepOf(events: readonly ExecutionEvent[]): string {
  const steps = events.flatMap(({ event, data }) => (event === 'message' && 'step' in data ? data.step : []))
  const last = Math.max(0, ...steps)
  const anew = events.findLastIndex(
    ({ event, data }) => event === 'message' && data.messageType === 'resumed' && data.step === last,
  )
  const isLast = ({ event, data }: ExecutionEvent) => event === 'message' && 'step' in data && data.step === last
  return textOf(events.slice(anew + 1).filter(isLast))
}

/** The text of the events' deltas. */
export const textOf = (events: readonly ExecutionEvent[]): string =>
  events
    .map(({ event, data }) => (event === 'message' && data.messageType === 'stream_event' ? data.delta.text : ''))
    .join('')

export const storedEvents = async (db: Db, id: string): Promise<ExecutionEvent[]> =>
  (await Array.fromAsync(readEvents(db, id, 0))).flat()
