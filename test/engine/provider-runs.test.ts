import { describe, expect, it } from 'vitest'
import { type Bytes, startByteServer } from '../support/byte-server.ts'
import { request } from '../support/rest.ts'
import { use } from '../support/use.ts'
import { followed } from './lab.ts'
import { messagesOf, results, startToolLab } from './tool-lab.ts'

// Whole runs with the three APIs that provider packages read, against a server that writes exact bytes.

const server = await use(startByteServer())
const { origin } = server
const toolLab = await use(
  startToolLab({
    MODEL_RETRIES: '2',
    ANTHROPIC_API_KEY: 'key-a',
    OPENAI_API_KEY: 'key-o',
    GOOGLE_GENERATIVE_AI_API_KEY: 'key-g',
    ANTHROPIC_BASE_URL: origin,
    OPENAI_RESPONSES_BASE_URL: `${origin}/v1`,
    GOOGLE_BASE_URL: origin,
  }),
)

const event = (value: { type: string; [name: string]: unknown }) =>
  `event: ${value.type}\ndata: ${JSON.stringify(value)}\n\n`
const data = (value: unknown) => `data: ${JSON.stringify(value)}\r\n\r\n`

const INPUT = '{"text": "hi"}'

/** Answers of one API, as its documentation shows them. */
type Api = {
  model: string
  fallback: string
  path: RegExp
  /** A whole answer. It used 120 tokens, 100 of them cached, and gave 30, 20 of them thinking. */
  text(content: string): string
  /** An answer with thinking, text, and a call of `echo` with `{text: 'hi'}` or another JSON text. */
  call(input?: string): string
  /** An answer that breaks off after its first words, with an error event; and one whose first event is an error. */
  failing: string
  overloaded: string
  /** The usage that the answer states before it breaks off. */
  usedBefore: { input_tokens: number; output_tokens: number }
  /** An answer that ends with its first event. */
  begun: string
  /** An answer cut by the token limit, a refusal with words, and one without. */
  cut: string
  refused: string
  blocked: string
  /** The body of a refusal with a status. */
  error(message: string): string
  /** Returns the signature of the thinking and the tool result in the next request. */
  back(body: any): { signature: unknown; result: string }
  /** The schema of the answer in a request, and the name of its field. */
  format(body: any): unknown
  formatName: string
}

const anthropic: Api = (() => {
  const usage = { input_tokens: 15, cache_read_input_tokens: 100, cache_creation_input_tokens: 5, output_tokens: 1 }
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model: 'claude-x', content: [], stop_reason: null }
  const start = event({ type: 'message_start', message: { ...message, usage } })
  const block = (index: number, content_block: object, ...deltas: object[]) =>
    event({ type: 'content_block_start', index, content_block }) +
    deltas.map((delta) => event({ type: 'content_block_delta', index, delta })).join('') +
    event({ type: 'content_block_stop', index })
  const says = (text: string, index = 0) => block(index, { type: 'text', text: '' }, { type: 'text_delta', text })
  const ends = (stop_reason: string) =>
    event({ type: 'message_delta', delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 30 } }) +
    event({ type: 'message_stop' })
  const failed = (type: string, message: string) => event({ type: 'error', error: { type, message } })
  return {
    model: 'anthropic/claude-x',
    fallback: 'anthropic/claude-y',
    path: /^\/v1\/messages$/,
    text: (content) => start + event({ type: 'ping' }) + says(content) + ends('end_turn'),
    call: (input = INPUT) =>
      start +
      block(
        0,
        { type: 'thinking', thinking: '', signature: '' },
        { type: 'thinking_delta', thinking: 'Hm' },
        { type: 'thinking_delta', thinking: '.' },
        { type: 'signature_delta', signature: 'SIG' },
      ) +
      says('Let me see.', 1) +
      block(
        2,
        { type: 'tool_use', id: 'toolu_01', name: 'echo', input: {} },
        { type: 'input_json_delta', partial_json: '' },
        { type: 'input_json_delta', partial_json: input.slice(0, 8) },
        { type: 'input_json_delta', partial_json: input.slice(8) },
      ) +
      ends('tool_use'),
    failing: start + says('Th') + failed('api_error', 'Internal error'),
    usedBefore: { input_tokens: 120, output_tokens: 1 },
    overloaded: start + failed('overloaded_error', 'Overloaded'),
    begun: start,
    cut: start + says('The answer is') + ends('max_tokens'),
    refused: start + says('I cannot help.') + ends('refusal'),
    blocked: start + ends('refusal'),
    format: ({ output_config }) => output_config?.format.schema,
    formatName: 'output_config.format.schema',
    error: (message) => JSON.stringify({ type: 'error', error: { type: 'overloaded_error', message } }),
    back({ messages }) {
      const [thinking] = messages.at(-2).content
      const [result] = messages.at(-1).content
      return { signature: thinking.signature, result: JSON.stringify(result.content) }
    },
  }
})()

const openai: Api = (() => {
  const usage = {
    input_tokens: 120,
    input_tokens_details: { cached_tokens: 100 },
    output_tokens: 30,
    output_tokens_details: { reasoning_tokens: 20 },
    total_tokens: 150,
  }
  const response = { id: 'resp_1', object: 'response', created_at: 1, status: 'in_progress', model: 'gpt-x' }
  const start =
    event({ type: 'response.created', sequence_number: 0, response: { ...response, output: [] } }) +
    event({ type: 'response.in_progress', sequence_number: 1, response: { ...response, output: [] } })
  const at = (type: string, output_index: number, more: object) =>
    event({ type: `response.${type}`, sequence_number: 9, output_index, ...more })
  const item = (id: string, part: object, more: object = {}) => ({
    type: 'message',
    id,
    status: 'completed',
    role: 'assistant',
    content: [part],
    ...more,
  })
  const says = (text: string, output_index = 0, more: object = {}) => {
    const id = `msg_${output_index}`
    const part = { type: 'output_text', annotations: [], text }
    const of = { item_id: id, content_index: 0 }
    return (
      at('output_item.added', output_index, { item: { ...item(id, part, more), status: 'in_progress', content: [] } }) +
      at('content_part.added', output_index, { ...of, part: { ...part, text: '' } }) +
      at('output_text.delta', output_index, { ...of, delta: text }) +
      at('output_text.done', output_index, { ...of, text }) +
      at('content_part.done', output_index, { ...of, part }) +
      at('output_item.done', output_index, { item: item(id, part, more) })
    )
  }
  const refusal = item('msg_0', { type: 'refusal', refusal: 'I cannot help.' })
  const ends = (status = 'completed', more: object = {}) =>
    event({
      type: `response.${status}`,
      sequence_number: 99,
      response: { ...response, status, usage, output: [], ...more },
    })
  const reasoning = {
    type: 'reasoning',
    id: 'rs_1',
    encrypted_content: 'SIG',
    summary: [{ type: 'summary_text', text: 'Hm.' }],
  }
  const call = { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'echo' }
  return {
    model: 'openai/gpt-x',
    fallback: 'openai/gpt-y',
    path: /^\/v1\/responses$/,
    text: (content) => start + says(content) + ends(),
    call: (input = INPUT) =>
      start +
      at('output_item.added', 0, { item: { ...reasoning, summary: [] } }) +
      at('reasoning_summary_part.added', 0, {
        item_id: 'rs_1',
        summary_index: 0,
        part: { type: 'summary_text', text: '' },
      }) +
      at('reasoning_summary_text.delta', 0, { item_id: 'rs_1', summary_index: 0, delta: 'Hm.' }) +
      at('reasoning_summary_part.done', 0, { item_id: 'rs_1', summary_index: 0, part: reasoning.summary[0] }) +
      at('output_item.done', 0, { item: reasoning }) +
      says('Let me see.', 1, { phase: 'commentary' }) +
      at('output_item.added', 2, { item: { ...call, arguments: '', status: 'in_progress' } }) +
      at('function_call_arguments.delta', 2, { item_id: 'fc_1', delta: input.slice(0, 8) }) +
      at('function_call_arguments.delta', 2, { item_id: 'fc_1', delta: input.slice(8) }) +
      at('function_call_arguments.done', 2, { item_id: 'fc_1', arguments: input }) +
      at('output_item.done', 2, { item: { ...call, arguments: input, status: 'completed' } }) +
      ends(),
    usedBefore: { input_tokens: 120, output_tokens: 30 },
    failing: start + says('Th') + ends('failed', { error: { code: 'server_error', message: 'Internal error' } }),
    overloaded:
      start + event({ type: 'error', code: 'server_error', message: 'Overloaded', param: null, sequence_number: 2 }),
    begun: start,
    cut: start + says('The answer is') + ends('incomplete', { incomplete_details: { reason: 'max_output_tokens' } }),
    refused:
      start +
      at('output_item.added', 0, { item: { ...refusal, status: 'in_progress', content: [] } }) +
      at('refusal.delta', 0, { item_id: 'msg_0', content_index: 0, delta: 'I cannot help.' }) +
      at('refusal.done', 0, { item_id: 'msg_0', content_index: 0, refusal: 'I cannot help.' }) +
      at('output_item.done', 0, { item: refusal }) +
      ends(),
    blocked: start + ends('incomplete', { incomplete_details: { reason: 'content_filter' } }),
    format: ({ text }) => text?.format.schema,
    formatName: "response_format 'answer'",
    error: (message) => JSON.stringify({ error: { message, type: 'server_error', param: null, code: null } }),
    back: ({ input }) => ({
      signature: input.find(({ type }: any) => type === 'reasoning')?.encrypted_content,
      result: JSON.stringify(input.find(({ type }: any) => type === 'function_call_output')?.output),
    }),
  }
})()

const google: Api = (() => {
  const usageMetadata = {
    promptTokenCount: 120,
    cachedContentTokenCount: 100,
    candidatesTokenCount: 10,
    thoughtsTokenCount: 20,
    totalTokenCount: 150,
  }
  const chunk = (parts: object[], finishReason?: string) =>
    data({
      candidates: [{ content: { parts, role: 'model' }, ...(finishReason && { finishReason }), index: 0 }],
      usageMetadata,
      modelVersion: 'gemini-x',
      responseId: 'r',
    })
  const failed = (code: number, status: string, message: string) => data({ error: { code, message, status } })
  return {
    model: 'google/gemini-x',
    fallback: 'google/gemini-y',
    path: /^\/v1beta\/models\/gemini-[xy]:streamGenerateContent\?alt=sse$/,
    text: (content) => chunk([{ text: content }]) + chunk([{ text: '' }], 'STOP'),
    call: (input = INPUT) =>
      chunk([{ text: 'Hm.', thought: true }]) +
      chunk([{ text: 'Let me see.' }]) +
      chunk([{ functionCall: { name: 'echo', args: 'ARGS' }, thoughtSignature: 'SIG' }]).replace('"ARGS"', input) +
      chunk([{ text: '' }], 'STOP'),
    failing: chunk([{ text: 'Th' }]) + failed(500, 'INTERNAL', 'Internal error'),
    usedBefore: { input_tokens: 120, output_tokens: 30 },
    overloaded: failed(503, 'UNAVAILABLE', 'Overloaded'),
    begun: chunk([]),
    cut: chunk([{ text: 'The answer is' }], 'MAX_TOKENS'),
    refused: chunk([{ text: 'I cannot help.' }], 'SAFETY'),
    blocked: data({ promptFeedback: { blockReason: 'PROHIBITED_CONTENT' }, usageMetadata }),
    format: ({ generationConfig }) => generationConfig?.responseJsonSchema,
    formatName: 'generation_config.response_json_schema',
    error: (message) => JSON.stringify([{ error: { code: 503, message, status: 'UNAVAILABLE' } }]),
    back({ contents }) {
      const call = contents.at(-2).parts.find((part: any) => part.functionCall)
      return { signature: call.thoughtSignature, result: JSON.stringify(contents.at(-1).parts) }
    },
  }
})()

/** Runs a message against scripted answers. Returns the execution as REST does, its events, and the requests. */
async function run(answers: (Bytes | string)[], model: string, fields: object = {}) {
  const before = server.requests.length
  server.script(...answers)
  const { lab } = toolLab
  const agent = await toolLab.agent({ model, ...fields })
  const row = await lab.run({ agent, message: 'Hello' })
  const events = await followed(lab.engine, row)
  const { body } = await request(lab.server, 'GET', `/api/v1/executions/${row.id}`)
  return { row, execution: body.execution, events, requests: server.requests.slice(before) }
}

const USED = { input_tokens: 120, output_tokens: 30 }

describe.each(Object.entries({ anthropic, openai, google }))('a run with %s', (name, api) => {
  it("calls a tool, returns the thinking's signature, and counts cached and thinking tokens", async () => {
    const { execution, events, requests } = await run([api.call(), api.text('It said hi.')], api.model)
    expect(execution).toMatchObject({ status: 'completed', result: 'It said hi.', stopReason: 'end_turn' })
    expect(execution).toMatchObject({ usage: { input_tokens: 240, output_tokens: 60 }, usageEstimated: false })
    expect(messagesOf(events)[0]).toMatchObject({
      messageType: 'assistant',
      content: [
        { type: 'thinking', text: 'Hm.' },
        { type: 'text', text: 'Let me see.' },
        { type: 'tool_use', name: 'echo', input: { text: 'hi' } },
      ],
    })
    expect(results(events)).toMatchObject([{ isError: false, content: expect.stringContaining('hi') }])
    expect(requests.map(({ path }) => path)).toEqual([expect.stringMatching(api.path), expect.stringMatching(api.path)])
    expect(api.back(requests[1]!.body)).toMatchObject({ signature: 'SIG', result: expect.stringContaining('hi') })
  })

  it('keeps the digits of a whole number beyond 2^53 in the input of a call', async () => {
    const digits = '1234567890123456789'
    const input = `{"text":"hi","id":${digits}}`
    const { execution, requests } = await run([api.call(input), api.text('Done.')], api.model)
    expect(execution.status).toBe('completed')
    expect(toolLab.mcp.bodies.at(-1)).toContain(`"arguments":${input}`)
    expect(requests[1]!.text.replaceAll('\\', '')).toContain(input)
    const { url, token } = toolLab.lab.server
    const path = `/api/v1/executions/${execution.id}/logs`
    expect(
      await fetch(url + path, { headers: { authorization: `Bearer ${token}` } }).then((body) => body.text()),
    ).toContain(input)
  })

  it('sends the thinking only to its own model', async () => {
    const busy = { status: 503, headers: { 'retry-after-ms': '1' }, body: api.error('busy') }
    const { row, execution, requests } = await run([api.call(), busy, busy, busy, api.text('Done.')], api.model, {
      fallbackModels: [api.fallback],
    })
    expect(execution).toMatchObject({ status: 'completed', model: api.fallback, modelsTried: [api.model] })
    expect(JSON.stringify(requests[1]!.body)).toContain('SIG')
    expect(JSON.stringify(requests.at(-1)!.body)).not.toContain('SIG')
    server.script(api.text('More.'))
    const body = { message: 'More', sessionId: row.sessionId, model: api.fallback }
    await request(toolLab.lab.server, 'POST', `/api/v1/agents/${row.agentId}/execute`, { body })
    const later = JSON.stringify(server.requests.at(-1)!.body)
    expect(later).toContain('Let me see.')
    expect(later).not.toContain('SIG')
  })

  it.each([429, 503, 529])('retries after %i at the time that the provider requests', async (status) => {
    const busy = { status, headers: { 'retry-after': '0' }, body: api.error('Slow down') }
    const { execution, events } = await run([busy, api.text('Hi')], api.model)
    expect(messagesOf(events)[0]).toMatchObject({
      messageType: 'retry',
      afterMs: 0,
      reason: `HTTP ${status}: Slow down`,
    })
    expect(execution).toMatchObject({ status: 'completed', result: 'Hi', usage: USED })
  })

  it('retries after an error in the stream, or a lost connection, before the first token', async () => {
    const begun = { body: api.begun }
    for (const failures of [[api.overloaded, { ends: 'reset' }], [{ ends: 'unanswered' }], [begun]] satisfies (
      | Bytes
      | string
    )[][]) {
      const { execution, requests } = await run([...failures, api.text('Hi')], api.model)
      expect(execution).toMatchObject({ status: 'completed', result: 'Hi' })
      expect(requests).toHaveLength(failures.length + 1)
    }
  })

  it('fails with the reason of an error in the stream, without a retry, and counts its tokens', async () => {
    const { execution, requests } = await run([api.failing, api.text('Hi')], api.model, {
      fallbackModels: [api.fallback],
    })
    expect(execution).toMatchObject({ status: 'failed', error: 'HTTP 500: Internal error', stopReason: 'error' })
    expect(execution).toMatchObject({ usage: api.usedBefore, usageEstimated: true })
    expect(requests).toHaveLength(1)
  })

  it('constrains the answer by its schema, and gives the parsed answer', async () => {
    const schema = {
      type: 'object',
      properties: { n: { type: 'integer' } },
      required: ['n'],
      additionalProperties: false,
    }
    const { execution, requests } = await run([api.text('{"n": 7}')], api.model, { output: { schema, name: 'number' } })
    expect(execution).toMatchObject({ status: 'completed', result: '{"n": 7}', resultObject: { n: 7 } })
    expect(api.format(requests[0]!.body)).toEqual(schema)
    const loose = { type: 'object', properties: { n: { type: 'integer' }, m: {} } }
    const other = await run([api.text('{"n": 8}')], api.model, { output: { schema: loose } })
    expect(other.execution.resultObject).toEqual({ n: 8 })
    if (name === 'openai') expect(other.requests[0]!.body).toMatchObject({ text: { format: { strict: false } } })
  })

  it('is asked in the prompt when its provider refuses the schema', async () => {
    const refused = { status: 400, headers: {}, body: api.error(`Invalid schema for ${api.formatName}`) }
    const output = { schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] } }
    const { execution, requests } = await run([refused, api.text('{"n": 7}')], api.model, { output })
    expect(execution).toMatchObject({ status: 'completed', resultObject: { n: 7 } })
    expect(api.format(requests[1]!.body)).toBeUndefined()
    expect(JSON.stringify(requests[1]!.body)).toContain('fits this JSON Schema')
  })

  it('is asked for the whole answer when its provider refuses streams', async () => {
    const message = 'Your organization must be verified to stream this model.'
    const refused = { status: 400, headers: {}, body: api.error(message) }
    const { execution, requests } = await run([refused, api.text('Hi')], api.model)
    expect(execution).toMatchObject({ status: 'completed', result: 'Hi' })
    // Gemini streams at an address of its own.
    expect(requests.map(({ body }) => (body as { stream?: boolean }).stream)).toEqual(
      name === 'google' ? [undefined, undefined] : [true, false],
    )
  })

  it('completes with a warning if the token limit cut the answer', async () => {
    const { execution } = await run([api.cut], api.model)
    expect(execution).toMatchObject({ status: 'completed', result: 'The answer is', stopReason: 'max_tokens' })
    expect(execution).toMatchObject({ warnings: [{ code: 'cut_off' }], usage: USED })
  })

  it('distinguishes a refusal from an answer, and fails without any text', async () => {
    const refused = await run([api.refused], api.model)
    const stopReason = name === 'google' ? 'content_filter' : 'refusal'
    expect(refused.execution).toMatchObject({ status: 'completed', result: 'I cannot help.', stopReason })
    const { execution } = await run([api.blocked], api.model)
    expect(execution).toMatchObject({ status: 'failed', error: expect.stringContaining('The provider blocked') })
    expect(execution.stopReason).toMatch(/^(?:refusal|content_filter)$/)
    expect(execution.errorCode).toBe('content_filtered')
  })

  it('continues with its fallback model after the retries', async () => {
    const busy = { status: 503, headers: { 'retry-after-ms': '1' }, body: api.error('busy') }
    const { execution, requests } = await run([busy, busy, busy, api.text('Hi')], api.model, {
      fallbackModels: [api.fallback],
    })
    expect(execution).toMatchObject({
      status: 'completed',
      model: api.fallback,
      warnings: [{ code: 'model_fallback' }],
    })
    expect(requests).toHaveLength(4)
  })
})

// Gateways and clouds that do not know what the packages add to each request.
it.each<[string, Api, (request: { body: any; headers: object }) => unknown, unknown]>([
  [
    'tools.0.custom.eager_input_streaming: Extra inputs are not permitted',
    anthropic,
    ({ body }) => body.tools[0].eager_input_streaming,
    undefined,
  ],
  [
    "Extra inputs are not permitted, field: 'tools[0].eager_input_streaming', value: True",
    anthropic,
    ({ body }) => body.tools[0].eager_input_streaming,
    undefined,
  ],
  [
    'Unexpected value(s) `structured-outputs-2025-11-13` for the `anthropic-beta` header.',
    anthropic,
    ({ headers }) => 'anthropic-beta' in headers,
    false,
  ],
  ['max_tokens: 4096 > 1024, which is the maximum allowed number', anthropic, ({ body }) => body.max_tokens, 1024],
  ["Unsupported parameter: 'store'", openai, ({ body }) => body.store, undefined],
  [
    `Invalid JSON payload received. Unknown name "parametersJsonSchema" at 'tools[0].function_declarations[0]': Cannot find field.`,
    google,
    ({ body }) => Object.keys(body.tools[0].functionDeclarations[0]),
    ['name', 'description', 'parameters'],
  ],
])('one request without it follows a refusal of what a package adds: %s', async (message, api, read, value) => {
  const refused = { status: 400, headers: {}, body: api.error(message) }
  const { execution, requests } = await run([refused, api.text('Hi')], `${api.model}-${message.length}`)
  expect(execution).toMatchObject({ status: 'completed', result: 'Hi', warnings: [] })
  expect(read(requests[0]!)).not.toEqual(value)
  expect(read(requests[1]!)).toEqual(value)
  expect(requests[1]!.body).toMatchObject({ ...(api !== google && { stream: true }), tools: expect.any(Array) })
})

it('an option that a provider refused for its value is sent with other values', async () => {
  const refused = { status: 400, headers: {}, body: openai.error("Unsupported value: 'user' does not support 'long'.") }
  const usersFor = async (user: string, answers: (Bytes | string)[]) => {
    const modelSettings = { providerOptions: { openai: { user } } }
    const { requests } = await run(answers, `${openai.model}-user`, { modelSettings })
    return requests.map(({ body }) => body.user)
  }
  expect(await usersFor('long', [refused, openai.text('Hi')])).toEqual(['long', undefined])
  expect(await usersFor('short', [openai.text('Hi')])).toEqual(['short'])
  expect(await usersFor('long', [openai.text('Hi')])).toEqual([undefined])
})

it('files of an answer are left out with a warning, and reasoning alone is no answer', async () => {
  const image = data({
    candidates: [{ content: { parts: [{ inlineData: { mimeType: 'image/png', data: 'AAAA' } }] } }],
  })
  const { execution } = await run([image + google.text('Here.')], google.model)
  expect(execution).toMatchObject({
    result: 'Here.',
    warnings: [{ code: 'cut_off', text: expect.stringContaining('were left out: 1') }],
  })
  const end = data({ candidates: [{ finishReason: 'STOP' }] })
  expect((await run([image + end], google.model)).execution.error).toContain('only files, such as pictures')
  const thought = (text: string) => data({ candidates: [{ content: { parts: [{ text, thought: true }] } }] })
  const errorAfter = async (text: string) => (await run([thought(text) + end], google.model)).execution.error
  expect(await errorAfter('Hm.')).toContain('only reasoning, without an answer')
  expect(await errorAfter('I look.\n<tool_call>echo')).toContain('wrote a call of a tool into its reasoning')
})

it("the phase of OpenAI's messages is sent back with them", async () => {
  const { requests } = await run([openai.call(), openai.text('Done.')], openai.model)
  const [message] = requests[1]!.body.input.filter(({ role }: { role?: string }) => role === 'assistant')
  expect(message).toMatchObject({ phase: 'commentary' })
})

it('the signature of a last text is sent back in the next run of the session', async () => {
  const signed = data({
    candidates: [{ content: { parts: [{ text: '', thoughtSignature: 'LAST' }] }, finishReason: 'STOP' }],
  })
  const words = data({ candidates: [{ content: { parts: [{ text: 'Done.' }] } }] })
  const { row } = await run([google.call(), words + signed], google.model)
  server.script(google.text('More.'))
  const body = { message: 'More', sessionId: row.sessionId }
  await request(toolLab.lab.server, 'POST', `/api/v1/agents/${row.agentId}/execute`, { body })
  const { contents } = server.requests.at(-1)!.body
  expect(contents.at(-2).parts).toEqual([{ text: 'Done.', thoughtSignature: 'LAST' }])
})

it('long thinking is left out of later runs, because its signature is that of the whole text', async () => {
  for (const [thinking, count] of [
    ['Hm', 1],
    ['Hm'.repeat(6_000), 0],
  ] as const) {
    const { row } = await run(
      [anthropic.call().replace('"Hm"', JSON.stringify(thinking)), anthropic.text('Done.')],
      anthropic.model,
    )
    server.script(anthropic.text('More.'))
    const body = { message: 'More', sessionId: row.sessionId }
    await request(toolLab.lab.server, 'POST', `/api/v1/agents/${row.agentId}/execute`, { body })
    const { messages } = server.requests.at(-1)!.body
    expect(messages.filter(({ content }: any) => content[0].type === 'thinking')).toHaveLength(count)
  }
})

it("a model of others behind Anthropic's API gets its thinking back without a signature", async () => {
  const signature = event({
    type: 'content_block_delta',
    index: 0,
    delta: { type: 'signature_delta', signature: 'SIG' },
  })
  const answers = [anthropic.call().replace(signature, ''), anthropic.text('Done.')]
  for (const [model, first] of [
    ['anthropic/glm-5', { type: 'thinking', thinking: 'Hm.', signature: '' }],
    [anthropic.model, { type: 'text', text: 'Let me see.' }],
  ] as const) {
    const { execution, requests } = await run(answers, model)
    expect(execution.status).toBe('completed')
    expect(requests[1]!.body.messages.at(-2).content[0]).toEqual(first)
  }
  const busy = { status: 503, headers: { 'retry-after-ms': '1' }, body: anthropic.error('busy') }
  const { row } = await run([anthropic.call(), busy, busy, busy, anthropic.text('Done.')], anthropic.model, {
    fallbackModels: ['anthropic/glm-5'],
  })
  server.script(anthropic.text('More.'))
  const body = { message: 'More', sessionId: row.sessionId, model: 'anthropic/glm-5' }
  await request(toolLab.lab.server, 'POST', `/api/v1/agents/${row.agentId}/execute`, { body })
  expect(server.requests.at(-1)!.text).toContain('Let me see.')
  expect(server.requests.at(-1)!.text).not.toContain('Hm.')
})

it("a model of others behind Anthropic's API may answer with 32,000 tokens, unless it refuses", async () => {
  for (const message of ['max_tokens is out of range', 'Prompt and answer exceed the context size']) {
    const refused = { status: 400, headers: {}, body: anthropic.error(message) }
    const { execution, requests } = await run([refused, anthropic.text('Hi')], 'anthropic/glm-5')
    expect(execution).toMatchObject({ status: 'completed', result: 'Hi', warnings: [] })
    expect(requests.map(({ body }) => body.max_tokens)).toEqual([32_000, 4_096])
  }
})

it('a limit of the answer above that of the model is lowered with a warning', async () => {
  const modelSettings = { maxOutputTokens: 100_000 }
  const text = (limit: number) => expect.stringContaining(`at most ${limit} tokens`)
  const known = await run([anthropic.text('Hi')], 'anthropic/claude-opus-4-1', { modelSettings })
  expect(known.execution.warnings).toEqual([{ code: 'setting_ignored', text: text(32_000) }])
  const body = anthropic.error('max_tokens: 100000 > 8192, which is the maximum allowed number')
  const refused = { status: 400, headers: {}, body }
  const other = await run([refused, anthropic.text('Hi')], 'anthropic/claude-z', { modelSettings })
  expect(other.requests.map(({ body }) => body.max_tokens)).toEqual([100_000, 8192])
  expect(other.execution.warnings).toEqual([{ code: 'setting_ignored', text: text(8192) }])
})

it('a reasoning effort that the model does not have becomes the nearest one, with a warning', async () => {
  const efforts = async (model: string, reply: ReturnType<typeof openai.text>, reasoningEffort: string) => {
    const { execution, requests } = await run([reply], model, { modelSettings: { reasoningEffort } })
    const { reasoning, output_config } = requests[0]!.body
    return [(reasoning ?? output_config).effort, execution.warnings.map(({ text }: { text: string }) => text)]
  }
  const told = (effort: string) => [expect.stringContaining(`reasoningEffort ${effort}: the nearest`)]
  expect(await efforts('openai/gpt-6.1-sol', openai.text('Hi'), 'none')).toEqual(['low', told('none')])
  expect(await efforts('openai/gpt-6.1-sol', openai.text('Hi'), 'high')).toEqual(['high', []])
  expect(await efforts('anthropic/claude-sonnet-5-5', anthropic.text('Hi'), 'minimal')).toEqual([
    'low',
    told('minimal'),
  ])
})

it('a temperature above that of the model is lowered or left out, with one warning', async () => {
  const warm = (model: string) => run([anthropic.text('Hi')], model, { modelSettings: { temperature: 1.7 } })
  const [older, newer] = [await warm('anthropic/claude-opus-4-1'), await warm('anthropic/claude-sonnet-5-5')]
  expect([older, newer].map(({ requests }) => requests[0]!.body.temperature)).toEqual([1, undefined])
  expect(older.execution.warnings).toMatchObject([{ text: expect.stringContaining('temperature 1.7: the nearest') }])
  expect(newer.execution.warnings).toMatchObject([{ text: expect.stringContaining('temperature: it was left out') }])
})

it("a reasoning effort reaches a model of the Responses API whose name is not OpenAI's", async () => {
  const modelSettings = { reasoningEffort: 'high' }
  const { requests } = await run([openai.text('Hi')], 'openai/gpt-oss-120b', { modelSettings })
  expect(requests[0]!.body).toMatchObject({ reasoning: { effort: 'high' }, input: [{ role: 'system' }, {}] })
  const message = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
  const body = JSON.stringify({ error: { message, type: 'invalid_request_error', param: 'reasoning.effort' } })
  const refused = { status: 400, headers: {}, body }
  const other = await run([refused, openai.text('Hi')], 'openai/gpt-4.1', { modelSettings })
  expect(other.requests[1]!.body).not.toHaveProperty('reasoning')
  expect(other.execution.warnings).toMatchObject([{ code: 'setting_ignored' }])
})

it('an option of the caller that the provider refuses is left out with a warning', async () => {
  const message = 'Your organization must be verified to generate reasoning summaries.'
  const body = JSON.stringify({ error: { message, type: 'invalid_request_error', param: 'reasoning.summary' } })
  const { execution, requests } = await run(
    [{ status: 400, headers: {}, body }, openai.text('Hi')],
    'openai/gpt-6-astra',
    {
      modelSettings: { providerOptions: { openai: { reasoningSummary: 'auto' } } },
    },
  )
  expect(execution).toMatchObject({ status: 'completed', warnings: [{ code: 'setting_ignored' }] })
  expect(requests.map(({ body }) => body.reasoning?.summary)).toEqual(['auto', undefined])
})
