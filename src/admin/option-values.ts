import { z } from 'zod'
import { isScope, SCOPE_ADVICE } from '../auth/scopes.ts'
import type { Role } from '../db/client.ts'
import { normalizeEmail } from '../lib/email.ts'
import { IN_RANGE, isInRange } from '../lib/fields.ts'
import { toSlug } from '../organizations/service.ts'

/** Thrown if a valid command cannot be executed. The message states the reason in one line. */
export class AdminError extends Error {
  override name = 'AdminError'
}

const ROLES: readonly string[] = ['owner', 'admin', 'member'] satisfies Role[]
const MAX_LENGTH = 200
const MAX_DAYS = 36_500

/** Validates a name: trimmed, not empty, one line. */
export function toName(value: string, what: string): string {
  const name = value.trim()
  if (!name) throw new AdminError(`${what} must not be empty.`)
  if (name.length > MAX_LENGTH) throw new AdminError(`${what} must have at most ${MAX_LENGTH} characters.`)
  if (/\p{Cc}/u.test(name)) throw new AdminError(`${what} must not have control characters.`)
  return name
}

/** Addresses are compared in stored form: {@link normalizeEmail}. */
export function toEmail(value: string): string {
  const email = normalizeEmail(value)
  if (email === null) throw new AdminError(`Not an e-mail address: ${value}. For example ada@example.com`)
  return email
}

/** Parses a role. */
export function toRole(value: string): Role {
  if (!ROLES.includes(value)) throw new AdminError(`Unknown role: ${value}. Give one of: ${ROLES.join(', ')}`)
  return value as Role
}

/** Returns a slug in its normal form. Throws if it has characters that no slug has. */
export function checkedSlug(value: string): string {
  const slug = value.normalize('NFC')
  if (!slug || slug !== toSlug(slug)) {
    throw new AdminError(`Not a slug: ${value}. Lower-case letters, digits and single hyphens, for example acme-2`)
  }
  return slug
}

/** Returns the scopes, `*` by default. */
export function toScopes(values: readonly string[] = ['*']): string[] {
  const unknown = values.find((value) => !isScope(value))
  if (unknown === undefined) return [...new Set(values)]
  throw new AdminError(
    `Unknown scope: ${unknown}. A scope is *, agents:execute, <resource>:read or <resource>:write. ${SCOPE_ADVICE}`,
  )
}

/** A date means the beginning of that day in UTC. */
const Moment = z.iso.datetime({ offset: true }).or(z.iso.date())

/** Returns the expiry of a token, or null (never) if neither option is given. */
export function toExpiry(days: string | undefined, at: string | undefined, now: Date): Date | null {
  if (days !== undefined && at !== undefined) throw new AdminError('Give --expires or --expires-at, not both.')
  if (days !== undefined) {
    const count = Number(days)
    if (!/^\d+$/.test(days) || count < 1 || count > MAX_DAYS) {
      throw new AdminError(`Not a number of days: ${days}. --expires takes 1 to ${MAX_DAYS}`)
    }
    return new Date(now.getTime() + count * 86_400_000)
  }
  if (at === undefined) return null
  if (!Moment.safeParse(at).success) {
    throw new AdminError(`Not an ISO 8601 date or time: ${at}. For example 2030-01-31 or 2030-01-31T12:00:00Z`)
  }
  const moment = new Date(at)
  if (!isInRange(moment)) throw new AdminError(`Not ${IN_RANGE}: ${at}`)
  return moment
}
