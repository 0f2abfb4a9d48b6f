import type { JSONSchema7 } from '@ai-sdk/provider'
import { beforeEach, describe, expect, test } from 'vitest'
import { classifyModelError } from '../../src/executions/engine/models/model-errors.ts'
import type { ModelFailure } from '../../src/executions/engine/models/model-failures.ts'
import { createModelKnowledge } from '../../src/executions/engine/models/model-knowledge.ts'
import { createBreaker } from '../../src/executions/engine/run/breaker.ts'
import { type Change, isOfModel, isOfSession } from '../../src/executions/engine/run/change.ts'
import { warningOf } from '../../src/executions/engine/run/change-warnings.ts'
import { changesFor } from '../../src/executions/engine/run/rejections.ts'
import { changeBody, changePackagedBody } from '../../src/executions/engine/run/request-bodies.ts'
import { changePrompt, changeTools } from '../../src/executions/engine/run/request-changes.ts'
import { shorten } from '../../src/executions/engine/run/shorten.ts'
import { createAgent } from '../support/api.ts'
import { event } from '../support/model-replies.ts'
import { type ModelRequest, startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { use } from '../support/use.ts'
import { ended, followed, startLab } from './lab.ts'
import { call } from './tool-lab.ts'

const anthropic = await use(startModelServer())
const ANTHROPIC_BASE_URL = anthropic.baseUrl
const lab = await use(startLab({ MODEL_RETRIES: '2', ANTHROPIC_API_KEY: 'test-key', ANTHROPIC_BASE_URL }))

/** Each test uses its own model, because the engine remembers the limits of each model. */
let model = ''
let count = 0
beforeEach(() => {
  model = `compatible/model-${++count}`
})

type Body = ModelRequest['body']

const busy = (status: number, headers: Record<string, string> = { 'retry-after-ms': '1' }) => ({
  error: { status, message: 'busy', headers },
})

/** Runs a message to its end. Returns the execution as REST does, its events, and the requests to the model. */
async function run(fields: object = {}, agent: object = {}) {
  const before = lab.model.requests.length
  const id = await createAgent(lab.server, { model, ...agent })
  const body = { message: 'Hello', background: true, ...fields }
  const { body: accepted } = await request(lab.server, 'POST', `/api/v1/agents/${id}/execute`, { body })
  const row = await ended(lab.engine, await lab.row(accepted.executionId))
  const events = (await followed(lab.engine, row)).flatMap(({ event, data }) => (event === 'message' ? data : []))
  const { body: read } = await request(lab.server, 'GET', `/api/v1/executions/${row.id}`)
  return { execution: read.execution, events, requests: lab.model.requests.slice(before).map(({ body }) => body) }
}

const answers = (body: ModelRequest['body'], refused: string | false) =>
  refused ? { error: { status: 400, message: refused } } : { tokens: `Answer of ${body.model}` }

describe('the engine', () => {
  test.each([408, 409, 425, 429, 500, 502, 503, 504, 522, 529])(
    'asks a model again that answers %i once',
    async (status) => {
      lab.model.script(busy(status))
      const { execution, events } = await run()
      expect(execution).toMatchObject({ status: 'completed', modelsTried: [], usageEstimated: false })
      expect(events[0]).toMatchObject({ messageType: 'retry', attempt: 1, afterMs: 1, reason: `HTTP ${status}: busy` })
    },
  )

  test('obeys Retry-After in seconds, as a date and in milliseconds', async () => {
    const past = new Date(Date.now() - 60_000).toUTCString()
    lab.model.script(busy(429, { 'retry-after': '0' }), busy(429, { 'retry-after': past }))
    const { events } = await run()
    expect(events.slice(0, 2)).toMatchObject([{ afterMs: 0 }, { afterMs: 0 }])
  })

  test('fails a run after MODEL_RETRIES retries', async () => {
    lab.model.script(busy(503), busy(503), busy(503))
    const { execution, requests } = await run()
    expect(execution).toMatchObject({ status: 'failed', error: 'HTTP 503: busy' })
    expect(requests).toHaveLength(3)
  })

  test.each([400, 401, 403, 404, 422])('does not retry a refusal with %i', async (status) => {
    lab.model.script(busy(status))
    const { execution, requests } = await run()
    expect([execution.status, requests.length]).toEqual(['failed', 1])
  })

  test('does not retry a reply that breaks off after its first token', async () => {
    lab.model.script({ tokens: ['Hel'], end: 'drop' })
    const { execution, requests } = await run()
    expect([execution.status, requests.length]).toEqual(['failed', 1])
  })

  test('drops a last delta that repeats the whole answer', async () => {
    const answer = 'The answer to this question is longer than forty characters.'
    lab.model.script({ tokens: [answer.slice(0, 20), answer.slice(20), answer] })
    expect((await run()).execution.result).toBe(answer)
  })

  test('keeps a line that the model writes several times, one for each delta', async () => {
    const line = 'All work and no play makes Jack a dull boy.\n'
    lab.model.script({ tokens: [line, line, line] })
    expect((await run()).execution.result).toBe(line.repeat(3))
  })

  test('retries a reply that breaks off before its first token', async () => {
    lab.model.script({ tokens: [], end: 'drop' })
    expect((await run()).execution.status).toBe('completed')
  })

  test('retries a reply that breaks off while it states the input of a call', async () => {
    const call = { index: 0, id: 'a', function: { name: 'echo', arguments: '{"text":' } }
    const begun = event({ choices: [{ index: 0, delta: { tool_calls: [call] } }] })
    lab.model.script({ tokens: [begun], end: 'drop' }, { tokens: 'Fine.' })
    const { execution, requests } = await run()
    expect([execution.result, requests.length, execution.usageEstimated]).toEqual(['Fine.', 2, true])
  })

  test('stops waiting for a retry at once on a cancel', async () => {
    lab.model.script(busy(429, { 'retry-after': '60' }))
    const row = await lab.run({ model })
    await expect.poll(() => lab.db.executionEvent.count({ where: { executionId: row.id } })).toBe(1)
    await lab.engine.cancel(row, lab.actor)
    expect((await lab.row(row.id)).status).toBe('cancelled')
  })

  test.each([{ provider_specific_fields: { thought_signature: 'SIG' } }, { id: 'call_1__thought__SIG' }])(
    'returns the signature of a call in the field that LiteLLM reads: %o',
    async (fields) => {
      const made = { index: 0, id: 'call_1', function: { name: 'current_time', arguments: '{}' }, ...fields }
      const choices = [{ index: 0, delta: { tool_calls: [made] }, finish_reason: 'tool_calls' }]
      lab.model.script({ tokens: [event({ choices })], end: 'cut' }, { tokens: 'It is late.' })
      const { requests } = await run({}, { allowedTools: ['current_time'] })
      const returned = requests[1]!.messages.find(({ tool_calls }) => tool_calls)?.tool_calls
      expect(returned).toMatchObject([{ provider_specific_fields: { thought_signature: 'SIG' } }])
    },
  )

  test('takes over a run that was waiting for a retry when its process ended', async () => {
    await using own = await startLab({ MODEL_RETRIES: '2', DRAIN_TIMEOUT: '60' })
    own.model.script(busy(429, { 'retry-after': '60' }))
    const row = await own.run()
    await expect.poll(() => own.db.executionEvent.count({ where: { executionId: row.id } })).toBe(1)
    const other = own.another()
    await own.engine.drain()
    await other.start(false)
    expect(await ended(other, row)).toMatchObject({ status: 'completed', attempt: 2 })
    await other.drain()
  })
})

describe('Anthropic', () => {
  const sse = (...events: { type: string; [key: string]: unknown }[]) =>
    events.map((data) => Buffer.from(`event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`))
  const message = { id: 'm', type: 'message', role: 'assistant', content: [], model: 'claude-x', stop_reason: null }
  const begin = { type: 'message_start', message: { ...message, usage: { input_tokens: 5, output_tokens: 1 } } }
  const text = [
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hi' } },
  ]
  const end = [
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 3 } },
    { type: 'message_stop' },
  ]
  const overloaded = { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }
  const whole = { end: 'cut' as const, tokens: sse(begin, ...text, ...end) }
  const asked = async (fields: object = {}) => {
    const before = anthropic.requests.length
    const { execution } = await run({ model: 'anthropic/claude-x', ...fields })
    return { execution, requests: anthropic.requests.slice(before).map(({ body }) => body) }
  }

  test('is retried when it is overloaded, also when its stream reports it before the first token', async () => {
    anthropic.script(busy(529), { end: 'cut', tokens: sse(begin, overloaded) }, whole)
    const { execution, requests } = await asked()
    expect(execution).toMatchObject({ status: 'completed', result: 'Hi' })
    expect(requests).toHaveLength(3)
  })

  test('is not retried when its stream breaks after the first token', async () => {
    anthropic.script({ end: 'drop', tokens: sse(begin, ...text) })
    const { execution, requests } = await asked()
    expect([execution.status, requests.length]).toEqual(['failed', 1])
  })

  test('gets the settings that it supports, and the others become warnings', async () => {
    anthropic.script(whole)
    const { execution, requests } = await asked({
      modelSettings: { maxOutputTokens: 77, stopSequences: ['x'], seed: 1 },
    })
    expect(requests[0]).toMatchObject({ max_tokens: 77, stop_sequences: ['x'] })
    expect(execution.warnings).toMatchObject([{ code: 'setting_ignored', text: expect.stringContaining('seed') }])
  })
})

describe('a refusal that names a parameter', () => {
  const cases: [name: string, refused: string, isRefused: (body: ModelRequest['body']) => boolean, settings: object][] =
    [
      ['stream_options', 'Unknown field: stream_options', (body) => body.stream_options !== undefined, {}],
      [
        'temperature',
        "Unsupported parameter: 'temperature'",
        (body) => body.temperature !== undefined,
        { temperature: 1 },
      ],
      [
        'max_tokens',
        "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
        (body) => body.max_tokens !== undefined,
        { maxOutputTokens: 9 },
      ],
      [
        'the system role',
        'System role not supported',
        (body) => body.messages.some(({ role }) => role === 'system'),
        {},
      ],
      [
        'a field of providerOptions',
        'top_k: Extra inputs are not permitted',
        (body) => body.top_k !== undefined,
        { providerOptions: { compatible: { top_k: 3 } } },
      ],
      [
        'streaming',
        'Your organization must be verified to stream this model.',
        (body) => body.stream === true || body.stream_options !== undefined,
        {},
      ],
    ]
  test.each(cases)('(%s) is followed by one request without it, and the next run leaves it out', async (...given) => {
    const [, refused, isRefused, modelSettings] = given
    lab.model.fallback = ({ body }) => answers(body, isRefused(body) && refused)
    const first = await run({ modelSettings })
    expect(first.execution.status).toBe('completed')
    expect(first.requests).toHaveLength(2)
    expect((await run({ modelSettings })).requests).toHaveLength(1)
    lab.model.fallback = { tokens: 'A reply.' }
  })

  test.each<[string, (body: Body) => boolean, object, object, string]>([
    [
      'reasoning_effort: "minimal" is not supported with this model',
      ({ reasoning_effort }) => reasoning_effort === 'minimal',
      { reasoningEffort: 'minimal' },
      { reasoningEffort: 'high' },
      'reasoning_effort',
    ],
    [
      '`temperature` and `top_p` cannot both be specified for this model',
      ({ temperature, top_p }) => temperature !== undefined && top_p !== undefined,
      { temperature: 1, topP: 1 },
      { temperature: 1 },
      'temperature',
    ],
    [
      'Invalid service_tier argument',
      ({ service_tier }) => service_tier === 'flex',
      { providerOptions: { compatible: { service_tier: 'flex' } } },
      { providerOptions: { compatible: { service_tier: 'priority' } } },
      'service_tier',
    ],
  ])('(%s) is remembered for the refused value only', async (refused, isRefused, modelSettings, others, name) => {
    lab.model.fallback = ({ body }) => answers(body, isRefused(body) && refused)
    const first = await run({ modelSettings })
    expect(first.requests).toHaveLength(2)
    expect(first.requests[1]).not.toHaveProperty(name)
    expect(first.execution.warnings).toMatchObject([{ code: 'setting_ignored' }])
    const other = await run({ modelSettings: others })
    expect([other.requests.length, other.execution.warnings]).toEqual([1, []])
    expect(other.requests[0]).toHaveProperty(name)
    const again = await run({ modelSettings })
    expect(again.requests).toHaveLength(1)
    expect(again.requests[0]).not.toHaveProperty(name)
    lab.model.fallback = { tokens: 'A reply.' }
  })

  test('is not repeated: an answer of the model that the provider reports as a bad request', async () => {
    lab.model.script({ error: { status: 400, message: 'Failed to call a function.', code: 'tool_use_failed' } })
    const { execution, requests } = await run()
    expect(execution).toMatchObject({ status: 'failed', error: 'HTTP 400: Failed to call a function.' })
    expect(requests).toHaveLength(1)
  })

  test('is none: an answer that the provider could not read or broke off, asked for once more', async () => {
    const choices = [{ index: 0, delta: {}, finish_reason: 'function_call_filter: MALFORMED_FUNCTION_CALL' }]
    const garbled = { tokens: [event({ choices })], end: 'cut' as const }
    for (const odd of [
      garbled,
      { tokens: [], end: 'cut' as const },
      { tokens: ['data: [DONE]\n\n'].map(Buffer.from) },
      { tokens: [event({ choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] })], end: 'cut' as const },
      { tokens: [] },
    ]) {
      lab.model.script(odd, { tokens: 'Fine.' })
      const { execution, requests } = await run()
      expect(execution).toMatchObject({ status: 'completed', result: 'Fine.' })
      expect(requests[1]).toEqual(requests[0])
      expect(requests).toHaveLength(2)
    }
    lab.model.script(garbled, garbled)
    const { error } = (await run()).execution
    expect(error).toContain('(finish reason: function_call_filter: MALFORMED_FUNCTION_CALL)')
  })

  test('is none: an empty answer to the results of calls, after which the model is asked to go on', async () => {
    const empty = { tokens: [] }
    lab.model.script({ toolCalls: [call('current_time')] }, empty, busy(503), { tokens: 'It is late.' })
    const { execution, requests } = await run({}, { allowedTools: ['current_time'] })
    expect(execution).toMatchObject({ status: 'completed', result: 'It is late.' })
    const roles = requests.map(({ messages }) => messages.slice(2).map(({ role }) => role))
    const asked = ['assistant', 'tool']
    const askedAgain = [...asked, 'assistant', 'user']
    expect(roles).toEqual([[], asked, askedAgain, askedAgain])
    expect(requests[3]!.messages.at(-1)!.content).toMatch(/^Your answer was empty/)
    lab.model.script({ toolCalls: [call('current_time')] }, empty, empty)
    const failed = await run({}, { allowedTools: ['current_time'] })
    expect(failed.execution).toMatchObject({ status: 'failed', stopReason: 'error' })
    expect(failed.requests).toHaveLength(3)
  })

  test('is none: a call that the model announced and its provider lost, of which the run warns', async () => {
    const choices = [{ index: 0, delta: { content: 'I will look.' }, finish_reason: 'tool_calls' }]
    lab.model.script({ tokens: [event({ choices })], end: 'cut' })
    const { execution } = await run()
    expect(execution).toMatchObject({ status: 'completed', warnings: [{ code: 'cut_off' }] })
    expect(execution.warnings[0].text).toContain('announced a call')
  })

  test('leads to a warning if the caller had requested the parameter', async () => {
    lab.model.fallback = ({ body }) => answers(body, body.seed !== undefined && "Unsupported parameter: 'seed'")
    const { execution } = await run({ modelSettings: { seed: 1 } })
    expect(execution.warnings).toMatchObject([{ code: 'setting_ignored', text: expect.stringContaining('seed (1)') }])
    lab.model.fallback = { tokens: 'A reply.' }
  })
})

describe('settings', () => {
  test('settings of a call win over those of the agent, key by key, and reach the request', async () => {
    const agent = { temperature: 0.1, topP: 0.5, providerOptions: { compatible: { top_k: 5, model: 'other', n: 2 } } }
    const call = { temperature: 0.9, seed: 7, stopSequences: ['END'], reasoningEffort: 'low', maxOutputTokens: 50 }
    const { requests, execution } = await run({ modelSettings: call }, { modelSettings: agent })
    expect(requests[0]).toMatchObject({
      model: model.split('/')[1],
      temperature: 0.9,
      top_p: 0.5,
      top_k: 5,
      seed: 7,
      stop: ['END'],
      reasoning_effort: 'low',
      max_tokens: 50,
    })
    expect(requests[0]).not.toHaveProperty('n')
    expect(execution.warnings).toMatchObject([{ code: 'setting_ignored' }, { code: 'setting_ignored' }])
  })

  test.each([
    [{ temperature: 3 }, 'modelSettings.temperature'],
    [{ reasoningEffort: 'x' }, 'modelSettings.reasoningEffort'],
    [{ maxOutputTokens: 0 }, 'modelSettings.maxOutputTokens'],
    [{ max_tokens: 1 }, 'modelSettings.max_tokens'],
  ])('settings like %j are refused with the name of the field', async (modelSettings, field) => {
    const body = { message: 'Hello', modelSettings }
    const answer = await request(lab.server, 'POST', `/api/v1/agents/${lab.agentId}/execute`, { body })
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(field)
  })
})

describe('fallback models', () => {
  test('are asked in order after retries, for an unknown model and for a missing key', async () => {
    lab.model.script(busy(503), busy(503), busy(503))
    const names = ['offline/nope', 'google/gemini-x', 'compatible/second']
    const { execution } = await run({ fallbackModels: names })
    expect(execution).toMatchObject({ status: 'completed', model: 'compatible/second' })
    expect(execution.modelsTried).toEqual([model, 'offline/nope', 'google/gemini-x'])
    expect(execution.warnings.map(({ code }: { code: string }) => code)).toContain('model_fallback')
    const logged = lab.server.logs.filter((line) => line.includes(execution.id) && line.includes('another model'))
    expect(logged.map((line) => JSON.parse(line).detail)).toEqual(
      execution.warnings.map(({ text }: { text: string }) => text),
    )
  })

  test('are not asked after a refusal, or if none is listed', async () => {
    lab.model.script(busy(401))
    expect((await run({ fallbackModels: ['compatible/second'] })).execution).toMatchObject({ status: 'failed', model })
    expect((await run({ model: 'google/gemini-x' })).execution.status).toBe('failed')
  })
})

describe('a request that is too long', () => {
  const LIMIT = 3_000
  const tooLong = (body: ModelRequest['body']) => {
    const tokens = Math.round(JSON.stringify(body.messages).length / 4)
    return tokens > LIMIT && `This model's maximum context length is ${LIMIT} tokens. You requested ${tokens} tokens.`
  }

  test('is sent again without the oldest turns, and the next run uses the learned size', async () => {
    lab.model.fallback = ({ body }) => answers(body, tooLong(body))
    const agentId = await createAgent(lab.server, { model })
    let sessionId: string | undefined
    const asked: number[] = []
    for (let turn = 0; turn < 7; turn++) {
      const before = lab.model.requests.length
      const body = { message: `${turn} ${'x'.repeat(3_000)}`, ...(sessionId && { sessionId }) }
      const answer = await request(lab.server, 'POST', `/api/v1/agents/${agentId}/execute`, { body })
      expect(answer.status).toBe(200)
      sessionId = answer.body.sessionId
      asked.push(lab.model.requests.length - before)
    }
    expect(asked.filter((requests) => requests > 1)).toHaveLength(1)
    lab.model.fallback = { tokens: 'A reply.' }
  })

  test('is sent again without the oldest turns if the window left no room for an answer', async () => {
    const agentId = await createAgent(lab.server, { model })
    const path = `/api/v1/agents/${agentId}/execute`
    const first = await request(lab.server, 'POST', path, { body: { message: `old ${'x'.repeat(6_000)}` } })
    const choices = [{ index: 0, delta: { content: '' }, finish_reason: 'model_context_window_exceeded' }]
    lab.model.script({ tokens: [event({ choices })], end: 'cut' }, { tokens: 'Fine.' })
    const { body } = await request(lab.server, 'POST', path, {
      body: { message: 'new', sessionId: first.body.sessionId },
    })
    expect(body.result).toBe('Fine.')
    expect(JSON.stringify(lab.model.requests.at(-1)?.body.messages)).not.toContain('old xxx')
  })

  test('is shortened beforehand if the agent states the context window', async () => {
    const agentId = await createAgent(lab.server, { model, contextWindow: 2_000 })
    const path = `/api/v1/agents/${agentId}/execute`
    const first = await request(lab.server, 'POST', path, { body: { message: `old ${'x'.repeat(6_000)}` } })
    const before = lab.model.requests.length
    const { sessionId } = first.body
    await request(lab.server, 'POST', path, { body: { message: 'new', sessionId } })
    const messages = JSON.stringify(lab.model.requests[before]?.body.messages)
    expect(messages).toContain('new')
    expect(messages).not.toContain('old xxx')
  })

  test('keeps the system prompt of a model without a system role', async () => {
    lab.model.fallback = ({ body }) => answers(body, body.messages[0]?.role === 'system' && 'System role not supported')
    const agentId = await createAgent(lab.server, { model, contextWindow: 2_000 })
    const path = `/api/v1/agents/${agentId}/execute`
    const first = await request(lab.server, 'POST', path, { body: { message: `old ${'x'.repeat(6_000)}` } })
    await request(lab.server, 'POST', path, { body: { message: 'new', sessionId: first.body.sessionId } })
    expect(lab.model.requests.at(-1)?.body.messages).toEqual([{ role: 'user', content: 'You are Ada.\n\nnew' }])
    lab.model.fallback = { tokens: 'A reply.' }
  })

  test('is shortened without separating a call from its result, and results are cut last', () => {
    const user = (text: string) => ({ role: 'user' as const, content: [{ type: 'text' as const, text }] })
    const call = { type: 'tool-call' as const, toolCallId: 'c', toolName: 't', input: {} }
    const output = { type: 'text' as const, value: 'y'.repeat(20_000) }
    const result = { type: 'tool-result' as const, toolCallId: 'c', toolName: 't', output }
    const step = [
      { role: 'assistant' as const, content: [call] },
      { role: 'tool' as const, content: [result] },
    ]
    const prompt = [{ role: 'system' as const, content: 's' }, user('old'), ...step, user('new'), ...step]
    const short = shorten(prompt, 4, 5_000)
    expect(short.map(({ role }) => role)).toEqual(['system', 'user', 'assistant', 'tool'])
    expect(JSON.stringify(short).length).toBeLessThan(6_000)
    expect(shorten(prompt, 4, 1_000_000)).toBe(prompt)
  })
})

const picture = (data: string) => ({
  type: 'file' as const,
  mediaType: 'image/png',
  filename: `${data}.png`,
  data: { type: 'data' as const, data: Buffer.from(data) },
})
const NOTHING = { question: 0, tools: [], settings: {}, hasOutput: false, fields: {}, isCompatible: true }
const offer = (name: string, properties: NonNullable<JSONSchema7['properties']> = {}) => ({
  type: 'function' as const,
  name,
  description: '',
  inputSchema: { type: 'object', properties } as JSONSchema7,
})

test('later turns leave out what a content filter blocked, and keep the calls of that run', async () => {
  const id = await createAgent(lab.server, { model, allowedTools: ['current_time'] })
  const blocked = { error: { status: 400, message: 'The prompt triggered the content management policy' } }
  lab.model.script({ toolCalls: [{ id: 'call', name: 'current_time', input: {} }] }, blocked)
  const execute = async (body: object) => {
    const path = `/api/v1/agents/${id}/execute`
    const accepted = await request(lab.server, 'POST', path, { body: { ...body, background: true } })
    await ended(lab.engine, await lab.row(accepted.body.executionId))
    return (await request(lab.server, 'GET', `/api/v1/executions/${accepted.body.executionId}`)).body.execution
  }
  const { sessionId, errorCode } = await execute({ message: 'Poison' })
  expect(errorCode).toBe('content_filtered')
  await execute({ message: 'Next', sessionId })
  const [, ...messages] = lab.model.requests.at(-1)?.body.messages ?? []
  const left = '[Left out: the content filter of the provider blocked it]'
  expect(messages).toMatchObject([
    { role: 'user', content: left },
    { role: 'assistant', tool_calls: [{ function: { name: 'current_time', arguments: '{}' } }] },
    { role: 'tool', content: left },
    { role: 'assistant', content: '[The turn ended here, without an answer]' },
    { role: 'user', content: 'Next' },
  ])
  const empty = { tokens: [event({ choices: [{ finish_reason: 'content_filter' }] })], end: 'cut' as const }
  for (const again of [blocked, empty]) {
    lab.model.script(again, { tokens: 'Fine.' })
    const { result, warnings } = await execute({ message: 'Last', sessionId })
    expect([result, warnings]).toMatchObject(['Fine.', [{ code: 'history_cut' }]])
    const contents = lab.model.requests.at(-1)?.body.messages.slice(1, 3)
    expect(contents).toMatchObject([{ content: 'Next' }, { role: 'assistant' }])
  }
})

test('a file that the provider cannot read is left out in later turns, and others are sent', () => {
  const turn = (data: string) => ({ role: 'user' as const, content: [picture(data)] })
  const failure = { kind: 'refused', field: null, detail: 'HTTP 400: Could not process image' } as ModelFailure
  const [change] = changesFor(failure, { prompt: [turn('broken')], ...NOTHING }) as [Change]
  expect([isOfModel(change), isOfSession(change)]).toEqual([false, true])
  const [first, second] = changePrompt([turn('broken'), turn('good')], new Set([change]))
  expect(first?.content).toEqual([{ type: 'text', text: expect.stringContaining('broken.png') }])
  expect(second).toEqual(turn('good'))
})

test('reasoning with a wrong signature is left out of one run only', () => {
  const reasoning = { type: 'reasoning' as const, text: 'Hm.' }
  const prompt = [{ role: 'assistant' as const, content: [reasoning, { type: 'text' as const, text: 'Hi' }] }]
  const changeOf = (detail: string) =>
    changesFor({ kind: 'refused', field: null, detail } as ModelFailure, { prompt, ...NOTHING })[0] as Change
  const change = changeOf('HTTP 400: Invalid `signature` in `thinking` block')
  expect(isOfModel(change)).toBe(false)
  expect(changePrompt(prompt, new Set([change]))[0]?.content).toEqual([{ type: 'text', text: 'Hi' }])
  expect(isOfModel(changeOf("HTTP 400: 'messages.1' : property 'reasoning' is unsupported"))).toBe(true)
  for (const detail of [
    'HTTP 400: The encrypted content gAAA could not be verified.',
    'HTTP 400: messages.1.content.2: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.',
  ])
    expect(changeOf(detail)).toBe('reasoning:here')
})

test.each([
  'messages.1.content: Input should be a valid string',
  'messages[1]: unknown variant `thinking`, expected `text`',
  'Message content as a list is only supported for user messages.',
])('reasoning in the parts of a content is left out after "%s"', (detail) => {
  const providerOptions = { compatible: { field: 'content', content_parts: [{ type: 'thinking', thinking: 'Hm' }] } }
  const reasoning = { type: 'reasoning' as const, text: 'Hm', providerOptions }
  const call = { type: 'tool-call' as const, toolCallId: 'c', toolName: 'one', input: {} }
  const failure = { kind: 'refused', field: null, detail: `HTTP 400: ${detail}` } as ModelFailure
  const changeOf = (parts: (typeof reasoning | typeof call)[]) =>
    changesFor(failure, { ...NOTHING, isCompatible: true, prompt: [{ role: 'assistant', content: parts }] })[0]
  expect(changeOf([reasoning, call])).toBe('reasoning')
  expect(changeOf([call])).not.toBe('reasoning')
})

test('tools that are refused beside another part of a request are left out of one run only', () => {
  const call = { type: 'tool-call' as const, toolCallId: 'c', toolName: 'one', input: {} }
  const prompt = [{ role: 'assistant' as const, content: [call, { type: 'text' as const, text: 'Hi' }] }]
  const changes = new Set<Change>(['tools:here'])
  expect([isOfModel('tools:here'), isOfModel('tools:9'), isOfModel('tools')]).toEqual([false, true, true])
  expect(changePrompt(prompt, changes)[0]?.content).toEqual([{ type: 'text', text: 'Hi' }])
  expect(changeTools([offer('one')], changes)).toEqual([])
})

test.each([
  'The toolConfig field must be defined when using toolUse and toolResult content blocks.',
  "Bedrock doesn't support tool calling without `tools=` param specified.",
  'Requests which include `tool_use` or `tool_result` blocks must define tools',
])('earlier calls are left out of a run without tools after "%s"', (detail) => {
  const call = { type: 'tool-call' as const, toolCallId: 'c', toolName: 'one', input: {} }
  const prompt = [{ role: 'assistant' as const, content: [call, { type: 'text' as const, text: 'Hi' }] }]
  const failure = { kind: 'refused', field: null, detail } as ModelFailure
  const [change] = changesFor(failure, { prompt, ...NOTHING }) as [Change]
  expect(isOfModel(change)).toBe(false)
  expect(changePrompt(prompt, new Set([change]))[0]?.content).toEqual([{ type: 'text', text: 'Hi' }])
})

/**
 * Returns the change after an HTTP error of a request with two pictures, two tools, an earlier call, a limit of the
 * answer and a schema for it.
 */
function changeAfter(status: number, message: string, isCompatible = true, param = ''): string | undefined {
  const responseBody = JSON.stringify({ error: { message, param } })
  const failure = classifyModelError(Object.assign(new Error(message), { statusCode: status, responseBody }))
  const call = { type: 'tool-call' as const, toolCallId: 'c', toolName: 'one', input: {} }
  const prompt = [
    { role: 'assistant' as const, content: [call] },
    { role: 'user' as const, content: [picture('a'), picture('b')] },
  ]
  const tools = [offer('one'), offer('two', { any: {} }), offer('get-three')]
  const settings = { maxOutputTokens: 100_000, reasoningEffort: 'low' as const }
  return changesFor(failure, { ...NOTHING, isCompatible, prompt, question: 1, tools, settings, hasOutput: true })[0]
}

test.each([
  [500, 'image input is not supported - hint: you may need to provide the mmproj', 'files'],
  [500, 'failed to process inputs: this model is missing data required for image input', 'files'],
  [500, 'tools param requires --jinja flag', 'tools:flag'],
  [400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', 'tools:flag'],
  [500, 'Jinja Exception: System role not supported', 'system'],
  [500, 'The server had an error while processing your request', undefined],
  [500, "Expected 'content' to be a string or an array", 'empty_content'],
  [500, 'Value is not callable: null at row 1, column 72', 'empty_content'],
  [400, 'can only concatenate str (not "NoneType") to str', 'empty_content'],
  [400, "Message at index 3 with role 'tool' must have a name", 'tool_names'],
  [400, 'This model only supports single tool-calls at once!', 'single_calls'],
  [500, 'This model only supports single tool-calls at once!', 'single_calls'],
  [400, 'tool_use ids were found without tool_result blocks immediately after', undefined],
  [400, 'Failed to load image: illegal base64 data', expect.stringMatching(/^files:/)],
  [422, 'messages.1.reasoning_content: Extra inputs are not permitted', undefined],
  [400, 'think value "low" is not supported for this model', 'reasoningEffort'],
  [503, 'This model does not support tools', undefined],
  [400, 'Unknown parameter: tools', 'tools'],
  [400, 'Failed to fetch tools: Not yet implemented', 'tools'],
  [400, "Unsupported parameter: 'tools' is not supported with this model.", 'tools'],
  [400, 'Tool use with function calling is not supported together with web search', 'tools:here'],
  [400, 'Tools are not supported when audio is in the request', 'tools:here'],
  [
    400,
    "Invalid 'tools': array too long. Expected an array with maximum length 1, but got one with length 2.",
    'tools:1',
  ],
  [400, 'You uploaded an unsupported image. Please make sure your image is valid.', expect.stringMatching(/^files:/)],
  [400, 'The image data you provided does not represent a valid image.', expect.stringMatching(/^files:/)],
  [
    400,
    'The provided URL does not appear to be valid. Ensure it is correctly formatted.',
    expect.stringMatching(/^files:/),
  ],
  [400, '图片输入格式/解析错误', expect.stringMatching(/^files:/)],
  [400, 'messages[1]: data did not match any variant of untagged enum ChatCompletionRequestContent', 'files'],
  [400, 'Unsupported MIME type: image/gif', expect.stringMatching(/^files:/)],
  [
    400,
    "image.source.base64.media_type: Input should be 'image/jpeg' or 'image/png'",
    expect.stringMatching(/^files:/),
  ],
  [400, 'it has a mimeType parameter with value image/gif, which is not supported.', expect.stringMatching(/^files:/)],
  [400, 'Unsupported content type: input_file', 'files'],
  [400, 'Invalid API parameter, please check the documentation.', undefined],
  [400, 'Image does not match the provided media type image/png', expect.stringMatching(/^files:/)],
  [422, 'messages.1.content: str type expected', 'files'],
  [400, 'At most 1 image(s) may be provided in one request.', 'latest_files:1'],
  [400, 'Too many media: 2 > 1', 'latest_files:1'],
  [400, 'At most 0 image(s) may be provided in one request.', 'files'],
  [400, "This model doesn't support tool use in streaming mode.", 'stream'],
  [400, 'stream_options is only allowed when streaming', 'stream_options'],
  [400, "Unsupported value: 'low' is not supported with the 'x' model. Supported: 'high'", 'reasoningEffort'],
  [400, "Unsupported value: 'high' is not supported with the 'x' model. Supported values: 'low'", undefined],
  [400, "'messages' array must only contain objects with a 'content' field that is not empty", 'blank_content'],
  [400, 'json mode cannot be combined with tool/function calling', 'output'],
  [400, 'This model does not support response format `json_schema`', 'output'],
  [400, 'The provided JSON schema contains features not supported by xgrammar.', 'output:schema'],
  [400, "response_format: Unsupported JSON schema fields: {'minItems'}", 'output:schema'],
  [400, 'The compiled grammar is too large. Reduce the number of strict tools.', 'output:schema'],
  [
    400,
    "tools.function.parameters is not a valid moonshot flavored json schema: 'any': type is not defined",
    'schemas',
  ],
  [400, 'invalid message content type: <nil>', 'empty_content'],
  [422, 'messages.1.content: Input should be a valid string', 'empty_content'],
  [400, 'messages[2].content: invalid type: null, expected a string at line 1 column 300', 'empty_content'],
  [400, "'messages.2' : for 'role:assistant' ['messages.2.content' : value must be a string]", 'empty_content'],
  [400, 'tools[2].function.name: the name of a tool can only contain letters, digits and _', 'plain_names'],
  [400, "'NoneType' object is not iterable", 'empty_content'],
  [400, '<400> InternalError.Algo.InvalidParameter: The content field is a required field.', 'empty_content'],
  [422, 'messages[2]: missing field `content` at line 1 column 500', 'empty_content'],
  [400, 'Error rendering prompt: Cannot apply filter "string" to type: NullValue', 'empty_content'],
  [400, 'messages.2.content: String should have at least 1 character', 'blank_content'],
  [400, "the message at position 2 with role 'assistant' must not be empty", 'blank_content'],
  [400, 'messages: text content blocks must be non-empty', 'blank_content'],
  [400, 'messages: text content blocks must contain non-whitespace text', 'filled_content'],
  [400, 'The text field in the ContentBlock object at messages.2.content.0 is blank. Add text.', 'filled_content'],
  [400, "text content is not allowed when tool_calls are provided: 'messages[2].content'", 'calls_alone'],
  [422, "unknown field: parameter 'strict' is not a valid field.", 'output'],
  [400, 'Assistant message must have either content or tool_calls, but not both.', 'calls_alone'],
  [
    400,
    'The referenced name `#/$defs/A` in function_response.response does not match to a display_name in the function_response.parts.',
    'plain_references',
  ],
  [400, 'Invalid input: expected string, received array (messages[1].content)', 'files'],
  [402, 'This request requires more credits, or fewer max_tokens. You can only afford 7321.', 'afford:7321'],
  [402, 'This request requires more credits, or fewer max_tokens. You can only afford 73.', undefined],
  [400, 'thinking is enabled but reasoning_content is missing in assistant tool call message', 'add_reasoning'],
  [400, 'Function call is missing a thought_signature in functionCall parts.', 'signatures'],
  [400, 'Corrupted thought signature.', 'signatures:here'],
  [400, 'contents[2].parts[0].function_response.name: Name cannot be empty.', 'tool_names'],
  [400, 'function_declarations[1].parameters.properties: should be non-empty for OBJECT type', 'empty_inputs'],
  [400, 'Function tools with reasoning_effort are not supported for gpt-x in /v1/chat/completions.', 'no_effort'],
  [400, 'max_tokens is too large: 100000. This model supports at most 16384 completion tokens', 'max_tokens:16384'],
  [400, 'Invalid max_tokens value, the valid range of max_tokens is [1, 8192]', 'max_tokens:8192'],
  [400, '`max_tokens` must be less than or equal to `32768`', 'max_tokens:32768'],
  [400, 'max_tokens is too large for this model; maximum 8192', 'max_tokens:8192'],
  [400, 'max_tokens (100000) cannot exceed 16384', 'max_tokens:16384'],
  [400, 'max_output_tokens must be between 16 and 32000', 'max_tokens:32000'],
  [422, "messages.0.role: Input should be 'user' or 'assistant'", 'system'],
  [400, 'max_tokens (100000) exceeds the maximum allowed 8192', 'max_tokens:8192'],
  [
    400,
    "'max_tokens' is too large: 8000. This model's maximum context length is 4096 tokens and your request has 100 input tokens (8000 > 4096 - 100).",
    'answer:3994',
  ],
  [
    400,
    "This model's maximum context length is 8192 tokens. However, you requested 8300 tokens (200 in the messages, 8100 in the completion).",
    'answer:7988',
  ],
  [
    400,
    "This endpoint's maximum context length is 8192 tokens. However, you requested about 8400 tokens (100 of text input, 200 of tool input, 8100 in the output).",
    'answer:7886',
  ],
  [
    400,
    '`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 100 `inputs` tokens and 8100 `max_new_tokens`',
    'answer:3994',
  ],
  [400, 'input length and `max_tokens` exceed context limit: 150000 + 64000 > 200000', 'answer:47000'],
  [400, 'input length and `max_tokens` exceed context limit: 199000 + 64000 > 200000', undefined],
])('a rejection with %i and "%s" changes the next request: %s', (status, message, change) => {
  expect(changeAfter(status, message)).toEqual(change)
})

test.each<[string, string, string?]>([
  ['Invalid JSON payload. Unknown name "id" at \'contents[1].parts[0].function_call\'', 'parts:id'],
  ['function_declarations[1].parameters.properties: should be non-empty for OBJECT type', 'older_parameters'],
  ['thinking is enabled but reasoning_content is missing in assistant tool call message at index 2', 'add_reasoning'],
  ['The `content[].thinking` in the thinking mode must be passed back to the API.', 'add_reasoning'],
  ['The maximum tokens you requested exceeds the model limit of 4096.', 'max_tokens:4096'],
  ['Instructions are required', 'instructions'],
  ["Invalid 'input[2].id': string too long. Expected a string with maximum length 64", 'item_ids', 'input[2].id'],
  ['Encrypted content is not supported with this model.', 'omit:include'],
  ["Invalid schema for response_format 'answer': got 'type: \"array\"'.", 'output:schema', 'text.format.schema'],
  ["output_config.format.schema: 'additionalProperties' must be explicitly set to false", 'output:schema'],
  ['Argument not supported on this model: store', 'omit:store'],
  ['thinking.type.enabled is not supported. Use adaptive and output_config.effort.', 'reasoningEffort'],
  ['messages.0.content: Input should be a valid string', 'plain_content'],
  [
    "240 validation errors: {'loc': ('body', 'input', 'str'), 'msg': 'Input should be a valid string', 'input': []}",
    'plain_content',
  ],
  ["Input should be 'text' [type=literal_error, input_value='output_text', input_type=str]", 'plain_content'],
  ['anthropic-beta: unsupported beta value `fine-grained-tool-streaming-2025-05-14`', 'omit:anthropic-beta'],
  ['Your organization must be verified to generate reasoning summaries.', 'omit:summary', 'reasoning.summary'],
])('a rejection of a package\'s request with "%s" changes the next one: %s', (message, change, param) => {
  expect(changeAfter(400, message, false, param)).toBe(change)
})

test.each([
  ['Input should be a valid string', 'pictures_apart'],
  ['Invalid input', 'pictures_apart'],
  ["This model doesn't support the image field for user messages. Remove image and try again.", 'pictures_apart'],
  ['Could not process image', expect.stringMatching(/^files:/)],
])('a rejection of a picture in a result with "%s" changes the next request: %s', (message, change) => {
  const detail = `HTTP 400: ${message}`
  const failure = { kind: 'refused', field: null, detail, status: 400 } as ModelFailure
  const output = { type: 'content' as const, value: [picture('a')] }
  const content = [{ type: 'tool-result' as const, toolCallId: 'c', toolName: 'one', output }]
  const prompt = [{ role: 'tool' as const, content }]
  expect(changesFor(failure, { ...NOTHING, isCompatible: false, prompt })[0]).toEqual(change)
})

test('a request of more bytes than Gemini takes, which refuses it with 400, leaves out files', () => {
  const detail = 'HTTP 400: Request payload size exceeds the limit: 20971520 bytes.'
  const failure = { kind: 'context_too_long', field: null, detail, status: 400, contextWindow: null } as ModelFailure
  const prompt = [{ role: 'user' as const, content: [picture('a')] }]
  expect(changesFor(failure, { ...NOTHING, isCompatible: false, prompt })).toEqual([
    expect.stringMatching(/^large_files:/),
  ])
})

test.each([
  ['half of the files', ['a', 'b', 'c'], 0, 'text,file,file'],
  ['all of them then', ['a', 'b', 'c'], 1, 'text,text,text'],
  ['a single one', ['a'], 0, 'text'],
])('a request that is too large for a server leaves out %s', (_, names, step, types) => {
  const prompt = [{ role: 'user' as const, content: names.map(picture) }]
  const failure = { kind: 'context_too_long', field: null, detail: 'HTTP 413', status: 413, contextWindow: null }
  const change = changesFor(failure as ModelFailure, { ...NOTHING, prompt })[step] as Change
  const [message] = changePrompt(prompt, new Set([change]))
  const parts = (message?.content ?? []) as { type: string }[]
  expect(parts.map(({ type }) => type).join()).toBe(types)
})

test('tools stay where only several calls at once are refused, which the settings demand', () => {
  const failure = { kind: 'unsupported', field: 'tools', detail: 'HTTP 400: Parallel tool calls are not supported' }
  const asked = { ...NOTHING, prompt: [], tools: [offer('one')], settings: { parallelToolCalls: true } }
  expect(changesFor(failure as ModelFailure, asked)).toEqual(['parallelToolCalls'])
})

test('a model with limits gets the latest files and the first tools with the plainest schemas', () => {
  const prompt = [{ role: 'user' as const, content: [picture('a'), picture('b')] }]
  const [message] = changePrompt(prompt, new Set(['latest_files:1']))
  expect(message?.content).toEqual([{ type: 'text', text: expect.stringContaining('a.png') }, picture('b')])
  const mixed: JSONSchema7 = { anyOf: [{ type: 'null' }, { type: 'integer', minimum: 1 }] }
  const tools = [offer('one', { any: {}, mixed, list: { type: 'array', items: {} } }), offer('two')]
  const [plain, ...others] = changeTools(tools, new Set(['schemas', 'tools:1']))
  expect(others).toEqual([])
  expect(plain?.inputSchema.properties).toEqual({
    any: { type: 'string' },
    mixed: { type: 'integer' },
    list: { type: 'array', items: { type: 'string' } },
  })
})

test('tools have underscores for hyphens where it is demanded, unless a name is taken', () => {
  const names = changeTools([offer('a-b'), offer('c-d'), offer('c_d')], new Set(['plain_names'])).map(
    ({ name }) => name,
  )
  expect(names).toEqual(['a_b', 'c-d', 'c_d'])
  const call = { type: 'tool-call' as const, toolCallId: 'c', toolName: 'a-b', input: {} }
  const [message] = changePrompt([{ role: 'assistant', content: [call] }], new Set(['plain_names']))
  expect(message?.content).toEqual([{ ...call, toolName: 'a_b' }])
})

test('a model that does not reason beside tools stops reasoning only where tools are offered', () => {
  const changes = new Set<Change>(['no_effort'])
  const body = { messages: [], reasoning_effort: 'low', tools: [{ type: 'function' }] }
  expect(changeBody(body, {}, changes)).toMatchObject({ reasoning_effort: 'none' })
  expect(changeBody({ ...body, tools: [] }, {}, changes)).toMatchObject({ reasoning_effort: 'low' })
  expect(isOfModel('no_effort')).toBe(true)
  expect(warningOf('no_effort', { model: 'a/b', settings: {}, hasFiles: false })?.text).toContain('a/b does not reason')
})

test('what a server without a flag refused is not remembered, and its warning names the flag', () => {
  expect(isOfModel('tools:flag')).toBe(false)
  expect(changeTools([offer('one')], new Set(['tools:flag']))).toEqual([])
  const warning = warningOf('tools:flag', { model: 'a/b', settings: {}, hasFiles: false })
  expect(warning).toMatchObject({ code: 'tool_missing', text: expect.stringContaining('--enable-auto-tool-choice') })
})

test('no more than 200 lessons of a model are kept, since callers choose the values of settings', () => {
  const knowledge = createModelKnowledge({ now: () => new Date(0) })
  for (let at = 0; at < 300; at++) knowledge.learn('one a/b', { changes: [`seed ${at}`] })
  const { changes } = knowledge.of('one a/b')
  expect([changes.size, changes.has('seed 299'), changes.has('seed 99')]).toEqual([200, true, false])
})

test('lessons are forgotten if the providers of their organization change', () => {
  const knowledge = createModelKnowledge({ now: () => new Date(0) })
  const learn = () => {
    for (const key of ['one a/b', 'two a/b']) knowledge.learn(key, { changes: ['system'] })
  }
  const left = () => ['one a/b', 'two a/b'].filter((key) => knowledge.of(key).changes.size)
  learn()
  knowledge.forget(['one'])
  expect(left()).toEqual(['two a/b'])
  learn()
  knowledge.forget(null)
  expect(left()).toEqual([])
})

test('a provider that failed five times in 30 s is skipped for 30 s', () => {
  let now = 0
  const breaker = createBreaker({ now: () => new Date(now) })
  for (let failures = 0; failures < 4; failures++) breaker.failed('a')
  expect(breaker.isOpen('a')).toBe(false)
  now = 29_000
  breaker.failed('a')
  expect([breaker.isOpen('a'), breaker.isOpen('b')]).toEqual([true, false])
  now = 59_001
  expect(breaker.isOpen('a')).toBe(false)
  for (let failures = 0; failures < 4; failures++) breaker.failed('a')
  now = 95_000
  breaker.failed('a')
  expect(breaker.isOpen('a')).toBe(false)
})

test("Google's older field for the inputs of tools has no empty lists of properties", () => {
  const schema = { type: 'object', properties: { any: {}, inner: { type: 'object', properties: {} } } }
  const functionDeclarations = [
    { name: 'one', parametersJsonSchema: schema },
    { name: 'two', parametersJsonSchema: { type: 'object', properties: {} } },
  ]
  const tools = [{ googleSearch: {} }, { functionDeclarations }]
  const properties = { any: { type: 'string' }, inner: { type: 'object' } }
  expect(changePackagedBody({ tools }, new Set(['older_parameters'])).tools).toEqual([
    { googleSearch: {} },
    { functionDeclarations: [{ name: 'one', parameters: { type: 'object', properties } }, { name: 'two' }] },
  ])
})

test.each<[change: Change, before: object, after: object]>([
  [
    'add_reasoning',
    { messages: [{ role: 'assistant', content: 'Hi' }] },
    { messages: [{ role: 'assistant', content: 'Hi', reasoning_content: ' ' }] },
  ],
  [
    'blank_content',
    { messages: [{ role: 'assistant', content: null, tool_calls: [] }] },
    { messages: [{ role: 'assistant', content: ' ', tool_calls: [] }] },
  ],
  [
    'filled_content',
    { messages: [{ role: 'assistant', content: null, tool_calls: [] }] },
    { messages: [{ role: 'assistant', content: '(no text)', tool_calls: [] }] },
  ],
  [
    'empty_content',
    { messages: [{ role: 'assistant', content: null, tool_calls: [] }] },
    { messages: [{ role: 'assistant', content: '', tool_calls: [] }] },
  ],
  [
    'signatures',
    { messages: [{ tool_calls: [{ id: 'a' }, { id: 'b', extra_content: 'B' }] }] },
    {
      messages: [
        {
          tool_calls: [
            { id: 'a', extra_content: { google: { thought_signature: 'skip_thought_signature_validator' } } },
            { id: 'b', extra_content: 'B' },
          ],
        },
      ],
    },
  ],
  [
    'signatures:here',
    { messages: [{ tool_calls: [{ id: 'a', extra_content: 'A' }] }] },
    {
      messages: [
        {
          tool_calls: [
            { id: 'a', extra_content: { google: { thought_signature: 'skip_thought_signature_validator' } } },
          ],
        },
      ],
    },
  ],
  [
    'tool_names',
    { messages: [{ tool_calls: [{ id: 'a', function: { name: 'one' } }] }, { role: 'tool', tool_call_id: 'a' }] },
    {
      messages: [
        { tool_calls: [{ id: 'a', function: { name: 'one' } }] },
        { role: 'tool', tool_call_id: 'a', name: 'one' },
      ],
    },
  ],
  [
    'single_calls',
    {
      messages: [
        { role: 'assistant', content: 'x', tool_calls: [{ id: 'a' }, { id: 'b' }] },
        ...['a', 'b'].map((id) => ({ role: 'tool', tool_call_id: id })),
      ],
    },
    {
      messages: [
        { role: 'assistant', content: 'x', tool_calls: [{ id: 'a' }] },
        { role: 'tool', tool_call_id: 'a' },
        { role: 'assistant', content: null, tool_calls: [{ id: 'b' }] },
        { role: 'tool', tool_call_id: 'b' },
      ],
    },
  ],
  [
    'empty_inputs',
    { messages: [], tools: [{ type: 'function', function: { name: 'one', parameters: { properties: {} } } }] },
    { messages: [], tools: [{ type: 'function', function: { name: 'one' } }] },
  ],
  ['answer:50', { messages: [], max_tokens: 100 }, { messages: [], max_tokens: 50 }],
  ['afford:50', { messages: [] }, { messages: [], max_tokens: 50 }],
  ['afford:50', { messages: [], max_tokens: 40 }, { messages: [], max_tokens: 40 }],
  [
    'calls_alone',
    { messages: [{ content: 'Hi' }, { content: 'Hi', tool_calls: [{ id: 'a' }] }] },
    { messages: [{ content: 'Hi' }, { content: '', tool_calls: [{ id: 'a' }] }] },
  ],
  [
    'plain_references',
    { messages: [{ role: 'tool', content: '{"$ref":"#/$defs/A"}' }] },
    { messages: [{ role: 'tool', content: '{"ref":"#/$defs/A"}' }] },
  ],
])('the change %s of a request to a compatible server reaches its body', (change, before, after) => {
  expect(JSON.parse(JSON.stringify(changeBody({ ...before }, {}, new Set([change]))))).toEqual(after)
})

test.each<[change: Change | Change[], before: object, after: object]>([
  [
    'signatures',
    { contents: [{ parts: [{ functionCall: {} }, { functionCall: {}, thoughtSignature: 'S' }, { text: 'x' }] }] },
    {
      contents: [
        {
          parts: [
            { functionCall: {}, thoughtSignature: 'skip_thought_signature_validator' },
            { functionCall: {}, thoughtSignature: 'S' },
            { text: 'x' },
          ],
        },
      ],
    },
  ],
  [
    'add_reasoning',
    { messages: [{ role: 'assistant', content: [{ type: 'tool_use' }] }] },
    {
      messages: [
        { role: 'assistant', content: [{ type: 'thinking', thinking: '', signature: '' }, { type: 'tool_use' }] },
      ],
    },
  ],
  [
    'signatures:here',
    {
      contents: [
        {
          parts: [
            { functionCall: {}, thoughtSignature: 'S' },
            { text: 'x', thoughtSignature: 'T' },
          ],
        },
      ],
    },
    {
      contents: [
        { parts: [{ functionCall: {}, thoughtSignature: 'skip_thought_signature_validator' }, { text: 'x' }] },
      ],
    },
  ],
  ['answer:50', { max_output_tokens: 100 }, { max_output_tokens: 50 }],
  [
    'parts:thought_signature',
    { contents: [{ role: 'model', parts: [{ functionCall: { name: 'one', id: 'a' }, thoughtSignature: 'S' }] }] },
    { contents: [{ role: 'model', parts: [{ functionCall: { name: 'one', id: 'a' } }] }] },
  ],
  [
    'parts:id',
    { contents: [{ role: 'model', parts: [{ functionCall: { name: 'one', id: 'a' }, thoughtSignature: 'S' }] }] },
    { contents: [{ role: 'model', parts: [{ functionCall: { name: 'one' }, thoughtSignature: 'S' }] }] },
  ],
  [
    'plain_content',
    {
      input: [
        {
          role: 'assistant',
          content: [
            { type: 'output_text', text: 'a' },
            { type: 'output_text', text: 'b' },
          ],
        },
        { content: [{ type: 'input_image' }] },
      ],
    },
    { input: [{ role: 'assistant', content: 'a\n\nb' }, { content: [{ type: 'input_image' }] }] },
  ],
  [
    'item_ids',
    {
      input: [
        { type: 'reasoning', id: 'rs_1', encrypted_content: 'E' },
        { type: 'function_call', id: 'fc_1', name: 'a' },
      ],
    },
    {
      input: [
        { type: 'reasoning', encrypted_content: 'E' },
        { type: 'function_call', name: 'a' },
      ],
    },
  ],
  [
    'instructions',
    { input: [{ role: 'developer', content: 'Be kind.' }, { role: 'user' }] },
    { input: [{ role: 'user' }], instructions: 'Be kind.' },
  ],
  [
    ['item_ids', 'instructions', 'plain_content'],
    {
      input: [
        { role: 'developer', content: 'Be kind.' },
        { role: 'user', content: [{ text: 'Hi' }] },
        { type: 'function_call', id: 'fc_1' },
      ],
    },
    { instructions: 'Be kind.', input: [{ role: 'user', content: 'Hi' }, { type: 'function_call' }] },
  ],
  [
    ['signatures', 'parts:id'],
    { contents: [{ role: 'model', parts: [{ functionCall: { id: 'a', name: 'b' } }] }] },
    {
      contents: [
        {
          role: 'model',
          parts: [{ functionCall: { name: 'b' }, thoughtSignature: 'skip_thought_signature_validator' }],
        },
      ],
    },
  ],
])("the change %s of a package's request reaches its body", (change, before, after) => {
  expect(changePackagedBody(before as never, new Set([change].flat()))).toEqual(after)
})
