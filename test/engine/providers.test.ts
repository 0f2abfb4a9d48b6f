import { execFile } from 'node:child_process'
import { channel } from 'node:diagnostics_channel'
import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { readModelList } from '../../src/executions/engine/models/catalogue.ts'
import { createModels } from '../../src/executions/engine/models/models.ts'
import type { OwnProvider } from '../../src/executions/engine/models/own-providers.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { readSettings } from '../../src/settings.ts'
import { createCertificate } from '../support/certificate.ts'
import { createFolder } from '../support/folder.ts'
import { listen } from '../support/listen.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'

const KEY = 'key-5b0e7c41'
const ORGANIZATION = 'organization-1'

let server: ModelServer
let origin: string
beforeEach(async () => {
  server = await startModelServer()
  origin = new URL(server.baseUrl).origin
})
afterEach(() => server.close())

const PROMPT = [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'Hello' }] }]

/** Asks a model once and ignores its answer. */
async function ask(env: Record<string, string>, name: string | null): Promise<void> {
  const { model } = await createModels(readSettings(env)).resolve(name, ORGANIZATION)
  try {
    const { stream } = await model.doStream({ prompt: PROMPT })
    for await (const _ of stream);
  } catch {
    // The test server supports only chat completions.
  }
}

describe('the base address of', () => {
  const keys = { OPENAI_API_KEY: KEY, ANTHROPIC_API_KEY: KEY, GOOGLE_GENERATIVE_AI_API_KEY: KEY }
  const gemini = 'gemini-x:streamGenerateContent?alt=sse'

  it.each([
    ['OPENAI_BASE_URL', '/v1/', '/v1/chat/completions'],
    ['OPENAI_BASE_URL', '', '/chat/completions'],
    ['OPENAI_BASE_URL', '/v1/responses', '/v1/chat/completions'],
    ['OPENAI_RESPONSES_BASE_URL', '/v1/chat/completions', '/v1/responses'],
    ['OPENAI_BASE_URL', '/v1/chat/completions', '/v1/chat/completions'],
    ['OPENAI_BASE_URL', '/v1/chat/completions/', '/v1/chat/completions'],
    ['OPENAI_BASE_URL', '/v1/models', '/v1/chat/completions'],
    ['OPENAI_BASE_URL', '/d/gpt?api-version=1&b=2', '/d/gpt/chat/completions?api-version=1&b=2'],
    ['OPENAI_BASE_URL', '/d/gpt/chat/completions?api-version=1', '/d/gpt/chat/completions?api-version=1'],
    ['OPENAI_RESPONSES_BASE_URL', '/v1', '/v1/responses'],
    [
      'OPENAI_RESPONSES_BASE_URL',
      '/openai/v1/responses?api-version=preview',
      '/openai/v1/responses?api-version=preview',
    ],
    ['ANTHROPIC_BASE_URL', '', '/v1/messages'],
    ['ANTHROPIC_BASE_URL', '/v1/', '/v1/messages'],
    ['ANTHROPIC_BASE_URL', '/v1/messages', '/v1/messages'],
    ['ANTHROPIC_BASE_URL', '/anthropic?a=1', '/anthropic/v1/messages?a=1'],
    ['GOOGLE_BASE_URL', '', `/v1beta/models/${gemini}`],
    ['GOOGLE_BASE_URL', '/v1beta/', `/v1beta/models/${gemini}`],
    ['GOOGLE_BASE_URL', '/v1/gateway/google?a=1', `/v1/gateway/google/v1beta/models/${gemini}&a=1`],
    ['GOOGLE_BASE_URL', '/v1/publishers/google', `/v1/publishers/google/models/${gemini}`],
  ])('%s, given as "%s" after its origin, leads to %s', async (setting, path, requested) => {
    const models: Record<string, string> = {
      OPENAI_BASE_URL: 'compatible/m',
      OPENAI_RESPONSES_BASE_URL: 'openai/m',
      ANTHROPIC_BASE_URL: 'anthropic/claude-x',
      GOOGLE_BASE_URL: 'google/gemini-x',
    }
    await ask({ ...keys, [setting]: ` ${origin}${path} ` }, models[setting]!)
    expect(server.requests.map((request) => request.path)).toEqual([requested])
  })
})

describe('a key that the server wants in another header', () => {
  /** Starts a server that accepts its key only in `header`, and refuses with `refusal`. Returns its address. */
  async function startPicky(header: string, refusal: string, status = 401) {
    const seen: string[] = []
    const http = createServer((request, response) => {
      seen.push(`${request.url} ${request.headers.authorization ? 'authorization' : header}`)
      if (request.headers[header] !== KEY) return void response.writeHead(status).end(refusal)
      response.end(JSON.stringify(request.url === '/models' ? ['m'] : { choices: [{ message: { content: 'Hi' } }] }))
    })
    onTestFinished(() => void http.close())
    return { seen, baseUrl: `http://127.0.0.1:${await listen(http)}` }
  }

  it.each([
    ['api-key', '{"statusCode": 401, "message": "Access denied due to missing subscription key."}', 401],
    ['x-api-key', '{"error": "Missing header: X-API-Key"}', 403],
    ['ocp-apim-subscription-key', 'Set Ocp-Apim-Subscription-Key', 401],
  ])('is sent in %s after the refusal "%s", and from then on', async (header, refusal, status) => {
    const { baseUrl, seen } = await startPicky(header, refusal, status)
    const models = createModels(readSettings({ OPENAI_BASE_URL: baseUrl, OPENAI_API_KEY: KEY }))
    const { model } = await models.resolve(null, ORGANIZATION)
    for (let round = 0; round < 2; round++) {
      const { stream } = await model.doStream({ prompt: PROMPT })
      for await (const _ of stream);
    }
    const chat = '/chat/completions'
    expect(seen).toEqual([
      '/models authorization',
      `/models ${header}`,
      `${chat} authorization`,
      `${chat} ${header}`,
      `${chat} ${header}`,
    ])
  })

  it.each([
    ['anthropic/claude-x', 'ANTHROPIC', 'Missing Authorization header', 'authorization', `Bearer ${KEY}`],
    ['openai/m', 'OPENAI', 'Access denied due to missing subscription key', 'api-key', KEY],
    ['google/gemini-x', 'GOOGLE', 'Expected OAuth2 access token', 'authorization', `Bearer ${KEY}`],
  ])(
    'is sent where the refusal of a server for %s wants it, and from then on',
    async (id, prefix, refusal, ...wanted) => {
      const [header, value] = wanted
      const accepted: boolean[] = []
      const http = createServer((request, response) => {
        const isAccepted = request.headers[header] === value
        accepted.push(isAccepted)
        // The answer is none of a model's, which is no refusal of the key.
        response
          .writeHead(isAccepted ? 200 : 401)
          .end(isAccepted ? '{}' : JSON.stringify({ error: { message: refusal } }))
      })
      onTestFinished(() => void http.close())
      const address = prefix === 'OPENAI' ? 'OPENAI_RESPONSES_BASE_URL' : `${prefix}_BASE_URL`
      const key = prefix === 'GOOGLE' ? 'GOOGLE_GENERATIVE_AI_API_KEY' : `${prefix}_API_KEY`
      const settings = readSettings({ [address]: `http://127.0.0.1:${await listen(http)}`, [key]: KEY })
      const { model } = await createModels(settings).resolve(id, ORGANIZATION)
      const isRead = async () => {
        const { stream } = await model.doStream({ prompt: PROMPT, includeRawChunks: true })
        for await (const _ of stream);
      }
      for (let round = 0; round < 2; round++) await expect(isRead()).rejects.toThrow("not a model's answer")
      expect(accepted).toEqual([false, true, true])
    },
  )

  it.each([
    ['a wrong key', 'api-key', '{"error": "Access denied due to invalid subscription key"}', 'wrong'],
    ['another refusal', 'api-key', '{"error": "Incorrect API key provided"}', KEY],
  ])('stays in Authorization after %s', async (_, header, refusal, key) => {
    const { baseUrl, seen } = await startPicky(header, refusal)
    const env = { OPENAI_BASE_URL: baseUrl, OPENAI_API_KEY: key }
    const { model } = await createModels(readSettings(env)).resolve('compatible/m', ORGANIZATION)
    for (let round = 0; round < 2; round++) await expect(model.doStream({ prompt: PROMPT })).rejects.toThrow()
    expect(seen.filter((line) => line.endsWith('authorization'))).toHaveLength(2)
  })
})

describe('the headers of a request', () => {
  const sent = () => {
    const {
      authorization,
      'api-key': apiKey,
      'x-api-key': anthropic,
      'x-goog-api-key': google,
      'x-team': team,
    } = server.requests[0]?.headers ?? {}
    return { authorization, apiKey, anthropic, google, team }
  }

  it.each([
    ['compatible/m', { OPENAI_API_KEY: ` ${KEY}\n` }, { authorization: `Bearer ${KEY}` }],
    [
      'compatible/m',
      { OPENAI_API_KEY: KEY, OPENAI_HEADERS: '{"api-key": "azure", "X-Team": "a"}' },
      { apiKey: 'azure', team: 'a' },
    ],
    [
      'compatible/m',
      { OPENAI_API_KEY: KEY, OPENAI_HEADERS: '{"X-Team": "a"}' },
      { authorization: `Bearer ${KEY}`, team: 'a' },
    ],
    [
      'compatible/m',
      { OPENAI_API_KEY: KEY, OPENAI_HEADERS: '{"Authorization": "Basic x"}' },
      { authorization: 'Basic x' },
    ],
    ['openai/m', { OPENAI_HEADERS: '{"api-key": "azure"}' }, { apiKey: 'azure' }],
    ['openai/m', { OPENAI_API_KEY: KEY }, { authorization: `Bearer ${KEY}` }],
    ['anthropic/m', { ANTHROPIC_API_KEY: KEY, ANTHROPIC_HEADERS: '{"x-team": "a"}' }, { anthropic: KEY, team: 'a' }],
    ['anthropic/m', { ANTHROPIC_HEADERS: '{"authorization": "Bearer x"}' }, { authorization: 'Bearer x' }],
    ['google/gemini-x', { GOOGLE_GENERATIVE_AI_API_KEY: KEY }, { google: KEY }],
  ])('the headers of a request of %s with %j are %j', async (name, env, expected) => {
    const addresses = {
      OPENAI_BASE_URL: server.baseUrl,
      OPENAI_RESPONSES_BASE_URL: server.baseUrl,
      ANTHROPIC_BASE_URL: origin,
      GOOGLE_BASE_URL: origin,
    }
    await ask({ ...addresses, ...env }, name)
    expect(sent()).toEqual({
      authorization: undefined,
      apiKey: undefined,
      anthropic: undefined,
      google: undefined,
      team: undefined,
      ...expected,
    })
  })

  it.each(['compatible/m', 'openai/m', 'anthropic/m', 'google/gemini-x'])(
    'the headers of a request of %s do not follow a redirect to another origin',
    async (name) => {
      const redirecting = createServer((_, response) =>
        response.writeHead(307, { location: `${server.baseUrl}/chat/completions` }).end(),
      )
      const port = await listen(redirecting)
      const url = `http://127.0.0.1:${port}`
      const addresses = {
        OPENAI_BASE_URL: url,
        OPENAI_RESPONSES_BASE_URL: url,
        ANTHROPIC_BASE_URL: url,
        GOOGLE_BASE_URL: url,
      }
      const keys = { OPENAI_API_KEY: KEY, ANTHROPIC_API_KEY: KEY, GOOGLE_GENERATIVE_AI_API_KEY: KEY }
      await ask({ ...addresses, ...keys }, name)
      expect(server.requests).toEqual([])
      redirecting.closeAllConnections()
      redirecting.close()
    },
  )
})

describe('a connection to a model server', () => {
  const connected = channel('undici:client:connected')
  const read = (of: object, description: string): unknown =>
    Reflect.get(of, Object.getOwnPropertySymbols(of).find((symbol) => symbol.description === description) ?? '')

  it.each(['compatible/m', 'openai/m', 'anthropic/m', 'google/gemini-x'])(
    'a connection to a model server of %s has only MODEL_IDLE_TIMEOUT as its timeout',
    async (name) => {
      const found: unknown[] = []
      const listen = (message: unknown) => {
        const { socket } = message as { socket: object }
        const client = read(socket, 'client') as object
        found.push([read(client, 'headers timeout'), read(client, 'body timeout')])
      }
      connected.subscribe(listen)
      const addresses = {
        OPENAI_BASE_URL: server.baseUrl,
        OPENAI_RESPONSES_BASE_URL: server.baseUrl,
        ANTHROPIC_BASE_URL: origin,
        GOOGLE_BASE_URL: origin,
      }
      const keys = { OPENAI_API_KEY: KEY, ANTHROPIC_API_KEY: KEY, GOOGLE_GENERATIVE_AI_API_KEY: KEY }
      await ask({ ...addresses, ...keys }, name)
      connected.unsubscribe(listen)
      expect(server.requests).toHaveLength(1)
      expect(found).toEqual([[0, 0]])
    },
  )
})

it('each kind of provider trusts the authorities of NODE_EXTRA_CA_CERTS, and no unknown ones', async () => {
  await using folder = await createFolder()
  const { key, cert } = createCertificate()
  const file = join(folder.path, 'authority.pem')
  await writeFile(file, cert)
  const asked: string[] = []
  const secure = createSecureServer({ key, cert }, (request, response) => {
    asked.push(`${request.method} ${request.url}`)
    response.writeHead(400).end('{"error":{"message":"Reached"}}')
  })
  const port = await listen(secure)
  const address = `https://127.0.0.1:${port}`
  // Node reads the file when a process starts.
  const ask = async (env: Record<string, string>) => {
    const script = join(import.meta.dirname, '..', 'support', 'ask-models.ts')
    const { stdout } = await promisify(execFile)(process.execPath, [script, address], { env })
    return JSON.parse(stdout) as string[]
  }
  expect(await ask({ NODE_EXTRA_CA_CERTS: file })).toEqual(Array(4).fill('HTTP 400: Reached'))
  expect(asked).toHaveLength(4)
  for (const cause of await ask({})) expect(cause).toContain('is not trusted')
  expect(asked).toHaveLength(4)
  secure.close()
})

describe('the providers of an organization', () => {
  const record = (path: string, version: string): OwnProvider => ({
    name: 'mine',
    kind: 'compatible',
    version,
    baseUrl: `${origin}/${path}`,
    apiKey: KEY,
    headers: {},
  })

  it('changed without a notice are used within 5 s, and read once until then', async () => {
    let now = 0
    let reads = 0
    let records = [record('old', '1')]
    const models = createModels(readSettings({ ALLOW_PRIVATE_NETWORK: 'true' }), {
      clock: { ...systemClock, now: () => new Date(now) },
      readProviders: async () => {
        reads++
        return records
      },
    })
    const first = await models.resolve('mine/m', ORGANIZATION)
    records = [record('new', '2')]
    now = 3_999
    expect((await models.resolve('mine/m', ORGANIZATION)).model).toBe(first.model)
    expect(reads).toBe(1)
    now = 5_000
    expect((await models.resolve('mine/m', ORGANIZATION)).model).not.toBe(first.model)
    records = []
    models.forget([ORGANIZATION])
    await expect(models.resolve('mine/m', ORGANIZATION)).rejects.toThrow('Unknown model: mine/m')
  })

  it('must be at public addresses, checked at each connection', async () => {
    const models = createModels(readSettings({}), { readProviders: async () => [record('old', '1')] })
    const { model } = await models.resolve('mine/m', ORGANIZATION)
    const prompt = [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'Hello' }] }]
    const error = await Promise.resolve(model.doStream({ prompt })).catch((error) => error)
    expect(models.describeError(error, ORGANIZATION)).toContain('The address is not allowed')
    expect(server.requests).toEqual([])
  })
})

describe('several OpenAI-compatible providers', () => {
  const further = (name: string, path: string) => ({ name, baseUrl: `${origin}/${path}`, apiKey: `key-of-${name}` })
  const COMPATIBLE_PROVIDERS = () => JSON.stringify([further('groq', 'g'), further('kimi', 'k')])

  it.each([
    ['groq/openai/gpt-oss-120b', 'groq/openai/gpt-oss-120b', '/g/chat/completions', 'openai/gpt-oss-120b'],
    ['kimi/k2', 'kimi/k2', '/k/chat/completions', 'k2'],
    ['compatible:kimi/k2', 'kimi/k2', '/k/chat/completions', 'k2'],
    // No provider of that name has a key, so the whole name is looked up in the lists.
    ['openai/gpt-oss-120b', 'groq/openai/gpt-oss-120b', '/g/chat/completions', 'openai/gpt-oss-120b'],
    ['meta/llama', 'groq/meta/llama', '/g/chat/completions', 'meta/llama'],
  ])('answer for %s as %s', async (name, id, path, model) => {
    server.models = ['openai/gpt-oss-120b', 'meta/llama']
    const env = { COMPATIBLE_PROVIDERS: COMPATIBLE_PROVIDERS() }
    expect((await createModels(readSettings(env)).resolve(name, ORGANIZATION)).id).toBe(id)
    await ask(env, name)
    expect(server.requests.map((request) => [request.path, request.body.model, request.headers.authorization])).toEqual(
      [[path, model, `Bearer key-of-${id.split('/')[0]}`]],
    )
  })

  it('do not answer for a provider that has a key, or for a model outside their lists', async () => {
    server.models = ['openai/gpt-oss-120b']
    const env = { COMPATIBLE_PROVIDERS: COMPATIBLE_PROVIDERS(), OPENAI_API_KEY: KEY }
    const models = createModels(readSettings(env))
    expect((await models.resolve('openai/gpt-oss-120b', ORGANIZATION)).id).toBe('openai/gpt-oss-120b')
    await expect(models.resolve('meta/llama', ORGANIZATION)).rejects.toThrow('Unknown model: meta/llama')
    await expect(models.resolve('anthropic/x', ORGANIZATION)).rejects.toThrow('set ANTHROPIC_API_KEY')
  })

  it('list their models, and the first one is the default', async () => {
    server.models = ['text-embedding-3', 'chat-1']
    const models = createModels(readSettings({ COMPATIBLE_PROVIDERS: COMPATIBLE_PROVIDERS() }))
    const ids = (await models.list(ORGANIZATION)).map(({ id }) => id)
    expect(ids).toEqual(expect.arrayContaining(['groq/text-embedding-3', 'groq/chat-1', 'kimi/chat-1']))
    expect(await models.defaultModel(ORGANIZATION)).toBe('groq/chat-1')
  })
})

describe('a list of models', () => {
  it.each([
    ['{"object": "list", "data": [{"id": "a"}, {"id": "b"}, {"id": "a"}]}', ['a', 'b']],
    ['[{"id": "a", "type": "chat"}]', ['a']],
    ['["a", "b"]', ['a', 'b']],
    ['\ufeff["a"]', ['a']],
    ['{"models": [{"name": "llama3:8b", "model": "llama3:8b"}]}', ['llama3:8b']],
    ['{"models": [{"name": "models/gemini-x"}], "nextPageToken": ""}', ['gemini-x']],
    ['{"models": [{"name": "a"}], "data": [{"id": "b"}]}', ['b']],
    ['{"result": [{"name": "@cf/meta/llama"}], "success": true}', ['@cf/meta/llama']],
    ['{"data": {"models": [{"id": "a"}]}}', ['a']],
    ['{"data": [{"id": 7}, null, {}, {"id": ""}, {"id": "a"}]}', ['7', 'a']],
    ['{"data": []}', []],
  ])('is read from %s', (text, ids) => {
    expect(readModelList(text)?.map(({ id }) => id)).toEqual(ids)
  })

  it.each(['<html>', '', '7', 'null', '{"error": "no"}', '{"data": {}}'])('cannot be read from %s', (text) => {
    expect(readModelList(text)).toBeNull()
  })

  it('marks models that cannot chat', () => {
    const models = [
      ...['text-embedding-3', 'meta/llama-guard-4', 'gpt-4o-transcribe', 'gpt-image-2', 'flux.2'].map((id) => ({ id })),
      ...['deepseek-ocr', 'qwen3-asr-flash', 'hexgrad/Kokoro-82M', 'intfloat/e5-large', 'jina-reranker-v3'],
      ...['all-MiniLM-L6-v2', 'google/shieldgemma-9b', 'Kwai-Kolors/Kolors', 'wan2.5-t2v', 'gpt-4o-mini-audio-preview'],
      { id: 'i', model_type: 'rerank' },
      { id: 'a', type: 'embedding' },
      { id: 'g', active: false },
      { id: 'h', supports_chat: false },
      { id: 'b', type: 'image' },
      { id: 'c', capabilities: { completion_chat: false } },
      { id: 'bge-m3', capabilities: ['embedding'] },
      { id: 'd', architecture: { output_modalities: ['image'] } },
      { id: 'e', type: 'chat', architecture: { output_modalities: ['text'] } },
      { id: 'f', type: 'llm', model_type: 'LLM' },
      ...['mediocre-7b', 'qwen3-vl', 'swan-7b', 'gemini-3-pro', 'o3-mini'],
    ]
    const chatting = readModelList(JSON.stringify(models))?.flatMap(({ id, chats }) => (chats ? id : []))
    expect(chatting).toEqual(['e', 'f', 'mediocre-7b', 'qwen3-vl', 'swan-7b', 'gemini-3-pro', 'o3-mini'])
  })
})
