import { getTRPCErrorFromUnknown, type TRPCError } from '@trpc/server'
import type { Context } from '../trpc.ts'

type Result = { ok: true; data: unknown } | { ok: false; error: TRPCError }
type Step = { ctx?: object; input?: unknown; getRawInput?: () => Promise<unknown> }
type Call = { path: string; type: string; ctx: object; input?: unknown; getRawInput: () => Promise<unknown> }
type Middleware = (
  call: Call & { meta: unknown; signal: undefined; batchIndex: number; next: (step?: Step) => Promise<Result> },
) => Promise<Result>

/** A procedure as tRPC has built it. */
export type Procedure = { _def: { type: string; meta?: unknown; middlewares: readonly Middleware[] } }

/**
 * Calls a procedure: all its middlewares, in their order, with what each hands to the next, as tRPC's own caller does.
 * That one copies the call twice for each middleware, property by property, which is a tenth of a whole request. Throws
 * a TRPCError.
 */
export async function call(
  { _def }: Procedure,
  path: string,
  ctx: Context,
  getRawInput: () => Promise<unknown>,
): Promise<unknown> {
  const { type, meta, middlewares } = _def
  async function run(index: number, given: Call): Promise<Result> {
    const next = (step: Step = {}) =>
      run(index + 1, {
        ...given,
        ctx: step.ctx ? { ...given.ctx, ...step.ctx } : given.ctx,
        input: 'input' in step ? step.input : given.input,
        getRawInput: step.getRawInput ?? given.getRawInput,
      })
    try {
      const result = await middlewares[index]!({ ...given, meta, signal: undefined, batchIndex: 0, next })
      return result.ok ? { ok: true, data: result.data } : result
    } catch (cause) {
      return { ok: false, error: getTRPCErrorFromUnknown(cause) }
    }
  }
  const result = await run(0, { path, type, ctx, getRawInput })
  if (!result.ok) throw result.error
  return result.data
}
