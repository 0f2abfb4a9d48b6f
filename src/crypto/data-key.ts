import { randomBytes } from 'node:crypto'
import type { Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { seal, unseal } from './envelope.ts'

/** What the key of an organization is bound to. */
export const dataKeyPlace = (organizationId: string) => ['data key', organizationId]

/**
 * The key of an organization's secrets, made at the first need. Its row stays locked until the transaction ends: who
 * writes secrets of one organization does it one after the other.
 */
export async function dataKeyOf(
  tx: Tx,
  { wrappingKey }: Pick<Deps, 'wrappingKey'>,
  organizationId: string,
  now: Date,
): Promise<Buffer> {
  const place = dataKeyPlace(organizationId)
  const { wrapped } = await tx.dataKey.upsert({
    where: { organizationId },
    create: { organizationId, wrapped: seal(wrappingKey, place, randomBytes(32)), createdAt: now },
    update: { organizationId },
    select: { wrapped: true },
  })
  return unseal(wrappingKey, place, wrapped)
}
