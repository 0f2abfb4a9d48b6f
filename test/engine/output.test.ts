import { randomUUID } from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import { setFlagsFromString } from 'node:v8'
import vm from 'node:vm'
import { describe, expect, test, vi } from 'vitest'
import { createFenceFilter } from '../../src/executions/engine/models/code-fence.ts'
import { sampleOf } from '../../src/executions/engine/models/sample.ts'
import { findAnswer, isStrict, NewOutput, parseAnswer } from '../../src/lib/output.ts'
import { callerAt, createAgent } from '../support/api.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { request } from '../support/rest.ts'
import { use } from '../support/use.ts'
import { ended, followed, startLab } from './lab.ts'
import { createMcp } from './tool-lab.ts'

// Structured output (contract-2.md section 2.5).
const lab = await use(startLab({ ALLOW_PRIVATE_NETWORK: 'true' }))

const schema = {
  type: 'object',
  properties: { city: { type: 'string' }, degrees: { type: 'number', minimum: -90 } },
  required: ['city', 'degrees'],
  additionalProperties: false,
}
const output = { schema }
const fitting = '{"city": "Bern", "degrees": 7.5}'
const value = { city: 'Bern', degrees: 7.5 }

const call = callerAt(lab.server)

let count = 0
/** Runs a message with scripted answers: what REST returns of the run, its events, and what reached the model. */
async function run(answers: readonly (string | object)[], fields: object = { output }, agent: object = {}) {
  const before = lab.model.requests.length
  lab.model.script(...answers.map((tokens) => (typeof tokens === 'string' ? { tokens } : tokens)))
  const id = await createAgent(lab.server, { model: `compatible/structured-${++count}`, ...agent })
  const { body } = await call('POST', `/agents/${id}/execute`, { message: 'Weather?', background: true, ...fields })
  const row = await ended(lab.engine, await lab.row(body.executionId))
  const events = await followed(lab.engine, row)
  const { execution } = (await call('GET', `/executions/${row.id}`)).body
  const requests = lab.model.requests.slice(before).map((each) => each.body as any)
  return { execution, events, requests }
}

/** The deltas of the last step. */
const lastText = (events: Awaited<ReturnType<typeof run>>['events']): string => {
  const deltas = events.flatMap(({ data }: any) => (data.messageType === 'stream_event' ? data : []))
  const last = deltas.at(-1)?.step
  return deltas.flatMap(({ step, delta }) => (step === last ? delta.text : [])).join('')
}

describe('a run with an output schema', () => {
  test('keeps the digits of a whole number beyond 2^53 in the parsed answer', async () => {
    const json = '{"city":"Bern","degrees":1234567890123456789}'
    const { execution, events } = await run([json])
    expect(JSON.stringify(events.at(-1)?.data)).toContain(`"resultObject":${json}`)
    const authorization = `Bearer ${lab.server.token}`
    const read = await fetch(`${lab.server.url}/api/v1/executions/${execution.id}`, { headers: { authorization } })
    expect(await read.text()).toContain(`"resultObject":${json}`)
  })

  test('returns the parsed answer beside its text, in the execution, the reply and the event', async () => {
    const { execution, events, requests } = await run([fitting])
    expect(execution).toMatchObject({ status: 'completed', result: fitting, resultObject: value })
    expect(events.at(-1)).toMatchObject({ event: 'result', data: { resultObject: value } })
    expect(lastText(events)).toBe(fitting)
    expect(requests).toHaveLength(1)
    expect(requests[0].response_format).toEqual({
      type: 'json_schema',
      json_schema: { name: 'answer', strict: true, schema },
    })
    lab.model.script({ tokens: fitting })
    const reply = await call('POST', `/agents/${lab.agentId}/execute`, { message: 'Weather?', output })
    expect(reply.body).toMatchObject({ status: 'completed', result: fitting, resultObject: value })
    const { executions } = (await call('GET', '/executions?limit=1')).body
    expect(executions[0]).not.toHaveProperty('resultObject')
  })

  test('asks once more for an answer that does not fit, and says where', async () => {
    const { execution, events, requests } = await run(['{"city": "Bern", "degrees": "7"}', fitting])
    expect(execution).toMatchObject({ status: 'completed', result: fitting, resultObject: value })
    expect(execution.usage).toEqual({ input_tokens: 20, output_tokens: 8 })
    expect(lastText(events)).toBe(fitting)
    expect(requests[1].messages.slice(-2)).toMatchObject([
      { role: 'assistant', content: '{"city": "Bern", "degrees": "7"}' },
      { role: 'user', content: expect.stringContaining('/degrees must be number') },
    ])
    const { body } = await call('GET', `/chats/${execution.chatId}/messages`)
    expect(body.messages.map(({ content }: any) => content)).toEqual(['Weather?', fitting])
  })

  test.each([
    ['Sunny!', 'the answer is not JSON'],
    ['{"city": "Bern"}', "the answer must have required property 'degrees'"],
    ['{"city": "Bern", "degrees": 1, "wind": 2}', 'must NOT have additional properties: wind'],
    ['{"city": "Bern", "degrees": -91}', '/degrees must be >= -90'],
  ])('fails after a second answer that does not fit: %s', async (answer, where) => {
    const { execution, events, requests } = await run([answer, answer])
    expect(requests).toHaveLength(2)
    expect(execution).toMatchObject({ status: 'failed', errorCode: 'invalid_output', stopReason: 'error' })
    expect(execution.error).toContain(where)
    expect(execution).not.toHaveProperty('resultObject')
    expect(events.at(-1)).toMatchObject({ event: 'error', data: { code: 'invalid_output' } })
  })

  test.each([
    ['words around it', `Here it is: ${fitting}\nAnything else?`],
    ['a code fence after words', `Sure!\n\`\`\`json\n${fitting}\n\`\`\`\nDone.`],
    ['a JSON text around it', JSON.stringify(fitting)],
    ['an object around it', `{"answer": ${fitting}}`],
    ['a list around it', `[${fitting}]`],
    ['itself behind it', `${fitting}\n${fitting}`],
    ['a comma too many', fitting.replace('}', ',}')],
    ['quotes of Python', fitting.replaceAll('"', "'")],
  ])('reads the JSON of a second answer with %s', async (_, answer) => {
    const { execution, requests } = await run([answer, answer])
    expect(requests).toHaveLength(2)
    expect(execution).toMatchObject({ status: 'completed', resultObject: value })
    expect(JSON.parse(execution.result)).toEqual(value)
  })

  test('reads an answer that the server takes for reasoning', async () => {
    const reasoning = { choices: [{ index: 0, delta: { reasoning_content: fitting }, finish_reason: 'stop' }] }
    const { execution, requests } = await run([{ tokens: [Buffer.from(`data: ${JSON.stringify(reasoning)}\n\n`)] }])
    expect(requests).toHaveLength(1)
    expect(execution).toMatchObject({ status: 'completed', result: fitting, resultObject: value })
  })

  test('fails at once when the answer was cut', async () => {
    const cut = Buffer.from('data: {"choices":[{"index":0,"delta":{"content":"{"},"finish_reason":"length"}]}\n\n')
    const { execution, requests } = await run([{ tokens: [cut], end: 'cut' }])
    expect(requests).toHaveLength(1)
    expect(execution).toMatchObject({ status: 'failed', errorCode: 'invalid_output', stopReason: 'max_tokens' })
  })

  test('removes a code fence around the answer, also from the stream', async () => {
    const { execution, events } = await run([
      { tokens: ['``', '`json\n', '{"city": "Bern", ', '"degrees": 7.5}', '\n`', '``\n'] },
    ])
    expect(execution).toMatchObject({ result: fitting, resultObject: value })
    expect(lastText(events)).toBe(fitting)
  })

  test('asks in the prompt when the server does not know response_format, and remembers that', async () => {
    const refused = { error: { status: 400, message: "Unknown parameter: 'response_format'" } }
    const model = 'compatible/without-format'
    const first = await run([refused, fitting], { output }, { model })
    expect(first.execution).toMatchObject({ resultObject: value, warnings: [] })
    expect(first.requests[1].response_format).toBeUndefined()
    expect(first.requests[1].messages[0].content).toContain(JSON.stringify(schema))
    const second = await run([fitting], { output }, { model })
    expect(second.requests.map(({ response_format }) => response_format)).toEqual([undefined])
  })

  test('asks in the prompt when the server refuses this schema, and only this one', async () => {
    const message = "Invalid schema for response_format 'answer': 'required' is required"
    const model = 'compatible/strict'
    const first = await run([{ error: { status: 400, message } }, fitting], { output }, { model })
    expect(first.execution.resultObject).toEqual(value)
    const second = await run([fitting], { output }, { model })
    expect(second.requests[0].response_format).toBeDefined()
  })

  test('calls tools before its answer, which alone has to fit', async () => {
    await using mcp = await startMcpServer()
    const mcpId = await createMcp(lab.server, mcp.url)
    const toolCalls = [{ id: 'c1', name: 'echo', input: { text: 'hi' } }]
    const { execution, requests } = await run(
      [{ tokens: 'I look.', toolCalls }, 'Here it is', fitting],
      { output },
      { mcpInstanceIds: [mcpId] },
    )
    expect(execution).toMatchObject({ status: 'completed', resultObject: value })
    // vLLM and others would constrain each reply, so that it could call no tool.
    const constrained = requests.map(({ response_format }) => response_format !== undefined)
    expect(constrained).toEqual([false, false, true])
    expect(requests[0].messages[0].content).toContain(JSON.stringify(schema))
    const limited = await run([{ tokens: '', toolCalls }], { output }, { mcpInstanceIds: [mcpId], maxTurns: 1 })
    expect(limited.execution).toMatchObject({ errorCode: 'invalid_output', stopReason: 'max_turns' })
  })

  test('is answered by the offline model with a sample', async () => {
    const { execution } = await run([], { output, model: 'offline/echo' })
    expect(execution.resultObject).toEqual({ city: expect.stringContaining('offline model'), degrees: -90 })
  })
})

describe('the output of', () => {
  const other = { schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }, name: 'count' }

  test('an agent is versioned, applies to its runs, and yields to that of the run', async () => {
    const { requests, execution } = await run(['{"n": 1}'], {}, { output: other })
    expect(execution.resultObject).toEqual({ n: 1 })
    expect(requests[0].response_format.json_schema).toMatchObject({ name: 'count', strict: false })
    const over = await run([fitting], { output }, { output: other })
    expect(over.execution.resultObject).toEqual(value)
    const id = await createAgent(lab.server, { output: other })
    await call('PATCH', `/agents/${id}`, { output: null })
    const { agent } = (await call('GET', `/agents/${id}`)).body
    expect(agent).toMatchObject({ version: 2, output: null })
    const { versions } = (await call('GET', `/agents/${id}/versions`)).body
    expect(versions.map((each: any) => each.agent.output)).toEqual([null, other])
    const copy = await call('POST', '/agents', {
      name: 'Copy',
      basedOnAgentId: await createAgent(lab.server, { output: other }),
    })
    expect(copy.body.agent.output).toEqual(other)
  })

  test('a task applies to its runs', async () => {
    const task = { title: 'Count', assignTo: lab.agentId, output: other }
    const { body } = await call('POST', '/tasks', task)
    expect(body.task.output).toEqual(other)
    lab.model.script({ tokens: '{"n": 3}' })
    const done = await call('POST', `/tasks/${body.id}/execute`)
    expect(done.body).toMatchObject({ resultObject: { n: 3 }, task: { status: 'completed', result: '{"n": 3}' } })
    const second = (await call('POST', '/tasks', { title: 'Count' })).body
    expect(second.task.output).toBeNull()
    expect((await call('PATCH', `/tasks/${second.id}`, { output: other })).body.task.output).toEqual(other)
    expect((await call('PATCH', `/tasks/${second.id}`, { output: null })).body.task.output).toBeNull()
  })

  test('a mission applies to its runs', async () => {
    const { body } = await call('POST', '/missions', {
      title: 'Count',
      goal: 'Count',
      agentId: lab.agentId,
      output: other,
    })
    expect(body.mission.output).toEqual(other)
    lab.model.script({ tokens: '{"n": 4}' })
    await call('POST', `/missions/${body.id}/run`)
    await lab.idle()
    const { runs } = (await call('GET', `/missions/${body.id}/runs`)).body
    expect((await call('GET', `/executions/${runs[0].id}`)).body.execution.resultObject).toEqual({ n: 4 })
    expect((await call('PATCH', `/missions/${body.id}`, { output: null })).body.mission.output).toBeNull()
  })

  test('a run is used when the run is repeated', async () => {
    const { execution } = await run([fitting])
    lab.model.script({ tokens: '{"city": "Rome", "degrees": 20}' })
    const { body } = await call('POST', `/executions/${execution.id}/rerun`)
    expect(body.resultObject).toEqual({ city: 'Rome', degrees: 20 })
  })
})

test('GraphQL has the form of answers and the parsed answer', async () => {
  lab.model.script({ tokens: fitting })
  const query = `mutation ($id: ID!, $schema: JSON!) {
    executeAgent(input: { id: $id, message: "Weather?", output: { schema: $schema } }) {
      resultObject
      execution { resultObject agent { output { name schema } } }
    }
  }`
  const body = { query, variables: { id: lab.agentId, schema } }
  const answer = await request(lab.server, 'POST', '/graphql', { body })
  expect(answer.body.errors).toBeUndefined()
  const execution = { resultObject: value, agent: { output: null } }
  expect(answer.body.data.executeAgent).toEqual({ resultObject: value, execution })
})

describe('a schema is refused', () => {
  const nested = (depth: number): object =>
    depth === 1 ? { type: 'string' } : { type: 'object', properties: { a: nested(depth - 1) } }

  test.each([
    ['that is no schema', { type: 'text' }, 'a JSON Schema (2020-12)'],
    ['with a reference that leads nowhere', { $ref: '#/$defs/none' }, 'a JSON Schema (2020-12)'],
    ['with a reference to another site', { $ref: 'https://example.com/schema.json' }, 'a JSON Schema (2020-12)'],
    ['with a pattern that is none', { type: 'string', pattern: '(' }, 'a JSON Schema (2020-12)'],
    ['that is deeper than 10 levels', nested(11), 'at most 10 levels'],
    ['that is longer than 32 KB', { description: 'x'.repeat(33_000) }, 'at most 32 KB'],
    ['that is asynchronous', { $async: true, type: 'object' }, 'a JSON Schema (2020-12)'],
  ])('%s', async (_, given, expected) => {
    const routes = [
      ['POST', `/agents/${lab.agentId}/execute`, { message: 'Hello' }],
      ['POST', '/agents', { name: 'Ada', systemPrompt: 'You help.' }],
      ['PATCH', `/agents/${lab.agentId}`, {}],
      ['POST', '/tasks', { title: 'Count' }],
      ['POST', '/missions', { title: 'Count', goal: 'Count', agentId: lab.agentId }],
    ] as const
    for (const [method, path, body] of routes) {
      const { status, body: answer } = await call(method, path, { ...body, output: { schema: given } })
      expect([status, answer.message]).toEqual([400, expect.stringContaining(`output.schema. Expected ${expected}`)])
    }
  })

  test.each([
    ['without a schema', {}, 'output.schema'],
    ['whose schema is a list', { schema: [] }, 'output.schema'],
    ['with a name that providers refuse', { schema, name: 'a b' }, 'output.name'],
  ])('an output %s', async (_, given, field) => {
    const { status, body } = await call('POST', `/agents/${lab.agentId}/execute`, { message: 'Hello', output: given })
    expect([status, body.message]).toEqual([400, expect.stringContaining(field)])
  })

  test('a schema of 10 levels, of another dialect, or with keywords of other tools is accepted', async () => {
    for (const given of [nested(10), { $schema: 'http://json-schema.org/draft-07/schema#', 'x-order': 1 }]) {
      const { status } = await call('POST', '/tasks', { title: 'Count', output: { schema: given } })
      expect(status).toBe(200)
    }
  })
})

test('schemas of old drafts are usable: with an id, and escapes that the Unicode mode refuses', () => {
  const given = { schema: { id: 'https://example.com/day', type: 'string', pattern: '^\\d{4}\\-\\d{2}$' } }
  expect(NewOutput.safeParse(given).error).toBeUndefined()
  expect(parseAnswer(given, '"2026-11"')).toEqual({ value: '2026-11', problem: null })
  expect(parseAnswer(given, '"2026/11"').problem).toContain('must match pattern')
})

test('a pattern that takes forever fails the check instead of blocking the server', () => {
  const given = { schema: { type: 'string', pattern: '^(a+)+$' } }
  expect(parseAnswer(given, JSON.stringify(`${'a'.repeat(40)}!`)).problem).toContain('too long')
})

test('an answer whose check takes too long is not looked for in its parts', () => {
  const given = { schema: { type: 'string', pattern: '^(a+)+$' } }
  const answer = JSON.stringify(`${'a'.repeat(40)}!`)
  parseAnswer(given, '"a"')
  // A busy machine would have the check repeated, which has had no processor.
  using _busy = vi.spyOn(process, 'threadCpuUsage').mockReturnValue({ user: 1_000_000, system: 0 })
  const { runInNewContext } = vm
  // A busy machine repeats a check.
  const checks = new Set<unknown>()
  vm.runInNewContext = (...args) => {
    checks.add(Object(args[1]).work)
    return runInNewContext(...args)
  }
  syncBuiltinESMExports()
  try {
    expect(findAnswer(given, `\`\`\`json\n${answer}\n\`\`\`\n[${answer}]`)).toBeNull()
  } finally {
    vm.runInNewContext = runInNewContext
    syncBuiltinESMExports()
  }
  expect(checks.size).toBe(1)
})

test('an answer that is nested too deep does not fit', async () => {
  const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`
  const problemOf = (depth: number) => parseAnswer({ schema: {} }, nested(depth)).problem
  expect([problemOf(64), problemOf(65)]).toEqual([null, 'the answer has more than 64 levels'])
  const { execution } = await run([nested(50_000), nested(50_000)], { output: { schema: {} } })
  expect(execution).toMatchObject({
    status: 'failed',
    errorCode: 'invalid_output',
    error: expect.stringContaining('the answer has more than 64 levels'),
  })
})

test('a schema that takes too long to compile is refused, and breaks no later one', async () => {
  const names = Array.from({ length: 2_500 }, (_, index) => [`p${index}`, {}])
  const slow = { schema: { patternProperties: Object.fromEntries(names) } }
  expect(NewOutput.safeParse(slow).error?.issues[0]?.message).toContain('can be checked quickly')
  expect(NewOutput.safeParse({ schema: { title: 'After a slow one' } }).error).toBeUndefined()

  // As on machines that are so slow that the validator is interrupted on its first use.
  const { runInNewContext } = vm
  for (const timeout of [3, 10, 20, 30, 40]) {
    const another: typeof import('../../src/lib/output.ts') = await import(`../../src/lib/output.ts?${randomUUID()}`)
    vm.runInNewContext = (code, context) => runInNewContext(code, context, { timeout })
    syncBuiltinESMExports()
    try {
      another.NewOutput.safeParse(slow)
    } finally {
      vm.runInNewContext = runInNewContext
      syncBuiltinESMExports()
    }
    expect(another.NewOutput.safeParse({ schema: { title: 'After a slow start' } }).error).toBeUndefined()
  }
})

test('schemas that have been used take no memory for ever', async () => {
  setFlagsFromString('--expose-gc')
  const collect = vm.runInNewContext('gc')
  let made = 0
  const use = (count: number) => {
    for (const end = made + count; made < end; made++) {
      const patterns = Array.from({ length: 20 }, (_, index) => [`p${index}`, { pattern: `${made}.${index}` }])
      NewOutput.parse({ schema: { properties: Object.fromEntries(patterns) } })
    }
    collect()
    return process.memoryUsage().heapUsed
  }
  // The latest hundred are kept.
  let before = use(200)
  // Another test of this worker may still load a module. A leak would be in each round.
  await expect
    .poll(() => {
      const after = use(300)
      const growth = (after - before) / 300
      before = after
      return growth
    })
    .toBeLessThan(10_000)
})

test('a schema is strict when every property is required and no other is allowed', () => {
  expect(isStrict(schema)).toBe(true)
  expect(isStrict({ ...schema, required: ['city'] })).toBe(false)
  expect(isStrict({ ...schema, additionalProperties: undefined })).toBe(false)
  expect(isStrict({ ...schema, properties: { ...schema.properties, city: { type: 'object' } } })).toBe(false)
})

test.each([
  ['{"a": 1}', '{"a": 1}'],
  ['```json\n{"a": "```"}\n```', '{"a": "```"}'],
  ['\n```\n[1]\n```\n\n', '[1]'],
  ['``', '``'],
  ['```json', '```json'],
  ['Here it is: ```json\n1\n```', 'Here it is: ```json\n1\n```'],
])('the code fence of %j is removed, however the text is cut', (text, expected) => {
  for (let size = 1; size <= text.length; size++) {
    const filter = createFenceFilter()
    const pieces = text.match(new RegExp(`[^]{1,${size}}`, 'g')) ?? []
    expect(pieces.map(filter.feed).join('') + filter.end()).toBe(expected)
  }
})

test.each([
  [{ type: 'array', items: { enum: ['a', 'b'] }, minItems: 2 }, ['a', 'a']],
  [{ anyOf: [{ type: 'null' }, { type: 'string' }] }, null],
  [{ $ref: '#/$defs/n', $defs: { n: { type: 'integer', exclusiveMinimum: 4 } } }, 5],
  [{ allOf: [{ type: 'object', required: ['a'] }, { properties: { a: { const: 1 } } }] }, { a: 1 }],
  [{ type: ['string', 'null'], maxLength: 2 }, 'he'],
  [{ type: 'boolean' }, false],
  [{ type: 'number', maximum: -3 }, -3],
])('a sample of %j fits', (given, expected) => {
  expect(sampleOf(given, 'hello')).toEqual(expected)
  expect(parseAnswer({ schema: given }, JSON.stringify(expected)).problem).toBeNull()
})

test('a sample of nested lists has a bounded size', () => {
  const nested = (depth: number): object =>
    depth ? { type: 'array', minItems: 100, items: nested(depth - 1) } : { type: 'string' }
  expect(JSON.stringify(sampleOf(nested(3), 'hello')).length).toBeLessThan(1_000_000)
})
