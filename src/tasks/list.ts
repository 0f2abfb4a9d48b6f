import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { listPage } from '../lib/page.ts'
import { having } from '../lib/search.ts'
import { findMember } from '../organizations/members.ts'
import { LONG_TEXTS, reachable, type TaskRow, toTasks } from './rows.ts'
import type { ListTasks } from './schema.ts'

// The list of the organization's tasks.

/** Returns the filter of `list`: its input on top of {@link reachable}. */
export async function listedBy(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof ListTasks>,
): Promise<Prisma.TaskWhereInput> {
  const { status, priority, assignedTo, spaceId } = input
  const named = assignedTo?.includes('@') ? ((await findMember(actor, deps, assignedTo)) ?? assignedTo) : assignedTo
  const assignee = named === 'me' ? actor.userId : named === 'none' ? null : named
  const given = Object.entries({ status, priority, assignedTo: assignee, spaceId })
  const filter = Object.fromEntries(given.filter(([, value]) => value !== undefined))
  return { ...reachable(actor), ...filter, ...having(input.search) }
}

/** GET /tasks, newest first. */
export async function list(actor: Actor, deps: Deps, input: z.output<typeof ListTasks>) {
  const { db } = deps
  const where = await listedBy(actor, deps, input)
  const { rows, nextCursor } = await listPage<TaskRow>(input, LONG_TEXTS, ({ where: after, ...page }) =>
    db.task.findMany({ where: { AND: [where, after ?? {}] }, ...page }),
  )
  const total = input.count && { total: await db.task.count({ where }) }
  return { tasks: await toTasks(actor, db, rows), nextCursor, ...total }
}
