import type { ServerResponse } from 'node:http'
import { describe, expect, it } from 'vitest'
import { createMeter } from '../../src/mcps/client/message-rate.ts'
import { envelope, JSON_TYPE, type Message, reply, SSE_TYPE, tool } from '../support/hostile-mcp.ts'
import { use } from '../support/use.ts'
import { type Handle, isCall, never, startClientLab, textResult } from './client-lab.ts'

/** Calls that take long, run as tasks, ask for input or flood. */

const lab = await use(startClientLab())

describe('a slow call', () => {
  it('a slow call whose caller gives up is cancelled on the server', async () => {
    const controller = new AbortController()
    lab.otherwise = (request, response) => {
      if (!isCall(request)) return false
      response.writeHead(200, SSE_TYPE).flushHeaders()
      controller.abort(new Error('enough'))
      return true
    }
    await lab.using(async (client) => {
      await expect(client.call('act', {}, controller.signal)).rejects.toThrow('enough')
    })
    expect(lab.methodsOf()).toContain('notifications/cancelled')
    const [call] = lab.requests.filter(isCall)
    const given = lab.requests.find(({ message }) => message?.method === 'notifications/cancelled')
    expect(given?.message?.params.requestId).toBe(call?.message?.id)
  })

  it('sends a progress token, and reports the progress for it', async () => {
    lab.otherwise = ({ message }, response) => {
      if (message?.method !== 'tools/call') return false
      const { progressToken } = message.params._meta
      response.writeHead(200, SSE_TYPE)
      for (const stated of [
        { progress: 1, total: 4 },
        { progress: 2, total: null },
        { message: 'x' },
        { progress: '99 %' },
      ]) {
        const params = { progressToken, ...stated }
        response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params })}\n\n`)
      }
      response.end(`data: ${envelope(message, textResult('Slow'))}\n\n`)
      return true
    }
    let calls = 0
    expect(await lab.using((client) => client.call('act', {}, never, () => calls++))).toMatchObject({ content: 'Slow' })
    expect(calls).toBe(4)
  })
})

describe('a tool that only runs as a task', () => {
  const working = { taskId: 't1', status: 'working', pollInterval: 1 }
  /** Answers like a server with such a tool, whose task has these states. `answers` replaces its results. */
  const tasking = (states: string[], answers: Record<string, object> = {}): Handle => {
    const results: Record<string, () => object> = {
      'tools/list': () => ({ tools: [tool('act', { execution: { taskSupport: 'required' } })] }),
      'tasks/get': () => ({ ...working, status: states.shift() }),
      'tasks/result': () => textResult('Done'),
      'tasks/cancel': () => ({ ...working, status: 'cancelled' }),
    }
    return ({ message }, response) => {
      if (!message?.id || message.method === 'initialize') return false
      const isPlain = message.method === 'tools/call' && !message.params.task
      const result = answers[message.method] ?? results[message.method]?.() ?? { task: working }
      const error = isPlain ? { code: -32601, message: 'It requires a task' } : 'code' in result && result
      response.writeHead(200, JSON_TYPE)
      response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, ...(error ? { error } : { result }) }))
      return true
    }
  }

  it('is called as one, and its work is progress', async () => {
    lab.otherwise = tasking(['working', 'working', 'completed'])
    let calls = 0
    const called = await lab.using((client) => client.call('act', {}, never, () => calls++))
    expect([called, calls]).toEqual([{ content: 'Done', isError: false }, 3])
  })

  it.each<[string, string[], Record<string, object>, object]>([
    ['that waits for an answer', ['input_required'], {}, { content: 'Done', isError: false }],
    ['whose server answers at once', [], { 'tools/call': textResult('Now') }, { content: 'Now', isError: false }],
    [
      'that fails',
      ['failed'],
      { 'tasks/result': { code: -32603, message: 'No space' } },
      { content: 'The task of the tool failed: No space', isError: true },
    ],
    [
      'whose session is lost',
      [],
      { 'tasks/get': { code: -32001, message: 'Session not found' } },
      { content: 'The task of the tool failed: Session not found', isError: true },
    ],
  ])('is called once, also one %s', async (_, states, answers, result) => {
    lab.otherwise = tasking(states, answers)
    expect(await lab.using((client) => client.call('act', {}, never))).toEqual(result)
    expect(lab.requests.filter(isCall)).toHaveLength(1)
  })

  it('may have acted if its server is gone', async () => {
    const answer = tasking(['working'])
    lab.otherwise = (request, response) => {
      if (request.message?.method !== 'tasks/result') return answer(request, response)
      response.destroy()
      return true
    }
    const { content, isError } = await lab.using((client) => client.call('act', {}, never))
    expect([isError, content]).toEqual([true, expect.stringContaining('The tool may have acted')])
  })

  it('is cancelled on the server if its caller gives up', async () => {
    const controller = new AbortController()
    lab.otherwise = tasking(Array(1_000).fill('working'))
    await lab.using(async (client) => {
      const giveUp = () => controller.abort(new Error('enough'))
      await expect(client.call('act', {}, controller.signal, giveUp)).rejects.toThrow('enough')
      await expect.poll(lab.methodsOf).toContain('tasks/cancel')
    })
  })
})

it.each([
  ['without sessions', (response: ServerResponse) => void response.writeHead(404).end()],
  ['of an earlier revision', null],
])('a server %s that asks for input first fails the call with this reason', async (_, refuse) => {
  lab.otherwise = ({ message }, response) => {
    const params = { message: 'Sure?', requestedSchema: { type: 'object', properties: {} } }
    const results: Record<string, object> = {
      'server/discover': { supportedVersions: ['2026-07-28'], capabilities: { tools: {} } },
      'tools/call': { resultType: 'input_required', inputRequests: { a: { method: 'elicitation/create', params } } },
    }
    const result = message && results[message.method]
    if (message?.method === 'initialize') refuse?.(response)
    else if (result) reply(response, message, result)
    return Boolean(result) || (message?.method === 'initialize' && refuse !== null)
  }
  const { content, isError } = await lab.using((client) => client.call('act', {}, never))
  expect([content, isError]).toEqual([expect.stringMatching(/it asks for something else first.*: Sure\?$/), true])
})

// As FastMCP does for `ctx.elicit` and `ctx.sample`, without a look at the capabilities of the client.

it.each(['elicitation/create', 'sampling/createMessage', 'roots/list'])(
  'a tool that requests %s reads why it gets no answer',
  async (method) => {
    let open: [Message, ServerResponse] | undefined
    lab.otherwise = (request, response) => {
      const { message } = request
      if (message && isCall(request)) {
        open = [message, response.writeHead(200, SSE_TYPE)]
        response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', id: 'own', method, params: {} })}\n\n`)
      } else if (String(message?.id) === 'own' && open) {
        response.writeHead(202).end()
        const [call, stream] = open
        const { error } = message as { error?: { message: string } }
        stream.end(
          `data: ${envelope(call, { isError: true, ...textResult(`Error calling tool: ${error?.message}`) })}\n\n`,
        )
      } else return false
      return true
    }
    expect(await lab.using((client) => client.call('act', {}, never))).toEqual({
      content: `Error calling tool: Method not found: ${method}. The caller is a run of an agent, which answers no requests of servers`,
      isError: true,
    })
  },
)

it('a server that sends a request each second does not send too many', () => {
  let now = 0
  const isTooMuch = createMeter(10_000, () => now)
  const floods = Array.from({ length: 3600 }, () => {
    now += 1000
    return isTooMuch(50)
  })
  expect(floods).not.toContain(true)
  expect(Array.from({ length: 201 }, () => isTooMuch(50)).at(-1)).toBe(true)
})
