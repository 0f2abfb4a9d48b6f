import { describe, expect, it, vi } from 'vitest'
import { newId, newTimedId } from '../../src/lib/id.ts'
import { createAgent } from '../support/api.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { type Asking, CASES, type Things } from './cases.ts'

// The rules of the other APIs hold in the doors too.

const model = await use(startModelServer())
const server = await use(
  startServer({
    ...model.env,
    EXECUTE_RATE_LIMIT: '3/3600',
    CLIENT_TOOL_TIMEOUT: '1',
    RATE_LIMIT: '9/3600',
  }),
)
const agent = await createAgent(server)

/** Ids of nothing. */
const nothing = () => new Proxy({} as Things, { get: () => newId() })

/** The agent, and nothing else that there is. */
const things = () => ({ ...everythingElse, agent }) as Things
const everythingElse = { execution: newTimedId('exec', new Date()), session: 'none' }

const send = (name: string, { path, ...asking }: Asking, token = server.token) =>
  request(server, name.split(' ', 1)[0]!, path, { ...asking, token })

const post = (path: string, body: object, token = server.token) => send('POST', { path, body }, token)

describe('every door', () => {
  it.each(Object.entries(CASES).flatMap(([name, { run }]) => (run ? [[name, run] as const] : [])))(
    '%s refuses runs beyond EXECUTE_RATE_LIMIT in the form of its protocol',
    async (name, run) => {
      const { token } = await server.member()
      for (let count = 0; count < 4; count++) {
        const { status, headers, body } = await send(name, run(things(), `key ${count}`, 'Hi'), token)
        const text = JSON.stringify(body)
        if (count < 3) {
          expect([status, /Rate limit/i.test(text)], text).toEqual([200, false])
          continue
        }
        expect(text).toMatch(/rate limit/i)
        expect(text).not.toContain('..')
        // A tool answers with an error that the model reads.
        if (name.startsWith('POST /mcp')) expect(text).toMatch(/isError/)
        else expect([status, headers.get('retry-after')]).toEqual([429, expect.stringMatching(/^\d+$/)])
      }
    },
  )

  it.each(Object.entries(CASES).flatMap(([name, { run }]) => (run ? [[name, run] as const] : [])))(
    '%s counts a run once for EXECUTE_RATE_LIMIT, however often its request is repeated',
    async (name, run) => {
      const { token } = await server.member()
      for (let count = 0; count < 5; count++) {
        const { status, body } = await send(name, run(things(), 'one key', 'Hi'), token)
        const text = JSON.stringify(body)
        expect([status, /rate limit|isError":true/i.test(text)], text).toEqual([200, false])
      }
    },
  )

  it('refuses a run that its client waits for while the server is paused', async () => {
    await using paused = await startServer({ ...model.env, PAUSED: 'true' })
    const things = { ...everythingElse, agent: await createAgent(paused) } as Things
    for (const [name, { run }] of Object.entries(CASES)) {
      if (!run) continue
      const { path, ...asking } = run(things, 'key of a pause', 'Hi')
      const { body } = await request(paused, name.split(' ', 1)[0]!, path, { ...asking, token: paused.token })
      expect([name, JSON.stringify(body)]).toEqual([name, expect.stringMatching(/runs are paused/i)])
    }
  })

  it.each([
    ['/openai/v1/chat/completions', { messages: [{ role: 'user', content: '' }] }],
    ['/openai/v1/responses', { input: 'Hi', previous_response_id: `resp_${everythingElse.execution}` }],
  ])('%s counts no run for a request that it refuses', async (path, body) => {
    const { token } = await server.member()
    for (let count = 0; count < 4; count++) {
      const { status } = await post(path, { model: agent, ...body }, token)
      expect(status).toBeOneOf([400, 404])
    }
  })

  it.each(Object.entries(CASES))('%s counts as a request for RATE_LIMIT', async (name, { ask }) => {
    const { token } = await server.member()
    const statuses: number[] = []
    for (let count = 0; count < 10; count++) statuses.push((await send(name, ask(nothing()), token)).status)
    expect(statuses.slice(0, 9)).not.toContain(429)
    expect(statuses[9]).toBe(429)
  })

  const ask = (version: string, method: string, message: object): Asking => ({
    path: `/a2a/agents/${agent}`,
    headers: { 'A2A-Version': version },
    body: { jsonrpc: '2.0', id: 1, method, params: { message: { ...message, messageId: newId() } } },
  })
  const STREAMS = [
    ['1.0', 'SendStreamingMessage', { role: 'ROLE_USER', parts: [{ text: 'Hi' }] }],
    ['0.3', 'message/stream', { kind: 'message', role: 'user', parts: [{ kind: 'text', text: 'Hi' }] }],
  ] as const

  it.each(STREAMS)('POST /a2a refuses streams of version %s beyond EXECUTE_RATE_LIMIT with 429', async (...stream) => {
    const { token } = await server.member()
    const answers = []
    for (let count = 0; count < 4; count++) answers.push(await send('POST /a2a', ask(...stream), token))
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 429])
    expect(answers[3]!.headers.get('retry-after')).toMatch(/^\d+$/)
  })

  it('POST /a2a logs why a run could not be counted, and does not show it to the caller', async () => {
    const { rateLimits } = server.service.deps
    const { token } = await server.member()
    const take = rateLimits!.take.bind(rateLimits)
    using _broken = vi.spyOn(rateLimits!, 'take').mockImplementation((name, ...rest) => {
      if (name === 'execute') throw new Error('connect ECONNREFUSED 10.0.0.7:5432')
      return take(name, ...rest)
    })
    for (const [version, method, message] of [...STREAMS, ['1.0', 'SendMessage', STREAMS[0][2]] as const]) {
      server.logs.length = 0
      const { body } = await send('POST /a2a', ask(version, method, message), token)
      expect(JSON.stringify(body)).toContain('An unexpected error occurred.')
      expect(JSON.stringify(body)).not.toContain('10.0.0.7')
      expect(server.logs.join()).toContain('10.0.0.7')
    }
  })

  it('POST /a2a runs nothing if it is to notify a private address', async () => {
    const { token, userId } = await server.member()
    const { path, headers, body } = CASES['POST /a2a/agents/{id}']!.run!(things(), 'private', 'Hi') as any
    const configuration = { taskPushNotificationConfig: { url: 'http://127.0.0.1:1/' } }
    const asked = { ...body, params: { ...body.params, configuration } }
    const answer = await send('POST /a2a', { path, headers, body: asked }, token)
    expect(JSON.stringify(answer.body)).toContain('Must not be a private address')
    expect(await server.service.deps.db.execution.count({ where: { userId } })).toBe(0)
  })

  it('POST /mcp takes a body of 4 MiB, and none of one byte more', async () => {
    const { token } = await server.member()
    const { path, headers, body } = CASES['POST /mcp']!.ask(things())
    const text = JSON.stringify(body)
    const bytes = async (length: number) =>
      (await request(server, 'POST', path, { token, headers: headers ?? {}, body: text.padEnd(length) })).status
    const size = 4 * 1024 * 1024
    expect([await bytes(size), await bytes(size + 1)]).toEqual([200, 413])
  })

  it('POST /mcp counts each message of a batch for RATE_LIMIT', async () => {
    const { path, headers, body } = CASES['POST /mcp']!.ask(things())
    const batch = (length: number) => ({ path, headers: headers ?? {}, body: Array.from({ length }, () => body) })
    const [ann, ben] = [await server.member(), await server.member()]
    expect((await send('POST /mcp', batch(9), ann.token)).status).toBe(200)
    expect((await send('POST /mcp', batch(1), ann.token)).status).toBe(429)
    const { status, headers: responseHeaders } = await send('POST /mcp', batch(10), ben.token)
    expect([status, responseHeaders.get('retry-after')]).toEqual([429, expect.stringMatching(/^\d+$/)])
  })

  it.each(Object.entries(CASES))('%s refuses unknown tokens, and methods that it lacks', async (name, { ask }) => {
    const { path, ...asking } = ask(things())
    expect((await send(name, { path, ...asking }, 'mst_nonsense')).status).toBe(401)
    const { status, headers } = await request(server, 'PUT', path, { token: (await server.member()).token })
    expect([status, headers.get('allow')]).toEqual([405, expect.stringContaining(name.split(' ', 1)[0]!)])
  })

  it('fails a run whose client does not call its tool in time', async () => {
    const { token } = await server.member()
    const tools = [{ type: 'function', name: 'weather', parameters: { type: 'object', properties: {} } }]
    model.script({ toolCalls: [{ id: 'a', name: 'client__weather', input: {} }] })
    const { body: response } = await post('/openai/v1/responses', { model: agent, input: 'Hi', tools }, token)
    const id = response.id.replace('resp_', '')
    const state = () => server.service.deps.db.execution.findUniqueOrThrow({ where: { id } })
    await expect.poll(state).toMatchObject({ status: 'failed', error: 'timeout', errorCode: 'timeout' })
  })
})
