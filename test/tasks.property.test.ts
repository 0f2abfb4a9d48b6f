import fc from 'fast-check'
import { expect, it } from 'vitest'
import { Prisma } from '../src/db/client.ts'
import type { ExecutionRow } from '../src/executions/engine/events/events.ts'
import { APIS, type Api, apis, expectError } from './support/api.ts'
import { startModelServer } from './support/model-server.ts'
import { times } from './support/postgres-shared.ts'
import { startServer } from './support/server.ts'
import { together } from './support/together.ts'
import { createTrigger } from './support/trigger.ts'
import { use } from './support/use.ts'

let now = Date.parse('2026-01-01T00:00:00Z')
const clock = { now: () => new Date(now) }

const model = await use(startModelServer())
const server = await use(startServer({ OPENAI_BASE_URL: model.baseUrl }, { clock }))
const db = server.service.deps.db
const ann = await server.member()
const agentId: string = (await apis.REST(server, 'agents.create', { name: 'Ada', systemPrompt: 'You are Ada.' }, ann))
  .body.id

const STATUSES = ['pending', 'in_progress', 'completed', 'cancelled'] as const
type Status = (typeof STATUSES)[number]

/** The state table of the service description, "Task status". */
const NEXT: Record<Status, readonly Status[]> = {
  pending: ['in_progress', 'cancelled', 'completed'],
  in_progress: ['completed', 'cancelled', 'pending'],
  completed: [],
  cancelled: [],
}

const statuses = fc.oneof(
  { weight: 5, arbitrary: fc.constantFrom<Status>('pending', 'in_progress') },
  { weight: 1, arbitrary: fc.constantFrom<Status>('completed', 'cancelled') },
)
const steps = fc.oneof(
  { weight: 4, arbitrary: fc.record({ call: fc.constant('move' as const), to: statuses }) },
  {
    weight: 2,
    arbitrary: fc.record({ call: fc.constant('assign' as const), to: fc.constantFrom('agent', 'me', null) }),
  },
  { weight: 2, arbitrary: fc.record({ call: fc.constant('claim' as const), by: fc.constantFrom('agent', 'me') }) },
  { weight: 4, arbitrary: fc.record({ call: fc.constant('execute' as const) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      call: fc.constant('end' as const),
      how: fc.constantFrom('completed' as const, 'failed' as const, 'cancelled' as const),
    }),
  },
)

type Run = { id: string; finish: () => void; fail: () => void }

/** The expected task, beside the real one, and its active runs. */
type Expected = {
  task: Record<string, unknown> & { id: string; status: Status; executionId: string | null }
  audits: number
  runs: Run[]
}

const ended = async (id: string): Promise<ExecutionRow> => {
  const row = await db.execution.findUniqueOrThrow({ where: { id } })
  return server.service.deps.engine.ended(row, new AbortController().signal)
}

/** Takes a step on the real task and on the expected one, and compares the answers. */
async function take(step: typeof steps extends fc.Arbitrary<infer Step> ? Step : never, api: Api, expected: Expected) {
  const { task, runs } = expected
  const { id, status } = task
  const at = () => new Date(now).toISOString()
  const call = (procedure: string, input: object = {}) => apis[api](server, procedure, { id, ...input }, ann)
  const change = (fields: object) => {
    expected.audits++
    Object.assign(task, fields, { updatedAt: at() })
  }
  now += 1000

  if (step.call === 'move') {
    const answer = await call('tasks.update', { status: step.to })
    if (!NEXT[status].includes(step.to) && step.to !== status) {
      return expectError(answer, 400, `Invalid status transition: ${status} to ${step.to}`)
    }
    // A completion by hand makes both moves.
    const byHand = (step.to === 'in_progress' || status === 'pending') &&
      step.to !== 'cancelled' && { executionId: null }
    if (step.to !== status)
      change({ status: step.to, ...(step.to === 'completed' && { completedAt: at() }), ...byHand })
    expect(answer).toMatchObject({ status: 200, body: { task } })
    // A task that is moved back has its run cancelled before another starts.
    if (step.to !== 'cancelled' && !(step.to === 'pending' && status === 'in_progress')) return
    for (const run of runs.splice(0)) expect((await ended(run.id)).status).toBe('cancelled')
  } else if (step.call === 'assign') {
    const assignedTo = step.to && { agent: agentId, me: ann.userId }[step.to]
    const answer = await call('tasks.update', { assignTo: assignedTo })
    if (assignedTo !== task.assignedTo) change({ assignedTo })
    expect(answer).toMatchObject({ status: 200, body: { task } })
  } else if (step.call === 'claim') {
    const answer = await call('tasks.claim', step.by === 'agent' ? { agentId } : {})
    if (status !== 'pending' || task.assignedTo) return expectError(answer, 409, 'Task is already assigned')
    change({ assignedTo: step.by === 'agent' ? agentId : ann.userId })
    expect(answer).toMatchObject({ status: 200, body: { task } })
  } else if (step.call === 'execute') {
    if (task.assignedTo !== agentId) {
      return expectError(await call('tasks.execute'), 400, 'Task is not assigned to an agent')
    }
    if (status === 'in_progress') return expectError(await call('tasks.execute'), 409, 'Task is already running')
    if (status !== 'pending') {
      return expectError(await call('tasks.execute'), 400, `Invalid status transition: ${status} to in_progress`)
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    model.script({ tokens: ['Half ', promise, 'done.'] })
    const asked = model.request(model.requests.length)
    const { body } = await call('tasks.execute', { background: true })
    change({ status: 'in_progress', executionId: body.executionId })
    expect(body.task).toEqual(task)
    runs.push({ id: body.executionId, finish: resolve, fail: () => reject(new Error('scripted')) })
    await asked
  } else {
    const run = runs.shift()
    if (!run) return
    if (step.how === 'completed') run.finish()
    else if (step.how === 'failed') run.fail()
    else expect((await call('executions.cancel', { id: run.id })).status).toBe(200)
    expect((await ended(run.id)).status).toBe(step.how)
    if (status !== 'in_progress' || task.executionId !== run.id) return
    const done = step.how === 'completed' && { status: 'completed', result: 'Half done.', completedAt: at() }
    const { error } = await db.execution.findUniqueOrThrow({ where: { id: run.id } })
    const why = done ? null : (error ?? expect.stringMatching(/cancelled/))
    Object.assign(task, done || { status: 'pending' }, {
      updatedAt: at(),
      lastError: why,
      lastExecutionId: run.id,
    })
  }
}

it('calls in any order move a task as the state table allows', async () => {
  const walks = fc.array(fc.tuple(steps, fc.constantFrom(...APIS)), { minLength: 5, maxLength: 20, size: 'max' })
  const walk = fc.asyncProperty(walks, async (calls) => {
    const { task } = (await apis.REST(server, 'tasks.create', { title: 'Walk' }, ann)).body
    const expected: Expected = { task, audits: 1, runs: [] }
    for (const [step, api] of calls) {
      await take(step, api, expected)
      const found = await apis[api](server, 'tasks.get', { id: task.id }, ann)
      expect(found.body.task, JSON.stringify(step)).toEqual(expected.task)
      expect((task.status === 'completed') === (found.body.task.completedAt !== null)).toBe(true)
      expect(await db.auditEvent.count({ where: { target: task.id } })).toBe(expected.audits)
    }
    expect((await apis.REST(server, 'tasks.delete', { id: task.id }, ann)).status).toBe(200)
    for (const run of expected.runs) expect((await ended(run.id)).status).toBe('cancelled')
  })
  const afterRun: Parameters<typeof take>[0][] = [
    { call: 'assign', to: 'agent' },
    { call: 'execute' },
    { call: 'end', how: 'cancelled' },
    { call: 'move', to: 'completed' },
  ]
  const examples: [[(typeof afterRun)[number], Api][]][] = [[afterRun.map((step) => [step, 'REST'])]]
  await fc.assert(walk, { numRuns: times(25), examples })
})

it('concurrent calls move a task only as the state table allows', async () => {
  await db.$executeRaw(Prisma.sql`CREATE TABLE "_moved" ("before" TEXT, "after" TEXT, "completedAt" TEXT)`)
  await createTrigger(db, {
    name: '_move',
    event: 'AFTER UPDATE',
    table: 'Task',
    effect: 'INSERT INTO "_moved" VALUES (OLD."status", NEW."status", NEW."completedAt")',
  })
  const crowds = fc.array(fc.tuple(steps, fc.constantFrom(...APIS)), { minLength: 5, maxLength: 15, size: 'max' })
  const crowd = fc.asyncProperty(crowds, async (calls) => {
    const { id } = (await apis.REST(server, 'tasks.create', { title: 'Crowd', assignTo: agentId }, ann)).body
    const answers = await together(
      server,
      'Task',
      calls.map(([step, api]) => () => {
        if (step.call === 'move') return apis[api](server, 'tasks.update', { id, status: step.to }, ann)
        if (step.call === 'execute') return apis[api](server, 'tasks.execute', { id }, ann)
        return apis[api](server, step.call === 'claim' ? 'tasks.claim' : 'tasks.get', { id }, ann)
      }),
    )
    for (const { status } of answers) expect([200, 400, 409]).toContain(status)
  })
  await fc.assert(crowd, { numRuns: times(20) })

  type Moved = { before: Status; after: Status; completedAt: unknown }
  const moved = await db.$queryRaw<Moved[]>(Prisma.sql`SELECT * FROM "_moved"`)
  for (const { before, after, completedAt } of moved) {
    if (before !== after) expect(NEXT[before]).toContain(after)
    expect(completedAt !== null).toBe(after === 'completed')
  }
  expect(new Set(moved.map(({ before, after }) => `${before} ${after}`)).size).toBeGreaterThan(1)
  expect(await db.task.count({ where: { status: 'in_progress', executionId: { not: null } } })).toBe(0)
})
