import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { dataKeyOf } from '../crypto/data-key.ts'
import { seal } from '../crypto/envelope.ts'
import type { Deps } from '../deps.ts'
import { badRequest, forbidden, notFound } from '../errors.ts'
import { reachable as reachableSpace } from '../spaces/service.ts'
import { MAX_SECRETS } from './schema.ts'

/** Whose secrets: those of a space, or of the organization itself. */
export type Owner = { spaceId: string } | { orgId: string }

/** The rows that hold them. */
type Scope = { organizationId: string; scope: string }

/** The scope of secrets that belong to no space. */
const OF_ORGANIZATION = 'organization'

type Found = Scope & { ownerId: string | null }

/** 404 for a space that the caller cannot reach, 403 for another organization, whether it exists or not. */
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
 * The secrets of a space are written by its owner and by admins, those of the organization by admins: they are for any
 * run of any member (contract.md section 2), though none reads them yet. The names are for whoever can reach the space.
 */
export async function findWritable(actor: Actor, deps: Deps, owner: Owner): Promise<Authorized<Scope>> {
  const { ownerId, ...scope } = await find(actor, deps, owner)
  return permit(scope, isAdmin(actor) || ownerId === actor.userId)
}

const rowsOf = ({ organizationId, scope }: Scope) => ({ organizationId, scope })

/** The names, in alphabetical order. The values are for runs alone. */
export async function list(actor: Actor, deps: Deps, owner: Owner) {
  const found = await find(actor, deps, owner)
  const rows = await deps.db.secret.findMany({
    where: rowsOf(found),
    select: { name: true },
    orderBy: { name: 'asc' },
  })
  return { organizationId: actor.organizationId, secrets: rows.map(({ name }) => name), count: rows.length }
}

/** Stores secrets, each encrypted for its own row: those that are there already are replaced. 400 beyond the limit. */
export async function set(actor: Actor, deps: Deps, owner: Owner, secrets: Readonly<Record<string, string>>) {
  const scope = await findWritable(actor, deps, owner)
  const keys = Object.keys(secrets)
  const now = deps.clock.now()
  await deps.db.$transaction(async (tx) => {
    const dataKey = await dataKeyOf(tx, deps, scope.organizationId, now)
    const others = await tx.secret.count({ where: { ...rowsOf(scope), name: { notIn: keys } } })
    if (others + keys.length > MAX_SECRETS) throw badRequest(`Too many secrets. At most ${MAX_SECRETS}`)
    for (const [name, value] of Object.entries(secrets)) {
      const id = { ...rowsOf(scope), name }
      const content = { ciphertext: seal(dataKey, placeOf(id), Buffer.from(value)), updatedBy: actor.userId }
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

/** Deletes all of the named secrets, or, when one is not there, none: 404. */
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

/** What a secret is bound to: in another row it does not decrypt. */
export const placeOf = ({ organizationId, scope, name }: Scope & { name: string }) => [
  'secret',
  organizationId,
  scope,
  name,
]
