import type { ServerResponse } from 'node:http'
import { readKey } from '../idempotency.ts'
import { isObject } from '../lib/unknown.ts'
import { appRouter } from '../router.ts'
import type { Context } from '../trpc.ts'
import { fromTRPCError, toTRPCError } from '../trpc-errors.ts'
import { callOnce } from './conditional.ts'
import { procedures } from './procedures.ts'
import { locate, routeOf, takesKey } from './routes.ts'

type Call = { ctx: Context; getRawInput: () => Promise<unknown> }

/**
 * Returns the router for a request of tRPC to one procedure with an Idempotency-Key. A mutation is called as its REST
 * route calls it, so that the key belongs to the same request on both APIs.
 */
export function keyedRouter(name: string, key: string, res: ServerResponse): typeof appRouter {
  const route = routeOf(name)
  if (!route || !takesKey(route.method)) return appRouter
  const call = async ({ ctx, getRawInput }: Call): Promise<unknown> => {
    await route.admit(ctx)
    const input = (await getRawInput()) ?? {}
    const place = isObject(input) && locate(route, input)
    // The procedure refuses the input.
    if (!place) return route.call(ctx, async () => input)
    const { path, parameters } = place
    const idempotency = readKey(key, route.method, path)
    const request = { route, path, parameters, input, idempotency, ifMatch: undefined, onAccepted: null }
    return callOnce(ctx, request).finally(() => {
      if (idempotency.replayed && !res.headersSent) res.setHeader('Idempotent-Replayed', 'true')
    })
  }
  const refusing = (given: Call) =>
    call(given).catch((error: unknown) => {
      throw toTRPCError(fromTRPCError(error))
    })
  const keyed = { [name]: Object.assign(refusing, { _def: procedures[name]?._def }) }
  return { ...appRouter, _def: { ...appRouter._def, procedures: keyed } } as unknown as typeof appRouter
}
