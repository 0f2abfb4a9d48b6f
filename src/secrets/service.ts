import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { dataKeyOf } from '../crypto/data-key.ts'
import { seal } from '../crypto/envelope.ts'
import type { Deps } from '../deps.ts'
import { badRequest, forbidden, notFound } from '../errors.ts'
import { reachable as reachableSpace } from '../spaces/visibility.ts'
import { contextOf, OF_ORGANIZATION, type Scope } from './resolve.ts'
import { MAX_SECRETS } from './schema.ts'

/** Owner of secrets: a space, or the organization itself. */
export type Owner = { spaceId: string } | { orgId: string }

type Found = Scope & { ownerId: string | null }

/**
 * Finds the owner. Throws 404 for a space that the caller cannot reach, and 403 for another organization, whether it
 * exists or not.
 */
async function find(actor: Actor, { db }: Deps, owner: Owner): Promise<Found> {
  const { organizationId } = actor
  if ('orgId' in owner) {
    if (owner.orgId !== organizationId) throw forbidden()
    return { organizationId, scope: OF_ORGANIZATION, ownerId: null }
  }
  const where = { id: owner.spaceId, ...reachableSpace(actor) }
  const space = await db.space.findFirst({ where, select: { id: true, ownerId: true } })
  if (!space) throw notFound('Space')
  return { organizationId, scope: space.id, ownerId: space.ownerId }
}

/**
 * Finds secrets that the caller may write: the owner of the space and admins may, and only admins those of the
 * organization (contract.md section 2). The names and hosts are visible to everyone who can reach the space.
 */
export async function findWritable(actor: Actor, deps: Deps, owner: Owner): Promise<Authorized<Scope>> {
  const { ownerId, ...scope } = await find(actor, deps, owner)
  return permit(scope, isAdmin(actor) || ownerId === actor.userId)
}

const rowsOf = ({ organizationId, scope }: Scope) => ({ organizationId, scope })

/** Lists the names in alphabetical order, with their hosts. The values are for requests of runs only. */
export async function list(actor: Actor, deps: Deps, owner: Owner) {
  const found = await find(actor, deps, owner)
  const rows = await deps.db.secret.findMany({
    where: rowsOf(found),
    select: { name: true, hosts: true },
    orderBy: { name: 'asc' },
  })
  const hosts = Object.fromEntries(rows.map((row) => [row.name, row.hosts as string[]]))
  return { organizationId: actor.organizationId, secrets: rows.map(({ name }) => name), hosts, count: rows.length }
}

/** A value, with the hosts that runs may send it to. */
type Given = string | { value: string; hosts: string[] }

/** Stores secrets, each encrypted for its own row, and replaces existing ones. Throws 400 beyond the limit. */
export async function set(actor: Actor, deps: Deps, owner: Owner, secrets: Readonly<Record<string, Given>>) {
  const scope = await findWritable(actor, deps, owner)
  const keys = Object.keys(secrets)
  const now = deps.clock.now()
  await deps.db.$transaction(async (tx) => {
    const dataKey = await dataKeyOf(tx, deps, scope.organizationId, now)
    const others = await tx.secret.count({ where: { ...rowsOf(scope), name: { notIn: keys } } })
    if (others + keys.length > MAX_SECRETS)
      throw badRequest(`Too many secrets. At most ${MAX_SECRETS}`, {
        detail: `There are ${others} others, and ${keys.length} were sent: delete some first.`,
      })
    for (const [name, given] of Object.entries(secrets)) {
      const { value, hosts } = typeof given === 'string' ? { value: given, hosts: [] } : given
      const id = { ...rowsOf(scope), name }
      const content = { ciphertext: seal(dataKey, contextOf(id), Buffer.from(value)), hosts, updatedBy: actor.userId }
      await tx.secret.upsert({
        where: { organizationId_scope_name: id },
        create: { ...id, ...content, createdAt: now, updatedAt: now },
        update: { ...content, updatedAt: now },
        select: { name: true },
      })
    }
    await audit(tx, actor, 'secret.set', targetOf(scope, keys), now)
  })
  return { keys }
}

/** Deletes all of the named secrets, or none with a 404 if one does not exist. */
export async function remove(actor: Actor, deps: Deps, owner: Owner, names: readonly string[]) {
  const scope = await findWritable(actor, deps, owner)
  const keys = [...new Set(names)]
  await deps.db.$transaction(async (tx) => {
    const { count } = await tx.secret.deleteMany({ where: { ...rowsOf(scope), name: { in: keys } } })
    if (count !== keys.length) throw notFound('Secret')
    await audit(tx, actor, 'secret.delete', targetOf(scope, keys), deps.clock.now())
  })
  return { message: 'Secrets deleted successfully', keys }
}

const targetOf = ({ scope }: Scope, names: readonly string[]) => `${scope}/${names.join(',')}`
