import { appRouter } from '../router.ts'
import type { Procedure } from './call.ts'

/** All procedures by their name in the router, such as `agents.list`, with the definitions that tRPC's types hide. */
export const procedures = appRouter._def.procedures as unknown as Readonly<Record<string, Procedure>>
