import { describe, expect, test } from 'vitest'
import { request } from '../support/rest.ts'
import type { TestServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'
import { violations } from './invariants.ts'
import { type Lab, startLab } from './lab.ts'

const execute = ({ agentId }: Lab, query = '') => `/api/v1/agents/${agentId}/execute${query}`

const onlyRun = ({ db }: Lab) => db.execution.findFirstOrThrow({ orderBy: { createdAt: 'desc' } })

/** A request that is given up. */
function giveUp({ server }: Lab, path: string, body: object): () => Promise<void> {
  const gone = new AbortController()
  const answer = fetch(server.url + path, {
    method: 'POST',
    headers: { Authorization: `Bearer ${server.token}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
    signal: gone.signal,
  })
  return async () => {
    gone.abort()
    await answer.then(
      () => Promise.reject(new Error('It was answered')),
      () => {},
    )
  }
}

describe('onDisconnect=cancel: a caller that goes away takes the run along, down to the model', () => {
  test('from a stream', async () => {
    await using lab = await startLab()
    lab.model.script({ tokens: ['one '], end: 'hang' })
    const body = { message: 'Hello', stream: true }
    const stream = await openStream(lab.server, execute(lab, '?onDisconnect=cancel'), { method: 'POST', body })
    await stream.next()
    const { aborted } = await lab.model.request(0)
    await stream.next()
    await stream.close()
    await aborted
    await lab.idle()
    expect(await onlyRun(lab)).toMatchObject({ status: 'cancelled' })
    expect(await violations(lab.db)).toEqual([])
  })

  test('from a request that waits for the answer', async () => {
    await using lab = await startLab()
    lab.model.script({ end: 'hang' })
    const leave = giveUp(lab, execute(lab, '?onDisconnect=cancel'), { message: 'Hello' })
    const { aborted } = await lab.model.request(0)
    await leave()
    await aborted
    await lab.idle()
    expect(await onlyRun(lab)).toMatchObject({ status: 'cancelled' })
  })

  for (const stream of [true, false]) {
    test(`while the run waits for its session (${stream ? 'stream' : 'answer'})`, async () => {
      await using lab = await startLab()
      lab.model.script({ tokens: ['one '], end: 'hang' })
      const { sessionId, id } = await lab.run()
      const leave = stream ? streamed(lab, sessionId) : waiting(lab, sessionId)
      await expect.poll(() => lab.db.execution.count({ where: { status: 'pending' } })).toBe(1)
      await (await leave)()
      await expect.poll(async () => (await onlyRun(lab)).status).toBe('cancelled')
      expect((await lab.row(id)).status).toBe('running')
      expect(lab.model.requests).toHaveLength(1)
    })
  }

  const waiting = async (lab: Lab, sessionId: string) =>
    giveUp(lab, execute(lab, '?onDisconnect=cancel'), { message: 'Hello', sessionId })

  async function streamed(lab: Lab, sessionId: string) {
    const body = { message: 'Hello', stream: true, sessionId }
    const stream = await openStream(lab.server, execute(lab, '?onDisconnect=cancel'), { method: 'POST', body })
    return () => stream.close()
  }

  test('said in the body', async () => {
    await using lab = await startLab()
    lab.model.script({ end: 'hang' })
    const leave = giveUp(lab, execute(lab), { message: 'Hello', onDisconnect: 'cancel' })
    const { aborted } = await lab.model.request(0)
    await leave()
    await aborted
  })

  test('the reader of another stream of the run does not', async () => {
    await using lab = await startLab()
    const goOn = Promise.withResolvers<void>()
    lab.model.script({ tokens: ['one ', goOn.promise, 'two'] })
    const body = { message: 'Hello', stream: true }
    const first = await openStream(lab.server, execute(lab, '?onDisconnect=cancel'), { method: 'POST', body })
    const meta = await first.next()
    const events = `/api/v1/executions/${meta!.data.executionId}/events?onDisconnect=cancel`
    const second = await openStream(lab.server, events)
    await second.next()
    await second.close()
    goOn.resolve()
    expect((await first.rest()).at(-1)).toMatchObject({ event: 'result' })
  })
})

describe('a caller that goes away without it leaves the run alone', () => {
  test('from a stream', async () => {
    await using lab = await startLab()
    const goOn = Promise.withResolvers<void>()
    lab.model.script({ tokens: ['one ', goOn.promise, 'two'] })
    const body = { message: 'Hello', stream: true }
    const stream = await openStream(lab.server, execute(lab), { method: 'POST', body })
    await stream.next()
    await lab.model.request(0)
    await stream.close()
    goOn.resolve()
    await lab.idle()
    expect(await onlyRun(lab)).toMatchObject({ status: 'completed', result: 'one two' })
  })

  test('from a request that waits for the answer', async () => {
    await using lab = await startLab()
    const goOn = Promise.withResolvers<void>()
    lab.model.script({ tokens: ['one ', goOn.promise, 'two'] })
    const leave = giveUp(lab, execute(lab), { message: 'Hello' })
    await lab.model.request(0)
    await leave()
    goOn.resolve()
    await lab.idle()
    expect(await onlyRun(lab)).toMatchObject({ status: 'completed', result: 'one two' })
  })
})

describe('open streams end within 5 s, without a terminal event, and the run goes on', () => {
  const endings: Record<string, (lab: Lab, member: Awaited<ReturnType<TestServer['member']>>) => Promise<unknown>> = {
    'when the token is revoked': ({ db, clock }, { tokenId: id }) =>
      db.token.update({ where: { id }, data: { revokedAt: clock.now() } }),
    'when the token is deleted': ({ db }, { tokenId: id }) => db.token.delete({ where: { id } }),
    'when the membership is deleted': ({ db }, { organizationId, userId }) =>
      db.membership.deleteMany({ where: { organizationId, userId } }),
    'when the token expires': async ({ clock }) => clock.advance(60_000),
  }
  for (const [title, end] of Object.entries(endings)) {
    test(title, async () => {
      await using lab = await startLab()
      const goOn = Promise.withResolvers<void>()
      lab.model.script({ tokens: ['one ', goOn.promise, 'two'] })
      const expiresAt = new Date(lab.clock.now().getTime() + 30_000)
      const member = await lab.server.member({ expiresAt })
      const { token } = member
      const body = { message: 'Hello', stream: true }
      const streams = [await openStream(lab.server, execute(lab), { method: 'POST', body, token })]
      const { id } = await onlyRun(lab)
      streams.push(await openStream(lab.server, `/api/v1/executions/${id}/events`, { token }))
      // Somebody else's stays open.
      const other = await openStream(lab.server, `/api/v1/executions/${id}/events`)
      for (const stream of streams) expect((await stream.next())?.event).toBe('meta')

      const closed = Promise.all(streams.map((stream) => stream.rest()))
      await end(lab, member)
      let over: unknown[][] = []
      void closed.then((rests) => {
        over = rests
      })
      await expect.poll(() => over.length, { timeout: 5_000 }).toBe(2)
      for (const rest of over) expect(rest).not.toContainEqual(expect.objectContaining({ event: 'result' }))
      for (const rest of over) expect(rest).not.toContainEqual(expect.objectContaining({ event: 'error' }))
      const again = await request(lab.server, 'GET', `/api/v1/executions/${id}/events`, { token })
      expect([401, 403]).toContain(again.status)
      goOn.resolve()
      expect((await other.rest()).at(-1)).toMatchObject({ event: 'result' })
    })
  }
})

test('a reader that leaves while it catches up from the database leaves nothing behind', async () => {
  await using lab = await startLab()
  lab.model.script({ tokens: 'Done.' })
  const row = await lab.run()
  await lab.idle()
  // As after a long run: so many segments that they are read in several goes, and are more than a connection takes.
  const events = JSON.stringify([{ step: 1, text: 'x'.repeat(10_000), lengths: [10_000] }])
  const at = lab.clock.now()
  const segments = Array.from({ length: 2_000 }, (_, index) => ({ firstSeq: 1_000 + index, lastSeq: 1_000 + index }))
  await lab.db.executionEvent.createMany({
    data: segments.map((segment) => ({ executionId: row.id, at, events, ...segment })),
  })
  await lab.db.execution.update({ where: { id: row.id }, data: { terminalSeq: 10_000 } })
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length
  const before = timers()
  for (let round = 0; round < 60; round++) {
    const stream = await openStream(lab.server, `/api/v1/executions/${row.id}/events`)
    for (let index = 0; index < round; index++) await stream.next()
    await stream.close()
  }
  await expect.poll(timers, { timeout: 5_000 }).toBeLessThanOrEqual(before + 5)
})
