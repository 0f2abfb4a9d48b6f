import type { AnyProcedure } from '@trpc/server'
import type { Meta } from '../trpc.ts'
import type { Extensions } from './builder.ts'

/** What a field takes over from the procedure it shows: its description, its scopes, and its words for bad input. */
export function shows(procedure: AnyProcedure): { description?: string; extensions: Extensions } {
  const { meta, inputs } = procedure._def as unknown as { meta?: Meta; inputs: Extensions['input'][] }
  const [input] = inputs
  return {
    ...(meta?.openapi && { description: meta.openapi.summary }),
    extensions: { scopes: meta?.scopes ?? [], ...(input && { input }) },
  }
}
