import { expect, test } from 'vitest'
import { startModelServer } from '../support/model-server.ts'
import { use } from '../support/use.ts'
import { call, results, startToolLab } from './tool-lab.ts'

const other = await use(startModelServer())
/** Images in tool results, in the form of each API (the MCP server's tool `show` answers with a png). */
const toolLab = await use(
  startToolLab({
    OPENAI_RESPONSES_BASE_URL: other.baseUrl,
    OPENAI_API_KEY: 'test-key',
    ANTHROPIC_BASE_URL: other.baseUrl,
    ANTHROPIC_API_KEY: 'test-key',
    GOOGLE_BASE_URL: other.baseUrl,
    GOOGLE_GENERATIVE_AI_API_KEY: 'test-key',
  }),
)

type Event = Record<string, unknown> & { type?: string }
const stream = (...events: Event[]) => ({
  end: 'cut' as const,
  tokens: events.map((data) => {
    const name = data.type ? `event: ${data.type}\n` : ''
    return Buffer.from(`${name}data: ${JSON.stringify(data)}\n\n`)
  }),
})

function anthropic(block: Event, delta: Event, stop_reason: string) {
  const usage = { input_tokens: 1, output_tokens: 1 }
  return stream(
    { type: 'message_start', message: { id: 'm', type: 'message', role: 'assistant', model: 'x', content: [], usage } },
    { type: 'content_block_start', index: 0, content_block: block },
    { type: 'content_block_delta', index: 0, delta },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason }, usage },
    { type: 'message_stop' },
  )
}

function openai(item: Event, ...deltas: Event[]) {
  const response = { id: 'r', created_at: 1, model: 'm', output: [], usage: { input_tokens: 1, output_tokens: 1 } }
  const { content, ...added } = { ...item, ...('arguments' in item && { arguments: '' }) } as Event
  return stream(
    { type: 'response.created', response },
    {
      type: 'response.output_item.added',
      output_index: 0,
      item: { ...added, ...('content' in item && { content: [] }) },
    },
    ...deltas,
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response },
  )
}

const google = (part: Event) =>
  stream({
    candidates: [{ content: { role: 'model', parts: [part] }, finishReason: 'STOP' }],
    usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1 },
  })

const message = { type: 'message', id: 'i', role: 'assistant', status: 'completed' }
const REPLIES: Record<string, ReturnType<typeof stream>[]> = {
  'anthropic/claude-x': [
    anthropic(
      { type: 'tool_use', id: 't', name: 'show', input: {} },
      { type: 'input_json_delta', partial_json: '{}' },
      'tool_use',
    ),
    anthropic({ type: 'text', text: '' }, { type: 'text_delta', text: 'Seen' }, 'end_turn'),
  ],
  'openai/m': [
    openai({ type: 'function_call', id: 'f', call_id: 'c', name: 'show', arguments: '{}', status: 'completed' }),
    openai(
      { ...message, content: [{ type: 'output_text', text: 'Seen', annotations: [] }] },
      { type: 'response.output_text.delta', item_id: 'i', output_index: 0, content_index: 0, delta: 'Seen' },
    ),
  ],
  'google/gemini-x': [google({ functionCall: { name: 'show', args: {} } }), google({ text: 'Seen' })],
}

const PLACES: [model: string, key: string, place: object][] = [
  [
    'anthropic/claude-x',
    'tool_use_id',
    { content: [{ type: 'text' }, { type: 'image', source: { media_type: 'image/png', data: 'AAAA' } }] },
  ],
  [
    'openai/m',
    'output',
    { output: [{ type: 'input_text' }, { type: 'input_image', image_url: 'data:image/png;base64,AAAA' }] },
  ],
  ['google/gemini-x', 'inlineData', { inlineData: { mimeType: 'image/png', data: 'AAAA' } }],
]

/** All objects within a value. */
const objectsIn = (value: unknown): object[] =>
  typeof value !== 'object' || value === null ? [] : [value, ...Object.values(value).flatMap(objectsIn)]

test.each(PLACES)('%s gets an image in the result of the tool', async (model, key, place) => {
  const before = other.requests.length
  other.script(...(REPLIES[model] ?? []))
  const { row, events } = await toolLab.run(await toolLab.agent({ model }))
  expect(row).toMatchObject({ error: null, status: 'completed', result: 'Seen' })
  const [, second] = other.requests.slice(before)
  expect(objectsIn(second?.body).find((one) => key in one)).toMatchObject(place)
  expect(results(events)[0]?.content).toContain('[image 1: image/png, 3 bytes]')
})

test('a model of chat completions gets an image in the message after the result', async () => {
  toolLab.lab.model.script({ toolCalls: [call('show')] }, { tokens: 'Seen' })
  const { row } = await toolLab.run(await toolLab.agent())
  expect(row).toMatchObject({ status: 'completed', result: 'Seen' })
  const messages = toolLab.lab.model.requests.at(-1)?.body.messages ?? []
  const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }
  expect(messages.at(-1)).toMatchObject({ role: 'user', content: [{ type: 'text' }, image] })
  expect(messages.find(({ role }) => role === 'tool')?.content).toContain('[image 1: image/png, 3 bytes]')
  expect(JSON.stringify(messages.filter(({ role }) => role !== 'user'))).not.toContain('AAAA')
})
