import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { followChanges, type Looked } from '../bus/follow-changes.ts'
import { eachRow } from '../db/each-row.ts'
import { MAX_IN } from '../db/fast-path/index.ts'
import type { Deps } from '../deps.ts'
import { AppError } from '../errors.ts'
import { chunk } from '../lib/chunk.ts'
import { get, reachable } from './rows.ts'
import type { FollowTasks, Task } from './schema.ts'

/** An event of GET /tasks/events. */
export type TaskChange =
  | { event: 'changed'; data: { task: z.output<typeof Task> } }
  | { event: 'deleted'; data: { id: string } }

type Found = { id: string; isDeleted: boolean }

/**
 * GET /tasks/events (contract-2.md section 1.19): follows the tasks that the caller can see. Yields those that are
 * created, changed or deleted from now on; with an `id` the changes of that task, to its deletion. Ends with the
 * signal. Throws 404 for a task that the caller cannot reach.
 */
export async function follow(
  actor: Actor,
  deps: Deps,
  { id }: z.output<typeof FollowTasks>,
  streamTo: (actor: Actor) => AbortSignal,
): Promise<AsyncGenerator<TaskChange>> {
  if (id !== undefined) await get(actor, deps, id)
  const find = id === undefined ? finder(actor, deps) : finderOf(actor, deps, id)
  const events = followChanges(deps, 'task', streamTo(actor), find, (found) => read(actor, deps, found))
  return id === undefined ? events : toDeletion(events)
}

async function read(actor: Actor, deps: Deps, { id, isDeleted }: Found): Promise<TaskChange | null> {
  if (isDeleted) return { event: 'deleted', data: { id } }
  const data = await get(actor, deps, id).catch(nullIfGone)
  return data && { event: 'changed', data }
}

function nullIfGone(error: unknown): null {
  if (error instanceof AppError && error.status === 404) return null
  throw error
}

async function* toDeletion(events: AsyncIterable<TaskChange>): AsyncGenerator<TaskChange> {
  for await (const event of events) {
    yield event
    if (event.event === 'deleted') return
  }
}

/** Finds one task, whether it is still there or not. */
function finderOf(actor: Actor, { db }: Deps, id: string) {
  return async function* ({ ids }: Looked): AsyncGenerator<Found> {
    if (ids && !ids.includes(id)) return
    const isDeleted = !(await db.task.count({ where: { id, ...reachable(actor) } }))
    yield { id, isDeleted }
  }
}

/** Finds the tasks of the caller's organization: the changed ones by their rows, the deleted ones by the audit log. */
function finder(actor: Actor, { db }: Deps) {
  const { organizationId } = actor

  async function* deleted({ ids, since }: Looked): AsyncGenerator<Found> {
    const where = {
      organizationId,
      action: 'task.delete',
      at: { gte: since },
      ...(ids && { target: { in: [...ids] } }),
    }
    const select = { id: true, at: true, target: true }
    const rows = eachRow('at', ({ where: after, ...page }) =>
      db.auditEvent.findMany({ where: { AND: [where, after] }, select, ...page }),
    )
    for await (const { target: id } of rows) yield { id, isDeleted: true }
  }

  return async function* (looked: Looked): AsyncGenerator<Found> {
    const select = { id: true, updatedAt: true }
    if (!looked.ids) {
      const where = { AND: [{ updatedAt: { gte: looked.since } }, reachable(actor)] }
      const rows = eachRow('updatedAt', ({ where: after, ...page }) =>
        db.task.findMany({ where: { AND: [where, after] }, select, ...page }),
      )
      for await (const { id } of rows) yield { id, isDeleted: false }
      yield* deleted(looked)
      return
    }
    for (const ids of chunk(looked.ids, MAX_IN)) {
      const rows = await db.task.findMany({ where: { AND: [{ id: { in: ids } }, reachable(actor)] }, select })
      for (const { id } of rows) yield { id, isDeleted: false }
      const found = new Set(rows.map(({ id }) => id))
      const others = ids.filter((id) => !found.has(id))
      if (others.length) yield* deleted({ ids: others, since: looked.since })
    }
  }
}
