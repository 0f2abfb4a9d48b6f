import { expect, test } from 'vitest'
import { over } from '../../src/db/over.ts'
import type { Engine } from '../../src/executions/engine/worker.ts'
import { violations } from './invariants.ts'
import { type Lab, PLAIN, startLab } from './lab.ts'

/** An engine whose transactions have done all but end: that is up to `gate`. */
function gated(lab: Lab, gate: () => Promise<void>): Engine {
  const $transaction = (work: (tx: never) => Promise<unknown>) =>
    lab.db.$transaction(async (tx) => {
      const result = await work(tx as never)
      await gate()
      return result
    })
  return lab.another({ db: over(() => lab.db, { $transaction }) })
}

const requestOf = async ({ db, actor, spaceId }: Lab) => ({
  ...PLAIN,
  actor,
  agent: await db.agent.findFirstOrThrow(),
  conversation: { spaceId },
})

test('a model is asked while a new conversation is still being written; nothing of it is there before', async () => {
  await using lab = await startLab()
  const gate = Promise.withResolvers<void>()
  const engine = gated(lab, () => gate.promise)
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
})

test('a run that cannot be accepted after all stops asking, leaves nothing, and takes nobody’s place', async () => {
  await using lab = await startLab({ MAX_RUNNING: '1' })
  lab.model.script({ tokens: ['one '], end: 'hang' })
  let gate = Promise.withResolvers<void>()
  const engine = gated(lab, () => gate.promise)
  const accepting = engine.accept(await requestOf(lab))
  accepting.catch(() => {})
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
})

test('what goes on with a session is asked about when all before it is on the disk', async () => {
  await using lab = await startLab()
  const conversation = await lab.session()
  const gate = Promise.withResolvers<void>()
  const engine = gated(lab, () => gate.promise)
  const accepting = engine.accept({ ...(await requestOf(lab)), conversation })
  const statements = lab.server.queries.length
  await expect.poll(() => lab.server.queries.slice(statements).join()).toContain('AuditEvent')
  // What had been sent by now would have come before these.
  for (let time = 0; time < 5; time++) await (await fetch(`${lab.model.baseUrl}/models`)).text()
  expect(lab.model.requests).toHaveLength(1)
  gate.resolve()
  await accepting
  await lab.idle()
  expect(lab.model.requests).toHaveLength(2)
  await engine.drain()
})
