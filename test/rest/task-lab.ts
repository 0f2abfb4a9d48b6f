import { newId } from '../../src/lib/id.ts'
import { callerAt, ok } from '../support/api.ts'
import { stopClock } from '../support/clock.ts'
import { startModelServer } from '../support/model-server.ts'
import type { Answer } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { together } from '../support/together.ts'
import { use } from '../support/use.ts'

export type Body = Record<string, any>

export const STATUSES = ['pending', 'in_progress', 'completed', 'cancelled'] as const
export type Status = (typeof STATUSES)[number]

export const TRANSITION = (from: Status, to: Status) => `Invalid status transition: ${from} to ${to}`
export const ASSIGNEE = 'Invalid assignTo. Must be an agent or user id of this organization'

/** Starts a server on a stopped clock, and returns what tests of tasks do with both. */
export async function startTaskLab() {
  const clock = stopClock('2026-01-01T00:00:00Z')
  const model = await use(startModelServer())
  const server = await use(startServer({ OPENAI_BASE_URL: model.baseUrl }, { clock }))
  const { ann, ben, eve } = await server.people('ann', 'ben', 'eve')
  const call = callerAt(server, ann)

  const create = async (fields: Body = {}, who = ann) =>
    (await ok(call('POST', '/tasks', { title: 'Count the engines', ...fields }, who))).task
  const get = async (id: string, who = ann) => (await ok(call('GET', `/tasks/${id}`, undefined, who))).task
  const patch = (id: string, fields: Body, who = ann) => call('PATCH', `/tasks/${id}`, fields, who)
  const patched = async (id: string, fields: Body, who = ann) => (await ok(patch(id, fields, who))).task

  /** Creates a task and brings it into this status. */
  async function createIn(status: Status, fields: Body = {}) {
    const task = await create(fields)
    if (status === 'pending') return task
    if (status !== 'cancelled') await patched(task.id, { status: 'in_progress' })
    return status === 'in_progress' ? get(task.id) : patched(task.id, { status })
  }

  const createAgent = async (fields: Body = {}, who = ann): Promise<string> =>
    (await ok(call('POST', '/agents', { name: 'Ada', systemPrompt: 'You are Ada.', ...fields }, who))).id

  /** A space, private to its owner by default. */
  async function createSpace({ organizationId, userId: ownerId }: Member, fields: object = {}): Promise<string> {
    const { db } = server.service.deps
    const data = { id: newId(), organizationId, ownerId, name: 'S', createdAt: clock.now(), updatedAt: clock.now() }
    return (await db.space.create({ data: { ...data, visibility: 'private', ...fields } })).id
  }

  /** Each reads the task before any of them writes it. */
  async function atOnce(calls: readonly (() => Promise<Answer>)[]) {
    for (const who of [ann, ben]) await ok(call('GET', '/tasks?limit=1', undefined, who))
    return together(server, 'Task', calls)
  }

  const audits = (target: string) => server.service.deps.db.auditEvent.count({ where: { target } })

  return {
    clock,
    model,
    server,
    ann,
    ben,
    eve,
    call,
    create,
    createIn,
    get,
    patch,
    patched,
    createAgent,
    createSpace,
    atOnce,
    audits,
  }
}
