import { describe, expect, it } from 'vitest'
import { createAgent, expectError } from '../support/api.ts'
import type { Reply } from '../support/model-replies.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'
import { use } from '../support/use.ts'

const model = await use(startModelServer())
const server = await use(startServer(model.env))
const agent = await createAgent(server)

type Fields = Record<string, unknown>
type Options = { token?: string; headers?: Record<string, string> }

const post = (path: string, body: Fields, options: Options = {}) =>
  request(server, 'POST', `/api/v1${path}`, { body, ...options })
const open = async (fields: Fields = { agentId: agent }): Promise<string> => (await post('/chats', fields)).body.id
const send = (chat: string, body: Fields, options: Options = {}) => post(`/chats/${chat}/messages`, body, options)

/** Sends a message, and returns the answer of the request. */
async function say(chat: string, message: string, fields: Fields = {}, reply: Reply = {}) {
  model.script({ tokens: [`Re: ${message}`], ...reply })
  const { status, body } = await send(chat, { message, ...fields })
  expect([status, body.result]).toEqual([200, `Re: ${message}`])
  return body
}

const list = async (chat: string, query = '') =>
  (await request(server, 'GET', `/api/v1/chats/${chat}/messages${query}`)).body.messages as Record<string, any>[]
const textsOf = async (chat: string, query = '') => (await list(chat, query)).map(({ content }) => content)
const find = async (chat: string, content: string) =>
  (await list(chat, '?branch=all')).find((message) => message.content === content)!.id as string

/** The messages of the last request to the model, without the system prompt. */
const prompt = () =>
  model.requests
    .at(-1)!
    .body.messages.slice(1)
    .map(({ content }) => content)

describe('a message to a chat', () => {
  it('runs the agent of the chat, in its current session', async () => {
    const chat = await open()
    const first = await say(chat, 'One')
    const second = await say(chat, 'Two')
    expect(second).toMatchObject({ chatId: chat, sessionId: first.sessionId, status: 'completed' })
    expect(prompt()).toEqual(['One', 'Re: One', 'Two'])
    const messages = await list(chat)
    expect(messages.map(({ parentId }) => parentId)).toEqual([null, ...messages.slice(0, -1).map(({ id }) => id)])
    expect(new Set(messages.map(({ branch }) => branch))).toEqual(new Set([first.sessionId]))
  })

  it('can be streamed, or run in the background', async () => {
    const chat = await open()
    model.script({ tokens: ['Hel', 'lo'] })
    const body = { message: 'Hi', stream: true }
    await using stream = await openStream(server, `/api/v1/chats/${chat}/messages`, { method: 'POST', body })
    const all = await stream.rest()
    expect(stream.headers.get('x-execution-id')).toBe(all[0]?.data.executionId)
    expect(all.map(({ event }) => event)).toEqual(['meta', 'message', 'message', 'message', 'result'])
    const { status, body: accepted } = await send(chat, { message: 'Hi', background: true })
    expect([status, accepted.chatId]).toEqual([200, chat])
  })

  it('has one effect for an Idempotency-Key', async () => {
    const chat = await open()
    const headers = { 'Idempotency-Key': crypto.randomUUID() }
    const first = await send(chat, { message: 'Once' }, { headers })
    const again = await send(chat, { message: 'Once' }, { headers })
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expect(again.body).toEqual(first.body)
    expectError(
      await send(chat, { message: 'Twice' }, { headers }),
      422,
      'Idempotency-Key was used with another request',
    )
    expect(await list(chat)).toHaveLength(2)
  })

  it('goes to the agent of the latest session in a chat that was opened without an agent', async () => {
    const chat = await open({ title: 'Empty' })
    expectError(await send(chat, { message: 'Hi' }), 400, 'Chat has no agent')
    await post(`/agents/${agent}/execute`, { message: 'Hi', chatId: chat })
    await say(chat, 'Again')
    expect(await list(chat)).toHaveLength(4)
  })

  it.each([
    [{}, 400, 'Missing required field: message'],
    [{ message: ' ' }, 400, 'Missing required field: message'],
    [{ message: 'Hi', regenerate: true }, 400, 'Invalid value for field: message. Expected none beside regenerate'],
    [{ regenerate: true }, 400, 'Chat has no message to answer again'],
    [{ message: 'Hi', replaces: 'unknown' }, 404, 'Message not found'],
    [{ message: 'Hi', sessionId: 'unknown' }, 404, 'Session not found'],
  ])('is refused as %j', async (body, status, message) => {
    const chat = await open()
    expectError(await send(chat, body), status, message)
    expect(await list(chat)).toEqual([])
  })
})

describe('a branch', () => {
  it('cannot be replaced by another one in a chat of 2,000 sessions and branches', async () => {
    const chat = await open()
    const { sessionId } = await say(chat, 'One')
    const { session } = server.service.deps.db
    const { activeExecutionId: _, ...row } = await session.findUniqueOrThrow({ where: { id: sessionId } })
    const data = Array.from({ length: 1998 }, (_, index) => ({ ...row, id: `${sessionId}-${index}` }))
    await session.createMany({ data })
    await say(chat, 'Uno', { replaces: await find(chat, 'One') })
    const refused = await send(chat, { message: 'Eins', replaces: await find(chat, 'Uno') })
    expectError(refused, 409, 'Chat has too many branches')
  })

  it('replaces a message and everything after it, and changes no existing message', async () => {
    const chat = await open()
    const { sessionId } = await say(chat, 'One')
    await say(chat, 'Two')
    await say(chat, 'Three')
    const before = await list(chat)
    const edited = await say(chat, 'Zwei', { replaces: await find(chat, 'Two') })
    expect(edited.sessionId).not.toBe(sessionId)
    expect(prompt()).toEqual(['One', 'Re: One', 'Zwei'])
    expect(await textsOf(chat)).toEqual(['One', 'Re: One', 'Zwei', 'Re: Zwei'])
    expect(await list(chat, `?branch=${sessionId}`)).toEqual(before)
    expect(await textsOf(chat, '?branch=all')).toEqual([...before.map(({ content }) => content), 'Zwei', 'Re: Zwei'])
    const [, answer, question] = await list(chat)
    expect(question).toMatchObject({ parentId: answer!.id, branch: edited.sessionId })
    expect(answer!.branch).toBe(sessionId)
    const { body } = await request(server, 'GET', `/api/v1/chats/${chat}`)
    expect(body.chat).toMatchObject({ messageCount: 4, sessionId: edited.sessionId, lastMessage: 'Re: Zwei' })
  })

  it('is continued by the chat until another branch is continued', async () => {
    const chat = await open()
    const { sessionId } = await say(chat, 'One')
    await say(chat, 'Uno', { replaces: await find(chat, 'One') })
    expect(prompt()).toEqual(['Uno'])
    await say(chat, 'Due')
    expect(prompt()).toEqual(['Uno', 'Re: Uno', 'Due'])
    await say(chat, 'Two', { sessionId })
    expect(prompt()).toEqual(['One', 'Re: One', 'Two'])
    expect(await textsOf(chat)).toEqual(['One', 'Re: One', 'Two', 'Re: Two'])
    model.script({ tokens: ['Re: Three'] })
    await post(`/agents/${agent}/execute`, { message: 'Three', chatId: chat })
    expect(prompt()).toEqual(['One', 'Re: One', 'Two', 'Re: Two', 'Three'])
  })

  it('answers the last message again, with its attachments and options', async () => {
    const chat = await open()
    await say(chat, 'One')
    await say(chat, 'Two', { model: 'compatible/other' })
    model.script({ tokens: ['Better'] })
    const { body } = await send(chat, { regenerate: true })
    expect(body.result).toBe('Better')
    expect(prompt()).toEqual(['One', 'Re: One', 'Two'])
    expect(model.requests.at(-1)).toMatchObject({ body: { model: 'other' } })
    expect(await textsOf(chat)).toEqual(['One', 'Re: One', 'Two', 'Better'])
    model.script({ tokens: ['First'] })
    await send(chat, { regenerate: true, replaces: await find(chat, 'One') })
    expect(await textsOf(chat)).toEqual(['One', 'First'])
  })

  it('starts behind a branch, and behind a branch of that one', async () => {
    const chat = await open()
    for (const text of ['1', '2', '3']) await say(chat, text)
    await say(chat, '2b', { replaces: await find(chat, '2') })
    await say(chat, '3b')
    await say(chat, '3c', { replaces: await find(chat, '3b') })
    await say(chat, '4c')
    await say(chat, '2d', { replaces: await find(chat, '2b') })
    expect(await textsOf(chat)).toEqual(['1', 'Re: 1', '2d', 'Re: 2d'])
    await say(chat, '4d', { replaces: await find(chat, '4c') })
    expect(prompt()).toEqual(['1', 'Re: 1', '2b', 'Re: 2b', '3c', 'Re: 3c', '4d'])
    const messages = await list(chat)
    expect(messages.map(({ content }) => content)).toEqual([...prompt(), 'Re: 4d'])
    expect(messages.map(({ parentId }) => parentId)).toEqual([null, ...messages.slice(0, -1).map(({ id }) => id)])
    const pages: string[] = []
    for (let cursor: string | null = ''; cursor !== null; ) {
      const path: string = `/api/v1/chats/${chat}/messages?limit=3${cursor && `&cursor=${cursor}`}`
      const { body } = await request(server, 'GET', path)
      pages.push(...body.messages.map(({ id, parentId }: Record<string, string>) => `${id} ${parentId}`))
      cursor = body.nextCursor
    }
    expect(pages).toEqual(messages.map(({ id, parentId }) => `${id} ${parentId}`))
  })

  it('does not wait for the run that it replaces, unless the request asks for it', async () => {
    const chat = await open()
    const gate = Promise.withResolvers<void>()
    model.script({ tokens: ['Slow', gate.promise, ' answer'] })
    const asked = model.request(model.requests.length)
    const { body: slow } = await send(chat, { message: 'One', background: true })
    // Otherwise another run would get the scripted answer.
    await asked
    const one = await find(chat, 'One')
    expectError(await send(chat, { message: 'Uno', replaces: one, onBusy: 'reject' }), 409, 'Session is busy')
    await say(chat, 'Uno', { replaces: one })
    await say(chat, 'Eins', { replaces: one, onBusy: 'interrupt' })
    gate.resolve()
    const { body } = await request(server, 'GET', `/api/v1/executions/${slow.executionId}`)
    expect(body.execution.status).toBe('cancelled')
    expect(await textsOf(chat)).toEqual(['Eins', 'Re: Eins'])
  })

  it('replaces only user messages of the chat', async () => {
    const [chat, other] = [await open(), await open()]
    await say(chat, 'One')
    await say(other, 'Other')
    const body = { message: 'Hi', replaces: await find(chat, 'Re: One') }
    expectError(await send(chat, body), 400, 'Invalid value for field: replaces. Expected the id of a user message')
    expectError(await send(chat, { ...body, replaces: await find(other, 'Other') }), 404, 'Message not found')
    expectError(await request(server, 'GET', `/api/v1/chats/${chat}/messages?branch=unknown`), 404, 'Session not found')
  })

  it("a branch from other users' messages needs the scope to read them, as continuing does", async () => {
    const chat = await open()
    await say(chat, 'One')
    const replaces = await find(chat, 'One')
    const { token } = await server.member({ scopes: ['agents:execute'] })
    expect((await send(chat, { message: 'Hi', replaces }, { token })).status).toBe(403)
    expect((await send(chat, { regenerate: true }, { token })).status).toBe(403)
    const reader = await server.member({ scopes: ['agents:execute', 'chats:read'] })
    expect((await send(chat, { message: 'Hi', replaces }, reader)).status).toBe(200)
  })

  it('stays closed to other users if its session is closed to them', async () => {
    const owner = await server.member()
    const body = { name: 'Eve', systemPrompt: 'You are Eve.', visibility: 'private' }
    const { id } = (await post('/agents', body, owner)).body
    const { chatId, sessionId } = (await post(`/agents/${id}/execute`, { message: 'Secret' }, owner)).body
    await request(server, 'PATCH', `/api/v1/agents/${id}`, { body: { visibility: 'organization' }, ...owner })
    const again = (await send(chatId, { regenerate: true, sessionId }, owner)).body
    const row = await server.service.deps.db.session.findUnique({ where: { id: again.sessionId } })
    expect(row).toMatchObject({ rootSessionId: sessionId, wasPrivate: true })
    expectError(await send(chatId, { message: 'Hi' }), 404, 'Chat not found')
  })

  it('a thousand levels deep takes as many statements as one', async () => {
    const chat = await open()
    const { sessionId } = await say(chat, 'Deep')
    const { db } = server.service.deps
    const root = await db.session.findUniqueOrThrow({ where: { id: sessionId } })
    const run = await db.execution.findFirstOrThrow({ where: { sessionId } })
    const [question] = await db.message.findMany({ where: { sessionId }, orderBy: { position: 'asc' } })
    const count = async () => {
      const answered = await server.statementsOf(async () => say(chat, 'Next'))
      const listed = await server.statementsOf(async () => list(chat))
      return [answered.length, listed.length]
    }
    await db.chat.update({ where: { id: chat }, data: { isBranched: true } })
    const idOf = (level: number) => (level === 1 ? sessionId : `${sessionId}x${level}`)
    /** Branches of branches, each with a question that replaces the answer to the one before. */
    const deepen = async (from: number, to: number) => {
      const levels = Array.from({ length: to - from + 1 }, (_, index) => from + index)
      await grow(levels)
      await db.session.update({ where: { id: sessionId }, data: { activeBranchId: idOf(to) } })
      return count()
    }
    const grow = async (levels: number[]) => {
      await db.session.createMany({
        data: levels.map((level) => ({
          ...root,
          id: idOf(level),
          rootSessionId: sessionId,
          parentSessionId: idOf(level - 1),
          parentPosition: level * 2 - 2,
          lastQueueSeq: level,
          messageCount: 1,
          activeBranchId: null,
        })),
      })
      await db.execution.createMany({
        data: levels.map((level) => ({
          ...run,
          id: `${run.id}x${level}`,
          rootExecutionId: `${run.id}x${level}`,
          sessionId: idOf(level),
          queueSeq: level,
        })) as never,
      })
      await db.message.createMany({
        data: levels.map((level) => ({
          ...question!,
          id: `${question!.id}x${level}`,
          sessionId: idOf(level),
          executionId: `${run.id}x${level}`,
          position: level * 2 - 1,
          content: `Level ${level}`,
          createdAt: new Date(),
        })) as never,
      })
    }
    const [sent, listed] = await deepen(2, 4)
    const deep = await deepen(5, 1_000)
    expect(deep[1]).toBe(listed)
    // The number of transactions for the events of a run depends on time.
    expect(deep[0]).toBeLessThan(sent! + 6)
    const messages = await list(chat)
    expect(messages).toHaveLength(1_000)
    expect(messages.slice(0, 4).map(({ content }) => content)).toEqual(['Deep', 'Re: Deep', 'Level 2', 'Level 3'])
    expect(prompt().slice(-3)).toEqual(['Level 1000', '[The turn ended here, without an answer]', 'Next'])
  })
})

describe('a rerun', () => {
  it('answers as execute does, in a branch that replaces the run', async () => {
    const chat = await open()
    await say(chat, 'One')
    const { executionId } = await say(chat, 'Two')
    model.script({ tokens: ['Once ', 'more'] })
    const { status, body } = await post(`/executions/${executionId}/rerun`, {})
    expect([status, body.result, body.chatId]).toEqual([200, 'Once more', chat])
    expect(body.executionId).not.toBe(executionId)
    expect(prompt()).toEqual(['One', 'Re: One', 'Two'])
    expect(await textsOf(chat)).toEqual(['One', 'Re: One', 'Two', 'Once more'])
    const stream = await openStream(server, `/api/v1/executions/${executionId}/rerun`, {
      method: 'POST',
      body: { stream: true },
    })
    expect((await stream.rest()).at(-1)?.event).toBe('result')
  })

  it('is for callers who can read the run, in an existing chat', async () => {
    const chat = await open()
    const { executionId } = await say(chat, 'One')
    const { token } = await server.member({ organization: 'Other' })
    expectError(await post(`/executions/${executionId}/rerun`, {}, { token }), 404, 'Execution not found')
    await request(server, 'DELETE', `/api/v1/chats/${chat}`)
    expectError(await post(`/executions/${executionId}/rerun`, {}), 404, 'Chat not found')
  })
})
