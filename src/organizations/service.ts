import { audit, operator } from '../auth/audit.ts'
import type { Role, Tx } from '../db/client.ts'
import { newId } from '../lib/id.ts'

/**
 * A name as a part of a path: lower-case letters and digits of any script without their accents, joined by hyphens.
 * Empty when the name has none.
 */
export const toSlug = (name: string): string =>
  name
    .normalize('NFKD')
    .replace(/\p{Mark}/gu, '')
    .toLowerCase()
    .replace(/[^\p{Letter}\p{Number}]+/gu, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 60)

/** An organization without members, its default space owned by `ownerId` (contract.md section 3). */
export async function createOrganization(tx: Tx, input: { name: string; slug: string }, at: Date) {
  const id = newId()
  const organization = await tx.organization.create({ data: { id, ...input, createdAt: at } })
  await audit(tx, operator(id), 'organization.create', id, at)
  return organization
}

/** Makes the user if there is none with that e-mail, and gives them the role. The first member owns the default space. */
export async function addMember(tx: Tx, organizationId: string, email: string, role: Role, at: Date) {
  const name = email.split('@', 1)[0] ?? email
  const user = await tx.user.upsert({
    where: { email },
    create: { id: newId(), email, name, createdAt: at, updatedAt: at },
    update: {},
  })
  const membership = { organizationId, userId: user.id }
  await tx.membership.upsert({
    where: { organizationId_userId: membership },
    create: { ...membership, role, createdAt: at },
    update: { role },
  })
  if (!(await tx.space.findFirst({ where: { organizationId, isDefault: true }, select: { id: true } }))) {
    await tx.space.create({
      data: {
        id: newId(),
        organizationId,
        name: 'General',
        visibility: 'organization',
        ownerId: user.id,
        isDefault: true,
        createdAt: at,
        updatedAt: at,
      },
    })
  }
  await audit(tx, operator(organizationId), 'member.add', user.id, at)
  return user
}
