import { getEventListeners, once } from 'node:events'
import { createServer } from 'node:http'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import {
  APICallError,
  type LanguageModelV4,
  type LanguageModelV4CallOptions,
  type LanguageModelV4Prompt,
} from '@ai-sdk/provider'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ModelError } from '../../src/executions/engine/models/model-errors.ts'
import { createModels } from '../../src/executions/engine/models/models.ts'
import { type Part, type TextModel, textModel } from '../../src/executions/engine/models/text-model.ts'
import type { Clock } from '../../src/lib/clock.ts'
import { readSettings } from '../../src/settings.ts'
import { listen } from '../support/listen.ts'
import { event, type Reply } from '../support/model-replies.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'

const CANARY = 'canary-7f3a9c51e2d84b06'
const CLOSED = 'http://localhost:9'
const ORGANIZATION = 'organization-1'

/** The models of an organization without its own providers. */
function models(env: Record<string, string> = {}, clock?: Clock) {
  const made = createModels(readSettings(env), { clock })
  return {
    list: () => made.list(ORGANIZATION),
    defaultModel: () => made.defaultModel(ORGANIZATION),
    resolve: (name: string | null) => made.resolve(name, ORGANIZATION),
    describeError: (error: unknown) => made.describeError(error, ORGANIZATION),
  }
}

const user = (text: string): LanguageModelV4Prompt[number] => ({ role: 'user', content: [{ type: 'text', text }] })
const assistant = (text: string): LanguageModelV4Prompt[number] => ({
  role: 'assistant',
  content: [{ type: 'text', text }],
})

async function* ask(model: TextModel, options: Partial<LanguageModelV4CallOptions> = {}) {
  const { stream } = await model.doStream({ prompt: [user('Hello')], ...options })
  for await (const parts of stream) yield* parts
}

async function collect(model: TextModel, options: Partial<LanguageModelV4CallOptions> = {}) {
  const parts: Part[] = await Array.fromAsync(ask(model, options))
  const deltas = parts.flatMap((part) => (part.type === 'text-delta' ? part.delta : []))
  return { parts, deltas, text: deltas.join(''), finish: parts.find((part) => part.type === 'finish') }
}

/** Returns the error of a call, whether thrown or in its stream. */
async function failure(model: TextModel): Promise<unknown> {
  try {
    const error = (await collect(model)).parts.find((part) => part.type === 'error')
    return error?.error
  } catch (error) {
    return error
  }
}

let server: ModelServer
beforeEach(async () => {
  server = await startModelServer()
})
afterEach(() => server.close())

const atServer = (env: Record<string, string> = {}) => models({ OPENAI_BASE_URL: server.baseUrl, ...env })

describe('the name of a model', () => {
  const all = {
    ANTHROPIC_API_KEY: 'a',
    OPENAI_API_KEY: 'o',
    GOOGLE_GENERATIVE_AI_API_KEY: 'g',
  }
  const base = { OPENAI_BASE_URL: `${CLOSED}/v1` }

  it.each([
    ['anthropic/claude-x', all, 'anthropic/claude-x', 'anthropic.messages'],
    ['claude-x', all, 'anthropic/claude-x', 'anthropic.messages'],
    ['openai/anything', all, 'openai/anything', 'openai.responses'],
    ['gpt-x', all, 'openai/gpt-x', 'openai.responses'],
    ['chatgpt-x', all, 'openai/chatgpt-x', 'openai.responses'],
    ['o9-mini', all, 'openai/o9-mini', 'openai.responses'],
    ['google/models/gemini-x', all, 'google/models/gemini-x', 'google.generative-ai'],
    ['gemini-x', all, 'google/gemini-x', 'google.generative-ai'],
    ['compatible/org/model:7b', base, 'compatible/org/model:7b', 'compatible.chat'],
    ['llama3:8b', base, 'compatible/llama3:8b', 'compatible.chat'],
    ['gpt-x', base, 'openai/gpt-x', 'compatible.chat'],
    ['openai/x', { ...all, ...base }, 'openai/x', 'compatible.chat'],
    ['claude-x', { ...all, ...base }, 'anthropic/claude-x', 'anthropic.messages'],
    ['offline/echo', {}, 'offline/echo', 'offline'],
  ])('%s with %j is %s of %s', async (name, env, id, provider) => {
    const resolved = await models(env).resolve(name)
    expect([resolved.id, resolved.model.provider]).toEqual([id, provider])
    expect(id.endsWith(resolved.model.modelId)).toBe(true)
  })

  it.each([
    ['claude-x', {}, 'The model anthropic/claude-x is not available: set ANTHROPIC_API_KEY'],
    ['claude-x', base, 'The model anthropic/claude-x is not available: set ANTHROPIC_API_KEY'],
    ['gpt-x', {}, 'The model openai/gpt-x is not available: set OPENAI_API_KEY'],
    ['gemini-x', {}, 'The model google/gemini-x is not available: set GOOGLE_GENERATIVE_AI_API_KEY'],
    ['compatible/x', all, 'The model compatible/x is not available: set OPENAI_BASE_URL'],
    ['llama3', all, /^Unknown model: llama3\. /],
    ['', all, /^Unknown model: \. /],
    ['anthropic/', all, /^Unknown model: anthropic\/\. /],
    ['google/../../files', all, /^Unknown model/],
    ['google/x?key=1', all, /^Unknown model/],
    ['openai/a\nb', all, /^Unknown model/],
    ['offline/other', {}, /^Unknown model/],
    ['constructor/x', all, /^Unknown model/],
    [
      'moved/m',
      all,
      'Unknown model: moved/m. There is no provider moved here. A model is named like anthropic/claude-',
    ],
    [
      'moved/m',
      base,
      'Unknown model: moved/m. There is no provider moved here. compatible does not list it. For a model that is not listed, put its provider in front: compatible/moved/m',
    ],
    ['x'.repeat(10_000), base, /^Unknown model: x{100}\. /],
  ])('%s with %j is refused', async (name, env, message) => {
    const refusal = models(env).resolve(name)
    await expect(refusal).rejects.toThrow(ModelError)
    await expect(refusal).rejects.toThrow(message)
  })

  it.each([
    [all, 'anthropic/claude-sonnet-5-5'],
    [{ OPENAI_API_KEY: 'o', GOOGLE_GENERATIVE_AI_API_KEY: 'g' }, 'openai/gpt-6.1-sol'],
    [{ GOOGLE_GENERATIVE_AI_API_KEY: 'g' }, 'google/gemini-4-argon'],
    [{ GOOGLE_GENERATIVE_AI_API_KEY: 'g', OPENAI_API_KEY: 'o', ...base }, 'google/gemini-4-argon'],
    [{ ...base, DEFAULT_MODEL: 'llama3' }, 'compatible/llama3'],
    [{ ...all, DEFAULT_MODEL: 'gpt-x' }, 'openai/gpt-x'],
    [{}, 'offline/echo'],
  ])('defaults, with %j, to %s', async (env, id) => {
    expect(await models(env).defaultModel()).toBe(id)
    expect((await models(env).resolve(null)).id).toBe(id)
  })

  it('creates one model object, however often it is used', async () => {
    const given = models(all)
    expect((await given.resolve('claude-x')).model).toBe((await given.resolve('anthropic/claude-x')).model)
  })
})

describe('the offline model', () => {
  const offline = async () => (await models().resolve(null)).model
  const asAgent = (prompt: LanguageModelV4Prompt) => ({ prompt, providerOptions: { offline: { agentName: 'Ada' } } })

  it('introduces itself, repeats the message and counts the turns, word by word, always equally', async () => {
    const prompt = [{ role: 'system' as const, content: 'secret' }, user('one'), assistant('1'), user('Say  it\ntwice')]
    const { deltas, text } = await collect(await offline(), asAgent(prompt))
    expect(text).toBe(
      'This is the offline model, speaking for Ada: it asks no provider. For real answers, name the model of a ' +
        'provider, or set ANTHROPIC_API_KEY, OPENAI_API_KEY, GOOGLE_GENERATIVE_AI_API_KEY or OPENAI_BASE_URL. ' +
        'Turn 2. You said: Say  it\ntwice',
    )
    expect(deltas.slice(-3)).toEqual(['Say  ', 'it\n', 'twice'])
    expect(await collect(await offline(), asAgent(prompt))).toMatchObject({ deltas })
  })

  it('reports unknown usage', async () => {
    const { finish } = await collect(await offline())
    expect(finish?.finishReason.unified).toBe('stop')
    expect([finish?.usage.inputTokens.total, finish?.usage.outputTokens.total]).toEqual([undefined, undefined])
  })

  it('stops at an abort, before it begins and in the middle', async () => {
    const abort = new AbortController()
    const parts = ask(await offline(), { abortSignal: abort.signal })
    expect((await parts.next()).value).toMatchObject({ type: 'stream-start' })
    abort.abort(new Error('stop it'))
    await expect(parts.next()).rejects.toThrow('stop it')
    await expect(collect(await offline(), { abortSignal: abort.signal })).rejects.toThrow('stop it')
  })

  it('yields to other work while it repeats a long message', async () => {
    let turns = 0
    const timer = setImmediate(function again() {
      turns += 1
      setImmediate(again).unref()
    })
    await collect(await offline(), { prompt: [user('word '.repeat(10_000))] })
    clearImmediate(timer)
    expect(turns).toBeGreaterThan(10)
  })

  it.each([
    { ANTHROPIC_API_KEY: 'a' },
    { OPENAI_API_KEY: 'o' },
    { GOOGLE_GENERATIVE_AI_API_KEY: 'g' },
    { OPENAI_BASE_URL: `${CLOSED}/v1` },
    { OPENAI_BASE_URL: `${CLOSED}/v1`, DEFAULT_MODEL: 'offline/echo' },
  ])('answers agents that name it, and only those, with %j', async (env) => {
    const given = models(env)
    expect((await given.resolve('DEFAULT_MODEL' in env ? null : 'offline/echo')).id).toBe('offline/echo')
    expect(await given.list()).toContainEqual({ id: 'offline/echo', provider: 'offline', available: true })
    const byDefault = given.defaultModel().catch(() => 'an error')
    if (!('DEFAULT_MODEL' in env)) expect(await byDefault).not.toBe('offline/echo')
  })

  it('does not replace a provider that fails', async () => {
    server.script({ error: { status: 500, message: 'broken' } })
    const given = atServer()
    expect(given.describeError(await failure((await given.resolve(null)).model))).toBe('HTTP 500: broken')
    await expect(models({ OPENAI_BASE_URL: `${CLOSED}/v1` }).resolve(null)).rejects.toThrow(ModelError)
  })
})

describe('an OpenAI-compatible server', () => {
  it.each(['compatible/some-model', 'openai/some-model'])('is asked for chat completions of %s', async (name) => {
    server.script({ tokens: ['Hel', 'lo'], usage: { input: 7, output: 2 } })
    const { model } = await atServer({ OPENAI_API_KEY: CANARY }).resolve(name)
    const { deltas, finish } = await collect(model)
    expect(deltas).toEqual(['Hel', 'lo'])
    expect([finish?.usage.inputTokens.total, finish?.usage.outputTokens.total]).toEqual([7, 2])
    const [request] = server.requests
    expect(request?.path).toBe('/v1/chat/completions')
    expect(request?.headers.authorization).toBe(`Bearer ${CANARY}`)
    expect(request?.body).toMatchObject({ model: 'some-model', messages: [{ role: 'user', content: 'Hello' }] })
  })

  it('an OpenAI-compatible server without a key setting gets none', async () => {
    await collect((await atServer().resolve(null)).model)
    expect(server.requests[0]?.headers.authorization).toBeUndefined()
    expect(server.listings[0]?.authorization).toBeUndefined()
  })

  it('an OpenAI-compatible server that reports no usage leaves it unknown', async () => {
    server.script({ tokens: 'Hello', usage: null })
    const { finish } = await collect((await atServer().resolve('m')).model)
    expect([finish?.usage.inputTokens.total, finish?.usage.outputTokens.total]).toEqual([undefined, undefined])
  })

  it('calls tools', async () => {
    server.script({ toolCalls: [{ id: 'call-1', name: 'add', input: { a: 1, b: [2] } }] })
    const { parts, finish } = await collect((await atServer().resolve('m')).model, {
      tools: [{ type: 'function', name: 'add', inputSchema: { type: 'object' } }],
    })
    expect(parts).toContainEqual({
      type: 'tool-call',
      toolCallId: 'call-1',
      toolName: 'add',
      input: '{"a":1,"b":[2]}',
    })
    expect(finish?.finishReason.unified).toBe('tool-calls')
    expect(server.requests[0]?.body.tools).toHaveLength(1)
  })

  it('is asked once, whatever it answers', async () => {
    for (const status of [408, 429, 500, 503]) {
      server.script({ error: { status } })
      await failure((await atServer().resolve('m')).model)
    }
    expect(server.requests).toHaveLength(4)
  })

  it('streams each token as it comes', async () => {
    const gate = Promise.withResolvers<void>()
    server.script({ tokens: ['first ', gate.promise, 'second'] })
    const seen: string[] = []
    for await (const part of ask((await atServer().resolve('m')).model)) {
      if (part.type !== 'text-delta') continue
      seen.push(part.delta)
      gate.resolve()
    }
    expect(seen).toEqual(['first ', 'second'])
  })

  it.each<[string, Reply]>([
    ['silent', { end: 'hang' }],
    ['in the middle of a token', { tokens: 'Hel lo', end: 'hang' }],
  ])('%s loses its connection when the call is aborted', async (_, reply) => {
    server.script(reply)
    const abort = new AbortController()
    const call = collect((await atServer().resolve('m')).model, { abortSignal: abort.signal })
    const request = await server.request(0)
    expect(server.active).toBe(1)
    abort.abort()
    await expect(call).rejects.toThrow('aborted')
    await request.aborted
    expect(server.active).toBe(0)
  })
})

describe('the stream of an OpenAI-compatible server', () => {
  const tokens = ['Où est ', '“the atlas”', ' 🗺?', ' \u2028done']
  const chunks = (end: string) => [
    `: a comment${end}${end}`,
    ...tokens.map((content) => `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}${end}${end}`),
    `data: ${JSON.stringify({ choices: [{ delta: {}, finish_reason: 'stop' }] })}${end}${end}data: [DONE]${end}${end}`,
  ]
  /** Sends bytes in pieces of a size, each in its own write. */
  const pieces = (bytes: Buffer, size: number) =>
    Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) => [
      bytes.subarray(index * size, (index + 1) * size),
      nextTurn(),
    ]).flat()

  it.each(['\n', '\r\n', '\r'])('is read wherever it is cut, with %j at the end of its lines', async (end) => {
    const bytes = Buffer.from(chunks(end).join(''))
    for (const size of [1, 2, 3, 7, 50, bytes.length]) {
      server.script({ end: 'cut', tokens: pieces(bytes, size) })
      const { deltas, finish } = await collect((await atServer().resolve('m')).model)
      expect(deltas).toEqual(tokens)
      expect(finish?.finishReason.unified).toBe('stop')
    }
  })

  it('may begin with a byte order mark, which costs no text', async () => {
    const bytes = Buffer.from(`\ufeff${chunks('\n').slice(1).join('')}`)
    for (const size of [1, 2, 3, bytes.length]) {
      server.script({ end: 'cut', tokens: pieces(bytes, size) })
      expect((await collect((await atServer().resolve('m')).model)).deltas).toEqual(tokens)
    }
  })

  it('delivers everything before an unreadable part', async () => {
    server.script({ tokens: ['Hel', 'lo', Buffer.from('data: {garbage\n\n'), 'never'] })
    const seen: string[] = []
    const reading = async () => {
      for await (const part of ask((await atServer().resolve('m')).model)) {
        if (part.type === 'text-delta') seen.push(part.delta)
      }
    }
    await expect(reading()).rejects.toThrow()
    expect(seen).toEqual(['Hel', 'lo'])
  })

  const whole = Buffer.from(chunks('\n').join(''))
  const usage = event({ choices: [], usage: { prompt_tokens: 3, completion_tokens: 5 } })
  const done = Buffer.concat([usage, Buffer.from('data: [DONE]\n\n')])

  it('ends with [DONE], and its connection is closed if it lingers', async () => {
    server.script({ tokens: ['Hello', event({ choices: [{ finish_reason: 'stop' }] }), done, new Promise(() => {})] })
    const { text, finish } = await collect((await atServer().resolve('m')).model)
    expect([text, finish?.finishReason.unified]).toEqual(['Hello', 'stop'])
    expect([finish?.usage.inputTokens.total, finish?.usage.outputTokens.total]).toEqual([3, 5])
    await server.requests[0]?.aborted
    expect(server.connections).toBe(0)
  })

  it('ends with [DONE], whatever follows', async () => {
    server.script({ tokens: [whole, event({ error: { message: 'Late' } }), nextTurn(), whole], end: 'drop' })
    const { deltas, parts } = await collect((await atServer().resolve('m')).model)
    expect(deltas).toEqual(tokens)
    expect(parts.filter(({ type }) => type === 'error' || type === 'finish')).toHaveLength(1)
  })

  it("leaves no listener on its run's signal after it has been read or has failed", async () => {
    const { signal: abortSignal } = new AbortController()
    const { model } = await atServer().resolve('m')
    await collect(model, { abortSignal })
    server.script({ tokens: ['Hel', Buffer.from('data: {garbage\n\n')] })
    await expect(collect(model, { abortSignal })).rejects.toThrow()
    expect(getEventListeners(abortSignal, 'abort')).toEqual([])
  })

  it('leaves its connection to the next request', async () => {
    const { model } = await atServer().resolve('m')
    for (let round = 0; round < 10; round++) {
      // The end of the response comes together with the final chunk, or separately.
      server.script({ tokens: [whole], end: 'cut' }, () => ({ tokens: [whole, nextTurn()], end: 'cut' }))
      for (const _ of [1, 2]) expect((await collect(model)).deltas).toEqual(tokens)
    }
    // A request before the connection is free opens another one.
    expect(server.accepted).toBeLessThan(4)
  })

  it('reports its usage although it breaks', async () => {
    server.script({ tokens: ['Hello', usage], end: 'drop' })
    const seen: Part[] = []
    const reading = async () => {
      for await (const part of ask((await atServer().resolve('m')).model)) seen.push(part)
    }
    await expect(reading()).rejects.toThrow()
    expect(seen.find(({ type }) => type === 'usage')).toMatchObject({
      usage: { inputTokens: { total: 3 }, outputTokens: { total: 5 } },
    })
  })

  const MiB = 1024 * 1024

  it('may have a line of megabytes', async () => {
    const content = 'é'.repeat(7 * MiB)
    server.script({ tokens: [content] })
    expect((await collect((await atServer().resolve('m')).model)).text).toBe(content)
  })

  it.each([
    ['a line', Buffer.alloc(MiB, 'x')],
    ['an event', Buffer.from(`data: ${'x'.repeat(MiB)}\n`)],
  ])('is aborted if %s has no end', async (_, piece) => {
    server.script({ tokens: ['Hello', ...Array(100).fill(piece)] })
    const error = await failure((await atServer().resolve('m')).model)
    expect(atServer().describeError(error)).toBe('The model sent more than 16 MiB in one event')
    await server.requests[0]?.aborted
  })

  it('is aborted if it makes more than 1,000 calls', async () => {
    const call = (index: number) => ({ index, id: `call-${index}`, function: { name: 'add', arguments: '{}' } })
    const calls = (count: number) =>
      event({ choices: [{ delta: { tool_calls: Array.from({ length: count }, (_, index) => call(index)) } }] })
    server.script({ tokens: [calls(1_000)] }, { tokens: [calls(1_001)] })
    const { parts } = await collect((await atServer().resolve('m')).model)
    expect(parts.filter(({ type }) => type === 'tool-call')).toHaveLength(1_000)
    expect(await failure((await atServer().resolve('m')).model)).toBeInstanceOf(ModelError)
  })

  it('pauses while its reader is slow, and continues when it reads', async () => {
    const chunk = `data: ${JSON.stringify({ choices: [{ delta: { content: 'x'.repeat(1_000) } }] })}\n\n`
    const count = 30_000
    let written = 0
    const talker = createServer(async (_, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      for (; written < count; written++) if (!res.write(chunk)) await once(res, 'drain')
      res.end(chunks('\n').at(-1))
    })
    const port = await listen(talker)
    const { model } = await models({ OPENAI_BASE_URL: `http://127.0.0.1:${port}` }).resolve('m')
    const parts = ask(model)[Symbol.asyncIterator]()
    await parts.next()
    for (let [turns, before] = [0, -1]; turns < 500; turns++) {
      await nextTurn()
      if (written !== before) turns = 0
      before = written
    }
    expect(written).toBeLessThan(count)
    let deltas = 0
    for (let part = await parts.next(); !part.done; part = await parts.next()) {
      deltas += Number(part.value.type === 'text-delta')
    }
    expect(deltas).toBe(count)
    talker.close()
  })

  it('the stream of a refusal is read only in part', async () => {
    server.script({ error: { status: 500, body: 'x'.repeat(4_000_000) } })
    const error = await failure((await atServer().resolve('m')).model)
    expect(error).toMatchObject({ statusCode: 500, isRetryable: false })
    expect((error as APICallError).responseBody?.length).toBeLessThan(1_000_000)
  })
})

it("a model of the AI SDK leaves no listener on its run's signal", async () => {
  const { signal: abortSignal } = new AbortController()
  const stream = new ReadableStream<Part>({
    start(controller) {
      controller.enqueue({ type: 'text-delta', id: 't', delta: 'one ' })
      controller.close()
    },
  })
  const others = textModel({ provider: 'x', doStream: async () => ({ stream }) } as unknown as LanguageModelV4)
  expect((await collect(others, { abortSignal })).text).toBe('one ')
  expect(getEventListeners(abortSignal, 'abort')).toEqual([])
})

describe('Anthropic', () => {
  const sse = (...events: { type: string; [key: string]: unknown }[]) =>
    events.map((data) => Buffer.from(`event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`))
  const message = { id: 'm', type: 'message', role: 'assistant', content: [], model: 'claude-x', stop_reason: null }

  it.each(['/v1', '/v1/', '', '/'])('is asked at ANTHROPIC_BASE_URL, also with %j at its end', async (end) => {
    server.script({
      end: 'cut',
      tokens: sse(
        { type: 'message_start', message: { ...message, usage: { input_tokens: 5, output_tokens: 1 } } },
        { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
        { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hi' } },
        { type: 'content_block_stop', index: 0 },
        { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 3 } },
        { type: 'message_stop' },
      ),
    })
    const address = server.baseUrl.replace('/v1', end)
    const given = models({ ANTHROPIC_API_KEY: CANARY, ANTHROPIC_BASE_URL: address })
    const { text, finish } = await collect((await given.resolve('claude-x')).model)
    expect(text).toBe('Hi')
    expect([finish?.usage.inputTokens.total, finish?.usage.outputTokens.total]).toEqual([5, 3])
    expect(server.requests[0]).toMatchObject({ path: '/v1/messages', headers: { 'x-api-key': CANARY } })
  })
})

describe('the models of the server at OPENAI_BASE_URL', () => {
  it('give the default, the first that can chat, and are requested once', async () => {
    server.models = ['nomic-embed-text', 'llama3', 'qwen']
    const given = atServer({ OPENAI_API_KEY: CANARY })
    expect(await Promise.all([given.defaultModel(), given.defaultModel()])).toEqual(Array(2).fill('compatible/llama3'))
    expect((await given.resolve(null)).id).toBe('compatible/llama3')
    expect(server.listings.map(({ authorization }) => authorization)).toEqual([`Bearer ${CANARY}`])
  })

  it.each([
    [{ status: { value: 'unloaded' } }, { status: { value: 'loaded' } }],
    [{ state: 'not-loaded' }, { state: 'loaded' }],
  ])('give a default that the server has loaded: not one with %j', async (cold, loaded) => {
    const data = [
      { id: 'cold', ...cold },
      { id: 'nomic-embed-text', ...loaded },
      { id: 'warm', ...loaded },
    ]
    server.models = { status: 200, body: JSON.stringify({ data }) }
    expect(await atServer().defaultModel()).toBe('compatible/warm')
  })

  it('are requested again after a failure', async () => {
    const given = atServer()
    server.models = { status: 401, message: `wrong key ${CANARY}` }
    await expect(given.defaultModel()).rejects.toThrow(
      /^The server at OPENAI_BASE_URL does not list its models \(HTTP 401: wrong key .*\)\. Check OPENAI_API_KEY$/,
    )
    server.models = []
    await expect(given.defaultModel()).rejects.toThrow('The server at OPENAI_BASE_URL lists no models')
    server.models = ['llama3']
    expect(await given.defaultModel()).toBe('compatible/llama3')
  })

  it('models of a server at OPENAI_BASE_URL that cannot be reached cause a clear error', async () => {
    await server.close()
    const error = atServer().defaultModel()
    await expect(error).rejects.toThrow(ModelError)
    await expect(error).rejects.toThrow(
      /^The server at OPENAI_BASE_URL does not list its models \(fetch failed: .*ECONNREFUSED.*\)\. Name a model, or set/,
    )
  })

  it('models of a server are listed if it states a false encoding, or the same one twice', async () => {
    const list = Buffer.from(JSON.stringify({ data: [{ id: 'encoded' }] }))
    for (const [encoding, body] of [['br', list] as const, ['gzip, gzip', gzipSync(list)] as const]) {
      const encoded = createServer((_, response) => response.writeHead(200, { 'content-encoding': encoding }).end(body))
      const given = models({ OPENAI_BASE_URL: `http://127.0.0.1:${await listen(encoded)}/v1` })
      expect(await given.defaultModel()).toBe('compatible/encoded')
      encoded.close()
    }
  })

  it('models of a server that come late are used by runs, but pages do not wait for them', async () => {
    const { promise: asked, resolve: answer } = Promise.withResolvers<void>()
    const slow = createServer(async (_, response) => {
      await asked
      response.end(JSON.stringify({ data: [{ id: 'late' }] }))
    })
    const given = models({ OPENAI_BASE_URL: `http://127.0.0.1:${await listen(slow)}/v1` })
    const run = given.resolve(null)
    await expect(given.defaultModel()).rejects.toThrow('No list of models within 2 s')
    expect((await given.list()).map(({ provider }) => provider)).not.toContain('compatible')
    answer()
    expect((await run).id).toBe('compatible/late')
    slow.close()
  })

  it('are cached for a minute, then requested again, and kept if that fails', async () => {
    let now = new Date('2026-01-01T00:00:00Z')
    const given = models({ OPENAI_BASE_URL: server.baseUrl }, { now: () => now })
    const listed = async () => (await given.list()).flatMap(({ id, provider }) => (provider === 'compatible' ? id : []))
    server.models = ['a']
    expect(await listed()).toEqual(['compatible/a'])
    server.models = ['b']
    expect(await listed()).toEqual(['compatible/a'])
    now = new Date(now.getTime() + 60_000)
    expect(await listed()).toEqual(['compatible/b'])
    server.models = { status: 500 }
    now = new Date(now.getTime() + 60_000)
    expect(await listed()).toEqual(['compatible/b'])
    expect(await listed()).toEqual(['compatible/b'])
    expect(server.listings).toHaveLength(3)
  })

  it('give another default without a delay after the server changed its model', async () => {
    let now = new Date('2026-01-01T00:00:00Z')
    const given = models({ OPENAI_BASE_URL: server.baseUrl }, { now: () => now })
    server.models = ['a']
    expect(await given.defaultModel()).toBe('compatible/a')
    server.models = ['b']
    now = new Date(now.getTime() + 60_000)
    expect(await given.defaultModel()).toBe('compatible/a')
    await expect.poll(() => given.defaultModel()).toBe('compatible/b')
    expect(server.listings).toHaveLength(2)
  })
})

describe('the list of models', () => {
  it('shows which providers are configured, and always the offline model', async () => {
    const listWith = async (env: Record<string, string>) =>
      Object.groupBy(await models(env).list(), ({ available }) => (available ? 'available' : 'unavailable'))
    const providers = (list: { provider: string }[] | undefined) => [...new Set(list?.map(({ provider }) => provider))]
    const none = await listWith({})
    expect(none.available).toEqual([{ id: 'offline/echo', provider: 'offline', available: true }])
    expect(providers(none.unavailable)).toEqual(['anthropic', 'openai', 'google'])
    const one = await listWith({ GOOGLE_GENERATIVE_AI_API_KEY: 'g' })
    expect(providers(one.available)).toEqual(['google', 'offline'])
    expect(providers(one.unavailable)).toEqual(['anthropic', 'openai'])
  })

  it('leaves out a server that cannot be reached', async () => {
    const list = await models({ OPENAI_BASE_URL: `${CLOSED}/v1` }).list()
    expect(list.map(({ provider }) => provider)).not.toContain('compatible')
  })
})

describe('the cause of a failed run', () => {
  const describeError = (error: unknown) => models({ OPENAI_API_KEY: CANARY }).describeError(error)

  it.each<[string, Reply, string | RegExp]>([
    ['an error of the provider', { error: { status: 429, message: 'Slow down' } }, 'HTTP 429: Slow down'],
    ['a body with a detail', { error: { status: 422, body: '{"detail":"No such model"}' } }, 'HTTP 422: No such model'],
    ['a body with a text', { error: { status: 404, body: '{"error":"No such model"}' } }, 'HTTP 404: No such model'],
    [
      'a body that repeats the request',
      { error: { status: 422, body: '{"detail":[{"input":"the prompt"}]}' } },
      'HTTP 422: Unprocessable Entity',
    ],
    ['a page', { error: { status: 502, body: '<html>the page</html>' } }, 'HTTP 502: Bad Gateway'],
    ['a dropped connection', { tokens: 'Hel lo', end: 'drop' }, 'The connection to the model broke: other side closed'],
    ['no reply', { tokens: [], end: 'cut' }, 'The model server sent an empty answer'],
    [
      'a stream without a reply',
      { tokens: [Buffer.from(': ping\n\n')], end: 'cut' },
      'The model server ended its stream without an answer',
    ],
    [
      'a page',
      { tokens: [Buffer.from('<html><title>Sign in</title></html>')], end: 'cut' },
      'The model server answered with a web page titled "Sign in" (HTML) instead of a model\'s answer',
    ],
    [
      'garbage',
      { tokens: ['Hello', Buffer.from('data: {garbage\n\n')] },
      'The model server sent data that cannot be read',
    ],
    [
      'an error in the stream',
      { tokens: ['Hello', Buffer.from('data: {"error":{"message":"Out of memory"}}\n\n')] },
      'Out of memory',
    ],
  ])('reports %s', async (_, reply, cause) => {
    server.script(reply)
    expect(describeError(await failure((await atServer().resolve('m')).model))).toBe(cause)
  })

  it('reports an unreachable server', async () => {
    await server.close()
    const { model } = await atServer().resolve('m')
    expect(describeError(await failure(model))).toMatch(/^Cannot connect to API: .*ECONNREFUSED/)
    // Node's error for a name with several addresses has no message.
    const cause = Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' })
    const error = new APICallError({ message: 'Cannot connect to API: ', url: CLOSED, requestBodyValues: {}, cause })
    expect(describeError(error)).toBe('Cannot connect to API: ECONNREFUSED')
  })

  it('never shows the key, whatever the provider does with it', async () => {
    const messages = [
      `Incorrect API key provided: ${CANARY}.`,
      `headers: {"authorization":"Bearer ${CANARY}"}`,
      `https://host/path?key=${CANARY}&alt=sse`,
      `${'x'.repeat(490)}${CANARY}`,
    ]
    const given = atServer({ OPENAI_API_KEY: CANARY })
    const { model } = await given.resolve('m')
    for (const message of messages) {
      server.script({ error: { status: 401, message } }, { error: { status: 401, body: message } })
      server.script({ tokens: [Buffer.from(`data: {"error":${JSON.stringify({ message })}}\n\n`)] })
      server.script({ tokens: [Buffer.from(`data: ${message}\n\n`)] })
      for (let call = 0; call < 4; call++) {
        const cause = given.describeError(await failure(model))
        expect(cause).not.toBe('')
        expect(cause).not.toContain('canary')
        expect(cause).not.toContain(CANARY.slice(-8))
      }
    }
  })

  it.each([
    ['Incorrect API key provided: sk-proj-abcDEF_123.', 'Incorrect API key provided: [redacted].'],
    ['Incorrect key abcd********wxyz given', 'Incorrect key [redacted] given'],
    ['Incorrect key AIzaSyA1234567890 given', 'Incorrect key [redacted] given'],
    ['got Authorization: Bearer abc.def', 'got Authorization: Bearer [redacted]'],
    ['Bearer Token has expired', 'Bearer Token has expired'],
    ['no Bearer token, got Bearer token-abc.def', 'no Bearer token, got Bearer [redacted]'],
    ['got x-api-key: abc.def', 'got x-api-key: [redacted]'],
    ['at https://u:p@ss@host/v1?api_key=abc&x=1', 'at https://[redacted]@host/v1?api_key=[redacted]&x=1'],
    ['two\nlines\u0000and\tmore', 'two lines and more'],
    ['half a pair \ud83d', 'half a pair \ufffd'],
  ])('%j becomes %j', (message, cause) => {
    expect(describeError(new ModelError(message))).toBe(cause)
    expect(describeError(message)).toBe(cause)
    expect(describeError({ message })).toBe(cause)
  })

  it('is one short line for any thrown value', () => {
    expect(describeError(`${'x'.repeat(498)}😀 more`)).toBe(`${'x'.repeat(498)}😀…`)
    expect(describeError('long '.repeat(100_000))).toHaveLength(500)
    for (const thrown of [undefined, null, 5, {}, [], new ModelError()]) {
      expect(describeError(thrown)).toBe('The model failed: no reason given')
    }
  })

  it('hides errors of our own', () => {
    expect(describeError(new TypeError('Cannot read x of /srv/app.ts'))).toBe('An unexpected error occurred')
  })
})
