import type { IncomingMessage, ServerResponse } from 'node:http'
import { nodeHTTPRequestHandler } from '@trpc/server/adapters/node-http'
import type { TRPCRequestInfo } from '@trpc/server/http'
import { type AppError, badRequest, methodNotAllowed, unsupportedType } from '../errors.ts'
import { percentDecoded } from '../lib/text.ts'
import { appRouter } from '../router.ts'
import type { Context } from '../trpc.ts'
import { fromTRPCError, requestIds, toTRPCError } from '../trpc-errors.ts'
import { isJson, maxBytes } from './body.ts'
import { compressWritten } from './compress.ts'
import { keyedRouter } from './keyed.ts'
import { report } from './log.ts'
import { noSuchPath } from './no-such-path.ts'
import { procedures } from './procedures.ts'

/** Maximum number of calls in a batch. */
const MAX_BATCH = 10

/** Procedures that must set a cookie, which a streamed batch cannot. */
const SIGNS_IN: ReadonlySet<string> = new Set([
  ...['sessions.signIn', 'sessions.signOut', 'sessions.useLink', 'sessions.acceptInvitation'],
])

/** Returns the methods of the procedures in a path under `/trpc/` if all are of the same kind, else null. */
function methodsOf(path: string): string[] | null {
  const types = path.split(',').map((name) => Object.hasOwn(procedures, name) && procedures[name]?._def.type)
  if (types.every((type) => type === 'query')) return ['GET', 'HEAD']
  if (types.every((type) => type === 'mutation')) return ['POST']
  return types.every((type) => type === 'subscription') ? ['GET'] : null
}

/** Returns the error for a request that tRPC would accept and this server does not; null for all others. */
function refusalOf(req: IncomingMessage, { calls, connectionParams }: TRPCRequestInfo): AppError | null {
  // tRPC would also accept forms and files.
  if (req.method === 'POST' && !isJson(req)) return unsupportedType()
  if (calls.length > MAX_BATCH)
    return badRequest(`A batch has at most ${MAX_BATCH} calls, this one ${calls.length}: set maxItems`, {
      detail: 'The typed client splits batches: set `maxItems` of its link.',
    })
  if (calls.length > 1 && req.method === 'POST' && req.headers['idempotency-key'] !== undefined)
    return badRequest('An Idempotency-Key is for one call, not for a batch', {
      detail: 'Send a mutation with a key by itself, with httpLink.',
    })
  const isStreamed = req.headers['trpc-accept'] !== undefined
  if (isStreamed && calls.some(({ path }) => SIGNS_IN.has(path)))
    return badRequest('Sign in or out without streaming: the cookie could not be set (httpLink)', {
      detail: 'Use httpLink or httpBatchLink for procedures of sessions.',
    })
  // A token in a subscription's URL would appear in the logs of proxies.
  if (connectionParams)
    return badRequest('Send an Authorization header, not connectionParams', {
      detail: 'Set the header in `eventSourceOptions` of the httpSubscriptionLink, as the typed client does.',
    })
  return null
}

/** Answers the procedures in a path under `/trpc/`, with statuses and headers that tRPC's codes cannot express. */
export async function handleTrpc(
  context: Context,
  path: string,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<void> {
  if (req.method === 'HEAD') {
    const methods = methodsOf(path)
    if (!methods) throw noSuchPath()
    if (!methods.includes('HEAD')) throw methodNotAllowed(methods)
    // tRPC would answer it without executing the procedure. Node sends no body.
    req.method = 'GET'
  }
  // A mutation may return a secret, and a streaming batch must not be buffered.
  if (req.method === 'GET' && req.headers['accept-encoding'] && !req.headers['trpc-accept']) compressWritten(res)
  const key = req.method === 'POST' ? req.headers['idempotency-key'] : undefined
  return nodeHTTPRequestHandler({
    router: key === undefined ? appRouter : keyedRouter(percentDecoded(path), String(key), res),
    req,
    res,
    path,
    createContext: ({ info }) => {
      const refusal = refusalOf(req, info)
      if (refusal) throw toTRPCError(refusal)
      return context
    },
    maxBodySize: maxBytes(req),
    // tRPC's codes cannot express all statuses, nor a Retry-After.
    responseMeta: ({ errors: [error], data }) => {
      // tRPC would replace the header.
      const vary = { vary: `${res.getHeader('Vary')}, trpc-accept, accept` }
      if (!error || data.length > 1) return { headers: vary }
      const { status, headers } = fromTRPCError(error)
      const allowed = status === 405 && methodsOf(path)
      return {
        status,
        headers: {
          ...vary,
          ...headers,
          ...(allowed && { Allow: allowed.join(', ') }),
          'content-type': 'application/json',
        },
      }
    },
    onError: ({ error }) => {
      requestIds.set(error, context.requestId)
      report(context.deps, fromTRPCError(error), context.requestId)
    },
  })
}
