import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { violations, watchTransitions } from '../engine/invariants.ts'
import { createMcp } from '../engine/tool-lab.ts'
import { createSubject, executePath, type Subject, settled, until } from '../soak/service.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import type { Reply } from '../support/model-replies.ts'
import { request } from '../support/rest.ts'
import { openStream, type StreamEvent } from '../support/sse.ts'
import { use } from '../support/use.ts'

// One real process, which the tests kill and restart one after the other.
const subject: Subject = await use(createSubject({ ALLOW_PRIVATE_NETWORK: 'true' }))

/** A client that reconnects with its last event id after each cut. */
async function follow(subject: Subject, seen: StreamEvent[], enough: () => boolean): Promise<void> {
  const { executionId } = seen[0]!.data
  const headers = { 'Last-Event-ID': String(seen.at(-1)!.id) }
  const stream = await openStream(subject, `/api/v1/executions/${executionId}/events`, { headers })
  while (!enough()) {
    const event = await stream.next()
    if (!event) return
    seen.push(event)
  }
  await stream.close()
}

const textOf = (events: readonly StreamEvent[]): string =>
  events.map(({ data }) => (data.messageType === 'stream_event' ? data.delta.text : '')).join('')

test('a run that is killed at every step completes, and makes each of its calls once', async () => {
  await using mcp = await startMcpServer()
  const mcpInstanceIds = [await createMcp(subject, mcp.url)]
  await request(subject, 'PATCH', `/api/v1/agents/${subject.agentId}`, { body: { mcpInstanceIds } })
  const { model } = subject
  /** The model's answers by the number of results in the request, each with one more after a kill. */
  const script: Reply[][] = [
    [{ end: 'hang' }, { tokens: 'First. ', toolCalls: [{ id: 'a', name: 'echo', input: { text: 'one' } }] }],
    [{ toolCalls: [{ id: 'b', name: 'wait', input: {} }] }],
    [{ end: 'hang' }, { toolCalls: [{ id: 'c', name: 'echo', input: { text: 'three' } }] }],
    [{ tokens: ['Not ', 'to ', 'the '], end: 'hang' }, { tokens: ['All ', 'is ', 'done.'] }],
  ]
  model.fallback = ({ body }) => script[body.messages.filter(({ role }) => role === 'tool').length]!.shift()!
  const again = async () => {
    await subject.kill()
    await subject.start()
  }
  mcp.hold = new Promise(() => {})

  const begun = await openStream(subject, executePath(subject), {
    method: 'POST',
    body: { message: 'Hello', stream: true },
  })
  const seen = [(await begun.next())!]
  await model.request(0)
  await again()
  await until('the call is in flight', () => mcp.calls.some(({ tool }) => tool === 'wait'))
  await follow(subject, seen, () => seen.at(-1)!.data.content?.[0]?.name === 'wait')
  await again()
  await until('the third step', () => script[2]!.length === 1)
  await again()
  await follow(subject, seen, () => textOf(seen).endsWith('Not to the '))
  await again()
  await follow(subject, seen, () => false)

  expect(mcp.calls.map(({ tool }) => tool)).toEqual(['echo', 'wait', 'echo'])
  const results = seen.filter(({ data }) => data.messageType === 'tool_result').map(({ data }) => data)
  expect(results).toMatchObject([
    { toolUseId: 'a', content: 'one', isError: false },
    { toolUseId: 'b', isError: true, content: expect.stringContaining('unknown: the server restarted') },
    { toolUseId: 'c', content: 'three', isError: false },
  ])
  expect(model.requests.at(-1)!.body.messages.filter(({ role }) => role === 'tool')).toHaveLength(3)
  const resumed = seen.filter(({ data }) => data.messageType === 'resumed').map(({ data }) => data.step)
  expect(resumed).toEqual([3, 3, 4])
  const anew = seen.findLastIndex(({ data }) => data.messageType === 'resumed')
  expect(textOf(seen.slice(anew))).toBe('All is done.')
  expect(seen.at(-1)!.event).toBe('result')
  for (const [index, { id }] of seen.entries()) expect(id).toBeGreaterThan(seen[index - 1]?.id ?? 0)
  const { executionId, chatId } = seen[0]!.data
  const { execution } = (await request(subject, 'GET', `/api/v1/executions/${executionId}`)).body
  expect(execution).toMatchObject({ status: 'completed', result: 'All is done.', attempt: 5 })
  const { messages } = (await request(subject, 'GET', `/api/v1/chats/${chatId}/messages`)).body
  expect(messages[1].toolCalls.map(({ id }: { id: string }) => id)).toEqual(['a', 'b', 'c'])
  const replay = await openStream(subject, `/api/v1/executions/${executionId}/events`)
  const whole = await replay.rest()
  // Only fragments from the last moment before a crash may be missing.
  const lasting = seen.filter(({ data }) => data.messageType !== 'stream_event')
  expect(whole.filter(({ data }) => data.messageType !== 'stream_event')).toEqual(lasting)
  expect(await violations(subject.db)).toEqual([])
})

test('an approval and a run that waits for a child survive kill -9', async () => {
  await using mcp = await startMcpServer()
  const began = new Date()
  const mcpId = await createMcp(subject, mcp.url, [{ tool: 'echo', mode: 'ask' }])
  const { model } = subject
  const make = async (body: object) => (await request(subject, 'POST', '/api/v1/agents', { body })).body.id
  const sub = await make({ name: 'Sub', systemPrompt: 'You are Sub.', mcpInstanceIds: [mcpId] })
  const boss = await make({ name: 'Boss', systemPrompt: 'You are Boss.', subagentIds: [sub] })
  model.fallback = ({ body }) => {
    const isBoss = body.messages[0]?.content === 'You are Boss.'
    const answer = body.messages.at(-1)
    if (answer?.role === 'tool') return { tokens: `${isBoss ? 'Sub' : 'Echo'}: ${answer.content}` }
    return isBoss
      ? { toolCalls: [{ id: 'd', name: 'delegate_to_sub', input: { message: 'Ask' } }] }
      : { toolCalls: [{ id: 'e', name: 'echo', input: { text: 'one' } }] }
  }
  const body = { message: 'Hello', background: true }
  const { executionId } = (await request(subject, 'POST', `/api/v1/agents/${boss}/execute`, { body })).body
  const pending = async () => (await request(subject, 'GET', '/api/v1/approvals?status=pending')).body.approvals
  await until('the approval', async () => (await pending()).length === 1)
  const [approval] = await pending()
  const begun = await openStream(subject, `/api/v1/executions/${executionId}/events`)
  while ((await begun.next())!.data.messageType !== 'assistant');
  await begun.close()
  await subject.kill()
  await subject.start()
  expect(await pending()).toEqual([approval])
  const child = await subject.db.execution.findUniqueOrThrow({ where: { id: approval.executionId } })
  expect(child).toMatchObject({ status: 'pending', waitingFor: 'approval', parentExecutionId: executionId })
  expect(mcp.calls).toEqual([])
  expect((await request(subject, 'POST', `/api/v1/approvals/${approval.id}/approve`)).status).toBe(200)
  const stream = await openStream(subject, `/api/v1/executions/${executionId}/events`)
  const events = await stream.rest()
  expect(events.at(-1)!.event).toBe('result')
  const kinds = events.map(({ data }) => data.messageType).filter((kind) => kind && kind !== 'stream_event')
  expect(kinds).toEqual(['assistant', 'resumed', 'tool_result', 'assistant'])
  const { execution } = (await request(subject, 'GET', `/api/v1/executions/${executionId}`)).body
  expect(execution).toMatchObject({ status: 'completed', result: 'Sub: Echo: one' })
  expect(mcp.calls).toHaveLength(1)
  expect(await subject.db.execution.count({ where: { createdAt: { gte: began } } })).toBe(2)
  expect(await violations(subject.db)).toEqual([])
})

test('after kill -9 all of 6 delegating runs complete, with each call and event once', async () => {
  await using mcp = await startMcpServer()
  const began = new Date()
  const transitions = await watchTransitions(subject.db)
  const mcpInstanceIds = [await createMcp(subject, mcp.url)]
  const make = async (body: object) => (await request(subject, 'POST', '/api/v1/agents', { body })).body.id
  const sub = await make({ name: 'Sub', systemPrompt: 'You are Sub.', mcpInstanceIds })
  const boss = await make({ name: 'Boss', systemPrompt: 'You are Boss.', mcpInstanceIds, subagentIds: [sub] })
  subject.model.fallback = ({ body: { messages } }) => {
    const step = messages.filter(({ role }) => role === 'tool').length
    const asked = messages.findLast(({ role }) => role === 'user')?.content
    const pause = sleep(Math.random() * 40)
    if (step === 4) return { tokens: [pause, 'All ', 'done.'], delay: 3 }
    const delegates = step === 2 && messages[0]?.content === 'You are Boss.'
    const call = delegates
      ? { name: 'delegate_to_sub', input: { message: `${asked}, below` } }
      : { name: 'echo', input: { text: `${asked}, ${step}` } }
    return { tokens: [pause], toolCalls: [{ id: `call-${step}`, ...call }] }
  }

  /** A run, and its client's events before the server died. */
  const begin = async (message: string) => {
    const body = { message, background: true }
    const { executionId } = (await request(subject, 'POST', `/api/v1/agents/${boss}/execute`, { body })).body
    const seen: StreamEvent[] = []
    const stream = await openStream(subject, `/api/v1/executions/${executionId}/events`)
    const read = async () => {
      for (let event = await stream.next(); event; event = await stream.next()) seen.push(event)
    }
    return { executionId, seen, over: read().catch(() => {}) }
  }
  const runs = await Promise.all([1, 2, 3, 4, 5, 6].map((run) => begin(`${run}`)))
  await sleep(Math.random() * 400)
  await subject.kill()
  await subject.start()
  await settled(subject.db)
  for (const { executionId, seen, over } of runs) {
    await over
    const whole = await (await openStream(subject, `/api/v1/executions/${executionId}/events`)).rest()
    expect(whole.at(-1)!.event).toBe('result')
    const lasting = whole.filter(({ data }) => data.messageType !== 'stream_event')
    const ids = (kind: string, of: (data: any) => unknown) =>
      lasting.filter(({ data }) => data.messageType === kind).map(({ data }) => of(data))
    expect(ids('assistant', ({ step }) => step)).toEqual([1, 2, 3, 4, 5])
    expect(ids('tool_result', ({ toolUseId }) => toolUseId)).toEqual(['call-0', 'call-1', 'call-2', 'call-3'])
    const published = seen.filter(({ data }) => data.messageType !== 'stream_event')
    expect(lasting.slice(0, published.length)).toEqual(published)
  }
  expect(await violations(subject.db)).toEqual([])
  const made = mcp.calls.map(({ input }) => (input as { text: string }).text)
  expect(made.length).toBe(new Set(made).size)
  expect(await subject.db.execution.count({ where: { createdAt: { gte: began } } })).toBe(12)
  expect(await transitions()).toEqual([])
})
