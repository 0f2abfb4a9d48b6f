import { beforeEach, describe, expect, test } from 'vitest'
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
      [
        'presence_penalty',
        'Model grok-4 does not support parameter presencePenalty.',
        (body) => body.presence_penalty !== undefined,
        { providerOptions: { compatible: { presence_penalty: 0.5 } } },
      ],
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

  test('is repeated after a change that did not help, which is no lesson then', async () => {
    const refused = "'response_format' and 'temperature' are wrong"
    const output = { schema: { type: 'object', properties: {}, additionalProperties: false } }
    lab.model.fallback = ({ body }) => (body.temperature === undefined ? { tokens: '{}' } : answers(body, refused))
    const first = await run({ output, modelSettings: { temperature: 1 } })
    expect(first.requests.map((body) => ['response_format' in body, 'temperature' in body])).toEqual([
      [true, true],
      [false, true],
      [false, false],
    ])
    const [next] = (await run({ output })).requests
    expect(next).toHaveProperty('response_format')
    lab.model.fallback = { tokens: 'A reply.' }
  })

  test.each([
    ['Failed to call a function.', 'tool_use_failed'],
    [
      "Tool call validation failed: parameters for tool two did not match schema: errors: [missing properties: 'q'].",
      '',
    ],
    ['Tool choice is none, but model called a tool.', 'tool_use_failed'],
    ['Failed to generate tool_calls. Please adjust your prompt.', 'tool_generation_failed'],
  ])('is none: "%s", after which the model is told that its answer could not be read', async (message, code) => {
    const body = JSON.stringify({ error: { message, code, param: 'tools', failed_generation: '<function=two>' } })
    const refused = { error: { status: 400, body } }
    lab.model.script(refused, { tokens: 'Fine.' })
    const { execution, requests } = await run()
    expect(execution).toMatchObject({ status: 'completed', result: 'Fine.', warnings: [] })
    expect(requests).toHaveLength(2)
    const [first, second] = requests.map(({ messages }) => messages.at(-1)!.content)
    expect(second).toBe(
      `${first}\n\nYour answer could not be read. If you call a tool, use its name and inputs as they are offered.`,
    )
    lab.model.script(refused, refused)
    const error = `HTTP 400: ${message} The answer was: <function=two>. Send the message again, or choose another model`
    expect((await run()).execution).toMatchObject({ status: 'failed', error, warnings: [] })
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

  test('is none: a failure inside an answer for an unknown reason, asked for once more', async () => {
    const message = 'an error was encountered while running the model: CUDA error: out of memory'
    const failed = { tokens: [event({ error: { message, type: 'api_error' } })], end: 'cut' as const }
    lab.model.script(failed, { tokens: 'Fine.' })
    const { execution, requests } = await run()
    expect(execution).toMatchObject({ status: 'completed', result: 'Fine.' })
    expect(requests[1]).toEqual(requests[0])
    lab.model.script(failed, failed)
    expect((await run()).execution).toMatchObject({ status: 'failed', error: message })
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

  test('are asked if a model sends an empty answer twice', async () => {
    lab.model.script({ tokens: [] }, { tokens: [] }, { tokens: 'Fine.' })
    const { execution, requests } = await run({ fallbackModels: ['compatible/second'] })
    expect(execution).toMatchObject({ status: 'completed', result: 'Fine.', model: 'compatible/second' })
    expect([execution.modelsTried, requests.map((body) => body.model)]).toEqual([
      [model],
      [model.slice(11), model.slice(11), 'second'],
    ])
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
