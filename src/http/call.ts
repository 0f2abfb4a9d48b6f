import { getTRPCErrorFromUnknown, TRPCError } from '@trpc/server'
import type { z } from 'zod'
import { parseOutput } from '../lib/preserialize.ts'
import type { Context, Meta } from '../trpc.ts'

type Result = { ok: true; data: unknown } | { ok: false; error: TRPCError }
type Step = { ctx?: object; input?: unknown; getRawInput?: () => Promise<unknown> }
type Call = {
  path: string
  type: string
  meta: unknown
  signal: undefined
  batchIndex: number
  ctx: object
  input: unknown
  getRawInput: () => Promise<unknown>
}
type Middleware = ((call: Call & { next: (step?: Step) => Promise<Result> }) => Promise<Result>) & { _type?: string }

/** A procedure as built by tRPC. */
export type Procedure = {
  _def: {
    type: 'query' | 'mutation' | 'subscription'
    meta?: Meta
    inputs: readonly z.ZodType[]
    output?: z.ZodObject
    middlewares: readonly Middleware[]
  }
}

/**
 * Returns a caller for a procedure that executes all its middlewares in order, like tRPC's own caller, which copies
 * the call twice per middleware and the whole result once, which takes a tenth of a request. Throws a TRPCError.
 */
export function callerOf({ _def }: Procedure, path: string) {
  const { type, meta, output } = _def
  const middlewares = _def.middlewares.map((each) => (each._type === 'output' && output ? checking(output) : each))

  async function runFrom(index: number, given: Call): Promise<Result> {
    const next = ({ ctx, ...step }: Step = {}) =>
      runFrom(index + 1, { ...given, ...step, ctx: ctx ? { ...given.ctx, ...ctx } : given.ctx })
    try {
      return await middlewares[index]!({ ...given, next })
    } catch (cause) {
      return { ok: false, error: getTRPCErrorFromUnknown(cause) }
    }
  }

  return async (ctx: Context, getRawInput: () => Promise<unknown>): Promise<unknown> => {
    const result = await runFrom(0, {
      path,
      type,
      meta,
      signal: undefined,
      batchIndex: 0,
      ctx,
      input: undefined,
      getRawInput,
    })
    if (!result.ok) throw result.error
    return result.data
  }
}

/** Returns tRPC's output check, without constants. */
const checking =
  (output: z.ZodType): Middleware =>
  async ({ next }) => {
    const result = await next()
    if (!result.ok) return result
    try {
      return { ok: true, data: parseOutput(output, result.data) }
    } catch (cause) {
      throw new TRPCError({ code: 'INTERNAL_SERVER_ERROR', message: 'Output validation failed', cause })
    }
  }
