import { afterAll, expect } from 'vitest'
import { createScheduler, type Scheduler } from '../../src/missions/scheduler.ts'
import { callerAt, ok } from '../support/api.ts'
import { stopClock } from '../support/clock.ts'
import { startModelServer } from '../support/model-server.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

export const FORBIDDEN = "You don't have permission to access this resource"
export const NOT_FOUND = 'Mission not found'
export const MINUTE = 60_000
export const START = '2026-06-01T12:00:00.000Z'

export type Body = Record<string, any>
type Options = { token?: string; key?: string }

/** Starts a server with a scheduler on a stopped clock, and returns what tests of missions do with them. */
export async function startMissionLab() {
  const clock = stopClock(START)

  const model = await use(startModelServer())
  const server = await use(startServer({ OPENAI_BASE_URL: model.baseUrl }, { clock }))
  const scheduler: Scheduler = createScheduler(server.service.deps)
  const { ann, ben, admin, eve } = await server.people('ann', 'ben', 'admin', 'eve')
  afterAll(() => scheduler.stop())
  const call = callerAt(server, ann)
  const createAgent = async (fields: Body = {}, who = ann): Promise<string> =>
    (await ok(call('POST', '/agents', { name: 'Ada', systemPrompt: 'You are Ada.', ...fields }, who))).id
  const agentId: string = await createAgent()
  const createSpace = async (fields: Body = {}, who = ann): Promise<string> =>
    (await ok(call('POST', '/spaces', { name: 'S', ...fields }, who))).id
  const create = async (fields: Body = {}, who = ann) =>
    (await ok(call('POST', '/missions', { title: 'Watch', goal: 'Look around', agentId, ...fields }, who))).mission
  const get = async (id: string, who = ann) => (await ok(call('GET', `/missions/${id}`, undefined, who))).mission
  const patch = (id: string, fields: Body, who = ann) => call('PATCH', `/missions/${id}`, fields, who)
  const patched = async (id: string, fields: Body, who = ann) => (await ok(patch(id, fields, who))).mission
  const act = (id: string, verb: 'run' | 'pause' | 'resume', options?: Options) =>
    call('POST', `/missions/${id}/${verb}`, undefined, options)
  const run = async (id: string, who = ann) => ok(act(id, 'run', who))
  const runsOf = async (id: string, query = '') => ok(call('GET', `/missions/${id}/runs${query}`))

  /** Waits until nothing is pending or running. */
  const idle = () =>
    expect
      .poll(() => server.service.deps.db.execution.count({ where: { status: { in: ['pending', 'running'] } } }), {
        interval: 10,
      })
      .toBe(0)
  const tick = async () => {
    // The first look may be one that had started before, without the new time.
    await scheduler.tick()
    await scheduler.tick()
    await idle()
  }

  /** The next run stays active until the test releases it. */
  function hold(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>()
    model.script({ tokens: [promise, 'Done.'] })
    return resolve
  }

  return {
    clock,
    model,
    server,
    scheduler,
    ann,
    ben,
    admin,
    eve,
    call,
    createAgent,
    agentId,
    createSpace,
    create,
    get,
    patch,
    patched,
    act,
    run,
    runsOf,
    idle,
    tick,
    hold,
  }
}
