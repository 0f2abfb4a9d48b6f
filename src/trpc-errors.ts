import { type TRPC_ERROR_CODE_KEY, TRPCError } from '@trpc/server'
import { AppError, badRequest, bodyTooLarge, invalidJson, toAppError, unsupportedType } from './errors.ts'

// Errors of the service as those of tRPC, and back.

/** For errors that tRPC creates before the context. */
export const requestIds = new WeakMap<TRPCError, string>()

const CODES: Record<number, TRPC_ERROR_CODE_KEY> = {
  400: 'BAD_REQUEST',
  401: 'UNAUTHORIZED',
  403: 'FORBIDDEN',
  404: 'NOT_FOUND',
  405: 'METHOD_NOT_SUPPORTED',
  409: 'CONFLICT',
  410: 'NOT_FOUND',
  412: 'PRECONDITION_FAILED',
  413: 'PAYLOAD_TOO_LARGE',
  415: 'UNSUPPORTED_MEDIA_TYPE',
  422: 'UNPROCESSABLE_CONTENT',
  429: 'TOO_MANY_REQUESTS',
  502: 'BAD_GATEWAY',
  503: 'SERVICE_UNAVAILABLE',
}

/** Wraps an error for tRPC with the original as its cause, where {@link toAppError} finds it. */
export const toTRPCError = (error: AppError): TRPCError =>
  new TRPCError({ code: CODES[error.status] ?? 'INTERNAL_SERVER_ERROR', message: error.message, cause: error })

/**
 * Returns the public form of an error from tRPC or trpc-to-openapi: the service's own, or theirs for unreadable or
 * unknown input. Output that does not fit its schema is a fault of the service. `input`: see {@link toAppError}.
 */
export function fromTRPCError(error: unknown, input?: unknown): AppError {
  if (error instanceof TRPCError && error.cause instanceof AppError) return error.cause
  const isOutput = error instanceof TRPCError && error.message === 'Output validation failed'
  const ours = toAppError(isOutput ? new Error(error.message, { cause: error.cause?.message }) : error, input)
  if (ours.status !== 500 || !(error instanceof TRPCError)) return ours
  // Input errors keep their messages; others are errors of the service.
  const isSyntax = error.code === 'BAD_REQUEST' && error.cause instanceof SyntaxError
  const code = isSyntax ? 'PARSE_ERROR' : error.code
  const theirs = THEIRS[code]?.() ?? ours
  return new AppError(theirs.status, theirs.message, {
    cause: error,
    code: theirs.code,
    ...(theirs.detail !== undefined && { detail: theirs.detail }),
  })
}

const THEIRS: { [Code in TRPC_ERROR_CODE_KEY]?: () => AppError } = {
  PARSE_ERROR: () => invalidJson(),
  BAD_REQUEST: () =>
    badRequest('Malformed tRPC request', {
      detail: 'Send the input as JSON: of a query in `?input=`, of a mutation in the body. The typed client does it.',
    }),
  NOT_FOUND: () =>
    new AppError(404, 'Not found', {
      detail: 'There is no such procedure. Names are like agents.list: the type of the client has all of them.',
    }),
  METHOD_NOT_SUPPORTED: () =>
    new AppError(405, 'Method not allowed', { detail: 'Queries are GET, mutations are POST' }),
  PAYLOAD_TOO_LARGE: () => bodyTooLarge(),
  UNSUPPORTED_MEDIA_TYPE: () => unsupportedType(),
}
