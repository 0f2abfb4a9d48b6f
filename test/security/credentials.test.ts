import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { DOOR_ROUTES } from '../../src/http/door-routes.ts'
import { APIS, type Api, apis, procedures } from '../support/api.ts'
import { setPassword, signedIn } from '../support/browser-session.ts'
import { callRoot, type Root, rootsOf } from '../support/graphql-api.ts'
import { type Input, leastOf, shapeOf } from '../support/inputs.ts'
import { AUDIENCE, startOidc } from '../support/oidc.ts'
import { document } from '../support/openapi.ts'
import { ownPage, request } from '../support/rest.ts'
import { sample } from '../support/sample.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

/**
 * The matrix of credentials: every kind on every procedure, over REST, tRPC, GraphQL and their streams, and on the
 * routes of bytes. A route that is neither fails the test.
 */

const EXPIRED = 'Token expired'
const SIGN_IN = 'Sign in required'
const FORBIDDEN = "You don't have permission to access this resource"

/** Routes that are no procedures, because their bodies are bytes or streams. */
const BYTES: [method: string, path: string][] = [
  ['POST', '/api/v1/media'],
  ['POST', '/api/files/upload?spaceId=none'],
  ['GET', '/api/v1/media/none/content'],
  ['GET', '/api/v1/audit/export?since=never'],
  ['GET', '/api/v1/events/stream?since=never'],
]

const oidc = await use(startOidc())
const server = await use(startServer({ OIDC_ISSUER: oidc.issuer, OIDC_AUDIENCE: AUDIENCE }))
const own = await server.member({ organization: 'Own', role: 'owner' })
const other = await server.member({ organization: 'Other', role: 'owner' })
/** A former member of the organization. */
const former = await server.member({ organization: 'Own' })
const { organizationId, userId } = former
beforeAll(async () => {
  await db().membership.deleteMany({ where: { organizationId, userId } })
  await setPassword(server, own.userId, 'eleven blue kettles sing')
  const now = new Date()
  for (const [subject, { userId }] of [
    ['own', own],
    ['former', former],
  ] as const) {
    await db().userIdentity.create({ data: { issuer: oidc.issuer, subject, userId, createdAt: now } })
  }
})
// Disables the limits of attempts to sign in.
beforeEach(() => db().signInLimit.deleteMany({}))

const db = () => server.service.deps.db

type Sent = { token: string | null; headers?: Record<string, string> }
const bearer = (token: string, organization?: string): Sent => ({
  token,
  ...(organization !== undefined && { headers: { 'X-Organization': organization } }),
})

async function idToken(sub: string, age = 0): Promise<string> {
  const now = Math.floor(Date.now() / 1000) - age
  return oidc.sign({ iss: oidc.issuer, aud: AUDIENCE, sub, iat: now, exp: now + 600 })
}

async function cookie(organization?: string, userId = own.userId): Promise<Sent & { id: string }> {
  const { id, headers } = await signedIn(server, userId, organization)
  return { token: null, headers, id }
}

async function token(change: (member: { id: string }) => Promise<unknown>): Promise<Sent> {
  const { organizationId, userId } = own
  const { email } = await db().user.findUniqueOrThrow({ where: { id: userId }, select: { email: true } })
  const made = await server.member({ organization: 'Own', email, role: 'owner' })
  expect(made.organizationId).toBe(organizationId)
  await change({ id: made.tokenId })
  await server.forgetActors()
  return bearer(made.token)
}

const past = new Date(0)

/** Each kind with its expected status, or none if it is valid. */
const KINDS: [kind: string, make: () => Promise<Sent>, status?: number, message?: RegExp | string][] = [
  ['a token', async () => bearer(own.token)],
  ['an ID token', async () => bearer(await idToken('own'))],
  ['a cookie', () => cookie()],
  ['nothing', async () => ({ token: null }), 401, 'Authorization header required'],
  ['an expired token', () => token((where) => db().token.update({ where, data: { expiresAt: past } })), 401, EXPIRED],
  ['an expired ID token', async () => bearer(await idToken('own', 3600)), 401, EXPIRED],
  [
    'an expired session',
    async () => {
      const { id, ...sent } = await cookie()
      await db().browserSession.update({ where: { id }, data: { expiresAt: past } })
      return sent
    },
    401,
    SIGN_IN,
  ],
  [
    'a revoked token',
    () => token((where) => db().token.update({ where, data: { revokedAt: past } })),
    401,
    /Invalid or expired token$/,
  ],
  ['an ID token of nobody', async () => bearer(await idToken('nobody')), 401, /Invalid or expired token$/],
  [
    'an ended session',
    async () => {
      const { id, ...sent } = await cookie()
      await db().browserSession.deleteMany({ where: { id } })
      return sent
    },
    401,
    SIGN_IN,
  ],
  ['a token for another organization', async () => bearer(own.token, other.organizationId), 403, FORBIDDEN],
  [
    'an ID token for another organization',
    async () => bearer(await idToken('own'), other.organizationId),
    403,
    FORBIDDEN,
  ],
  ['a cookie for another organization', () => cookie(other.organizationId), 403, FORBIDDEN],
  ['a token of a former member', async () => bearer(former.token), 403, FORBIDDEN],
  ['a cookie of a former member', () => cookie(undefined, former.userId), 403, FORBIDDEN],
]

const NAMES = Object.keys(procedures)
const admits = (name: string) => procedures[name]!._def.meta.admits

/** The smallest input of a procedure, in the caller's organization, with ids of missing rows. */
function inputOf(name: string): Input {
  const isOrganizations = name.startsWith('organizations.')
  const place = { id: isOrganizations ? own.organizationId : 'none', orgId: own.organizationId }
  const known = Object.entries({ ...place, spaceId: 'none', executionId: 'none' }).filter(
    ([field]) => field in shapeOf(name),
  )
  return { ...leastOf(name), ...Object.fromEntries(known) }
}

type Result = { at: string; status: number; message: unknown }

/** A procedure on one API. GraphQL may have several root fields of it. */
type Place = { name: string; api: Api | Root }

const placesOf = (name: string): Place[] => [...APIS, ...rootsOf(name)].map((api) => ({ name, api }))
const nameOf = ({ name, api }: Place): string =>
  typeof api === 'string' ? `${api} ${name}` : `GraphQL ${api.field.name}`
const apiOf = ({ api }: Place): string => (typeof api === 'string' ? api : 'GraphQL')

async function callOne(place: Place, { token, headers }: Sent): Promise<Result> {
  const { name, api } = place
  const input = inputOf(name)
  const sent = { token, headers: { ...ownPage(server), ...headers } }
  if (typeof api === 'string') {
    const { status, body } = await apis[api](server, name, input, sent)
    return { at: nameOf(place), status, message: body?.message }
  }
  const { status, errors } = await callRoot(server, api, input, { ...sent, depth: 0 })
  const [error] = errors ?? []
  const { statusCode = status } = error?.extensions ?? {}
  return { at: nameOf(place), status: statusCode as number, message: error?.message }
}

/** Uses a separate credential if the call may end it. */
async function callEach(places: readonly Place[], make: () => Promise<Sent>): Promise<Result[]> {
  const shared = await make()
  const results: Result[] = []
  for (let from = 0; from < places.length; from += 10) {
    const some = places.slice(from, from + 10)
    const called = some.map(async (place) => callOne(place, place.name.startsWith('sessions.') ? await make() : shared))
    results.push(...(await Promise.all(called)))
  }
  return results
}

/** Kinds that are also sent to open procedures. */
const BESIDE_EVERYBODY: ReadonlySet<string> = new Set(['a token', 'an ID token', 'a cookie', 'an expired session'])

const isRefused = ({ status }: Result) => status === 401 || status === 403

/** Procedures that refuse a valid credential for another reason: only the operator creates organizations here. */
const FOR_NOBODY = /organizations\.create$|createOrganization$/
/** Procedures about the person, independent of an organization. */
const OF_PERSON = /sessions\.(list|end|changePassword)$/

/**
 * Every kind on every procedure of every API. An API reads the credential in one place, and a procedure decides by whom
 * it admits. In the sample is each procedure on each API, with each status, with and without a cookie, and each kind
 * on each API, on each router and by whom it admits.
 */
const CALLS = sample(
  KINDS.flatMap(([kind, , status]) =>
    NAMES.filter((name) => admits(name) !== 'everybody').flatMap((name) =>
      placesOf(name).map((place) => ({ kind, status, place })),
    ),
  ),
  ({ kind, status, place }) => [
    nameOf(place),
    `${place.name} ${status}`,
    `${place.name} ${/cookie|session/.test(kind)}`,
    ...[apiOf(place), place.name.split('.')[0], admits(place.name)].map((of) => `${kind} ${of}`),
  ],
)

describe.each(KINDS)('%s', (kind, make, status, message) => {
  it(`is ${status === undefined ? 'accepted' : `answered ${status}`} by procedures`, async () => {
    const places = CALLS.filter((call) => call.kind === kind).map(({ place }) => place)
    expect(places.length).toBeGreaterThan(20)
    const results = await callEach(places, make)
    const wrong = results.filter((result) => {
      if (status === undefined) return isRefused(result) && !FOR_NOBODY.test(result.at)
      // A session belongs to a person, who may belong to no organization.
      if (status === 403 && OF_PERSON.test(result.at)) return result.status >= 500
      if (status === 403 && result.at.endsWith('sessions.current')) return result.status >= 401 && result.status !== 403
      const isMeant = typeof message === 'string' ? result.message === message : message!.test(String(result.message))
      return result.status !== status || !isMeant
    })
    expect(wrong).toEqual([])
  })

  it.runIf(BESIDE_EVERYBODY.has(kind))('changes nothing for open procedures', async () => {
    const names = NAMES.filter((name) => admits(name) === 'everybody')
    for (const name of names) {
      await db().signInLimit.deleteMany({})
      for (const place of placesOf(name)) {
        const [mine, nobodys] = [await callOne(place, await make()), await callOne(place, { token: null })]
        expect(mine).toEqual(nobodys)
        expect(mine.status === 403 || mine.status >= 500, `${mine.at} ${mine.status}`).toBe(false)
      }
    }
  })

  it('has the same effect on routes of bytes', async () => {
    for (const [method, path] of BYTES) {
      const answer = await request(server, method, path, await make())
      if (status === undefined) expect([400, 404, 415], path).toContain(answer.status)
      else expect([path, answer.status]).toEqual([path, status])
    }
  })
})

describe('a cookie that another site makes the browser send', () => {
  const changes: [string, Record<string, string>][] = [
    ['from another origin', { Origin: 'https://evil.example' }],
    ['without the header of our pages', { 'X-Muster-Request': '' }],
  ]
  const calls = sample(
    changes.flatMap(([title]) => NAMES.flatMap((name) => placesOf(name).map((place) => ({ title, place })))),
    ({ title, place }) => [nameOf(place), `${title} ${apiOf(place)} ${procedures[place.name]!._def.type}`],
  )

  it.each(changes)('%s writes nothing on any API, and reads', async (title, change) => {
    const places = calls.filter((call) => call.title === title).map(({ place }) => place)
    const results = await callEach(places, async () => {
      const { headers } = await cookie()
      return { token: null, headers: { ...ownPage(server), ...headers, ...change } }
    })
    const wrong = results.filter((result) => {
      const [api = '', name = ''] = result.at.split(' ')
      const { type, meta } = procedures[name]?._def ?? { type: 'mutation', meta: {} }
      const isRead = api === 'REST' ? (meta.openapi?.method ?? 'GET') === 'GET' : type !== 'mutation'
      return isRead ? isRefused(result) : result.status !== 403
    })
    expect(wrong).toEqual([])
  })
})

it('every operation of the OpenAPI document is a procedure, a route of bytes, or open', () => {
  const known = new Set([
    ...Object.values(procedures).map(({ _def }) => `${_def.meta.openapi?.method} ${_def.meta.openapi?.path}`),
    'GET /api/v1/executions/{id}/events',
    'GET /api/v1/chats/{id}/events',
    'GET /api/v1/tasks/events',
    'GET /api/v1/approvals/events',
    'GET /api/v1/events/stream',
    'GET /api/v1/media/{id}/content',
    // The doors have a matrix of their own (test/protocols/matrix.test.ts).
    ...DOOR_ROUTES.flatMap(({ path, methods }) =>
      Object.keys(methods).map((method) => `${method} ${path}`.replace(/\/stream$/, '')),
    ),
  ])
  const isOpen = (path: string) => /^\/(?:healthz|readyz|api\/(?:health|version))$/.test(path)
  const bytes = new Set(BYTES.map(([method, path]) => `${method} ${path.split('?')[0]}`))
  const missing = Object.entries(document.paths ?? {}).flatMap(([path, item]) =>
    Object.keys(item as object)
      .map((method) => `${method.toUpperCase()} ${path}`)
      // A streaming operation belongs to the procedure of the path without `/stream`.
      .map((operation) => operation.replace(/\/stream$/, ''))
      .filter((operation) => !known.has(operation) && !bytes.has(operation) && !isOpen(path)),
  )
  expect(missing).toEqual([])
})

it('each valid kind acts as its user, in their organization', async () => {
  for (const [, make, status] of KINDS) {
    if (status !== undefined) continue
    const { body } = await request(server, 'GET', '/api/v1/profile', await make())
    expect(body.profile).toMatchObject({ id: own.userId, organization: { id: own.organizationId } })
  }
})
