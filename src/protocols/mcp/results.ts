import type { z } from 'zod'
import { AppError, textOf, toAppError, toBody } from '../../errors.ts'
import type { Executed } from '../../executions/schema.ts'
import { report } from '../../http/log.ts'
import type { Context } from '../../trpc.ts'
import { fromTRPCError } from '../../trpc-errors.ts'
import type { Run } from '../shared/wait.ts'

/** A result of a tool. */
export type ToolResult = {
  content: { type: 'text'; text: string }[]
  structuredContent?: Record<string, unknown>
  isError?: true
  _meta?: Record<string, unknown>
}

/** Returns a result: the data itself, and as JSON for clients that read texts only. */
export const toResult = (data: object, text = JSON.stringify(data)): ToolResult => ({
  content: [{ type: 'text', text }],
  structuredContent: data as Record<string, unknown>,
})

/**
 * Returns an error as the result of a tool, so that the model reads the reason and the next step. `_meta` has the error
 * body of REST. Unexpected errors are logged.
 */
export function toErrorResult({ deps, requestId }: Context, thrown: unknown): ToolResult {
  const error = toAppError(fromTRPCError(thrown))
  report(deps, error, requestId)
  return {
    content: [{ type: 'text', text: textOf(error) }],
    isError: true,
    _meta: { 'muster/error': toBody(error, requestId) },
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
