import { createLink } from './auth/links.ts'
import type { Deps } from './deps.ts'
import { createToken } from './keys/service.ts'
import { isUniqueViolation } from './lib/database-errors.ts'
import { addMember, createOrganization } from './organizations/service.ts'

const EMAIL = 'owner@localhost'

/**
 * Initializes an empty database: the organization `default`, its owner and one token with every scope, which is
 * returned to be displayed once. Returns null later, and if BOOTSTRAP_TOKEN set the token (contract.md section 0).
 */
export async function bootstrap(deps: Deps): Promise<{ token: string; link: string } | null> {
  const { db, clock, settings, tokenKey, sessionKey } = deps
  const { TOKEN_PREFIX: prefix, BOOTSTRAP_TOKEN: given } = settings
  if (await db.organization.findFirst({ select: { id: true } })) return null
  const now = clock.now()
  const first = db.$transaction(async (tx) => {
    const { id: organizationId } = await createOrganization(tx, { name: 'Default', slug: 'default' }, now)
    const { id: userId } = await addMember(tx, organizationId, EMAIL, 'owner', now)
    const input = { organizationId, userId, name: 'First token', scopes: ['*'], expiresAt: null }
    const { token } = await createToken(tx, { tokenKey, prefix, now }, input, given)
    if (given !== undefined) return null
    return { token, link: await createLink(tx, sessionKey, { userId, purpose: 'sign_in' }, now) }
  })
  return first.catch((error) => {
    // Another server was first.
    if (isUniqueViolation(error)) return null
    throw error
  })
}
