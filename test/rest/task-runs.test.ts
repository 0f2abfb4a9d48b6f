import { DriverAdapterError } from '@prisma/driver-adapter-utils'
import { beforeAll, describe, expect, it } from 'vitest'
import { newId } from '../../src/lib/id.ts'
import { APIS, apis, expectError, ok } from '../support/api.ts'
import { misfit } from '../support/model-replies.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import type { Answer } from '../support/rest.ts'
import { overtaken } from '../support/together.ts'
import { ASSIGNEE, type Body, startTaskLab, TRANSITION } from './task-lab.ts'

const {
  clock,
  model,
  server,
  ann,
  ben,
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
} = await startTaskLab()

type Options = { token?: string; key?: string }

/** Resolves with the task once its run is accepted. */
const begun = async (id: string) => {
  await expect.poll(() => get(id)).toMatchObject({ status: 'in_progress' })
  return get(id)
}

describe('POST /tasks/{id}/execute', () => {
  let agentId: string
  beforeAll(async () => {
    agentId = await createAgent()
  })
  const execute = (id: string, body?: Body, options?: Options) => call('POST', `/tasks/${id}/execute`, body, options)
  const execution = async (id: string) => (await ok(call('GET', `/executions/${id}`))).execution
  const ended = async (id: string) => {
    const { db, engine } = server.service.deps
    const row = await db.execution.findUniqueOrThrow({ where: { id } })
    return engine.ended(row, new AbortController().signal)
  }

  /** A task whose run has emitted a word and waits for its release, and the requests to the model. */
  async function running(fields: Body = {}) {
    const { promise, resolve: finish } = Promise.withResolvers<void>()
    model.script({ tokens: ['Half ', promise, 'done.'] })
    const asked = model.request(model.requests.length)
    const task = await create({ assignTo: agentId, ...fields })
    const { executionId } = await ok(execute(task.id, { background: true }))
    return { id: task.id, executionId, finish, asked: await asked }
  }

  it.each(APIS)('runs the agent on title and description, and completes the task with the result (%s)', async (api) => {
    const { promise, resolve } = Promise.withResolvers<void>()
    model.script({ tokens: ['Four ', promise, 'engines.'] })
    const asked = model.request(model.requests.length)
    const task = await create({ description: 'All\nof them', assignTo: agentId })
    const answer = apis[api](server, 'tasks.execute', { id: task.id }, ben)
    const { messages } = (await asked).body
    expect(messages.at(-1)).toMatchObject({ role: 'user', content: 'Count the engines\n\nAll\nof them' })
    const meanwhile = await begun(task.id)
    expect(meanwhile).toEqual({ ...task, status: 'in_progress', executionId: meanwhile.executionId })
    clock.advance(1000)
    resolve()

    const { body } = await answer
    const { executionId } = meanwhile
    const at = clock.now().toISOString()
    const result = 'Four engines.'
    const done = {
      ...meanwhile,
      status: 'completed',
      result,
      completedAt: at,
      updatedAt: at,
      lastExecutionId: executionId,
    }
    const { chatId, sessionId } = body
    const ended = { status: 'completed', result, warnings: [], stopReason: 'end_turn' }
    expect(body).toEqual({ success: true, executionId, chatId, sessionId, ...ended, task: done })
    expect(await get(task.id)).toEqual(done)
    expect(await execution(executionId)).toMatchObject({
      taskId: task.id,
      agentId,
      chatId,
      sessionId,
      userId: ben.userId,
    })
    const { executions } = await ok(call('GET', `/executions?taskId=${task.id}`))
    expect(executions.map(({ id }: Body) => id)).toEqual([executionId])
  })

  it('runs in the space of the task', async () => {
    const spaceId = await createSpace(ann)
    const { id } = await create({ assignTo: agentId, spaceId })
    const { executionId } = await ok(execute(id))
    expect((await execution(executionId)).spaceId).toBe(spaceId)
  })

  it('answers at once for background: true', async () => {
    const { id, executionId, finish } = await running()
    expect(await get(id)).toMatchObject({ status: 'in_progress', executionId, result: null })
    finish()
    await ended(executionId)
    expect(await get(id)).toMatchObject({ status: 'completed', executionId, result: 'Half done.' })
  })

  it('returns the task to pending if the run fails, so that it can run again', async () => {
    const { id } = await create({ assignTo: agentId })
    model.script({ tokens: ['Half'], end: 'drop' })
    expectError(await execute(id), 500, 'Chat execution failed')
    const back = await get(id)
    expect(back).toMatchObject({ status: 'pending', result: null, completedAt: null, assignedTo: agentId })
    expect((await execution(back.executionId)).status).toBe('failed')
    const { task } = await ok(execute(id))
    expect(task.status).toBe('completed')
    expect(task.executionId).not.toBe(back.executionId)
  })

  it('returns the task to pending if the answer is incomplete, with the reason', async () => {
    const { id } = await create({ assignTo: agentId })
    model.script({ tokens: ['Half'], end: 'cut' })
    const { task, executionId } = await ok(execute(id))
    const lastError = 'The answer is incomplete: it ended with max_tokens'
    expect(task).toMatchObject({ status: 'pending', result: null, lastError, lastExecutionId: executionId })
  })

  it('shows the error of its run only to callers who can read the run', async () => {
    const { id } = await create({ assignTo: agentId })
    model.script({ tokens: ['Half'], end: 'cut' })
    const { executionId, task } = await ok(execute(id))
    expect(task.lastError).toEqual(expect.any(String))
    // The run belongs to an agent that the caller can no longer reach.
    const data = { agentId: await createAgent({ visibility: 'private' }, ben) }
    await server.service.deps.db.execution.update({ where: { id: executionId }, data })
    expect(await get(id)).toMatchObject({ lastError: null, lastExecutionId: executionId })
  })

  it('has the first 1,000 characters of the error of its run', async () => {
    const { output, answer } = misfit()
    const { id } = await create({ assignTo: agentId, output })
    for (const tokens of [[answer], [answer]]) model.script({ tokens })
    expectError(await execute(id), 500, 'Chat execution failed')
    const { lastError, lastExecutionId } = await get(id)
    const { error } = await execution(lastExecutionId)
    expect(error.length).toBeGreaterThan(1000)
    expect(lastError).toBe(error.slice(0, 1000))
  })

  it('returns it to pending if the run is cancelled', async () => {
    const { promise } = Promise.withResolvers<void>()
    model.script({ tokens: ['Half', promise] })
    const asked = model.request(model.requests.length)
    const { id } = await create({ assignTo: agentId })
    const answer = execute(id)
    await asked
    const { executionId } = await begun(id)
    await ok(call('POST', `/executions/${executionId}/cancel`))
    expectError(await answer, 409, 'Execution was cancelled')
    expect(await get(id)).toMatchObject({ status: 'pending', executionId, result: null, completedAt: null })
  })

  it('starts one run, whatever the number of concurrent requests', async () => {
    const { id } = await create({ assignTo: agentId })
    const { promise, resolve } = Promise.withResolvers<void>()
    model.script({ tokens: [promise, 'Done.'] })
    const answers = await atOnce(Array.from({ length: 10 }, () => () => execute(id, { background: true })))
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    for (const answer of answers) if (answer.status !== 200) expectError(answer, 409, 'Task is already running')
    const { executions } = await ok(call('GET', `/executions?taskId=${id}`))
    expect(executions).toHaveLength(1)
    resolve()
    await ended(executions[0].id)
  })

  it.each<[string, (id: string) => Promise<Answer>, number, string]>([
    ['cancelled', (id) => patch(id, { status: 'cancelled' }), 400, TRANSITION('cancelled', 'in_progress')],
    ['deleted', (id) => call('DELETE', `/tasks/${id}`), 404, 'Task not found'],
    [
      'reassigned',
      (id) => patch(id, { assignTo: ben.userId }),
      409,
      'The task was changed concurrently. Please retry.',
    ],
  ])('does not run a task that is %s concurrently', async (_, change, status, message) => {
    const { id } = await create({ assignTo: agentId })
    const run = () => execute(id, { background: true })
    const [executed, changed] = onPostgres
      ? await overtaken(server, 'Chat', run, () => change(id))
      : (await atOnce([() => change(id), run])).reverse()
    expect(changed?.status).toBe(200)
    expectError(executed!, status, message)
    expect((await ok(call('GET', `/executions?taskId=${id}`))).executions).toEqual([])
  })

  it('leaves nothing behind of a run that was refused', async () => {
    const { id, executionId, finish } = await running()
    const { db } = server.service.deps
    const counts = () => Promise.all([db.execution.count(), db.chat.count(), db.session.count(), db.auditEvent.count()])
    const before = await counts()
    expectError(await execute(id), 409, 'Task is already running')
    expect(await counts()).toEqual(before)
    finish()
    await ended(executionId)
  })

  it('needs an agent', async () => {
    for (const assignTo of [null, ann.userId]) {
      const task = await create({ assignTo })
      expectError(await execute(task.id), 400, 'Task is not assigned to an agent')
      expect(await get(task.id)).toEqual(task)
    }
  })

  it.each(['completed', 'cancelled'] as const)('does not start one that is %s again', async (status) => {
    const task = await createIn(status, { assignTo: agentId })
    expectError(await execute(task.id), 400, TRANSITION(status, 'in_progress'))
    expect(await get(task.id)).toEqual(task)
  })

  it('does not run a task in progress', async () => {
    const task = await createIn('in_progress', { assignTo: agentId })
    expectError(await execute(task.id), 409, 'Task is already running')
    expect(await get(task.id)).toEqual(task)
  })

  it.each<[string, (agentId: string) => Promise<Answer>]>([
    ['archived', (id) => call('DELETE', `/agents/${id}`)],
    ['private to another user', (id) => call('PATCH', `/agents/${id}`, { visibility: 'private' }, ben)],
  ])('gives a 404 for an agent that is %s by now', async (how, change) => {
    const assignTo = await createAgent({}, how === 'archived' ? ann : ben)
    const task = await create({ assignTo })
    await ok(change(assignTo))
    expectError(await execute(task.id), 404, 'Agent not found')
    expect(await get(task.id)).toEqual(task)
  })

  it('gives a 404 for a space that the caller cannot see', async () => {
    const spaceId = await createSpace(ben)
    const { task } = await ok(call('POST', '/tasks', { title: 'x', assignTo: agentId, spaceId }, ben))
    expectError(await execute(task.id), 404, 'Space not found')
    expect(await get(task.id)).toEqual(task)
    expect((await ok(execute(task.id, {}, ben))).task.status).toBe('completed')
  })

  describe('during its run', () => {
    const aborts: [string, (id: string) => Promise<Answer>][] = [
      ['cancelled', (id) => patch(id, { status: 'cancelled' })],
      ['deleted', (id) => call('DELETE', `/tasks/${id}`)],
      ['set to pending and then cancelled', (id) => patch(id, { status: 'pending' }).then(() => aborts[0]![1](id))],
      ['set to pending and then deleted', (id) => patch(id, { status: 'pending' }).then(() => aborts[1]![1](id))],
      ['cancelled by a colleague', (id) => patch(id, { status: 'cancelled' }, ben)],
    ]
    it.each(aborts.slice(0, 2))('a task that is %s marks its run, also if the server then dies', async (_, end) => {
      const { id, executionId, asked } = await running()
      const { db, engine } = server.service.deps
      const { cancel } = engine
      engine.cancel = () => Promise.reject(new DriverAdapterError({ kind: 'ConnectionClosed' }))
      expect((await end(id)).status).toBe(503)
      engine.cancel = cancel
      const row = await db.execution.findUniqueOrThrow({ where: { id: executionId } })
      expect(row).toMatchObject({ status: 'running', wantsCancel: true })
      await cancel(row, row)
      await asked.aborted
    })

    it.each(aborts)('a task that is %s cancels its run, down to the model', async (how, end) => {
      const { id, executionId, asked } = await running()
      await ok(end(id))
      await asked.aborted
      expect((await ended(executionId)).status).toBe('cancelled')
      if (how.endsWith('deleted')) expectError(await call('GET', `/tasks/${id}`), 404, 'Task not found')
      else expect(await get(id)).toMatchObject({ status: 'cancelled', completedAt: null, result: null })
    })

    it('a task that is completed by hand stays completed, and its run continues', async () => {
      const { id, executionId, finish } = await running()
      await patched(id, { status: 'completed' })
      const byHand = await get(id)
      clock.advance(1000)
      finish()
      expect((await ended(executionId)).status).toBe('completed')
      expect(await get(id)).toEqual(byHand)
    })

    it('a task that is started by hand while its run still stops stays in progress', async () => {
      const { id, executionId } = await running()
      const { db, engine } = server.service.deps
      const { cancel } = engine
      engine.cancel = async (row) => row
      for (const status of ['pending', 'in_progress'] as const) await patched(id, { status })
      engine.cancel = cancel
      const byHand = await get(id)
      const row = await db.execution.findUniqueOrThrow({ where: { id: executionId } })
      await cancel(row, row)
      expect((await ended(executionId)).status).toBe('cancelled')
      expect(await get(id)).toEqual(byHand)
      await patched(id, { status: 'cancelled' })
    })

    it('a change of any other field stays', async () => {
      const { id, executionId, finish } = await running()
      const changes = { title: 'Other', description: 'D', priority: 'low', assignedTo: ben.userId }
      await patched(id, changes)
      finish()
      await ended(executionId)
      expect(await get(id)).toMatchObject({ ...changes, status: 'completed', result: 'Half done.' })
    })

    it('a task that returns to pending has its run cancelled before another starts', async () => {
      const first = await running()
      const { db } = server.service.deps
      await patched(first.id, { status: 'pending' })
      expect((await ended(first.executionId)).status).toBe('cancelled')
      // Another server that has not stopped it yet.
      const left = await running()
      await patched(left.id, { status: 'pending' })
      await ended(left.executionId)
      const unstopped = { where: { id: left.executionId } }
      const { status, terminalSeq } = await db.execution.findUniqueOrThrow(unstopped)
      await db.execution.update({ ...unstopped, data: { status: 'running', terminalSeq: null } })
      expectError(await execute(left.id), 409, 'Task is already running')
      await db.execution.update({ ...unstopped, data: { status, terminalSeq } })
      expect((await ok(execute(left.id))).task.status).toBe('completed')
    })
  })
})

describe('an Idempotency-Key', () => {
  let agentId: string
  beforeAll(async () => {
    agentId = await createAgent()
  })
  const counts = async () => {
    const { task, execution, auditEvent, idempotencyRecord } = server.service.deps.db
    return Promise.all([task.count(), execution.count(), auditEvent.count(), idempotencyRecord.count()])
  }
  const OTHER = 'Idempotency-Key was used with another request'

  /** A POST with a key, once more, and with another body: one effect, one answer, one refusal. */
  async function expectOnce(path: string, body: Body, other: Body) {
    const key = newId()
    const first = await call('POST', path, body, { key })
    expect(first.headers.has('idempotent-replayed')).toBe(false)
    const before = await counts()
    const again = await call('POST', path, body, { key })
    expect([again.status, again.body]).toEqual([200, first.body])
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expectError(await call('POST', path, other, { key }), 422, OTHER)
    expect(await counts()).toEqual(before)
    return first.body
  }

  it('makes one task, however often it is sent', async () => {
    const body = { title: 'Once', assignTo: ben.userId, priority: 'low' }
    const { id } = await expectOnce('/tasks', body, { ...body, priority: 'high' })
    expect((await get(id)).title).toBe('Once')
  })

  it('makes one task of 20 concurrent requests', async () => {
    const [tasks] = await counts()
    const sent = Array.from({ length: 20 }, () => call('POST', '/tasks', { title: 'Once' }, { key: 'at once' }))
    const answers = await Promise.all(sent)
    expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1)
    expect(answers.filter(({ headers }) => headers.has('idempotent-replayed'))).toHaveLength(19)
    expect((await counts())[0]).toBe(tasks + 1)
  })

  it('claims once, and repeats the answer even if the task has changed since', async () => {
    const { id } = await create()
    const { task } = await expectOnce(`/tasks/${id}/claim`, {}, { agentId })
    expect(task.assignedTo).toBe(ann.userId)
    const key = newId()
    const other = await create()
    const first = await call('POST', `/tasks/${other.id}/claim`, undefined, { key })
    await patched(other.id, { assignTo: null, title: 'Changed' })
    expect((await call('POST', `/tasks/${other.id}/claim`, undefined, { key })).body).toEqual(first.body)
    expect(await get(other.id)).toMatchObject({ assignedTo: null, title: 'Changed' })
  })

  it('gives 20 concurrent claims the same answer', async () => {
    const { id } = await create()
    const sent = Array.from({ length: 20 }, () => call('POST', `/tasks/${id}/claim`, {}, { key: 'one' }))
    const answers = await Promise.all(sent)
    expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1)
    expect(answers[0]?.body.task.assignedTo).toBe(ann.userId)
    expect(await audits(id)).toBe(2)
  })

  it('stores nothing of a refusal, so that the same key may succeed later', async () => {
    const { id } = await create({ assignTo: ben.userId })
    const claim = () => call('POST', `/tasks/${id}/claim`, {}, { key: 'later' })
    expectError(await claim(), 409, 'Task is already assigned')
    await patched(id, { assignTo: null })
    expect((await ok(claim())).task.assignedTo).toBe(ann.userId)
    const body = { title: 'x', assignTo: 'nobody' }
    expectError(await call('POST', '/tasks', body, { key: 'assign' }), 400, ASSIGNEE)
    expect((await call('POST', '/tasks', { title: 'x' }, { key: 'assign' })).status).toBe(200)
  })

  it('shows nothing that the caller may no longer see', async () => {
    const { id } = await create()
    const claim = () => call('POST', `/tasks/${id}/claim`, {}, { key: 'gone' })
    await ok(claim())
    await ok(call('DELETE', `/tasks/${id}`))
    expectError(await claim(), 404, 'Task not found')

    const spaceId = await createSpace(ann)
    const make = () => call('POST', '/tasks', { title: 'x', spaceId }, { key: 'space gone' })
    await ok(make())
    await server.service.deps.db.space.update({ where: { id: spaceId }, data: { archivedAt: clock.now() } })
    expectError(await make(), 404, 'Space not found')
  })

  it('belongs to its path and to its user', async () => {
    const tasks = [await create(), await create()]
    for (const { id } of tasks) await ok(call('POST', `/tasks/${id}/claim`, {}, { key: 'mine' }))
    const made = [ann, ben].map((who) => call('POST', '/tasks', { title: 'x' }, { ...who, key: 'mine' }))
    const [one, other] = await Promise.all(made.map(ok))
    expect(one?.id).not.toBe(other?.id)
  })

  it('runs a task once, and repeats the outcome', async () => {
    const { id } = await create({ assignTo: agentId })
    const { executionId, task } = await expectOnce(`/tasks/${id}/execute`, {}, { background: true })
    expect(task).toMatchObject({ status: 'completed', executionId })
  })

  it.each(APIS)('joins the active run (%s)', async (api) => {
    const { promise, resolve } = Promise.withResolvers<void>()
    model.script({ tokens: ['Half ', promise, 'done.'] })
    const asked = model.request(model.requests.length)
    const { id } = await create({ assignTo: agentId })
    const input = { id, ...(api === 'tRPC' && { idempotencyKey: 'join' }) }
    const options = { token: ann.token, ...(api === 'REST' && { headers: { 'Idempotency-Key': 'join' } }) }
    const execute = () => apis[api](server, 'tasks.execute', input, options)
    const first = execute()
    await asked
    await begun(id)
    const second = execute()
    const wanted = { status: 'completed', result: 'Half done.' }
    expect((await call('POST', `/tasks/${id}/execute`, {}, { key: 'not mine' })).status).toBe(409)
    resolve()
    const answers = (await Promise.all([first, second])).map(({ body }) => body)
    const { executionId } = answers[0]
    for (const body of answers) expect(body).toMatchObject({ ...wanted, executionId, task: { ...wanted, executionId } })
    expect((await ok(call('GET', `/executions?taskId=${id}&count=true`))).total).toBe(1)
  })

  it('gets the answer of its run, whatever has changed in the task since', async () => {
    const { id } = await create({ assignTo: agentId })
    const execute = () => call('POST', `/tasks/${id}/execute`, {}, { key: 'since' })
    const { executionId } = await ok(execute())
    await patched(id, { title: 'Other', description: 'D', spaceId: await createSpace(ann) })
    expect((await ok(execute())).executionId).toBe(executionId)
    await patched(id, { assignTo: await createAgent() })
    expect((await ok(execute())).executionId).toBe(executionId)
  })

  it('starts a new run if the first has failed', async () => {
    const { id } = await create({ assignTo: agentId })
    const execute = () => call('POST', `/tasks/${id}/execute`, {}, { key: 'again' })
    model.script({ error: { status: 400 } })
    expectError(await execute(), 500, 'Chat execution failed')
    const failed = await get(id)
    const { executionId } = await ok(execute())
    expect(executionId).not.toBe(failed.executionId)
    expect((await ok(execute())).executionId).toBe(executionId)
  })

  it('repeats that a run was cancelled, and starts none', async () => {
    const { promise } = Promise.withResolvers<void>()
    model.script({ tokens: ['Half', promise] })
    const asked = model.request(model.requests.length)
    const { id } = await create({ assignTo: agentId })
    const execute = () => call('POST', `/tasks/${id}/execute`, { background: true }, { key: 'cancelled' })
    const { executionId } = await ok(execute())
    // Otherwise a later test would get the scripted answer.
    await asked
    await ok(call('POST', `/executions/${executionId}/cancel`))
    expect(await ok(execute())).toMatchObject({ executionId, status: 'cancelled', task: { status: 'pending' } })
    expect((await ok(call('GET', `/executions?taskId=${id}&count=true`))).total).toBe(1)
  })
})
