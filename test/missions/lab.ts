import { expect } from 'vitest'
import { createLocalBus } from '../../src/bus/local.ts'
import type { Db } from '../../src/db/client.ts'
import type { Deps } from '../../src/deps.ts'
import { agentFor } from '../../src/executions/agent-for.ts'
import { createEngine } from '../../src/executions/engine/engine.ts'
import { openTools } from '../../src/executions/tools.ts'
import { newId } from '../../src/lib/id.ts'
import { createScheduler, type Scheduler } from '../../src/missions/scheduler.ts'
import { ok } from '../support/api.ts'
import { type StoppedClock, stopClock } from '../support/clock.ts'
import { type Answer, request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

type Body = Record<string, any>

/** The service in this process, with a fake clock and a scheduler under the test's control. */
export type MissionLab = AsyncDisposable & {
  server: TestServer
  clock: StoppedClock
  db: Db
  scheduler: Scheduler
  call(method: string, path: string, body?: Body, token?: string): Promise<Answer>
  createAgent(fields?: Body, token?: string): Promise<string>
  /** Creates a mission with its own agent unless one is given. */
  create(fields?: Body, token?: string): Promise<Body>
  /** Creates a number of equal missions. Returns their ids. */
  createMany(count: number, fields: Body, token?: string): Promise<string[]>
  get(id: string): Promise<Body>
  /** Fires due missions, and waits for their end. */
  tick(): Promise<void>
  /** Waits until no run is pending or running. */
  idle(): Promise<void>
  /** Starts another server on the same database, in this process. */
  another(): Promise<Other>
}

export type Other = {
  scheduler: Scheduler
  stop(): Promise<void>
  /** Cuts the server off from its database in mid-work, without cleaning up. */
  kill(): void
}

export async function startLab(env: Record<string, string> = {}, start = '2026-06-01T12:00:00Z'): Promise<MissionLab> {
  const clock = stopClock(start)
  const server = await startServer(env, { clock })
  const { deps } = server.service
  const { db } = deps
  const scheduler = createScheduler(deps)
  const call: MissionLab['call'] = (method, path, body, token = server.token) =>
    request(server, method, `/api/v1${path}`, { token, ...(body && { body }) })
  const createAgent: MissionLab['createAgent'] = async (fields = {}, token) =>
    (await ok(call('POST', '/agents', { name: 'Ada', systemPrompt: 'S', ...fields }, token))).id
  const idle = () =>
    expect
      .poll(() => db.execution.count({ where: { status: { in: ['pending', 'running'] } } }), { interval: 10 })
      .toBe(0)
  let agentId: string | undefined
  const create: MissionLab['create'] = async (fields = {}, token) => {
    agentId ??= await createAgent()
    return (await ok(call('POST', '/missions', { title: 'Watch', goal: 'Look around', agentId, ...fields }, token)))
      .mission
  }
  return {
    server,
    clock,
    db,
    scheduler,
    call,
    createAgent,
    create,
    async createMany(count, fields, token) {
      const { id } = await create(fields, token)
      const row = await db.mission.findUniqueOrThrow({ where: { id } })
      const copies = Array.from({ length: count - 1 }, () => ({ ...row, output: {}, id: newId() }))
      await db.mission.createMany({ data: copies })
      return [id, ...copies.map((copy) => copy.id)]
    },
    get: async (id) => (await ok(call('GET', `/missions/${id}`))).mission,
    async tick() {
      await scheduler.tick()
      await idle()
    },
    idle,
    another: () => startOther(deps),
    async [Symbol.asyncDispose]() {
      await scheduler.stop()
      await server[Symbol.asyncDispose]()
    },
  }
}

async function startOther(shared: Deps): Promise<Other> {
  const { db, kill } = mortal(shared.db)
  const base = { ...shared, db, bus: createLocalBus() }
  const engine = createEngine({ ...base, agentFor, openTools: (user) => openTools(base, user) })
  await engine.start(false)
  const scheduler = createScheduler({ ...base, engine })
  return {
    scheduler,
    async stop() {
      await scheduler.stop()
      await engine.drain()
    },
    kill() {
      kill()
      void scheduler.stop()
      // Stops only its loops: the database refuses its writes.
      engine.drain().catch(() => {})
    },
  }
}

/** A database that stops answering at some moment, also in the middle of a transaction. */
function mortal(db: Db): { db: Db; kill: () => void } {
  let dead = false
  const die = () => {
    throw new Error('The process has died')
  }
  const wrap = <T extends object>(target: T): T =>
    new Proxy(target, {
      get(object, name) {
        const value = Reflect.get(object, name)
        if (typeof value !== 'function') return value !== null && typeof value === 'object' ? wrap(value) : value
        return (...args: unknown[]) => {
          if (dead) die()
          if (name !== '$transaction') return value.apply(object, args)
          const [work, ...options] = args as [(tx: object) => Promise<unknown>, ...unknown[]]
          // A dead process does not commit, so its transaction rolls back.
          return value.call(object, async (tx: object) => [await work(wrap(tx)), dead && die()][0], ...options)
        }
      },
    })
  return {
    db: wrap(db),
    kill() {
      dead = true
    },
  }
}
