import { createOpenAI } from '@ai-sdk/openai'
import fc from 'fast-check'
import OpenAI from 'openai'
import { describe, expect, it } from 'vitest'
import { repairStreams } from '../../src/executions/engine/models/provider-streams.ts'
import { textModel } from '../../src/executions/engine/models/text-model.ts'

// Compares our reader of Responses with the official library over generated streams. Both get the same bytes, and the
// generated reply is the truth.

const word = fc.stringMatching(/^[a-z ,.é🗺"\\{}\n]{1,12}$/u)
const words = fc.array(word, { minLength: 1, maxLength: 3 })
const input = fc.dictionary(fc.stringMatching(/^[a-z]{1,5}$/), fc.oneof(word, fc.integer(), fc.constant(null)), {
  maxKeys: 3,
})

/** The items of a generated reply. */
const replies = fc.array(
  fc.oneof(
    fc.record({ type: fc.constant('reasoning' as const), parts: fc.array(words, { maxLength: 2 }) }),
    fc.record({ type: fc.constant('message' as const), parts: words }),
    fc.record({ type: fc.constant('refusal' as const), parts: words }),
    fc.record({ type: fc.constant('call' as const), name: fc.constantFrom('add', 'search'), input, at: fc.nat(40) }),
    fc.record({ type: fc.constant('search' as const) }),
  ),
  { maxLength: 5 },
)
type Reply = typeof replies extends fc.Arbitrary<infer One> ? One : never
type Item = Reply[number]

/** Ways of servers to write an answer that the official library also understands, and then others. */
const PLAIN = ['as specified', 'comments', 'lines that end with CR', 'no names of events', 'no [DONE]'] as const
const ODD = [
  'no deltas',
  'other ids in the whole answer',
  'no whole answer',
  'no starts of items',
  'one index',
] as const
type Way = (typeof PLAIN)[number] | (typeof ODD)[number]

const json = JSON.stringify
const usage = { input_tokens: 12, output_tokens: 34, total_tokens: 46 }

/** Returns the complete item. */
function wholeOf(item: Item, id: string) {
  switch (item.type) {
    case 'reasoning':
      return {
        type: 'reasoning',
        id,
        summary: item.parts.map((part) => ({ type: 'summary_text', text: part.join('') })),
      }
    case 'message': {
      const content = [{ type: 'output_text', text: item.parts.join(''), annotations: [] }]
      return { type: 'message', id, role: 'assistant', status: 'completed', content }
    }
    case 'refusal': {
      const content = [{ type: 'refusal', refusal: item.parts.join('') }]
      return { type: 'message', id, role: 'assistant', status: 'completed', content }
    }
    case 'call':
      return { type: 'function_call', id, call_id: `call_${id}`, name: item.name, arguments: json(item.input) }
    default:
      return { type: 'web_search_call', id, status: 'completed' }
  }
}

type Event = { type: string; [name: string]: unknown }

/** Returns the events of an item. */
function eventsOf(item: Item, output_index: number, way: Way): Event[] {
  const whole = wholeOf(item, `item_${output_index}`)
  const at = { output_index: way === 'one index' ? 0 : output_index, item_id: whole.id }
  const empty = { content: [], summary: [], arguments: '' }
  const begun = Object.fromEntries(Object.entries(empty).filter(([name]) => name in whole))
  const starts: Event = { type: 'response.output_item.added', ...at, item: { ...whole, ...begun } }
  const ends: Event = { type: 'response.output_item.done', ...at, item: whole }
  return [...(way === 'no starts of items' ? [] : [starts]), ...(way === 'no deltas' ? [] : deltasOf(item, at)), ends]
}

function deltasOf(item: Item, at: object): Event[] {
  if (item.type === 'reasoning') {
    return item.parts.flatMap((part, summary_index): Event[] => {
      const of = { ...at, summary_index }
      return [
        { type: 'response.reasoning_summary_part.added', ...of, part: { type: 'summary_text', text: '' } },
        ...part.map((delta) => ({ type: 'response.reasoning_summary_text.delta', ...of, delta })),
        { type: 'response.reasoning_summary_part.done', ...of, part: { type: 'summary_text', text: part.join('') } },
      ]
    })
  }
  if (item.type === 'call') {
    const text = json(item.input)
    const deltas = [text.slice(0, item.at), text.slice(item.at)].filter(Boolean)
    return [
      ...deltas.map((delta) => ({ type: 'response.function_call_arguments.delta', ...at, delta })),
      { type: 'response.function_call_arguments.done', ...at, arguments: text },
    ]
  }
  if (item.type === 'search') return [{ type: 'response.web_search_call.searching', ...at }]
  const kind = item.type === 'message' ? 'output_text' : 'refusal'
  const field = item.type === 'message' ? 'text' : 'refusal'
  const part = { type: kind, [field]: '', ...(kind === 'output_text' && { annotations: [] }) }
  const of = { ...at, content_index: 0 }
  return [
    { type: 'response.content_part.added', ...of, part },
    ...item.parts.map((delta) => ({ type: `response.${kind}.delta`, ...of, delta })),
    { type: `response.${kind}.done`, ...of, [field]: item.parts.join('') },
  ]
}

/** Writes a reply as a server does. */
function write(reply: Reply, way: Way): Uint8Array<ArrayBuffer> {
  const response = { id: 'resp_1', object: 'response', created_at: 1, model: 'm', status: 'in_progress', output: [] }
  const output = reply.map((item, index) =>
    wholeOf(item, way === 'other ids in the whole answer' ? `other_${index}` : `item_${index}`),
  )
  const whole = { ...response, status: 'completed', usage, ...(way !== 'no whole answer' && { output }) }
  const events: Event[] = [
    { type: 'response.created', response },
    ...reply.flatMap((item, index) => eventsOf(item, index, way)),
    { type: 'response.completed', response: whole },
  ]
  const name = (type: string) => (way === 'no names of events' ? '' : `event: ${type}\n`)
  const between = way === 'comments' ? ': waiting\n\n' : ''
  const done = way === 'no [DONE]' ? '' : 'data: [DONE]\n\n'
  const text = events.map((event) => `${name(event.type)}data: ${json(event)}\n\n${between}`).join('') + done
  return new TextEncoder().encode(way === 'lines that end with CR' ? text.replaceAll('\n', '\r\n') : text)
}

const fetchOf = (pieces: readonly Uint8Array[]) => async () => {
  const body = new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(piece)
      controller.close()
    },
  })
  return new Response(body, { headers: { 'content-type': 'text/event-stream' } })
}

type Summary = { text: string; reasoning: string; calls: string[]; tokens: number | undefined }

/** Reads pieces with our reader. */
async function ours(pieces: readonly Uint8Array[]): Promise<Summary> {
  const fetch = repairStreams('openai', fetchOf(pieces))
  const model = textModel(createOpenAI({ apiKey: 'test', baseURL: 'http://localhost/v1', fetch })('m'))
  const { stream } = await model.doStream({ prompt: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }] })
  const parts = (await Array.fromAsync(stream)).flat()
  const joined = (type: string) =>
    parts.flatMap((part) => (part.type === type && 'delta' in part ? part.delta : [])).join('')
  return {
    text: joined('text-delta'),
    reasoning: joined('reasoning-delta'),
    calls: parts.flatMap((part) => (part.type === 'tool-call' ? `${part.toolName}(${part.input})` : [])),
    tokens: parts.find((part) => part.type === 'finish')?.usage.outputTokens.total,
  }
}

/** Reads bytes with the official library. */
async function official(bytes: Uint8Array): Promise<Summary> {
  const client = new OpenAI({ apiKey: 'test', baseURL: 'http://localhost/v1', maxRetries: 0, fetch: fetchOf([bytes]) })
  const response = await client.responses.stream({ model: 'm', input: 'Hi' }).finalResponse()
  return {
    text: response.output
      .flatMap((item) => (item.type === 'message' ? item.content : []))
      .map((part) => (part.type === 'refusal' ? part.refusal : part.text))
      .join(''),
    reasoning: response.output
      .flatMap((item) => (item.type === 'reasoning' ? item.summary.map(({ text }) => text) : []))
      .join(''),
    calls: response.output.flatMap((item) => (item.type === 'function_call' ? `${item.name}(${item.arguments})` : [])),
    tokens: response.usage?.output_tokens,
  }
}

const truth = (reply: Reply): Summary => ({
  text: reply.flatMap((item) => (item.type === 'message' || item.type === 'refusal' ? item.parts : [])).join(''),
  reasoning: reply.flatMap((item) => (item.type === 'reasoning' ? item.parts.flat() : [])).join(''),
  calls: reply.flatMap((item) => (item.type === 'call' ? `${item.name}(${json(item.input)})` : [])),
  tokens: usage.output_tokens,
})

describe('the readers of Responses, ours and that of the official library,', () => {
  it('agree on every stream of the specification, wherever the network cuts it', async () => {
    const places = fc.array(fc.nat(5_000), { maxLength: 6 })
    await fc.assert(
      fc.asyncProperty(replies, fc.constantFrom(...PLAIN), places, async (reply, way, at) => {
        const bytes = write(reply, way)
        const ends = [...at.map((place) => place % bytes.length).sort((a, b) => a - b), bytes.length]
        expect(await ours(ends.map((end, index) => bytes.subarray(ends[index - 1] ?? 0, end)))).toEqual(truth(reply))
        expect(await official(bytes)).toEqual(truth(reply))
      }),
      { numRuns: 50, seed: 32 },
    )
  })

  it.each(ODD)('ours also reads every reply of a server that writes %s', async (way) => {
    await fc.assert(
      fc.asyncProperty(replies, async (reply) => {
        expect(await ours([write(reply, way)])).toEqual(truth(reply))
      }),
      { numRuns: 10, seed: 32 },
    )
  })
})
