import { expect } from 'vitest'
import type { Actor } from '../../src/auth/actor.ts'
import { createLocalBus } from '../../src/bus/local.ts'
import type { Db } from '../../src/db/client.ts'
import { agentFor } from '../../src/executions/agent-for.ts'
import { createEngine, type Engine, type EngineDeps } from '../../src/executions/engine/engine.ts'
import type { ExecutionEvent, ExecutionRow } from '../../src/executions/engine/events/events.ts'
import { createMaintenance, type MaintenanceDeps } from '../../src/executions/engine/maintenance/maintenance.ts'
import type { Request } from '../../src/executions/engine/queue/requests.ts'
import { openTools } from '../../src/executions/tools.ts'
import type { Settings } from '../../src/settings.ts'
import { createAgent } from '../support/api.ts'
import { type ModelServer, questionOf, startModelServer } from '../support/model-server.ts'
import { startServer, type TestServer } from '../support/server.ts'

/** The real time, moved forward at will. */
export type TestClock = { now: () => Date; advance: (ms: number) => void }

function createClock(): TestClock {
  let offset = 0
  return {
    now: () => new Date(Date.now() + offset),
    advance(ms) {
      offset += ms
    },
  }
}

/** The service in this process with its own model server, an agent to run, and its engine. */
export type Lab = AsyncDisposable & {
  server: TestServer
  model: ModelServer
  clock: TestClock
  db: Db
  engine: Engine
  actor: Actor
  agentId: string
  spaceId: string
  /** Accepts a run, by default in a new chat. */
  run(overrides?: Partial<Request>): Promise<ExecutionRow>
  /** Runs a first message in a new session to its end. Returns the conversation to continue. */
  session(): Promise<{ spaceId: string; chatId: string; sessionId: string }>
  /** Starts another process on the same database, as far as the engine can see. */
  another(overrides?: Partial<EngineDeps>): Engine
  row(id: string): Promise<ExecutionRow>
  /** Waits until nothing is pending or running. */
  idle(): Promise<void>
}

/** Changes the time limits (ms) of runs that start from now on. */
export function setTimeLimits(
  { server }: Pick<Lab, 'server'>,
  limits: Partial<Pick<Settings, 'EXECUTION_TIMEOUT' | 'MODEL_IDLE_TIMEOUT'>>,
): void {
  Object.assign(server.service.deps.settings, limits)
}

/** A request without options. */
export const PLAIN = {
  message: 'Hello',
  mediaIds: [],
  model: null,
  overrides: {},
  onBusy: 'queue',
  parent: null,
  key: null,
  taskId: null,
  mission: null,
  also: null,
} as const

export async function startLab(env: Record<string, string> = {}): Promise<Lab> {
  const model = await startModelServer()
  const clock = createClock()
  const server = await startServer(
    { OPENAI_BASE_URL: model.baseUrl, DEFAULT_MODEL: 'compatible/test-model', ...env },
    { clock },
  )
  const { deps } = server.service
  const { db, engine } = deps
  const agentId = await createAgent(server)
  const agent = await db.agent.findUniqueOrThrow({ where: { id: agentId } })
  const { id: spaceId } = await db.space.findFirstOrThrow({ where: { isDefault: true } })
  const { userId, organizationId } = agent
  const actor: Actor = {
    userId,
    organizationId,
    organizationSlug: 'default',
    role: 'owner',
    scopes: ['*'],
    tokenId: '',
  }

  const run: Lab['run'] = (overrides) =>
    engine.accept({
      actor,
      agent,
      ...PLAIN,
      conversation: { spaceId },
      ...overrides,
    })

  return {
    server,
    model,
    clock,
    db,
    engine,
    actor,
    agentId,
    spaceId,
    run,
    async session() {
      const { id, chatId, sessionId } = await run({ message: 'Begin' })
      await ended(engine, await db.execution.findUniqueOrThrow({ where: { id } }))
      return { spaceId, chatId, sessionId }
    },
    another: (overrides) =>
      createEngine({
        ...deps,
        bus: createLocalBus(),
        agentFor,
        openTools: (user) => openTools(deps, user),
        ...overrides,
      }),
    row: (id) => db.execution.findUniqueOrThrow({ where: { id } }),
    idle: () => idle(db),
    async [Symbol.asyncDispose]() {
      await model.close()
      await server[Symbol.asyncDispose]()
    },
  }
}

export type Conversation = Awaited<ReturnType<Lab['session']>>

/** Adds a number of turns of a few bytes each after the first one of a session, as its runs would have stored them. */
export async function addTurns({ db }: Lab, { sessionId }: Conversation, count: number): Promise<void> {
  const first = await db.execution.findFirstOrThrow({ where: { sessionId } })
  const rows = await db.message.findMany({ where: { sessionId }, orderBy: { position: 'asc' } })
  const numbers = Array.from({ length: count }, (_, index) => index + 2)
  const idOf = (queueSeq: number) => `${sessionId}-${queueSeq}`
  await db.execution.createMany({
    data: numbers.map((queueSeq) => ({
      ...first,
      id: idOf(queueSeq),
      rootExecutionId: idOf(queueSeq),
      mediaIds: [],
      files: [],
      overrides: {},
      modelsTried: [],
      queueSeq,
    })),
  })
  await db.message.createMany({
    data: numbers.flatMap((queueSeq) =>
      rows.map((message, index) => ({
        ...message,
        id: `${idOf(queueSeq)}-${message.role}`,
        executionId: idOf(queueSeq),
        position: queueSeq * 2 - 1 + index,
        content: `${message.role === 'user' ? 'q' : 'a'}${queueSeq}`,
        toolCalls: [],
      })),
    ),
  })
  await db.session.update({ where: { id: sessionId }, data: { lastQueueSeq: count + 1 } })
}

/** Creates the maintenance of the lab’s database, by default without work. */
export function maintenanceOf({ db, clock, server }: Lab, overrides: Partial<MaintenanceDeps>) {
  const { settings, log, pause } = server.service.deps
  const none = async () => {}
  return createMaintenance({
    settings,
    db,
    clock,
    log,
    pause,
    owner: 'the test',
    heldRows: () => [],
    stop: () => {},
    rescue: none,
    expire: none,
    expireApproval: none,
    expireConnection: none,
    begin: none,
    compact: none,
    ...overrides,
  })
}

/** Resolves with the run once it has ended. */
export const ended = (engine: Engine, row: ExecutionRow): Promise<ExecutionRow> =>
  engine.ended(row, new AbortController().signal)

/** Waits until nothing is pending or running. */
const idle = (db: Db): Promise<void> =>
  expect.poll(() => db.execution.count({ where: { status: { in: ['pending', 'running'] } } }), { interval: 20 }).toBe(0)

/** Returns all events after a number, to the end of the stream. */
export async function followed(engine: Engine, row: ExecutionRow, after = 0): Promise<ExecutionEvent[]> {
  const events: ExecutionEvent[] = []
  for await (const batch of engine.follow(row, after, new AbortController().signal)) events.push(...batch)
  return events
}

/** A gate for every message: the model answers `Done.` once the test opens it. */
export function gates({ model }: Lab): (message: string) => void {
  const known = new Map<unknown, PromiseWithResolvers<void>>()
  const gate = (message: unknown) => {
    const found = known.get(message) ?? Promise.withResolvers<void>()
    known.set(message, found)
    return found
  }
  model.fallback = (request) => ({ tokens: [gate(questionOf(request)).promise, 'Done.'] })
  return (message) => gate(message).resolve()
}

/** The messages that reached the model, in order. */
export const asked = ({ model }: Lab): unknown[] => model.requests.map(questionOf)

export const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** A database that pauses after each commit, before the caller learns of it. */
export const slowToAnswer = (db: Db, pause: () => Promise<unknown>): Db =>
  new Proxy(db, {
    get: (target, name) =>
      name === '$transaction'
        ? async (work: never) => {
            const answer = await target.$transaction(work)
            await pause()
            return answer
          }
        : Reflect.get(target, name),
  })
