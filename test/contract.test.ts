import { isObjectType } from 'graphql'
import { describe, expect, test } from 'vitest'
import { extensionsOf } from '../src/graphql/builder.ts'
import { schema } from '../src/graphql/schema.ts'
import { everything, inputWith, type Kind, kindsOf, neverWas } from './security/fixtures.ts'
import { apis, procedures } from './support/api.ts'
import { callRoot, inputsOf, rootsOf } from './support/graphql-api.ts'
import { shapeOf, takesId } from './support/inputs.ts'
import { document } from './support/openapi.ts'
import { request } from './support/rest.ts'
import { startServer } from './support/server.ts'
import { use } from './support/use.ts'

/** All APIs have the same procedures with the same behavior. */

const server = await use(startServer())
const member = await server.member({ role: 'owner' })
const own = await everything(server, member, 'contract')

/**
 * Operations that some APIs lack, with the reason: bytes, forms, streams and cookies, which GraphQL cannot carry, and
 * section F.
 */
const EXCEPTIONS: Record<
  string,
  { only: string[]; why: 'binary' | 'lines' | 'multipart' | 'SSE' | 'section F' | 'cookie' }
> = {
  'POST /api/v1/media': { only: ['REST'], why: 'multipart' },
  'GET /api/v1/audit/export': { only: ['REST'], why: 'lines' },
  'GET /api/v1/media/{id}/content': { only: ['REST'], why: 'binary' },
  'POST /api/spaces/{spaceId}/init': { only: ['REST', 'tRPC'], why: 'section F' },
  'POST /api/spaces/{spaceId}/environment': { only: ['REST', 'tRPC'], why: 'section F' },
  'POST /api/agent/execute': { only: ['REST', 'tRPC'], why: 'section F' },
  // For the client of the hosted original. GraphQL has the same under other names.
  'GET /api/public/agents': { only: ['REST', 'tRPC'], why: 'section F' },
  'POST /api/tokens/create': { only: ['REST', 'tRPC'], why: 'section F' },
  'GET /api/tokens/list': { only: ['REST', 'tRPC'], why: 'section F' },
  'POST /api/tokens/{tokenId}/revoke': { only: ['REST', 'tRPC'], why: 'section F' },
  'GET /api/files/browse': { only: ['REST', 'tRPC'], why: 'section F' },
  'GET /api/spaces/{spaceId}/files/browse': { only: ['REST', 'tRPC'], why: 'section F' },
  'GET /api/files/read': { only: ['REST', 'tRPC'], why: 'section F' },
  'POST /api/files/write': { only: ['REST', 'tRPC'], why: 'section F' },
  'POST /api/files/delete': { only: ['REST', 'tRPC'], why: 'section F' },
  'POST /api/files/upload': { only: ['REST'], why: 'multipart' },
  // They set a cookie or lead to one. Before that there is no caller for GraphQL to authenticate.
  'POST /api/auth/accept': { only: ['REST', 'tRPC'], why: 'cookie' },
  'POST /api/auth/invitation': { only: ['REST', 'tRPC'], why: 'cookie' },
  'POST /api/auth/login': { only: ['REST', 'tRPC'], why: 'cookie' },
  'POST /api/auth/logout': { only: ['REST', 'tRPC'], why: 'cookie' },
  'POST /api/auth/link': { only: ['REST', 'tRPC'], why: 'cookie' },
  'POST /api/auth/forgot': { only: ['REST', 'tRPC'], why: 'cookie' },
  // GraphQL has the subscription taskChanges, with selectable fields.
  'GET /api/v1/tasks/events': { only: ['REST', 'tRPC'], why: 'SSE' },
  // Protocols of other clients.
  'POST /api/v1/agents/{id}/chat': { only: ['REST'], why: 'SSE' },
  'GET /api/v1/agents/{id}/chat/{chatId}/stream': { only: ['REST'], why: 'SSE' },
  'POST /api/v1/agents/{id}/ag-ui': { only: ['REST'], why: 'SSE' },
}

/** The paths in the description of the service and in its contract. */
const PATHS = `
GET /api/v1/agents
POST /api/v1/agents
GET /api/v1/agents/{id}
PATCH /api/v1/agents/{id}
DELETE /api/v1/agents/{id}
POST /api/v1/agents/{id}/execute
POST /api/v1/agents/{id}/execute/stream
POST /api/v1/agents/{id}/chat
GET /api/v1/agents/{id}/chat/{chatId}/stream
POST /api/v1/agents/{id}/ag-ui
POST /api/v1/execute
POST /api/v1/execute/stream
POST /api/v1/agents/{id}/skills/{skillId}/update
GET /api/v1/agents/{id}/versions
GET /api/v1/public/agents
GET /api/v1/public/agents/{id}
GET /api/v1/models
GET /api/v1/audit
GET /api/v1/audit/export
GET /api/v1/organizations
POST /api/v1/organizations
GET /api/v1/organizations/{id}
PATCH /api/v1/organizations/{id}
GET /api/v1/organizations/{id}/members
GET /api/v1/limits
GET /api/v1/organizations/{id}/invitations
POST /api/v1/organizations/{id}/invitations
DELETE /api/v1/organizations/{id}/invitations/{invitationId}
GET /api/v1/organizations/{id}/service-accounts
POST /api/v1/organizations/{id}/service-accounts
PATCH /api/v1/organizations/{id}/service-accounts/{userId}
DELETE /api/v1/organizations/{id}/service-accounts/{userId}
GET /api/v1/organizations/{id}/service-accounts/{userId}/keys
POST /api/v1/organizations/{id}/service-accounts/{userId}/keys
DELETE /api/v1/organizations/{id}/service-accounts/{userId}/keys/{keyId}
PATCH /api/v1/organizations/{id}/members/{userId}
DELETE /api/v1/organizations/{id}/members/{userId}
GET /api/v1/events
GET /api/v1/events/stream
GET /api/v1/webhooks
POST /api/v1/webhooks
GET /api/v1/webhooks/{id}
PATCH /api/v1/webhooks/{id}
DELETE /api/v1/webhooks/{id}
POST /api/v1/webhooks/{id}/rotate
POST /api/v1/webhooks/{id}/test
GET /api/v1/webhooks/{id}/deliveries
POST /api/v1/webhooks/{id}/deliveries/{deliveryId}/replay
POST /api/v1/webhooks/{id}/replay
GET /api/v1/tasks
POST /api/v1/tasks
GET /api/v1/tasks/{id}
PATCH /api/v1/tasks/{id}
DELETE /api/v1/tasks/{id}
POST /api/v1/tasks/{id}/claim
POST /api/v1/tasks/{id}/execute
GET /api/v1/executions
GET /api/v1/executions/{id}
GET /api/v1/executions/{id}/tree
GET /api/v1/executions/{id}/logs
GET /api/v1/executions/{id}/events
POST /api/v1/executions/{id}/cancel
POST /api/v1/executions/{id}/rerun
POST /api/v1/executions/{id}/rerun/stream
POST /api/v1/chats/{id}/messages
POST /api/v1/chats/{id}/messages/stream
GET /api/v1/spaces
POST /api/v1/spaces
GET /api/v1/spaces/{id}
PATCH /api/v1/spaces/{id}
DELETE /api/v1/spaces/{id}
GET /api/v1/spaces/{id}/secrets
POST /api/v1/spaces/{id}/secrets
DELETE /api/v1/spaces/{id}/secrets
DELETE /api/v1/spaces/{id}/secrets/{name}
POST /api/v1/spaces/{id}/skills/{skillId}/update
GET /api/v1/organizations/{id}/policy
PATCH /api/v1/organizations/{id}/policy
GET /api/v1/organizations/{id}/former-members
GET /api/v1/organizations/{id}/former-members/{userId}
POST /api/v1/organizations/{id}/former-members/{userId}/take-over
GET /api/v1/organizations/{orgId}/providers
PUT /api/v1/organizations/{orgId}/providers/{name}
DELETE /api/v1/organizations/{orgId}/providers/{name}
GET /api/v1/organizations/{orgId}/env
POST /api/v1/organizations/{orgId}/env
DELETE /api/v1/organizations/{orgId}/env
DELETE /api/v1/organizations/{orgId}/env/{name}
GET /api/v1/spaces/{id}/files
GET /api/v1/spaces/{id}/files/content
PUT /api/v1/spaces/{id}/files/content
DELETE /api/v1/spaces/{id}/files/content
GET /api/v1/chats
POST /api/v1/chats
GET /api/v1/chats/{id}
PATCH /api/v1/chats/{id}
DELETE /api/v1/chats/{id}
GET /api/v1/chats/{id}/messages
GET /api/v1/chats/{id}/events
GET /api/v1/tasks/events
GET /api/v1/approvals/events
GET /api/v1/missions
POST /api/v1/missions
POST /api/v1/missions/preview
GET /api/v1/missions/{id}
PATCH /api/v1/missions/{id}
DELETE /api/v1/missions/{id}
POST /api/v1/missions/{id}/run
POST /api/v1/missions/{id}/pause
POST /api/v1/missions/{id}/resume
GET /api/v1/missions/{id}/runs
GET /api/v1/missions/{id}/next
GET /api/v1/skills
POST /api/v1/skills
GET /api/v1/skills/{id}
PATCH /api/v1/skills/{id}
DELETE /api/v1/skills/{id}
GET /api/v1/mcps
POST /api/v1/mcps
GET /api/v1/mcps/catalogue
GET /api/v1/mcps/{id}
PATCH /api/v1/mcps/{id}
DELETE /api/v1/mcps/{id}
GET /api/v1/mcps/{id}/tools
POST /api/v1/mcps/{id}/connect
DELETE /api/v1/mcps/{id}/connection
GET /api/v1/approvals
POST /api/v1/approvals/{id}/approve
POST /api/v1/approvals/{id}/deny
GET /api/v1/keys
POST /api/v1/keys
DELETE /api/v1/keys/{id}
GET /api/v1/media
POST /api/v1/media
GET /api/v1/media/{id}
GET /api/v1/media/{id}/content
DELETE /api/v1/media/{id}
GET /api/v1/profile
PATCH /api/v1/profile
GET /api/auth/session
GET /api/auth/sessions
DELETE /api/auth/sessions/{id}
POST /api/auth/accept
POST /api/auth/invitation
POST /api/auth/login
POST /api/auth/logout
POST /api/auth/link
POST /api/auth/forgot
POST /api/auth/password
POST /api/spaces/{spaceId}/init
POST /api/spaces/{spaceId}/environment
POST /api/agent/execute
POST /api/agent/execute/stream
GET /api/public/agents
POST /api/tokens/create
GET /api/tokens/list
POST /api/tokens/{tokenId}/revoke
GET /api/files/browse
GET /api/spaces/{spaceId}/files/browse
GET /api/files/read
POST /api/files/write
POST /api/files/delete
POST /api/files/upload
GET /api/usage/organization/{orgId}
GET /healthz
GET /readyz
GET /api/version
GET /api/health
`
  .trim()
  .split('\n')

const NAMES = Object.keys(procedures)

/** REST routes of the procedures. Streams have their own paths. */
const pathOf = (name: string): string => {
  const { method, path } = procedures[name]?._def.meta.openapi ?? {
    method: 'GET',
    path:
      name === 'events.follow'
        ? '/api/v1/events/stream'
        : `/api/v1/${name.endsWith('.changes') ? name.replace('.changes', '/events') : name.replace('.', '/{id}/')}`,
  }
  return `${method} ${path}`
}

const OPERATIONS = Object.entries(document.paths ?? {}).flatMap(([path, item]) =>
  Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`),
)

/** Procedures of all fields of GraphQL, at the root and on rows. */
const inGraphql = new Set<unknown>(
  Object.values(schema.getTypeMap()).flatMap((type) =>
    isObjectType(type) ? Object.values(type.getFields()).map((field) => extensionsOf(field).procedure) : [],
  ),
)

describe('every procedure', () => {
  test('has its own path, which the OpenAPI document contains', () => {
    const paths = NAMES.map(pathOf)
    expect(new Set(paths).size).toBe(NAMES.length)
    expect(paths.filter((path) => !OPERATIONS.includes(path))).toEqual([])
  })

  test('is in GraphQL, unless it is an exception', () => {
    const missing = NAMES.filter((name) => !inGraphql.has(procedures[name]))
    expect(missing.map(pathOf).sort()).toEqual(
      Object.keys(EXCEPTIONS)
        .filter((path) => EXCEPTIONS[path]!.only.includes('tRPC'))
        .sort(),
    )
  })
})

test('GraphQL has every filter of every list', () => {
  const paging = ['limit', 'cursor', 'count']
  const missing = NAMES.flatMap((name) =>
    rootsOf(name).flatMap((root) =>
      procedures[name]!._def.type === 'query'
        ? Object.keys(shapeOf(name))
            .filter((field) => !paging.includes(field) && !(field in inputsOf(root)))
            .map((field) => `${name}: ${field}`)
        : [],
    ),
  )
  expect(missing).toEqual([])
})

test('every operation of the OpenAPI document is a procedure, a health check or an exception', () => {
  const known = new Set(NAMES.map(pathOf))
  // A path that ends with `/stream` belongs to the procedure of the path before it.
  const others = OPERATIONS.filter(
    (operation) => !known.has(operation.replace(/\/stream$/, '')) && !/health|readyz|version$/.test(operation),
  )
  const only = Object.keys(EXCEPTIONS).filter((path) => EXCEPTIONS[path]!.only.join() === 'REST')
  expect(others.sort()).toEqual(only.sort())
})

test('exceptions are few, and have a valid reason', () => {
  expect(Object.keys(EXCEPTIONS).length).toBeLessThanOrEqual(26)
  for (const [path, { why }] of Object.entries(EXCEPTIONS)) {
    const [method = '', address = ''] = path.split(' ')
    const operation = document.paths?.[address]?.[method.toLowerCase() as 'get'] as {
      requestBody?: { content: object }
      responses: { 200: { content: object } }
    }
    const takes = Object.keys(operation.requestBody?.content ?? {})
    const gives = Object.keys(operation.responses[200].content)
    if (why === 'multipart') expect(takes).toEqual(['multipart/form-data'])
    if (why === 'lines') expect(gives).toEqual(['application/x-ndjson'])
    if (why === 'binary') expect(gives).toEqual(['*/*'])
    if (why === 'SSE') expect(gives).toContain('text/event-stream')
    if (why === 'cookie') expect(address).toMatch(/^\/api\/auth\//)
    if (why === 'section F') expect(address).not.toMatch(/^\/api\/v1\//)
  }
})

test.each(PATHS)('%s is served and documented', async (line) => {
  const [method = '', path = ''] = line.split(' ')
  const body = ['POST', 'PUT', 'PATCH'].includes(method) ? { body: {} } : {}
  // Streams of changes are endless, except those for a missing id.
  const query =
    path === '/api/v1/tasks/events' ? '?id=none' : path === '/api/v1/approvals/events' ? '?executionId=none' : ''
  const address = path.replace(/{(\w+)}/g, 'none') + query
  expect(OPERATIONS).toContain(line)
  const { status, body: answer } = await request(server, method, address, { ...body, token: member.token })
  // A stream may begin with silence.
  expect(answer?.message).not.toBe('Not found')
  expect(status).toBeLessThan(500)
})

test('an unlisted path is not served', async () => {
  expect(OPERATIONS.filter((operation) => !PATHS.includes(operation))).toEqual([])
  const answer = await request(server, 'GET', '/api/v1/nothing', { token: member.token })
  expect([answer.status, answer.body.message]).toEqual([404, 'Not found'])
})

type ErrorBody = { statusCode: number; message: string }

/** Returns the error of a procedure on each API that has it. */
async function errorsOf(name: string, input: Record<string, unknown>, field: string): Promise<ErrorBody[]> {
  const { token } = member
  const answers = await Promise.all([
    apis.REST(server, name, input, { token }),
    apis.tRPC(server, name, input, { token }),
  ])
  const roots = rootsOf(name).filter((root) => field in inputsOf(root))
  const inGraphql = await Promise.all(roots.map((root) => callRoot(server, root, input, { token, depth: 0 })))
  return [
    ...answers.map(({ body: { statusCode, message } }) => ({ statusCode, message })),
    ...inGraphql.map(({ errors }) => ({
      statusCode: errors?.[0]?.extensions.statusCode,
      message: errors?.[0]?.message,
    })),
  ]
}

describe('all APIs give the same error', () => {
  const fields = NAMES.flatMap((name) => Object.keys(shapeOf(name)).map((field) => ({ name, field })))

  test('all APIs give the same error for an id that never existed', async () => {
    const differing: unknown[] = []
    for (const { name, field } of fields.filter(({ field }) => takesId(field))) {
      const id = neverWas(kindsOf(name, field)[0] as Kind)
      const errors = await errorsOf(name, inputWith(name, field, id, own), field)
      if (new Set(errors.map((error) => JSON.stringify(error))).size > 1) differing.push({ name, field, errors })
    }
    expect(differing).toEqual([])
  })

  test('all APIs give the same error for a missing required field', async () => {
    const differing: unknown[] = []
    for (const { name, field } of fields) {
      const inPath = pathOf(name).includes(`{${field}}`) || procedures[name]!._def.type === 'subscription'
      if (shapeOf(name)[field]!.isOptional() || inPath) continue
      const { [field]: _, ...input } = inputWith(name, null, undefined, own)
      const errors = await errorsOf(name, input, field)
      if (new Set(errors.map((error) => JSON.stringify(error))).size > 1) differing.push({ name, field, errors })
    }
    expect(differing).toEqual([])
  })
})

type Found = Record<string, unknown>

/** Every object with an id, anywhere in an answer. */
function objectsIn(value: unknown): Found[] {
  if (typeof value !== 'object' || value === null) return []
  // An event has a thing as it was.
  const { data: _, ...parts } = value as Found
  const below = Object.values('sequence' in value ? parts : value).flatMap(objectsIn)
  return 'id' in value ? [value as Found, ...below] : below
}

const isPlain = (value: unknown) => value === null || typeof value !== 'object'

describe('all APIs give the same data', () => {
  const reads = NAMES.filter((name) => procedures[name]!._def.type === 'query' && name !== 'mcps.tools')

  test.each(reads)('%s', async (name) => {
    const { token } = member
    const input = inputWith(name, null, undefined, own)
    const [rest, trpc] = [
      await apis.REST(server, name, input, { token }),
      await apis.tRPC(server, name, input, { token }),
    ]
    const { requestId: _, code, ...answer } = rest.body
    if (answer.meta) answer.meta.timestamp = expect.any(String)
    expect(trpc.body).toMatchObject(rest.status === 200 ? answer : { ...answer, errorCode: code })
    for (const root of rootsOf(name)) {
      const { data, errors } = await callRoot(server, root, input, { token, depth: 1 })
      if (rest.status !== 200) {
        expect(errors).toMatchObject([{ message: rest.body.message }])
        continue
      }
      expect(errors).toBeUndefined()
      const inRest = new Map(objectsIn(rest.body).map((object) => [object.id, object]))
      for (const object of objectsIn(data)) {
        const same = inRest.get(object.id)
        if (!same) continue
        const both = Object.keys(object).filter((key) => key in same && isPlain(same[key]) && isPlain(object[key]))
        const pick = (from: Found) => Object.fromEntries(both.map((key) => [key, from[key]]))
        expect(pick(object)).toEqual(pick(same))
        inRest.delete(object.id)
      }
    }
  })
})

describe('REST reports unknown names', () => {
  const writes = NAMES.filter((name) => !/^(GET|undefined) /.test(pathOf(name)))

  test.each(writes)('%s refuses an unknown parameter and warns of an unknown field', async (name) => {
    const { token } = member
    const [method = '', path = ''] = pathOf(name).split(' ')
    const address = path.replace(/{(\w+)}/g, 'none')
    const refused = await request(server, method, `${address}?zzz=1`, { token })
    expect(refused).toMatchObject({
      status: 400,
      body: { message: 'Unknown parameter: zzz', detail: expect.any(String) },
    })
    const { status, body, headers } = await request(server, method, address, { token, body: { zzz: 1 } })
    expect(headers.get('x-muster-warnings')).toBe('1')
    if (status === 200) expect(body.warnings).toContain('Unknown field: zzz')
    if (status === 400) expect(body.detail).toContain('zzz')
  })

  test('a successful write names the unknown field', async () => {
    const answers: Record<string, unknown> = {}
    const withBody = writes.filter((name) => !pathOf(name).startsWith('DELETE'))
    for (const name of withBody) {
      const input = { ...inputWith(name, null, undefined, own), zzz: 1 }
      const { status, body } = await apis.REST(server, name, input, { token: member.token })
      if (status === 200) answers[name] = body.warnings?.at(-1)
    }
    expect(Object.keys(answers).length).toBeGreaterThan(withBody.length / 2)
    expect(new Set(Object.values(answers))).toEqual(new Set(['Unknown field: zzz']))
  })
})
