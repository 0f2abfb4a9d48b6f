import { ParseError } from 'eventsource-parser'
import { describe, expect, it } from 'vitest'
import { separateReasoning, splitUnopened } from '../../src/executions/engine/models/inline-reasoning.ts'
import { ReportedError } from '../../src/executions/engine/models/model-errors.ts'
import { createRestOfData } from '../../src/executions/engine/models/odd-answers.ts'
import type { TextModel } from '../../src/executions/engine/models/text-model.ts'
import { calls, chunk, DONE, data, partsOf, summarize } from './chat-bytes.ts'

const call = (name: string | undefined, input: unknown, more: object = {}) =>
  calls({ ...more, function: { name, arguments: input } })

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

describe('the reader of chat completions', () => {
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
    [
      'names and inputs that say that there are none',
      [
        call('add', '{"x":', a),
        call('null', '1}', { index: 0, id: '' }),
        call('search', 'None', { index: 1, id: 'b' }),
      ],
      ['add({"x":1})', 'search({})'],
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
    [
      'an input that is an object with a number beyond 2^53',
      [call('add', JSON.parse('{"x":1}'), a).replace('1}}', '12345678901234567890}}')],
      ['add({"x":12345678901234567890})'],
    ],
    [
      'an input in a JSON text with a number beyond 2^53',
      [call('add', JSON.stringify('{"x":12345678901234567890}'), a)],
      ['add({"x":12345678901234567890})'],
    ],
    ['an input in a JSON text', [call('add', JSON.stringify('{"x":1}'), a)], ['add({"x":1})']],
    ['an input in a code fence', [call('add', '```json\n{"x":1}\n```', a)], ['add({"x":1})']],
    [
      'an input in a code fence, in pieces',
      [call('add', '```json\n', a), call(undefined, '{"x":1}', { index: 0 }), call(undefined, '\n```', { index: 0 })],
      ['add({"x":1})'],
    ],
    ['an unfinished input in a code fence', [call('add', '```json\n{"x":1', a)], ['add(```json\n{"x":1)']],
    [
      'marks behind an input',
      [call('add', '{"x":1}</tool_call>', a), call(undefined, '<|im_end|>', a)],
      ['add({"x":1})'],
    ],
    [
      'a Python literal',
      [call('add', "{'x': 'it\\'s \"a\"', 'y': [True, None,]}", a)],
      ['add({"x":"it\'s \\"a\\"","y":[true,null]})'],
    ],
    ['words of Python', [call('add', '{"x": "True", "y": True}', a)], ['add({"x":"True","y":true})']],
    ['an escaped single quote', [call('add', '{"x":"it\\\'s"}', a)], ['add({"x":"it\'s"})']],
    ['a comma too many', [call('add', '{"x":"a",}', a)], ['add({"x":"a"})']],
    [
      'a whole message behind the pieces, with another id',
      [
        call('add', '{"x":1}', a),
        data({
          choices: [
            {
              message: { tool_calls: [{ id: 'b', function: { name: 'add', arguments: '{"x":1}' } }] },
              finish_reason: 'tool_calls',
            },
          ],
        }),
      ],
      ['add({"x":1})'],
    ],
    ['the first brace twice', [call('add', '{', a), call(undefined, '{"x":1}', { index: 0 })], ['add({"x":1})']],
    [
      'an input that begins again',
      [call('add', '', a), call(undefined, '{"x": "a"{"x": "a", "y": 1}', { id: null })],
      ['add({"x":"a","y":1})'],
    ],
    [
      'an unfinished input with the same keys inside',
      [call('add', '{"x":{"x":{"x":1}}', a)],
      ['add({"x":{"x":{"x":1}})'],
    ],
    ['a brace too many', [call('add', '{"x":{"y":1}}}', a)], ['add({"x":{"y":1}})']],
    ['quotes that were escaped twice', [call('add', '{\\"x\\":\\"a\\"}', a)], ['add({"x":"a"})']],
    ['an input under another name', [calls({ id: 'a', name: 'add', input: { x: 1 } })], ['add({"x":1})']],
    [
      "a part of Anthropic's messages",
      [chunk({ content: [{ type: 'tool_use', id: 'a', name: 'add', input: { x: 1 } }] })],
      ['add({"x":1})'],
    ],
    [
      'backslashes that escape nothing',
      [call('add', '{"x":"\\d+\\\\.\\n","y":"C:\\Dir"}', a)],
      ['add({"x":"\\\\d+\\\\.\\n","y":"C:\\\\Dir"})'],
    ],
    ['raw line breaks in a text of the input', [call('add', '{"x":"a\nb\tc"}', a)], ['add({"x":"a\\nb\\tc"})']],
    ['an input that is an object', [call('add', { x: 1 }, a)], ['add({"x":1})']],
    ['an input in a list', [call('add', '[{"x":1}]', a)], ['add({"x":1})']],
    ['null as input', [call('add', 'null', a)], ['add({})']],
    ['an empty list as input', [call('add', '[]', a)], ['add({})']],
    ['a name behind its input', [call(undefined, '{"x":1}', a), call('add', '', a)], ['add({"x":1})']],
    [
      'a repetition of the whole call',
      [call('add', '{"x":', a), call('add', '1}', a), call('add', '{"x": 1}', a)],
      ['add({"x":1})'],
    ],
    [
      'a repetition with another id and without a name',
      [call('add', '{}', a), call(undefined, '{}', { index: 0, id: 'b' })],
      ['add({})'],
    ],
    [
      'an empty object before the pieces',
      [call('add', '{}', a), call(undefined, '{"x":', { index: 0 }), call(undefined, '1}', { index: 0 })],
      ['add({"x":1})'],
    ],
    [
      'a name that begins with that of another tool',
      [call('search', '', a), call('_all', '{"x":1}', { index: 0 })],
      ['search_all({"x":1})'],
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
    [
      'pieces that repeat all before them',
      [call('add', '{"x"', a), call(undefined, '{"x":"y', { index: 0 }), call(undefined, '{"x":"yz"}', { index: 0 })],
      ['add({"x":"yz"})'],
    ],
    [
      'a piece that repeats a bracket',
      [call('add', '{"x":[', a), call(undefined, '[', { index: 0 }), call(undefined, ']]}', { index: 0 })],
      ['add({"x":[[]]})'],
    ],
    // The text stays unchanged, so that the caller sees that it is no JSON object.
    ['an input without its end', [call('add', '{"x":', a)], ['add({"x":)']],
    ['an input that is a list', [call('add', '[1]', a)], ['add([1])']],
    ['two inputs in a row', [call('add', '{"x":1}{"x":2}', a)], ['add({"x":1})', 'add({"x":2})']],
    [
      'two inputs in pieces of their own',
      [call('add', '{"x":1}', a), call(undefined, '{"x":2}', { index: 0 })],
      ['add({"x":1})', 'add({"x":2})'],
    ],
    ['one input twice in a row', [call('add', '{"x":1} {"x": 1}', a)], ['add({"x":1})']],
    // They may be of different tools, which is undecidable.
    ['two inputs with different keys', [call('add', '{"x":1}{"y":2}', a)], ['add({"x":1}{"y":2})']],
    ['an input with a tail', [call('add', '{"x":1}{"x":', a)], ['add({"x":1}{"x":)']],
  ])('joins calls from %s', (_, pieces, expected) => {
    expect(callsOf(...pieces)).toEqual(expected)
  })

  it('reads an input of megabytes with a raw line break', () => {
    const text = 'x'.repeat(15_000_000)
    expect(callsOf(call('add', `{"x":"${text}\n"}`, a))).toEqual([`add({"x":"${text}\\n"})`])
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
    ['a place in a queue', data({ status: 'queued', message: 'Waiting' })],
    ['an event of the end', 'event: done\ndata: {"message":"Bye"}\n\n'],
  ])('ignores a chunk without content: %s', (_, odd) => {
    expect(
      read(odd, chunk({ content: 'H' }), odd, chunk({ content: 'i' }), odd, chunk({}, 'stop'), odd, DONE),
    ).toMatchObject({ text: 'Hi', finish: 'stop' })
  })

  const USAGE = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 }
  it.each<[string, string[]]>([
    ['its own chunk', [chunk({}, 'stop'), data({ usage: USAGE })]],
    ['x_groq', [chunk({}, 'stop', { x_groq: { usage: USAGE } })]],
    ['the choice', [data({ choices: [{ delta: {}, finish_reason: 'stop', usage: USAGE }] })]],
    ['texts', [chunk({}, 'stop', { usage: { prompt_tokens: '3', completion_tokens: '4.0' } })]],
    ['other names', [chunk({}, 'stop', { usage: { input_tokens: 3, output_tokens: 4 } })]],
    ['the total', [chunk({}, 'stop', { usage: { prompt_tokens: 3, completion_tokens: null, total_tokens: 7 } })]],
    [
      'the total, with cached tokens under the names of Bedrock',
      [chunk({}, 'stop', { usage: { inputTokens: 1, outputTokens: 4, totalTokens: 7, cacheReadInputTokens: 2 } })],
    ],
    ['the total, without a count of the reasoning', [chunk({}, 'stop', { usage: { ...USAGE, completion_tokens: 1 } })]],
    [
      'reasoning beside the output',
      [
        chunk({}, 'stop', {
          usage: { ...USAGE, completion_tokens: 1, completion_tokens_details: { reasoning_tokens: 3 } },
        }),
      ],
    ],
    [
      'cached tokens beside the input',
      [chunk({}, 'stop', { usage: { ...USAGE, prompt_tokens: 1, cache_read_input_tokens: 2 } })],
    ],
    ['the times of llama.cpp', [chunk({}, 'stop', { timings: { prompt_n: 1, cache_n: 2, predicted_n: 4 } })]],
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

  it('counts cached and reasoning tokens separately', () => {
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
    ['x_groq', chunk({}, null, { x_groq: { id: 'x', error: 'Too hot' } })],
    ['base_resp', data({ choices: null, base_resp: { status_code: 1002, status_msg: 'Too hot' } })],
    ['a JSON body', JSON.stringify({ code: 1001, msg: 'Too hot' })],
    ['a success that is false', JSON.stringify({ result: null, success: false, errors: [{ message: 'Too hot' }] })],
    ['an errorMessage', JSON.stringify({ errorMessage: 'Too hot' })],
    ['an Error of a cloud', JSON.stringify({ Error: { Message: 'Too hot' } })],
    ['a fault of a gateway', JSON.stringify({ fault: { faultstring: 'Too hot' } })],
    ['a JSON body over lines', JSON.stringify([{ error: { message: 'Too hot' } }], null, 2)],
  ])('fails at %s', (_, bytes) => {
    expect(errorOf(bytes)).toMatchObject({ type: 'error', error: expect.any(ReportedError) })
    expect(JSON.stringify(errorOf(bytes))).toContain('Too hot')
  })

  it('quotes a sentence or the title of a page that arrives in pieces', () => {
    expect(errorOf('Internal Ser', 'ver Error')).toMatchObject({ body: 'Internal Server Error' })
    const pieces = ['<!doctype', ' html><title>Sign', ' in</title>']
    expect(errorOf(...pieces)).toMatchObject({ message: expect.stringContaining('"Sign in"') })
  })

  it.each<[string, string, string]>([
    ['responses', data({ type: 'response.created', response: {} }), 'OPENAI_RESPONSES_BASE_URL'],
    ['a whole response', JSON.stringify({ object: 'response', output: [] }), 'OPENAI_RESPONSES_BASE_URL'],
    ["Anthropic's messages", data({ type: 'message_start', message: {} }), 'ANTHROPIC_BASE_URL'],
    ["Ollama's own messages", '{"message":{"content":"Hi"},"done":false}\n', '/v1'],
  ])('names the right setting for a server that answers with %s', (_, bytes, advice) => {
    expect(errorOf(bytes)).toMatchObject({ name: 'ModelError', message: expect.stringContaining(advice) })
  })

  it('reads an answer that the server has parsed as JSON, and counts pictures', () => {
    for (const answer of [{ n: 7 }, { content: 'Hi' }, { value: 'Hi' }])
      expect(read(chunk({ content: answer }, 'stop'))).toMatchObject({ text: JSON.stringify(answer) })
    const images = [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }]
    const pieces = [chunk({ content: images, images }, 'stop'), DONE]
    expect(partsOf(pieces).filter(({ type }) => type === 'file')).toHaveLength(2)
  })

  const PRETTY = [
    { choices: [{ delta: { content: 'Wh' } }] },
    { choices: [{ delta: { content: 'ole' }, finish_reason: 'stop' }] },
  ].map((value) => JSON.stringify(value, null, 2))
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
    [
      'one JSON body in the envelope of a gateway',
      [
        JSON.stringify({
          success: true,
          data: { choices: [{ message: { content: 'Whole' }, finish_reason: 'stop' }] },
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
    ['JSON values of several lines each', PRETTY.map((value) => `${value}\n\n`)],
    ['JSON values of several lines, the first of which has a prefix', PRETTY.map((value) => `data: ${value}\n\n`)],
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
      'deltas with their text beside them (Together)',
      ['Wh', 'ole', ''].map((content) =>
        data({ choices: [{ text: content, delta: { content, token_id: 1 }, finish_reason: content ? null : 'stop' }] }),
      ),
    ],
    [
      'a whole answer with an empty delta beside its message (Perplexity)',
      [
        JSON.stringify({
          choices: [
            { message: { content: 'Whole' }, delta: { role: 'assistant', content: '' }, finish_reason: 'stop' },
          ],
        }),
      ],
    ],
    [
      'deltas with the growing message beside them (Perplexity)',
      [
        ['Wh', 'Wh'],
        ['ole', 'Whole'],
        ['', 'Whole'],
      ].map(([content, all]) =>
        data({
          choices: [{ delta: { content }, message: { content: all }, finish_reason: content ? null : 'stop' }],
        }),
      ),
    ],
    [
      'messages that grow',
      ['Wh', 'Whol', 'Whole'].map((content) =>
        data({ choices: [{ message: { content }, finish_reason: content === 'Whole' ? 'stop' : null }] }),
      ),
    ],
    [
      'events without blank lines',
      [chunk({ content: 'Wh' }), chunk({ content: 'ole' }), chunk({}, 'stop'), DONE].map(
        (event) => `${event.trimEnd()}\n`,
      ),
    ],
    ['two chunks in one line', [`${chunk({ content: 'Wh' }).trimEnd()}${chunk({ content: 'ole' }, 'stop').slice(6)}`]],
    ['a repeated prefix', [chunk({ content: 'Whole' }), chunk({}, 'stop'), DONE].map((event) => `data: ${event}`)],
    ['an indented prefix', [chunk({ content: 'Whole' }), chunk({}, 'stop'), DONE].map((event) => ` ${event}`)],
    ['a capital prefix', [chunk({ content: 'Whole' }), chunk({}, 'stop')].map((event) => `D${event.slice(1)}`)],
    ['an end in lower case', [chunk({ content: 'Whole' }), 'data: [done]\n\n']],
    [
      'the end of thinking that came in its own field',
      [chunk({ reasoning: 'Hm' }), chunk({ content: '</thi' }), chunk({ content: 'nk>\n\nWhole' }, 'stop')],
    ],
    ['a last event without its end', [chunk({ content: 'Whole' }), chunk({}, 'stop').trimEnd()]],
    [
      'parts',
      [
        chunk({ content: [{ type: 'text', text: { value: 'Wh' } }] }),
        chunk({ content: { type: 'text', text: 'ole' } }, 'stop'),
      ],
    ],
  ])('reads %s', (_, pieces) => {
    expect(read(...pieces)).toMatchObject({ text: 'Whole', finish: 'stop' })
  })

  it('joins the choices of one message, and ignores other answers', () => {
    const tool_calls = [{ id: 'a', function: { name: 'add', arguments: '{}' } }]
    const choices = [{ message: { content: 'Adding' } }, { message: { tool_calls } }]
    expect(read(JSON.stringify({ choices }))).toMatchObject({ text: 'Adding', calls: [{ name: 'add' }] })
    const other = { index: 1, delta: { content: 'No' } }
    expect(read(data({ choices: [{ index: 0, delta: { content: 'Yes' } }, other] }), DONE)).toMatchObject({
      text: 'Yes',
    })
  })

  it('reads control characters that a server has not escaped', () => {
    const raw = (json: string) => json.replaceAll('\\t', '\t').replaceAll('\\u001b', '\u001b')
    const text = 'a\tb\u001b[0m'
    expect(read(raw(chunk({ content: text }, 'stop')), DONE)).toMatchObject({ text, finish: 'stop' })
    const body = JSON.stringify({ choices: [{ message: { content: text }, finish_reason: 'stop' }] }, null, 2)
    expect(read(raw(body))).toMatchObject({ text, finish: 'stop' })
  })

  it('reads objects, numbers and JSON texts where lists and texts should be', () => {
    const call = { id: 'a', function: { name: 'add', arguments: '{"x":1}' } }
    const end = data({ choices: { 0: { delta: {}, finish_reason: 'stop' } } })
    for (const choices of [{ delta: { content: 42 } }, { 0: { delta: { content: '42' } } }])
      expect(read(data({ choices }), end, DONE)).toMatchObject({ text: '42', finish: 'stop' })
    expect(read(chunk({ content: 4 }), chunk({ content: 0 }, 'stop'), DONE)).toMatchObject({ text: '40' })
    for (const tool_calls of [{ 1: call }, JSON.stringify([call])])
      expect(callsOf(chunk({ tool_calls }))).toEqual(['add({"x":1})'])
    expect(read(chunk({ content: 'Hi', tool_calls: {} }, 'stop'), DONE)).toMatchObject({ text: 'Hi', calls: [] })
  })

  it('reads events whose JSON is encoded twice', () => {
    const events = [chunk({ content: 'Hi' }), chunk({}, 'stop')].map((event) =>
      data(JSON.stringify(event.slice('data: '.length).trim())),
    )
    expect(read(...events, DONE)).toMatchObject({ text: 'Hi', finish: 'stop' })
  })

  it('treats a stream without a finish reason as cut, unless [DONE] ends it', () => {
    expect(read(chunk({ content: 'Well, ' }))).toMatchObject({ text: 'Well, ', finish: 'length' })
    expect(read(chunk({ content: 'Well.' }), DONE)).toMatchObject({ text: 'Well.', finish: 'stop' })
    expect(errorOf(chunk({ role: 'assistant' }))).toMatchObject({ type: 'error' })
    expect(errorOf(chunk({ role: 'assistant' }), DONE)).toMatchObject({ type: 'error' })
  })

  it("reads the failure of a gateway's provider from its native finish reason", () => {
    const choice = { delta: { content: '' }, finish_reason: 'stop', native_finish_reason: 'network_error' }
    expect(partsOf([data({ choices: [choice] }), DONE]).at(-1)).toMatchObject({
      finishReason: { unified: 'error', raw: 'network_error' },
    })
  })

  it.each([
    ['stop', 'stop'],
    ['eos', 'stop'],
    ['end_turn', 'stop'],
    ['max_tokens', 'length'],
    ['ERROR_LIMIT', 'length'],
    ['ERROR_TOXIC', 'content-filter'],
    ['USER_CANCEL', 'error'],
    ['model_context_window_exceeded', 'length'],
    ['sensitive', 'content-filter'],
    ['SAFETY', 'content-filter'],
    ['abort', 'error'],
    ['network_error', 'error'],
    ['insufficient_system_resource', 'error'],
    ['something_new', 'other'],
  ])('maps the finish reason %s to %s, and stores the original', (raw, unified) => {
    expect(partsOf([chunk({ content: 'Hi' }, raw), DONE]).at(-1)).toMatchObject({ finishReason: { raw, unified } })
  })
})

describe('reasoning', () => {
  /** The metadata of all reasoning, joined as a reply stores it. */
  const kept = (...pieces: string[]) =>
    Object.assign(
      {},
      ...partsOf([...pieces, chunk({}, 'stop'), DONE]).map((part) =>
        part.type.startsWith('reasoning') && 'providerMetadata' in part ? part.providerMetadata?.compatible : {},
      ),
    )

  it.each(['reasoning_content', 'reasoning', 'thinking'])(
    'reasoning in the field %s is separate from the text, and remembers its field',
    (field) => {
      expect(read(chunk({ [field]: 'Hm' }), chunk({ [field]: '.' }), chunk({ content: 'Yes' }, 'stop'))).toMatchObject({
        reasoning: 'Hm.',
        text: 'Yes',
      })
      expect(kept(chunk({ [field]: 'Hm' }))).toMatchObject({ field })
    },
  )

  it.each([{ reasoning_content: 'Hm' }, { content: '<think>Hm</think>' }])(
    'reasoning in a message behind its deltas is read once (%j)',
    (thought) => {
      const message = { ...thought, tool_calls: [{ id: 'a', function: { name: 'add', arguments: '{}' } }] }
      const end = data({ choices: [{ delta: {}, message, finish_reason: 'tool_calls' }] })
      expect(read(chunk(thought), calls(message.tool_calls[0]), end)).toMatchObject({
        reasoning: 'Hm',
        text: '',
        calls: [{ name: 'add' }],
      })
    },
  )

  it('reasoning in two fields at once is read once', () => {
    expect(read(chunk({ reasoning: 'Hm', reasoning_content: 'Hm' }, 'stop')).reasoning).toBe('Hm')
  })

  it('details are stored whole, including late and encrypted ones', () => {
    const detail = (text: string, more = {}) => ({ type: 'reasoning.text', text, index: 0, ...more })
    const pieces = [
      chunk({ reasoning: 'H', reasoning_details: [detail('H', { data: null })] }),
      chunk({ reasoning: 'm', reasoning_details: [detail('m', { signature: 'S', data: null })] }),
    ]
    const whole = detail('Hm', { data: null, signature: 'S' })
    expect(kept(...pieces)).toEqual({ field: 'reasoning', reasoning_details: [whole] })
    const late = { type: 'reasoning.encrypted', data: 'ENC', index: 1 }
    expect(kept(...pieces, chunk({ content: 'Yes' }), chunk({ reasoning_details: [late] }))).toEqual({
      field: 'reasoning_details',
      reasoning_details: [late],
    })
  })

  it("reasoning that Gemini marks is separate from the text, and its mark is not the text's", () => {
    const thought = (content: string) => chunk({ content, extra_content: { google: { thought: true } } })
    const answer = chunk({ content: '</thought>Yes' }, 'stop')
    for (const pieces of [
      [thought('<thought>Hm'), thought('.'), answer],
      [thought('Hm.'), chunk({ content: 'Yes' }, 'stop')],
    ]) {
      expect(read(...pieces)).toMatchObject({ reasoning: 'Hm.', text: 'Yes' })
      expect(partsOf(pieces).find(({ type }) => type === 'text-end')).not.toHaveProperty('providerMetadata')
    }
  })

  it("keeps the signature beside a text (GitHub Copilot's reasoning_opaque)", () => {
    const pieces = [chunk({ reasoning_text: 'Hm' }), chunk({ reasoning_opaque: 'S' }), chunk({ content: 'Yes' })]
    expect(kept(...pieces)).toEqual({ field: 'reasoning_text', reasoning_opaque: 'S' })
  })

  it('reasoning in the parts of a content is stored whole (Mistral, Databricks)', () => {
    const thinking = (text: string, more = {}) => ({ type: 'thinking', thinking: [{ type: 'text', text }], ...more })
    const pieces = [thinking('H'), thinking('m'), thinking('.', { closed: true })]
    expect(kept(...pieces.map((part) => chunk({ content: [part] })), chunk({ content: 'Yes' }))).toEqual({
      field: 'content',
      content_parts: [thinking('Hm.', { closed: true })],
    })
    const summary = (text: string, more = {}) => ({
      type: 'reasoning',
      summary: [{ type: 'summary_text', text, ...more }],
    })
    const signed = [summary('Hm'), summary('', { signature: 'S' })].map((part) => chunk({ content: [part] }))
    expect(kept(...signed)).toMatchObject({ content_parts: [summary('Hm', { signature: 'S' })] })
  })

  it.each([
    ['<think>', '</think>'],
    ['<thinking>', '</thinking>'],
    ['◁think▷', '◁/think▷'],
    ['[THINK]', '[/THINK]'],
    ['<mm:think>', '</mm:think>'],
    ['<ifm|think>', '</ifm|think>'],
    ['<|channel|>analysis<|message|>', '<|end|><|start|>assistant<|channel|>final<|message|>'],
  ])('reasoning between %s and %s at the start is separated, wherever the network cuts it', (open, close) => {
    const text = `\n${open}Hm < hm\n${close}\n\nYes, <think> is a tag`
    for (let size = 1; size <= text.length; size++) {
      const pieces = text.match(new RegExp(`[\\s\\S]{1,${size}}`, 'g')) ?? []
      const summary = read(...pieces.map((content) => chunk({ content })), chunk({}, 'stop'), DONE)
      expect(summary).toMatchObject({ reasoning: 'Hm < hm\n', text: 'Yes, <think> is a tag' })
    }
  })

  it.each(['<p>Hi</p>', ' <thin ice>', 'Use <think>x</think> like this', '<', '  ', '<think'])(
    'is absent from "%s"',
    (text) => {
      for (const pieces of [[text], [...text]]) {
        expect(read(...pieces.map((content) => chunk({ content })), chunk({}, 'stop'))).toMatchObject({
          reasoning: '',
          text,
        })
      }
    },
  )

  it('begins within a thousand blanks, because some models repeat blanks until their limit', () => {
    const behind = (blanks: number) =>
      read(chunk({ content: '\n'.repeat(blanks) }), chunk({ content: '<think>Hm</think>Yes' }, 'stop')).reasoning
    expect([behind(1_000), behind(1_001)]).toEqual(['Hm', ''])
  })

  it('reasoning without its closing tag is the whole reply', () => {
    expect(read(chunk({ content: '<think>only ' }), chunk({ content: 'this' }, 'length'))).toMatchObject({
      reasoning: 'only this',
      text: '',
    })
  })

  it('reasoning in tags is text if THINK_TAGS is false', () => {
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
  ])('reasoning without an opening tag in %j leaves %j', (text, answer) => {
    const model = { splitReasoning: splitUnopened } as unknown as TextModel
    const reply = separateReasoning([{ type: 'text', text }], model)
    expect(reply.at(-1)).toEqual({ type: 'text', text: answer ?? text })
    expect(reply).toHaveLength(answer === null ? 1 : 2)
    expect(separateReasoning([{ type: 'text', text }], {} as TextModel)).toHaveLength(1)
  })
})

it('lines that may belong to the data of an event are kept up to 16 MiB', () => {
  const rest = createRestOfData()
  const line = `"${'x'.repeat(1024 * 1024)}",`
  const add = (line: string) => rest.add(Object.assign(new ParseError('x', { type: 'unknown-field' }), { line }))
  const addAll = (count: number) => {
    for (const one of [...Array(count).fill(line), '0]}']) add(one)
  }
  addAll(2)
  expect(rest.complete('{"a":[').length).toBeGreaterThan(2 * line.length)
  addAll(20)
  expect(rest.complete('{"a":[')).toBe('{"a":[')
})
