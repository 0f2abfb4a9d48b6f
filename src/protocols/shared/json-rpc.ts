import type { ServerResponse } from 'node:http'
import { type AppError, textOf, toBody } from '../../errors.ts'
import { sendJson } from '../../http/body.ts'
import { report } from '../../http/log.ts'
import type { Context } from '../../trpc.ts'
import type { ErrorBody } from '../../wire.ts'

/** JSON-RPC's code for an error that the server defines. */
const REFUSED = -32_000

type Form = { code?: number; dataOf?: (body: ErrorBody) => unknown }

/**
 * Sends a refusal of a door in JSON-RPC's form, with its status, and with REST's body as its data unless the protocol
 * has another form for these. Libraries show the message, and nothing of another body. The id is null, because most
 * refusals come before the message is read. Destroys a response that has begun.
 */
export function sendRefusal(
  { deps, requestId }: Context,
  res: ServerResponse,
  error: AppError,
  { code = REFUSED, dataOf = (body) => body }: Form = {},
): void {
  report(deps, error, requestId)
  if (res.headersSent) return void res.destroy()
  const data = dataOf(toBody(error, requestId))
  sendJson(
    res,
    error.status,
    { jsonrpc: '2.0', id: null, error: { code, message: textOf(error), data } },
    error.headers,
  )
}
