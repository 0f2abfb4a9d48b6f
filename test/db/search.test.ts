import fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import * as directory from '../../src/agents/directory.ts'
import { countListed, listedBy } from '../../src/agents/list.ts'
import { findRare, MAX_RARE } from '../../src/agents/search.ts'
import type { Actor } from '../../src/auth/actor.ts'
import type { Db, Prisma, Tx } from '../../src/db/client.ts'
import type { Deps } from '../../src/deps.ts'
import { searchable } from '../../src/lib/search.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { onPostgres, times } from '../support/postgres-shared.ts'

// A trigram index finds agents. After any writes, a search must find exactly the agents with its text.

const ORGANIZATIONS = ['acme', 'other'] as const
const now = new Date()

let database: TestDatabase
let db: Db
let deps: Deps
beforeAll(async () => {
  database = await createTestDatabase()
  db = database.db
  const settings = { DATA_DIR: database.folder, DATABASE_URL: onPostgres ? 'postgresql://' : undefined }
  deps = { db, settings } as Deps
  await db.user.create({ data: { id: 'ann', email: 'ann', name: 'ann', createdAt: now, updatedAt: now } })
  for (const id of ORGANIZATIONS) await db.organization.create({ data: { id, name: id, slug: id, createdAt: now } })
})
afterAll(() => database.dispose())
beforeEach(async () => {
  await db.agent.deleteMany({})
})

type Values = {
  at: number
  organizationId: (typeof ORGANIZATIONS)[number]
  visibility: 'private' | 'organization' | 'public' | 'unlisted'
  text: string
  isArchived: boolean
}

const LETTERS = ['a', 'b', 'B', ' ', '\n', '"', "'", '*', '%', '_', '\\', 'é', 'İ', '字', '😀', '-', '(']
const textOf = (letters: readonly string[], minLength: number, maxLength: number) =>
  fc.string({ unit: fc.constantFrom(...letters), minLength, maxLength })
const values: fc.Arbitrary<Values> = fc.record({
  at: fc.nat(20),
  organizationId: fc.constantFrom(...ORGANIZATIONS),
  visibility: fc.constantFrom('private', 'organization', 'organization', 'public', 'unlisted'),
  text: fc.oneof(textOf(LETTERS, 0, 40), textOf(['a', 'b'], 0, 12)),
  isArchived: fc.nat(4).map((number) => number === 0),
})
const change = ({ visibility, text, isArchived }: Values) => ({
  visibility,
  searchText: searchable(text),
  archivedAt: isArchived ? now : null,
})
const rest = (id: string, organizationId: string) => ({
  id,
  organizationId,
  userId: 'ann',
  name: 'A',
  role: 'R',
  systemPrompt: 'S',
  version: 1,
  tags: [],
  skillIds: [],
  mcpInstanceIds: [],
  mcpTypes: [],
  subagentIds: [],
  allowedTools: [],
  disallowedTools: [],
  createdAt: now,
  updatedAt: now,
})

let made = 0
const create = (tx: Tx, each: Values) =>
  tx.agent.create({ data: { ...rest(`agent-${++made}`, each.organizationId), ...change(each) } })

const steps = fc.record({ step: fc.constantFrom('create', 'create', 'change', 'remove'), values, column: fc.nat(2) })
type Step = typeof steps extends fc.Arbitrary<infer Each> ? Each : never

async function take(tx: Tx, { step, values, column }: Step): Promise<void> {
  if (step === 'create') return void (await create(tx, values))
  const rows = await tx.agent.findMany({ select: { id: true }, orderBy: { id: 'asc' } })
  const where = { id: rows[values.at % rows.length]?.id ?? '' }
  if (step === 'remove') return void (await tx.agent.deleteMany({ where }))
  const [name, value] = Object.entries(change(values))[column]!
  await tx.agent.updateMany({ where, data: { [name]: value } })
}

const transactions = fc.array(fc.tuple(fc.array(steps, { minLength: 1, maxLength: 3 }), fc.nat(5)), {
  minLength: 20,
  maxLength: 30,
  size: 'max',
})

const actorOf = (organizationId: string): Actor => ({
  organizationId,
  organizationSlug: organizationId,
  userId: 'ben',
  role: 'member',
  scopes: [],
  tokenId: '',
})
type AgentRow = Prisma.AgentGetPayload<object>
const idsOf = (rows: readonly { id: string }[]) => rows.map(({ id }) => id).sort()

/** Compares a search's list and total with those expected. */
async function* searches(text: string, rows: readonly AgentRow[]): AsyncGenerator<[found: unknown, wanted: unknown]> {
  const has = rows.filter((row) => row.searchText.includes(searchable(text)))
  const live = has.filter(({ archivedAt }) => archivedAt === null)
  const page = { limit: 1 }
  for (const organizationId of ORGANIZATIONS) {
    const actor = actorOf(organizationId)
    const shared = live.filter((row) => ['organization', 'public'].includes(row.visibility))
    const wanted = idsOf(shared.filter((row) => row.organizationId === organizationId))
    const input = { ...page, search: text }
    const where = await listedBy(actor, deps, input)
    yield [idsOf(await db.agent.findMany({ where })), wanted]
    yield [await countListed(actor, deps, input, where), wanted.length]
  }
  const visible = await directory.publiclyVisibleBy(deps, { ...page, search: text })
  const wanted = live.filter(({ visibility }) => visibility === 'public')
  yield [idsOf(await db.agent.findMany({ where: visible })), idsOf(wanted)]
  // Every trigram in the index must belong to an existing agent.
  if (Array.from(text).length !== 3) return
  const own = live.filter((row) => row.organizationId === 'acme')
  yield [(await findRare(deps, text, ACME))?.sort(), idsOf(own)]
}

/** Runs a few steps in one transaction, which may be rolled back at its end. */
async function transaction(each: readonly Step[], isUndone: boolean): Promise<void> {
  const undone = new Error('undone')
  const done = db.$transaction(async (tx) => {
    for (const step of each) await take(tx, step)
    if (isUndone) throw undone
  })
  await done.catch((error) => {
    if (error !== undone) throw error
  })
}

/** Lists everything of an organization. */
const ACME = { archivedAt: null, organizationId: 'acme' }

const texts = fc.array(fc.oneof(textOf(LETTERS, 1, 4), textOf(['a', 'b'], 3, 6)), { minLength: 5, maxLength: 5 })

it.each([
  ['in whatever order', false],
  ['all of it at once', true],
])('a search finds the agents with its text after any writes, %s', async (_, isAtOnce) => {
  let found = 0
  const write = fc.asyncProperty(transactions, texts, fc.infiniteStream(fc.nat(99)), async (each, texts, numbers) => {
    if (isAtOnce) await Promise.all(each.map(([[step], chance]) => transaction([step!], chance === 0)))
    else for (const [some, chance] of each) await transaction(some, chance === 0)
    const rows = await db.agent.findMany()
    // Also substrings of existing texts, of any length.
    const next = () => numbers.next().value ?? 0
    const parts = rows.slice(0, 8).map((row) => {
      const letters = Array.from(row.searchText)
      const start = next() % (letters.length || 1)
      return letters.slice(start, start + 1 + (next() % 30)).join('')
    })
    for (const text of [...texts, ...parts].filter((text) => text !== '')) {
      for await (const [actual, wanted] of searches(text, rows)) {
        expect(actual, JSON.stringify(text)).toEqual(wanted)
        if (Array.isArray(wanted) ? wanted.length : wanted) found++
      }
    }
  })
  await fc.assert(write, { numRuns: times(25), endOnFailure: true })
  expect(found).toBeGreaterThan(times(25))
})

it('a search finds and counts common texts, rare ones among them, and absent ones', async () => {
  const of = (text: string): Values => ({
    at: 0,
    organizationId: 'acme',
    visibility: 'organization',
    text,
    isArchived: false,
  })
  for (let count = 0; count < MAX_RARE; count++) await create(db, of(`Keeper of books ${count}`))
  expect(await findRare(deps, 'KEEPER OF', ACME)).toHaveLength(MAX_RARE)
  await create(db, of('Keeper of an atlas'))
  expect(await findRare(deps, 'KEEPER OF', ACME)).toBeNull()
  async function total(search: string, of = 'acme'): Promise<number> {
    const where = await listedBy(actorOf(of), deps, { limit: 1, search })
    return countListed(actorOf(of), deps, { limit: 1, search }, where)
  }
  expect(await total('keeper of')).toBe(MAX_RARE + 1)
  expect(await total('keeper of', 'other')).toBe(0)
  expect(await total('of an ATLAS')).toBe(1)
  expect(await total('of no atlas')).toBe(0)
  expect(await total('x'.repeat(200))).toBe(0)
})

it('a text longer than the indexed part is found as a whole', async () => {
  const text = 'The quick brown fox jumps over the lazy dog, and the dog over the fox.'
  const values = { at: 0, organizationId: 'acme', visibility: 'public', isArchived: false } as const
  const { id } = await create(db, { ...values, text })
  const foundBy = async (search: string) => idsOf((await directory.listPublic(deps, { limit: 5, search })).agents)
  expect(await foundBy(text)).toEqual([id])
  for (let at = 0; at < text.length; at++) {
    expect(await foundBy(`${text.slice(0, at)}#${text.slice(at + 1)}`), `${at}`).toEqual([])
  }
})
