import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, streamText } from 'ai'
import OpenAI from 'openai'
import { beforeEach, describe, expect, it } from 'vitest'
import { createFolder } from '../support/folder.ts'
import { event } from '../support/model-replies.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { assistant, failureOf, startOpenAILab, TOOL, text, user } from './openai-lab.ts'

const { model, server, ann, eve, create, clientOf, asked, executions, messagesOf } = await startOpenAILab()
let agent: string
let slug: string
beforeEach(async () => {
  const made = await create()
  agent = made.id
  slug = made.agent.slug
})

const CALL = { id: 'call_1', type: 'function' as const, function: { name: 'get_weather', arguments: '{}' } }
const picture = (url: string) => ({ type: 'image_url' as const, image_url: { url } })

describe('models', () => {
  it('lists the agents that the caller can run, by organization and slug', async () => {
    const hidden = await create({ visibility: 'unlisted' }, await server.member({ organization: 'Acme' }))
    const { data } = await clientOf().models.list()
    expect(data).toContainEqual(expect.objectContaining({ id: `acme/${slug}`, object: 'model', owned_by: 'acme' }))
    expect(data.map(({ id }) => id)).not.toContain(`acme/${hidden.agent.slug}`)
    expect((await clientOf(eve).models.list()).data).toEqual([])
  })

  it('finds an agent by id, by slugs and by a name that only one agent has', async () => {
    const { agent: made } = await create({ name: 'The only Grace' })
    for (const name of [made.id, `acme/${made.slug}`, made.slug, 'The only Grace']) {
      const completion = await clientOf().chat.completions.create({ model: name, messages: [user('Hi')] })
      expect(completion.model).toBe(name)
    }
    expect(await clientOf().models.retrieve(made.id)).toMatchObject({ id: `acme/${made.slug}` })
    await create({ name: 'The only Grace' })
    const error = await failureOf(
      clientOf().chat.completions.create({ model: 'The only Grace', messages: [user('Hi')] }),
    )
    expect(error).toMatchObject({ status: 400, message: expect.stringContaining('Several agents have this name') })
  })

  it('names the base URL to a client that has another one', async () => {
    const detailOf = async (path: string) => {
      const { status, body } = await request(server, 'POST', path, { body: {}, token: ann.token })
      expect(status).toBe(404)
      return body.detail ?? body.error.message
    }
    for (const path of ['/v1/chat/completions', '/openai/chat/completions', '/openai/v1/v1/responses', '/openai/x'])
      expect(await detailOf(path)).toContain('/openai/v1')
    expect(await detailOf('/openai/v1//chat/completions')).toContain('two slashes')
    expect(await detailOf('/openai/v1/responses/compact')).toMatch(/^Not found\. Clients of OpenAI find/)
    expect(await detailOf('/api/v1//agents')).toContain('two slashes')
    const others: [path: string, advice: string][] = [
      ['/.well-known/agent-card.json', '/a2a/agents/{id}/.well-known/agent-card.json'],
      ['/openai/v1/conversations', 'a name of your choice'],
      ['/openai/v1/completions', 'use chat/completions'],
      ['/openai/v1/embeddings', 'another service'],
      ['/v1/audio/speech', 'another service'],
      ['/openai/v1/files', 'with a message'],
      ['/v1/messages', 'no API of Anthropic'],
      ['/api/tags', 'no API of Ollama'],
      ['/api/chat', '/api/v1/agents/{id}/chat'],
      ['/a2a', '/a2a/agents/{id}'],
      ['/mcp/sse', '/mcp/agents/{id}'],
      ['/sse', '/mcp'],
      ['/api/copilotkit', '/api/v1/agents/{id}/ag-ui'],
      ['/health', '/healthz'],
      ['/metrics', 'METRICS_PORT'],
      ['/v1/agents', '/api/v1'],
      ['/agents/x', '/api/v1'],
      ['/api/v1/agents/x/nothing', '/api/docs'],
    ]
    for (const [path, advice] of others) expect(await detailOf(path), path).toContain(advice)
  })

  it('answers equally for an unknown agent and for one of another organization', async () => {
    const errors = await Promise.all(
      [agent, 'A'.repeat(22), `acme/${slug}`, 'acme/nobody'].map((model) =>
        failureOf(clientOf(eve).chat.completions.create({ model, messages: [user('Hi')] })),
      ),
    )
    for (const error of errors) {
      expect(error).toMatchObject({ status: 404, code: 'model_not_found', type: 'not_found_error' })
      expect(error.message).toBe(errors[0]?.message)
      expect(error.message).toContain('GET /openai/v1/models')
    }
  })
})

describe('chat completions', () => {
  it('answers with the text and the usage of the run', async () => {
    model.script({ tokens: ['Good ', 'day.'], usage: { input: 17, output: 5 } })
    const { data, response } = await clientOf()
      .chat.completions.create({ model: agent, messages: [user('Hello')] })
      .withResponse()
    expect(data).toMatchObject({
      object: 'chat.completion',
      model: agent,
      choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'Good day.' } }],
      usage: { prompt_tokens: 17, completion_tokens: 5, total_tokens: 22 },
    })
    expect(data.id).toBe(`chatcmpl-${response.headers.get('x-execution-id')}`)
  })

  it('streams the fragments, the reasoning and the usage', async () => {
    model.script({ tokens: ['<think>', 'Hm.', '</think>', 'Good ', 'day.'], usage: { input: 17, output: 5 } })
    const stream = await clientOf().chat.completions.create({
      model: agent,
      messages: [user('Hello')],
      stream: true,
      stream_options: { include_usage: true },
    })
    const chunks = await Array.fromAsync(stream)
    const deltas = chunks.flatMap(({ choices }) => choices.map(({ delta }) => delta))
    expect(deltas.map(({ content }) => content ?? '').join('')).toBe('Good day.')
    expect(deltas.map((delta) => (delta as { reasoning_content?: string }).reasoning_content ?? '').join('')).toBe(
      'Hm.',
    )
    expect(chunks.at(-2)?.choices[0]?.finish_reason).toBe('stop')
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: 22 } })
  })

  it('answers with the reasoning of all steps, also with the call of a function', async () => {
    const ask = async (fields: object = {}) => {
      const { choices } = await clientOf().chat.completions.create({
        model: agent,
        messages: [user('Hello')],
        ...fields,
      })
      return choices[0]!.message as {
        content: string | null
        reasoning_content?: string
        tool_calls?: { id: string }[]
      }
    }
    model.script({ tokens: '<think>Hm.</think>Good day.' })
    expect(await ask()).toMatchObject({ content: 'Good day.', reasoning_content: 'Hm.' })
    const tools = [TOOL]
    const input = { city: 'Oslo' }
    model.script({ tokens: '<think>I ask.</think>', toolCalls: [{ id: 'one', name: 'get_weather', input }] })
    const called = await ask({ tools })
    expect(called).toMatchObject({ content: null, reasoning_content: 'I ask.' })
    model.script({ tokens: '<think>I see.</think>It rains.' })
    const result = { role: 'tool', tool_call_id: called.tool_calls![0]!.id, content: 'Rain' }
    const ended = await ask({ tools, messages: [user('Hello'), called, result] })
    expect(ended).toMatchObject({ content: 'It rains.', reasoning_content: 'I see.' })
    model.script({ tokens: 'Plain.' })
    expect(await ask()).not.toHaveProperty('reasoning_content')
  })

  it("appends system texts to the prompt, and uses the messages as a new session's history", async () => {
    const { data, response } = await clientOf()
      .chat.completions.create({
        model: agent,
        messages: [
          { role: 'system', content: 'Speak French.' },
          user('One'),
          assistant('Un'),
          { role: 'developer', content: [{ type: 'text', text: 'Be brief.' }] },
          user('Two'),
        ],
      })
      .withResponse()
    expect(text(data)).toBeTruthy()
    expect(asked()).toEqual([
      'system: You are Ada.\n\nSpeak French.\n\nBe brief.',
      'user: One',
      'assistant: Un',
      'user: Two',
    ])
    const id = response.headers.get('x-execution-id')
    const { body } = await request(server, 'GET', `/api/v1/executions/${id}`, { token: ann.token })
    expect(await messagesOf(body.execution.chatId)).toEqual([
      'user: One',
      'assistant: Un',
      'user: Two',
      `assistant: ${text(data)}`,
    ])
    const { body: found } = await request(server, 'GET', `/api/v1/chats/${body.execution.chatId}`, { token: ann.token })
    expect(found.chat).toMatchObject({ title: 'One', messageCount: 4 })
    await request(server, 'POST', `/api/v1/agents/${agent}/execute`, {
      body: { message: 'Three', sessionId: body.execution.sessionId },
      token: ann.token,
    })
    expect(asked()?.slice(1, 4)).toEqual(['user: One', 'assistant: Un', 'user: Two'])
  })

  it('maps the settings of the request to those of the model', async () => {
    await clientOf().chat.completions.create({
      model: agent,
      messages: [user('Hi')],
      temperature: 0.5,
      top_p: 0.9,
      max_tokens: 77,
      stop: 'END',
      seed: 3,
    })
    expect(model.requests.at(-1)?.body).toMatchObject({
      temperature: 0.5,
      top_p: 0.9,
      max_tokens: 77,
      stop: ['END'],
      seed: 3,
    })
    const odd = { max_tokens: -1, stop: ['', 'END'], reasoning_effort: 'auto' } as object
    await clientOf().chat.completions.create({ model: agent, messages: [user('Hi')], ...odd })
    const { max_tokens, stop, reasoning_effort } = model.requests.at(-1)!.body as Record<string, unknown>
    expect([max_tokens, stop, reasoning_effort]).toEqual([undefined, ['END'], undefined])
    const error = await failureOf(
      clientOf().chat.completions.create({ model: agent, messages: [user('Hi')], top_p: 7 }),
    )
    expect(error).toMatchObject({ status: 400, param: 'top_p', type: 'invalid_request_error' })
  })

  it.each([
    ['no messages', { messages: [] }],
    ['a call without its result', { messages: [user('Hi'), { role: 'assistant', tool_calls: [CALL] }] }],
    ['an empty message', { messages: [user(' ')] }],
    ['a message that is too long', { messages: [user('x'.repeat(200_001))] }],
    [
      'the address of a picture',
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] },
    ],
    ['two answers', { messages: [user('Hi')], n: 2 }],
    ['log probabilities', { messages: [user('Hi')], logprobs: true, top_logprobs: 2 }],
    ['tools in two forms', { messages: [user('Hi')], tools: [TOOL], functions: [TOOL.function] }],
    ['the choice of no function', { messages: [user('Hi')], function_call: { name: 'get_weather' } }],
    ['a result without its call', { messages: [user('Hi'), { role: 'function', name: 'get_weather', content: '1' }] }],
    ['a tool of OpenAI', { messages: [user('Hi')], tools: [{ type: 'web_search' }] }],
    ['results that no run waits for', { messages: [{ role: 'tool', tool_call_id: 'call_1', content: '1' }] }],
  ])('refuses %s with a 400 in the form of OpenAI', async (_, fields) => {
    const error = await failureOf(clientOf().chat.completions.create({ model: agent, ...fields } as never))
    expect(error).toMatchObject({ status: 400, type: 'invalid_request_error' })
    expect(error.message).toMatch(/\w/)
  })

  it('shows why a run failed, in an answer and in a stream', async () => {
    const refusal = { error: { status: 400, message: 'No such thing' } }
    model.script(refusal, refusal)
    const body = { model: agent, messages: [user('Hi')] }
    const error = await failureOf(clientOf().chat.completions.create(body))
    // Some clients repeat each `server_error`.
    expect(error).toMatchObject({ status: 500, type: 'run_error', code: 'provider_error' })
    expect(error.message).toContain('No such thing')
    const stream = await clientOf().chat.completions.create({ ...body, stream: true })
    const broken = await failureOf(Array.fromAsync(stream))
    expect(broken).toMatchObject({ type: 'run_error', message: expect.stringContaining('No such thing') })
  })

  it('answers with an empty text if the limit of the request ends it before its first word', async () => {
    const cut = { tokens: [event({ choices: [{ index: 0, delta: { content: '' }, finish_reason: 'length' }] })] }
    const replies = Array.from({ length: 4 }, () => ({ ...cut, end: 'cut' as const }))
    model.script(...replies)
    const body = { model: agent, messages: [user('Ping')] }
    const { chat, responses } = clientOf()
    const whole = await chat.completions.create({ ...body, max_tokens: 5 })
    expect(whole.choices[0]).toMatchObject({ message: { content: '' }, finish_reason: 'length' })
    const chunks = await Array.fromAsync(await chat.completions.create({ ...body, max_tokens: 5, stream: true }))
    expect(chunks.at(-1)?.choices[0]?.finish_reason).toBe('length')
    const response = await responses.create({ model: agent, input: 'Ping', max_output_tokens: 16 })
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } })
    const error = await failureOf(chat.completions.create(body))
    expect(error.message).toContain('token limit')
  })

  it('names a conversation that is too long with the code of OpenAI', async () => {
    const tooLong = { error: { status: 400, message: "This model's maximum context length is 10 tokens." } }
    const expected = { code: 'context_length_exceeded' }
    const body = { model: agent, messages: [user('Hi')] }
    const ask = async (create: (client: ReturnType<typeof clientOf>) => Promise<unknown>) => {
      model.script(tooLong)
      return failureOf(create(clientOf()))
    }
    expect(await ask((client) => client.chat.completions.create(body))).toMatchObject(expected)
    const chunks = async (client: ReturnType<typeof clientOf>) =>
      Array.fromAsync(await client.chat.completions.create({ ...body, stream: true }))
    expect(await ask(chunks)).toMatchObject(expected)
    expect(await ask((client) => client.responses.create({ model: agent, input: 'Hi' }))).toMatchObject(expected)
  })

  it('tells clients that repeat requests not to run the agent again after a failed run', async () => {
    model.script({ error: { status: 400, message: 'No such thing' } })
    const before = model.requests.length
    const client = clientOf().withOptions({ maxRetries: 2 })
    await failureOf(client.chat.completions.create({ model: agent, messages: [user('Hi')] }))
    expect(model.requests.length - before).toBe(1)
  })

  it('attaches the pictures of the last message, each stored once', async () => {
    const png = `data:image/png;base64,${Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex').toString('base64')}`
    const picture = { type: 'image_url' as const, image_url: { url: png } }
    const body = { model: agent, messages: [{ role: 'user' as const, content: [picture] }] }
    const runs = await Promise.all([1, 2].map(() => clientOf().chat.completions.create(body).withResponse()))
    for (const { response } of runs) {
      const id = response.headers.get('x-execution-id')
      const { execution } = (await request(server, 'GET', `/api/v1/executions/${id}`, { token: ann.token })).body
      expect(execution).toMatchObject({ message: '[attachment]', mediaIds: [expect.any(String)] })
    }
    const weak = await server.member({ organization: 'Acme', scopes: ['agents:execute'] })
    expect(await failureOf(clientOf(weak).chat.completions.create(body))).toMatchObject({ status: 403 })
  })

  it('attaches a picture that is a message of its own, and a file in bare base64', async () => {
    const image_url = { url: `data:image/png;base64,${btoa('\x89PNG\r\n\x1a\n')}` }
    const file = { filename: 'a.txt', file_data: btoa('Moin') }
    const messages = [
      user('Before'),
      assistant('Yes'),
      { role: 'user' as const, content: [{ type: 'image_url' as const, image_url }] },
      {
        role: 'user' as const,
        content: [
          { type: 'text' as const, text: 'Why?' },
          { type: 'file' as const, file },
        ],
      },
    ]
    const { response } = await clientOf().chat.completions.create({ model: agent, messages }).withResponse()
    const id = response.headers.get('x-execution-id')
    const { execution } = (await request(server, 'GET', `/api/v1/executions/${id}`, { token: ann.token })).body
    expect(execution).toMatchObject({ message: 'Why?', mediaIds: [expect.any(String), expect.any(String)] })
    expect(JSON.stringify(model.requests.at(-1)!.body)).toContain('Moin')
  })

  it('shows the model the files of earlier messages, and leaves out those that it cannot store', async () => {
    const image_url = { url: `data:image/png;base64,${btoa('\x89PNG\r\n\x1a\n\0\0\0\rIHDR')}` }
    const look = [{ type: 'text' as const, text: 'Look' }, picture(image_url.url), picture('https://a.example/b.png')]
    const messages = [{ role: 'user' as const, content: look }, assistant('A dot.'), user('Which colour?')]
    const create = (who = ann) => clientOf(who).chat.completions.create({ model: agent, messages })
    await create()
    const { messages: seen } = model.requests.at(-1)!.body
    expect(seen.at(-1)?.content).toEqual([
      { type: 'text', text: 'Which colour?' },
      { type: 'image_url', image_url },
    ])
    const weak = await server.member({ organization: 'Acme', scopes: ['agents:execute'] })
    await create(weak)
    expect(asked()?.at(-1)).toBe('user: Which colour?')
  })

  it('refuses a sound in the last message alone, because later requests of the client repeat it', async () => {
    const sound = { type: 'input_audio' as const, input_audio: { data: 'AAAA', format: 'wav' as const } }
    const heard = { role: 'user' as const, content: [{ type: 'text' as const, text: 'Hear' }, sound] }
    const create = (...later: OpenAI.Chat.ChatCompletionMessageParam[]) =>
      clientOf().chat.completions.create({ model: agent, messages: [heard, ...later] })
    expect((await failureOf(create())).message).toContain('Leave the part out (input_audio)')
    model.script({ tokens: 'Good.' })
    expect(text(await create(assistant('Music.'), user('And?')))).toBe('Good.')
  })

  it('notes the files in messages of other roles, and leaves thoughts out', async () => {
    const url = 'https://a.example/b.png'
    const made = { id: 'c', type: 'function', function: { name: 'see', arguments: '{}' } }
    const messages = [
      user('Look'),
      { role: 'assistant', content: [{ type: 'thinking', thinking: 'Hm' }], tool_calls: [made] },
      { role: 'tool', tool_call_id: 'c', content: [{ type: 'image_url', image_url: { url } }] },
      user('And?'),
    ]
    await clientOf().chat.completions.create({ model: agent, messages, tools: [TOOL] } as never)
    expect(JSON.stringify(model.requests.at(-1)!.body)).toContain(`[file ${url}: not shown]`)
  })

  it.each(['chat', 'responses'])('answers lists of messages that do not end with one of the user (%s)', async (api) => {
    const client = clientOf()
    const ask = async (...messages: { role: 'user' | 'assistant' | 'system'; content: string }[]) => {
      if (api === 'chat') await client.chat.completions.create({ model: agent, messages })
      else await client.responses.create({ model: agent, input: messages })
      return asked()
    }
    const system = (content: string) => ({ role: 'system' as const, content })
    const ada = 'system: You are Ada.'
    // CrewAI adds the results of its tools to the answer.
    const thought = 'Action: search\nObservation: 5'
    expect(await ask(user('Hi'), assistant(thought))).toEqual([
      ada,
      'user: Hi',
      `assistant: ${thought}`,
      'user: Continue.',
    ])
    expect(await ask(system('Write a joke.'))).toEqual([ada, 'user: Write a joke.'])
    const turn = ['user: Hi', 'assistant: Yes?']
    expect(await ask(user('Hi'), assistant('Yes?'), system('Sum it up.'))).toEqual([ada, ...turn, 'user: Sum it up.'])
    expect(await ask(user('Hi'), system('Be brief.'))).toEqual([`${ada}\n\nBe brief.`, 'user: Hi'])
  })

  it('shows the model an answer with which the conversation begins', async () => {
    const messages = [assistant('What is your name?'), user('Ben')]
    await clientOf().chat.completions.create({ model: agent, messages })
    const begin = 'user: [The conversation begins with your message]'
    expect(asked()?.slice(1)).toEqual([begin, 'assistant: What is your name?', 'user: Ben'])
  })

  it('leaves out the reasoning that Open WebUI puts into earlier answers, but no code', async () => {
    const code = '```\n<think>a</think>\n```'
    const answer = `<think>Who\nwon?</think>\nI look it up.\n<think>Norway.</think>\nNorway, in <think>:\n${code}`
    const messages = [user('Who won?'), assistant(answer), user('When?')]
    await clientOf().chat.completions.create({ model: agent, messages })
    const kept = `I look it up.\nNorway, in <think>:\n${code}`
    expect(asked()?.slice(1)).toEqual(['user: Who won?', `assistant: ${kept}`, 'user: When?'])
  })

  it('requires a token with the scope, and accepts no cookie', async () => {
    const weak = await server.member({ organization: 'Acme', scopes: ['tasks:read'] })
    const body = { model: agent, messages: [user('Hi')] }
    expect(await failureOf(clientOf(weak).chat.completions.create(body))).toMatchObject({
      status: 403,
      type: 'permission_error',
      code: 'insufficient_scope',
    })
    const cookie = { cookie: 'muster=abc', 'content-type': 'application/json' }
    const response = await fetch(`${server.url}/openai/v1/models`, { headers: cookie })
    expect(response.status).toBe(401)
    expect(await response.json()).toMatchObject({ error: { code: 'invalid_api_key', type: 'authentication_error' } })
  })

  it('repeats the answer of a request with the same Idempotency-Key', async () => {
    const before = (await executions()).length
    const headers = { 'Idempotency-Key': crypto.randomUUID() }
    const body = { model: agent, messages: [user('One'), assistant('Un'), user('Two')] }
    const first = await clientOf().chat.completions.create(body, { headers })
    const { data, response } = await clientOf().chat.completions.create(body, { headers }).withResponse()
    expect(data).toEqual(first)
    expect(response.headers.get('idempotent-replayed')).toBe('true')
    expect((await executions()).length).toBe(before + 1)
  })

  describe('that its library repeats because the answer was lost', () => {
    const { db } = server.service.deps
    const lost = () => db.idempotencyRecord.count({ where: { answer: null } })
    const runs = (message: string) => db.execution.findMany({ where: { message }, select: { status: true } })
    const asks = {
      'a chat completion': async (client: OpenAI, question: string) =>
        text(await client.chat.completions.create({ model: agent, messages: [user(question)] })),
      'a response': async (client: OpenAI, input: string) =>
        (await client.responses.create({ model: agent, input })).output_text,
    }

    /** A client behind a proxy that gives up at its first request, once the agent runs. The library then repeats it. */
    function clientBehindProxy(afterwards: () => unknown): OpenAI {
      let isFirst = true
      return new OpenAI({
        baseURL: `${server.url}/openai/v1`,
        apiKey: ann.token,
        async fetch(url, init) {
          if (!isFirst) return fetch(url, init)
          isFirst = false
          const [left, before] = [new AbortController(), await lost()]
          const arrival = model.request(model.requests.length)
          const answer = fetch(url, { ...init, signal: left.signal }).catch(() => {})
          await arrival
          left.abort()
          await answer
          await expect.poll(lost).toBe(before + 1)
          await afterwards()
          return new Response('504 Gateway Time-out', { status: 504, headers: { 'retry-after-ms': '1' } })
        },
      })
    }

    it.each(Object.entries(asks))('%s joins its run, while that is active and after it has ended', async (_, ask) => {
      for (const isActive of [true, false]) {
        const question = crypto.randomUUID()
        const before = await lost()
        const gate = Promise.withResolvers<void>()
        model.script({ tokens: [gate.promise, 'Once.'] }, { tokens: 'Anew.' })
        const client = clientBehindProxy(async () => {
          if (isActive) return void expect.poll(lost).toBe(before).then(gate.resolve)
          gate.resolve()
          await expect.poll(() => runs(question)).toEqual([{ status: 'completed' }])
        })
        expect(await ask(client, question)).toBe('Once.')
        expect(await runs(question)).toHaveLength(1)
        expect(await ask(clientOf(), question)).toBe('Anew.')
        expect(await runs(question)).toHaveLength(2)
      }
    })

    it('starts another run with another field, in another conversation, and after a failure', async () => {
      const question = crypto.randomUUID()
      const create = (client: OpenAI, fields: object = {}) =>
        client.chat.completions.create({ model: agent, messages: [user(question)], ...fields })
      const fails = Promise.withResolvers<void>()
      model.script(
        { tokens: [fails.promise], end: 'drop' },
        { tokens: 'Seed.' },
        { tokens: 'Name.' },
        { tokens: 'Last.' },
      )
      const last = create(
        clientBehindProxy(async () => {
          expect(text(await create(clientOf(), { seed: 1 }))).toBe('Seed.')
          expect(text(await create(clientOf(ann, { 'X-Session-Id': question })))).toBe('Name.')
          fails.resolve()
          await expect.poll(() => runs(question)).toContainEqual({ status: 'failed' })
        }),
      )
      expect(text(await last)).toBe('Last.')
    })

    it("is repeated by OpenAI's library after a stop, and joins its run on the next server", async () => {
      await using folder = await createFolder()
      const options = { folder: folder.path }
      const first = await startServer({ ...model.env, DRAIN_TIMEOUT: '0.1' }, options)
      const { token } = first
      const body = { name: 'Ada', systemPrompt: 'You are Ada.' }
      const { id } = (await request(first, 'POST', '/api/v1/agents', { body, token })).body
      const started = Promise.withResolvers<string>()
      const statuses: number[] = []
      const client = new OpenAI({
        baseURL: `${first.url}/openai/v1`,
        apiKey: token,
        async fetch(url, init) {
          const place = statuses.length ? await started.promise : first.url
          const answer = await fetch(String(url).replace(first.url, place), init)
          statuses.push(answer.status)
          return new Response(answer.body, {
            status: answer.status,
            headers: { ...Object.fromEntries(answer.headers), 'retry-after-ms': '1' },
          })
        },
      })
      const index = model.requests.length
      const step = { toolCalls: [{ id: 'a', name: 'unknown', input: {} }] }
      model.script(step, { tokens: 'Never', end: 'hang' }, { tokens: 'Once.' })
      const asked = client.chat.completions.create({ model: id, messages: [user('Hello')] })
      await model.request(index + 1)
      await first[Symbol.asyncDispose]()
      await using second = await startServer(model.env, options)
      started.resolve(second.url)
      expect(text(await asked)).toBe('Once.')
      expect(statuses).toEqual([503, 200])
      expect(await second.service.deps.db.execution.count()).toBe(1)
    })
  })

  it('serves the provider of the AI SDK', async () => {
    const provider = createOpenAICompatible({ name: 'muster', baseURL: `${server.url}/openai/v1`, apiKey: ann.token })
    model.script({ tokens: 'Good day.' }, { tokens: 'Good night.' })
    expect((await generateText({ model: provider(agent), prompt: 'Hello' })).text).toBe('Good day.')
    const { textStream } = streamText({ model: provider(agent), prompt: 'Bye' })
    expect((await Array.fromAsync(textStream)).join('')).toBe('Good night.')
  })
})

describe('a named conversation', () => {
  const say = async (name: string, ...messages: OpenAI.Chat.ChatCompletionMessageParam[]) => {
    const { data, response } = await clientOf(ann, { 'X-OpenWebUI-Chat-Id': name })
      .chat.completions.create({ model: agent, messages })
      .withResponse()
    const { body } = await request(server, 'GET', `/api/v1/executions/${response.headers.get('x-execution-id')}`, {
      token: ann.token,
    })
    return { text: text(data) ?? '', ...(body.execution as { chatId: string; sessionId: string }) }
  }

  it('drops the messages that repeat the session', async () => {
    const name = crypto.randomUUID()
    const first = await say(name, user('One'))
    const second = await say(name, user('One'), assistant(`${first.text} \n`), user('Two'))
    expect(second.sessionId).toBe(first.sessionId)
    expect(await messagesOf(first.chatId)).toEqual([
      ...['user: One', `assistant: ${first.text}`, 'user: Two', `assistant: ${second.text}`],
    ])
  })

  it('branches at an edited message, and continues in that branch', async () => {
    const name = crypto.randomUUID()
    const first = await say(name, user('One'))
    const second = await say(name, user('One'), assistant(first.text), user('Two'))
    const edited = await say(name, user('One'), assistant(first.text), user('Zwei'))
    expect(edited).toMatchObject({ chatId: second.chatId })
    expect(edited.sessionId).not.toBe(second.sessionId)
    expect(asked()?.slice(1)).toEqual(['user: One', `assistant: ${first.text}`, 'user: Zwei'])
    const next = await say(
      name,
      ...[user('One'), assistant(first.text), user('Zwei'), assistant(edited.text), user('Drei')],
    )
    expect(next.sessionId).toBe(edited.sessionId)
    const other = await say(name, user('One'), assistant('Invented'), user('Two'))
    expect(asked()?.slice(1)).toEqual(['user: One', 'assistant: Invented', 'user: Two'])
    expect(other.chatId).toBe(first.chatId)
  })

  it('separates a request for a title from the conversation', async () => {
    const name = crypto.randomUUID()
    const first = await say(name, user('One'))
    const title = await say(name, user('Write a title for: One'))
    expect(title.chatId).toBe(first.chatId)
    expect(asked()?.slice(1)).toEqual(['user: Write a title for: One'])
    expect(await messagesOf(first.chatId)).toEqual(['user: One', `assistant: ${first.text}`])
    const second = await say(name, user('One'), assistant(first.text), user('Two'))
    expect(second.sessionId).toBe(first.sessionId)
  })

  it.each([
    ['first', [0, 1]],
    ['second', [1, 0]],
  ])('separates the request of an agent client for a title that comes %s', async (_, order) => {
    const name = crypto.randomUUID()
    const asking = [
      { messages: [user('Write a title for this:'), user('One')] },
      { messages: [user('One')], tools: [TOOL] },
    ]
    const runs: Awaited<ReturnType<typeof ask>>[] = []
    const ask = async (body: (typeof asking)[number]) => {
      const { data, response } = await clientOf(ann, { 'X-Session-Id': name })
        .chat.completions.create({ model: agent, ...body })
        .withResponse()
      const id = response.headers.get('x-execution-id')
      const { execution } = (await request(server, 'GET', `/api/v1/executions/${id}`, { token: ann.token })).body
      return { ...execution, text: text(data) }
    }
    for (const index of order) runs[index] = await ask(asking[index]!)
    const [title, first] = runs
    expect(title.chatId).toBe(first.chatId)
    expect(await messagesOf(first.chatId)).toEqual(['user: One', `assistant: ${first.text}`])
    const { chat } = (await request(server, 'GET', `/api/v1/chats/${first.chatId}`, { token: ann.token })).body
    expect(chat.title).toBe('One')
    const second = await ask({ messages: [user('One'), assistant(first.text), user('Two')] as never, tools: [TOOL] })
    expect(second.sessionId).toBe(first.sessionId)
  })

  it('leaves the title that a person gave the chat after a request for a title', async () => {
    const name = crypto.randomUUID()
    const { chatId } = await say(name, user('Write a title for this:'), user('One'))
    const title = 'By hand'
    await request(server, 'PATCH', `/api/v1/chats/${chatId}`, { token: ann.token, body: { title } })
    await clientOf(ann, { 'X-OpenWebUI-Chat-Id': name }).chat.completions.create({
      model: agent,
      messages: [user('One')],
      tools: [TOOL],
    })
    const { chat } = (await request(server, 'GET', `/api/v1/chats/${chatId}`, { token: ann.token })).body
    expect(chat.title).toBe(title)
    expect((await messagesOf(chatId))[0]).toBe('user: One')
  })

  it.each([
    ['while it is answered', true],
    ['at the same time', false],
  ])('joins the active run of a request that is repeated %s', async (_, isLater) => {
    const name = crypto.randomUUID()
    const gate = Promise.withResolvers<void>()
    model.script({ tokens: ['Slow', gate.promise, ' answer'] })
    const isAsked = model.request(model.requests.length)
    // The head of a stream names its run as soon as the run is accepted.
    const start = () =>
      clientOf(ann, { 'X-OpenWebUI-Chat-Id': name })
        .chat.completions.create({ model: agent, messages: [user('One')], stream: true })
        .withResponse()
    const one = start()
    if (isLater) await isAsked
    const both = await Promise.all([one, start()])
    gate.resolve()
    const texts = both.map(async ({ data }) =>
      (await Array.fromAsync(data)).map(({ choices: [choice] }) => choice?.delta.content ?? '').join(''),
    )
    expect(await Promise.all(texts)).toEqual(['Slow answer', 'Slow answer'])
    expect(new Set(both.map(({ response }) => response.headers.get('x-execution-id'))).size).toBe(1)
  })

  it('joins no run that is about to be cancelled', async () => {
    const name = crypto.randomUUID()
    const gate = Promise.withResolvers<void>()
    model.script({ tokens: ['Slow', gate.promise, ' answer'] }, { tokens: 'Quick.' })
    const isAsked = model.request(model.requests.length)
    const first = say(name, user('One')).catch(() => 'cancelled')
    await isAsked
    const { db } = server.service.deps
    await db.execution.updateMany({ where: { message: 'One', status: 'running' }, data: { wantsCancel: true } })
    expect(await say(name, user('One'))).toMatchObject({ text: 'Quick.' })
    gate.resolve()
    await first
  })

  it('takes the turns of a client that has more of them than the session', async () => {
    const name = crypto.randomUUID()
    const first = await say(name, user('One'))
    const elsewhere = [user('Two'), assistant('Another model said this.')]
    await say(name, user('One'), assistant(first.text), ...elsewhere, user('Three'))
    expect(asked()?.slice(1)).toEqual([
      ...['user: One', `assistant: ${first.text}`, 'user: Two'],
      ...['assistant: Another model said this.', 'user: Three'],
    ])
  })

  it('answers another question than the one that is being answered', async () => {
    const name = crypto.randomUUID()
    const gate = Promise.withResolvers<void>()
    model.script({ tokens: ['Slow', gate.promise, ' answer'] }, { tokens: 'Quick.' })
    const isAsked = model.request(model.requests.length)
    const first = say(name, user('One'))
    await isAsked
    expect(await say(name, user('Two'))).toMatchObject({ text: 'Quick.' })
    gate.resolve()
    expect(await first).toMatchObject({ text: 'Slow answer' })
  })

  it('is separate for each user and agent', async () => {
    const name = crypto.randomUUID()
    const ben = await server.member({ organization: 'Acme' })
    const mine = await say(name, user('One'))
    const body = { model: agent, messages: [user('One')] }
    await clientOf(ben, { 'X-Session-Id': name }).chat.completions.create(body)
    await clientOf(ann, { 'X-Session-Id': name }).chat.completions.create({ ...body, model: (await create()).id })
    const names = await server.service.deps.db.conversationName.findMany({ where: { name } })
    expect(names).toHaveLength(3)
    expect(new Set(names.map(({ sessionId }) => sessionId)).size).toBe(3)
    expect(names.map(({ sessionId }) => sessionId)).toContain(mine.sessionId)
  })

  it('starts again after its chat was deleted', async () => {
    const name = crypto.randomUUID()
    const first = await say(name, user('One'))
    await request(server, 'DELETE', `/api/v1/chats/${first.chatId}`, { token: ann.token })
    const again = await say(name, user('One'), assistant(first.text), user('Two'))
    expect(again.chatId).not.toBe(first.chatId)
    expect(asked()?.slice(1)).toEqual(['user: One', `assistant: ${first.text}`, 'user: Two'])
    expect((await say(name, user('Three'))).chatId).toBe(again.chatId)
  })
})
