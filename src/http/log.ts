import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Deps } from '../deps.ts'
import type { AppError } from '../errors.ts'
import { pathOf } from './paths.ts'

/** Logs the cause of an error with its stack. Only unexpected errors have one; the request line contains the rest. */
export function report({ log }: Deps, error: AppError, requestId: string): void {
  if (error.status >= 500 && error.cause) log.error({ requestId, err: error.cause }, error.message)
}

/** Errors of normal use: no token yet, a guess, the stream that an MCP client asks for. */
const USUAL: ReadonlySet<number> = new Set([401, 404, 405])

/** Logs a request without its query string, which may contain misplaced secrets. */
export function logRequest({ log }: Deps, req: IncomingMessage, res: ServerResponse, details: object): void {
  const status = res.statusCode
  const level = status >= 500 ? 'error' : USUAL.has(status) ? 'info' : status >= 400 ? 'warn' : 'debug'
  log[level]({ ...details, method: req.method, path: pathOf(req), status }, 'request')
}
