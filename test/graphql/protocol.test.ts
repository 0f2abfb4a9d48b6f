import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { auditServer } from 'graphql-http'
import { describe, expect, test, vi } from 'vitest'
import { newToken } from '../../src/lib/token.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { graphql, post } from './support.ts'

const server = await use(startServer())

const QUERY = '{ agents { totalCount } }'

describe('GraphQL over HTTP', () => {
  test('passes the audit of graphql-http', async () => {
    const results = await auditServer({
      url: `${server.url}/graphql`,
      fetchFn: (url: string, { headers, ...init }: RequestInit = {}) =>
        fetch(url, { ...init, headers: { ...(headers as object), Authorization: `Bearer ${server.token}` } }),
    })
    expect(results.filter(({ status }) => status !== 'ok').map(({ name }) => name)).toEqual([])
    expect(results).toHaveLength(61)
  })

  test('takes an empty name of the operation for none', async () => {
    const response = await post(server, { query: QUERY, operationName: '' })
    expect(await response.json()).toHaveProperty('data')
  })

  test.each([
    ['malformed JSON', '{', 400, 'Invalid JSON in request body'],
    ['null', 'null', 400, 'Invalid value for field: body. Expected object'],
    [
      'a batch',
      [{ query: QUERY }],
      400,
      'Invalid value for field: body. Expected object',
      'Send one JSON object, not an array.',
    ],
    [
      'two operations without a name',
      { query: 'query A { __typename } query B { __typename }' },
      400,
      'Could not determine what operation to execute.',
      expect.stringContaining('as `operationName`'),
    ],
    [
      'variables as text',
      { query: QUERY, variables: '{}' },
      400,
      'Expected "variables" param to be empty or an object, but given string.',
      expect.stringContaining('as objects'),
    ],
    ['no query', {}, 400, 'Missing required field: query'],
    ['an empty body', '', 400, 'Missing required field: query'],
    [
      'an unknown parameter',
      { query: QUERY, more: 1 },
      400,
      'Unexpected parameter "more" in the request body.',
      expect.stringContaining('Leave it out'),
      'invalid_value',
    ],
    [
      'a query that is no text',
      { query: 5 },
      400,
      'Expected "query" param to be a string, but given number.',
      'Send the document as a text in `query`.',
      'invalid_value',
    ],
    ['more than 4 MiB', { query: QUERY, variables: { a: 'x'.repeat(4 * 1024 * 1024) } }, 413, 'Request body too large'],
  ])('refuses %s', async (_, body, status, message, detail = expect.any(String), code = expect.any(String)) => {
    const response = await post(server, body)
    const { errors, data } = (await response.json()) as any
    expect({ status: response.status, data, errors }).toEqual({
      status,
      data: undefined,
      errors: [{ message, extensions: expect.objectContaining({ error: true, statusCode: status, detail, code }) }],
    })
  })

  test('refuses another content type', async () => {
    const response = await post(server, JSON.stringify({ query: QUERY }), { headers: { 'Content-Type': 'text/plain' } })
    expect(response.status).toBe(415)
    expect(await response.json()).toMatchObject({ errors: [{ message: 'Unsupported content type' }] })
  })

  test.each(['image/png', 'multipart/mixed'])(
    'gives JSON to clients that accept no available type (%s)',
    async (Accept) => {
      const response = await post(server, { query: QUERY }, { headers: { Accept } })
      expect(response.status).toBe(200)
      expect(response.headers.get('content-type')).toBe('application/json; charset=utf-8')
      expect(response.headers.get('transfer-encoding')).toBeNull()
      expect(await response.json()).toEqual({ data: { agents: { totalCount: 0 } } })
    },
  )

  // HttpLink of Apollo Client 4 and 3 sends these headers, and would wait for the end of the events.
  test.each([
    [
      'multipart/mixed;boundary=graphql;subscriptionSpec=1.0,application/graphql-response+json,application/json;q=0.9',
      400,
    ],
    ['multipart/mixed;boundary=graphql;subscriptionSpec=1.0,application/json', 200],
  ])('refuses a subscription of a client that accepts no server-sent events (%s)', async (Accept, status) => {
    const response = await post(server, { query: 'subscription { taskChanges { id } }' }, { headers: { Accept } })
    expect(response.status).toBe(status)
    expect(Accept).toContain(response.headers.get('content-type')?.split(';')[0])
    expect(await response.json()).toMatchObject({
      errors: [{ message: expect.stringContaining('server-sent events'), extensions: { code: 'invalid_value' } }],
    })
  })

  test('refuses mutations over GET, and other methods altogether', async () => {
    const query = encodeURIComponent('mutation { deleteAgent(id: "x") { message } }')
    const headers = { Authorization: `Bearer ${server.token}` }
    for (const [url, method, detail] of [
      [`${server.url}/graphql?query=${query}`, 'GET', 'Send mutations by POST.'],
      [`${server.url}/graphql`, 'PUT', 'Use GET or POST.'],
      [`${server.url}/graphql`, 'DELETE', 'Use GET or POST.'],
    ] as const) {
      const response = await fetch(url, { method, headers })
      expect(response.status).toBe(405)
      expect(await response.json()).toMatchObject({
        errors: [{ extensions: { error: true, statusCode: 405, code: 'method_not_allowed', detail } }],
      })
    }
  })

  test('refuses variables that are no JSON over GET', async () => {
    const headers = { Authorization: `Bearer ${server.token}` }
    const response = await fetch(`${server.url}/graphql?query={__typename}&variables={no`, { headers })
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({
      errors: [{ message: 'Invalid value for field: variables. Expected JSON' }],
    })
  })

  test.each(['some', 'constructor', '__proto__'])(
    'reports a required value as missing if its variable %s is absent',
    async (name) => {
      const response = await post(server, { query: `query ($${name}: String) { agent(id: $${name}) { id } }` })
      expect(await response.json()).toMatchObject({ errors: [{ message: 'Missing required field: id' }] })
    },
  )

  test('refuses an invalid Host header, without an error in the log', async () => {
    const { hostname, port } = new URL(server.url)
    const socket = connect(Number(port), hostname)
    socket.write(
      `GET /graphql?query={__typename} HTTP/1.1\r\nHost: a b%\r\nConnection: close\r\nAuthorization: Bearer ${server.token}\r\n\r\n`,
    )
    expect(await text(socket)).toMatch(/^HTTP\/1.1 400 .*Invalid Host header/s)
  })

  test('has the request id in every answer, also in errors', async () => {
    const response = await post(server, { query: '{ nope }' }, { headers: { 'X-Request-Id': 'my-request' } })
    expect(response.headers.get('x-request-id')).toBe('my-request')
    expect(await response.json()).toMatchObject({ errors: [{ extensions: { requestId: 'my-request' } }] })
  })
})

describe('authentication', () => {
  const unknown = newToken('mst')

  test.each([
    ['no header', null, 'Authorization header required'],
    ['another prefix', 'sk_abc', 'Invalid token format. Token must start with mst_'],
    ['a bad checksum', 'mst_abc', 'Invalid or expired token'],
    ['an unknown token', unknown, 'Invalid or expired token'],
  ])('authentication with %s fails with 401, whatever the query', async (_, token, message) => {
    for (const body of [
      { query: QUERY },
      { query: '{ __typename }' },
      { query: '{ __schema { types { name } } }' },
      '{',
      {},
    ]) {
      const response = await post(server, body, { token })
      expect(response.status).toBe(401)
      const { errors, data } = (await response.json()) as any
      expect(data).toBeUndefined()
      expect(errors).toEqual([
        {
          message,
          extensions: {
            error: true,
            statusCode: 401,
            statusMessage: 'Unauthorized',
            requestId: expect.any(String),
            code: 'unauthorized',
            detail: expect.any(String),
          },
        },
      ])
    }
  })

  test("fails with 401 for expired and revoked tokens, and with 403 after the membership's end", async () => {
    const expired = await server.member({ expiresAt: new Date(Date.now() - 1000) })
    expect(await graphql(server, QUERY, {}, expired)).toMatchObject({ status: 401, message: 'Token expired' })
    const { db } = server.service.deps
    const revoked = await server.member()
    await db.token.update({ where: { id: revoked.tokenId }, data: { revokedAt: new Date() } })
    expect(await graphql(server, QUERY, {}, revoked)).toMatchObject({
      status: 401,
      message: 'Invalid or expired token',
    })
    const { userId, organizationId, token } = await server.member()
    await db.membership.deleteMany({ where: { organizationId, userId } })
    const message = "You don't have permission to access this resource"
    expect(await graphql(server, QUERY, {}, { token })).toMatchObject({ status: 403, message })
  })

  test('fails in the same way for clients that ask for a stream', async () => {
    const response = await post(server, { query: QUERY }, { token: null, headers: { Accept: 'text/event-stream' } })
    expect(response.status).toBe(401)
    expect(await response.text()).toContain('"message":"Authorization header required"')
  })
})

describe('an unexpected error', () => {
  test('is answered without its text, and logged with its request', async () => {
    const list = vi.spyOn(server.service.deps.models, 'list').mockRejectedValue(new Error('secret of the database'))
    const answer = await graphql(server, '{ models { models { id } } }')
    list.mockRestore()
    const { requestId, ...extensions } = answer.errors![0]!.extensions
    expect(answer.message).toBe('An unexpected error occurred')
    expect(extensions).toEqual({
      error: true,
      statusCode: 500,
      statusMessage: 'Internal Server Error',
      code: 'internal',
      detail: 'The log of the server has the cause: give its operator the requestId.',
    })
    expect(JSON.stringify(answer)).not.toContain('secret of the database')
    const logged = server.logs.filter((line) => line.includes('secret of the database'))
    expect(logged.map((line) => JSON.parse(line))).toMatchObject([{ level: 50, requestId }])
  })
})

describe('GraphiQL', () => {
  const page = (url: string) => fetch(`${url}/graphql`, { headers: { Accept: 'text/html' } })

  test('is open to browsers, and loads nothing from other origins', async () => {
    const response = await page(server.url)
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toContain('text/html')
    const html = await response.text()
    expect(html).toContain('<title>Muster</title>')
    expect(html).not.toMatch(/<(script|link|img)[^>]+(src|href)=["']?(https?:)?\/\//)
  })

  test('runs only its own scripts, asks only its own server, and stores no token', async () => {
    const response = await page(server.url)
    const html = await response.text()
    const policy = response.headers.get('content-security-policy') ?? ''
    const rules = new Map(policy.split('; ').map((rule) => [rule.split(' ')[0], rule.split(' ').slice(1)]))
    const scripts = Array.from(html.matchAll(/<script>([\s\S]*?)<\/script>/g), ([, script = '']) => script)
    expect(rules.get('script-src')).toEqual(
      scripts.map((script) => `'sha256-${createHash('sha256').update(script).digest('base64')}'`),
    )
    expect(rules.get('default-src')).toEqual(["'none'"])
    expect(rules.get('connect-src')).toEqual(["'self'"])
    expect(rules.get('worker-src')).toEqual(['blob:'])
    expect(html).toContain('"shouldPersistHeaders":false')
    expect(html.indexOf("Object.defineProperty(window, 'localStorage'")).toBeLessThan(
      html.indexOf('renderYogaGraphiQL('),
    )
  })

  test('starts with a valid query', async () => {
    const [, options = ''] =
      /querySelector\('#root'\),\s*(\{.*\}),\s*\)/.exec(await (await page(server.url)).text()) ?? []
    const { data, message } = await graphql(server, JSON.parse(options).defaultQuery)
    expect([message, data?.agents.totalCount]).toEqual([undefined, expect.any(Number)])
  })

  test('is absent in production', async () => {
    await using production = await startServer({ NODE_ENV: 'production' })
    const response = await page(production.url)
    expect(response.status).toBe(401)
    expect(await response.text()).not.toContain('<html')
  })
})

test('the server loads GraphQL at the first request to it', () => {
  const script = `
    import { registerHooks } from 'node:module'
    registerHooks({
      resolve(specifier, context, next) {
        const found = next(specifier, context)
        if (/node_modules.(graphql|@pothos|@graphql)|src.graphql/.test(found.url)) console.log(found.url)
        return found
      },
    })
    await import('./src/start.ts')
    console.log('started')`
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' })
  expect(stdout).toBe('started\n')
})

test('schema.graphql equals the generated schema', () => {
  const check = spawnSync(process.execPath, ['.config/schema.ts', '--check'], { encoding: 'utf8' })
  expect(check).toMatchObject({ status: 0, stderr: '' })
})
