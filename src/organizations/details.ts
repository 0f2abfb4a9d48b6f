import type { z } from 'zod'
import { type Actor, isAdmin, ownOrganization, permit } from '../auth/actor.ts'
import { audit, changesOf } from '../auth/audit.ts'
import type { Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { AppError, badRequest, conflict, forbidden, invalidField, lacksScopes } from '../errors.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import type { CreateOrganization, Organization, OrganizationId, UpdateOrganization } from './schema.ts'
import { addMember, createOrganization, findBySlug, isReserved, leaveSlug, toSlug } from './service.ts'

const COLUMNS = { id: true, name: true, slug: true, createdAt: true } as const

const toOrganization = (
  { id, name, slug, createdAt }: { id: string; name: string; slug: string; createdAt: Date },
  role: Actor['role'],
): z.input<typeof Organization> => ({ id, name, slug, createdAt: createdAt.toISOString(), role })

/** Returns the id of the caller's organization. Throws 403 for another one, and for callers who are no admin. */
export const administered = (actor: Actor, id: string): string => permit(ownOrganization(actor, id), isAdmin(actor))

/** GET /organizations: the organizations of the caller, in the order of joining. */
export async function list({ userId }: Actor, { db }: Deps) {
  const rows = await db.membership.findMany({
    where: { userId },
    select: { role: true, organization: { select: COLUMNS } },
    orderBy: [{ createdAt: 'asc' }, { organizationId: 'asc' }],
  })
  return { organizations: rows.map(({ role, organization }) => toOrganization(organization, role)) }
}

/** GET /organizations/{id}, for any member. */
export async function get(actor: Actor, { db }: { db: Tx }, { id }: z.output<typeof OrganizationId>) {
  const row = await db.organization.findUniqueOrThrow({ where: { id: ownOrganization(actor, id) }, select: COLUMNS })
  return { organization: toOrganization(row, actor.role) }
}

const isTaken = () => conflict('Organization slug already exists', { detail: 'Choose another slug.' })

/** Checks a slug. Throws 400 for one that is malformed or reserved, 409 for one of another organization. */
async function checkSlug(tx: Tx, given: string, now: Date, ownId?: string): Promise<string> {
  const slug = given.normalize('NFC')
  if (!slug || slug !== toSlug(slug)) throw invalidField('slug', 'lower-case letters, digits and single hyphens')
  if (isReserved(slug)) {
    throw badRequest('Invalid slug. It is reserved', {
      detail: 'The server has paths of this name. Choose another slug.',
    })
  }
  const owner = await findBySlug(tx, slug, now)
  if (owner !== null && owner !== ownId) throw isTaken()
  return slug
}

const refuseTaken = (error: unknown): never => {
  throw isUniqueViolation(error) ? isTaken() : error
}

/** PATCH /organizations/{id}, by admins. A former slug redirects for a year. */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateOrganization>) {
  const id = administered(actor, input.id)
  const now = deps.clock.now()
  await deps.db
    .$transaction(async (tx) => {
      const before = await tx.organization.findUniqueOrThrow({ where: { id }, select: { name: true, slug: true } })
      const slug = input.slug === undefined ? undefined : await checkSlug(tx, input.slug, now, id)
      const changes = omitUndefined({ name: input.name, slug })
      if (!hasChanges(before, changes)) return
      await tx.organization.update({ where: { id }, data: changes, select: { id: true } })
      if (slug !== undefined && slug !== before.slug) await leaveSlug(tx, id, before.slug, slug, now)
      await audit(tx, actor, 'organization.update', id, now, changesOf(before, changes))
    })
    .catch(refuseTaken)
  deps.bus.publish('token', [actor.tokenId || actor.userId])
  return get(actor, deps, { id })
}

/** Throws 403 if users must not create organizations, or the caller lacks rights that a new owner would have. */
export async function checkCreate(actor: Actor, { db, settings }: Pick<Deps, 'db' | 'settings'>): Promise<void> {
  if (!settings.ALLOW_NEW_ORGANIZATIONS) {
    throw forbidden({ detail: 'The operator creates organizations: npm run admin -- org create NAME' })
  }
  if (!actor.scopes.includes('*')) throw lacksScopes(['*'])
  const service = await db.serviceAccount.findUnique({ where: { userId: actor.userId }, select: { userId: true } })
  if (service) throw forbidden({ detail: 'A service account belongs to one organization.' })
}

/**
 * POST /organizations: creates an organization that the caller owns. Throws 403 as {@link checkCreate} does, 409 for a
 * taken slug.
 */
export async function create(actor: Actor, deps: Deps, { name, slug }: z.output<typeof CreateOrganization>) {
  await checkCreate(actor, deps)
  const now = deps.clock.now()
  const row = await deps.db
    .$transaction(async (tx) => {
      const chosen = slug == null ? await freeSlug(tx, name, now) : await checkSlug(tx, slug, now)
      const created = await createOrganization(tx, { name, slug: chosen }, now, actor)
      const { email } = await tx.user.findUniqueOrThrow({ where: { id: actor.userId }, select: { email: true } })
      await addMember(tx, created.id, email, 'owner', now, { ...actor, organizationId: created.id })
      return created
    })
    .catch(refuseTaken)
  const organization = toOrganization(row, 'owner')
  return { id: organization.id, name: organization.name, organization }
}

/** Maximum number of organizations with the same name that get numbered slugs. */
const MAX_NUMBER = 1000

/** Makes a slug from a name, numbered if others have it. */
async function freeSlug(tx: Tx, name: string, now: Date): Promise<string> {
  const wanted = toSlug(name) || 'organization'
  for (let number = 1; number <= MAX_NUMBER; number++) {
    const slug = number === 1 ? wanted : `${wanted}-${number}`
    if (!isReserved(slug) && (await findBySlug(tx, slug, now)) === null) return slug
  }
  throw new AppError(409, 'Organization slug already exists', { detail: 'Give a slug.' })
}
