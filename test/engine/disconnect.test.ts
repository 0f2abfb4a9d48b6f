import { describe, expect, test } from 'vitest'
import type { Reply } from '../support/model-replies.ts'
import type { ModelRequest } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import type { Member } from '../support/server.ts'
import { openStream } from '../support/sse.ts'
import { use } from '../support/use.ts'
import { violations } from './invariants.ts'
import { type Lab, startLab } from './lab.ts'

const lab = await use(startLab())

const execute = (query = '') => `/api/v1/agents/${lab.agentId}/execute${query}`

/** Scripts the next answer of the model. Resolves with the request for it once the run exists. */
async function script(reply: Reply): Promise<ModelRequest> {
  lab.model.script(reply)
  const request = await lab.model.request(lab.model.requests.length)
  await expect.poll(() => lab.db.execution.count({ where: { status: 'running' } })).toBeGreaterThan(0)
  return request
}

const latestRun = () => lab.db.execution.findFirstOrThrow({ orderBy: { createdAt: 'desc' } })

/** Sends a request that is aborted. */
function giveUp(path: string, body: object): () => Promise<void> {
  const gone = new AbortController()
  const { server } = lab
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

describe('with onDisconnect=cancel', () => {
  test('onDisconnect=cancel cancels the run and the model request at the end of its stream', async () => {
    const asked = script({ tokens: ['one '], end: 'hang' })
    const body = { message: 'Hello', stream: true }
    const stream = await openStream(lab.server, execute('?onDisconnect=cancel'), { method: 'POST', body })
    await stream.next()
    const { aborted } = await asked
    await stream.next()
    await stream.close()
    await aborted
    await lab.idle()
    expect(await latestRun()).toMatchObject({ status: 'cancelled' })
    expect(await violations(lab.db)).toEqual([])
  })

  test('onDisconnect=cancel cancels a run whose caller waits for the answer', async () => {
    const asked = script({ end: 'hang' })
    const leave = giveUp(execute('?onDisconnect=cancel'), { message: 'Hello' })
    const { aborted } = await asked
    await leave()
    await aborted
    await lab.idle()
    expect(await latestRun()).toMatchObject({ status: 'cancelled' })
  })

  for (const stream of [true, false]) {
    test(`onDisconnect=cancel cancels a run that waits for its session (${stream ? 'stream' : 'answer'})`, async () => {
      lab.model.script({ tokens: ['one '], end: 'hang' })
      const asked = lab.model.requests.length
      const { sessionId, id } = await lab.run()
      const leave = stream ? streamed(sessionId) : waiting(sessionId)
      await expect.poll(() => lab.db.execution.count({ where: { status: 'pending' } })).toBe(1)
      await (await leave)()
      await expect.poll(async () => (await latestRun()).status).toBe('cancelled')
      expect((await lab.row(id)).status).toBe('running')
      await lab.engine.cancel(await lab.row(id), lab.actor)
      expect(lab.model.requests).toHaveLength(asked + 1)
    })
  }

  const waiting = async (sessionId: string) => giveUp(execute('?onDisconnect=cancel'), { message: 'Hello', sessionId })

  async function streamed(sessionId: string) {
    const body = { message: 'Hello', stream: true, sessionId }
    const stream = await openStream(lab.server, execute('?onDisconnect=cancel'), { method: 'POST', body })
    return () => stream.close()
  }

  test('onDisconnect=cancel cancels the run if the body asks for it', async () => {
    const asked = script({ end: 'hang' })
    const leave = giveUp(execute(), { message: 'Hello', onDisconnect: 'cancel' })
    const { aborted } = await asked
    await leave()
    await aborted
  })

  test('onDisconnect=cancel leaves a run alone that another reader follows', async () => {
    const resume = Promise.withResolvers<void>()
    lab.model.script({ tokens: ['one ', resume.promise, 'two'] })
    const body = { message: 'Hello', stream: true }
    const first = await openStream(lab.server, execute('?onDisconnect=cancel'), { method: 'POST', body })
    const meta = await first.next()
    const events = `/api/v1/executions/${meta!.data.executionId}/events`
    const second = await openStream(lab.server, events)
    await second.next()
    await second.close()
    resume.resolve()
    expect((await first.rest()).at(-1)).toMatchObject({ event: 'result' })
  })
})

describe('without onDisconnect', () => {
  test('without onDisconnect the end of a connection leaves the run alone if it is a stream', async () => {
    const resume = Promise.withResolvers<void>()
    const asked = script({ tokens: ['one ', resume.promise, 'two'] })
    const body = { message: 'Hello', stream: true }
    const stream = await openStream(lab.server, execute(), { method: 'POST', body })
    await stream.next()
    await asked
    await stream.close()
    resume.resolve()
    await lab.idle()
    expect(await latestRun()).toMatchObject({ status: 'completed', result: 'one two' })
  })

  test('without onDisconnect a lost caller that waits for the answer leaves the run alone', async () => {
    const resume = Promise.withResolvers<void>()
    const asked = script({ tokens: ['one ', resume.promise, 'two'] })
    const leave = giveUp(execute(), { message: 'Hello' })
    await asked
    await leave()
    resume.resolve()
    await lab.idle()
    expect(await latestRun()).toMatchObject({ status: 'completed', result: 'one two' })
  })
})

describe('open streams end within 5 s', () => {
  const endings: Record<string, (lab: Lab, member: Member) => Promise<unknown>> = {
    'when the token is revoked': ({ db, clock }, { tokenId: id }) =>
      db.token.update({ where: { id }, data: { revokedAt: clock.now() } }),
    'when the token is deleted': ({ db }, { tokenId: id }) => db.token.deleteMany({ where: { id } }),
    'when the token expires': async ({ clock }) => clock.advance(60_000),
  }
  for (const [title, end] of Object.entries(endings)) {
    test(`${title}, without a terminal event, and the run continues`, async () => {
      const { resume, member, closed, other, id } = await watched()
      await end(lab, member)
      for (const rest of await closed()) {
        expect(rest).not.toContainEqual(expect.objectContaining({ event: 'result' }))
        expect(rest).not.toContainEqual(expect.objectContaining({ event: 'error' }))
      }
      await expectLetInNoMore(id, member)
      resume()
      expect((await other.rest()).at(-1)).toMatchObject({ event: 'result' })
      expect(await lab.row(id)).toMatchObject({ status: 'completed' })
    })
  }

  // Simulates an acceptance at the very moment of the membership's end, which marks existing runs.
  test('open streams end when the membership is deleted, and an unmarked run is cancelled', async () => {
    const { member, closed, other, id } = await watched()
    const { organizationId, userId } = member
    await lab.db.membership.deleteMany({ where: { organizationId, userId } })
    for (const rest of await closed()) expect(rest).not.toContainEqual(expect.objectContaining({ event: 'result' }))
    await expectLetInNoMore(id, member)
    expect((await other.rest()).at(-1)).toMatchObject({ event: 'error' })
    expect(await lab.row(id)).toMatchObject({ status: 'cancelled' })
  })

  /** Starts a member's runs of two tokens, each with two streams, and another member's stream, which stays open. */
  async function watched() {
    const { promise, resolve: resume } = Promise.withResolvers<void>()
    lab.model.script({ tokens: ['one ', promise, 'two'] })
    const expiresAt = new Date(lab.clock.now().getTime() + 30_000)
    const member = await lab.server.member({ expiresAt })
    const { token } = member
    // The loss of access does not count as a disconnect.
    const body = { message: 'Hello', stream: true, onDisconnect: 'cancel' }
    const streams = [await openStream(lab.server, execute(), { method: 'POST', body, token })]
    const { id } = await latestRun()
    streams.push(await openStream(lab.server, `/api/v1/executions/${id}/events`, { token }))
    const other = await openStream(lab.server, `/api/v1/executions/${id}/events`)
    for (const stream of streams) expect((await stream.next())?.event).toBe('meta')
    let over: unknown[][] = []
    void Promise.all(streams.map((stream) => stream.rest())).then((rests) => {
      over = rests
    })
    const closed = async () => {
      await expect.poll(() => over.length).toBe(2)
      return over
    }
    return { resume, member, closed, other, id }
  }

  async function expectLetInNoMore(id: string, { token }: Member) {
    const again = await request(lab.server, 'GET', `/api/v1/executions/${id}/events`, { token })
    expect([401, 403]).toContain(again.status)
  }
})
