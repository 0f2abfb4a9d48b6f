import type { ServerResponse } from 'node:http'
import { describe, expect, it } from 'vitest'
import { mend } from '../../src/mcps/client/mend.ts'
import { envelope, JSON_TYPE, type Message, reply, SSE_TYPE } from '../support/hostile-mcp.ts'
import { use } from '../support/use.ts'
import { GREETING, isCall, never, startClientLab, textResult } from './client-lab.ts'

/** Answers to calls in the forms in which MCP servers send them. */

const lab = await use(startClientLab())

describe('an answer in another form', () => {
  const fileOf = (mimeType: string, content: string | Buffer) => {
    const blob = Buffer.from(content).toString('base64')
    return { type: 'resource', resource: { uri: 'x:/f', mimeType, blob } }
  }
  const whole = (message: Message) => envelope(message, textResult('Acted'))
  const note = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 'x' } })
  it.each<[string, object, (message: Message) => string | Buffer]>([
    ['JSON in UTF-16', { 'content-type': 'application/json; charset=utf-16' }, (m) => Buffer.from(whole(m), 'utf16le')],
    ['an event of another name', SSE_TYPE, (message) => `event: result\ndata: ${whole(message)}\n\n`],
    ['an event with two messages', SSE_TYPE, (message) => `data: ${note}\ndata: ${whole(message)}\n\n`],
    ['a repeated prefix', SSE_TYPE, (message) => `data: data: ${whole(message)}\n\n`],
    ['an error that is null', JSON_TYPE, (message) => whole(message).replace(/}$/, ',"error":null}')],
    ['an error that is null in an event', SSE_TYPE, (m) => `data: ${whole(m).replace(/}$/, ',"error":null}')}\n\n`],
    ['an error that is empty', JSON_TYPE, (message) => whole(message).replace(/}$/, ',"error":{}}')],
    ['an error that is an empty text', JSON_TYPE, (message) => whole(message).replace(/}$/, ',"error":""}')],
    ['colours of a terminal', JSON_TYPE, (m) => envelope(m, textResult('\u001b[1;31mActed\u001b[0m'))],
    ['metadata that are null', JSON_TYPE, (m) => envelope(m, { ...textResult('Acted'), _meta: null })],
    ['a batch in an event', SSE_TYPE, (message) => `data: [${note},${whole(message)}]\n\n`],
    ['a message without its version', JSON_TYPE, (m) => JSON.stringify({ id: m.id, result: textResult('Acted') })],
    ['a message with other fields', JSON_TYPE, (m) => whole(m).replace(/}$/, ',"method":null,"trace":"x"}')],
    ['a message with an object at its end', JSON_TYPE, (m) => whole(m).replace(/}$/, ',"trace":{}}')],
    [
      'a message with an object at its end, in an event',
      SSE_TYPE,
      (m) => `data: ${whole(m).replace(/}$/, ',"x":{}}')}\n\n`,
    ],
    ['JSON that is encoded twice', JSON_TYPE, (message) => JSON.stringify(whole(message))],
    ['a result that is a text', JSON_TYPE, ({ id }) => JSON.stringify({ jsonrpc: '2.0', id, result: 'Acted' })],
    ['a list as a result', JSON_TYPE, ({ id }) => JSON.stringify({ jsonrpc: '2.0', id, result: ['Acted'] })],
    ['messages line by line', JSON_TYPE, (message) => `${note}\n${whole(message)}\n`],
    ['another type of JSON', { 'content-type': 'application/json-rpc' }, whole],
    ['two types at once', { 'content-type': 'application/json, text/event-stream' }, whole],
    ['JSON that is declared as a page', { 'content-type': 'text/html' }, whole],
    ['JSON that is declared as an event stream', SSE_TYPE, (message) => ` \n${whole(message)}`],
    ['an event stream that is declared as JSON', JSON_TYPE, (message) => `event: message\ndata: ${whole(message)}\n\n`],
    ['a warning before it', JSON_TYPE, (message) => `<b>Warning</b>: {x}\n${whole(message)}`],
    ['a comma too much', JSON_TYPE, (message) => whole(message).replace('}]', '},]')],
    ['no id', JSON_TYPE, () => JSON.stringify({ jsonrpc: '2.0', result: textResult('Acted') })],
    ['an id that is null, in an event', SSE_TYPE, (m) => `data: ${whole({ ...m, id: null as never })}\n\n`],
    ['the status 202', { ...JSON_TYPE, status: 202 }, whole],
    ['a result alone', JSON_TYPE, () => JSON.stringify(textResult('Acted'))],
    ['the same id always', JSON_TYPE, () => envelope({ id: 1 } as Message, textResult('Acted'))],
    ['two messages without a line break', JSON_TYPE, (message) => `${note}${whole(message)}`],
    ['metadata of PHP', JSON_TYPE, (m) => envelope(m, { ...textResult('Acted'), _meta: [] })],
    ['a list in a list', JSON_TYPE, (m) => envelope(m, { content: [textResult('Acted').content] })],
  ])('is read: %s', async (_, head, body) => {
    const { status = 200, ...type } = head as { status?: number }
    lab.otherwise = ({ message }, response) => {
      if (message?.method !== 'tools/call') return false
      response.writeHead(status, { ...type }).end(body(message))
      return true
    }
    expect(await lab.using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
  })

  const refusal = '{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Rate limit exceeded"}}'
  it.each([
    ['Rate limit exceeded', 'text/plain', 'application/json', refusal],
    [` ${refusal}`, '', 'application/json', refusal],
    ['event: x\ndata: 1\n\n', 'text/html', 'text/event-stream', 'event: x\ndata: 1\n\n'],
    ['<p>No</p>', 'text/html', 'text/html', '<p>No</p>'],
  ])('is read in pieces of one byte: %j', async (body, type, mendedType, expected) => {
    const stream = new ReadableStream({
      start(controller) {
        for (const byte of Buffer.from(body)) controller.enqueue(Uint8Array.of(byte))
        controller.close()
      },
    })
    const response = new Response(stream, { headers: { 'content-type': type } })
    const mended = await mend(response, { id: 1, onError: () => {} })
    expect([mended.headers.get('content-type'), await mended.text()]).toEqual([mendedType, expected])
  })

  it.each<[string, unknown]>([
    ['a text', 'No space left'],
    ['an object without a code', { message: 'No space left' }],
    ['an object with a code that is a word', { code: 'ENOSPC', message: 'No space left' }],
  ])('is read: an error that is %s', async (_, error) => {
    lab.otherwise = ({ message }, response) => {
      if (message?.method !== 'tools/call') return false
      response.writeHead(200, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: message.id, error }))
      return true
    }
    const failed = { content: 'The call failed: No space left', isError: true }
    expect(await lab.using((client) => client.call('act', {}, never))).toEqual(failed)
  })

  it.each<[string, string, string]>([
    [
      'a file of text in base64',
      JSON.stringify({
        content: ['text/csv', 'application/ld+json', 'image/svg+xml'].map((type) => fileOf(type, 'ab')),
      }),
      '[x:/f]\nab\n\n[x:/f]\nab\n\n[x:/f]\nab',
    ],
    [
      'files in base64 that are not text',
      JSON.stringify({ content: [fileOf('text/plain', Buffer.from([0xff])), fileOf('application/zip', 'PK')] }),
      '[x:/f, text/plain, 3 bytes: not shown]\n\n[x:/f, application/zip, 3 bytes: not shown]',
    ],
    [
      'a link with its title and description',
      '{"content":[{"type":"resource_link","name":"n","title":"T","uri":"x:/y","description":"All of it"}]}',
      '[link to T: x:/y: All of it]',
    ],
    [
      'a summary beside structured content',
      '{"content":[{"type":"text","text":"2 items"}],"structuredContent":{"items":[{"id":"a","n":7},{"id":"b","n":8}]}}',
      '2 items\n\n{"items":[{"id":"a","n":7},{"id":"b","n":8}]}',
    ],
    [
      'structured content that the text repeats as JSON',
      '{"content":[{"type":"text","text":"{\\"caf\\\\u00e9\\": \\"\\\\u00e9t\\\\u00e9\\\\n\\"}"}],"structuredContent":{"café":"été"}}',
      '{"caf\\u00e9": "\\u00e9t\\u00e9\\n"}',
    ],
    [
      'structured content that the text repeats in words',
      '{"content":[{"type":"text","text":"Sunny, 20 °C"}],"structuredContent":{"sky":"Sunny","degrees":20,"isDay":true}}',
      'Sunny, 20 °C',
    ],
    ['a text under another name', '{"content":[{"type":"text","value":"x"}]}', '{"type":"text","value":"x"}'],
    [
      'numbers that JSON does not have',
      '{"structuredContent":{"x":NaN,"y":[-Infinity],"z":"NaN"}}',
      '{"x":null,"y":[null],"z":"NaN"}',
    ],
    [
      'structured content with a file in base64',
      JSON.stringify({
        structuredContent: { type: 'image', data: 'A'.repeat(8000), url: `data:a/b;base64,${'A'.repeat(8000)}` },
      }),
      '{"type":"image","data":"[6000 bytes in base64: not shown]","url":"[6000 bytes in base64: not shown]"}',
    ],
    [
      'whole numbers that a parser would round',
      '{"structuredContent":{"id":1234567890123456789,"n":[-9007199254740993,7, 1e20]}}',
      '{"id":"1234567890123456789","n":["-9007199254740993",7,100000000000000000000]}',
    ],
    ['a text with line breaks', '{"content":[{"type":"text","text":"a\nb \\"c\\""}]}', 'a\nb "c"'],
  ])('is read: %s', async (_, result, content) => {
    lab.otherwise = ({ message }, response) => {
      if (message?.method !== 'tools/call') return false
      response.writeHead(200, JSON_TYPE).end(`{"jsonrpc":"2.0","id":${message.id},"result":${result}}`)
      return true
    }
    expect(await lab.using((client) => client.call('act', {}, never))).toEqual({ content, isError: false })
  })

  it.each<[string, object, string]>([
    ['an error under another name', { content: [{ type: 'text', text: 'No space' }], is_error: true }, 'No space'],
    ['an error as a text', { content: [{ type: 'text', text: 'No space' }], isError: 'true' }, 'No space'],
    ['an error without a text', { content: [], isError: true }, 'The tool failed, and did not say why.'],
  ])('is an error of the tool: %s', async (_, result, content) => {
    lab.otherwise = ({ message }, response) => {
      if (message?.method === 'tools/call') reply(response, message, result)
      return message?.method === 'tools/call'
    }
    expect(await lab.using((client) => client.call('act', {}, never))).toEqual({ content, isError: true })
  })

  const DOUBT = '. The tool may have acted: check before you call it again'
  it.each<[string, (response: ServerResponse) => void, string]>([
    ['a status for notifications', (response) => response.writeHead(202).end(), `its answer is empty${DOUBT}`],
    ['no body', (response) => response.writeHead(200, JSON_TYPE).end(), `its answer is empty${DOUBT}`],
    [
      'no event',
      (response) => response.writeHead(200, SSE_TYPE).end(': hi\n\n'),
      `its answer ended without a result${DOUBT}`,
    ],
    [
      'too much for a stream',
      (response) => response.writeHead(200, SSE_TYPE).end(`data: "${'x'.repeat(9 * 1024 * 1024)}"\n\n`),
      `its answer is too large${DOUBT}`,
    ],
    [
      'a false encoding',
      (response) => response.writeHead(200, { ...JSON_TYPE, 'content-encoding': 'gzip' }).end('{}'),
      'its answer is not compressed as its headers state',
    ],
    [
      'an error without an id',
      (response) =>
        response.writeHead(200, JSON_TYPE).end('{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"No"}}'),
      'No',
    ],
    [
      'an error of a web framework',
      (response) => response.writeHead(422, JSON_TYPE).end('{"detail":[{"loc":["city"],"msg":"field required"}]}'),
      '422: [{"loc":["city"],"msg":"field required"}]',
    ],
    [
      'a result with the status of an error',
      (response) => response.writeHead(400, JSON_TYPE).end('{"result":{"content":[{"type":"text","text":"No city"}]}}'),
      'No city',
    ],
    [
      'an error of OAuth',
      (response) => response.writeHead(401, JSON_TYPE).end('{"error":"invalid","error_description":"It has expired"}'),
      '401: It has expired',
    ],
    [
      'a refusal of a firewall',
      (response) => response.writeHead(403, { 'content-type': 'text/html' }).end('<title>Just a moment...</title>'),
      'it answered with the status 403 and a web page: a firewall may have refused it',
    ],
    [
      'a sentence with the status of a success',
      (response) => response.writeHead(200, { 'content-type': 'text/plain' }).end('Rate limit exceeded\n'),
      'Rate limit exceeded',
    ],
    [
      'an error of a gateway with the status of a success',
      (response) => response.writeHead(200, JSON_TYPE).end('{"success":false,"message":"No workflow"}'),
      'No workflow',
    ],
    [
      'an error of a gateway in its own field',
      (response) => response.writeHead(200, JSON_TYPE).end('{"code":401,"msg":"No tenant"}'),
      'No tenant',
    ],
    [
      'an error of a gateway in its own field, with a status',
      (response) => response.writeHead(400, JSON_TYPE).end('{"code":401,"msg":"No tenant"}'),
      '400: No tenant',
    ],
    [
      'an error without words',
      (response) => response.writeHead(200, JSON_TYPE).end('{"jsonrpc":"2.0","id":2,"error":{"code":7,"message":""}}'),
      'it answered with the error 7',
    ],
    [
      'an error of a web framework with its name',
      (response) => response.writeHead(402, JSON_TYPE).end('{"error":"Payment Required","message":"Top up"}'),
      '402: Payment Required: Top up',
    ],
    [
      'a scope that its token lacks',
      (response) =>
        response.writeHead(403, { 'www-authenticate': 'Bearer error="insufficient_scope", scope="write"' }).end(),
      'it answered with the status 403: authorization (Bearer: error=insufficient_scope, scope=write)',
    ],
    [
      'an error event that is no JSON',
      (response) => response.writeHead(200, SSE_TYPE).end('event: error\ndata: Out of memory\n\n'),
      'Out of memory',
    ],
    [
      'a sentence of a web framework',
      (response) => response.writeHead(400, { 'content-type': 'text/plain' }).end('city is required\n'),
      '400: city is required',
    ],
    [
      'a page of Cloudflare for a server that did not answer in time',
      (response) => response.writeHead(524, { 'content-type': 'text/html' }).end('<title>A timeout occurred</title>'),
      `it answered with the status 524: its gateway cannot reach it now, or waits no longer${DOUBT}`,
    ],
    [
      'a page for an input that is too large',
      (response) => response.writeHead(413, { 'content-type': 'text/html' }).end('<title>413</title>'),
      'it answered with the status 413: its gateway does not take a request of this size',
    ],
    ['a time limit', (response) => response.writeHead(408).end(), `it answered with the status 408${DOUBT}`],
    [
      'an error of a gateway',
      (response) => response.writeHead(502, JSON_TYPE).end('{"message":"The upstream is away"}'),
      `502: The upstream is away${DOUBT}`,
    ],
  ])('fails a call at once, with the reason: %s', async (_, answer, reason) => {
    lab.otherwise = (request, response) => {
      if (isCall(request)) answer(response)
      return isCall(request)
    }
    const failed = { content: `The call failed: ${reason}`, isError: true }
    expect(await lab.using((client) => client.call('act', {}, never))).toEqual(failed)
    expect(lab.requests.filter(isCall)).toHaveLength(1)
  })

  it('brings the details of an error to the model', async () => {
    lab.otherwise = ({ message }, response) => {
      if (message?.method !== 'tools/call') return false
      const error = { code: -32602, message: 'Invalid params', data: { q: 'must be a number' } }
      response.writeHead(200, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: message.id, error }))
      return true
    }
    const { content } = await lab.using((client) => client.call('act', {}, never))
    expect(content).toBe('The call failed: Invalid params: {"q":"must be a number"}')
  })

  it('brings the credentials that a tool demands in its result to the model', async () => {
    const challenge = 'Bearer resource_metadata="https://a.test/m", error="invalid_token"'
    lab.otherwise = ({ message }, response) => {
      if (message?.method !== 'tools/call') return false
      const refused = { ...textResult('Log in.'), isError: true, _meta: { 'mcp/www_authenticate': [challenge] } }
      response.writeHead(200, JSON_TYPE).end(envelope(message, refused))
      return true
    }
    const { content } = await lab.using((client) => client.call('act', {}, never))
    expect(content).toMatch(/^Log in\.\n\n\[The server refused the call: it wants authorization .*set `auth: oauth`\]$/)
  })

  it('is read: an answer to initialize with null in each field that it does not use', async () => {
    lab.otherwise = ({ message }, response) => {
      if (message?.method !== 'initialize') return false
      const capabilities = { tools: { listChanged: null }, prompts: null }
      reply(response, message, { ...GREETING, capabilities, serverInfo: { ...GREETING.serverInfo, title: null } })
      return true
    }
    expect(await lab.using((client) => client.call('act', {}, never))).toMatchObject({ isError: false })
  })
})

it('a page for people in a result is named to the model, and an address of one is shown', async () => {
  const page = (uri: string, mimeType: string, text: string) => ({
    type: 'resource',
    resource: { uri, mimeType, text },
  })
  const content = [
    { type: 'text', text: 'Two carts' },
    page('ui://cart/1', 'text/html;profile=mcp-app', '<html>'.repeat(1000)),
    page('ui://cart/2', 'text/uri-list', 'https://shop.example/cart'),
    page('file:///a.html', 'text/html', '<p>Read me</p>'),
  ]
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/call') return false
    reply(response, message, { content })
    return true
  }
  const result = await lab.using((client) => client.call('act', {}, never))
  expect(result.content).toBe(
    [
      'Two carts',
      '[ui://cart/1, a page for people: not shown]',
      '[ui://cart/2]\nhttps://shop.example/cart',
      '[file:///a.html]\n<p>Read me</p>',
    ].join('\n\n'),
  )
})
