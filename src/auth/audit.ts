import type { Tx } from '../db/client.ts'
import { newSortableId } from '../lib/id.ts'
import type { Actor } from './actor.ts'

/** The actor of what the command line does. */
export const operator = (organizationId: string) => ({ organizationId, userId: 'operator' })

/** Writes the audit event of a mutation, in its transaction, with the token that the actor used. `action` is `<resource>.<verb>`. */
export const audit = (
  tx: Tx,
  actor: Pick<Actor, 'organizationId' | 'userId'> & { tokenId?: string },
  action: string,
  target: string,
  at: Date,
) =>
  tx.auditEvent.createMany({
    data: {
      id: newSortableId(at),
      organizationId: actor.organizationId,
      actor: actor.userId,
      tokenId: actor.tokenId || null,
      ...{ action, target, at },
    },
  })
