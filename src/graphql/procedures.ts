import type { AnyProcedure } from '@trpc/server'
import type { Scope } from '../auth/scopes.ts'
import type { Extensions } from './builder.ts'

type Definition = {
  meta?: { openapi?: { summary: string }; scopes?: readonly Scope[] }
  inputs: Extensions['input'][]
}

/** Returns the description, scopes and input messages that a field inherits from its procedure. */
export function procedureExtensions(
  procedure: AnyProcedure,
  more: Extensions = {},
): { description?: string; extensions: Extensions } {
  const { meta, inputs } = procedure._def as unknown as Definition
  const [input] = inputs
  return {
    ...(meta?.openapi && { description: meta.openapi.summary }),
    extensions: { procedure, scopes: meta?.scopes ?? [], ...(input && { input }), ...more },
  }
}
