import type { Actor } from '../auth/actor.ts'
import { forbidden } from '../errors.ts'

/** Values that clients send for an organization that they do not know. */
const UNKNOWN: readonly unknown[] = [undefined, null, 'undefined', 'null']

/** Throws 403 if a client names another organization than the caller's. */
export function checkOrganization({ organizationId }: Actor, named: string | null | undefined): void {
  if (!UNKNOWN.includes(named) && named !== organizationId) throw forbidden()
}
