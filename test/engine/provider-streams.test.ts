import { createServer, type Server } from 'node:http'
import { brotliCompressSync, gzipSync } from 'node:zlib'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createGoogle } from '@ai-sdk/google'
import { createOpenAI } from '@ai-sdk/openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { fetchEncoded, readBody } from '../../src/executions/engine/models/encoded-fetch.ts'
import { classifyModelError } from '../../src/executions/engine/models/model-errors.ts'
import { repairStreams } from '../../src/executions/engine/models/provider-streams.ts'
import { textModel } from '../../src/executions/engine/models/text-model.ts'
import { openNetwork } from '../../src/lib/net/network.ts'
import { listen } from '../support/listen.ts'

type Kind = 'anthropic' | 'openai' | 'google'
/** An answer: its bytes, and the end of its connection. */
type Answer = {
  status?: number
  body: string | Buffer
  type?: string
  encoding?: string
  ends?: 'in order' | 'reset' | 'never'
}

const network = openNetwork({ proxyFor: () => null })
let server: Server
let port = 0
let answer: Answer
beforeAll(async () => {
  server = createServer((request, response) => {
    request.resume()
    const { status = 200, body, type = 'text/event-stream', encoding, ends = 'in order' } = answer
    response.writeHead(status, { 'content-type': type, ...(encoding && { 'content-encoding': encoding }) })
    if (ends === 'in order') response.end(body)
    else response.write(body, () => ends === 'reset' && setImmediate(() => response.socket?.resetAndDestroy()))
  })
  port = await listen(server)
})
afterAll(async () => {
  await network.close()
  server.closeAllConnections()
  server.close()
})

function modelOf(kind: Kind) {
  const fetch = repairStreams(kind, fetchEncoded(network.dispatcher))
  const config = { apiKey: 'test', baseURL: `http://127.0.0.1:${port}/v1`, fetch }
  if (kind === 'anthropic') return createAnthropic(config)('claude-x')
  return kind === 'openai' ? createOpenAI(config)('gpt-x') : createGoogle(config)('gemini-x')
}

/** Reads an answer. Returns one line: text, <thinking>, calls, and the end. */
async function read(kind: Kind, given: string | Answer): Promise<string> {
  answer = typeof given === 'string' ? { body: given } : given
  const output: string[] = []
  try {
    const { stream } = await textModel(modelOf(kind)).doStream({
      prompt: [{ role: 'user', content: [{ type: 'text', text: 'x' }] }],
      tools: [{ type: 'function', name: 'echo', inputSchema: { type: 'object', properties: {} } }],
      includeRawChunks: true,
    })
    for await (const parts of stream) {
      for (const part of parts) {
        if (part.type === 'text-delta') output.push(part.delta)
        if (part.type === 'reasoning-delta' && part.delta) output.push(`<${part.delta}>`)
        if (part.type === 'tool-call') output.push(`${part.toolName}(${part.input})`)
        if (part.type === 'error') throw part.error
        if (part.type !== 'finish') continue
        const { inputTokens, outputTokens } = part.usage
        output.push(`${part.finishReason.unified} ${inputTokens.total ?? '?'}/${outputTokens.total ?? '?'}`)
      }
    }
  } catch (error) {
    const { kind: failure, status, detail } = classifyModelError(error, { provider: kind })
    output.push(`${failure} ${status ?? '-'}: ${detail}`)
  }
  return output.join(' ')
}

it.each<Kind>(['anthropic', 'openai', 'google'])('%s shows that a server is alive before its answer', async (kind) => {
  for (const body of [': waiting\n\n', 'event: ping\ndata: {"type":"ping"}\n\n', '\n \n']) {
    answer = { body, ends: 'never' }
    const waiting = new AbortController()
    const { stream } = await textModel(modelOf(kind)).doStream({
      prompt: [{ role: 'user', content: [{ type: 'text', text: 'x' }] }],
      abortSignal: waiting.signal,
      includeRawChunks: true,
    })
    for await (const parts of stream) if (parts.some(({ type }) => type === 'raw')) break
    waiting.abort()
  }
})

const event = (value: { type: string }) => `event: ${value.type}\ndata: ${JSON.stringify(value)}\n\n`
it.each<[string, object, string]>([
  ['code and msg', { code: 500, msg: 'Broken', success: false }, 'overloaded 500: HTTP 500: Broken'],
  ['a detail', { detail: 'Broken' }, 'unknown -: Broken'],
  ['a list of errors', { success: false, errors: [{ message: 'Broken' }] }, 'unknown -: Broken'],
  ['an object that is an error', { object: 'error', type: 'x', message: 'Broken' }, 'unknown -: Broken'],
  [
    'base_resp',
    { base_resp: { status_code: 1008, status_msg: 'insufficient balance' } },
    'quota 402: HTTP 402: insufficient balance',
  ],
  [
    'base_resp, whose two words say little',
    { base_resp: { status_code: 1039, status_msg: 'token limit' } },
    'rate_limit 429: HTTP 429: token limit',
  ],
  ['another code of base_resp', { base_resp: { status_code: 1026, status_msg: 'x' } }, 'unknown -: x'],
])('each provider quotes an error of a gateway with %s', async (_, error, expected) => {
  for (const kind of ['anthropic', 'openai', 'google'] as const) {
    expect(await read(kind, JSON.stringify(error))).toBe(expected)
    expect(await read(kind, `event: message\ndata: ${JSON.stringify(error)}\n\n`)).toBe(expected)
  }
})

const PAGE = '<!doctype html><html><head><title>Sign in</title></head></html>'
const IS_PAGE = `unreadable -: The model server answered with a web page titled "Sign in" (HTML) instead of a model's answer`
const CHAT = 'data: {"object":"chat.completion.chunk","choices":[{"delta":{"content":"Hi"}}]}\n\n'
const IS_CHAT = (setting: string) =>
  `unreadable -: The server answers with chat completions: give its address to the provider compatible (OPENAI_BASE_URL), not ${setting}`
const IS_DAMAGED =
  'unreadable -: The model server sent an answer that cannot be decompressed: check the proxies before it, or turn off its compression'
const IS_TOO_ENCODED = 'unreadable -: The model server uses an unknown content encoding: gzip, gzip, gzip, gzip'
const IS_UNKNOWN = 'unreadable -: The model server uses an unknown content encoding: later'
const IS_EMPTY = 'broken_off -: The model server sent an empty answer'
const IS_GARBAGE = 'unreadable -: The model server sent data that cannot be read'

it.each([
  ['gzip', gzipSync],
  ['gzip, gzip', (bytes: Buffer) => gzipSync(gzipSync(bytes))],
])('an answer encoded as %s ends when its reader has enough, before the rest is decoded', async (encoding, encode) => {
  answer = { body: encode(Buffer.alloc(4 * 1024 * 1024, ' ')), encoding }
  const { body, headers } = await fetchEncoded(network.dispatcher)(`http://127.0.0.1:${port}`)
  const reader = readBody(body!, headers)
  expect((await reader.read()).done).toBe(false)
  const [, next] = await Promise.all([reader.cancel(), reader.read()])
  expect([next.done, (await reader.read()).done]).toEqual([true, true])
})

describe('the stream of Anthropic', () => {
  const begin = (usage: unknown = { input_tokens: 5, output_tokens: 1 }) =>
    event({ type: 'message_start', message: { id: 'm', model: 'c', role: 'assistant', content: [], usage } } as never)
  const at = (type: string, more: object, index = 0) =>
    event({ type: `content_block_${type}`, index, ...more } as never)
  const block = (content_block: object, deltas: object[] = [], index = 0) =>
    at('start', { content_block }, index) +
    deltas.map((delta) => at('delta', { delta }, index)).join('') +
    at('stop', {}, index)
  const text = (content: string, index = 0) =>
    block({ type: 'text', text: '' }, [{ type: 'text_delta', text: content }], index)
  const pieces = (...json: string[]) => json.map((partial_json) => ({ type: 'input_json_delta', partial_json }))
  const use = (more: object = {}) => ({ type: 'tool_use', id: 'toolu_1', name: 'echo', input: {}, ...more })
  const delta = (stop_reason: string | null, usage: unknown = { output_tokens: 7 }) =>
    event({ type: 'message_delta', delta: { stop_reason, stop_sequence: null }, usage } as never)
  const stop = event({ type: 'message_stop' })
  const end = (...given: Parameters<typeof delta>) => delta(...given) + stop
  const failed = (error: unknown) => event({ type: 'error', error } as never)
  const pretty = (stream: string, prefix = 'data: ') =>
    stream.replace(/event: .*\ndata: (.*)/g, (_, json) => prefix + JSON.stringify(JSON.parse(json), null, 2))

  it.each<[string, string | Answer, string]>([
    ['a plain answer', begin() + text('Hi') + end('end_turn'), 'Hi stop 5/7'],
    [
      'pings, comments, empty data and unknown events',
      `${begin()}${event({ type: 'ping' })}: x\n\ndata:\n\ndata: null\n\n${event({ type: 'later' })}${text('Hi')}${end('end_turn')}data: [DONE]\n\n`,
      'Hi stop 5/7',
    ],
    [
      'events whose type is only in their name',
      (begin() + text('Hi') + end('end_turn')).replace(/"type":"(?:message|content_block)_\w+",?/g, ''),
      'Hi stop 5/7',
    ],
    [
      'the beginning of the same message twice',
      begin() + text('Hi') + begin() + text('!', 1) + end('end_turn'),
      'Hi ! stop 5/7',
    ],
    [
      'a second message within the first',
      begin() + text('Hi') + begin().replace('"m"', '"n"') + text('Hi') + end('end_turn'),
      'Hi broken_off -: The model server began another answer within its answer',
    ],
    [
      'usage only in the last event',
      begin({}) + text('Hi') + end('end_turn', { input_tokens: 9, output_tokens: 7 }),
      'Hi stop 9/7',
    ],
    ['no usage at the start', begin(null) + text('Hi') + end('end_turn'), 'Hi stop ?/7'],
    ['no usage at the end', begin() + text('Hi') + end('end_turn', null), 'Hi stop 5/1'],
    ['no types', begin() + (at('start', {}) + at('delta', { delta: { text: 'Hi' } })) + end('end_turn'), 'Hi stop 5/7'],
    [
      'one message without its type, and a text as content',
      JSON.stringify({
        role: 'assistant',
        content: 'Hi',
        stop_reason: 'end_turn',
        usage: { input_tokens: 5, output_tokens: 7 },
      }),
      'Hi stop 5/7',
    ],
    ['no blank lines', (begin() + text('Hi') + end('end_turn')).replaceAll('\n\n', '\n'), 'Hi stop 5/7'],
    ['JSON values of several lines each', pretty(begin() + text('Hi') + end('end_turn'), ''), 'Hi stop 5/7'],
    ['JSON of several lines behind one prefix', pretty(begin() + text('Hi') + end('end_turn')), 'Hi stop 5/7'],
    ['a repeated prefix', (begin() + text('Hi') + end('end_turn')).replaceAll('data:', ' data: data:'), 'Hi stop 5/7'],
    [
      'an input that is an object',
      begin() + block(use(), [{ type: 'input_json_delta', partial_json: { q: 'x' } }]) + end('tool_use'),
      'echo({"q":"x"}) tool-calls 5/7',
    ],
    [
      'an input that is JSON text',
      begin() + block(use({ input: '{"q":12345678901234567890}' })) + end('tool_use'),
      'echo({"q":12345678901234567890}) tool-calls 5/7',
    ],
    [
      'an empty input first',
      begin() + block(use(), pieces('{}', '{"q":"x"}')) + end('tool_use'),
      'echo({"q":"x"}) tool-calls 5/7',
    ],
    [
      'indexes that are texts',
      (
        begin() +
        at('start', { content_block: use() }) +
        at('start', { content_block: use({ id: 't' }) }, 1) +
        at('delta', { delta: pieces('{"q":1}')[0] }) +
        at('delta', { delta: pieces('{"q":2}')[0] }, 1) +
        end('tool_use')
      ).replace(/"index":(\d)/g, '"index":"$1"'),
      'echo({"q":1}) echo({"q":2}) tool-calls 5/7',
    ],
    [
      'usage by the names of chat completions, as texts',
      begin({ prompt_tokens: '5' }) + text('Hi') + end('end_turn', { completion_tokens: '7' }),
      'Hi stop 5/7',
    ],
    [
      'a control character that is not escaped',
      begin() + text('a\tb').replaceAll('\\t', '\t') + end('end_turn'),
      'a\tb stop 5/7',
    ],
    ['three starts', begin() + begin() + text('Hi') + begin() + end('end_turn'), 'Hi stop 5/7'],
    ['the end of chat completions', `${begin()}${text('Hi')}data: [DONE]\n\n`, 'Hi stop 5/1'],
    ['an event that is cut off at once', 'event', 'broken_off -: The model server ended its stream without an answer'],
    ['no start', text('Hi') + end('end_turn'), 'Hi stop ?/7'],
    ['text at the start of a block', begin() + block({ type: 'text', text: 'Hi' }) + end('end_turn'), 'Hi stop 5/7'],
    ['a call', begin() + block(use(), pieces('{"q":', '"x"}')) + end('tool_use'), 'echo({"q":"x"}) tool-calls 5/7'],
    [
      'an input at the start and in pieces',
      begin() + block(use({ input: { q: 'x' } }), pieces('{"q":"x"}')) + end('tool_use'),
      'echo({"q":"x"}) tool-calls 5/7',
    ],
    [
      'a call without the end of its block',
      begin() +
        at('start', { content_block: use() }) +
        at('delta', { delta: pieces('{"q":"x"}')[0] }) +
        end('tool_use'),
      'echo({"q":"x"}) tool-calls 5/7',
    ],
    [
      'a call that the limit of tokens cut',
      begin() + at('start', { content_block: use() }) + at('delta', { delta: pieces('{"q":')[0] }) + end('max_tokens'),
      'length 5/7',
    ],
    [
      'a call without an input whose block does not end',
      begin() + at('start', { content_block: use() }) + end('end_turn'),
      'echo({}) stop 5/7',
    ],
    [
      'a tool that runs at the provider, with its result',
      begin() +
        block({ type: 'server_tool_use', id: 's', name: 'web_search', input: {} }, pieces('{"query":"x"}')) +
        block({ type: 'web_search_tool_result', tool_use_id: 's', content: [] }, [], 1) +
        text('Hi', 2) +
        end('end_turn'),
      'Hi stop 5/7',
    ],
    [
      'blocks and deltas of later versions',
      begin() +
        block({ type: 'later' }, [{ type: 'later_delta' }]) +
        block({ type: 'text' }, [{ type: 'later_delta' }, { type: 'text_delta', text: 'Hi' }], 1) +
        end('end_turn'),
      'Hi stop 5/7',
    ],
    [
      'thinking without a field for its signature',
      begin() +
        block({ type: 'thinking' }, [{ type: 'thinking_delta', thinking: 'hm' }]) +
        text('Hi', 1) +
        end('end_turn'),
      '<hm> Hi stop 5/7',
    ],
    [
      'a text in the block of a call',
      begin() +
        block({ type: 'tool_use', id: 't', name: 'echo', input: {} }, [
          ...pieces('{"q":"x"}'),
          { type: 'text_delta', text: 'Hi' },
        ]) +
        end('tool_use'),
      'Hi echo({"q":"x"}) tool-calls 5/7',
    ],
    ['refusal', begin() + text('No') + end('refusal'), 'No content-filter 5/7'],
    ['pause_turn', begin() + text('Hi') + end('pause_turn'), 'Hi length 5/7'],
    ['model_context_window_exceeded', begin() + text('Hi') + end('model_context_window_exceeded'), 'Hi length 5/7'],
    ['no message_stop behind a finish reason', begin() + text('Hi') + delta('end_turn'), 'Hi stop 5/7'],
    [
      'a reset behind a finish reason',
      { body: begin() + text('Hi') + delta('end_turn'), ends: 'reset' },
      'Hi stop 5/7',
    ],
    [
      'silence behind a finish reason',
      { body: begin() + text('Hi') + delta('end_turn'), ends: 'never' },
      'Hi stop 5/7',
    ],
    ['silence behind message_stop', { body: begin() + text('Hi') + end('end_turn'), ends: 'never' }, 'Hi stop 5/7'],
    ['an end without a finish reason', begin() + text('Hi'), 'Hi interrupted ?/?'],
    [
      'overloaded_error in the stream',
      begin() + text('Th') + failed({ type: 'overloaded_error', message: 'Overloaded' }),
      'Th overloaded 529: HTTP 529: Overloaded',
    ],
    [
      'overloaded_error at once',
      failed({ type: 'overloaded_error', message: 'Overloaded' }),
      'overloaded 529: HTTP 529: Overloaded',
    ],
    ['an error as a text', begin() + failed('Slow down'), 'unknown -: Slow down'],
    [
      'an error event that is no JSON',
      `${begin()}event: error\ndata: upstream timed out\n\n`,
      'timeout -: upstream timed out',
    ],
    [
      'an error as the whole body',
      { body: '{"type":"error","error":{"type":"api_error","message":"Broken"}}' },
      'overloaded 500: HTTP 500: Broken',
    ],
    [
      'an answer in one JSON body',
      '{"type":"message","role":"assistant","content":[{"type":"text","text":"Hi"},{"type":"tool_use","id":"t","name":"echo","input":{"q":"x"}}],"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":7}}',
      'Hi echo({"q":"x"}) tool-calls 5/7',
    ],
    ['broken JSON', `${begin()}data: {"type":"cont\n\n${text('Hi')}`, IS_GARBAGE],
    ['chat completions', CHAT, IS_CHAT('ANTHROPIC_BASE_URL')],
    ['a web page', PAGE, IS_PAGE],
    ['nothing', '', IS_EMPTY],
  ])('is read with %s', async (_, body, expected) => expect(await read('anthropic', body)).toBe(expected))
})

describe('the stream of OpenAI', () => {
  const usage = { input_tokens: 5, output_tokens: 7 }
  const created = event({ type: 'response.created', response: { id: 'r', created_at: 1, model: 'm' } } as never)
  const at = (type: string, more: object, output_index = 0) =>
    event({ type: `response.${type}`, output_index, ...more } as never)
  const textDelta = (delta: string, more: object = {}) =>
    at('output_text.delta', { item_id: 'msg_1', content_index: 0, delta, ...more })
  const message = {
    type: 'message',
    id: 'msg_1',
    role: 'assistant',
    content: [{ type: 'output_text', text: 'Hi', annotations: [] }],
  }
  const call = { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'echo', arguments: '{"q":"x"}' }
  const done = (more: object = {}, type = 'completed') =>
    event({ type: `response.${type}`, response: { id: 'r', usage, ...more } } as never)
  const thinking = { type: 'reasoning', id: 'rs_1', summary: [] }

  it.each<[string, string | Answer, string]>([
    [
      'a plain answer',
      created +
        at('output_item.added', { item: { ...message, content: [] } }) +
        textDelta('Hi') +
        at('output_item.done', { item: message }) +
        done(),
      'Hi stop 5/7',
    ],
    [
      'unknown events, keep-alives and empty data',
      `${event({ type: 'response.queued' })}${created}${event({ type: 'keepalive' })}data: {"x":1}\n\ndata: null\n\n${textDelta('Hi')}${done()}data: [DONE]\n\n`,
      'Hi stop 5/7',
    ],
    [
      'the same index for all items',
      created +
        ['1', '2']
          .map((id) => {
            const item = { ...call, id: `fc_${id}`, call_id: `call_${id}`, arguments: `{"q":"${id}"}` }
            return at('output_item.added', { item: { ...item, arguments: '' } }) + at('output_item.done', { item })
          })
          .join('') +
        at('output_item.added', { item: { ...message, content: [] } }) +
        textDelta('Hi') +
        at('output_item.done', { item: message }) +
        done({ output: [call, { ...call, id: 'fc_2', call_id: 'call_2', arguments: '{"q":"2"}' }, message] }),
      'echo({"q":"1"}) echo({"q":"2"}) Hi tool-calls 5/7',
    ],
    [
      'events whose type is only in their name',
      (created + textDelta('Hi') + done()).replace(/"type":"response[a-z_.]+",/g, ''),
      'Hi stop 5/7',
    ],
    [
      'ids that change',
      created +
        at('output_item.added', { item: { type: 'message', id: 'a' } }) +
        textDelta('Hi', { item_id: 'b' }) +
        at('output_item.done', { item: { ...message, id: 'c' } }) +
        done(),
      'Hi stop 5/7',
    ],
    [
      'the text only in the done event',
      created + at('output_text.done', { item_id: 'msg_1', text: 'Hi' }) + done(),
      'Hi stop 5/7',
    ],
    [
      'the text behind the end of its empty item',
      created +
        at('output_item.done', { item: { ...message, content: [] } }) +
        textDelta('H') +
        textDelta('i') +
        at('output_text.done', { item_id: 'msg_1', text: 'Hi' }) +
        done({ output: [message] }),
      'H i stop 5/7',
    ],
    [
      'a text that is repeated behind the end of its item, and goes on there',
      created + at('output_item.done', { item: message }) + textDelta('H') + textDelta('i') + textDelta('!') + done(),
      'Hi ! stop 5/7',
    ],
    [
      'the text only in the second end of its item',
      created +
        at('output_item.done', { item: { ...message, content: [] } }) +
        at('output_item.done', { item: message }) +
        done({ output: [message] }),
      'Hi stop 5/7',
    ],
    ['the text only at the end', created + done({ output: [message] }), 'Hi stop 5/7'],
    ['no usage', created + textDelta('Hi') + done({ usage: null }), 'Hi stop ?/?'],
    ['the text as output_text', created + done({ output_text: 'Hi' }), 'Hi stop 5/7'],
    ['a content that is a text', created + done({ output: [{ ...message, content: 'Hi' }] }), 'Hi stop 5/7'],
    [
      'the text only in the done part',
      created + at('content_part.done', { item_id: 'msg_1', part: { type: 'output_text', text: 'Hi' } }) + done(),
      'Hi stop 5/7',
    ],
    ['the end of chat completions', `${created}${textDelta('Hi')}data: [DONE]\n\n`, 'Hi stop ?/?'],
    [
      'usage beside the response',
      created + textDelta('Hi') + event({ type: 'response.completed', response: {}, usage } as never),
      'Hi stop 5/7',
    ],
    [
      'usage as texts',
      created + textDelta('Hi') + done({ usage: { input_tokens: '5', total_tokens: '12' } }),
      'Hi stop 5/7',
    ],
    [
      'usage by the names of chat completions',
      created + textDelta('Hi') + done({ usage: { prompt_tokens: 5, completion_tokens: 7 } }),
      'Hi stop 5/7',
    ],
    [
      'a call',
      created +
        at('output_item.added', { item: { ...call, arguments: '' } }) +
        at('output_item.done', { item: call }) +
        done(),
      'echo({"q":"x"}) tool-calls 5/7',
    ],
    [
      'a call without the end of its item',
      created +
        at('output_item.added', { item: { ...call, arguments: '' } }) +
        at('function_call_arguments.done', { item_id: 'fc_1', arguments: '{"q":"x"}' }) +
        done(),
      'echo({"q":"x"}) tool-calls 5/7',
    ],
    [
      'two calls with the id of one item',
      created +
        at('output_item.added', { item: { ...call, arguments: '' } }) +
        at('output_item.done', { item: call }) +
        at('output_item.added', { output_index: 1, item: { ...call, call_id: 'call_2', arguments: '' } }) +
        at('function_call_arguments.delta', { output_index: 1, item_id: 'fc_1', delta: '{"q":"y"}' }) +
        at('output_item.done', { output_index: 1, item: { ...call, call_id: 'call_2', arguments: '{"q":"y"}' } }) +
        done(),
      'echo({"q":"x"}) echo({"q":"y"}) tool-calls 5/7',
    ],
    [
      'a call whose end has no arguments',
      created +
        at('output_item.added', { item: { ...call, arguments: '' } }) +
        at('function_call_arguments.delta', { item_id: 'fc_1', delta: '{"q":"x"}' }) +
        at('function_call_arguments.done', { item_id: 'fc_1', arguments: '{}' }) +
        at('output_item.done', { item: { ...call, arguments: '{}' } }) +
        done(),
      'echo({"q":"x"}) tool-calls 5/7',
    ],
    [
      'a call with other ids in each event',
      created +
        at('output_item.added', { item: { ...call, arguments: '' } }) +
        at('output_item.done', { item: { ...call, id: 'fc_2', call_id: 'call_2' } }) +
        done({ output: [{ ...call, id: 'fc_3', call_id: 'call_3' }] }),
      'echo({"q":"x"}) tool-calls 5/7',
    ],
    [
      'a whole answer with other ids, without the reasoning before its items',
      created +
        at('output_item.done', { item: thinking }) +
        textDelta('Hi', { output_index: 1 }) +
        at('output_item.done', { item: message }, 1) +
        at('output_item.done', { item: call }, 2) +
        done({
          output: [
            { ...message, id: 'msg_9' },
            { ...call, id: 'fc_9', call_id: 'call_9' },
          ],
        }),
      'Hi echo({"q":"x"}) tool-calls 5/7',
    ],
    ['a call only at the end', created + done({ output: [call] }), 'echo({"q":"x"}) tool-calls 5/7'],
    [
      'calls at the end that share an id',
      created + done({ output: [call, { ...call, id: 'fc_2', arguments: '{"q":"y"}' }] }),
      'echo({"q":"x"}) echo({"q":"y"}) tool-calls 5/7',
    ],
    [
      'reasoning tokens that are counted apart',
      created +
        textDelta('Hi') +
        done({
          usage: {
            input_tokens: 5,
            output_tokens: 3,
            total_tokens: 12,
            output_tokens_details: { reasoning_tokens: 4 },
          },
        }),
      'Hi stop 5/7',
    ],
    [
      'arguments as an object',
      created + at('output_item.done', { item: { ...call, arguments: { q: 'x' } } }) + done(),
      'echo({"q":"x"}) tool-calls 5/7',
    ],
    [
      'a call that the limit of tokens cut',
      created +
        at('output_item.added', { item: { ...call, arguments: '' } }) +
        at('function_call_arguments.delta', { item_id: 'fc_1', delta: '{"q":' }) +
        done({ incomplete_details: { reason: 'max_output_tokens' } }, 'incomplete'),
      'length 5/7',
    ],
    [
      'thinking as text',
      created +
        at('output_item.added', { item: thinking }) +
        at('reasoning_text.delta', { item_id: 'rs_1', delta: 'hm' }) +
        at('output_item.done', { item: thinking }) +
        textDelta('Hi', { output_index: 1 }) +
        done(),
      '<hm> Hi stop 5/7',
    ],
    [
      'thinking in two parts, its id changed at the end',
      created +
        at('output_item.added', { item: thinking }) +
        at('reasoning_summary_text.delta', { item_id: 'rs_1', summary_index: 0, delta: 'a' }) +
        at('reasoning_summary_text.delta', { item_id: 'rs_1', summary_index: 1, delta: 'b' }) +
        at('output_item.done', { item: { ...thinking, id: 'rs_2' } }) +
        done(),
      '<a> <b> stop 5/7',
    ],
    [
      'thinking in parts whose numbers have gaps',
      created +
        at('output_item.added', { item: thinking }) +
        at('reasoning_summary_text.delta', { item_id: 'rs_1', summary_index: 3, delta: 'a' }) +
        at('reasoning_summary_text.delta', { item_id: 'rs_1', summary_index: 1e9, delta: 'b' }) +
        at('reasoning_summary_text.delta', { item_id: 'rs_1', summary_index: 1e9, delta: 'c' }) +
        at('output_item.done', { item: thinking }) +
        done(),
      '<a> <b> <c> stop 5/7',
    ],
    [
      'more items than an answer has',
      created +
        Array.from({ length: 1_001 }, (_, index) =>
          at('output_item.added', { item: { ...thinking, id: `rs_${index}` } }, index),
        ).join(''),
      'unknown -: The model sent more than 1000 items at once',
    ],
    [
      'a refusal only in its item',
      created +
        at('output_item.done', { item: { ...message, content: [{ type: 'refusal', refusal: 'No' }] } }) +
        done(),
      'No content-filter 5/7',
    ],
    ['an incomplete response without a reason', created + textDelta('Hi') + done({}, 'incomplete'), 'Hi length 5/7'],
    [
      'a completed response that says it is incomplete',
      created + textDelta('Hi') + done({ status: 'incomplete' }),
      'Hi length 5/7',
    ],
    [
      'response.failed',
      created + textDelta('Th') + done({ error: { code: 'server_error', message: 'Broken' } }, 'failed'),
      'Th overloaded 500: HTTP 500: Broken',
    ],
    [
      'response.failed without an error',
      created + done({ error: null }, 'failed'),
      'broken_off -: The model broke off its reply (finish reason: failed)',
    ],
    [
      'response.cancelled',
      created + done({}, 'cancelled'),
      'broken_off -: The model broke off its reply (finish reason: cancelled)',
    ],
    [
      'a flat error event',
      created + event({ type: 'error', code: 'rate_limit_exceeded', message: 'Slow down' } as never),
      'rate_limit 429: HTTP 429: Slow down',
    ],
    [
      'a nested error without a type',
      `${created}data: {"error":{"message":"Slow down","code":429}}\n\n`,
      'rate_limit 429: HTTP 429: Slow down',
    ],
    [
      'an error as the whole body',
      '{"error":{"message":"Overloaded","code":503}}',
      'overloaded 503: HTTP 503: Overloaded',
    ],
    [
      'an answer in one JSON body',
      JSON.stringify({ object: 'response', status: 'completed', error: null, output: [message], usage }),
      'Hi stop 5/7',
    ],
    [
      'an answer in the envelope of a gateway',
      JSON.stringify({ success: true, data: { object: 'response', status: 'completed', output: [message], usage } }),
      'Hi stop 5/7',
    ],
    ['chat completions', 'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n', IS_CHAT('OPENAI_RESPONSES_BASE_URL')],
    ['an end without response.completed', created + textDelta('Th'), 'Th interrupted ?/?'],
    [
      'a reset in the middle',
      { body: created + textDelta('Th'), ends: 'reset' },
      'Th connection -: The connection to the model broke: read ECONNRESET',
    ],
    ['a reset behind response.completed', { body: created + textDelta('Hi') + done(), ends: 'reset' }, 'Hi stop 5/7'],
    ['a web page', PAGE, IS_PAGE],
    ['nothing', '', IS_EMPTY],
  ])('is read with %s', async (_, body, expected) => expect(await read('openai', body)).toBe(expected))
})

describe('the stream of Google', () => {
  const usageMetadata = { promptTokenCount: 5, candidatesTokenCount: 7, totalTokenCount: 12 }
  const data = (value: unknown) => `data: ${JSON.stringify(value)}\r\n\r\n`
  const whole = (parts: unknown, finishReason?: unknown) => ({
    candidates: [{ content: { role: 'model', parts }, finishReason }],
    usageMetadata,
  })
  const chunk = (...given: Parameters<typeof whole>) => data(whole(...given))
  const overloaded = { error: { code: 503, message: 'Overloaded', status: 'UNAVAILABLE' } }

  it.each<[string, string | Answer, string]>([
    ['a plain answer', chunk([{ text: 'H' }]) + chunk([{ text: 'i' }], 'STOP'), 'H i stop 5/7'],
    [
      'a blocked prompt',
      data({ promptFeedback: { blockReason: 'OTHER', safetyRatings: [{ category: 'x' }] } }),
      'content-filter ?/?',
    ],
    [
      'no candidates, then an answer',
      data({ candidates: null }) + data({ candidates: [] }) + chunk([{ text: 'Hi' }], 'STOP'),
      'Hi stop 5/7',
    ],
    [
      'objects where lists should be',
      data({ candidates: { content: { parts: { text: 'Hi' } }, finishReason: 'STOP' }, usageMetadata }),
      'Hi stop 5/7',
    ],
    [
      'parts that are null, empty or unknown',
      chunk(null) + chunk([null, {}, { text: null }, { later: 1 }]) + chunk([{ text: 'Hi' }], 'STOP'),
      'Hi stop 5/7',
    ],
    [
      'a candidate that is null',
      data({ candidates: [null], usageMetadata }) + chunk([{ text: 'Hi' }], 'STOP'),
      'Hi stop 5/7',
    ],
    [
      'a finish reason with every chunk',
      chunk([{ text: 'H' }], 'STOP') + chunk([{ text: 'i' }], 'STOP'),
      'H i stop 5/7',
    ],
    [
      'MALFORMED_FUNCTION_CALL without content',
      data({ candidates: [{ content: {}, finishReason: 'MALFORMED_FUNCTION_CALL' }], usageMetadata }),
      'error 5/7',
    ],
    ['a finish reason that is new', chunk([{ text: 'Hi' }], 'LATER'), 'Hi other 5/7'],
    ['a call', chunk([{ functionCall: { name: 'echo', args: { q: 'x' } } }], 'STOP'), 'echo({"q":"x"}) tool-calls 5/7'],
    [
      'a call without arguments',
      chunk([{ functionCall: { name: 'echo', args: null } }], 'STOP'),
      'echo({}) tool-calls 5/7',
    ],
    [
      'a call in pieces',
      chunk([{ functionCall: { name: 'echo', willContinue: true } }]) +
        chunk([{ functionCall: { partialArgs: [{ jsonPath: '$.q', stringValue: 'x' }], willContinue: true } }]) +
        chunk([{ functionCall: {} }], 'STOP'),
      'echo({"q":"x"}) tool-calls 5/7',
    ],
    [
      'one id for the calls of several tools',
      chunk(
        ['echo', 'add', 'search'].map((name) => ({
          functionCall: { id: 'c', name, args: name === 'search' ? { q: 'x' } : {} },
        })),
        'STOP',
      ),
      'echo({}) add({}) search({"q":"x"}) tool-calls 5/7',
    ],
    [
      'a call whose name and input come apart',
      chunk([{ functionCall: { name: 'echo', args: {} } }]) + chunk([{ functionCall: { args: { q: 'x' } } }], 'STOP'),
      'echo({"q":"x"}) tool-calls 5/7',
    ],
    [
      'calls without an input',
      chunk([{ functionCall: { name: 'echo', args: {} } }]) +
        chunk([{ functionCall: { name: 'echo', args: {} } }]) +
        chunk([{ text: 'Hi' }], 'STOP'),
      'echo({}) echo({}) Hi tool-calls 5/7',
    ],
    [
      'a call that is repeated',
      chunk([{ functionCall: { id: 'c', name: 'echo', args: { q: 'x' } } }]) +
        chunk([{ functionCall: { id: 'c', name: 'echo', args: { q: 'x' } } }], 'STOP'),
      'echo({"q":"x"}) tool-calls 5/7',
    ],
    [
      'code that runs at the provider',
      chunk(
        [
          { executableCode: { language: 'PYTHON', code: '1' } },
          { codeExecutionResult: { outcome: 'OUTCOME_OK' } },
          { text: 'Hi' },
        ],
        'STOP',
      ),
      'Hi stop 5/7',
    ],
    ['thoughts', chunk([{ text: 'hm', thought: true }]) + chunk([{ text: 'Hi' }], 'STOP'), '<hm> Hi stop 5/7'],
    [
      'usage behind the finish reason',
      data({ candidates: [{ content: { parts: [{ text: 'Hi' }] }, finishReason: 'STOP' }] }) + data({ usageMetadata }),
      'Hi stop 5/7',
    ],
    [
      'usage without the output',
      data({ ...whole([{ text: 'Hi' }], 'STOP'), usageMetadata: { promptTokenCount: '5', totalTokenCount: 12 } }),
      'Hi stop 5/7',
    ],
    ['silence behind the finish reason', { body: chunk([{ text: 'Hi' }], 'STOP'), ends: 'never' }, 'Hi stop 5/7'],
    ['broken JSON behind the finish reason', `${chunk([{ text: 'Hi' }], 'STOP')}data: {"cand\n\n`, 'Hi stop 5/7'],
    [
      'an index that is a text',
      data({ candidates: [{ ...whole([{ text: 'Hi' }], 'STOP').candidates[0], index: '0' }], usageMetadata }),
      'Hi stop 5/7',
    ],
    ['a chunk inside of a response', data({ response: whole([{ text: 'Hi' }], 'STOP') }), 'Hi stop 5/7'],
    ['an error in the stream', chunk([{ text: 'Th' }]) + data(overloaded), 'Th overloaded 503: HTTP 503: Overloaded'],
    ['an error in a list', chunk([{ text: 'Th' }]) + data([overloaded]), 'Th overloaded 503: HTTP 503: Overloaded'],
    [
      'an error that is no event',
      chunk([{ text: 'Th' }]) + JSON.stringify(overloaded),
      'Th overloaded 503: HTTP 503: Overloaded',
    ],
    ['an error as the whole body', JSON.stringify([overloaded]), 'overloaded 503: HTTP 503: Overloaded'],
    [
      'an answer in one JSON list',
      JSON.stringify([whole([{ text: 'H' }]), whole([{ text: 'i' }], 'STOP')]),
      'H i stop 5/7',
    ],
    [
      "the names of Python's library",
      data({ candidates: [{ content: { parts: [{ function_call: { name: 'echo', args: { q_a: 1 } } }] } }] }) +
        data({
          candidates: [{ finish_reason: 'STOP' }],
          usage_metadata: { prompt_token_count: 5, candidates_token_count: 7 },
        }),
      'echo({"q_a":1}) tool-calls 5/7',
    ],
    ['an end without a finish reason', chunk([{ text: 'Th' }]), 'Th interrupted 5/7'],
    [
      'another charset',
      { body: Buffer.from(chunk([{ text: 'Grüße' }], 'STOP'), 'latin1'), type: 'text/event-stream;charset=latin1' },
      'Grüße stop 5/7',
    ],
    [
      'a refusal in another charset that is left open',
      {
        status: 400,
        body: Buffer.from('{"error":"Wähle"}', 'latin1'),
        type: 'text/json;charset=latin1',
        ends: 'never',
      },
      'refused 400: HTTP 400: Wähle',
    ],
    ['compression that is not stated', { body: gzipSync(chunk([{ text: 'Hi' }], 'STOP')) }, 'Hi stop 5/7'],
    [
      'a refusal with compression that is not stated',
      { status: 400, body: gzipSync('{"error":"No"}') },
      'refused 400: HTTP 400: No',
    ],
    ['a false encoding', { body: chunk([{ text: 'Hi' }], 'STOP'), encoding: 'gzip' }, 'Hi stop 5/7'],
    [
      'an encoding that is stated twice',
      { body: gzipSync(chunk([{ text: 'Hi' }], 'STOP')), encoding: 'gzip, gzip' },
      'Hi stop 5/7',
    ],
    [
      'two encodings',
      { body: brotliCompressSync(gzipSync(chunk([{ text: 'Hi' }], 'STOP'))), encoding: 'gzip, br' },
      'Hi stop 5/7',
    ],
    [
      'a refusal with a false encoding',
      { status: 400, body: '{"error":"No"}', encoding: 'br' },
      'refused 400: HTTP 400: No',
    ],
    ['too many encodings', { body: 'x', encoding: 'gzip, gzip, gzip, gzip' }, IS_TOO_ENCODED],
    ['an encoding that is unknown', { body: 'x', encoding: 'later' }, IS_UNKNOWN],
    ['bytes that do not have their encoding', { body: 'no gzip', encoding: 'gzip' }, IS_DAMAGED],
    ['events whose JSON is encoded twice', data(JSON.stringify(whole([{ text: 'Hi' }], 'STOP'))), 'Hi stop 5/7'],
    ['damaged compression', { body: gzipSync(chunk([{ text: 'Hi' }], 'STOP')).fill(255, 20) }, IS_DAMAGED],
    ['chat completions', CHAT, IS_CHAT('GOOGLE_BASE_URL')],
    ['a web page', PAGE, IS_PAGE],
    ['nothing', '', IS_EMPTY],
  ])('is read with %s', async (_, body, expected) => expect(await read('google', body)).toBe(expected))
})
