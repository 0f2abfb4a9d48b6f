import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { getNamedType, isInputObjectType, isScalarType } from 'graphql'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { unwrap } from '../src/lib/fields.ts'
import { ERROR_CODES } from '../src/wire.ts'
import { graphql } from './graphql/support.ts'
import { type Api, apis, procedures } from './support/api.ts'
import { callRoot, inputsOf, ROOTS } from './support/graphql-api.ts'
import { type Input, leastOf, shapeOf } from './support/inputs.ts'
import { ownPage, request } from './support/rest.ts'
import { sample } from './support/sample.ts'
import { startServer } from './support/server.ts'
import { use } from './support/use.ts'

// contract-2.md section 1.1: every error that callers can cause has a code, and a detail with the remedy.

const server = await use(startServer())
const owner = await server.member({ organization: 'Mistaken', role: 'owner' })
const scopeless = await server.member({ organization: 'Mistaken', role: 'owner', scopes: [] })
const expired = await server.member({ organization: 'Mistaken', expiresAt: new Date(0) })

type Failure = { status: number; code?: string; detail?: string; message?: string }

/** Describes an error without a remedy. Returns nothing for a success. */
function faultOf({ status, code, detail, message }: Failure, wanted: RegExp = /\w/): string[] {
  if (status < 400) return []
  const isKnown = (ERROR_CODES as readonly string[]).includes(code ?? '')
  if (isKnown && detail !== undefined && wanted.test(detail) && detail !== message) return []
  return [`${status} ${code} ${message}: ${detail}`]
}

async function ask(api: Api, procedure: string, input: Input, token: string | null = owner.token): Promise<Failure> {
  const { status, body } = await apis[api](server, procedure, input, { token })
  return { status, ...body, code: body?.errorCode ?? body?.code }
}

const NAMES = Object.keys(procedures)

/** Ends the session or the token, or the organization of the test. */
const isLastingFor = (procedure: string) => !/^(sessions\.signOut|organizations\.takeOver)/.test(procedure)

type Mistake = { what: string; input: Input; detail?: RegExp }

/** Creates the usual mistakes in the input of a procedure. */
function mistakesOf(procedure: string): Mistake[] {
  const least = leastOf(procedure)
  return Object.entries(shapeOf(procedure)).flatMap(([name, given]): Mistake[] => {
    const schema = unwrap(given)
    const isRequired = name in least
    const { [name]: _, ...without } = least
    const wrong = schema instanceof z.ZodString || schema instanceof z.ZodEnum ? { a: 1 } : 'wrong'
    return [
      { what: `${name} of a wrong type`, input: { ...least, [name]: wrong } },
      ...(isRequired ? [{ what: `no ${name}`, input: without }] : []),
      ...tooMuch(schema).map(({ value, limit, size }) => ({
        what: `too much in ${name}`,
        input: { ...least, [name]: value },
        detail: new RegExp(`limit.* ${limit}\\b.*\\b${size}\\b`),
      })),
    ]
  })
}

/** Returns a value over the limit of a text, a list or a number. */
function tooMuch(schema: z.ZodType): { value: unknown; limit: number; size: number }[] {
  if (schema instanceof z.ZodString && schema.maxLength !== null && schema.maxLength < 10_000) {
    const limit = schema.maxLength
    return [{ value: 'x'.repeat(limit + 7), limit, size: limit + 7 }]
  }
  if (schema instanceof z.ZodArray && unwrap(schema.element as z.ZodType) instanceof z.ZodString) {
    const { maximum: limit } = (schema._zod.bag ?? {}) as { maximum?: number }
    if (limit === undefined || limit > 1_000) return []
    return [{ value: Array.from({ length: limit + 7 }, (_, index) => `item-${index}`), limit, size: limit + 7 }]
  }
  if (!(schema instanceof z.ZodNumber) || schema.maxValue === null || schema.maxValue > 1e9) return []
  return [{ value: schema.maxValue + 7, limit: schema.maxValue, size: schema.maxValue + 7 }]
}

describe.each(['REST', 'tRPC'] as const)('%s', (api) => {
  it('names the remedy for every mistake in the input of every procedure', async () => {
    const faults: string[] = []
    let count = 0
    const all = NAMES.filter(isLastingFor).flatMap((procedure) =>
      mistakesOf(procedure).map((mistake) => ({ procedure, ...mistake })),
    )
    // Both APIs check inputs by the same schemas.
    const chosen = api === 'REST' ? all : sample(all, ({ procedure, what }) => [procedure, what])
    for (const procedure of NAMES) {
      const ofProcedure = chosen.filter((one) => one.procedure === procedure)
      const mistakes = ofProcedure.map(async ({ what, input, detail }) => {
        const answer = await ask(api, procedure, input)
        if (answer.status >= 400) count++
        // Another mistake may be found first: a path accepts any text, and missing fields have no limits.
        const isLimit = answer.status === 400 && detail && /Expected at most/.test(answer.message ?? '')
        faults.push(...faultOf(answer, isLimit ? detail : undefined).map((fault) => `${procedure}, ${what}: ${fault}`))
      })
      await Promise.all(mistakes)
    }
    expect(faults).toEqual([])
    expect(count).toBeGreaterThan(api === 'REST' ? 300 : 100)
  })

  it('names the remedy for a missing, unknown or expired token, or a missing scope', async () => {
    const faults: string[] = []
    const scopeOf = (procedure: string) => procedures[procedure]!._def.meta.scopes?.[0]
    const wrong: { token: string | null; wanted: (procedure: string) => RegExp }[] = [
      { token: null, wanted: () => /Authorization|sign in|page/i },
      { token: 'mst_unknown', wanted: () => /token|sign in/i },
      { token: expired.token, wanted: () => /token|sign in/i },
      { token: scopeless.token, wanted: (procedure) => new RegExp(scopeOf(procedure) ?? '\\w') },
    ]
    const names = NAMES.filter((name) => procedures[name]!._def.meta.admits !== 'everybody')
    // An API checks tokens in one place. Scopes depend on the procedure.
    const calls = sample(
      names.flatMap((procedure) => wrong.map((one) => ({ procedure, ...one }))),
      ({ procedure, token }) => [
        token === scopeless.token && api === 'REST' ? procedure : '',
        `${procedure.split('.')[0]} ${wrong.findIndex((one) => one.token === token)}`,
      ],
    )
    for (const { procedure, token, wanted } of calls) {
      const answer = await ask(api, procedure, leastOf(procedure), token)
      const isOf = answer.status === 401 || answer.code === 'insufficient_scope'
      faults.push(...faultOf(answer, isOf ? wanted(procedure) : undefined).map((fault) => `${procedure}: ${fault}`))
    }
    expect(faults).toEqual([])
  })
})

it('REST names the remedy for a wrong method, parameter, content type, body or key', async () => {
  const faults: string[] = []
  const { token } = owner
  const requests = NAMES.flatMap((procedure) => {
    const { method, path } = procedures[procedure]!._def.meta.openapi ?? { method: 'GET', path: '' }
    if (!path) return []
    const address = path.replace(/{\w+}/g, 'none')
    const mistakes: [string, string, object][] = [
      ['PROPFIND', address, {}],
      [method, `${address}?unheard=1`, {}],
    ]
    if (method !== 'GET') {
      const type = { 'Content-Type': 'text/plain' }
      mistakes.push(
        [method, address, { body: 'text', headers: type }],
        [method, address, { body: '{"a": ' }],
        [method, address, { body: '[]' }],
        [method, address, { body: JSON.stringify({ a: 'x'.repeat(1_100_000) }) }],
        [method, address, { body: {}, headers: { 'Idempotency-Key': '' } }],
        [method, address, { body: {}, headers: { 'Idempotency-Key': 'é'.repeat(9) } }],
      )
    }
    return mistakes.map((mistake, index) => ({ procedure, mistake, index }))
  })
  // These mistakes are found before the procedure, so some of each router suffice.
  const chosen = sample(requests, ({ procedure, mistake: [verb], index }) => [
    procedure,
    `${procedure.split('.')[0]} ${index} ${index > 0 ? verb : ''}`,
  ])
  for (const {
    mistake: [verb, where, options],
  } of chosen) {
    const { status, body } = await request(server, verb, where, { token, ...options })
    faults.push(...faultOf({ status, ...body }).map((fault) => `${verb} ${where}: ${fault}`))
  }
  expect(faults).toEqual([])
})

/** Converts a GraphQL error to the form of the other APIs. */
const failuresOf = ({ status, errors = [] }: { status: number; errors?: any[] | undefined }): Failure[] =>
  errors.map(({ message, extensions }) => ({ status: Math.max(status, 400), message, ...extensions }))

/** Returns a fault also for errors of documents, whose codes are those of GraphQL's own. */
const faultsIn = (answer: { status: number; errors?: any[] | undefined }): string[] =>
  failuresOf(answer).flatMap((failure) =>
    faultOf(
      /^(GRAPHQL|BAD_|LIMIT|PERSISTED)/.test(failure.code ?? '') ? { ...failure, code: 'invalid_value' } : failure,
    ),
  )

describe('GraphQL', () => {
  it('names the remedy for every mistake in the input of every field', async () => {
    const faults: string[] = []
    for (const root of ROOTS) {
      if (root.operation === 'subscription' || (root.procedure && !isLastingFor(root.procedure))) continue
      const mistakes = root.procedure
        ? mistakesOf(root.procedure)
        : [
            {
              what: 'an id of nothing',
              input: Object.fromEntries(Object.keys(inputsOf(root)).map((name) => [name, 'none'])),
            },
          ]
      const isPlain = ({ input }: Mistake) =>
        Object.entries(input).every(([name]) => {
          const type = inputsOf(root)[name]?.type
          return !type || isScalarType(getNamedType(type)) || !isInputObjectType(getNamedType(type))
        })
      for (const { what, input } of mistakes.filter(isPlain)) {
        const answer = await callRoot(server, root, input, { token: owner.token, depth: 0 })
        faults.push(...faultsIn(answer).map((fault) => `${root.field.name}, ${what}: ${fault}`))
      }
    }
    expect(faults).toEqual([])
  })

  it('names the remedy for mistakes in a document, a token or a scope', async () => {
    const faults: string[] = []
    const deep = `{ agents { nodes ${'{ chats { nodes '.repeat(12)} { id } ${'} }'.repeat(12)} } }`
    const documents = [
      '{',
      '{ unheard }',
      '{ node(id: "none") { id } }',
      '{ agents(first: -1) { nodes { id } } }',
      deep,
    ]
    for (const document of [...documents, '', '{ agents(after: "x") { nodes { id } } }']) {
      const answer = await graphql(server, document, {}, { token: owner.token })
      expect(answer.errors?.length).toBeGreaterThan(0)
      faults.push(...faultsIn(answer).map((fault) => `${document}: ${fault}`))
      if (document === deep) expect(answer.errors?.[0]?.extensions.detail).toMatch(/^Ask for fewer rows/)
    }
    for (const token of [null, 'mst_unknown', expired.token, scopeless.token]) {
      const answer = await graphql(server, '{ agents { nodes { id } } }', {}, { token })
      expect(answer.errors?.length).toBe(1)
      faults.push(...faultsIn(answer).map((fault) => `${token}: ${fault}`))
    }
    expect(faults).toEqual([])
  })
})

/**
 * Errors with a message only: a model reads them as the result of a tool, or a foreign protocol has no field for a
 * detail.
 */
const MESSAGE_ONLY =
  /^src\/((protocols|web)\/.*|lib\/excerpt|executions\/(delegate|engine\/run\/tools)|mcps\/tools|files\/tools|organizations\/policy)\.ts$/

it('every 4xx in the code has a detail', () => {
  const root = join(import.meta.dirname, '..')
  const files = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && !file.startsWith('console'))
    .map((file) => `src/${file.replaceAll('\\', '/')}`)
    .filter((file) => file !== 'src/errors.ts' && !MESSAGE_ONLY.test(file))
  const bare = files.flatMap((file) => {
    const text = readFileSync(join(root, file), 'utf8')
    return [...text.matchAll(/\b(?:badRequest|conflict|new AppError)\(/g)].flatMap(({ index, 0: call }) => {
      const written = argumentsIn(text, index + call.length)
      return /detail|Missing required field|\w+Options|status, message/.test(written)
        ? []
        : [`${file}: ${call}${written})`]
    })
  })
  expect(bare).toEqual([])
})

/** Returns the text of arguments up to the closing parenthesis. */
function argumentsIn(text: string, start: number): string {
  let depth = 1
  let end = start
  while (depth > 0 && end < text.length) {
    if (text[end] === '(') depth++
    if (text[end] === ')') depth--
    end++
  }
  return text.slice(start, end - 1)
}

it('a body that is too long names the limit and its size', async () => {
  const body = JSON.stringify({ name: 'x'.repeat(1_100_000) })
  const answer = await request(server, 'POST', '/api/v1/agents', { token: owner.token, body })
  expect(answer.body).toMatchObject({ code: 'too_large', detail: expect.stringMatching(/1048576 .* 1100011/) })
})

it('an invalid reference names the field and repeats the id, unknown or foreign alike', async () => {
  const other = await server.member({ organization: 'Elsewhere', role: 'owner' })
  const foreign = (
    await request(server, 'POST', '/api/v1/agents', { token: other.token, body: { name: 'A', systemPrompt: 'x' } })
  ).body
  const detailFor = async (id: string) => {
    const body = { name: 'B', systemPrompt: 'x', subagentIds: [id] }
    return (await request(server, 'POST', '/api/v1/agents', { token: owner.token, body })).body.detail
  }
  expect(await detailFor('never')).toBe(
    '`subagentIds` names never: there is none with this id, or none that you can reach.',
  )
  expect((await detailFor(foreign.id)).replace(foreign.id, 'never')).toBe(await detailFor('never'))
})

it('a field beyond its limit, or in another form, gets the limit, the actual size or the form', async () => {
  const detailOf = async (fields: object) => {
    const body = { name: 'A', systemPrompt: 'x', ...fields }
    return (await request(server, 'POST', '/api/v1/agents', { token: owner.token, body })).body.detail
  }
  expect(await detailOf({ name: 'x'.repeat(201) })).toBe('The limit of `name` is 200 characters, and this one has 201.')
  expect(await detailOf({ maxTurns: 501 })).toBe('The limit of `maxTurns` is 500, and this one is 501.')
  expect(await detailOf({ maxTurns: '5' })).toBe('Send a number as `maxTurns`, not a string.')
  expect(await detailOf({ name: ' ' })).toBe('Send a value for `name`: the one that was sent is blank.')
  expect(await detailOf({ visibility: 'privat' })).toBe('Did you mean private?')
  const page = await request(server, 'GET', '/api/v1/agents?limit=5000', { token: owner.token })
  expect(page.body.detail).toBe('The limit of `limit` is 1000, and this one is 5000.')
  const post = async (path: string, body: object) =>
    (await request(server, 'POST', `/api/v1/${path}`, { token: owner.token, body })).body.detail
  expect(await post('keys', { name: 'A', scopes: ['agent:read'] })).toMatch(
    /^<resource> is one of: agents, tasks,.*\.$/,
  )
  expect(await post('skills', { name: 'Bad Name', description: 'x', prompt: 'x' })).toMatch(/such as release-notes\.$/)
  const local = await request(server, 'GET', '/api/v1/executions?since=2026-01-31T09:00:00', { token: owner.token })
  expect(local.body.detail).toBe('Add Z for UTC, or an offset such as +02:00, to `since`.')
})

it("a sign-in without the header of the service's pages names the missing header", async () => {
  const answer = await request(server, 'POST', '/api/auth/login', {
    token: null,
    headers: { ...ownPage(server), 'X-Muster-Request': '' },
    body: { email: 'a@example.com', password: 'x' },
  })
  expect(faultOf({ status: answer.status, ...answer.body }, /X-Muster-Request/)).toEqual([])
})
