import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { createServer, type ServerResponse } from 'node:http'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { freePort } from '../support/free-port.ts'
import { envelope, JSON_TYPE, type Message, reply, SSE_TYPE, tool } from '../support/hostile-mcp.ts'
import { listen } from '../support/listen.ts'
import { use } from '../support/use.ts'
import { isCall, never, type Request, startClientLab, textResult } from './client-lab.ts'

/** MCP servers that restart, lose their sessions, and drop streams and connections. */

const lab = await use(startClientLab())

describe('a session that the server has lost', () => {
  it.each([
    ['404', 404, {}],
    ['410', 410, {}],
    ['400 that names the session', 400, { error: { code: -32000, message: 'Bad Request: No valid session ID' } }],
    ['400 of a restarted server', 400, { error: { code: -32000, message: 'Bad Request: Server not initialized' } }],
    ['200 with an error', 200, { error: { code: -32001, message: 'Session not found' } }],
    ['200 that does not know the session', 200, { error: { code: -32600, message: 'Session terminated' } }],
    ['200 of a restarted server', 200, { error: { code: -32602, message: 'Received request before initialization' } }],
    ['401 about the session', 401, { error: { code: -32000, message: 'Invalid session' } }],
    ['422 that expects a handshake', 422, { error: { code: -32000, message: 'expect initialize request' } }],
    ['503 about the session', 503, { error: { code: -32000, message: 'Unknown MCP session' } }],
    ['409 about the session', 409, { error: { code: -32000, message: 'Stale session' } }],
    ['400 that cannot find the session', 400, { error: { code: -32000, message: 'Could not find session' } }],
    ['403 of an ended session', 403, { error: { code: -32000, message: 'The session has ended' } }],
    ['400 without a transport', 400, { error: { code: -32000, message: 'No transport found' } }],
    ['500 about the session', 500, { error: { code: -32603, message: 'No transport found for sessionId' } }],
  ])('is renewed after a %s, and the call is made once more', async (_, status, body) => {
    lab.otherwise = (request, response) => {
      const isLost = isCall(request) && request.headers['mcp-session-id'] === 'session-1'
      const id = status === 200 ? request.message?.id : null
      if (isLost) response.writeHead(status, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id, ...body }))
      return isLost
    }
    const answers = await lab.using((client) => Promise.all([1, 2, 3].map(() => client.call('act', {}, never))))
    expect(answers).toEqual(answers.map(() => ({ content: 'Acted', isError: false })))
    expect(lab.sessions).toBe(2)
  })

  it('still answers its other call, because only one instance of the server has lost it', async () => {
    const first = Promise.withResolvers<() => void>()
    lab.otherwise = ({ message, headers }, response) => {
      if (message?.method !== 'tools/call' || headers['mcp-session-id'] !== 'session-1') return false
      const isFirst = lab.requests.filter(isCall).length === 1
      if (isFirst) first.resolve(() => reply(response, message, textResult('Acted at length')))
      else response.writeHead(404).end()
      return true
    }
    const answers = await lab.using(async (client) => {
      const slow = client.call('act', {}, never)
      const answerFirst = await first.promise
      const quick = await client.call('act', {}, never)
      answerFirst()
      return [quick.content, (await slow).content]
    })
    expect(answers).toEqual(['Acted', 'Acted at length'])
    expect(lab.requests.filter(isCall)).toHaveLength(3)
  })

  it('is renewed with the tools that the server has by then, which are announced once', async () => {
    lab.otherwise = ({ message, headers }, response) => {
      const { method } = message ?? {}
      const isLost = message && headers['mcp-session-id'] === 'session-1' && method === 'tools/call'
      if (isLost) response.writeHead(404).end()
      if (!message || isLost || lab.sessions < 2 || method !== 'tools/list') return Boolean(isLost)
      reply(response, message, { tools: [tool('act'), tool('later')] })
      return true
    }
    const seen = await lab.using(async (client) => {
      await client.call('act', {}, never)
      const announced = [await client.refresh(never), await client.refresh(never)]
      return [announced, client.tools.map(({ name }) => name)]
    })
    expect(seen).toEqual([
      [true, false],
      ['act', 'later'],
    ])
  })

  it('is renewed once: a server that loses each session fails its call', async () => {
    lab.otherwise = (request, response) => {
      if (isCall(request)) response.writeHead(404).end()
      return isCall(request)
    }
    expect(await lab.using((client) => client.call('act', {}, never))).toMatchObject({ isError: true })
    expect([lab.sessions, lab.requests.filter(isCall).length]).toEqual([2, 2])
  })

  it.each(['initialize', 'tools/list'])('is renewed by a server that is still starting at its %s', async (method) => {
    let refusals = 0
    lab.otherwise = ({ message, headers }, response) => {
      const isLost = message?.method === 'tools/call' && headers['mcp-session-id'] === 'session-1'
      const isStarting = message?.method === method && lab.sessions > 0 && lab.requests.some(isCall) && !refusals++
      if (isLost || isStarting) response.writeHead(isLost ? 404 : 503, { 'retry-after': '0' }).end()
      return isLost || isStarting
    }
    expect(await lab.using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
    expect([refusals > 0, lab.requests.filter(isCall).length]).toEqual([true, 2])
  })

  it('fails a call that was not made if it cannot be renewed', async () => {
    lab.otherwise = ({ message }, response) => {
      const isLost = message?.method === 'tools/call'
      const isBroken = message?.method === 'initialize' && lab.sessions > 0
      if (isLost || isBroken) response.writeHead(isLost ? 404 : 500).end()
      return isLost || isBroken
    }
    const { content } = await lab.using((client) => client.call('act', {}, never))
    expect(content).toBe('The call failed: it answered with the status 500')
  })

  it.each<[string, (request: Request, response: ServerResponse) => void]>([
    ['lost', (_, response) => void response.destroy()],
    [
      'failed by the tool with a session of its own',
      ({ message }, response) => {
        const error = { code: -32603, message: 'Browser session not found' }
        response.writeHead(200, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: message?.id, error }))
      },
    ],
    ['answered 503', (_, response) => void response.writeHead(503, { 'retry-after': '0' }).end()],
  ])('repeats no call that the server may have executed: one that was %s', async (_, answer) => {
    lab.otherwise = (request, response) => {
      if (isCall(request)) answer(request, response)
      return isCall(request)
    }
    expect(await lab.using((client) => client.call('act', {}, never))).toMatchObject({ isError: true })
    expect(lab.requests.filter(isCall)).toHaveLength(1)
  })
})

it('a server that refuses connections while it restarts is asked again shortly', async () => {
  const port = await freePort()
  const restarted = createServer((incoming, response) => void lab.http.emit('request', incoming, response))
  const begin = () => {
    unsubscribe('undici:client:connectError', begin)
    restarted.listen(port, '127.0.0.1')
  }
  subscribe('undici:client:connectError', begin)
  const at = `http://127.0.0.1:${port}/mcp`
  expect(await lab.using(async (client) => client.tools.map(({ name }) => name), { at })).toEqual(['act'])
  restarted.closeAllConnections()
  await promisify(restarted.close.bind(restarted))()
})

it("a server that answers on the session's standalone stream can be used", async () => {
  let standing: ServerResponse | undefined
  lab.otherwise = ({ message, method }, response) => {
    if (method === 'GET') {
      standing = response.writeHead(200, SSE_TYPE)
      response.flushHeaders()
    }
    if (!message?.id || message.method === 'initialize') return method === 'GET'
    response.writeHead(202).end()
    const result = message.method === 'tools/list' ? { tools: [tool('act')] } : textResult('Acted')
    const answer = () => (standing ? standing.write(`data: ${envelope(message, result)}\n\n`) : setImmediate(answer))
    answer()
    return true
  }
  expect(await lab.using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
})

it('a call fails if the standalone stream ends first, and the next call has a new session', async () => {
  let standing: ServerResponse | undefined
  lab.otherwise = ({ message, method }, response) => {
    if (method === 'GET') {
      standing = response.writeHead(200, SSE_TYPE)
      response.flushHeaders()
    }
    if (message?.method !== 'tools/call') return method === 'GET'
    response.writeHead(202).end()
    const first = lab.sessions === 1
    const answer = () => {
      if (!standing) return setImmediate(answer)
      if (first) standing.end()
      else standing.write(`data: ${envelope(message, textResult('Acted'))}\n\n`)
      standing = undefined
    }
    answer()
    return true
  }
  await lab.using(async (client) => {
    const failure = { content: expect.stringContaining('The tool may have acted'), isError: true }
    expect(await client.call('act', {}, never)).toEqual(failure)
    expect(await client.call('act', {}, never)).toEqual({ content: 'Acted', isError: false })
  })
})

it('a server that closes its connection instead of a first answer is asked again', async () => {
  let isClosed = false
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list' || isClosed) return false
    isClosed = true
    response.destroy()
    return true
  }
  expect(await lab.using((client) => client.call('act', {}, never))).toMatchObject({ isError: false })
})

it('a call whose connection was reset before anything was written is made again', async () => {
  await lab.using(async (client) => {
    // After the client has looked at the connection for the last time, and before it writes.
    const reset = () => {
      unsubscribe('undici:request:create', reset)
      setImmediate(() => lab.sockets.map((socket) => socket.resetAndDestroy()))
    }
    subscribe('undici:request:create', reset)
    expect(await client.call('act', {}, never)).toEqual({ content: 'Acted', isError: false })
  })
  expect(lab.requests.filter(isCall)).toHaveLength(1)
})

it.each<[string, (response: ServerResponse) => void]>([
  ['refuses', (response) => void response.writeHead(404).end()],
  ['drops', (response) => void response.destroy()],
  ['never answers', () => {}],
])('a server that %s notifications can be used', async (_, answer) => {
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'notifications/initialized') return false
    answer(response)
    return true
  }
  const acted = { content: 'Acted', isError: false }
  expect(await lab.using((client) => client.call('act', {}, never), { toolTimeout: 2_000 })).toEqual(acted)
})

it('a stream that breaks after an event with an id resumes there and brings the answer', async () => {
  let asked: Message | null = null
  lab.otherwise = ({ message, method, headers }, response) => {
    if (method === 'GET' && headers['last-event-id'] === 'e-1' && asked) {
      response.writeHead(200, SSE_TYPE).end(`id: e-2\ndata: ${envelope(asked, textResult('Resumed'))}\n\n`)
      return true
    }
    if (message?.method !== 'tools/call') return false
    asked = message
    response.writeHead(200, SSE_TYPE).end('id: e-1\nretry: 50\ndata:\n\n')
    return true
  }
  expect(await lab.using((client) => client.call('act', {}, never))).toEqual({ content: 'Resumed', isError: false })
  expect(lab.requests.filter(isCall)).toHaveLength(1)
})

it('a tool may have acted if its server is gone once the stream of its call has begun', async () => {
  const leaving = createServer((incoming, response) => void lab.http.emit('request', incoming, response))
  const at = `http://127.0.0.1:${await listen(leaving)}/mcp`
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/call') return false
    leaving.close()
    response.writeHead(200, SSE_TYPE).end('id: e-1\nretry: 50\ndata:\n\n', () => leaving.closeAllConnections())
    return true
  }
  const { content } = await lab.using((client) => client.call('act', {}, never), { at })
  expect(content).toMatch(/^The call failed: the connection was refused.*\. The tool may have acted: check before/)
})

it('a stream that ends without an event is resumed there, and may then answer with JSON', async () => {
  let asked: Message | null = null
  let polls = 0
  lab.otherwise = ({ message, method, headers }, response) => {
    if (method === 'GET' && headers['last-event-id'] === 'e-1' && asked) {
      if (++polls < 3) response.writeHead(200, SSE_TYPE).end(': nothing yet\n\n')
      else response.writeHead(200, JSON_TYPE).end(envelope(asked, textResult('Late')))
      return true
    }
    if (message?.method !== 'tools/call') return false
    asked = message
    response.writeHead(200, SSE_TYPE).end('id: e-1\nretry: 50\ndata:\n\n')
    return true
  }
  expect(await lab.using((client) => client.call('act', {}, never))).toEqual({ content: 'Late', isError: false })
})

it('a load balancer gets its cookies back, in the same session alone', async () => {
  const sent: (string | undefined)[] = []
  lab.otherwise = ({ message, headers }, response) => {
    sent.push(headers.cookie)
    if (message?.method === 'initialize') response.setHeader('set-cookie', ['lb=1; Path=/', 'old=x', 'a=b; HttpOnly'])
    if (message?.method === 'tools/list') response.setHeader('set-cookie', ['lb=2; Path=/', 'old=; Max-Age=0'])
    return false
  }
  await lab.using((client) => client.call('act', {}, never))
  expect(sent.at(0)).toBeUndefined()
  expect(sent).toContain('lb=1; old=x; a=b')
  expect(lab.requests.flatMap((request, index) => (isCall(request) ? [sent[index]] : []))).toEqual(['lb=2; a=b'])
  await lab.using(async () => {})
  expect(sent.filter((cookie) => cookie === undefined)).toHaveLength(2)
})

it('a cookie of a session is removed from the results of tools', async () => {
  lab.otherwise = ({ message, headers }, response) => {
    response.setHeader('set-cookie', 'session=0123456789abcdef; HttpOnly')
    if (message?.method !== 'tools/call' || !message) return false
    reply(response, message, textResult(`You sent ${headers.cookie}`))
    return true
  }
  expect(await lab.using((client) => client.call('act', {}, never))).toMatchObject({
    content: 'You sent session=[removed]',
  })
})
