import fc, { type Arbitrary } from 'fast-check'
import { expect, test } from 'vitest'
import type { oas31 } from 'zod-openapi'
import { DOOR_ROUTES } from '../../src/http/door-routes.ts'
import { everything, type Kind, kindsOf, neverWas } from '../security/fixtures.ts'
import { procedures } from '../support/api.ts'
import { arbitraryOf } from '../support/arbitrary.ts'
import { signedIn } from '../support/browser-session.ts'
import { takesId } from '../support/inputs.ts'
import { document, expectDocumented } from '../support/openapi.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

/**
 * Valid and invalid requests generated from the OpenAPI document. The server must answer each as documented, and
 * survive. `FUZZ_RUNS` is the number of requests per operation; `FUZZ_SEED` repeats a failing run.
 */

const RUNS = Number(process.env.FUZZ_RUNS ?? 10)
const SEED = Number(process.env.FUZZ_SEED ?? (process.env.FUZZ_RUNS ? Date.now() : 1))

const server = await use(startServer())
const member = await server.member({ role: 'owner' })
const own = await everything(server, member, 'fuzz')
/** The headers of the same person's browser. */
const browser = (await signedIn(server, member.userId)).headers

type Operation = {
  method: string
  path: string
  /** The procedure, if the operation has one. */
  name: string
  parameters: oas31.ParameterObject[]
  body: oas31.SchemaObject | undefined
}

const OPERATIONS: Operation[] = Object.entries(document.paths ?? {})
  // Streams of changes and of the feed have no end; rest/changes.test.ts and webhooks/events.test.ts test them.
  .filter(([path]) => !/^\/api\/v1\/(\w+\/events|events\/stream)$/.test(path))
  .flatMap(([path, item]) =>
    Object.entries(item as Record<string, oas31.OperationObject>).map(([method, { parameters = [], requestBody }]) => {
      const content = (requestBody as oas31.RequestBodyObject | undefined)?.content
      return {
        method: method.toUpperCase(),
        path,
        name: nameOf(method.toUpperCase(), path),
        parameters: parameters.map(located),
        body: content?.['application/json']?.schema as oas31.SchemaObject | undefined,
      }
    }),
  )
  // These rows must exist until the end.
  .sort((a, b) => Number(a.method === 'DELETE') - Number(b.method === 'DELETE'))

function nameOf(method: string, path: string): string {
  const known = Object.entries(procedures).find(([, { _def }]) => {
    const { openapi } = _def.meta
    return openapi?.method === method && openapi.path === path
  })
  if (known) return known[0]
  if (DOOR_ROUTES.some((route) => route.path === path)) return 'agents.execute'
  return path.includes('/executions/') ? 'executions.events' : 'media.get'
}

function located(parameter: oas31.ParameterObject | oas31.ReferenceObject): oas31.ParameterObject {
  if (!('$ref' in parameter)) return parameter
  return document.components?.parameters?.[parameter.$ref.split('/').at(-1) ?? ''] as oas31.ParameterObject
}

/** Returns whether clients of another protocol make the ids of a field, because it is no parameter of the path. */
const isOfClient = (path: string, field: string): boolean =>
  DOOR_ROUTES.some((route) => route.path === path) && !path.includes(`{${field}}`)

/** Mostly an existing id; few operations may delete. */
function ids({ name, method, path }: Operation, field: string): Arbitrary<string> | undefined {
  if (!takesId(field) || isOfClient(path, field)) return undefined
  const [kind] = kindsOf(name, field === 'executionId' && path.includes('{id}') ? 'id' : field) as [Kind]
  const there = { arbitrary: fc.constant(0).map(() => own[kind]), weight: method === 'DELETE' ? 1 : 20 }
  return fc.oneof(
    there,
    fc.constant(neverWas(kind)),
    fc.stringMatching(/^[\w.~-]{1,30}$/).filter((id) => !/^\.+$/.test(id)),
  )
}

/** Mostly existing values that a schema does not list. */
const HINTS: Record<string, string[]> = {
  cursor: [Buffer.from('4102444800000.a').toString('base64url')],
  path: ['an-example'],
  url: ['https://mcp.example.com/'],
  name: ['AN_EXAMPLE', 'an-example'],
  keys: ['AN_EXAMPLE'],
}

function hinted(field: string, arbitrary: Arbitrary<unknown>): Arbitrary<unknown> {
  const known = HINTS[field]
  return known ? fc.oneof({ arbitrary: fc.constantFrom(...known), weight: 3 }, arbitrary) : arbitrary
}

type Request = {
  path: string
  query: [string, string][]
  headers: Record<string, string>
  body: unknown
  raw?: string | Blob
  /** Whether a browser sends it, with its cookie. */
  isBrowsers: boolean
}

/** Values that the document allows. */
function requests(operation: Operation): Arbitrary<Request> {
  const { parameters, body } = operation
  const special = (field: string, schema: oas31.SchemaObject) => {
    // Many other requests need the agent.
    if (field === 'archived') return fc.constant(false)
    const one = ids(operation, field) ?? (HINTS[field] && hinted(field, arbitraryOf(schema)))
    return one && /s$/.test(field) ? fc.uniqueArray(one, { minLength: 1, maxLength: 2 }) : one
  }
  const of = (place: string) =>
    fc.record(
      Object.fromEntries(
        parameters
          .filter((parameter) => parameter.in === place)
          .map(({ name, schema }) => [
            name,
            (ids(operation, name) ?? hinted(name, arbitraryOf(schema as oas31.SchemaObject))).map(String),
          ]),
      ),
      { requiredKeys: parameters.flatMap((one) => (one.in === place && one.required ? one.name : [])) as never[] },
    )
  return fc
    .record({
      inPath: of('path'),
      query: of('query'),
      headers: of('header'),
      body: body ? arbitraryOf(body, special) : fc.constant(undefined),
      // Signing out would end the session.
      isBrowsers: operation.path.startsWith('/api/auth/') ? fc.constant(false) : fc.boolean(),
    })
    .map(({ inPath, query, headers, body, isBrowsers }) => ({
      path: operation.path.replace(/{(\w+)}/g, (_, name: string) =>
        encodeURIComponent((inPath as Record<string, string>)[name]!),
      ),
      query: Object.entries(query as Record<string, string>),
      headers: headers as Record<string, string>,
      body,
      isBrowsers,
    }))
}

const deep = (levels: number): unknown => (levels ? { a: deep(levels - 1) } : [])

/** Values that no field accepts. */
const NASTY: unknown[] = [
  ...[null, true, 0, -1, 1.5, 1e308, 2 ** 53, '', ' ', 'null', '0', [], {}, [[]], [null], ['a', 'a'], { length: 1 }],
  ...[
    '\0',
    'a\0b',
    '\ud800',
    '\udc00x',
    '\u202e\u200b\ufeff',
    '💥'.repeat(50),
    'ﷺ',
    '\'; DROP TABLE "Agent"; --',
    '%',
    '_',
    '\\',
  ],
  ...[
    '../../etc/passwd',
    '$' + '{7*7}',
    '{{7*7}}',
    '<script>',
    '\r\nX: y',
    '2024-02-30',
    '1e3',
    'NaN',
    '__proto__',
    'x'.repeat(300_000),
  ],
  ...[deep(63), deep(70), deep(200), Array.from({ length: 2_000 }, (_, index) => `id-${index}`)],
  JSON.parse('{"__proto__": {"isAdmin": true}, "constructor": {"prototype": {}}}'),
]

const RAW = [
  '',
  '{',
  'null',
  '[]',
  '"text"',
  '1',
  '{"a":1,}',
  "{'a':1}",
  '{"name":"a","name":"b"}',
  '\ufeff{}',
  '{}{}',
  'a=b&c=d',
  `{"a":"${'x'.repeat(1_100_000)}"}`,
  `${'['.repeat(100_000)}${']'.repeat(100_000)}`,
  `${'{"a":'.repeat(50_000)}1${'}'.repeat(50_000)}`,
]
const TYPES = [
  'text/plain',
  'application/xml',
  'multipart/form-data',
  'multipart/form-data; boundary=x',
  'application/x-www-form-urlencoded',
  'application/json; charset=utf-16',
  'application/jsonx',
  'APPLICATION/JSON',
  ';',
  'x',
]
const PLACES = [
  '%',
  '%zz',
  '%00',
  '%2e%2e',
  '%E0%A4%A',
  '%F0%9F%92%A5',
  'a'.repeat(3_000),
  ';',
  '*',
  'none%2Fnone',
  "'",
]

type Mutation = {
  how: 'body' | 'drop' | 'extra' | 'whole' | 'raw' | 'type' | 'query' | 'place' | 'key'
  at: number
  what: number
}

const mutations = fc.record<Mutation>({
  how: fc.constantFrom(
    'body',
    'body',
    'body',
    'drop',
    'extra',
    'whole',
    'raw',
    'type',
    'query',
    'query',
    'place',
    'key',
  ),
  at: fc.nat(100),
  what: fc.nat(1_000),
})

const pick = <T>(from: readonly T[], index: number): T => from[index % from.length]!

/** Invalidates one part of the request, if it has one. */
function mutate({ parameters, body: schema }: Operation, given: Request, { how, at, what }: Mutation): Request {
  const body = typeof given.body === 'object' && given.body !== null ? { ...given.body } : {}
  const fields = Object.keys({ ...(schema && body) })
  const nasty = pick(NASTY, what)
  const text = typeof nasty === 'string' ? nasty.slice(0, 2_000) : JSON.stringify(nasty).slice(0, 2_000)
  switch (how) {
    case 'body':
      return fields.length ? { ...given, body: { ...body, [pick(fields, at)]: nasty } } : given
    case 'drop':
      return fields.length
        ? { ...given, body: Object.fromEntries(Object.entries(body).filter(([name]) => name !== pick(fields, at))) }
        : given
    case 'extra':
      return {
        ...given,
        body: { ...body, [pick(['id', 'organizationId', 'userId', 'status', 'x', 'then', 'toString'], at)]: nasty },
      }
    case 'whole':
      return { ...given, body: nasty }
    case 'raw':
      return { ...given, raw: pick(RAW, what) }
    case 'type':
      return { ...given, headers: { ...given.headers, 'Content-Type': pick(TYPES, what) } }
    case 'query': {
      const names = [
        ...parameters.filter((one) => one.in === 'query').map(({ name }) => name),
        'limit',
        'x[]',
        '__proto__',
      ]
      return { ...given, query: [...given.query, [pick(names, at), text.toWellFormed()]] }
    }
    case 'place': {
      const parts = given.path.split('/')
      const places = parts.flatMap((part, index) =>
        parts.length > 3 && index > 2 && !/^(v1|agents|tasks)$/.test(part) ? index : [],
      )
      if (places.length) parts[pick(places, at)] = pick(PLACES, what)
      return { ...given, path: parts.join('/') }
    }
    case 'key':
      return {
        ...given,
        headers: { ...given.headers, 'Idempotency-Key': pick(['', 'a', 'ä', 'x'.repeat(300), ' ', '\t'], what) },
      }
  }
}

/** Failures outside of this server: no server at the address of an MCP server, or an unknown model. */
const OTHERS = ['MCP server unreachable', 'Chat execution failed']

/** Operations that succeeded at least once, so that the test covers more than errors. */
const succeeded = new Set<string>()

async function send(
  { method, path: template }: Operation,
  { path, query, headers, body, raw, isBrowsers }: Request,
): Promise<void> {
  const search = new URLSearchParams(query).toString()
  const address = `${path}${search && `?${search}`}`
  const text = raw ?? (body === undefined ? undefined : JSON.stringify(body))
  const sends = method !== 'GET' && text !== undefined
  const given = new Headers({
    ...(isBrowsers ? browser : { Authorization: `Bearer ${member.token}` }),
    ...(sends && { 'Content-Type': 'application/json' }),
  })
  for (const [name, value] of Object.entries(headers)) if (isHeader(value)) given.set(name, value)
  const response = await fetch(server.url + address, { method, headers: given, ...(sends && { body: text }) })
  const answer = await response.text()
  const isJson = response.headers.get('content-type')?.startsWith('application/json')
  const parsed = isJson ? JSON.parse(answer) : answer
  if (response.status >= 500 && !OTHERS.includes(parsed.message)) throw new Error(`${response.status} ${answer}`)
  expectDocumented(method, address, response.status, response.headers, parsed)
  if (response.status === 200) succeeded.add(`${method} ${template}`)
}

/** Returns whether the request can be sent as a form. */
const isHeader = (value: string) => /^[\t\x20-\x7e\x80-\xff]*$/.test(value)

/** In ms, because some operations try to reach a missing server each time. */
const PATIENCE = 30_000 + RUNS * 500

test.each(OPERATIONS)(
  '$method $path answers as documented, whatever is asked',
  async (operation) => {
    const good = requests(operation)
    const broken = fc.tuple(good, mutations).map(([asked, mutation]) => mutate(operation, asked, mutation))
    const property = fc.asyncProperty(fc.oneof(good, broken), (asked) => send(operation, asked))
    await fc.assert(property, { numRuns: RUNS, seed: SEED, endOnFailure: true })
  },
  PATIENCE,
)

test('the fuzzed server still answers', async () => {
  expect((await request(server, 'GET', '/readyz')).status).toBe(200)
  // Fuzzed requests may have changed the role of the person who sent them.
  const { token } = await server.member()
  const created = await request(server, 'POST', '/api/v1/tasks', { token, body: { title: 'Still here' } })
  const { body } = await request(server, 'GET', `/api/v1/tasks/${created.body.id}`, { token })
  expect(body.task.title).toBe('Still here')
})

test('most fuzzed operations have succeeded at least once', () => {
  // Routes of sign-in need a browser's session or a code.
  const open = OPERATIONS.filter(({ path }) => !path.startsWith('/api/auth'))
  expect(succeeded.size).toBeGreaterThan(open.length * 0.6)
})
