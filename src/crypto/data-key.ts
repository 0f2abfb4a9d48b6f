import { randomBytes } from 'node:crypto'
import type { Db, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { seal, unseal } from './envelope.ts'

/** Returns the context that an organization's key is bound to. */
export const dataKeyContext = (organizationId: string) => ['data key', organizationId]

/**
 * Returns the key of an organization's secrets, and creates it on first use. Its row stays locked until the transaction
 * ends, which serializes writers of one organization's secrets.
 */
export async function dataKeyOf(
  tx: Tx,
  { wrappingKey }: Pick<Deps, 'wrappingKey'>,
  organizationId: string,
  now: Date,
): Promise<Buffer> {
  const context = dataKeyContext(organizationId)
  const { wrapped } = await tx.dataKey.upsert({
    where: { organizationId },
    create: { organizationId, wrapped: seal(wrappingKey, context, randomBytes(32)), createdAt: now },
    update: { organizationId },
    select: { wrapped: true },
  })
  return unseal(wrappingKey, context, wrapped)
}

/** Reads the key of an organization that has encrypted something. Throws if it has none. */
export async function readDataKey(
  { db, wrappingKey }: { db: Db | Tx } & Pick<Deps, 'wrappingKey'>,
  organizationId: string,
): Promise<Buffer> {
  const { wrapped } = await db.dataKey.findUniqueOrThrow({ where: { organizationId }, select: { wrapped: true } })
  return unseal(wrappingKey, dataKeyContext(organizationId), wrapped)
}
