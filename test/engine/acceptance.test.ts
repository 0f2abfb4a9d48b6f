import { Connection } from 'pg'
import { expect, onTestFinished, test, vi } from 'vitest'
import { overrideMembers } from '../../src/db/override-members.ts'
import type { Engine } from '../../src/executions/engine/engine.ts'
import { onPostgres } from '../support/postgres-shared.ts'
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
  return lab.another({ db: overrideMembers(lab.db, { $transaction }) })
}

/** Resolves after a request to the model that was sent earlier would have arrived. */
async function untilAsked({ model }: Lab): Promise<void> {
  for (let time = 0; time < 5; time++) await (await fetch(`${model.baseUrl}/models`)).text()
}

const requestOf = async ({ db, actor, spaceId }: Lab) => ({
  ...PLAIN,
  actor,
  agent: await db.agent.findFirstOrThrow(),
  conversation: { spaceId },
})

test.for([
  ['begins', 'begin'],
  ['ends', 'end'],
] as const)('the model is asked only after the transaction that accepts the run %s', async ([, moment]) => {
  await using lab = await startLab()
  const gate = Promise.withResolvers<void>()
  const engine = gated(lab, { [moment]: () => gate.promise })
  const accepting = engine.accept(await requestOf(lab))
  await untilAsked(lab)
  expect(lab.model.requests).toHaveLength(0)
  gate.resolve()
  const { id } = await accepting
  await lab.idle()
  expect(await lab.row(id)).toMatchObject({ status: 'completed', attempt: 1 })
  expect(lab.model.requests).toHaveLength(1)
  expect(await violations(lab.db)).toEqual([])
  await engine.drain()
})

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

test('a run whose acceptance fails asks no model, and leaves no row and no used capacity', async () => {
  await using lab = await startLab({ MAX_RUNNING: '1' })
  let end: Gate = () => Promise.reject(new Error('The disk is full'))
  const engine = gated(lab, { end: () => end() })
  await expect(engine.accept(await requestOf(lab))).rejects.toThrow('The disk is full')
  await untilAsked(lab)
  expect(lab.model.requests).toHaveLength(0)
  expect([await lab.db.execution.count(), await lab.db.session.count(), await lab.db.message.count()]).toEqual([
    0, 0, 0,
  ])
  end = open
  expect(await engine.accept(await requestOf(lab))).toMatchObject({ status: 'running' })
  await lab.idle()
  await engine.drain()
})

test.runIf(onPostgres)('runs that end together share statements that PostgreSQL keeps prepared', async () => {
  await using lab = await startLab()
  const together = Promise.withResolvers<void>()
  lab.model.fallback = { tokens: ['one ', together.promise] }
  await Promise.all(Array.from({ length: 32 }, () => lab.run()))
  await expect.poll(() => lab.model.requests.length).toBe(32)

  type Statement = { text: string; name: string }
  const wire = Connection.prototype as unknown as { parse: (statement: Statement) => void }
  const { parse } = wire
  onTestFinished(() => void Object.assign(wire, { parse }))
  wire.parse = vi.fn(function (this: unknown, statement: Statement) {
    parse.call(this, statement)
  })
  together.resolve()
  await lab.idle()
  const ends = vi.mocked(wire.parse).mock.calls.filter(([{ text }]) => text.includes('"part7" AS (UPDATE "Execution"'))
  expect(ends.map(([{ name }]) => name)).toEqual(ends.map(() => expect.stringMatching(/^muster_/)))
  expect(ends).not.toEqual([])
})
