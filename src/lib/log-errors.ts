import { stdSerializers } from 'pino'
import { detailsOf, NOT_REACHABLE } from './database-errors.ts'
import { troubleIn } from './database-troubles.ts'

/** Fields of errors that are logged beside the type, message and stack. */
const FIELDS = [
  'code',
  'errno',
  'syscall',
  'address',
  'port',
  'hostname',
  'status',
  'statusCode',
  'detail',
  '$metadata',
]

/**
 * Describes an error for the log. Other fields are omitted: libraries put the answers of servers there, which may quote
 * a request with its keys and tokens.
 */
export function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const ofDatabase = describeDatabaseError(error)
  if (ofDatabase) return ofDatabase
  const { type, message, stack, ...others } = stdSerializers.err(error) as Record<string, unknown>
  const fields = Object.fromEntries(FIELDS.flatMap((name) => (name in others ? [[name, others[name]]] : [])))
  const errors = error instanceof AggregateError ? { aggregateErrors: error.errors.map(describeError) } : {}
  return { type, message, stack, ...fields, ...errors }
}

/**
 * Returns the loggable part of an error that comes from the database or from unreadable JSON: its codes and stack
 * locations, which are omitted for a known trouble. The message may repeat queries or stored data, unless there was no
 * connection. Returns undefined for any other error.
 */
function describeDatabaseError(error: Error): object | undefined {
  let cause: unknown = error
  while (cause instanceof Error && !REPEATING.test(cause.name)) cause = cause.cause
  if (!(cause instanceof Error)) return undefined
  const { code, kind, originalCode } = detailsOf(cause)
  const { name: type, message, stack = '' } = cause
  const refusal = kind === NOT_REACHABLE && { message }
  if (troubleIn(cause)) return { type, code, kind, originalCode, ...refusal }
  const start = stack.indexOf(message)
  return { type, code, kind, originalCode, stack: start < 0 ? '' : stack.slice(start + message.length) }
}

const REPEATING = /^(PrismaClient|DriverAdapterError|SyntaxError)/
