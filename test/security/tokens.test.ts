import { getNamedType, isObjectType } from 'graphql'
import { beforeAll, describe, expect, test } from 'vitest'
import { covers, isScope, type Scope } from '../../src/auth/scopes.ts'
import { extensionsOf } from '../../src/graphql/builder.ts'
import { schema } from '../../src/graphql/schema.ts'
import { newToken } from '../../src/lib/token.ts'
import { APIS, apis, procedures } from '../support/api.ts'
import { callRoot, NODE, NODES, ROOTS } from '../support/graphql-api.ts'
import { type Input, leastOf } from '../support/inputs.ts'
import { request } from '../support/rest.ts'
import { sample } from '../support/sample.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { everything, type Ids, inputWith, type Kind, maker } from './fixtures.ts'

/**
 * The token matrix: every procedure and every field of GraphQL with every kind of invalid token, and every type and
 * relation of GraphQL with every scope. Scopes of procedures are tested in test/rest/scopes.test.ts.
 */

const FORBIDDEN = "You don't have permission to access this resource"
const FORMAT = 'Invalid token format. Token must start with mst_'
const INVALID = 'Unauthorized. Invalid or expired token'

let owner: Member
let own: Required<Ids>
/** The id of a former member who still owns a chat. */
let former: string
const tokens = {} as Record<'expired' | 'revoked' | 'ended', string>

const server = await use(startServer())
beforeAll(async () => {
  const { db } = server.service.deps
  owner = await server.member({ email: 'owner@example.com', role: 'owner' })
  own = await everything(server, owner, 'own')
  await maker(server, owner).does('agents.update', { id: own.agent, visibility: 'public' })
  tokens.expired = (await server.member({ expiresAt: new Date(Date.now() - 1) })).token
  const revoked = await server.member()
  tokens.revoked = revoked.token
  await db.token.update({ where: { id: revoked.tokenId }, data: { revokedAt: new Date() } })
  const { token, organizationId, userId } = await server.member()
  await db.membership.deleteMany({ where: { organizationId, userId } })
  tokens.ended = token
  const leaver = await server.member()
  await maker(server, leaver).does('chats.create', { title: 'Left behind' })
  await db.membership.deleteMany({ where: { organizationId: leaver.organizationId, userId: leaver.userId } })
  former = leaver.userId
})

/** A well-formed token with another last character, so that its checksum is wrong. */
function misspelt(): string {
  const token = newToken('mst')
  return token.slice(0, -1) + (token.endsWith('a') ? 'b' : 'a')
}

type Refused = { title: string; header: () => string | null; status: number; message: string; elsewhere?: string }

const REFUSED: Refused[] = [
  { title: 'no header', header: () => null, status: 401, message: 'Authorization header required' },
  { title: 'another scheme', header: () => 'Basic b3duZXI6b3duZXI=', status: 401, message: FORMAT },
  { title: 'a token without a scheme', header: () => owner.token, status: 401, message: FORMAT },
  { title: 'two tokens', header: () => `Bearer ${owner.token} ${owner.token}`, status: 401, message: FORMAT },
  { title: 'another prefix', header: () => `Bearer ghp_${owner.token.slice(4)}`, status: 401, message: FORMAT },
  { title: 'nothing but the prefix', header: () => 'Bearer mst_', ...invalid() },
  { title: 'a token that is too long', header: () => `Bearer ${owner.token}a`, ...invalid() },
  { title: 'a misspelt token', header: () => `Bearer ${misspelt()}`, ...invalid() },
  { title: 'a token that was never given out', header: () => `Bearer ${newToken('mst')}`, ...invalid() },
  { title: 'a revoked token', header: () => `Bearer ${tokens.revoked}`, ...invalid() },
  { title: 'an expired token', header: () => `Bearer ${tokens.expired}`, status: 401, message: 'Token expired' },
  { title: 'a token of a former member', header: () => `Bearer ${tokens.ended}`, status: 403, message: FORBIDDEN },
]

function invalid() {
  return { status: 401, message: INVALID, elsewhere: 'Invalid or expired token' }
}

/** All procedures except sign-in and sign-out, which need no token. */
const NAMES = Object.keys(procedures).filter((name) => procedures[name]!._def.meta.admits !== 'everybody')
const pathOf = (name: string): string =>
  procedures[name]?._def.meta.openapi?.path ?? '/api/v1/executions/{executionId}/events'

/** The beginning of a path that decides about the handling of its errors. */
const kindOfPath = (name: string): string => (pathOf(name).startsWith('/api/v1/') ? 'v1' : 'other')

/** Routes of byte streams, which are no procedures. */
const BYTES = [
  ['POST', '/api/v1/media'],
  ['GET', '/api/v1/media/none/content'],
] as const

/** Sends this header, without another token. */
const headed = (header: string | null) => ({ token: null, headers: header === null ? {} : { Authorization: header } })

/**
 * Every token on every procedure of every API. Each API checks the token in one place, before the procedure, so in the
 * sample is each procedure on each API, and each token on some of each kind of path.
 */
const CALLS = sample(
  REFUSED.flatMap(({ title }) => APIS.flatMap((api) => NAMES.map((name) => ({ title, api, name })))),
  ({ title, api, name }) => [`${api} ${name}`, `${title} ${api} ${kindOfPath(name)}`],
)

/** The same with the root fields of GraphQL. */
const FIELDS = sample(
  REFUSED.flatMap(({ title }) => ROOTS.map((root) => ({ title, root }))),
  ({ title, root }) => [root.field.name, `${title} ${root.operation}`],
)

describe.each(REFUSED)('$title is refused ($status) by', ({ title, header, status, message, elsewhere = message }) => {
  test.each(APIS)('procedures on %s, whatever the input', async (api) => {
    const names = CALLS.filter((call) => call.title === title && call.api === api).map(({ name }) => name)
    const answers = await Promise.all(
      names.map(async (name) => {
        const { status, body } = await apis[api](server, name, leastOf(name), headed(header()))
        return { name, status, message: body.message }
      }),
    )
    const isV1 = (name: string) => api === 'REST' && kindOfPath(name) === 'v1'
    expect(names.length).toBeGreaterThan(1)
    expect(answers).toEqual(names.map((name) => ({ name, status, message: isV1(name) ? message : elsewhere })))
  })

  test('fields of GraphQL', async () => {
    const roots = FIELDS.filter((field) => field.title === title).map(({ root }) => root)
    const answers = await Promise.all(
      roots.map(async (root) => {
        const { data, errors } = await callRoot(server, root, inputOf(root), { ...headed(header()), depth: 0 })
        const [error, ...others] = errors ?? []
        const { statusCode } = error?.extensions ?? {}
        return { field: root.field.name, status: statusCode, message: error?.message, data: data ?? null, others }
      }),
    )
    const expected = { status, message: elsewhere, data: null, others: [] }
    expect(roots.length).toBeGreaterThan(2)
    expect(answers).toEqual(roots.map(({ field }) => ({ field: field.name, ...expected })))
  })

  test.each(BYTES)('%s %s', async (method, path) => {
    const answer = await request(server, method, path, headed(header()))
    expect([answer.status, answer.body.message]).toEqual([status, message])
  })
})

/** The smallest input of a root field, with the caller's own ids. */
function inputOf(root: (typeof ROOTS)[number]): Input {
  const ids = root.procedure === 'organizations.listThings' ? { ...own, user: former } : own
  if (root.procedure) return inputWith(root.procedure, null, undefined, ids)
  return Object.fromEntries(root.field.args.map(({ name }) => [name, own.agent]))
}

/** Every scope of a procedure or a type of GraphQL. */
const SCOPES = [
  ...new Set([
    ...Object.values(procedures).flatMap(({ _def }) => _def.meta.scopes ?? []),
    ...Object.values(schema.getTypeMap()).flatMap((type) => extensionsOf(type).scopes ?? []),
  ]),
]

/** The scopes of a field: its own, or those of the type of its rows. */
function neededBy(typeName: string, fieldName: string): readonly Scope[] {
  const type = schema.getType(typeName)
  const field = isObjectType(type) ? type.getFields()[fieldName] : undefined
  if (!field) return []
  const target = getNamedType(field.type)
  // A list needs the scopes of its rows.
  const rows = isObjectType(target) ? target.getFields().nodes : undefined
  const types = [target, ...(rows ? [getNamedType(rows.type)] : [])]
  return extensionsOf(field).scopes ?? types.flatMap((type) => extensionsOf(type).scopes ?? [])
}

type Row = Record<string, unknown>

/** Calls back for every field of every object in an answer, with the object's type. */
function walk(
  value: unknown,
  path: string,
  visit: (type: string, field: string, value: unknown, path: string) => void,
): void {
  if (Array.isArray(value)) for (const [index, item] of value.entries()) walk(item, `${path}.${index}`, visit)
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return
  const { __typename: type = '', ...fields } = value as Row
  for (const [name, of] of Object.entries(fields)) {
    visit(String(type), name, of, `${path}.${name}`)
    walk(of, `${path}.${name}`, visit)
  }
}

/** Types that relations lead to. A token needs each one's scope. */
const visible = new Set<string>()

describe('a token of GraphQL', () => {
  test('is tried with more than twenty scopes', () => {
    expect(SCOPES.length).toBeGreaterThan(20)
    expect(SCOPES.filter((scope) => !isScope(scope))).toEqual([])
  })

  const lacks = (scope: string, needed: readonly Scope[] = []) =>
    needed.length > 0 && !needed.some((one) => covers([scope], one))

  /**
   * Every scope with every root field and every kind of node. In the sample is each with each scope that it needs, and
   * with one that does not suffice.
   */
  const reads = sample(
    ['*', ...SCOPES].flatMap((scope) => [
      ...ROOTS.filter(({ operation }) => operation === 'query').map((root) => ({ scope, root, kind: null })),
      ...[...NODES.keys()].map((kind) => ({ scope, root: NODE, kind })),
    ]),
    ({ scope, root, kind }) => {
      const needed = kind ? extensionsOf(schema.getType(NODES.get(kind)!)!).scopes : neededBy('Query', root.field.name)
      const place = `${root.field.name} ${kind}`
      return lacks(scope, needed) ? [`${place} lacks`] : [`${place} ${scope}`]
    },
  )

  test.each(['*', ...SCOPES])(
    'a token of GraphQL with %s sees the types and relations that need it, and no others',
    async (scope) => {
      const { token } = await server.member({ email: 'owner@example.com', role: 'owner', scopes: [scope] })
      const problems: string[] = []
      const mine = reads.filter((read) => read.scope === scope)
      await Promise.all(
        mine.map(async ({ kind }) => {
          if (!kind) return
          const on = NODES.get(kind)!
          const { data, errors } = await callRoot(server, NODE, { id: own[kind as Kind] }, { token, depth: 0, on })
          const isShown = Boolean(data?.node)
          if (isShown === lacks(scope, extensionsOf(schema.getType(on)!).scopes))
            problems.push(`node ${on}: ${isShown}`)
          if (!isShown && errors?.[0]?.message !== FORBIDDEN) problems.push(`node ${on}: ${JSON.stringify(errors)}`)
        }),
      )
      for (const { root, kind } of mine) {
        if (kind) continue
        const { data, errors = [] } = await callRoot(server, root, inputOf(root), { token })
        const refused = new Map(errors.map((error) => [`.${error.path?.join('.')}`, error]))
        walk({ __typename: 'Query', ...data }, '', (type, field, value, path) => {
          visible.add(type)
          const isRefused = refused.get(path)?.message === FORBIDDEN
          if (type === '') return
          const closed = lacks(scope, neededBy(type, field))
          if (closed && value !== null && !isEmpty(value)) problems.push(`${path}: ${type}.${field} is shown`)
          if (!closed && isRefused && !isOwnMatter(type, field)) problems.push(`${path}: ${type}.${field} is refused`)
        })
      }
      expect(problems).toEqual([])
    },
  )

  test('reaches every type with scopes', () => {
    const scoped = Object.values(schema.getTypeMap()).filter(
      (type) => isObjectType(type) && extensionsOf(type).scopes?.length,
    )
    expect(scoped.map(({ name }) => name).filter((name) => !visible.has(name))).toEqual([])
  })
})

/** A refused list may be an empty one. */
const isEmpty = (value: unknown) => Array.isArray(value) && value.length === 0

/** The scopes of `node` are those of the row that it finds. */
const isOwnMatter = (type: string, field: string) => type === 'Query' && field === 'node'
