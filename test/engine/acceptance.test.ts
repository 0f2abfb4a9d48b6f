import { expect, test } from 'vitest'
import { overrideMembers } from '../../src/db/fast-path/index.ts'
import type { Engine } from '../../src/executions/engine/engine.ts'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import type { Request } from '../../src/executions/engine/queue/accept.ts'
import { violations } from './invariants.ts'
import { type Lab, PLAIN, startLab } from './lab.ts'

type Gate = () => Promise<void>
const open: Gate = async () => {}

/**
 * An engine whose transactions begin when `begin` resolves, and finish their work and wait for `end` before they
 * commit.
 */
function gated(lab: Lab, { begin = open, end = open }: { begin?: Gate; end?: Gate }): Engine {
  const $transaction = async (work: (tx: never) => Promise<unknown>) => {
    await begin()
    return lab.db.$transaction(async (tx) => {
      const result = await work(tx as never)
      await end()
      return result
    })
  }
  return lab.another({ db: overrideMembers(() => lab.db, { $transaction }) })
}

/** An early request to the model would have arrived before these. */
async function untilHeard({ model }: Lab): Promise<void> {
  for (let time = 0; time < 5; time++) await (await fetch(`${model.baseUrl}/models`)).text()
}

const requestOf = async ({ db, actor, spaceId }: Lab) => ({
  ...PLAIN,
  actor,
  agent: await db.agent.findFirstOrThrow(),
  conversation: { spaceId },
})

test.for([
  ['before it begins to be written', 'begin'],
  ['while it is still being written', 'end'],
] as const)(
  'the model is asked for a new conversation %s, and the database has none of it before',
  async ([, moment]) => {
    await using lab = await startLab()
    const gate = Promise.withResolvers<void>()
    const engine = gated(lab, { [moment]: () => gate.promise })
    const accepting = engine.accept(await requestOf(lab))
    await lab.model.request(0)
    await expect.poll(() => lab.model.active).toBe(0)
    expect(await lab.db.execution.count()).toBe(0)
    gate.resolve()
    const { id } = await accepting
    await lab.idle()
    expect(await lab.row(id)).toMatchObject({ status: 'completed', attempt: 1 })
    expect(lab.model.requests).toHaveLength(1)
    expect(await violations(lab.db)).toEqual([])
    await engine.drain()
  },
)

test.for([
  ['a child, whose parent may be cancelled', {}, (parent) => ({ parent })],
  ['another write in the transaction may fail', {}, () => ({ also: async () => {} })],
  [
    'its Idempotency-Key may be taken',
    {},
    (_, { actor: { organizationId } }) => ({
      key: { id: 'key', organizationId, inputDigest: '', replaces: null },
    }),
  ],
  ['its organization may have no room', { MAX_RUNNING_PER_ORGANIZATION: '9' }, () => ({})],
] satisfies [string, Record<string, string>, (parent: ExecutionRow, lab: Lab) => Partial<Request>][])(
  'the model is asked only after a refusable new conversation is accepted: %s',
  async ([, env, more]) => {
    await using lab = await startLab(env)
    const parent = await lab.run()
    await lab.idle()
    const gate = Promise.withResolvers<void>()
    const engine = gated(lab, { begin: () => gate.promise })
    const accepting = engine.accept({ ...(await requestOf(lab)), ...more(parent, lab) })
    await untilHeard(lab)
    expect(lab.model.requests).toHaveLength(1)
    gate.resolve()
    await accepting
    await lab.idle()
    expect(lab.model.requests).toHaveLength(2)
    await engine.drain()
  },
)

test('the answer to an accepted run equals its stored row', async () => {
  await using lab = await startLab()
  lab.model.script({ tokens: [], end: 'hang' }, { tokens: [], end: 'hang' })
  const parent = await lab.run({ message: 'Hello', model: 'compatible/test-model' })
  expect(await lab.row(parent.id)).toEqual(parent)
  const { chatId, sessionId, spaceId } = parent
  const waiting = await lab.run({ conversation: { chatId, sessionId, spaceId }, parent, mediaIds: ['a', 'b'] })
  expect(await lab.row(waiting.id)).toEqual(waiting)
  expect(waiting).toMatchObject({ status: 'pending', queueSeq: 2, depth: 1, rootExecutionId: parent.id })
})

test.for(['begin', 'end'] as const)(
  'a run whose acceptance fails (%s) aborts its request, and leaves no row or used capacity',
  async (moment) => {
    await using lab = await startLab({ MAX_RUNNING: '1' })
    lab.model.script({ tokens: ['one '], end: 'hang' })
    let gate = Promise.withResolvers<void>()
    const engine = gated(lab, { [moment]: () => gate.promise })
    const accepting = engine.accept(await requestOf(lab))
    accepting.catch(() => {})
    gate.promise.catch(() => {})
    await lab.model.request(0)
    gate.reject(new Error('The disk is full'))
    await expect(accepting).rejects.toThrow('The disk is full')
    await expect.poll(() => lab.model.active).toBe(0)
    expect([await lab.db.execution.count(), await lab.db.session.count(), await lab.db.message.count()]).toEqual([
      0, 0, 0,
    ])
    gate = Promise.withResolvers()
    gate.resolve()
    expect(await engine.accept(await requestOf(lab))).toMatchObject({ status: 'running' })
    await lab.idle()
    await engine.drain()
  },
)

test('the next message of a session asks the model after everything before it is on the disk', async () => {
  await using lab = await startLab()
  const conversation = await lab.session()
  const gate = Promise.withResolvers<void>()
  const engine = gated(lab, { end: () => gate.promise })
  const accepting = engine.accept({ ...(await requestOf(lab)), conversation })
  const statements = lab.server.queries.length
  await expect.poll(() => lab.server.queries.slice(statements).join()).toContain('AuditEvent')
  await untilHeard(lab)
  expect(lab.model.requests).toHaveLength(1)
  gate.resolve()
  await accepting
  await lab.idle()
  expect(lab.model.requests).toHaveLength(2)
  await engine.drain()
})
