import type { z } from 'zod'
import type { Actor } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import type { Execution } from '../../executions/schema.ts'
import { get } from '../../executions/service.ts'
import { publicAddress } from '../../settings.ts'
import type { Context } from '../../trpc.ts'
import { asksPerson, followParts, type Part } from './run-parts.ts'

/** An execution as the API shows it. */
export type Run = z.input<typeof Execution>

/** Sends progress of a run to the client. */
export type Report = (message: string) => void

/** Interval at which a silent run is reported (ms), because clients end a call after a silent minute. */
const HEARTBEAT = 10_000

/** Reports the progress of a run until it ends or waits for a person. Returns the execution then. */
export async function waitForRun(
  { deps, streamTo }: Context,
  actor: Actor,
  row: ExecutionRow,
  report: Report | null,
): Promise<Run> {
  const timer = report && setInterval(() => report('Working'), HEARTBEAT)
  const batches = followParts(actor, deps, row, streamTo)
  try {
    for await (const parts of batches) {
      for (const message of report ? parts.flatMap((part) => messageOf(part) ?? []) : []) {
        report!(message)
        timer?.refresh()
      }
      const { execution } = parts.some(asksPerson) ? await get(actor, deps, row.id) : {}
      if (execution?.waitingFor) return execution
    }
  } finally {
    if (timer) clearInterval(timer)
    await batches.return(undefined)
  }
  return (await get(actor, deps, row.id)).execution
}

/** Returns the console's page on which a person ends the wait of a run, and a sentence about the wait. */
export function waitOf({ settings }: Pick<Deps, 'settings'>, waitingFor: Run['waitingFor']) {
  const console = `${publicAddress(settings)}/app`
  return waitingFor === 'authorization'
    ? { url: `${console}/mcps`, text: `The run waits until its user connects to an MCP server at ${console}/mcps` }
    : {
        url: `${console}/approvals`,
        text: `The run waits until a person approves a call of a tool at ${console}/approvals`,
      }
}

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
