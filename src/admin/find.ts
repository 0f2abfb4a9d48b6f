import type { Tx } from '../db/client.ts'
import { findBySlug } from '../organizations/service.ts'
import { AdminError, toEmail } from './option-values.ts'

/** Columns of an organization in the answers of commands. */
export const ORGANIZATION = { id: true, name: true, slug: true } as const

/** Finds an organization by its slug. Throws an {@link AdminError} for an unknown one. */
export async function findOrganization(tx: Tx, slug: string, now: Date) {
  const id = await findBySlug(tx, slug, now)
  const organization = id === null ? null : await tx.organization.findUnique({ where: { id }, select: ORGANIZATION })
  if (!organization)
    throw new AdminError(`There is no organization with the slug ${slug}. List them: npm run admin -- org list`)
  return organization
}

/** Finds a user by the e-mail address. Throws an {@link AdminError} for an unknown one. */
export async function findUser(tx: Tx, email: string) {
  const user = await tx.user.findUnique({ where: { email: toEmail(email) }, select: { id: true, email: true } })
  if (!user)
    throw new AdminError(`There is no user with the e-mail address ${email}. List them: npm run admin -- user list`)
  return user
}

/** Returns the error for a user who is no member of an organization. */
export const notMember = (email: string, slug: string) =>
  new AdminError(`${email} is not a member of ${slug}. List its members: npm run admin -- user list --org ${slug}`)
