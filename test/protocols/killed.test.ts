import { DefaultChatTransport, readUIMessageStream, type UIMessage } from 'ai'
import OpenAI from 'openai'
import { expect, test } from 'vitest'
import { createSubject, type Subject } from '../soak/service.ts'
import { type Receiver, startReceiver } from '../support/receiver.ts'
import { request } from '../support/rest.ts'
import { use } from '../support/use.ts'
import { misfits } from './open-responses.ts'

// One real process, which each test kills and restarts.
const subject: Subject = await use(createSubject({ ALLOW_PRIVATE_NETWORK: 'true' }))

/** A run with a tool call in its first step continues after a restart. An unknown tool has its result at once. */
const STEP = { tokens: 'Wait. ', toolCalls: [{ id: 'a', name: 'unknown', input: {} }] }
const many = (end: 'hang' | 'finish') => ({ tokens: Array.from({ length: 60 }, (_, index) => `t${index} `), end })

/** Runs the agent by Agent2Agent to its end, with a push notification that its receiver keeps waiting. */
async function endWithoutPush(): Promise<Receiver> {
  const receiver = await startReceiver()
  receiver.answer = () => {}
  const message = { messageId: 'pushed', role: 'ROLE_USER', parts: [{ text: 'Hi' }] }
  const configuration = { taskPushNotificationConfig: { url: `${receiver.url}/push` } }
  const body = { jsonrpc: '2.0', id: 1, method: 'SendMessage', params: { message, configuration } }
  const headers = { 'A2A-Version': '1.0' }
  const answer = await request(subject, 'POST', `/a2a/agents/${subject.agentId}`, { headers, body })
  expect(answer.body.result?.task.status.state, JSON.stringify(answer.body)).toBe('TASK_STATE_COMPLETED')
  return receiver
}

test('kill -9 loses no event of a background response, and no push notification of an ended run', async () => {
  await using receiver = await endWithoutPush()
  subject.model.script(STEP, many('hang'), { tokens: ['A', 'new', '.'] })
  const connect = () => new OpenAI({ baseURL: `${subject.url}/openai/v1`, apiKey: subject.token, maxRetries: 0 })
  const stream = await connect().responses.create({
    model: subject.agentId,
    input: 'Hello',
    background: true,
    stream: true,
  })
  const seen: OpenAI.Responses.ResponseStreamEvent[] = []
  for await (const event of stream) {
    seen.push(event)
    if (seen.length === 60) break
  }
  const created = seen[0] as OpenAI.Responses.ResponseCreatedEvent
  await subject.kill()
  const pushed: string[] = []
  receiver.answer = (response, { body }) => {
    pushed.push(body.task.status.state)
    response.writeHead(204).end()
  }
  await subject.start()
  const rest = await Array.fromAsync(
    await connect().responses.retrieve(created.response.id, {
      stream: true,
      starting_after: seen.at(-1)!.sequence_number,
    }),
  )
  const events = [...seen, ...rest]
  expect(misfits(events)).toEqual([])
  const numbers = events.map((event) => event.sequence_number)
  expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b))
  const added = events.flatMap((event) => (event.type === 'response.output_item.added' ? event.output_index : []))
  expect(added).toEqual([...new Set(added)])
  const last = events.at(-1) as OpenAI.Responses.ResponseCompletedEvent
  expect(last.type).toBe('response.completed')
  const { output } = await connect().responses.retrieve(created.response.id)
  expect(last.response.output).toEqual(output)
  expect(output.map(({ type }) => type as string)).toEqual(['message', 'muster:tool_call', 'message'])
  expect(JSON.stringify(output.at(-1))).toContain('"Anew."')
  await expect.poll(() => pushed).toContain('TASK_STATE_COMPLETED')
})

test("an answer of the AI SDK's chat is the same after kill -9 in its middle", async () => {
  const resume = Promise.withResolvers<void>()
  subject.model.script(STEP, many('hang'), { tokens: ['A', resume.promise, 'new', '.'] })
  const api = () => `${subject.url}/api/v1/agents/${subject.agentId}/chat`
  const connect = () => new DefaultChatTransport({ api: api(), headers: { authorization: `Bearer ${subject.token}` } })
  const messages: UIMessage[] = [{ id: '1', role: 'user', parts: [{ type: 'text', text: 'Hello' }] }]
  const cut = await connect().sendMessages({
    chatId: 'chat',
    messages,
    trigger: 'submit-message',
    messageId: undefined,
    abortSignal: undefined,
  })
  const reader = cut.getReader()
  for (let count = 0; count < 40; count++) await reader.read()
  await subject.kill()
  await reader.cancel().catch(() => {})
  await subject.start()
  const replay = await connect().reconnectToStream({ chatId: 'chat' })
  resume.resolve()
  const seen = replay ? (await Array.fromAsync(readUIMessageStream({ stream: replay }))).at(-1) : null
  expect(seen?.parts.flatMap((part) => (part.type === 'text' ? part.text : []))).toEqual(['Wait. ', 'Anew.'])
})
