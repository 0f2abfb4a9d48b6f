import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { createLocalBus } from '../../src/bus/local.ts'
import { overrideMembers } from '../../src/db/override-members.ts'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import { questionOf } from '../support/model-server.ts'
import { onPostgres, races } from '../support/postgres-shared.ts'
import { type Answer, request } from '../support/rest.ts'
import { violations, watchTransitions } from './invariants.ts'
import { asked, ended, gates, type Lab, nextTurn, PLAIN, slowToAnswer, startLab } from './lab.ts'
import { call } from './tool-lab.ts'

const cancel = ({ server }: Lab, { id }: { id: string }): Promise<Answer> =>
  request(server, 'POST', `/api/v1/executions/${id}/cancel`)

const statusOf = async (lab: Lab, { id }: { id: string }) => (await lab.row(id)).status

/** Compares the answer of a cancel with the final state of the run. */
async function expectAgreement(lab: Lab, row: ExecutionRow, answer: Answer): Promise<string> {
  const status = await statusOf(lab, row)
  const expected =
    status === 'cancelled'
      ? { status: 200, body: { execution: { id: row.id, status: 'cancelled' } } }
      : { status: 400, body: { message: `Cannot cancel execution with status: ${status}` } }
  expect(answer).toMatchObject(expected)
  return status
}

// A number of cancels must come near the end of a run.
const RACES = onPostgres ? 100 : races(200)
const BEGINS = races(100)

test(`${RACES} cancels raced against completion agree with the one terminal state`, async () => {
  await using lab = await startLab()
  const open = gates(lab)
  const transitions = await watchTransitions(lab.db)
  const outcomes = { completed: 0, cancelled: 0 }
  // Delay of the cancel after the model's answer (ms), or before it. It approaches the end of the run from race to
  // race.
  let moment = 0
  let step = 0
  const race = async (index: number, first: number) => {
    const message = `race ${index}`
    const row = await lab.run({ message })
    // A run that is cancelled before its request would leave the previous race waiting for it.
    let number = first
    while (questionOf(await lab.model.request(number)) !== message) number++
    const answering = sleep(Math.max(0, -moment)).then(() => open(message))
    await sleep(Math.max(0, moment))
    const status = await expectAgreement(lab, row, await cancel(lab, row))
    await answering
    outcomes[status as keyof typeof outcomes]++
    // Repeats the race, because it was far from the end.
    const side = status === 'completed' ? -0.5 : 0.5
    step = step * side > 0 ? step * 1.1 : side
    moment += step
  }
  for (let first = 0; first < RACES; first += 20) {
    await Promise.all(Array.from({ length: 20 }, (_, index) => race(first + index, first)))
  }
  expect(outcomes.completed + outcomes.cancelled).toBe(RACES)
  expect(Math.min(outcomes.completed, outcomes.cancelled)).toBeGreaterThan(RACES / 25)
  expect(await transitions()).toEqual([])
  expect(await violations(lab.db)).toEqual([])
})

test(`${BEGINS} cancels raced against the start of a pending run leave none running`, async () => {
  await using lab = await startLab({ LEASE_DURATION: '60' })
  const open = gates(lab)
  const transitions = await watchTransitions(lab.db)
  for (let index = 0; index < BEGINS; index++) {
    const first = await lab.run({ message: `first ${index}` })
    const { chatId, sessionId, spaceId } = first
    const second = await lab.run({ message: `second ${index}`, conversation: { spaceId, chatId, sessionId } })
    expect(second.status).toBe('pending')
    open(`first ${index}`)
    const answer = ended(lab.engine, first).then(async () => {
      for (let turn = 0; turn < index % 10; turn++) await nextTurn()
      return cancel(lab, second)
    })
    expect((await answer).status).toBe(200)
    expect(await statusOf(lab, second)).toBe('cancelled')
  }
  await expect.poll(() => lab.model.active).toBe(0)
  expect(await transitions()).toEqual([])
  expect(await violations(lab.db)).toEqual([])
})

test('a run that is cancelled while its calls are stored keeps none of them', async () => {
  await using lab = await startLab({ LEASE_DURATION: '60' })
  const kept = Promise.withResolvers<void>()
  const resume = Promise.withResolvers<void>()
  const db = slowToAnswer(lab.db, async () => {
    if (!(await lab.db.executionStep.count())) return
    kept.resolve()
    await resume.promise
  })
  const other = lab.another({ db, bus: lab.server.service.deps.bus })
  lab.model.script({ tokens: 'Well.', toolCalls: [call('nothing', {})] })
  const agent = await lab.db.agent.findUniqueOrThrow({ where: { id: lab.agentId } })
  const { actor, spaceId } = lab
  const row = await other.accept({ ...PLAIN, actor, agent, conversation: { spaceId } })
  await kept.promise
  const answer = lab.engine.cancel(row, actor)
  await expect.poll(async () => (await lab.row(row.id)).wantsCancel).toBe(true)
  resume.resolve()
  expect((await answer).status).toBe('cancelled')
  await expect.poll(() => lab.db.executionStep.count()).toBe(0)
  expect(await violations(lab.db)).toEqual([])
  await other.drain()
})

test('a cancel between the claim of a pending run and its start takes effect', async () => {
  await using lab = await startLab({ LEASE_DURATION: '60' })
  gates(lab)
  const claimed = Promise.withResolvers<void>()
  const resume = Promise.withResolvers<void>()
  const pause = () => {
    claimed.resolve()
    return resume.promise
  }
  const first = await lab.run({ message: 'first' })
  const { chatId, sessionId, spaceId } = first
  const second = await lab.run({ message: 'second', conversation: { spaceId, chatId, sessionId } })
  // This engine does not end the first run, so its first transaction is the claim of the second.
  const other = lab.another({ db: slowToAnswer(lab.db, pause), bus: lab.server.service.deps.bus })
  await lab.db.session.update({ where: { id: sessionId }, data: { activeExecutionId: second.id } })
  void other.start(false)
  await claimed.promise
  expect(await statusOf(lab, second)).toBe('running')
  const answer = lab.engine.cancel(await lab.row(second.id), lab.actor)
  await nextTurn()
  await expect.poll(async () => (await lab.row(second.id)).wantsCancel).toBe(true)
  resume.resolve()
  expect((await answer).status).toBe('cancelled')
  await lab.engine.cancel(first, lab.actor)
  await other.drain()
})

test('a cancel of an accepted run that its process has not started yet takes effect', async () => {
  await using lab = await startLab({ LEASE_DURATION: '60' })
  gates(lab)
  const committed = Promise.withResolvers<void>()
  const resume = Promise.withResolvers<void>()
  const db = slowToAnswer(lab.db, () => {
    committed.resolve()
    return resume.promise
  })
  const other = lab.another({ db, bus: lab.server.service.deps.bus })
  const [agent] = await lab.db.agent.findMany()
  const accepting = other.accept({
    actor: lab.actor,
    agent: agent!,
    ...PLAIN,
    conversation: { spaceId: lab.spaceId },
  })
  await committed.promise
  const [row] = await lab.db.execution.findMany()
  const answer = lab.engine.cancel(row!, lab.actor)
  await expect.poll(async () => (await lab.row(row!.id)).wantsCancel).toBe(true)
  resume.resolve()
  await accepting
  expect((await answer).status).toBe('cancelled')
  await other.drain()
})

test('the cancel of a pending run affects neither the run before it nor the one after it', async () => {
  await using lab = await startLab()
  const open = gates(lab)
  const first = await lab.run({ message: 'first' })
  const conversation = { spaceId: first.spaceId, chatId: first.chatId, sessionId: first.sessionId }
  const second = await lab.run({ message: 'second', conversation })
  const third = await lab.run({ message: 'third', conversation })
  await expectAgreement(lab, second, await cancel(lab, second))
  expect(await statusOf(lab, first)).toBe('running')
  open('first')
  open('third')
  await ended(lab.engine, third)
  expect(asked(lab)).toEqual(['first', 'third'])
  const messages = await lab.db.message.findMany({ orderBy: { position: 'asc' } })
  expect(messages.map(({ content }) => content)).toEqual(['first', 'Done.', 'third', 'Done.'])
  expect(await violations(lab.db)).toEqual([])
})

test('a cancel reaches every model connection of the tree, and no other', async () => {
  await using lab = await startLab()
  lab.model.fallback = { tokens: ['one '], end: 'hang' }
  const root = await lab.run({ message: 'root' })
  const children = [await lab.run({ message: 'a', parent: root }), await lab.run({ message: 'b', parent: root })]
  const grandchild = await lab.run({ message: 'a a', parent: children[0]! })
  const stranger = await lab.run({ message: 'stranger' })
  const conversation = { spaceId: lab.spaceId, chatId: stranger.chatId, sessionId: stranger.sessionId }
  const waiting = await lab.run({ message: 'b a', parent: children[1]!, conversation })
  expect(waiting.status).toBe('pending')
  await lab.model.request(4)

  const answer = await cancel(lab, root)
  await expectAgreement(lab, root, answer)
  const family = lab.model.requests.filter((_, index) => asked(lab)[index] !== 'stranger')
  await Promise.all(family.map(({ aborted }) => aborted))
  for (const row of [root, ...children, grandchild, waiting]) {
    await expect.poll(() => statusOf(lab, row)).toBe('cancelled')
  }
  expect(await statusOf(lab, stranger)).toBe('running')
  expect(lab.model.active).toBe(1)
  await cancel(lab, stranger)
  expect(await violations(lab.db)).toEqual([])
})

test('a run that joins a tree during its cancel is refused or cancelled, at any depth', async () => {
  await using lab = await startLab()
  lab.model.fallback = { tokens: ['one '], end: 'hang' }
  const { bus } = lab.server.service.deps
  for (let round = 0; round < races(30); round++) {
    let parent = await lab.run({ message: 'root' })
    const family = [parent]
    for (let depth = 0; depth < 3; depth++) {
      parent = await lab.run({ message: `depth ${depth}`, parent })
      family.push(parent)
    }
    const joining: Promise<unknown>[] = []
    const join = (row: ExecutionRow) => joining.push(lab.run({ message: 'late', parent: row }).catch(String))
    // Every run gets another child at each cancel notice.
    const stop = bus.subscribe('cancel', () => {
      if (joining.length < 40) family.forEach(join)
    })
    await lab.engine.cancel(family[0]!, lab.actor)
    stop()
    const late = await Promise.all(joining)
    expect(late.filter((outcome) => typeof outcome === 'string')).not.toHaveLength(0)
    await expect
      .poll(() => lab.db.execution.count({ where: { status: { in: ['pending', 'running'] }, wantsCancel: false } }))
      .toBe(0)
    await lab.idle()
  }
  await expect.poll(() => lab.model.active).toBe(0)
  const runs = await lab.db.execution.findMany()
  expect(runs.filter(({ status }) => status !== 'cancelled')).toEqual([])
  expect(await lab.db.auditEvent.count({ where: { action: 'execution.cancel' } })).toBe(runs.length)
  expect(await violations(lab.db)).toEqual([])
})

test('the text of a cancelled run stays in its events and, marked as partial, in the history', async () => {
  await using lab = await startLab()
  lab.model.fallback = { tokens: ['one ', 'two '], end: 'hang' }
  const row = await lab.run()
  const follower = lab.engine.follow(row, 0, new AbortController().signal)
  let text = ''
  for await (const events of follower) {
    for (const { event, data } of events) {
      if (event === 'message' && data.messageType === 'stream_event') text += data.delta.text
    }
    if (text === 'one two ') break
  }
  await cancel(lab, row)
  const messages = await lab.db.message.findMany({ orderBy: { position: 'asc' } })
  expect(messages.map(({ role, content, interrupted }) => [role, content, interrupted])).toEqual([
    ['user', 'Hello', false],
    ['assistant', 'one two ', true],
  ])
  expect(await violations(lab.db)).toEqual([])
})

test('a process without a notice finds and stops its own cancelled runs, and no others', async () => {
  await using lab = await startLab({ LEASE_DURATION: '600' })
  lab.model.fallback = { tokens: ['one ', new Promise<void>(() => {})] }
  const bus = createLocalBus()
  const other = lab.another({ bus })
  const agent = await lab.db.agent.findUniqueOrThrow({ where: { id: lab.agentId } })
  const request = { ...PLAIN, actor: lab.actor, agent, conversation: { spaceId: lab.spaceId } }
  const [shall, goesOn, elsewhere] = [await other.accept(request), await other.accept(request), await lab.run()]
  await lab.model.request(2)
  await lab.db.execution.updateMany({
    where: { id: { in: [shall.id, elsewhere.id] } },
    data: { wantsCancel: true },
  })
  bus.notifyAll()
  expect(await ended(other, shall)).toMatchObject({ status: 'cancelled' })
  expect(await statusOf(lab, goesOn)).toBe('running')
  expect(await statusOf(lab, elsewhere)).toBe('running')
  await other.cancel(goesOn, lab.actor)
  await cancel(lab, elsewhere)
})

test('a cancel that fails half way has marked the whole tree', async () => {
  await using lab = await startLab()
  const open = gates(lab)
  const root = await lab.run({ message: 'root' })
  const child = await lab.run({ message: 'child', parent: root })
  const grandchild = await lab.run({ message: 'grandchild', parent: child })
  // Fails after its first transaction.
  const findMany = () => Promise.reject(new Error('Connection terminated'))
  const execution = overrideMembers(lab.db.execution, { findMany })
  const other = lab.another({ db: overrideMembers(lab.db, { execution }) })
  await expect(other.cancel(root, lab.actor)).rejects.toThrow('Connection terminated')
  const marked = await lab.db.execution.findMany({ where: { wantsCancel: true }, select: { id: true } })
  expect(new Set(marked.map(({ id }) => id))).toEqual(new Set([root.id, child.id, grandchild.id]))
  const audited = await lab.db.auditEvent.findMany({ where: { action: 'execution.cancel' } })
  expect(audited.map(({ target }) => target).toSorted()).toEqual([root.id, child.id, grandchild.id].toSorted())
  for (const message of ['root', 'child', 'grandchild']) open(message)
  await lab.idle()
  for (const row of [root, child, grandchild]) expect(await statusOf(lab, row)).toBe('cancelled')
})
