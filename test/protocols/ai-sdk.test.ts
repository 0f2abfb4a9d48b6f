import {
  AbstractChat,
  type ChatState,
  type ChatStatus,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  readUIMessageStream,
  type UIMessage,
  type UIMessageChunk,
} from 'ai'
import { describe, expect, it } from 'vitest'
import { createChunkWriter } from '../../src/protocols/ai-sdk/writer.ts'
import { createPartReader } from '../../src/protocols/shared/run-parts.ts'
import type { MessageData } from '../../src/wire.ts'
import { call, startToolLab } from '../engine/tool-lab.ts'
import { request } from '../support/rest.ts'
import { use } from '../support/use.ts'

const toolLab = await use(startToolLab())
const agent: string = (await toolLab.agent()).id

const server = () => toolLab.lab.server
const model = () => toolLab.lab.model

const transportTo = (id = agent, body: object = {}, token = server().token) =>
  new DefaultChatTransport({
    api: `${server().url}/api/v1/agents/${id}/chat`,
    headers: { authorization: `Bearer ${token}` },
    body,
  })

/** A chat as `useChat` manages it, without React. */
class TestChat extends AbstractChat<UIMessage> {
  constructor(init: Omit<ConstructorParameters<typeof AbstractChat<UIMessage>>[0], 'state'>) {
    super({ ...init, state: createState() })
  }
}

function createState(): ChatState<UIMessage> {
  const state: ChatState<UIMessage> = {
    messages: [],
    status: 'ready' as ChatStatus,
    error: undefined,
    pushMessage(message) {
      state.messages = [...state.messages, message]
    },
    popMessage() {
      state.messages = state.messages.slice(0, -1)
    },
    replaceMessage(index, message) {
      state.messages = state.messages.with(index, structuredClone(message))
    },
    snapshot: (value) => structuredClone(value),
  }
  return state
}

const messageOf = (text: string) => ({ id: 'm', role: 'user', parts: [{ type: 'text', text }] })

const startChat = (id: string, options: object = {}, to = agent, body = {}) =>
  new TestChat({ id, transport: transportTo(to, body), ...options })

/** The visible parts of a message, without those for programs. */
type Metadata = { executionId: string; chatId: string; sessionId: string }

const metadataOf = ({ lastMessage }: TestChat) => (lastMessage?.metadata ?? {}) as Metadata

const textsOf = (message: UIMessage | undefined) =>
  message?.parts.flatMap((part) => (part.type === 'text' ? part.text : part.type === 'step-start' ? [] : part.type))

const replayed = async (id: string) => {
  const stream = await transportTo().reconnectToStream({ chatId: id })
  return stream && (await Array.fromAsync(readUIMessageStream({ stream }))).at(-1)
}

const executions = async () =>
  (await request(server(), 'GET', '/api/v1/executions?limit=2', { token: server().token })).body.executions

describe('a chat of the AI SDK', () => {
  it('streams an answer and continues one session', async () => {
    const chat = startChat(crypto.randomUUID())
    model().script({ tokens: ['Good ', 'day.'] }, { tokens: 'Good night.' })
    await chat.sendMessage({ text: 'Hello' })
    expect(chat.error).toBeUndefined()
    expect(textsOf(chat.lastMessage)).toEqual(['Good day.'])
    const { executionId, sessionId } = metadataOf(chat)
    expect(chat.lastMessage?.id).toBe(executionId)
    await chat.sendMessage({ text: 'Bye' })
    expect(textsOf(chat.lastMessage)).toEqual(['Good night.'])
    expect(chat.lastMessage?.metadata).toMatchObject({ sessionId, stopReason: 'end_turn' })
    expect(chat.messages).toHaveLength(4)
  })

  it('answers again in a branch', async () => {
    const chat = startChat(crypto.randomUUID())
    model().script({ tokens: 'First.' }, { tokens: 'Second.' })
    await chat.sendMessage({ text: 'Hello' })
    const before = metadataOf(chat)
    await chat.regenerate()
    expect(chat.messages.map(textsOf)).toEqual([['Hello'], ['Second.']])
    const after = metadataOf(chat)
    expect(after.chatId).toBe(before.chatId)
    expect(after.sessionId).not.toBe(before.sessionId)
  })

  it('shows reasoning, tool calls and their results', async () => {
    const chat = startChat(crypto.randomUUID())
    model().script(
      { tokens: ['<think>', 'Hm.', '</think>', 'Wait.'], toolCalls: [call('echo', { text: 'x' }), call('fail')] },
      { tokens: 'Done.' },
    )
    await chat.sendMessage({ text: 'Hello' })
    expect(chat.error).toBeUndefined()
    expect(textsOf(chat.lastMessage)).toEqual(['reasoning', 'Wait.', 'dynamic-tool', 'dynamic-tool', 'Done.'])
    const tools = chat.lastMessage?.parts.filter(({ type }) => type === 'dynamic-tool')
    expect(tools).toMatchObject([
      { toolName: 'echo', state: 'output-available', input: { text: 'x' } },
      { toolName: 'fail', state: 'output-error' },
    ])
  })

  it('marks results of the tools of the service as dynamic, for which version 5 of the SDK looks', async () => {
    model().script({ toolCalls: [call('echo', { text: 'x' }), call('fail')] }, { tokens: 'Done.' })
    const messages = [{ id: '1', role: 'user', parts: [{ type: 'text', text: 'Hello' }] }]
    const sent = { body: { id: crypto.randomUUID(), messages, trigger: 'submit-message' }, token: server().token }
    const { body } = await request(server(), 'POST', `/api/v1/agents/${agent}/chat`, sent)
    const chunks = [...body.matchAll(/^data: ({.*})$/gm)].map(([, data = '']) => JSON.parse(data))
    const results = chunks.filter(({ type }) => type.startsWith('tool-output-'))
    expect(results).toMatchObject([
      { type: 'tool-output-available', dynamic: true },
      { type: 'tool-output-error', dynamic: true },
    ])
  })

  it('shows why a run failed', async () => {
    const chat = startChat(crypto.randomUUID())
    model().script({ error: { status: 400, message: 'No such thing' } })
    await chat.sendMessage({ text: 'Hello' })
    expect(chat.error?.message).toContain('No such thing')
  })

  it('replays an answer in progress, and nothing after its end', async () => {
    const id = crypto.randomUUID()
    const chat = startChat(id)
    const gate = Promise.withResolvers<void>()
    model().script({ tokens: ['Slow', gate.promise, ' answer.'] })
    const sent = chat.sendMessage({ text: 'Hello' })
    await expect.poll(() => textsOf(chat.lastMessage)).toEqual(['Slow'])
    const stream = await transportTo().reconnectToStream({ chatId: id })
    gate.resolve()
    await sent
    const messages = await Array.fromAsync(readUIMessageStream({ stream: stream! }))
    expect(messages.at(-1)).toEqual(chat.lastMessage)
    expect(await replayed(id)).toBeNull()
    expect(await replayed('another')).toBeNull()
  })

  it.each([
    [true, 'output-available', 'Done.'],
    [false, 'output-denied', 'Without.'],
  ])('waits for an approval and continues with the decision (approved: %s)', async (approved, state, end) => {
    const asking = (await toolLab.agent({}, [{ tool: 'echo', mode: 'ask' }])).id
    const sendAutomaticallyWhen = lastAssistantMessageIsCompleteWithApprovalResponses
    const id = crypto.randomUUID()
    const chat = startChat(id, { sendAutomaticallyWhen }, asking)
    model().script({ tokens: 'May I?', toolCalls: [call('echo', { text: 'x' })] }, { tokens: end })
    await chat.sendMessage({ text: 'Hello' })
    expect(chat.error).toBeUndefined()
    const asked = chat.lastMessage?.parts.find((part) => part.type === 'dynamic-tool')
    expect(asked).toMatchObject({ state: 'approval-requested', toolName: 'echo', input: { text: 'x' } })
    const before = await transportTo(asking).reconnectToStream({ chatId: id })
    const seen = (await Array.fromAsync(readUIMessageStream({ stream: before! }))).at(-1)
    expect(seen?.parts).toEqual(chat.lastMessage?.parts)
    await chat.addToolApprovalResponse({ id: asked!.approval!.id, approved, reason: 'So be it' })
    await expect.poll(() => textsOf(chat.lastMessage)).toEqual(['May I?', 'dynamic-tool', end])
    expect(chat.messages).toHaveLength(2)
    expect(chat.lastMessage?.parts.find((part) => part.type === 'dynamic-tool')).toMatchObject({ state })
    const [run] = await executions()
    expect(run.id).toBe(chat.lastMessage?.id)
  })

  it.each([
    [true, 'none of the chunk', []],
    [false, 'that another person has decided otherwise', ['tool-approval-response']],
  ])('gets of its own decision (%s) %s', async (approved, _, chunks) => {
    const { id } = await toolLab.agent({}, [{ tool: 'echo', mode: 'ask' }])
    model().script({ toolCalls: [call('echo', { text: 'x' })] }, { tokens: 'Done.' })
    const chat = startChat(crypto.randomUUID(), {}, id)
    await chat.sendMessage({ text: 'Hello' })
    const asked = chat.lastMessage!.parts.find((part) => part.type === 'dynamic-tool')!
    if (!approved) await request(server(), 'POST', `/api/v1/approvals/${asked.approval!.id}/approve`, { body: {} })
    const part = { ...asked, state: 'approval-responded', approval: { id: asked.approval!.id, approved } }
    const body = { id: chat.id, messages: [{ ...chat.lastMessage, parts: [part] }], trigger: 'submit-message' }
    const answer = await request(server(), 'POST', `/api/v1/agents/${id}/chat`, { body })
    const types = [...answer.body.matchAll(/"type":"([a-z-]+)"/g)].map(([, type]) => type)
    expect(types.filter((type) => type === 'tool-approval-response')).toEqual(chunks)
    expect(types).toContain('tool-output-available')
  })

  const parameters = { type: 'object', properties: { city: { type: 'string' } } }
  it.each([
    ['in a list', { tools: [{ type: 'function', name: 'weather', description: 'Weather', parameters }] }],
    // As AssistantChatTransport of @assistant-ui/ai-sdk 0.0.7 does.
    [
      'by its name',
      { callSettings: {}, system: 'Be brief.', tools: { weather: { description: 'Weather', parameters } } },
    ],
  ])('pauses for a tool that the page sends %s, and continues with its result', async (_, body) => {
    const chat: TestChat = startChat(
      crypto.randomUUID(),
      {
        sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
        onToolCall: ({ toolCall }: { toolCall: { toolCallId: string; toolName: string } }) =>
          void chat.addToolOutput({ tool: 'weather', toolCallId: toolCall.toolCallId, output: { degrees: 21 } }),
      },
      agent,
      body,
    )
    model().script({ toolCalls: [call('client__weather', { city: 'Rome' })] }, { tokens: 'Warm.' })
    await chat.sendMessage({ text: 'Hello' })
    await expect.poll(() => textsOf(chat.lastMessage)).toEqual(['tool-weather', 'Warm.'])
    const { messages, tools } = model().requests.at(-1)!.body
    expect(messages.at(-1)).toMatchObject({ role: 'tool', content: '{"degrees":21}' })
    const offered = { name: 'client__weather', description: 'Weather', parameters }
    expect(tools).toContainEqual(expect.objectContaining({ function: expect.objectContaining(offered) }))
    expect(String(messages[0]?.content).endsWith('Be brief.')).toBe('system' in body)
  })

  it('answers a page of assistant-ui, whose tools are an object even if it has none', async () => {
    model().script({ tokens: 'Good day.' })
    const chat = startChat(crypto.randomUUID(), {}, agent, { tools: {} })
    await chat.sendMessage({ text: 'Hello' })
    expect([textsOf(chat.lastMessage), chat.error]).toEqual([['Good day.'], undefined])
  })

  it.each([
    ['answers again', { trigger: 'regenerate-message' }, ' answer'],
    ['ends the answer in progress for another message', { message: messageOf('Two') }, 'Execution was cancelled'],
  ])('%s, as its page asks', async (_, fields, end) => {
    const gate = Promise.withResolvers<void>()
    const id = crypto.randomUUID()
    const post = (more: object = {}) =>
      fetch(`${server().url}/api/v1/agents/${agent}/chat`, {
        method: 'POST',
        headers: { authorization: `Bearer ${server().token}`, 'content-type': 'application/json' },
        body: JSON.stringify({ id, messages: [messageOf('One')], ...more }),
      })
    model().script({ tokens: ['Slow', gate.promise, ' answer'] }, { tokens: 'Anew.' })
    const isAsked = model().request(model().requests.length)
    const first = await post()
    await isAsked
    const other = await post(fields)
    gate.resolve()
    expect(await other.text()).toContain('Anew.')
    expect(await first.text()).toContain(end)
  })

  it('refuses a request without a message, and one without permission to run the agent', async () => {
    const eve = await server().member({ organization: 'Other' })
    const messages: UIMessage[] = [{ id: '1', role: 'user', parts: [{ type: 'text', text: 'Hi' }] }]
    const send = (to: ReturnType<typeof transportTo>, given: UIMessage[]) =>
      to.sendMessages({
        chatId: 'x',
        messages: given,
        trigger: 'submit-message',
        messageId: undefined,
        abortSignal: undefined,
      })
    await expect(send(transportTo(), [])).rejects.toThrow(/Missing required field: messages.*value for `messages`/)
    const answered: UIMessage[] = [...messages, { id: '2', role: 'assistant', parts: [{ type: 'text', text: 'Ho' }] }]
    await expect(send(transportTo(), answered)).rejects.toThrow(/at the end.*it needs the role user/)
    await expect(send(transportTo(agent, {}, eve.token), messages)).rejects.toThrow(/Agent not found/)
    await expect(transportTo(agent, {}, eve.token).reconnectToStream({ chatId: 'x' })).rejects.toThrow(
      /Agent not found/,
    )
  })
})

describe('the writer of chunks', () => {
  const at = new Date()
  const EVENTS: MessageData[] = [
    { messageType: 'warning', code: 'cut_off', text: 'Careful' },
    { messageType: 'retry', attempt: 1, afterMs: 5, reason: 'busy' },
    { messageType: 'stream_event', step: 1, delta: { type: 'thinking_delta', text: 'Hm.' } },
    { messageType: 'stream_event', step: 1, delta: { type: 'text_delta', text: 'Voi' } },
    { messageType: 'resumed', step: 1 },
    { messageType: 'stream_event', step: 1, delta: { type: 'text_delta', text: 'Anew' } },
    {
      messageType: 'assistant',
      step: 1,
      text: 'Anew',
      content: [
        { type: 'text', text: 'Anew' },
        { type: 'tool_use', id: 'a', name: 'echo', input: {} },
      ],
    },
    { messageType: 'tool_result', toolUseId: 'a', content: 'x', isError: false },
    { messageType: 'assistant', step: 2, text: 'Lost fragments', content: [{ type: 'text', text: 'Lost fragments' }] },
  ]

  it('makes a message of every kind of event for the AI SDK, also after a restart', async () => {
    const read = createPartReader({ id: 'exec-1-a', overrides: {} })
    const write = createChunkWriter()
    const usage = { input_tokens: 1, output_tokens: 2 }
    const chunks = [
      { seq: 1, at, event: 'meta' as const, data: { executionId: 'exec-1-a', chatId: 'c', sessionId: 's' } },
      ...EVENTS.map((data, index) => ({ seq: index + 2, at, event: 'message' as const, data })),
      {
        seq: 99,
        at,
        event: 'result' as const,
        data: { executionId: 'exec-1-a', status: 'completed' as const, sessionId: 's', usage, stopReason: 'end_turn' },
      },
    ]
      .flatMap(read)
      .flatMap((part) => write({ ...part, seq: 0 } as never).chunks) as UIMessageChunk[]
    const stream = new ReadableStream<UIMessageChunk>({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(chunk)
        controller.close()
      },
    })
    const errors: unknown[] = []
    const messages = await Array.fromAsync(
      readUIMessageStream({ stream, terminateOnError: true, onError: (error) => errors.push(error) }),
    )
    expect(errors).toEqual([])
    expect(messages.at(-1)?.parts.map((part) => ('text' in part ? part.text : part.type))).toEqual([
      ...['data-warning', 'step-start', 'Anew', 'dynamic-tool', 'step-start', 'Lost fragments'],
    ])
  })
})
