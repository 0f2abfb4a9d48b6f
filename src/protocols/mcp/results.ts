import { toAppError, toBody } from '../../errors.ts'
import type { Context } from '../../trpc.ts'
import { fromTRPCError } from '../../trpc.ts'

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
 * Returns an error as the result of a tool, so that the model reads what to do. `_meta` has the error body of REST.
 * Unexpected errors are logged.
 */
export function toErrorResult({ deps, requestId }: Context, thrown: unknown): ToolResult {
  const error = toAppError(fromTRPCError(thrown))
  if (error.status >= 500 && error.cause) deps.log.error({ requestId, err: error.cause }, error.message)
  return {
    content: [{ type: 'text', text: [error.message, error.detail].filter(Boolean).join('. ') }],
    isError: true,
    _meta: { 'muster/error': toBody(error, requestId) },
  }
}
