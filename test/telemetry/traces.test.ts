import { describe, expect, it, test, vi } from 'vitest'
import { createTraces } from '../../src/telemetry/traces.ts'
import { type CollectedSpan, startCollector } from '../support/collector.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const runs: Record<string, any> = {}

// Traces in a collector, of runs that call tools, delegate, fail and are cancelled.

const model = await use(startModelServer())
const collector = await use(startCollector())
await using server = await startServer({
  OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
  ...model.env,
})
const create = async (body: object) =>
  (await request(server, 'POST', '/api/v1/agents', { body: { systemPrompt: 'canary prompt', ...body } })).body.id
const run = async (id: string, body: object = {}) =>
  (await request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: { message: 'canary message', ...body } })).body
const helper = await create({ name: 'Helper' })
const ada = await create({ name: 'Ada', allowedTools: ['create_task', 'list_tasks'], subagentIds: [helper] })
const title = { title: 'canary title' }
model.script({ toolCalls: [{ id: 'call-1', name: 'create_task', input: title }] }, { tokens: ['canary ', 'answer'] })
runs.tools = await run(ada)
const other = await create({ name: 'Chief', subagentIds: [helper] })
model.script(
  { toolCalls: [{ id: 'call-1', name: 'delegate_to_helper', input: { message: 'canary task' } }] },
  { tokens: ['canary help'] },
  { tokens: ['done'] },
)
runs.delegation = await run(other)
model.script({ error: { status: 400, message: 'canary refusal' } })
runs.failed = await run(ada)
const never = Promise.withResolvers<void>()
model.script({ tokens: ['One', never.promise, 'never'] })
runs.cancelled = await run(ada, { background: true })
const { executionId } = runs.cancelled
await vi.waitFor(async () => {
  const { body } = await request(server, 'GET', `/api/v1/executions/${executionId}/logs`)
  expect(body.logs.length).toBeGreaterThan(1)
}, 60_000)
await request(server, 'POST', `/api/v1/executions/${executionId}/cancel`)
never.resolve()
// Its end sends the remaining spans.
await server[Symbol.asyncDispose]()

const rootOf = (name: string, ended: string) =>
  collector.spans.find(
    (span) => span.name === `invoke_agent ${name}` && span.attributes['muster.execution.status'] === ended,
  ) as CollectedSpan
const childrenOf = ({ spanId }: CollectedSpan) => collector.spans.filter(({ parentSpanId }) => parentSpanId === spanId)

describe('traces', () => {
  it('show a run with its model and tool calls, by the conventions for generative AI', () => {
    const root = rootOf('Ada', 'completed')
    expect(root.attributes).toMatchObject({
      'gen_ai.operation.name': 'invoke_agent',
      'gen_ai.agent.name': 'Ada',
      'gen_ai.provider.name': 'compatible',
      'gen_ai.request.model': 'test',
      'gen_ai.conversation.id': runs.tools.sessionId,
      'muster.execution.id': runs.tools.executionId,
      'gen_ai.usage.output_tokens': expect.any(Number),
    })
    expect(root.status.code ?? 0).toBe(0)
    const children = childrenOf(root)
    expect(children.map(({ name }) => name).toSorted()).toEqual(['chat test', 'chat test', 'execute_tool create_task'])
    expect(new Set(children.map(({ traceId }) => traceId))).toEqual(new Set([root.traceId]))
    const [first] = children.filter(({ name }) => name === 'chat test')
    expect(first?.kind).toBe(3)
    expect(first?.attributes).toMatchObject({
      'gen_ai.operation.name': 'chat',
      'gen_ai.response.finish_reasons': ['tool-calls'],
      'gen_ai.usage.input_tokens': expect.any(Number),
    })
    const tool = children.find(({ name }) => name.startsWith('execute_tool'))
    expect(tool?.attributes).toMatchObject({
      'gen_ai.operation.name': 'execute_tool',
      'gen_ai.tool.name': 'create_task',
      'gen_ai.tool.call.id': expect.any(String),
    })
  })

  it('show child runs as parts of their parent', () => {
    const root = rootOf('Chief', 'completed')
    const names = childrenOf(root).map(({ name }) => name)
    expect(names).toContain('execute_tool delegate_to_helper')
    const helper = childrenOf(root).find(({ name }) => name === 'invoke_agent Helper')
    expect(helper?.traceId).toBe(root.traceId)
    expect(childrenOf(helper as CollectedSpan).map(({ name }) => name)).toEqual(['chat test'])
  })

  it('mark failed and cancelled runs by the kind of error', () => {
    const failed = rootOf('Ada', 'failed')
    expect([failed.status.code, failed.attributes['error.type']]).toEqual([2, 'failed'])
    const [chat] = childrenOf(failed)
    expect([chat?.status.code, chat?.attributes['error.type']]).toEqual([2, '400'])
    const cancelled = rootOf('Ada', 'cancelled')
    expect([cancelled.status.code, cancelled.attributes['error.type']]).toEqual([2, 'cancelled'])
    expect(childrenOf(cancelled).map(({ status }) => status.code)).toEqual([2])
  })

  it('contain no prompt, no answer, no tool input and no error text', () => {
    expect(collector.bodies.length).toBeGreaterThan(0)
    expect(collector.bodies.every((body) => body.startsWith('POST /v1/traces '))).toBe(true)
    expect(collector.bodies.join('')).not.toContain('canary')
    expect(collector.resources[0]).toMatchObject({ 'service.name': 'muster' })
  })
})

test('with CAPTURE_MESSAGE_CONTENT, traces contain prompts and answers', async () => {
  await using other = await startCollector()
  {
    await using server = await startServer({
      OTEL_EXPORTER_OTLP_ENDPOINT: other.url,
      OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: 'true',
      ...model.env,
    })
    const body = { name: 'Ada', systemPrompt: 'the prompt', allowedTools: ['create_task'] }
    const { body: agent } = await request(server, 'POST', '/api/v1/agents', { body })
    const input = { title: 'the title' }
    model.script({ toolCalls: [{ id: 'call-1', name: 'create_task', input }] }, { tokens: ['the ', 'answer'] })
    await request(server, 'POST', `/api/v1/agents/${agent.id}/execute`, { body: { message: 'the message' } })
  }
  const read = (name: string, key: string) =>
    other.spans.flatMap(({ name: of, attributes }) => (of === name ? [JSON.parse(String(attributes[key]))] : []))
  const [first, second] = read('chat test', 'gen_ai.input.messages').toSorted((a, b) => a.length - b.length)
  const text = (content: string) => [expect.objectContaining({ type: 'text', content })]
  expect(first).toEqual([
    { role: 'system', parts: [{ type: 'text', content: expect.stringContaining('the prompt') }] },
    { role: 'user', parts: text('the message') },
  ])
  // In the form that is sent: ids in a prompt are nine letters and digits.
  const callId = second[2].parts[0].id
  expect(callId).toMatch(/^[a-zA-Z0-9]{9}$/)
  expect(second.slice(2)).toEqual([
    {
      role: 'assistant',
      parts: [{ type: 'tool_call', id: callId, name: 'create_task', arguments: { title: 'the title' } }],
    },
    {
      role: 'tool',
      parts: [{ type: 'tool_call_response', id: callId, response: expect.stringContaining('the title') }],
    },
  ])
  expect(read('chat test', 'gen_ai.output.messages')).toContainEqual([{ role: 'assistant', parts: text('the answer') }])
  expect(read('execute_tool create_task', 'gen_ai.tool.call.arguments')).toEqual([{ title: 'the title' }])
})

describe('without a collector', () => {
  it('without a collector that answers, runs end and the server stops', async () => {
    await using server = await startServer({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' })
    const { body: agent } = await request(server, 'POST', '/api/v1/agents', { body: { name: 'A', systemPrompt: 'x' } })
    const { body } = await request(server, 'POST', `/api/v1/agents/${agent.id}/execute`, { body: { message: 'Hi' } })
    expect(body.success).toBe(true)
  })
})

test.each([true, false])('spans are sent unless the service is paused (paused: %s)', async (isPaused) => {
  await using own = await startCollector()
  const { telemetry, stop } = createTraces(own.url, {
    withContent: false,
    proxyFor: () => null,
    isPaused: () => isPaused,
  })
  const input = { asking: { current: () => ({ id: 'compatible/test' }) }, tools: [] }
  telemetry.begin({ id: 'e', attempt: 1 } as never, { id: 'a', name: 'Ada' } as never, { input } as never)
  telemetry.left('e')
  await stop()
  expect(own.spans.length).toBe(isPaused ? 0 : 1)
})
