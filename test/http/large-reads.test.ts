import { EventEmitter } from 'node:events'
import type { ServerResponse } from 'node:http'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import type { Actor } from '../../src/auth/actor.ts'
import { createLargeReads } from '../../src/http/large-reads.ts'
import { ok } from '../support/api.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { stalled, unread } from '../support/unread.ts'
import { use } from '../support/use.ts'

const model = await use(startModelServer())
const server = await use(startServer(model.env))
const { ann, ben } = await server.people('ann', 'ben')

const get = (path: string, { token } = ann) => ok(request(server, 'GET', path, { token }))
const post = (path: string, body: object) => ok(request(server, 'POST', path, { token: ann.token, body }))

test('large reads of a token wait for each other, and delay no small or foreign ones', async () => {
  const { id } = await post('/api/v1/agents', { name: 'A', systemPrompt: 'x', visibility: 'organization' })
  const { executionId } = await post(`/api/v1/agents/${id}/execute`, { message: 'Hi' })
  // More than the buffers of a connection, and more than half of the share of a token.
  const result = 'x'.repeat(12_000_000)
  await server.service.deps.db.execution.update({
    where: { id: executionId },
    data: { result, overrides: { instructions: result } },
  })
  const path = `/api/v1/executions/${executionId}`
  const input = encodeURIComponent(JSON.stringify({ id: executionId }))
  const first = await unread(server, { method: 'GET', path }, ann.token)
  await stalled(first.res)

  const arrived: string[] = []
  const whole = async (path: string) => {
    const answer = JSON.stringify(await get(path))
    arrived.push(path)
    return answer.length
  }
  const query = `{ execution(id: "${executionId}") { result } }`
  const asked = async () => {
    const { body } = await request(server, 'POST', '/graphql', { token: ann.token, body: { query } })
    arrived.push(query)
    return JSON.stringify(body).length
  }
  const task = { jsonrpc: '2.0', id: 1, method: 'tasks/get', params: { id: executionId } }
  const ofA2A = async () => {
    const { body } = await request(server, 'POST', `/a2a/agents/${id}`, { token: ann.token, body: task })
    arrived.push('A2A')
    return JSON.stringify(body).length
  }
  const ofOpenAI = `/openai/v1/responses/resp_${executionId}`
  const waiting = [whole(path), whole(`/trpc/executions.get?input=${input}`), asked(), ofA2A(), whole(ofOpenAI)]
  const leaving = await unread(server, { method: 'GET', path }, ann.token)
  for (const _ of Array(5)) await get(`/api/v1/agents/${id}`)
  await get(path, ben)
  expect(arrived).toEqual([])
  leaving.socket.destroy()
  first.socket.destroy()
  for (const length of await Promise.all(waiting)) expect(length).toBeGreaterThan(result.length)
})

test('a large read that waited does not answer a caller whose key was revoked meanwhile', async () => {
  const { id } = await post('/api/v1/agents', { name: 'B', systemPrompt: 'x' })
  const { executionId } = await post(`/api/v1/agents/${id}/execute`, { message: 'Hi' })
  const result = 'x'.repeat(12_000_000)
  await server.service.deps.db.execution.update({ where: { id: executionId }, data: { result } })
  const path = `/api/v1/executions/${executionId}`
  const { id: keyId, token } = await post('/api/v1/keys', { name: 'k' })
  const first = await unread(server, { method: 'GET', path }, token)
  await stalled(first.res)

  const query = `{ execution(id: "${executionId}") { result } }`
  const waiting = [
    request(server, 'GET', path, { token }),
    request(server, 'POST', '/graphql', { token, body: { query } }),
  ]
  for (const _ of Array(5)) await get(`/api/v1/agents/${id}`)
  await ok(request(server, 'DELETE', `/api/v1/keys/${keyId}`, { token: ann.token }))
  first.socket.destroy()
  const answers = await Promise.all(waiting)
  expect(answers.map(({ status }) => status)).toEqual([401, 401])
})

const callerOf = (tokenId: string, organizationId = 'o') => ({ tokenId, userId: 'u', organizationId }) as Actor
/** The access of a caller that has not ended. */
const stays = async () => {}
const createResponse = () => new EventEmitter() as ServerResponse

test('large reads of the tokens of an organization wait in order if there are too many', async () => {
  const reads = createLargeReads({ MAX_UNSENT_BYTES: 1_000_000 })
  const done: string[] = []
  const responses = Array.from({ length: 6 }, createResponse)
  const read = async (index: number, caller: Actor, length: number) => {
    await reads.read(caller, responses[index]!, async () => ({ data: 'x'.repeat(length) }), stays)
    done.push(`${index}`)
  }
  const all = [
    read(0, callerOf('a'), 600_000),
    read(1, callerOf('b'), 500_000),
    read(2, callerOf('c'), 300_000),
    read(3, callerOf('b'), 200_000),
    read(4, callerOf('d', 'other'), 600_000),
    read(5, callerOf('e'), 100),
  ]
  await nextTurn()
  expect(done).toEqual(['0', '4', '5'])
  responses[0]!.emit('close')
  await nextTurn()
  expect(done.slice(3)).toEqual(['1', '2'])
  responses[1]!.emit('close')
  await Promise.all(all)
  expect(done.at(-1)).toBe('3')
})

test('a large read that waits too long is refused with 503, and delays no other', async () => {
  const reads = createLargeReads({ MAX_UNSENT_BYTES: 1_000_000 }, 0, 1)
  const [first, second, third] = Array.from({ length: 3 }, createResponse)
  const read = (res: ServerResponse) =>
    reads.read(callerOf('t'), res, async () => ({ data: 'x'.repeat(300_000) }), stays)
  await read(first!)
  await expect(read(second!)).rejects.toMatchObject({ status: 503, headers: { 'Retry-After': '1' } })
  first!.emit('close')
  await read(third!)
})

test('a large read that fits begins once the read before it has given up', async () => {
  const reads = createLargeReads({ MAX_UNSENT_BYTES: 1_000_000 })
  const [first, leaving, next] = Array.from({ length: 3 }, createResponse)
  const read = (caller: string, res: ServerResponse, length: number) =>
    reads.read(callerOf(caller), res, async () => ({ data: 'x'.repeat(length) }), stays)
  await read('a', first!, 600_000)
  const left = read('b', leaving!, 500_000)
  const small = read('c', next!, 300_000)
  await nextTurn()
  leaving!.emit('close')
  await expect(left).rejects.toThrow()
  expect(await small).toBeDefined()
})

test('a large read that was refused does not let later ones of its token exceed the limit', async () => {
  const reads = createLargeReads({ MAX_UNSENT_BYTES: 1_000_000 }, 0, 1)
  const [first, refused, later, last] = Array.from({ length: 4 }, createResponse)
  const read = (caller: string, res: ServerResponse, length: number) =>
    reads.read(callerOf(caller), res, async () => ({ data: 'x'.repeat(length) }), stays)
  await read('a', first!, 900_000)
  await expect(read('b', refused!, 200_000)).rejects.toMatchObject({ status: 503 })
  first!.emit('close')
  await read('b', later!, 200_000)
  refused!.emit('close')
  await expect(read('b', last!, 200_000)).rejects.toMatchObject({ status: 503 })
})

test('the reads of a batch do not wait for a response that waits for theirs', async () => {
  const reads = createLargeReads({ MAX_UNSENT_BYTES: 1_000_000 })
  const caller = callerOf('t')
  const [first, batch, other] = Array.from({ length: 3 }, createResponse)
  const done: string[] = []
  const read = async (name: string, res: ServerResponse) => {
    await reads.read(caller, res, async () => ({ data: 'x'.repeat(300_000) }), stays)
    done.push(name)
  }
  const all = [read('first', first!), read('one', batch!), read('other', other!), read('two', batch!)]
  await nextTurn()
  expect(done).toEqual(['first'])
  first!.emit('close')
  await nextTurn()
  expect(done).toEqual(['first', 'one', 'two'])
  batch!.emit('close')
  await Promise.all(all)
  expect(done.at(-1)).toBe('other')
})
