import type { Deps } from './deps.ts'
import { createToken } from './keys/service.ts'
import { addMember, createOrganization } from './organizations/service.ts'

const EMAIL = 'owner@localhost'

/**
 * The first start on an empty database: the organization `default`, its owner and one token with every scope, which is
 * returned to be shown once; null later, and when BOOTSTRAP_TOKEN gave it (contract.md section 0).
 */
export async function bootstrap({ db, clock, settings, tokenKey }: Deps): Promise<string | null> {
  const { TOKEN_PREFIX: prefix, BOOTSTRAP_TOKEN: given } = settings
  if (await db.organization.findFirst({ select: { id: true } })) return null
  const now = clock.now()
  return db.$transaction(async (tx) => {
    // Another server may have been first.
    if (await tx.organization.findFirst({ select: { id: true } })) return null
    const { id: organizationId } = await createOrganization(tx, { name: 'Default', slug: 'default' }, now)
    const { id: userId } = await addMember(tx, organizationId, EMAIL, 'owner', now)
    const input = { organizationId, userId, name: 'First token', scopes: ['*'], expiresAt: null }
    const { token } = await createToken(tx, { tokenKey, prefix, now }, input, given)
    return given === undefined ? token : null
  })
}
