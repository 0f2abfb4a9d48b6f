import type { z } from 'zod'
import type { Actor } from '../../auth/actor.ts'
import { AppError } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import type { Executed, Execution } from '../../executions/schema.ts'
import { get } from '../../executions/service.ts'
import type { Context } from '../../trpc.ts'
import { followParts, type Part } from '../shared/parts.ts'
import { type ToolResult, toResult } from './results.ts'

export type Run = z.input<typeof Execution>

/** Tells the client what a run does. */
export type Report = (message: string) => void

/** Interval at which a run without news is reported (ms): clients end a call that says nothing for a minute. */
const HEARTBEAT = 10_000

/** Reports what happens in a run until it ends or waits for approval. Returns the execution then. */
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
      const { execution } = parts.some(({ type }) => type === 'approval') ? await get(actor, deps, row.id) : {}
      if (execution?.waitingFor) return execution
    }
  } finally {
    if (timer) clearInterval(timer)
    await batches.return(undefined)
  }
  return (await get(actor, deps, row.id)).execution
}

/** Returns a sentence for the parts of a run that a person wants to know of. */
function messageOf(part: Part): string | null {
  switch (part.type) {
    case 'start':
      return `Execution ${part.executionId} is accepted`
    case 'tool-call':
      return `Calls ${part.name}`
    case 'warning':
      return part.text
    case 'retry':
      return `Asks the model again: ${part.reason}`
    case 'approval':
      return `Waits for approval of ${part.name}`
    default:
      return null
  }
}

/** Returns the result of a run that has ended. Throws the error of one that failed or was cancelled. */
export function resultOf(execution: Run): ToolResult {
  const { id: executionId, status, chatId, sessionId, error, errorCode, warnings, stopReason } = execution
  if (status === 'cancelled') {
    throw new AppError(409, 'Execution was cancelled', { code: 'cancelled', executionId })
  }
  if (status === 'failed') {
    throw new AppError(500, 'Chat execution failed', {
      code: (errorCode ?? 'internal') as AppError['code'],
      ...(error !== undefined && { detail: error }),
      executionId,
    })
  }
  const result = execution.result ?? ''
  const executed = { success: true as const, executionId, chatId, sessionId, status, result, warnings, stopReason }
  return toResult(executed satisfies z.output<typeof Executed>, result)
}
