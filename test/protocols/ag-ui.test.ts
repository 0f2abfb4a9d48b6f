import { HttpAgent } from '@ag-ui/client'
import { EventSchema } from '@ag-ui/core/schemas'
import { describe, expect, it } from 'vitest'
import { createAgUiWriter } from '../../src/protocols/ag-ui/writer.ts'
import { createPartReader, type Part } from '../../src/protocols/shared/run-parts.ts'
import { call, startToolLab } from '../engine/tool-lab.ts'
import { request } from '../support/rest.ts'
import { use } from '../support/use.ts'

const toolLab = await use(startToolLab())
const agent: string = (await toolLab.agent()).id

const server = () => toolLab.lab.server
const model = () => toolLab.lab.model

const connect = (id = agent, token = server().token) =>
  new HttpAgent({
    url: `${server().url}/api/v1/agents/${id}/ag-ui`,
    headers: { Authorization: `Bearer ${token}` },
    threadId: crypto.randomUUID(),
  })

type Event = { type: string } & Record<string, unknown>
type Input = Parameters<HttpAgent['runAgent']>[0]

/** Runs an agent. Returns the events, each of which must fit the protocol's schema. */
async function run(client: HttpAgent, text: string | null, input: Input = {}): Promise<Event[]> {
  if (text !== null) client.addMessage({ id: crypto.randomUUID(), role: 'user', content: text })
  const events: Event[] = []
  await client.runAgent(input, { onEvent: ({ event }) => void events.push(event as Event) })
  for (const event of events) expect(EventSchema.safeParse(event).error).toBeUndefined()
  return events
}

const texts = ({ messages }: HttpAgent) =>
  messages.flatMap(({ role, content }) => (typeof content === 'string' && content ? `${role}: ${content}` : []))

describe('a client of AG-UI', () => {
  it('runs an agent, and continues one thread', async () => {
    const client = connect()
    model().script({ tokens: ['Good ', 'day.'] }, { tokens: 'Good night.' })
    const events = await run(client, 'Hello')
    expect(events.map(({ type }) => type)).toEqual([
      ...['RUN_STARTED', 'STEP_STARTED', 'TEXT_MESSAGE_START', 'TEXT_MESSAGE_CONTENT', 'TEXT_MESSAGE_CONTENT'],
      ...['TEXT_MESSAGE_END', 'STEP_FINISHED', 'RUN_FINISHED'],
    ])
    await run(client, 'Bye')
    expect(texts(client)).toEqual(['user: Hello', 'assistant: Good day.', 'user: Bye', 'assistant: Good night.'])
    const sessions = await server().service.deps.db.conversationName.findMany({ where: { name: client.threadId } })
    expect(sessions).toHaveLength(1)
    const { sessionId } = sessions[0]!
    expect(await server().service.deps.db.execution.count({ where: { sessionId } })).toBe(2)
  })

  it('may send the messages of its page, and files in the form of earlier versions', async () => {
    const data = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
    const file = { type: 'binary', mimeType: 'image/png', data, filename: 'dot.png' }
    const messages = [
      { id: '1', role: 'user', content: 'One' },
      { id: '2', role: 'activity', activityType: 'PLAN', content: { steps: [1] } },
      { id: '3', role: 'reasoning', content: 'Hm.' },
      { id: '4', role: 'assistant', content: 'Yes' },
      { id: '5', role: 'user', content: [{ type: 'text', text: 'Look' }, file] },
    ]
    const body = { threadId: crypto.randomUUID(), runId: '1', messages, tools: [], context: [] }
    const answer = await request(server(), 'POST', `/api/v1/agents/${agent}/ag-ui`, { body })
    expect(answer.status).toBe(200)
    const [, one, yes, look] = model().requests.at(-1)!.body.messages
    expect([one?.content, yes?.content]).toEqual(['One', 'Yes'])
    expect(JSON.stringify(look)).toContain(`data:image/png;base64,${data}`)
  })

  it('gets reasoning, tool calls and their results', async () => {
    const client = connect()
    model().script(
      { tokens: ['<think>', 'Hm.', '</think>', 'Wait.'], toolCalls: [call('echo', { text: 'x' })] },
      { tokens: 'Done.' },
    )
    const types = (await run(client, 'Hello')).map(({ type }) => type)
    expect(types).toEqual(expect.arrayContaining(['REASONING_MESSAGE_CONTENT', 'TOOL_CALL_ARGS', 'TOOL_CALL_RESULT']))
    expect(texts(client).at(-1)).toBe('assistant: Done.')
  })

  it.each([true, false])(
    'is interrupted by an approval, and continues with the decision (approved: %s)',
    async (approved) => {
      const client = connect((await toolLab.agent({}, [{ tool: 'echo', mode: 'ask' }])).id)
      model().script({ tokens: 'May I?', toolCalls: [call('echo', { text: 'x' })] }, { tokens: 'Done.' })
      const events = await run(client, 'Hello')
      const { outcome } = events.at(-1) as unknown as { outcome: { type: string; interrupts: { id: string }[] } }
      expect(outcome).toMatchObject({ type: 'interrupt', interrupts: [{ reason: 'approval' }] })
      const payload = { approved, reason: 'So be it', ...(approved && { input: { text: 'y' } }) }
      const resume = [{ interruptId: outcome.interrupts[0]!.id, status: 'resolved' as const, payload }]
      const rest = await run(client, null, { resume })
      expect(rest.at(-1)).toMatchObject({ type: 'RUN_FINISHED', outcome: { type: 'success' } })
      const result = rest.find(({ type }) => type === 'TOOL_CALL_RESULT')
      expect(result?.content).toContain(approved ? '{"text":"y"}' : 'So be it')
      expect(texts(client).at(-1)).toBe('assistant: Done.')
    },
  )

  it('gets the calls of a step without text as a message of their own', async () => {
    const client = connect()
    model().script(
      { tokens: 'Wait.', toolCalls: [call('echo', { text: 'x' })] },
      { toolCalls: [call('echo', { text: 'y' })] },
      { tokens: 'Done.' },
    )
    const events = await run(client, 'Hello')
    const parents = events.flatMap(({ type, parentMessageId }) => (type === 'TOOL_CALL_START' ? [parentMessageId] : []))
    expect(new Set(parents).size).toBe(2)
    const roles = client.messages.map(({ role }) => role)
    expect(roles).toEqual(['user', 'assistant', 'tool', 'assistant', 'tool', 'assistant'])
  })

  it('decides no approval with a token that lacks the scope', async () => {
    const { id } = await toolLab.agent({}, [{ tool: 'echo', mode: 'ask' }])
    model().script({ toolCalls: [call('echo', { text: 'x' })] })
    const { outcome } = (await run(connect(id), 'Hello')).at(-1) as unknown as {
      outcome: { interrupts: { id: string }[] }
    }
    const resume = [{ interruptId: outcome.interrupts[0]!.id, status: 'resolved', payload: { approved: true } }]
    const body = { threadId: 't', runId: 'r', messages: [], tools: [], context: [], resume }
    const weak = await server().member({ role: 'owner', scopes: ['agents:execute', 'executions:read', 'agents:read'] })
    const answer = await request(server(), 'POST', `/api/v1/agents/${id}/ag-ui`, { body, token: weak.token })
    expect(answer).toMatchObject({ status: 403, body: { code: 'insufficient_scope' } })
  })

  it('is interrupted again by those of several approvals that it has not decided', async () => {
    const { id } = await toolLab.agent({}, [{ tool: 'echo', mode: 'ask' }])
    const calls = ['one', 'two'].map((text) => call('echo', { text }, text))
    model().script({ toolCalls: calls }, { tokens: 'Done.' })
    const given = { threadId: crypto.randomUUID(), runId: 'run', state: {}, tools: [], context: [], forwardedProps: {} }
    // The protocol's own client sends no such request.
    const post = async (body: object): Promise<Event[]> => {
      const path = `/api/v1/agents/${id}/ag-ui`
      const sent = { body: { ...given, ...body }, token: server().token }
      const { body: text } = await request(server(), 'POST', path, sent)
      return [...text.matchAll(/^data: (.*)$/gm)].map(([, data = '']) => JSON.parse(data))
    }
    const askedIn = (events: Event[]) => (events.at(-1)!.outcome as { interrupts: { id: string }[] }).interrupts
    const decide = ([one]: { id: string }[]) =>
      post({ messages: [], resume: [{ interruptId: one!.id, status: 'resolved', payload: { approved: true } }] })
    const first = askedIn(await post({ messages: [{ id: '1', role: 'user', content: 'Hello' }] }))
    const second = askedIn(await decide(first))
    expect(second).toEqual(first.slice(1))
    const rest = await decide(second)
    expect(rest.at(-1)).toMatchObject({ type: 'RUN_FINISHED', outcome: { type: 'success' } })
    expect(rest.filter(({ type }) => type === 'TOOL_CALL_RESULT')).toHaveLength(2)
  })

  it('decides the approvals of one run at a time', async () => {
    const { id } = await toolLab.agent({}, [{ tool: 'echo', mode: 'ask' }])
    const interrupts: { id: string }[] = []
    for (const text of ['one', 'two']) {
      model().script({ toolCalls: [call('echo', { text })] })
      const { outcome } = (await run(connect(id), text)).at(-1) as unknown as {
        outcome: { interrupts: [{ id: string }] }
      }
      interrupts.push(outcome.interrupts[0])
    }
    const payload = { approved: true }
    const resume = interrupts.map(({ id: interruptId }) => ({ interruptId, status: 'resolved', payload }))
    const body = { threadId: 't', runId: 'r', messages: [], tools: [], context: [], resume }
    const answer = await request(server(), 'POST', `/api/v1/agents/${id}/ag-ui`, { body })
    expect(answer).toMatchObject({ status: 400, body: { message: 'The decisions belong to several runs' } })
    const pending = await request(server(), 'GET', '/api/v1/approvals?status=pending')
    const ids = pending.body.approvals.map((approval: { id: string }) => approval.id)
    expect(ids).toEqual(expect.arrayContaining(interrupts.map((one) => one.id)))
  })

  it('calls its own tools', async () => {
    const client = connect()
    const tools = [{ name: 'weather', description: 'Weather', parameters: { type: 'object', properties: {} } }]
    model().script({ toolCalls: [call('client__weather', { city: 'Rome' })] }, { tokens: 'Warm.' })
    const events = await run(client, 'Hello', { tools })
    // The version of CopilotKit knows no other key.
    expect(events.at(-1)?.outcome).toEqual({ type: 'success' })
    const start = events.find(({ type }) => type === 'TOOL_CALL_START')
    expect(start).toMatchObject({ toolCallName: 'weather' })
    const toolCallId = String(start?.toolCallId)
    client.addMessage({ id: crypto.randomUUID(), role: 'tool', toolCallId, content: '21 degrees' })
    await run(client, null, { tools })
    expect(client.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'assistant'])
    expect(texts(client).at(-1)).toBe('assistant: Warm.')
    expect(model().requests.at(-1)?.body.messages.at(-1)).toMatchObject({ role: 'tool', content: '21 degrees' })
  })

  it('may send the results of its own tools with the decision about another call', async () => {
    const client = connect((await toolLab.agent({}, [{ tool: 'echo', mode: 'ask' }])).id)
    const tools = [{ name: 'weather', description: 'Weather', parameters: { type: 'object', properties: {} } }]
    const calls = [call('client__weather', { city: 'Rome' }), call('echo', { text: 'x' })]
    model().script({ toolCalls: calls }, { tokens: 'Warm.' })
    const events = await run(client, 'Hello', { tools })
    const { outcome } = events.at(-1) as unknown as { outcome: { interrupts: { id: string }[] } }
    const { toolCallId } = events.find(({ toolCallName }) => toolCallName === 'weather') as unknown as {
      toolCallId: string
    }
    client.addMessage({ id: crypto.randomUUID(), role: 'tool', toolCallId, content: '21 degrees' })
    const payload = { approved: true }
    const resume = [{ interruptId: outcome.interrupts[0]!.id, status: 'resolved' as const, payload }]
    const rest = await run(client, null, { tools, resume })
    expect(rest.at(-1)).toMatchObject({ type: 'RUN_FINISHED', outcome: { type: 'success' } })
    expect(texts(client).at(-1)).toBe('assistant: Warm.')
    expect(model().requests.at(-1)?.body.messages.slice(-2)).toMatchObject([
      { content: '21 degrees' },
      { content: 'x' },
    ])
  })

  it('gets the context of its page to the agent, and the reason of a failure', async () => {
    const client = connect()
    model().script({ error: { status: 400, message: 'No such thing' } })
    const events = await run(client, 'Hello', { context: [{ description: 'Page', value: 'Orders' }] })
    expect(events.at(-1)).toMatchObject({ type: 'RUN_ERROR', message: expect.stringContaining('No such thing') })
    expect(model().requests.at(-1)?.body.messages[0]?.content).toMatch(/Page: Orders$/)
  })

  it.each([
    ['no message', { messages: [] }, 400],
    ['no thread', { threadId: '' }, 400],
    ['an unknown interrupt', { resume: [{ interruptId: 'x', status: 'cancelled' }] }, 404],
    ['a decision without a word', { resume: [{ interruptId: 'x', status: 'resolved' }] }, 400],
  ])('is refused with %s', async (_, fields, status) => {
    const body = { threadId: 't', runId: 'r', messages: [], tools: [], context: [], ...fields }
    const response = await fetch(`${server().url}/api/v1/agents/${agent}/ag-ui`, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { authorization: `Bearer ${server().token}`, 'content-type': 'application/json' },
    })
    expect(response.status).toBe(status)
    expect(await response.json()).toMatchObject({ error: true, statusCode: status })
  })
})

describe('the writer of events', () => {
  it('withdraws the messages of a step that starts again', () => {
    const at = new Date()
    const read = createPartReader({ id: 'exec-1-a', overrides: {} })
    const user = { id: '1', role: 'user', content: 'Hi' }
    const writer = createAgUiWriter({ threadId: 't', runId: 'r', messages: [user] }, 'exec-1-a')
    const delta = (text: string) => ({
      seq: 2,
      at,
      event: 'message' as const,
      data: { messageType: 'stream_event' as const, step: 1, delta: { type: 'text_delta' as const, text } },
    })
    const resumed = { seq: 3, at, event: 'message' as const, data: { messageType: 'resumed' as const, step: 1 } }
    const events = [delta('Voi'), resumed, delta('Anew')]
      .flatMap(read)
      .flatMap((part) => writer.write({ ...part, seq: 1 } as Part).events)
    for (const event of events) expect(EventSchema.safeParse(event).error).toBeUndefined()
    expect(events.find(({ type }) => type === 'MESSAGES_SNAPSHOT')).toMatchObject({ messages: [user] })
    const ids = events.flatMap(({ type, messageId }) => (type === 'TEXT_MESSAGE_START' ? messageId : []))
    expect(new Set(ids).size).toBe(2)
  })
})
