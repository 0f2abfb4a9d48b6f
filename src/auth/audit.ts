import type { Db, Tx } from '../db/client.ts'
import { createEach } from '../db/each-row.ts'
import { newSortableId } from '../lib/id.ts'
import type { Actor } from './actor.ts'

/** The user id of events that the command line or the service itself causes. */
export const OPERATOR = 'operator'

/** Returns the actor of command line actions. */
export const operator = (organizationId: string) => ({ organizationId, userId: OPERATOR })

/** The actor of an audit event, and its request if there is one. */
export type AuditSource = Pick<Actor, 'organizationId' | 'userId' | 'request'> & { tokenId?: string }

/** Returns the fields of a request in the audit log: its id, and the network address. */
export const requestOf = (context: { requestId: string; client: { address: string | undefined } }) => ({
  id: context.requestId,
  address: context.client.address,
})

/**
 * Writes an audit event in the transaction of its change. `action` is `<resource>.<verb>`, `target` an id. `changes`
 * become public to the admins of the organization: never a secret, a prompt or a message.
 */
export const audit = (tx: Tx, cause: AuditSource, action: string, target: string, at: Date, changes?: object) =>
  tx.auditEvent.createMany({ data: toEvent(cause, action, target, at, changes) })

/** Writes an audit event for each of any number of targets, see {@link audit}. */
export const auditEach = (
  tx: Tx,
  cause: AuditSource,
  action: string,
  targets: readonly string[],
  at: Date,
  changesOf?: (target: string) => object,
) =>
  createEach(
    (data) => tx.auditEvent.createMany({ data }),
    targets.map((target) => toEvent(cause, action, target, at, changesOf?.(target))),
  )

const toEvent = (cause: AuditSource, action: string, target: string, at: Date, changes?: object) => ({
  id: newSortableId(at),
  organizationId: cause.organizationId,
  actor: cause.userId,
  tokenId: cause.tokenId || null,
  ip: cause.request?.address ?? null,
  requestId: cause.request?.id ?? null,
  changes: changes ? JSON.stringify(changes) : null,
  action,
  target,
  at,
})

/** Finds the id of the request that caused an audit event. Undefined without a request, or if it cannot be read. */
export async function findRequestId(
  db: Db,
  event: { organizationId: string; action: string; target: string },
): Promise<string | undefined> {
  const found = await db.auditEvent.findFirst({ where: event, select: { requestId: true } }).catch(() => null)
  return found?.requestId ?? undefined
}

/** Returns the fields in which two states of a resource differ, as `{field: {from, to}}`. */
export const changesOf = <State extends object>(before: State, after: Partial<State>): object =>
  Object.fromEntries(
    Object.entries(after).flatMap(([field, to]) => {
      const from = before[field as keyof State]
      return JSON.stringify(from) === JSON.stringify(to) ? [] : [[field, { from, to }]]
    }),
  )
