import { afterAll, beforeAll, expect, it } from 'vitest'
import { expectError } from '../support/faces.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer, type TestServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'

let model: ModelServer
let server: TestServer
let owner: Member
let executionId: string
const gate = Promise.withResolvers<void>()

// One run that goes on and on, public to its organization, for all to follow.
beforeAll(async () => {
  model = await startModelServer()
  server = await startServer({ OPENAI_BASE_URL: model.baseUrl, DEFAULT_MODEL: 'compatible/test' })
  owner = await server.member()
  const { token } = owner
  const body = { name: 'Ada', systemPrompt: 'x' }
  const { id } = (await request(server, 'POST', '/api/v1/agents', { body, token })).body
  model.script({ tokens: ['One ', gate.promise, 'two'] })
  const run = { message: 'Hi', background: true }
  executionId = (await request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: run, token })).body.executionId
})
afterAll(async () => {
  gate.resolve()
  await server[Symbol.asyncDispose]()
  await model.close()
})

/** How the rest of a stream ends: with these events, or by a broken connection. */
const restOf = (stream: Awaited<ReturnType<typeof openStream>>) =>
  stream.rest().then(
    (events) => events.map(({ event }) => event),
    () => ['broken off'],
  )

it('an open stream ends soon after its token or membership has, and others go on', async () => {
  const { db } = server.service.deps
  const path = `/api/v1/executions/${executionId}/events`
  const members = await Promise.all(Array.from({ length: 4 }, () => server.member()))
  const [byKey, byRow, byMembership, stays] = members as [Member, Member, Member, Member]
  const streams = await Promise.all(members.map(({ token }) => openStream(server, path, { token })))
  for (const stream of streams) {
    expect((await stream.next())?.event).toBe('meta')
    expect((await stream.next())?.event).toBe('message')
  }

  const ended = streams.slice(0, 3).map(restOf)
  // On this server, by the interface: at once.
  const { status } = await request(server, 'DELETE', `/api/v1/keys/${byKey.tokenId}`, { token: byKey.token })
  expect(status).toBe(200)
  expect(await ended[0]).not.toContain('result')
  // As another process does it, the operator's command line for one.
  await db.token.update({ where: { id: byRow.tokenId }, data: { revokedAt: new Date() } })
  const { organizationId, userId } = byMembership
  await db.membership.delete({ where: { organizationId_userId: { organizationId, userId } } })
  for (const events of await Promise.all(ended)) expect(events).not.toContain('result')

  for (const { token } of [byKey, byRow]) {
    expectError(await request(server, 'GET', path, { token }), 401, 'Unauthorized. Invalid or expired token')
  }
  const answer = await request(server, 'GET', path, { token: byMembership.token })
  expectError(answer, 403, "You don't have permission to access this resource")

  const { execution } = (await request(server, 'GET', path.replace('/events', ''), { token: stays.token })).body
  expect(execution.status).toBe('running')
  gate.resolve()
  expect(await restOf(streams[3]!)).toEqual(['message', 'message', 'result'])
})
