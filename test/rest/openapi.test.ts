import { createHash } from 'node:crypto'
import { createConfig, lintFromString } from '@redocly/openapi-core'
import { Validator } from '@seriousme/openapi-schema-validator'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { oas31 } from 'zod-openapi'
import { createDocument } from '../../src/http/openapi.ts'
import { COMPONENTS } from '../../src/http/openapi-parts.ts'
import { findRoute } from '../../src/http/routes.ts'
import { appRouter } from '../../src/router.ts'
import {
  document,
  exampleOf,
  expectDocumented,
  expectEverySchemaToCompile,
  expectExamples,
} from '../support/openapi.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

type Operation = oas31.OperationObject & { method: string; path: string }
type Described = { _def: { meta?: { openapi?: { method: string; path: string }; scopes?: string[]; admits?: string } } }

const procedures = Object.entries(appRouter._def.procedures as unknown as Record<string, Described>).flatMap(
  ([name, { _def }]) =>
    _def.meta?.openapi
      ? [{ name, ..._def.meta.openapi, scopes: _def.meta.scopes ?? [], admits: _def.meta.admits }]
      : [],
)
const operations: Operation[] = Object.entries(document.paths ?? {}).flatMap(([path, item]) =>
  Object.entries(item as Record<string, oas31.OperationObject>).map(([method, operation]) => ({
    ...operation,
    method: method.toUpperCase(),
    path,
  })),
)
const withToken = operations.filter(({ security }) => security?.length)
const find = (method: string, path: string) =>
  operations.find((operation) => operation.method === method && operation.path === path) as Operation
const schemas = document.components?.schemas as Record<string, oas31.SchemaObject>
const bodyOf = (body: Operation['requestBody']) => body as oas31.RequestBodyObject | undefined
const EVENTS = '/api/v1/executions/{id}/events'
const FEED = '/api/v1/events/stream'
const CHAT_EVENTS = '/api/v1/chats/{id}/events'
const CHANGES = ['/api/v1/tasks/events', '/api/v1/approvals/events']
/** Streams of other protocols. */
const DOORS = ['/api/v1/agents/{id}/chat', '/api/v1/agents/{id}/chat/{chatId}/stream', '/api/v1/agents/{id}/ag-ui']
/** Streaming paths, whose path without the last segment answers JSON. */
const STREAMS = [
  '/api/v1/agents/{id}/execute/stream',
  '/api/v1/chats/{id}/messages/stream',
  '/api/v1/execute/stream',
  '/api/v1/executions/{id}/rerun/stream',
  '/api/agent/execute/stream',
]

describe('the document', () => {
  it('has the id of the new resource at the top level of each answer to a creation', () => {
    const creations = operations.filter(({ summary }) => summary?.startsWith('Create '))
    expect(creations.length).toBeGreaterThan(10)
    for (const { path, responses } of creations) {
      const { content } = (responses as Record<string, oas31.ResponseObject>)['200'] ?? {}
      expect([path, content?.['application/json']?.example]).toEqual([
        path,
        expect.objectContaining({ id: expect.any(String) }),
      ])
    }
  })

  it('is valid OpenAPI 3.1, and the validator would report errors', async () => {
    expect(document.openapi).toBe('3.1.0')
    expect(await new Validator().validate({ ...structuredClone(document) })).toMatchObject({ valid: true })
    const broken = { ...structuredClone(document), info: { title: 'no version' } }
    expect(await new Validator().validate(broken)).toMatchObject({ valid: false })
  })

  it('passes a linter: structure, references, ids, paths, descriptions and examples', async () => {
    const wanted = [
      ...['struct', 'no-unresolved-refs', 'no-identical-paths', 'no-ambiguous-paths', 'path-parameters-defined'],
      ...['operation-operationId-unique', 'operation-operationId-url-safe', 'operation-parameters-unique'],
      ...['operation-summary', 'operation-description', 'operation-tag-defined', 'tag-description', 'security-defined'],
      ...['no-invalid-media-type-examples', 'no-invalid-parameter-examples', 'no-enum-type-mismatch'],
      ...['no-schema-type-mismatch', 'no-required-schema-properties-undefined', 'operation-2xx-response'],
    ]
    const config = await createConfig({ rules: Object.fromEntries(wanted.map((rule) => [rule, 'error'])) })
    const lint = async (value: object) => {
      const problems = await lintFromString({ source: JSON.stringify(value), absoluteRef: 'openapi.json', config })
      return problems.map(({ message, location }) => `${message} ${location[0]?.pointer}`)
    }
    expect(await lint(document)).toEqual([])
    expect(await lint({ ...document, tags: [] })).not.toEqual([])
  })

  it('contains valid JSON Schemas, with every reference resolved', expectEverySchemaToCompile)

  it('has every procedure with a REST path, the streams, the health checks, and nothing else', () => {
    const expected = procedures.map(({ method, path }) => `${method} ${path}`)
    expected.push(
      `GET ${EVENTS}`,
      ...STREAMS.map((path) => `POST ${path}`),
      'GET /api/v1/chats/{id}/events',
      ...CHANGES.map((path) => `GET ${path}`),
      `GET ${FEED}`,
      ...DOORS.map((path) => `${path.endsWith('/stream') ? 'GET' : 'POST'} ${path}`),
      'POST /api/v1/media',
      'POST /api/files/upload',
      'GET /api/v1/media/{id}/content',
      'GET /api/v1/audit/export',
      'GET /healthz',
      'GET /readyz',
      'GET /api/health',
      'GET /api/version',
    )
    expect(operations.map(({ method, path }) => `${method} ${path}`).sort()).toEqual(expected.sort())
  })

  it('gives each operation a unique portable id, a summary, and a described tag', () => {
    const ids = operations.map(({ operationId }) => operationId)
    expect(new Set(ids).size).toBe(ids.length)
    const tags = new Map(document.tags?.map(({ name, description }) => [name, description]))
    for (const { operationId, summary, tags: own = [] } of operations) {
      expect(operationId).toMatch(/^[a-z][A-Za-z0-9]*$/)
      expect(summary).toMatch(/\w/)
      expect(own.map((tag) => tags.get(tag))).toEqual([expect.stringMatching(/\w/)])
    }
  })

  it('requires a token with the scopes of the procedure', () => {
    const credentials = [{ token: [] }, { session: [] }]
    for (const { method, path, scopes, admits } of procedures) {
      const security = admits === 'everybody' ? [] : credentials
      const needs = security.length ? 'Needs a token, with any scopes.' : 'Needs no token.'
      const description = expect.stringContaining(scopes.length ? `Needs the scope \`${scopes[0]}\`` : needs)
      expect(find(method, path)).toMatchObject({ description, security, 'x-required-scopes': scopes })
    }
    const both = ['executions:read', 'agents:execute']
    expect(find('GET', EVENTS)).toMatchObject({ security: credentials, 'x-required-scopes': both })
    for (const path of [...STREAMS, DOORS[0]!, DOORS[2]!]) {
      expect(find('POST', path)).toMatchObject({ 'x-required-scopes': ['agents:execute'] })
    }
    expect(document.components?.securitySchemes?.session).toMatchObject({
      type: 'apiKey',
      in: 'cookie',
      name: 'muster',
    })
    expect(document.components?.securitySchemes?.token).toMatchObject({ type: 'http', scheme: 'bearer' })
    expect(JSON.stringify(createDocument({ PUBLIC_URL: undefined, TOKEN_PREFIX: 'td' }))).toContain('td_')
  })

  it('describes every parameter in the path, and no other', () => {
    for (const { path, parameters = [] } of operations) {
      const inPath = (parameters as oas31.ParameterObject[]).filter(({ in: place }) => place === 'path')
      expect(inPath.map(({ name }) => `{${name}}`)).toEqual(path.match(/\{\w+\}/g) ?? [])
      for (const parameter of inPath)
        expect(parameter).toMatchObject({ required: true, description: expect.any(String) })
    }
  })

  it('lists all query parameters of requests with a body', () => {
    const withBody = operations.filter(
      ({ method, path }) =>
        /POST|PUT|PATCH/.test(method) && !['/api/v1/media', '/api/files/upload', ...DOORS].includes(path),
    )
    const examples = withBody.map(({ method, path, parameters = [] }) => {
      const named = (parameters as (oas31.ParameterObject | oas31.ReferenceObject)[]).map((parameter) =>
        '$ref' in parameter ? COMPONENTS.parameters[parameter.$ref.split('/').at(-1) as 'onDisconnect'] : parameter,
      )
      const inQuery = named.flatMap(({ in: place, name }) => (place === 'query' ? name : []))
      expect([path, findRoute(method, path)?.route.inQuery]).toEqual([path, new Set(inQuery)])
      return inQuery
    })
    expect(new Set(examples.flat())).toEqual(new Set(['check', 'content', 'onDisconnect', 'path']))
  })

  it('preserves descriptions of optional query fields', () => {
    expect(find('GET', '/api/v1/agents').parameters).toContainEqual(
      expect.objectContaining({ name: 'limit', description: expect.stringMatching(/\w/) }),
    )
  })

  it('declares every error of an operation, all with one body', () => {
    for (const { method, path, requestBody, responses = {} } of withToken) {
      const expected = ['400', '401', '403', '500', '503', 'default']
      if (path.includes('{')) expected.push('404')
      if (requestBody) expected.push('413', '415')
      if (method === 'POST') expected.push('409', '422')
      if (method === 'PATCH' || method === 'DELETE') expected.push('409', '412', '422')
      expect(Object.keys(responses)).toEqual(expect.arrayContaining(expected))
    }
    for (const { responses = {} } of operations) {
      for (const [status, { $ref }] of Object.entries(responses) as [string, oas31.ReferenceObject][]) {
        if (/^2|^304/.test(status)) continue
        const response = document.components?.responses?.[$ref?.split('/').at(-1) ?? ''] as oas31.ResponseObject
        expect(response.content).toMatchObject({
          'application/json': { schema: { $ref: '#/components/schemas/ErrorResponse' } },
        })
      }
    }
    expect(schemas.ErrorResponse?.required).toEqual(['error', 'statusCode', 'statusMessage', 'message', 'requestId'])
  })

  it('has a valid example for every body and every success answer', expectExamples)

  it('changes exactly one field in the example of each PATCH', () => {
    for (const { method, path } of operations) {
      if (method === 'PATCH') expect([path, Object.keys(exampleOf(method, path) ?? {}).length]).toEqual([path, 1])
    }
  })

  it('describes every parameter, property, named schema and answer', () => {
    const missing: string[] = []
    const visit = (value: unknown, path: string[]) => {
      if (typeof value !== 'object' || value === null || path.at(-1) === 'example') return
      const { properties } = value as oas31.SchemaObject
      if (properties && path.at(-1) !== 'properties')
        for (const [name, property] of Object.entries(properties))
          if (!(property as oas31.SchemaObject).description) missing.push([...path, name].join('.'))
      for (const [key, item] of Object.entries(value)) visit(item, [...path, key])
    }
    visit(document, [])
    for (const [name, { description }] of Object.entries(schemas))
      if (!description && !/Request$|Result$/.test(name)) missing.push(name)
    for (const { method, path, parameters = [], responses = {} } of operations) {
      for (const parameter of parameters as (oas31.ParameterObject | oas31.ReferenceObject)[])
        if (!('$ref' in parameter) && !parameter.description) missing.push(`${method} ${path} ${parameter.name}`)
      for (const [status, response] of Object.entries(responses) as [string, oas31.ResponseObject][])
        if (!('$ref' in response) && !response.description) missing.push(`${method} ${path} ${status}`)
    }
    expect(missing).toEqual([])
  })

  it('gives no schema the name of a global of browsers or Node', () => {
    const globals = new Set([...Object.getOwnPropertyNames(globalThis), 'ErrorEvent', 'Permissions', 'Plugin', 'Text'])
    expect(Object.keys(schemas).filter((name) => globals.has(name))).toEqual([])
  })

  it('has no operation that answers with either JSON or a stream', () => {
    for (const { method, path, responses = {} } of operations) {
      const types = Object.keys(responses[200]?.content ?? {})
      expect([method, path, types.length]).toEqual([method, path, 1])
      const isStream = [EVENTS, CHAT_EVENTS, FEED, ...CHANGES, ...STREAMS, ...DOORS].includes(path)
      expect([path, types[0] === 'text/event-stream']).toEqual([path, isStream])
    }
  })

  it('has the same request for a stream, without the fields that choose it', () => {
    const fieldsOf = (path: string) => {
      const { schema } = bodyOf(find('POST', path).requestBody)?.content['application/json'] ?? {}
      return Object.keys(schemas[(schema as oas31.ReferenceObject).$ref.split('/').at(-1) ?? '']?.properties ?? {})
    }
    for (const path of STREAMS) {
      const all = fieldsOf(path.replace(/\/stream$/, ''))
      expect(fieldsOf(path)).toEqual(all.filter((field) => field !== 'stream' && field !== 'background'))
    }
  })

  it('describes the special errors of an operation', () => {
    const { responses } = find('POST', '/api/v1/agents/{id}/execute')
    expect(responses?.[409]).toMatchObject({ description: expect.stringContaining('session is busy') })
  })

  it('shows requests as a client sends them', () => {
    expect(schemas.AgentsCreateRequest).toMatchObject({
      required: ['name'],
      properties: {
        name: { type: 'string', minLength: 1, maxLength: 200 },
        tags: { anyOf: [{ type: 'array', maxItems: 50, items: { type: 'string' } }, { type: 'null' }] },
        maxTurns: { anyOf: [{ type: 'integer', minimum: 1, maximum: 500 }, { type: 'null' }] },
      },
    })
    expect(schemas.AgentsUpdateRequest).toMatchObject({ properties: { archived: { type: 'boolean' } } })
    expect(find('PATCH', '/api/v1/agents/{id}').requestBody).toMatchObject({ required: false })
    expect(find('POST', '/api/v1/agents').requestBody).toMatchObject({ required: true })
  })

  it('requires a body if there must be one, of whatever type', () => {
    const required = withToken.filter(({ requestBody }) => bodyOf(requestBody)?.required).map(({ path }) => path)
    expect(required).toEqual(expect.arrayContaining(['/api/v1/media', '/api/v1/tasks', '/api/v1/spaces/{id}/secrets']))
    expect(required).not.toContain('/api/v1/chats')
  })

  it('allows more fields in every answer', () => {
    expect(JSON.stringify(document)).not.toContain('"additionalProperties":false')
  })

  it('describes event streams by the data of their events', () => {
    for (const operation of [...STREAMS.map((path) => find('POST', path)), find('GET', EVENTS)]) {
      expect(operation.responses?.[200].content['text/event-stream'].schema).toEqual({
        $ref: '#/components/schemas/ExecutionEvent',
      })
    }
    const names = ['ExecutionMetaEvent', 'ExecutionMessageEvent', 'ExecutionResultEvent', 'ExecutionErrorEvent']
    expect(schemas.ExecutionEvent?.anyOf).toEqual(names.map((name) => ({ $ref: `#/components/schemas/${name}` })))
    expect(find('GET', EVENTS).parameters).toMatchObject([
      { in: 'path', name: 'id' },
      { in: 'query', name: 'after', schema: { type: 'integer' } },
      { in: 'query', name: 'content', schema: { enum: ['all', 'rest'] } },
      { in: 'header', name: 'Last-Event-ID', schema: { type: 'integer' } },
    ])
  })

  it('names the server by PUBLIC_URL', () => {
    expect(document.servers).toEqual([{ url: '/' }])
    const named = createDocument({ PUBLIC_URL: 'https://muster.example/', TOKEN_PREFIX: 'mst' })
    expect(named.servers).toEqual([{ url: 'https://muster.example' }])
  })
})

describe('the document over HTTP', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await startServer()
  })
  afterAll(() => server[Symbol.asyncDispose]())

  it('is served at /api/openapi.json without a token', async () => {
    const response = await fetch(`${server.url}/api/openapi.json`)
    expect(response.headers.get('content-type')).toContain('application/json')
    expect(await response.json()).toEqual(document)
  })

  it('is true for the health checks, for errors, and for a run with its stream', async () => {
    const call = async (method: string, path: string, body?: object) => {
      const answer = await fetch(server.url + path, {
        method,
        headers: { Authorization: `Bearer ${server.token}`, 'Content-Type': 'application/json' },
        ...(body && { body: JSON.stringify(body) }),
      })
      const text = await answer.text()
      const isStream = answer.headers.get('content-type')?.startsWith('text/event-stream')
      expectDocumented(method, path, answer.status, answer.headers, isStream ? text : JSON.parse(text))
      return text
    }
    for (const path of ['/healthz', '/readyz', '/api/health', '/api/v1/nothing', '/api/v1/models']) {
      await call('GET', path)
    }
    const agent = JSON.parse(await call('POST', '/api/v1/agents', { name: 'Ada', systemPrompt: 'Be helpful.' }))
    await call('POST', '/api/v1/agents', {})
    const stream = await call('POST', `/api/v1/agents/${agent.id}/execute/stream`, { message: 'Hello' })
    const [, executionId] = /"executionId":"([\w-]+)"/.exec(stream) ?? []
    expect(await call('GET', `/api/v1/executions/${executionId}/events`)).toContain('event: result')
    await call('GET', `/api/v1/executions/${executionId}`)
    await call('POST', `/api/v1/executions/${executionId}/cancel`)
  })

  it('has examples of creating and running that can be sent unchanged', async () => {
    const { body: agent } = await request(server, 'POST', '/api/v1/agents', {
      body: exampleOf('POST', '/api/v1/agents'),
    })
    const names = ['agents/{id}/execute', 'chats', 'keys', 'mcps', 'missions', 'skills', 'spaces', 'tasks']
    for (const path of names.map((name) => `/api/v1/${name}`)) {
      const example = exampleOf('POST', path)
      const body = { ...example, ...(example && 'agentId' in example && { agentId: agent.id }) }
      expect([path, example]).toEqual([path, expect.any(Object)])
      const { status } = await request(server, 'POST', path.replace('{id}', agent.id), { body })
      expect([path, status]).toEqual([path, 200])
    }
  })

  it('has a reference page that cannot load anything from other origins', async () => {
    const page = await fetch(`${server.url}/api/docs`)
    expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8')
    const html = await page.text()
    const inline = [...html.matchAll(/<(?:script|style)(?: type="module")?>([^<]*)<\//g)].map(
      ([, text = '']) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`,
    )
    expect(inline).toHaveLength(2)
    const policy = page.headers.get('content-security-policy')?.split('; ') ?? []
    expect(policy).toContain("default-src 'none'")
    const sources = policy.flatMap((directive) => directive.split(' ').slice(1))
    expect(new Set(sources)).toEqual(new Set(["'none'", "'self'", 'data:', ...inline]))

    const links = [...html.matchAll(/(?:src|href)="([^"]*)"/g)].flatMap(([, link = '']) =>
      link === 'data:,' ? [] : link,
    )
    expect(links).toHaveLength(2)
    for (const link of links) {
      const url = new URL(link, page.url)
      expect(url.origin).toBe(server.url)
      const asset = await fetch(url)
      expect(asset.status).toBe(200)
      if (!link.includes('.css')) continue
      const css = await asset.text()
      expect(css).not.toContain('@import')
      expect(css.match(/url\((?!["']?data:)/g)).toBeNull()
    }
  })

  it('comes with no other file beside the page', async () => {
    for (const name of ['package.json', '..%2fpackage.json', 'constructor', 'swagger-ui.js']) {
      expect((await fetch(`${server.url}/api/docs/${name}`)).status).toBe(404)
    }
  })
})

describe('expectDocumented', () => {
  const headers = (type: string, more: Record<string, string> = { 'X-Request-Id': 'r' }) =>
    new Headers({ 'Content-Type': type, ...more })
  const json = headers('application/json; charset=utf-8')
  const stream = headers('text/event-stream; charset=utf-8')
  const list = { success: true, agents: [], total: 0, nextCursor: null }
  const error = { error: true, statusCode: 404, statusMessage: 'Not Found', message: 'Not found', requestId: 'r' }
  const meta = 'id: 1\nevent: meta\ndata: {"type":"meta","executionId":"e","chatId":"c","sessionId":"s"}\n\n'

  it('accepts documented answers', () => {
    expectDocumented('GET', '/api/v1/agents?limit=1', 200, json, { ...list, more: 1 })
    expectDocumented('GET', '/api/v1/agents/x', 404, json, error)
    expectDocumented('GET', '/api/v1/nothing', 404, json, error)
    expectDocumented('GET', '/api/v1/executions/x/events', 200, stream, `${meta}: ping\n\nid: 2\nevent: mess`)
    expectDocumented('POST', '/api/v1/agents/x/execute/stream', 200, stream, meta)
  })

  it.each([
    ['a status', '/api/v1/agents', 201, json, list, 'the status is not among its responses'],
    ['an error status', '/api/v1/agents', 409, json, error, 'the status is not among its responses'],
    ['a content type', '/api/v1/agents', 200, headers('text/html'), list, 'text/html is not among'],
    ['a missing field', '/api/v1/agents', 200, json, { ...list, total: undefined }, "required property 'total'"],
    ['a wrong type', '/api/v1/agents', 200, json, { ...list, total: '0' }, 'body/total must be integer'],
    ['a wrong row', '/api/v1/agents', 200, json, { ...list, agents: [{}] }, "required property 'systemPrompt'"],
    ['an error without request id', '/api/v1/agents/x', 404, json, { ...error, requestId: undefined }, 'requestId'],
    ['a missing header', '/api/v1/agents', 200, headers('application/json', {}), list, 'X-Request-Id is missing'],
    ['an operation', '/api/v1/nothing', 200, json, list, 'not in the document'],
    ['an event', '/api/v1/executions/x/events', 200, stream, meta.replaceAll('meta', 'other'), 'must match a schema'],
    ['a name', '/api/v1/executions/x/events', 200, stream, meta.replace('meta', 'other'), 'says that it is meta'],
    ['event data', '/api/v1/executions/x/events', 200, stream, meta.replace('chatId', 'chat'), "property 'chatId'"],
  ])('refuses %s that the document does not have', (_, path, status, given, body, message) => {
    expect(() => expectDocumented('GET', path, status, given, JSON.parse(JSON.stringify(body)))).toThrow(message)
  })
})
