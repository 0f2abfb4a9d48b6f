import type { z } from 'zod'
import { type Actor, isAdmin, permit } from '../auth/actor.ts'
import { audit, OPERATOR } from '../auth/audit.ts'
import type { Db, Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { decodeCursor, encodeCursor, MAX_ROWS, pageOf, withByteBudget } from '../lib/page.ts'
import { findServices } from '../organizations/service.ts'
import type { AuditEvent, ExportAudit, ListAudit } from './schema.ts'

type AuditRow = Prisma.AuditEventGetPayload<object>
type Filters = z.output<typeof ExportAudit>

/** Filters the events of the caller's organization. Throws 403 unless the caller is an admin. */
export function reachable(actor: Actor): Prisma.AuditEventWhereInput {
  permit(actor, isAdmin(actor))
  return { organizationId: actor.organizationId }
}

/** Filters as a list of events says. Throws 403 unless the caller is an admin. */
export function listedBy(actor: Actor, { action, actorId, target, since, until }: Filters) {
  return {
    ...reachable(actor),
    ...(action !== undefined && { action }),
    ...(actorId !== undefined && { actor: actorId }),
    ...(target !== undefined && { target }),
    ...((since !== undefined || until !== undefined) && {
      at: { ...(since && { gte: new Date(since) }), ...(until && { lt: new Date(until) }) },
    }),
  } satisfies Prisma.AuditEventWhereInput
}

const positionOf = ({ at, id }: AuditRow) => encodeCursor({ createdAt: at, id })

/** Filters the events after a cursor. */
function afterCursor(cursor: string | undefined): Prisma.AuditEventWhereInput {
  if (cursor === undefined) return {}
  const { createdAt: at, id } = decodeCursor(cursor)
  // The first condition lets an index scan start at the page instead of at its top.
  return { at: { lte: at }, OR: [{ at: { lt: at } }, { at, id: { lt: id } }] }
}

/** Reads a page, newest first, with one row more than the limit. */
const read = (db: Db, where: Prisma.AuditEventWhereInput, cursor: string | undefined, limit: number) =>
  db.auditEvent.findMany({
    where: { AND: [where, afterCursor(cursor)] },
    orderBy: [{ at: 'desc' }, { id: 'desc' }],
    ...withByteBudget({ take: limit + 1 }),
  })

/** Finds the names and kinds of actors: two statements for any number of events. */
export async function findActors(db: Db, ids: readonly string[]) {
  const where = [...new Set(ids)].filter((id) => id !== OPERATOR)
  if (!where.length) return new Map<string, { name: string; isService: boolean }>()
  const [users, services] = await Promise.all([
    db.user.findMany({ where: { id: { in: where } }, select: { id: true, name: true } }),
    findServices(db, where),
  ])
  return new Map(users.map(({ id, name }) => [id, { name, isService: services.has(id) }]))
}

/** Describes the cause of an event. */
export function toActor(
  { actor: id, tokenId }: Pick<AuditRow, 'actor' | 'tokenId'>,
  known: Awaited<ReturnType<typeof findActors>>,
) {
  const found = known.get(id)
  if (id === OPERATOR) return { id, name: 'Operator', kind: 'system' as const, tokenId }
  const kind = found?.isService ? ('service' as const) : tokenId ? ('token' as const) : ('user' as const)
  return { id, name: found?.name ?? 'Unknown', kind, tokenId }
}

/** Parses the details of an event. */
export const toChanges = ({ changes }: Pick<AuditRow, 'changes'>): unknown =>
  changes === null ? null : JSON.parse(changes)

async function toEvents(db: Db, rows: readonly AuditRow[]): Promise<z.input<typeof AuditEvent>[]> {
  const known = await findActors(
    db,
    rows.map(({ actor }) => actor),
  )
  return rows.map((row) => ({
    id: row.id,
    at: row.at.toISOString(),
    action: row.action,
    actor: toActor(row, known),
    target: row.target,
    ip: row.ip,
    requestId: row.requestId,
    changes: toChanges(row),
  }))
}

/** GET /audit, newest first. Throws 403 unless the caller is an admin. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListAudit>) {
  const found = await read(db, listedBy(actor, input), input.cursor, input.limit ?? MAX_ROWS)
  const { rows, nextCursor } = pageOf(found, input.limit, positionOf)
  return { events: await toEvents(db, rows), nextCursor }
}

/** Number of events that an export reads at a time. */
const EXPORT_ROWS = 500

/**
 * GET /audit/export: records the export as an event, then yields all matching events as lines of JSON, newest first, a
 * page at a time. Reads the next page only when the reader has taken the one before. Without `isRead` nothing is
 * recorded. Throws 403 unless the caller is an admin.
 */
export async function startExport(
  actor: Actor,
  { db, clock }: Deps,
  input: Filters,
  isRead: boolean,
): Promise<AsyncGenerator<string, void>> {
  const where = listedBy(actor, input)
  if (isRead) await audit(db, actor, 'audit.export', actor.organizationId, clock.now(), input)
  return linesOf(db, where)
}

async function* linesOf(db: Db, where: Prisma.AuditEventWhereInput): AsyncGenerator<string, void> {
  let cursor: string | undefined
  do {
    const found = await read(db, where, cursor, EXPORT_ROWS)
    const { rows, nextCursor } = pageOf(found, EXPORT_ROWS, positionOf)
    const events = await toEvents(db, rows)
    if (events.length) yield events.map((event) => `${JSON.stringify(event)}\n`).join('')
    cursor = nextCursor ?? undefined
  } while (cursor !== undefined)
}
