import { OpenAICompatibleChatLanguageModel } from '@ai-sdk/openai-compatible'
import type { LanguageModelV4StreamPart } from '@ai-sdk/provider'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createChatReader } from '../../src/executions/engine/chat-stream.ts'
import { separateReasoning, splitUnopened } from '../../src/executions/engine/inline-reasoning.ts'
import { ReportedError } from '../../src/executions/engine/model-errors.ts'
import type { Part, TextModel } from '../../src/executions/engine/text-model.ts'

const TOOLS = ['add', 'get_weather', 'search']
const DONE = 'data: [DONE]\n\n'
const data = (value: unknown) => `data: ${typeof value === 'string' ? value : JSON.stringify(value)}\n\n`
const chunk = (delta: unknown, finish_reason: string | null = null, more: object = {}) =>
  data({
    id: 'c',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'm',
    choices: [{ index: 0, delta, finish_reason }],
    ...more,
  })
const calls = (...tool_calls: unknown[]) => chunk({ tool_calls })
const call = (name: string | undefined, input: unknown, more: object = {}) =>
  calls({ ...more, function: { name, arguments: input } })

function partsOf(pieces: readonly (string | Uint8Array)[], thinkTags = true): Part[] {
  const read = createChatReader({ metadataKey: 'compatible', tools: new Set(TOOLS), thinkTags })
  const parts: Part[] = []
  for (const piece of pieces) if (read(Buffer.from(piece), parts) === 'whole') return parts
  read(null, parts)
  return parts
}

/** What a reply comes to, however many pieces it came in. */
function summarize(parts: readonly (Part | LanguageModelV4StreamPart)[]) {
  const joined = (type: string) =>
    parts.flatMap((part) => (part.type === type && 'delta' in part ? part.delta : [])).join('')
  const finish = parts.find((part) => part.type === 'finish')
  return {
    text: joined('text-delta'),
    reasoning: joined('reasoning-delta'),
    calls: parts.flatMap((part) => (part.type === 'tool-call' ? { name: part.toolName, input: part.input } : [])),
    finish: finish?.finishReason.unified,
    input: finish?.usage.inputTokens.total,
    output: finish?.usage.outputTokens.total,
  }
}

const read = (...pieces: string[]) => summarize(partsOf(pieces))
const callsOf = (...pieces: string[]) =>
  read(...pieces, chunk({}, 'tool_calls'), DONE).calls.map(({ name, input }) => `${name}(${input})`)
const errorOf = (...pieces: string[]): unknown => {
  try {
    return partsOf(pieces).find(({ type }) => type === 'error')
  } catch (error) {
    return error
  }
}

/** The same bytes read by the provider package. */
async function packaged(pieces: readonly string[]) {
  const body = new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(new TextEncoder().encode(piece))
      controller.close()
    },
  })
  const fetch = async () => new Response(body, { headers: { 'content-type': 'text/event-stream' } })
  const config = { provider: 'compatible.chat', url: () => 'http://localhost', headers: {}, fetch }
  const model = new OpenAICompatibleChatLanguageModel('m', config)
  const { stream } = await model.doStream({ prompt: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }] })
  return summarize(await Array.fromAsync(stream))
}

const word = fc.stringMatching(/^[a-z ,.é🗺"\\{}\n]{1,12}$/u)
const input = fc.dictionary(
  fc.stringMatching(/^[a-z]{1,5}$/),
  fc.oneof(word, fc.integer(), fc.boolean(), fc.constant(null)),
  { maxKeys: 4 },
)
const cutAnywhere = (text: string, places: readonly number[]) => {
  const at = [...new Set(places.map((place) => place % (text.length + 1)))].sort((a, b) => a - b)
  return [0, ...at].map((begin, index) => text.slice(begin, at[index] ?? text.length)).filter(Boolean)
}

const wellFormed = fc
  .record({
    reasoning: fc.array(word, { maxLength: 3 }),
    text: fc.array(word, { maxLength: 5 }),
    tools: fc.array(
      fc.record({ name: fc.constantFrom(...TOOLS), input, places: fc.array(fc.nat(50), { maxLength: 3 }) }),
      { maxLength: 3 },
    ),
    isInterleaved: fc.boolean(),
    reason: fc.constantFrom('stop', 'length', 'content_filter', 'tool_calls', 'function_call'),
    usage: fc.option(
      fc.record({
        prompt_tokens: fc.integer({ min: 1, max: 9999 }),
        completion_tokens: fc.integer({ min: 1, max: 9999 }),
      }),
    ),
  })
  .map(({ reasoning, text, tools, isInterleaved, reason, usage }) => {
    const heads = tools.map(({ name }, index) =>
      calls({ index, id: `call_${index}`, type: 'function', function: { name, arguments: '' } }),
    )
    const bodies = tools.map(({ input, places }, index) =>
      cutAnywhere(JSON.stringify(input), places).map((piece) => calls({ index, function: { arguments: piece } })),
    )
    return [
      chunk({ role: 'assistant', content: '' }),
      ...reasoning.map((piece) => chunk({ reasoning_content: piece })),
      ...text.map((piece) => chunk({ content: piece })),
      ...(isInterleaved
        ? [...heads, ...bodies.flat()]
        : heads.flatMap((head, index) => [head, ...(bodies[index] ?? [])])),
      chunk({}, reason),
      ...(usage ? [data({ id: 'c', choices: [], usage })] : []),
      DONE,
    ]
  })

describe('the reader of chat completions', () => {
  it('agrees with the AI SDK on every well-formed stream, wherever the network cuts it', async () => {
    await fc.assert(
      fc.asyncProperty(wellFormed, fc.array(fc.nat(5_000), { maxLength: 6 }), async (pieces, places) => {
        const bytes = Buffer.from(pieces.join(''))
        const at = [...places.map((place) => place % bytes.length).sort((a, b) => a - b), bytes.length]
        const cut = at.map((end, index) => bytes.subarray(at[index - 1] ?? 0, end))
        const theirs = await packaged(pieces)
        expect(summarize(partsOf(cut))).toEqual(theirs)
        expect(summarize(partsOf(pieces))).toEqual(theirs)
      }),
      { numRuns: 150 },
    )
  })

  // Where both may differ: [bytes, what ours makes of them].
  const a = { index: 0, id: 'a' }
  it.each<[string, string[], string[]]>([
    [
      'two ids at one index',
      [call('add', '{"x":1}', a), call('search', '{"x":2}', { index: 0, id: 'b' })],
      ['add({"x":1})', 'search({"x":2})'],
    ],
    [
      'the same name twice at one index',
      [call('add', '{"x":1}', a), call('add', '{"x":2}', { index: 0, id: 'b' })],
      ['add({"x":1})', 'add({"x":2})'],
    ],
    [
      'names alone, without ids and indexes',
      [call('add', '{"x":1}'), call('search', '{"x":2}')],
      ['add({"x":1})', 'search({"x":2})'],
    ],
    ['two names without inputs', [call('add', ''), call('search', '')], ['add({})', 'search({})']],
    ['pieces without id and index', [call('add', '{"x":', { id: 'a' }), call(undefined, '1}')], ['add({"x":1})']],
    [
      'an index as text',
      [call('add', '{"x":', { index: '0', id: 'a' }), call(undefined, '1}', { index: '0' })],
      ['add({"x":1})'],
    ],
    [
      'another id on each piece',
      [call('add', '{"x":', a), call(undefined, '1}', { index: 0, id: 'b' })],
      ['add({"x":1})'],
    ],
    ['a tail at the next index', [call('add', '{"x":', a), call(undefined, '1}', { index: 1 })], ['add({"x":1})']],
    [
      'one id at two indexes',
      [call('add', '{"x":1}', a), call('add', '{"x":2}', { index: 1, id: 'a' })],
      ['add({"x":1})', 'add({"x":2})'],
    ],
    ['an input in a JSON text', [call('add', JSON.stringify('{"x":1}'), a)], ['add({"x":1})']],
    ['an input that is an object', [call('add', { x: 1 }, a)], ['add({"x":1})']],
    ['null as input', [call('add', 'null', a)], ['add({})']],
    [
      'a repetition of the whole call',
      [call('add', '{"x":', a), call('add', '1}', a), call('add', '{"x": 1}', a)],
      ['add({"x":1})'],
    ],
    [
      'an empty object before the pieces',
      [call('add', '{}', a), call(undefined, '{"x":', { index: 0 }), call(undefined, '1}', { index: 0 })],
      ['add({"x":1})'],
    ],
    ['a name in pieces', [call('get_', '', a), call('weather', '{"x":1}', { index: 0 })], ['get_weather({"x":1})']],
    [
      'a name that grows',
      [call('get_', '', a), call('get_weather', '{"x":1}', { index: 0 })],
      ['get_weather({"x":1})'],
    ],
    [
      'the legacy function_call',
      [chunk({ function_call: { name: 'add', arguments: '{"x":' } }), chunk({ function_call: { arguments: '1}' } })],
      ['add({"x":1})'],
    ],
    [
      'calls in a message',
      [
        data({
          choices: [{ message: { tool_calls: [{ id: 'a', function: { name: 'add', arguments: '{"x":1}' } }] } }],
        }),
      ],
      ['add({"x":1})'],
    ],
    ['braces in texts', [call('add', '{"x":"}{\\"', a), call(undefined, '}"}', { index: 0 })], ['add({"x":"}{\\"}"})']],
    // The text stays as it is: whoever makes the call sees that it is no JSON object.
    ['an input without its end', [call('add', '{"x":', a)], ['add({"x":)']],
    ['an input that is a list', [call('add', '[1]', a)], ['add([1])']],
    ['two inputs in a row', [call('add', '{"x":1}{"x":2}', a)], ['add({"x":1})', 'add({"x":2})']],
    [
      'two inputs in pieces of their own',
      [call('add', '{"x":1}', a), call(undefined, '{"x":2}', { index: 0 })],
      ['add({"x":1})', 'add({"x":2})'],
    ],
    ['one input twice in a row', [call('add', '{"x":1} {"x": 1}', a)], ['add({"x":1})']],
    // They may be of different tools: nobody can say which.
    ['two inputs with different keys', [call('add', '{"x":1}{"y":2}', a)], ['add({"x":1}{"y":2})']],
    ['an input with a tail', [call('add', '{"x":1}{"x":', a)], ['add({"x":1}{"x":)']],
  ])('puts calls together from %s', (_, pieces, expected) => {
    expect(callsOf(...pieces)).toEqual(expected)
  })

  it.each<[string, string]>([
    ['null', data('null')],
    ['an empty object', data('{}')],
    ['no data', 'data:\n\n'],
    ['a ping', 'event: ping\ndata: {"type":"ping"}\n\n'],
    ['a comment', ': processing\n\n'],
    ['no choices', data({ id: 'x', object: 'chat.completion.chunk' })],
    ['choices that are null', data({ choices: null })],
    ['a delta that is null', data({ choices: [{ delta: null }] })],
    ['an error that is empty', data({ choices: [{ delta: {} }], error: '' })],
    ['a finish reason "None"', chunk({}, 'None')],
    ['a word', 'data: PROCESSING\n\n'],
  ])('ignores a chunk that says nothing: %s', (_, odd) => {
    expect(
      read(odd, chunk({ content: 'H' }), odd, chunk({ content: 'i' }), odd, chunk({}, 'stop'), odd, DONE),
    ).toMatchObject({ text: 'Hi', finish: 'stop' })
  })

  const USAGE = { prompt_tokens: 3, completion_tokens: 4 }
  it.each<[string, string[]]>([
    ['its own chunk', [chunk({}, 'stop'), data({ usage: USAGE })]],
    ['x_groq', [chunk({}, 'stop', { x_groq: { usage: USAGE } })]],
    ['the choice', [data({ choices: [{ delta: {}, finish_reason: 'stop', usage: USAGE }] })]],
    ['texts', [chunk({}, 'stop', { usage: { prompt_tokens: '3', completion_tokens: '4.0' } })]],
    ['other names', [chunk({}, 'stop', { usage: { input_tokens: 3, output_tokens: 4 } })]],
    [
      'growing numbers',
      [chunk({}, null, { usage: { prompt_tokens: 3, completion_tokens: 1 } }), chunk({}, 'stop', { usage: USAGE })],
    ],
    [
      'zeros behind it',
      [chunk({}, 'stop', { usage: USAGE }), data({ choices: [], usage: { prompt_tokens: 0, completion_tokens: 0 } })],
    ],
    [
      'nonsense behind it',
      [chunk({}, 'stop', { usage: USAGE }), data({ usage: { prompt_tokens: -1, completion_tokens: 'x' } })],
    ],
  ])('finds the usage in %s', (_, pieces) => {
    expect(read(chunk({ content: 'Hi' }), ...pieces, DONE)).toMatchObject({ input: 3, output: 4 })
  })

  it('counts cached and reasoning tokens apart', () => {
    const usage = {
      ...USAGE,
      prompt_tokens_details: { cached_tokens: 2 },
      completion_tokens_details: { reasoning_tokens: 1 },
    }
    expect(partsOf([chunk({}, 'stop', { usage }), DONE]).at(-1)).toMatchObject({
      usage: {
        inputTokens: { total: 3, noCache: 1, cacheRead: 2, cacheWrite: undefined },
        outputTokens: { total: 4, text: 3, reasoning: 1 },
      },
    })
  })

  it.each<[string, string]>([
    ['an object', data({ error: { message: 'Too hot' } })],
    ['a text', data({ error: 'Too hot' })],
    ['the field "error:"', 'error: {"code":400,"message":"Too hot"}\n\n'],
    ['an error event of JSON', 'event: error\ndata: {"message":"Too hot"}\n\n'],
    ['an error event of text', 'event: error\ndata: Too hot\n\n'],
    ['an object that is an error', data({ object: 'error', message: 'Too hot' })],
    ['a detail', data({ detail: 'Too hot' })],
    [
      'an error in the choice',
      data({ choices: [{ delta: {}, error: { message: 'Too hot' }, finish_reason: 'error' }] }),
    ],
    ['base_resp', data({ choices: null, base_resp: { status_code: 1002, status_msg: 'Too hot' } })],
    ['a JSON body', JSON.stringify({ code: 1001, msg: 'Too hot' })],
    ['a JSON body over lines', JSON.stringify([{ error: { message: 'Too hot' } }], null, 2)],
  ])('fails at %s', (_, bytes) => {
    expect(errorOf(bytes)).toMatchObject({ type: 'error', error: expect.any(ReportedError) })
    expect(JSON.stringify(errorOf(bytes))).toContain('Too hot')
  })

  it.each<[string, string[]]>([
    [
      'one JSON body',
      [
        JSON.stringify({
          object: 'chat.completion',
          choices: [{ message: { content: 'Whole' }, finish_reason: 'stop' }],
        }),
      ],
    ],
    ['one event with a message', [data({ choices: [{ message: { content: 'Whole' }, finish_reason: 'stop' }] }), DONE]],
    [
      'lines of JSON',
      [
        '{"choices":[{"delta":{"content":"Wh"}}]}\n',
        '{"choices":[{"delta":{"content":"ole"},"finish_reason":"stop"}]}\n',
      ],
    ],
    [
      'deltas and the whole message at the end',
      [
        chunk({ content: 'Wh' }),
        chunk({ content: 'ole' }),
        data({ choices: [{ message: { content: 'Whole' }, finish_reason: 'stop' }] }),
        DONE,
      ],
    ],
    [
      'messages that grow',
      ['Wh', 'Whol', 'Whole'].map((content) =>
        data({ choices: [{ message: { content }, finish_reason: content === 'Whole' ? 'stop' : null }] }),
      ),
    ],
    ['a last event without its end', [chunk({ content: 'Whole' }), chunk({}, 'stop').trimEnd()]],
    [
      'parts',
      [chunk({ content: [{ type: 'text', text: 'Wh' }] }), chunk({ content: { type: 'text', text: 'ole' } }, 'stop')],
    ],
  ])('reads %s', (_, pieces) => {
    expect(read(...pieces)).toMatchObject({ text: 'Whole', finish: 'stop' })
  })

  it('takes an answer whose stream ends without a finish reason for cut, unless [DONE] ends it', () => {
    expect(read(chunk({ content: 'Well, ' }))).toMatchObject({ text: 'Well, ', finish: 'length' })
    expect(read(chunk({ content: 'Well.' }), DONE)).toMatchObject({ text: 'Well.', finish: 'stop' })
    expect(errorOf(chunk({ role: 'assistant' }))).toMatchObject({ type: 'error' })
  })

  it.each([
    ['stop', 'stop'],
    ['eos', 'stop'],
    ['end_turn', 'stop'],
    ['max_tokens', 'length'],
    ['model_context_window_exceeded', 'length'],
    ['sensitive', 'content-filter'],
    ['SAFETY', 'content-filter'],
    ['abort', 'error'],
    ['network_error', 'error'],
    ['insufficient_system_resource', 'error'],
    ['something_new', 'other'],
  ])('maps the finish reason %s to %s, and keeps it', (raw, unified) => {
    expect(partsOf([chunk({ content: 'Hi' }, raw), DONE]).at(-1)).toMatchObject({ finishReason: { raw, unified } })
  })
})

describe('reasoning', () => {
  /** The metadata of all reasoning, put together as a reply keeps it. */
  const kept = (...pieces: string[]) =>
    Object.assign(
      {},
      ...partsOf([...pieces, chunk({}, 'stop'), DONE]).map((part) =>
        part.type.startsWith('reasoning') && 'providerMetadata' in part ? part.providerMetadata?.compatible : {},
      ),
    )

  it.each(['reasoning_content', 'reasoning', 'thinking'])(
    'in the field %s stands apart and remembers its field',
    (field) => {
      expect(read(chunk({ [field]: 'Hm' }), chunk({ [field]: '.' }), chunk({ content: 'Yes' }, 'stop'))).toMatchObject({
        reasoning: 'Hm.',
        text: 'Yes',
      })
      expect(kept(chunk({ [field]: 'Hm' }))).toMatchObject({ field })
    },
  )

  it('in two fields at once is read once', () => {
    expect(read(chunk({ reasoning: 'Hm', reasoning_content: 'Hm' }, 'stop')).reasoning).toBe('Hm')
  })

  it('details are kept whole, those that come late and encrypted too', () => {
    const detail = (text: string, more = {}) => ({ type: 'reasoning.text', text, index: 0, ...more })
    const pieces = [
      chunk({ reasoning: 'H', reasoning_details: [detail('H')] }),
      chunk({ reasoning: 'm', reasoning_details: [detail('m', { signature: 'S' })] }),
    ]
    expect(kept(...pieces)).toEqual({ field: 'reasoning', reasoning_details: [detail('Hm', { signature: 'S' })] })
    const late = { type: 'reasoning.encrypted', data: 'ENC', index: 1 }
    expect(kept(...pieces, chunk({ content: 'Yes' }), chunk({ reasoning_details: [late] }))).toEqual({
      field: 'reasoning_details',
      reasoning_details: [late],
    })
  })

  it.each([
    ['<think>', '</think>'],
    ['<thinking>', '</thinking>'],
    ['◁think▷', '◁/think▷'],
    ['[THINK]', '[/THINK]'],
    ['<|channel|>analysis<|message|>', '<|end|><|start|>assistant<|channel|>final<|message|>'],
  ])('between %s and %s at the start is set apart, wherever it is cut', (open, close) => {
    const text = `\n${open}Hm < hm\n${close}\n\nYes, <think> is a tag`
    for (let size = 1; size <= text.length; size++) {
      const pieces = text.match(new RegExp(`[\\s\\S]{1,${size}}`, 'g')) ?? []
      const summary = read(...pieces.map((content) => chunk({ content })), chunk({}, 'stop'), DONE)
      expect(summary).toMatchObject({ reasoning: 'Hm < hm\n', text: 'Yes, <think> is a tag' })
    }
  })

  it.each(['<p>Hi</p>', ' <thin ice>', 'Use <think>x</think> like this', '<', '  ', '<think'])(
    'is not found in "%s"',
    (text) => {
      for (const pieces of [[text], [...text]]) {
        expect(read(...pieces.map((content) => chunk({ content })), chunk({}, 'stop'))).toMatchObject({
          reasoning: '',
          text,
        })
      }
    },
  )

  it('without its end is all there is', () => {
    expect(read(chunk({ content: '<think>only ' }), chunk({ content: 'this' }, 'length'))).toMatchObject({
      reasoning: 'only this',
      text: '',
    })
  })

  it('in tags is text where THINK_TAGS is false', () => {
    const text = '<think>Hm</think>Yes'
    expect(summarize(partsOf([chunk({ content: text }, 'stop')], false))).toMatchObject({ reasoning: '', text })
  })

  it.each<[string, string | null]>([
    ['Hm.\n</think>\n\nYes', 'Yes'],
    ['Hm.</think>Yes', 'Yes'],
    ['analysisThe user asks.assistantfinalYes', 'Yes'],
    ['The tag `</think>` ends it', null],
    ['Write </think> behind it', null],
    ['```\n</think>\n```', null],
    ['An analysis', null],
  ])('without an opening tag in %j leaves %j', (text, answer) => {
    const model = { splitReasoning: splitUnopened } as unknown as TextModel
    const reply = separateReasoning([{ type: 'text', text }], model)
    expect(reply.at(-1)).toEqual({ type: 'text', text: answer ?? text })
    expect(reply).toHaveLength(answer === null ? 1 : 2)
    expect(separateReasoning([{ type: 'text', text }], {} as TextModel)).toHaveLength(1)
  })
})
