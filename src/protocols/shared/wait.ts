import type { z } from 'zod'
import type { Actor } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import type { Execution } from '../../executions/schema.ts'
import { get } from '../../executions/service.ts'
import { raceTimeout } from '../../lib/race-abort.ts'
import { publicAddress } from '../../settings.ts'
import type { Context } from '../../trpc.ts'
import { asksPerson, followParts, type Part } from './run-parts.ts'

/** An execution as the API shows it. */
export type Run = z.input<typeof Execution>

/** Sends progress of a run to the client. */
export type Report = (message: string) => void

/** Interval at which a silent run is reported (ms), because clients end a call after a silent minute. */
const HEARTBEAT = 10_000

/** The wait of a run for a person: its own, or that of an earlier run of its session. */
export type Wait = { executionId: string; waitingFor: 'approval' | 'authorization' | 'client_tool' }

/**
 * Reports the progress of a run until it ends or waits for a person. Returns the execution then, with the wait.
 */
export async function waitForRun(
  context: Context,
  actor: Actor,
  row: ExecutionRow,
  report: Report | null,
): Promise<{ run: Run; wait: Wait | null }> {
  const { deps } = context
  for await (const { parts, wait } of followToWait(context, actor, row)) {
    if (wait) return { run: (await get(actor, deps, row.id)).execution, wait }
    if (!parts.length) report?.('Working')
    for (const message of report ? parts.flatMap((part) => messageOf(part) ?? []) : []) report?.(message)
  }
  return { run: (await get(actor, deps, row.id)).execution, wait: null }
}

/**
 * Follows a run as parts until it ends or waits for a person; `wait` comes last. Yields no parts for each `HEARTBEAT`
 * in which none came. A run that has not begun may wait behind one of its session that waits for a person.
 */
export async function* followToWait(
  context: Context,
  actor: Actor,
  row: ExecutionRow,
): AsyncGenerator<{ parts: Part[]; wait: Wait | null }> {
  const { deps } = context
  const batches = followParts(context, actor, row)
  let next = batches.next()
  let hasBegun = row.queueSeq === 1
  try {
    for (;;) {
      const wait = hasBegun ? null : await waitBefore(deps, row)
      if (wait) return yield { parts: [], wait }
      const read = await raceTimeout(next, HEARTBEAT)
      if (read?.done) return
      const parts = read?.value ?? []
      hasBegun ||= parts.some(({ type }) => type !== 'start')
      const { execution } = parts.some(asksPerson) ? await get(actor, deps, row.id) : {}
      const waitingFor = execution?.waitingFor
      yield { parts, wait: waitingFor ? { executionId: row.id, waitingFor } : null }
      if (waitingFor) return
      if (read) next = batches.next()
    }
  } finally {
    // A read that still waits behind another run ends with the request.
    next.catch(() => {})
    void batches.return(undefined).catch(() => {})
  }
}

/** Returns the wait for a person of an earlier run of its session, behind which a run waits, or null if there is none. */
export const waitBehind = async (deps: Pick<Deps, 'db'>, run: Run): Promise<Wait | null> =>
  run.status === 'pending' && !run.waitingFor ? waitBefore(deps, run) : null

/** Returns the wait of the run that holds the session of another one, or null if it waits for no person. */
async function waitBefore(
  { db }: Pick<Deps, 'db'>,
  { id, sessionId }: Pick<ExecutionRow, 'id' | 'sessionId'>,
): Promise<Wait | null> {
  const session = await db.session.findUnique({ where: { id: sessionId }, select: { activeExecutionId: true } })
  const executionId = session?.activeExecutionId
  if (!executionId || executionId === id) return null
  const before = await db.execution.findUnique({ where: { id: executionId }, select: { waitingFor: true } })
  const waitingFor = before?.waitingFor
  return waitingFor && waitingFor !== 'client_tool' ? { executionId, waitingFor } : null
}

/**
 * Returns the console's page on which a person ends the wait of a run, and a sentence about the wait. `before`: the id
 * of the earlier run of its session that waits.
 */
export function waitOf({ settings }: Pick<Deps, 'settings'>, waitingFor: Run['waitingFor'], before?: string) {
  const console = `${publicAddress(settings)}/app`
  const waits = before
    ? `The run waits for the earlier run ${before} of its conversation, which waits`
    : 'The run waits'
  return waitingFor === 'authorization'
    ? { url: `${console}/mcps`, text: `${waits} until its user connects to an MCP server at ${console}/mcps` }
    : {
        url: `${console}/approvals`,
        text: `${waits} until a person approves a call of a tool at ${console}/approvals`,
      }
}

/** Returns a sentence about the wait that begins with a part, for the person who reads a stream. */
export const noteOf = (deps: Pick<Deps, 'settings'>, { type }: Part): string =>
  `${waitOf(deps, type === 'approval' ? 'approval' : 'authorization').text}.\n`

/** Returns a sentence for the parts of a run that a person wants to know of. */
export function messageOf(part: Part): string | null {
  switch (part.type) {
    case 'start':
      return `Execution ${part.executionId} is accepted`
    case 'tool-call':
      return `Calls ${part.name}`
    case 'warning':
      return part.text
    case 'retry':
      return `Asks the model again: ${part.reason}`
    case 'summarizing':
      return 'Summarizes earlier turns'
    case 'approval':
      return `Waits for approval of ${part.name}`
    default:
      return null
  }
}
