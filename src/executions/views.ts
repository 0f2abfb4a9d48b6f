import type { z } from 'zod'
import { type Actor, isAdmin } from '../auth/actor.ts'
import { parseExact } from '../lib/exact-json.ts'
import type { StopReason } from '../wire.ts'
import type { ExecutionRow } from './engine/events/events.ts'
import { warningsOf } from './engine/run/warnings.ts'
import type { Execution } from './schema.ts'

// Executions as the API shows them.

/** Columns that lists leave out, because they may be long. */
export const LONG_COLUMNS = { message: true, result: true, resultObject: true } as const

/** A row as lists read it. */
export type ListedRow = Omit<ExecutionRow, keyof typeof LONG_COLUMNS>

/** Converts a row for a list: with the beginning of its message, and without its result. */
export const toListed = (actor: Actor, row: ListedRow): Omit<z.input<typeof Execution>, 'result' | 'resultObject'> => ({
  id: row.id,
  executionId: row.id,
  agentId: row.agentId,
  agentVersion: row.agentVersion,
  organizationId: row.organizationId,
  userId: row.userId,
  tokenId: isAdmin(actor) || actor.userId === row.userId ? row.tokenId : null,
  status: row.status,
  ...(row.waitingFor && { waitingFor: row.waitingFor }),
  message: row.preview,
  mediaIds: row.mediaIds as string[],
  files: row.files as string[],
  ...(row.error !== null && { error: row.error }),
  ...(row.errorCode !== null && { errorCode: row.errorCode }),
  stopReason: row.stopReason as StopReason | null,
  model: row.model,
  modelsTried: row.modelsTried as string[],
  usage: { input_tokens: row.inputTokens, output_tokens: row.outputTokens },
  warnings: warningsOf(row),
  usageEstimated: row.usageEstimated,
  chatId: row.chatId,
  sessionId: row.sessionId,
  spaceId: row.spaceId,
  ...(row.taskId && { taskId: row.taskId }),
  ...(row.missionId && { missionId: row.missionId }),
  ...(row.parentExecutionId && { parentExecutionId: row.parentExecutionId }),
  depth: row.depth,
  attempt: row.attempt,
  ...(row.startedAt &&
    row.completedAt && { executionTime: Math.max(0, row.completedAt.getTime() - row.startedAt.getTime()) }),
  createdAt: row.createdAt.toISOString(),
  ...(row.startedAt && { startedAt: row.startedAt.toISOString() }),
  ...(row.completedAt && { completedAt: row.completedAt.toISOString() }),
  updatedAt: row.updatedAt.toISOString(),
})

/**
 * Columns with texts of the caller, the model and the provider, which are hidden from callers who may not read the run.
 */
export const NO_TEXTS = {
  message: '',
  preview: '',
  mediaIds: [],
  files: [],
  result: null,
  resultObject: null,
  error: null,
  errorCode: null,
  warnings: null,
} satisfies Partial<ExecutionRow>

/** Returns an execution without its texts: state, times and usage. */
export const toState = (actor: Actor, row: ExecutionRow) => ({
  ...toExecution(actor, { ...row, ...NO_TEXTS }),
  restricted: true as const,
})

/** Converts a row for the API, with its texts. */
export const toExecution = (actor: Actor, row: ExecutionRow): z.input<typeof Execution> => ({
  ...toListed(actor, row),
  message: row.message,
  ...(row.result !== null && { result: row.result }),
  ...(row.resultObject !== null && { resultObject: parseExact(row.resultObject) }),
})
