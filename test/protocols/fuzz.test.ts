import fc from 'fast-check'
import { beforeAll, expect, it } from 'vitest'
import { request } from '../support/rest.ts'
import { sample } from '../support/sample.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { CASES } from './cases.ts'

let agent: string
const server = await use(startServer())
beforeAll(async () => {
  const body = { name: 'Ada', systemPrompt: 'You are Ada.' }
  agent = (await request(server, 'POST', '/api/v1/agents', { body })).body.id
})

const RUNS = 20

const role = fc.constantFrom('user', 'assistant', 'system', 'tool', 'robot')
const part = fc.record(
  {
    type: fc.constantFrom('text', 'input_text', 'image_url', 'file', 'tool-x', 'dynamic-tool', 'step-start'),
    text: fc.string(),
    url: fc.string(),
    toolCallId: fc.string(),
    output: fc.jsonValue(),
    source: fc.jsonValue(),
    state: fc.constantFrom('output-available', 'output-error', 'approval-responded'),
    approval: fc.jsonValue(),
  },
  { requiredKeys: ['type'] },
)
const content = fc.oneof(fc.string(), fc.array(part, { maxLength: 3 }), fc.jsonValue())
const message = fc.record(
  { id: fc.string(), role, content, parts: fc.array(part, { maxLength: 3 }), tool_calls: fc.jsonValue() },
  { requiredKeys: ['role'] },
)
const messages = fc.oneof(
  { weight: 4, arbitrary: fc.array(message, { maxLength: 4 }) },
  { weight: 1, arbitrary: fc.jsonValue() },
)

const body = fc.record(
  {
    messages,
    message,
    input: fc.oneof(fc.string(), messages),
    stream: fc.boolean(),
    id: fc.string(),
    threadId: fc.string(),
    runId: fc.string(),
    previous_response_id: fc.string(),
    conversation: fc.jsonValue(),
    tools: fc.jsonValue(),
    resume: fc.jsonValue(),
    context: fc.jsonValue(),
    temperature: fc.jsonValue(),
    stop: fc.jsonValue(),
    tool_choice: fc.jsonValue(),
    metadata: fc.jsonValue(),
    response_format: fc.jsonValue(),
    text: fc.jsonValue(),
    max_tokens: fc.jsonValue(),
  },
  { requiredKeys: [] },
)

/** A name in a path: mostly the agent, or any text. */
const name = fc.oneof(
  { weight: 3, arbitrary: fc.constant(null) },
  { weight: 1, arbitrary: fc.string({ minLength: 1 }).filter((text) => text.isWellFormed() && !/^\.+$/.test(text)) },
)

it.each(Object.keys(CASES))('no request makes the server fail at %s', async (route) => {
  const [method = '', path = ''] = route.split(' ')
  await fc.assert(
    fc.asyncProperty(name, body, fc.webQueryParameters(), async (given, fields, query) => {
      const named = path.replace(/\{\w+\}/g, () => encodeURIComponent(given ?? agent))
      const response = await fetch(`${server.url}${named}?${query}`, {
        method,
        ...(method === 'POST' && { body: JSON.stringify({ model: agent, ...fields }) }),
        headers: { authorization: `Bearer ${server.token}`, 'content-type': 'application/json' },
      })
      const text = await response.text()
      expect(response.status, text).toBeLessThan(500)
      if (response.status >= 400) expect(JSON.parse(text).error).toBeTruthy()
    }),
    { numRuns: method === 'POST' ? RUNS : RUNS / 4 },
  )
})

const file = 'data:text/plain;base64,YQ=='
const schema = { type: 'object', properties: { a: { type: 'string' } } }
const call = { id: 'c', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }
const rpc = (method: string, params: object) => ({ jsonrpc: '2.0', id: 1, method, params })

/** Requests with all fields that a door reads, as clients send them. `{id}` in a path is the agent. */
const WHOLE: readonly (readonly [path: string, body: object, headers?: Record<string, string>])[] = [
  [
    '/openai/v1/chat/completions',
    {
      messages: [
        { role: 'system', content: 'S' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'a' },
            { type: 'file', file: { file_data: file } },
          ],
        },
        { role: 'assistant', content: 'b', tool_calls: [call] },
        { role: 'tool', tool_call_id: 'c', content: 'r' },
        { role: 'user', content: [{ type: 'image_url', image_url: { url: file } }] },
      ],
      tools: [{ type: 'function', function: { name: 'f', description: 'd', parameters: schema } }],
      ...{ tool_choice: 'auto', stream: false, stream_options: { include_usage: true }, n: 1, stop: ['x'] },
      ...{ temperature: 1, max_completion_tokens: 10, reasoning_effort: 'low' },
      response_format: { type: 'json_schema', json_schema: { name: 'n', schema } },
    },
  ],
  [
    '/openai/v1/responses',
    {
      input: [
        { type: 'message', role: 'developer', content: 'D' },
        { role: 'user', content: [{ type: 'input_file', file_data: file, filename: 'a.txt' }] },
        { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' },
        { type: 'function_call_output', call_id: 'c', output: [{ type: 'input_text', text: 'r' }] },
        { role: 'assistant', content: [{ type: 'output_text', text: 'b' }] },
        { role: 'user', content: 'c' },
      ],
      ...{ instructions: 'I', conversation: { id: 'c' }, stream: false, background: false, metadata: { a: 'b' } },
      ...{ tools: [{ type: 'function', name: 'f', parameters: schema }], max_output_tokens: 10 },
      ...{ reasoning: { effort: 'low' }, text: { format: { type: 'json_schema', name: 'n', schema } } },
    },
  ],
  [
    '/api/v1/agents/{id}/chat',
    {
      messages: [
        {
          id: '1',
          role: 'user',
          parts: [
            { type: 'text', text: 'a' },
            { type: 'file', url: file, filename: 'a' },
          ],
        },
        {
          ...{ id: '2', role: 'assistant' },
          parts: [
            { type: 'step-start' },
            { type: 'tool-f', toolCallId: 'c', state: 'output-available', input: {}, output: {} },
            { type: 'dynamic-tool', toolName: 'g', toolCallId: 'd', state: 'output-error', errorText: 'e' },
          ],
        },
        { id: '3', role: 'user', parts: [{ type: 'text', text: 'c' }] },
      ],
      ...{ id: 'c', trigger: 'submit-message', tools: [call], modelSettings: { temperature: 1 } },
    },
  ],
  [
    '/api/v1/agents/{id}/ag-ui',
    {
      messages: [
        { id: '1', role: 'user', content: [{ type: 'image', source: { type: 'data', value: 'YQ==' }, metadata: {} }] },
        { id: '2', role: 'assistant', content: 'b', toolCalls: [call] },
        { id: '3', role: 'tool', toolCallId: 'c', content: 'r', error: 'e' },
        { id: '4', role: 'user', content: 'c' },
      ],
      ...{ threadId: 't', runId: 'r', state: {}, context: [{ description: 'd', value: 'v' }] },
      tools: [{ name: 'f', description: 'd', parameters: schema }],
    },
  ],
  [
    '/api/v1/agents/{id}/ag-ui',
    { threadId: 't', runId: 'r', messages: [], resume: [{ interruptId: 'i', status: 'resolved', payload: {} }] },
  ],
  [
    '/a2a/agents/{id}',
    rpc('SendMessage', {
      message: { messageId: 'm', contextId: 'c', role: 'ROLE_USER', parts: [{ text: 'a' }, { raw: 'YQ==' }] },
      configuration: { acceptedOutputModes: ['text'], historyLength: 1, taskPushNotificationConfig: { url: 'u' } },
    }),
    { 'A2A-Version': '1.0' },
  ],
  [
    '/a2a/agents/{id}',
    rpc('message/send', {
      message: {
        ...{ kind: 'message', messageId: 'm', contextId: 'd', role: 'user' },
        parts: [
          { kind: 'data', data: {} },
          { kind: 'file', file: { bytes: 'YQ==', mimeType: 'text/plain' } },
        ],
      },
      configuration: { acceptedOutputModes: ['text'], blocking: true, pushNotificationConfig: { url: 'u' } },
    }),
  ],
  [
    '/mcp',
    rpc('initialize', { protocolVersion: '2025-06-18', capabilities: { roots: {} }, clientInfo: { name: 'n' } }),
  ],
  ['/mcp', rpc('tools/call', { name: 'list_tasks', arguments: { limit: 1 }, _meta: { progressToken: 1 } })],
  ['/mcp', rpc('resources/read', { uri: 'muster://spaces/x/files/a' })],
  ['/mcp', rpc('prompts/get', { name: 'n', arguments: { a: 'b' } })],
]

const nested = (depth: number) => `{"a":${'['.repeat(depth)}${']'.repeat(depth)}}`
/** JSON that is nested too deep, as it is and in a text, and a text of JSON with a character that databases refuse. */
const DEEP = [JSON.parse(nested(100)), nested(50_000), '{"a":"\\u0000\\ud800"}']
const ODD = [undefined, null, true, -1.5, '', 'x', [], [null], {}, 'data:;base64,', '__proto__', ...DEEP]

type Place = readonly string[]

function placesIn(value: unknown, place: Place = []): Place[] {
  const inside = typeof value === 'object' && value !== null ? Object.entries(value) : []
  return [place, ...inside.flatMap(([key, one]) => placesIn(one, [...place, key]))]
}

function replaced(value: unknown, [key, ...rest]: Place, odd: unknown): unknown {
  if (key === undefined) return odd
  const copy = Array.isArray(value) ? [...value] : { ...(value as object) }
  const inside = copy as Record<string, unknown>
  inside[key] = replaced(inside[key], rest, odd)
  return copy
}

it('no request with one odd field makes a door fail', async () => {
  const rows = WHOLE.flatMap(([path, body, headers], index) =>
    placesIn(body).flatMap((place) => ODD.map((odd) => ({ ...{ path, body, headers, place, odd }, door: `${index}` }))),
  )
  const chosen = [
    ...sample(rows, ({ door, place, odd }) => [`${door} ${place}`, `${door} ${JSON.stringify(odd)}`]),
    ...rows.filter(({ place, odd }) => DEEP.includes(odd) && /^(?:arguments|data|metadata)$/.test(place.at(-1) ?? '')),
  ]
  for (const { path, body, place, odd, ...given } of chosen) {
    const answer = await request(server, 'POST', path.replace('{id}', agent), {
      headers: { Accept: 'application/json, text/event-stream', ...given.headers },
      body: replaced({ ...(path.startsWith('/openai/') && { model: agent }), ...body }, place, odd) as object,
    })
    const text = JSON.stringify([path, place, odd, answer.body]).replace(/\[{1000,}|\]{1000,}/g, '…')
    expect(answer.status, text).toBeLessThan(500)
    expect(text).not.toMatch(/-32603|"statusCode":5/)
    // The message names the field, or says in its own words what is wrong.
    expect(text).not.toMatch(/Invalid value for field: [^ ]+\.? Correct/)
  }
})

it('A2A refuses a request that is nested too deep', async () => {
  const message = `{"kind":"message","messageId":"m","role":"user","parts":[],"metadata":${nested(50_000)}}`
  const body = `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":${message}}}`
  const answer = await request(server, 'POST', `/a2a/agents/${agent}`, { body })
  const refusal = { code: -32600, message: expect.stringContaining('Request body too deep. At most 64 levels') }
  expect(answer).toMatchObject({ status: 200, body: { error: refusal } })
})
