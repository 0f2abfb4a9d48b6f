import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Deps } from '../deps.ts'
import * as keys from '../keys/service.ts'
import { checkOrganization } from './organization.ts'
import type { CreateToken, ListTokens } from './schema.ts'

// Keys under their names in the hosted original's client (contract-2.md section 1.15).

/** POST /api/tokens/create: creates a key of the caller. Throws 403 for the id of another organization. */
export function create(actor: Actor, deps: Deps, { organizationId, ...input }: z.output<typeof CreateToken>) {
  checkOrganization(actor, organizationId)
  return keys.create(actor, deps, input)
}

/** Expiry reported for keys without one, because clients treat a missing date as past. */
const NEVER = '9999-12-31T23:59:59.999Z'

/** GET /api/tokens/list: lists the caller's keys, newest first. `count` is the number of keys in the response. */
export async function list(actor: Actor, deps: Deps, { organizationId, ...input }: z.output<typeof ListTokens>) {
  checkOrganization(actor, organizationId)
  const found = await keys.list(actor, deps, input)
  const tokens = found.keys.map(({ preview, expiresAt, ...key }) => ({
    ...key,
    tokenPreview: preview,
    expiresAt: expiresAt ?? NEVER,
  }))
  return { tokens, count: tokens.length, nextCursor: found.nextCursor }
}
