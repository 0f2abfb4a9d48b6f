import fc from 'fast-check'
import { beforeAll, expect, it } from 'vitest'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { CASES } from './cases.ts'

let agent: string
const server = await use(startServer())
beforeAll(async () => {
  const body = { name: 'Ada', systemPrompt: 'You are Ada.' }
  agent = (await request(server, 'POST', '/api/v1/agents', { body })).body.id
})

const RUNS = 40

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
