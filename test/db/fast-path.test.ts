import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { Prisma, PrismaClient } from '../../prisma/generated/sqlite/client.ts'
import { countOf } from '../../src/db/counting.ts'
import {
  addsTo,
  createFastClient,
  expectsOne,
  type FastPathDriver,
  locksRows,
  POSTGRESQL,
} from '../../src/db/fast-path/index.ts'
import { tablesOf } from '../../src/db/fast-path/schema.ts'
import { TRANSACTION } from '../../src/db/limits.ts'
import { postgresqlAdapter, postgresqlClient } from '../../src/db/postgresql/adapter.ts'
import { retryTransactions } from '../../src/db/postgresql/retry.ts'
import { sqliteAdapter } from '../../src/db/sqlite/adapter.ts'
import { migrateSqlite } from '../../src/db/sqlite/migrate.ts'
import { isUnavailable, isUnexpectedCount, isUniqueViolation } from '../../src/lib/database-errors.ts'
import { troubleIn } from '../../src/lib/database-troubles.ts'
import { withByteBudget } from '../../src/lib/page.ts'
import { runSql } from '../support/postgres.ts'
import { onPostgres, type SharedDatabase, shareDatabase, times } from '../support/postgres-shared.ts'

const folder = mkdtempSync(join(tmpdir(), 'muster-direct-'))
/** Prisma itself, and the fast path over it. Both share their connections. */
let prisma: PrismaClient
let db: PrismaClient
const statements: string[] = []
let shared: SharedDatabase | undefined

/** Maximum number of concurrent transactions. */
const AT_ONCE = onPostgres ? 3 : 1

/** Opens a client and the driver of its fast path. */
async function open(): Promise<[PrismaClient, FastPathDriver]> {
  if (onPostgres) {
    shared = await shareDatabase()
    // Reads and writes must not depend on the database's time zone.
    const adapter = await postgresqlAdapter(`${shared.url}?options=-c%20TimeZone%3DAsia/Kathmandu`, AT_ONCE)
    return [await postgresqlClient({ adapter }), adapter]
  }
  const file = join(folder, 'test.db')
  await migrateSqlite(file)
  const adapter = sqliteAdapter(file)
  return [new PrismaClient({ adapter }), adapter]
}

const ROWS = 40
const pick = <T>(list: readonly T[], index: number): T => list[index % list.length] as T
const WORDS = ['a', 'b', 'B', 'ä', '%', '', "it's", 'x\ny']
const TIMES = [0, 1, 86_400_000, 1_750_000_000_123].map((time) => new Date(time))

const media = (index: number): Prisma.MediaUncheckedCreateInput => ({
  id: `m${index}`,
  organizationId: pick(['o1', 'o2'], index),
  userId: 'u',
  name: pick(WORDS, index),
  mimeType: pick(WORDS, Math.floor(index / 3)),
  size: index % 7,
  createdAt: pick(TIMES, index),
})

/** A row of usage without its agent. */
const USAGE = {
  organizationId: 'o1',
  date: 'locks',
  model: '',
  userId: '',
  executions: 1,
  failed: 0,
  inputTokens: 1,
  outputTokens: 1,
}

beforeAll(async () => {
  const [client, shortcut] = await open()
  prisma = client
  await prisma.$connect()
  db = createFastClient(
    async () => prisma,
    shortcut,
    (sql) => statements.push(sql),
  )
  const [createdAt, updatedAt] = [new Date(), new Date()]
  for (const id of ['o1', 'o2']) await db.organization.create({ data: { id, name: id, slug: id, createdAt } })
  await db.user.create({ data: { id: 'u', email: 'u@example.com', name: 'U', createdAt, updatedAt } })
})
beforeEach(async () => {
  await prisma.media.deleteMany()
  await prisma.media.createMany({ data: Array.from({ length: ROWS }, (_, index) => media(index)) })
  statements.length = 0
})
afterAll(async () => {
  await prisma.$disconnect()
  await shared?.drop()
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
})

/** Objects with the usual prototype, as callers write them. */
const record = <T, K extends keyof T = keyof T>(
  model: { [Key in keyof T]: fc.Arbitrary<T[Key]> },
  options: { requiredKeys?: K[] } = {},
) => fc.record<T, K>(model, { ...options, noNullPrototype: true })

const word = fc.constantFrom(...WORDS)
const time = fc.constantFrom(...TIMES)
const number = fc.integer({ min: -1, max: 8 })
const operators = <T>(value: fc.Arbitrary<T>) =>
  fc.oneof(
    value,
    record({ equals: value }),
    record({ not: value }),
    record({ in: fc.array(value, { maxLength: 3 }) }),
    record({ notIn: fc.array(value, { maxLength: 3 }) }),
    record({ gte: value, lt: value }),
    record({ gt: value }),
    record({ lte: value }),
  )
const patterns = fc.oneof(operators(word), record({ contains: word }))
const where: fc.Arbitrary<Prisma.MediaWhereInput> = fc.letrec<{ filter: Prisma.MediaWhereInput }>((tie) => ({
  filter: fc.oneof(
    { maxDepth: 3 },
    record(
      {
        name: patterns,
        size: operators(number),
        createdAt: operators(time),
        organizationId: fc.constantFrom('o1', 'o2', 'o3'),
      },
      { requiredKeys: [] },
    ),
    record({ AND: fc.array(tie('filter'), { maxLength: 2 }) }),
    record({ OR: fc.array(tie('filter'), { minLength: 1, maxLength: 3 }) }),
    record({ AND: tie('filter'), size: operators(number) }),
    record({ NOT: tie('filter') }),
  ),
})).filter

const orderBy = fc.constantFrom<Prisma.MediaOrderByWithRelationInput[]>(
  [{ id: 'asc' }],
  [{ createdAt: 'desc' }, { id: 'desc' }],
  [{ name: 'asc' }, { size: 'desc' }, { id: 'asc' }],
)
const call = record(
  {
    where,
    orderBy,
    take: fc.integer({ min: 1, max: 50 }),
    select: fc.constantFrom({ id: true }, { name: true, createdAt: true, size: true }),
  },
  { requiredKeys: ['orderBy'] },
)

/** Sorts groups, because their order is undefined. */
const groups = <Group extends object>(found: readonly Group[]) =>
  found.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1))

describe('a call that concerns one table', () => {
  it('finds and counts the same rows as Prisma, mostly by the fast path', async () => {
    let simple = 0
    await fc.assert(
      fc.asyncProperty(call, async ({ take, ...args }) => {
        const page = take === undefined ? args : { ...args, take }
        const asked = async (client: PrismaClient) => [
          await client.media.findMany(page),
          await client.media.findFirst(args),
          await client.media.count({ where: args.where ?? {} }),
          groups(await client.media.groupBy({ by: ['name', 'size'], where: args.where ?? {}, _count: true })),
        ]
        statements.length = 0
        expect(await asked(db)).toEqual(await asked(prisma))
        simple += Number(statements.length === 4)
      }),
      { numRuns: times(200) },
    )
    expect(simple).toBeGreaterThan(times(130))
  })

  it('a call with a byte budget ends one row after the row that exceeds the budget', async () => {
    /** Measures as the database does: PostgreSQL in bytes, SQLite in characters. */
    const lengthOf = (row: object) =>
      Object.values(row)
        .filter((value) => typeof value === 'string')
        .reduce((sum, text) => sum + (onPostgres ? Buffer.byteLength(text) : text.length), 0)
    let bounded = 0
    await fc.assert(
      fc.asyncProperty(call, fc.integer({ min: 0, max: 60 }), async ({ take, ...args }, maxLength) => {
        const page = take === undefined ? args : { ...args, take }
        const all = await prisma.media.findMany(page)
        let [length, count] = [0, 0]
        for (; count < all.length && length <= maxLength; count++) length += lengthOf(all[count]!)
        statements.length = 0
        const found = await db.media.findMany(withByteBudget({ ...page }, maxLength))
        expect(found).toEqual(statements.length ? all.slice(0, count + 1) : all)
        bounded += statements.length
      }),
      { numRuns: times(200) },
    )
    expect(bounded).toBeGreaterThan(times(100))
  })

  it('counts lists and bytes towards a byte budget', async () => {
    const token = { organizationId: 'o1', userId: 'u', name: 'n', preview: 'p', createdAt: new Date() }
    const ids = ['long0', 'long1', 'long2', 'long3', 'long4']
    for (const id of ids) await db.token.create({ data: { ...token, id, digest: id, scopes: Array(100).fill('x') } })
    const tokens = { where: { id: { in: ids } }, orderBy: { id: 'asc' }, select: { id: true, scopes: true } } as const
    // Each list is 401 characters. PostgreSQL stores 500 and counts half of them.
    expect(await db.token.findMany(withByteBudget({ ...tokens }, 402))).toHaveLength(onPostgres ? 3 : 2)
    const secret = { organizationId: 'o1', scope: 's', updatedBy: 'u', createdAt: new Date(), updatedAt: new Date() }
    for (const name of ids) await db.secret.create({ data: { ...secret, name, ciphertext: new Uint8Array(100) } })
    const secrets = { where: { scope: 's' }, orderBy: { name: 'asc' }, select: { ciphertext: true } } as const
    expect(await db.secret.findMany(withByteBudget({ ...secrets }, 150))).toHaveLength(3)
  })

  it('hides the byte budget from Prisma', async () => {
    const page = { where: { name: { startsWith: 'a' } }, orderBy: { id: 'asc' } } as const
    const all = await prisma.media.findMany(page)
    expect(all.length).toBeGreaterThan(2)
    expect(await db.media.findMany(withByteBudget({ ...page }, 1))).toEqual(all)
  })

  it('changes and deletes the same rows as Prisma', async () => {
    const all = () => prisma.media.findMany({ orderBy: { id: 'asc' } })
    class Undone extends Error {}
    const tryOut = async (client: PrismaClient, filter: Prisma.MediaWhereInput) => {
      const after: unknown[] = []
      const work = client.$transaction(async (tx) => {
        after.push(await tx.media.updateMany({ where: filter, data: { name: 'new', size: { increment: 10 } } }))
        after.push(await tx.media.findMany({ orderBy: { id: 'asc' } }))
        after.push(await tx.media.deleteMany({ where: { size: { gte: 12 } } }))
        after.push(await tx.media.findMany({ orderBy: { id: 'asc' } }))
        throw new Undone()
      })
      await expect(work).rejects.toThrow(Undone)
      return after
    }
    const before = await all()
    await fc.assert(
      fc.asyncProperty(where, async (filter) => {
        expect(await tryOut(db, filter)).toEqual(await tryOut(prisma, filter))
      }),
      { numRuns: times(60) },
    )
    expect(await all()).toEqual(before)
  })

  it('creates the same rows as Prisma, with every type and default', async () => {
    const now = new Date(1_750_000_000_123)
    const token = { organizationId: 'o1', userId: 'u', name: 'n', preview: 'p', scopes: ['*'], createdAt: now }
    const usage = { organizationId: 'o1', agentId: 'a', model: 'm', executions: 1, failed: 0 }
    const made = async (client: PrismaClient, id: string) => {
      const secret = { organizationId: 'o1', scope: id, name: 'N', updatedBy: 'u', createdAt: now, updatedAt: now }
      const rows = [
        await client.token.create({ data: { id, digest: id, ...token } }),
        await client.organization.create({ data: { id, name: id, slug: id, createdAt: now } }),
        await client.usageDay.create({ data: { ...usage, date: id, inputTokens: 2n ** 53n + 1n, outputTokens: 3 } }),
        await client.secret.create({ data: { ...secret, ciphertext: new Uint8Array([0, 255]) } }),
        await client.space.create({
          data: {
            id,
            organizationId: 'o1',
            name: id,
            visibility: 'private',
            ownerId: 'u',
            createdAt: now,
            updatedAt: now,
          },
        }),
        await client.media.create({ data: { ...media(0), id: `made-${id}` }, select: { size: true } }),
      ]
      return JSON.parse(
        JSON.stringify(rows, (_, value) => (typeof value === 'bigint' ? `${value}n` : value)).replaceAll(id, 'ID'),
      )
    }
    statements.length = 0
    expect(await made(db, 'short')).toEqual(await made(prisma, 'long'))
    expect(statements).toHaveLength(6)
    const stored = (client: PrismaClient, id: string) => client.usageDay.findFirst({ where: { date: id } })
    expect((await stored(db, 'long'))?.inputTokens).toBe(2n ** 53n + 1n)
    expect((await stored(prisma, 'short'))?.inputTokens).toBe(2n ** 53n + 1n)
  })

  it('returns the rows that it changed', async () => {
    const where = { organizationId_id: { organizationId: 'o1', id: 'm0' } }
    const updated = await db.media.update({ where, data: { size: 99 } })
    expect(updated).toEqual({ ...(await prisma.media.findUnique({ where })), size: 99 })
    const [row, ...more] = await db.media.updateManyAndReturn({
      where: { id: 'm1' },
      data: { size: { decrement: 1 } },
      select: { size: true },
    })
    expect([row, more]).toEqual([{ size: 0 }, []])
  })
})

it('a raw query returns the same values as Prisma for every type of column', async () => {
  const [createdAt, secret] = [TIMES[3]!, { organizationId: 'o1', scope: 'raw', name: 'N', updatedBy: 'u' }]
  const bytes = new Uint8Array([0, 200, 255])
  await db.secret.create({ data: { ...secret, createdAt, updatedAt: createdAt, ciphertext: bytes } })
  const token = { id: 'raw', organizationId: 'o1', userId: 'u', digest: 'raw', name: 'n', preview: 'p', createdAt }
  await db.token.create({ data: { ...token, scopes: ['a', { b: "ä'\n" }] } })
  await db.organization.update({ where: { id: 'o2' }, data: { mediaBytes: 2n ** 60n + 1n } })
  const ids = ['o1', 'o2']
  const query = Prisma.sql`
    SELECT t."createdAt", t."scopes", t."revokedAt", s."ciphertext", o."mediaBytes", o."running", o."name"
      ${onPostgres ? Prisma.sql`, count(*) OVER (), sum("mediaBytes") OVER (), true AS "yes", o."id" = t."id" AS "no"` : Prisma.empty}
    FROM "Token" t, "Secret" s, "Organization" o
    WHERE t."id" = ${'raw'} AND t."createdAt" = ${createdAt} AND s."scope" = ${'raw'} AND o."id" IN (${Prisma.join(ids)})
    ORDER BY o."id"`
  statements.length = 0
  const rows = await db.$queryRaw<object[]>(query)
  expect(statements).toHaveLength(1)
  expect(rows).toHaveLength(2)
  expect(rows).toEqual(await prisma.$queryRaw(query))
  expect(rows[1]).toMatchObject({
    createdAt,
    revokedAt: null,
    scopes: ['a', { b: "ä'\n" }],
    mediaBytes: 2n ** 60n + 1n,
  })
})

const SPACES = ['public', 'private', 'organization'] as const

beforeAll(async () => {
  const [createdAt, updatedAt] = [TIMES[0]!, TIMES[1]!]
  for (const index of Array(6).keys()) {
    const organizationId = pick(['o1', 'o2'], index)
    const visibility = pick(SPACES, index)
    const space = { id: `s${index}`, organizationId, name: pick(WORDS, index), ownerId: 'u', createdAt, updatedAt }
    await prisma.space.create({ data: { ...space, visibility, archivedAt: pick([null, updatedAt], index) } })
  }
  for (const index of Array(30).keys()) {
    const organizationId = pick(['o1', 'o2'], index)
    const spaceId = index % 3 ? `s${index % 6}` : null
    const task = { id: `t${index}`, organizationId, title: pick(WORDS, index), spaceId, createdAt, updatedAt }
    const status = pick(['pending', 'completed'] as const, Math.floor(index / 2))
    await prisma.task.create({ data: { ...task, status, priority: 'low', createdBy: 'u' } })
  }
})

describe('a filter on relations', () => {
  const { task } = fc.letrec<{ task: Prisma.TaskWhereInput; space: Prisma.SpaceWhereInput }>((tie) => ({
    task: fc.oneof(
      { maxDepth: 3 },
      record({ title: operators(word) }),
      record({ status: fc.constantFrom('pending', 'completed'), space: tie('space') }),
      record({ space: tie('space'), organization: record({ slug: fc.constantFrom('o1', 'o2') }) }),
      record({ OR: fc.array(tie('task'), { minLength: 1, maxLength: 2 }) }),
      record({ AND: fc.array(tie('task'), { maxLength: 2 }) }),
      record({ NOT: tie('task') }),
    ),
    space: fc.oneof(
      { maxDepth: 3 },
      record({ visibility: record({ not: fc.constantFrom(...SPACES) }), archivedAt: fc.constant(null) }),
      record({ name: operators(word) }),
      record({ organization: fc.constant({}), tasks: record({ some: tie('task') }) }),
      record({ tasks: record({ none: tie('task') }) }),
      record({ owner: record({ spaces: record({ some: tie('space') }) }) }),
    ),
  }))

  it('finds, counts and changes the same rows as Prisma, mostly by the fast path', async () => {
    let short = 0
    await fc.assert(
      fc.asyncProperty(task, async (where) => {
        const asked = async (client: PrismaClient) => [
          await client.task.findMany({ where, orderBy: { id: 'asc' }, omit: { title: true, updatedAt: true } }),
          await client.task.count({ where }),
          await client.task.updateMany({ where, data: { updatedAt: TIMES[2]! } }),
        ]
        statements.length = 0
        expect(await asked(db)).toEqual(await asked(prisma))
        short += Number(statements.length === 3)
      }),
      { numRuns: times(100) },
    )
    expect(short).toBeGreaterThan(times(50))
  })
})

describe('an include or select of relations', () => {
  /** Generates arguments for tasks and spaces with their relations, nested. */
  const wanted = fc.letrec<{ task: Prisma.TaskDefaultArgs; space: Prisma.SpaceDefaultArgs }>((tie) => {
    const organization = fc.constantFrom<Prisma.OrganizationDefaultArgs | boolean>(
      true,
      false,
      { select: { slug: true } },
      { omit: { createdAt: true } },
      { include: { media: { where: { size: { lt: 3 } }, orderBy: [{ id: 'asc' }], omit: { createdAt: true } } } },
      { select: { media: { select: { name: true }, orderBy: { id: 'desc' } }, mediaBytes: true } },
    )
    const ofTask = record({ space: fc.oneof(fc.boolean(), tie('space')), organization }, { requiredKeys: [] })
    const tasks = fc
      .tuple(tie('task'), record({ where: record({ title: operators(word) }) }, { requiredKeys: [] }))
      .map(([task, filter]) => ({ ...task, ...filter, orderBy: [{ status: 'asc' }, { id: 'desc' }] }))
    const ofSpace = record({ tasks, organization, owner: fc.boolean() }, { requiredKeys: [] })
    const either = <T extends object, C extends object>(relations: fc.Arbitrary<T>, columns: C) =>
      fc.oneof(
        { maxDepth: 3, depthIdentifier: 'wanted' },
        fc.constant({ select: columns }),
        relations.map((include) => ({ include })),
        relations.map((include) => ({ select: { ...columns, ...include } })),
      )
    return {
      task: either(ofTask, { title: true, createdAt: true }),
      space: either(ofSpace, { name: true, archivedAt: true }),
    } as never
  })

  it('returns the same objects as Prisma at any depth, mostly by the fast path', async () => {
    let short = 0
    await fc.assert(
      fc.asyncProperty(wanted.task, wanted.space, word, async (task, space, title) => {
        const asked = async (client: PrismaClient) => [
          await client.task.findMany({ ...task, where: { title }, orderBy: { id: 'asc' } }),
          await client.space.findMany({ ...space, orderBy: { id: 'asc' }, take: 4 } as Prisma.SpaceFindManyArgs),
          await client.space.findUnique({ ...space, where: { id: 's1' } }),
          await client.space.findFirst({ ...space, where: { id: 'nothing' } }),
        ]
        statements.length = 0
        const found = await asked(db)
        short += Number(statements.length > 4)
        expect(found).toEqual(await asked(prisma))
      }),
      { numRuns: times(100) },
    )
    expect(short).toBeGreaterThan(times(40))
  })

  it('takes one statement per relation, whatever the number of rows', async () => {
    statements.length = 0
    const found = await db.space.findMany({ include: { tasks: { include: { organization: true } }, owner: true } })
    expect(found.length).toBeGreaterThan(2)
    expect(statements).toHaveLength(4)
    expect(await db.space.findMany({ where: { id: 'nothing' }, include: { tasks: true } })).toEqual([])
    expect(statements).toHaveLength(5)
  })
})

describe('a page filtered by one of several values', () => {
  const states = fc.uniqueArray(fc.constantFrom('pending', 'completed', 'in_progress'), { maxLength: 3 })

  it('has the same rows as Prisma, in the same order', async () => {
    const page = fc.record({ states, title: operators(word), take: fc.integer({ min: 1, max: 12 }) })
    await fc.assert(
      fc.asyncProperty(page, fc.boolean(), async ({ states, title, take }, deep) => {
        const status = { in: states as ('pending' | 'completed')[] }
        const where = deep ? { AND: [{ title }, { AND: { status } }], organizationId: 'o1' } : { status, title }
        const asked = async (client: PrismaClient) => [
          await client.task.findMany({ where, take, orderBy: [{ createdAt: 'desc' }, { id: 'desc' }] }),
          await client.task.findMany({ where, take, orderBy: { title: 'asc' }, select: { title: true } }),
          await client.task.findFirst({ where, orderBy: { id: 'asc' }, include: { space: true } }),
          await client.task.findMany({ where, take, skip: 1, orderBy: { id: 'asc' }, select: { title: true } }),
        ]
        expect(await asked(db)).toEqual(await asked(prisma))
      }),
      { numRuns: times(100) },
    )
  })

  it('is read from one index', async () => {
    if (onPostgres) return
    const where = {
      organizationId: 'o1',
      archivedAt: null,
      visibility: { in: ['organization' as const, 'public' as const] },
    }
    const orderBy = [{ createdAt: 'desc' as const }, { id: 'desc' as const }]
    await db.agent.findMany({ where, orderBy, take: 10, select: { id: true, createdAt: true } })
    const plan = await prisma.$queryRawUnsafe<{ detail: string }[]>(
      `EXPLAIN QUERY PLAN ${statements[0]}`,
      'o1',
      'organization',
      'o1',
      'public',
    )
    const searches = plan.filter(({ detail }) => detail.startsWith('SEARCH'))
    expect(searches).toHaveLength(2)
    for (const { detail } of searches) expect(detail).toContain('archivedAt=? AND visibility=?')
  })
})

describe('unique reads in the same turn', () => {
  it('return the same rows as Prisma with one statement per shape', async () => {
    const find = (client: PrismaClient, id: string) =>
      client.task.findUnique({ where: { id }, select: { title: true, space: { select: { name: true } } } })
    const asked = (client: PrismaClient) =>
      Promise.all([
        ...['t1', 't3', 't1', 'nothing', 't4'].map((id) => find(client, id)),
        ...['m1', 'm2'].map((id) => client.media.findUnique({ where: { id } })),
        ...['m3', 'm4'].map((id) => client.media.findUnique({ where: { id }, omit: { name: true } })),
        client.media.findUnique({ where: { id: 'm5', size: 5 } }),
        client.media.findUniqueOrThrow({ where: { organizationId_id: { organizationId: 'o2', id: 'm5' } } }),
        client.media.findUnique({ where: { organizationId_id: { organizationId: 'o1', id: 'm5' } } }),
        client.media.findUniqueOrThrow({ where: { id: 'nothing' } }).catch(({ code }) => code),
      ])
    const found = await asked(db)
    // The statements: tasks, their spaces, media by id with and without a name, media by organization, and one single
    // read.
    expect(statements).toHaveLength(6)
    expect(found).toEqual(await asked(prisma))
    expect(found[0]).not.toBe(found[2])
  })

  it('fail one by one, without failing the valid ones', async () => {
    const find = (call: object) =>
      db.media.findUnique(call as never).then(
        () => 'found',
        (error: Error) => error.name,
      )
    const wrong = [{}, { where: null }, { where: {} }, { where: { id: 1 } }, { where: { nothing: 'm1' } }, { wher: 1 }]
    const limit = { organization: { include: { media: { where: { organization: { mediaBytes: { lt: 5n } } } } } } }
    const right = ['m1', 'm2'].map((id) => ({ where: { id }, include: limit }))
    const refused = wrong.map(() => 'PrismaClientValidationError')
    expect(await Promise.all([...wrong, ...right].map(find))).toEqual([...refused, 'found', 'found'])
  })
})

describe('an upsert', () => {
  it('creates or changes the same row as Prisma', async () => {
    const tryOut = async (client: PrismaClient) => {
      const [first, second] = TIMES.slice(1)
      const email = { email: 'new@example.com', name: 'New', createdAt: first!, updatedAt: first! }
      const user = (id: string, update: Prisma.UserUpdateInput) =>
        client.user.upsert({ where: { email: email.email }, create: { id, ...email }, update })
      const membership = (role: 'owner' | 'member') => {
        const key = { organizationId: 'o1', userId: 'first' }
        const create = { ...key, role, createdAt: first! }
        return client.membership.upsert({ where: { organizationId_userId: key }, create, update: { role } })
      }
      const found = [
        await user('first', {}),
        await user('second', {}),
        await user('third', { name: 'Newer', updatedAt: second! }),
        await membership('member'),
        await membership('owner'),
        await client.membership.findMany({ where: { userId: 'first' } }),
      ]
      await client.user.deleteMany({ where: { id: 'first' } })
      return found
    }
    const found = await tryOut(db)
    expect(statements).toHaveLength(7)
    expect(found).toEqual(await tryOut(prisma))
  })

  it('gives all concurrent callers the same row', async () => {
    const ask = (id: string) => {
      const create = { id, email: 'together@example.com', name: id, createdAt: TIMES[0]!, updatedAt: TIMES[0]! }
      return db.user.upsert({ where: { email: create.email }, create, update: {}, select: { id: true } })
    }
    const found = await Promise.all(['a', 'b', 'c', 'd'].map(ask))
    expect(new Set(found.map(({ id }) => id)).size).toBe(1)
  })
})

describe('a malformed call', () => {
  /** Values that are invalid in most places and valid in a few. */
  const odd = fc.constantFrom<unknown>(
    ...[undefined, null, [], {}, 5, '', 'm1', Prisma.skip, Number.NaN, 1n, true, new Date(Number.NaN), [undefined]],
    ...[{ in: undefined }, { not: Prisma.skip }, { constructor: 'x' }, { equals: null }, { gt: null }, [null]],
  )
  const column = fc.constantFrom('id', 'name', 'size', 'createdAt', 'organizationId', 'nothing', 'constructor')
  const part = fc.oneof(odd, fc.dictionary(column, odd, { maxKeys: 2, noNullPrototype: true }))
  const group = fc.constantFrom('AND', 'OR', 'NOT', 'user', 'organizationId_id')
  const filter = fc.oneof(
    { arbitrary: part, weight: 3 },
    fc.dictionary(group, fc.oneof(part, fc.array(part, { maxLength: 2 })), { maxKeys: 2, noNullPrototype: true }),
    fc.constant({ id: 'm1' }),
  )
  const order = fc.oneof(odd, fc.dictionary(column, fc.constantFrom('asc', 'desc', 'up'), { noNullPrototype: true }))
  // Without an order, the fast path chooses the rows of a page.
  const notNumber = odd.filter((value) => value !== 5)
  const data = fc.oneof(part, record({ name: odd }), record({ size: record({ increment: odd }) }))
  const whole = fc.constant(media(99))
  const arguments_ = record(
    {
      where: filter,
      data: fc.oneof(data, whole),
      create: whole,
      update: data,
      orderBy: order,
      take: notNumber,
      select: part,
    },
    { requiredKeys: [] },
  )
  const methods = {
    findMany: ['where', 'orderBy', 'take', 'select'],
    findFirst: ['where', 'orderBy', 'select'],
    findUnique: ['where', 'select'],
    count: ['where'],
    create: ['data', 'select'],
    update: ['where', 'data'],
    updateMany: ['where', 'data'],
    upsert: ['where', 'create', 'update'],
    deleteMany: ['where'],
  } as const
  const method = fc.constantFrom(...(Object.keys(methods) as (keyof typeof methods)[]))

  /** Returns the outcome of a call in a transaction that is rolled back, and the writes that it logged. */
  async function outcomeOf(client: PrismaClient, name: string, call: object) {
    let outcome: unknown
    let isMalformed = false
    const undo = new Error('undo')
    statements.length = 0
    await client
      .$transaction(async (tx) => {
        const [found] = await Promise.allSettled([
          Promise.try(() => (tx.media as unknown as Record<string, (call: object) => unknown>)[name]?.(call)),
        ])
        outcome = found?.status === 'fulfilled' ? { value: found.value } : 'throws'
        isMalformed = found?.status === 'rejected' && found.reason.name === 'PrismaClientValidationError'
        throw undo
      })
      .catch((error) => expect(error).toBe(undo))
    return { outcome, isMalformed, writes: statements.filter((sql) => !sql.startsWith('SELECT')) }
  }

  it('throws whenever Prisma throws, and writes nothing', async () => {
    let refused = 0
    await fc.assert(
      fc.asyncProperty(method, arguments_, async (name, given) => {
        const call = Object.fromEntries(Object.entries(given).filter(([key]) => methods[name].includes(key as never)))
        const theirs = await outcomeOf(prisma, name, call)
        const ours = await outcomeOf(db, name, call)
        expect(ours.outcome).toEqual(theirs.outcome)
        if (!theirs.isMalformed) return
        expect(ours.writes).toEqual([])
        refused++
      }),
      { numRuns: 400 },
    )
    expect(refused).toBeGreaterThan(200)
  })

  it('is refused as a list of calls for one transaction', async () => {
    await expect(db.$transaction([] as never)).rejects.toThrow('$transaction takes a function')
  })
})

describe('a schema with features that the fast path lacks', () => {
  const fields = [
    'updatedAt DateTime @updatedAt',
    'a String @map("b")',
    'a String @default(uuid())',
    'a String @db.Text',
  ]
  it.each([...fields, '@@map("B")', '@@ignore', '@@unique([a(sort: Desc)])'])('stops the start: %s', (line) => {
    const schema = `model A {\n  id String @id\n  ${line}\n}\n`
    expect(() => tablesOf(POSTGRESQL, schema)).toThrow('the fast path does not support')
  })
})

describe('calls without a fast path go to Prisma', () => {
  it.each<[what: string, call: () => Promise<unknown>]>([
    ['a condition on every related row', () => db.user.findMany({ where: { media: { every: { size: 1 } } } })],
    ['a limit of related rows', () => db.user.findMany({ include: { media: { take: 1 } } })],
    ['a count of related rows', () => db.user.findMany({ include: { _count: { select: { media: true } } } })],
    [
      'a write that returns related rows',
      () => db.media.update({ where: { id: 'm1' }, data: { size: 1 }, include: { user: true } }),
    ],
    ['a pattern', () => db.media.findMany({ where: { name: { startsWith: 'a' } } })],
    ['a Json filter', () => db.token.findMany({ where: { scopes: { equals: ['*'] } } })],
    ['a cursor', () => db.media.findMany({ cursor: { id: 'm3' }, take: 2, orderBy: { id: 'asc' } })],
    ['several negations', () => db.media.findMany({ where: { NOT: [{ size: 1 }, { size: 2 }] } })],
    [
      'an increment in an upsert',
      () => {
        const create = { id: 'o1', name: 'o1', slug: 'o1', createdAt: TIMES[0]! }
        return db.organization.upsert({ where: { id: 'o1' }, create, update: { mediaBytes: { increment: 0 } } })
      },
    ],
    ['sums', () => db.media.groupBy({ by: ['size'], _sum: { size: true } })],
  ])('%s', async (_, call) => {
    await expect(call()).resolves.toBeDefined()
    expect(statements).toEqual([])
  })

  it('missing and invalid values are refused as Prisma refuses them', async () => {
    for (const where of [{}, null, undefined]) {
      await expect(db.media.update({ where: where as never, data: { size: 9 } })).rejects.toThrow('where')
      await db.$transaction((tx) => expect(tx.media.findUnique({ where: where as never })).rejects.toThrow('where'))
    }
    expect(await prisma.media.count({ where: { size: 9 } })).toBe(0)
    const nobody = { where: { id: 'nobody' } }
    await expect(db.media.findFirstOrThrow(nobody)).rejects.toMatchObject({ code: 'P2025' })
    await expect(db.media.update({ ...nobody, data: { size: 1 } })).rejects.toMatchObject({ code: 'P2025' })
    await expect(db.media.findMany({ where: { id: undefined as never } })).rejects.toThrow('undefined')
    await expect(db.media.create({ data: { ...media(1), size: 'x' as never } })).rejects.toThrow('size')
  })
})

describe('a transaction', () => {
  it('sees its own writes by both paths, and others see them only after the commit', async () => {
    await db.$transaction(async (tx) => {
      await tx.media.create({ data: { ...media(1), id: 'new' } })
      expect(await tx.media.findUnique({ where: { id: 'new' } })).toMatchObject({ id: 'new' })
      const withUser = await tx.media.findFirst({ where: { id: 'new', NOT: [{ size: -1 }] }, include: { user: true } })
      expect(withUser?.user.id).toBe('u')
      expect(await db.media.findFirst({ where: { id: 'new' } })).toBeNull()
    })
    expect(await db.media.findFirst({ where: { id: 'new' } })).toMatchObject({ id: 'new' })
  })

  it('rolls back as a whole, whichever path its statements took', async () => {
    const undone = db.$transaction(async (tx) => {
      await tx.media.create({ data: { ...media(1), id: 'short' } })
      await tx.user.update({ where: { id: 'u' }, data: { media: { create: { ...theirs, id: 'long' } } } })
      expect(await tx.media.count({ where: { id: { in: ['short', 'long'] } } })).toBe(2)
      throw new Error('undone')
    })
    const { userId: _, ...theirs } = media(2)
    await expect(undone).rejects.toThrow('undone')
    expect(await db.media.count({ where: { id: { in: ['short', 'long'] } } })).toBe(0)
  })

  it('opens a Prisma transaction only if a statement needs one', async () => {
    const begun = vi.spyOn(prisma, '$transaction')
    await db.$transaction((tx) => tx.media.updateMany({ data: { name: 'new' } }))
    expect(begun).toHaveBeenCalledTimes(0)
    await db.$transaction((tx) =>
      Promise.all([tx.media.aggregate({ _sum: { size: true } }), tx.media.findMany({ where: { NOT: [{ size: 1 }] } })]),
    )
    expect(begun).toHaveBeenCalledTimes(1)
    begun.mockRestore()
  })

  it('rolls back after its time limit and frees the database for the next transaction', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const begun = Promise.withResolvers<void>()
    const go = Promise.withResolvers<void>()
    const slow = db.$transaction(async (tx) => {
      await tx.media.create({ data: { ...media(1), id: 'slow' } })
      begun.resolve()
      await go.promise
      await tx.media.deleteMany()
    })
    await begun.promise
    vi.advanceTimersByTime(TRANSACTION.timeout / 2)
    const waiting = db.$transaction((tx) => tx.media.create({ data: { ...media(1), id: 'waited' } }))
    vi.advanceTimersByTime(TRANSACTION.timeout / 2)
    vi.useRealTimers()
    await waiting
    go.resolve()
    const error = await slow.catch((error: unknown) => error)
    expect([isUnavailable(error), troubleIn(error)?.detail]).toEqual([
      true,
      expect.stringContaining('longer than 10 s'),
    ])
    expect(await db.media.count({ where: { id: { in: ['slow', 'waited'] } } })).toBe(1)
  })

  it('never happens if it waits too long to begin', async () => {
    const go = Promise.withResolvers<void>()
    const others = Array.from({ length: AT_ONCE }, () => {
      const begun = Promise.withResolvers<void>()
      const ended = db.$transaction(async (tx) => {
        await tx.media.count()
        begun.resolve()
        await go.promise
      })
      return { begun: begun.promise, ended }
    })
    await Promise.all(others.map(({ begun }) => begun))
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const refused = db
      .$transaction((tx) => tx.media.create({ data: { ...media(1), id: 'refused' } }))
      .catch((error: unknown) => error)
    vi.advanceTimersByTime(TRANSACTION.maxWait)
    vi.useRealTimers()
    expect(isUnavailable(await refused)).toBe(true)
    go.resolve()
    await Promise.all(others.map(({ ended }) => ended))
    expect(await db.media.count({ where: { id: 'refused' } })).toBe(0)
    await db.media.create({ data: { ...media(1), id: 'next' } })
  })

  it('refuses statements after its end', async () => {
    const { left } = await db.$transaction(async (tx) => ({ left: tx }))
    const failure = await left.media.deleteMany({ where: { id: 'm1' } }).catch((error: unknown) => error)
    expect(isUnavailable(failure)).toBe(true)
    expect(await db.media.count({ where: { id: 'm1' } })).toBe(1)
  })
})

it('a unique violation is recognized outside and inside a transaction', async () => {
  const taken = await db.media.create({ data: media(1) }).catch((error: unknown) => error)
  expect(isUniqueViolation(taken)).toBe(true)
  const inside = await db.$transaction((tx) => tx.media.create({ data: media(1) })).catch((error: unknown) => error)
  expect(isUniqueViolation(inside)).toBe(true)
})

describe.runIf(onPostgres)('on PostgreSQL', () => {
  const idsOf = async (...ids: string[]) =>
    (await prisma.media.findMany({ where: { id: { in: ids } }, orderBy: { id: 'asc' } })).map(({ id }) => id)
  const failureOf = (promise: Promise<unknown>) => promise.then(() => null).catch((error: unknown) => error)

  it('a time means the same, alone and in a list, in every time zone of the process', async () => {
    const createdAt = TIMES[3]!
    vi.stubEnv('TZ', 'Asia/Kathmandu')
    onTestFinished(() => void vi.unstubAllEnvs())
    expect(new Date(0).getHours()).toBe(5)
    await db.media.create({ data: { ...media(1), id: 'timed', createdAt } })
    expect(await db.media.findFirst({ where: { id: 'timed', createdAt } })).toMatchObject({ createdAt })
    expect(await db.media.count({ where: { id: 'timed', createdAt: { in: [createdAt] } } })).toBe(1)
    expect(await prisma.media.findFirst({ where: { id: 'timed' } })).toMatchObject({ createdAt })
  })

  it('a transaction with a failed statement rolls back and throws, even if the caller caught it', async () => {
    const failure = await failureOf(
      db.$transaction(async (tx) => {
        await tx.media.create({ data: { ...media(1), id: 'lost' } })
        await tx.media.create({ data: media(1) }).catch(() => {})
      }),
    )
    expect(isUniqueViolation(failure)).toBe(true)
    expect(await idsOf('lost')).toEqual([])
  })

  it('a deferred insert that fails makes every later statement fail and rolls back', async () => {
    const went = vi.fn()
    const failing = (after: (tx: Prisma.TransactionClient) => Promise<unknown>) =>
      failureOf(
        db.$transaction(async (tx) => {
          await tx.media.createMany({ data: { ...media(1), id: 'lost' } })
          await tx.media.createMany({ data: media(1) }).then(went)
          await after(tx)
        }),
      )
    expect(isUniqueViolation(await failing(async () => {}))).toBe(true)
    expect(isUniqueViolation(await failing((tx) => tx.media.createMany({ data: { ...media(1), id: 'after' } })))).toBe(
      true,
    )
    expect(isUniqueViolation(await failing((tx) => tx.media.count()))).toBe(true)
    expect(went.mock.calls).toEqual([[{ count: 1 }], [{ count: 1 }], [{ count: 1 }]])
    expect(await idsOf('lost', 'after')).toEqual([])
  })

  it('sums of concurrent transactions are added up, except those of a failed one', async () => {
    const keys = ['organizationId', 'date', 'agentId', 'model', 'userId'] as const
    const addToDay = addsTo('UsageDay', keys, ['executions', 'failed', 'inputTokens', 'outputTokens'])
    const sums = () => db.usageDay.findMany({ where: { date: 'sums' }, orderBy: { agentId: 'asc' } })
    const add = (agentId: string, id: string, inputTokens: number) =>
      db.$transaction(async (tx) => {
        const key = { organizationId: 'o1', date: 'sums', agentId, model: '', userId: '' }
        const amounts = { executions: 1, failed: 0, inputTokens, outputTokens: 2 ** 40 }
        expect(await tx.$executeRaw(addToDay({ ...key, ...amounts }))).toBe(1)
        await tx.media.createMany({ data: { ...media(1), id } })
      })
    const added = [add('a', 'sum 1', 1), add('b', 'sum 2', 2), add('a', 'm1', 4), add('b', 'sum 3', 8)]
    const answers = await Promise.allSettled(added)
    expect(answers.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected', 'fulfilled'])
    await add('a', 'sum 4', 16)
    expect(await sums()).toMatchObject([
      { agentId: 'a', executions: 2, inputTokens: 17n, outputTokens: 2n ** 41n },
      { agentId: 'b', executions: 2, inputTokens: 10n, outputTokens: 2n ** 41n },
    ])
    expect(await idsOf('sum 1', 'sum 2', 'sum 3', 'sum 4')).toHaveLength(4)
  })

  it('a lock of fewer rows than expected fails its transaction without being awaited', async () => {
    const lockAndAdd = (rows: number, id: string) =>
      db.$transaction(async (tx) => {
        const locked = Prisma.sql`SELECT "id" FROM "Media" WHERE "id" IN (${'m1'}, ${'missing'}) FOR UPDATE`
        expect(await tx.$executeRaw(locksRows('Media', locked, rows))).toBe(rows)
        await tx.media.updateMany(expectsOne({ where: { id: 'm1' }, data: { size: 3 } }))
        await tx.usageDay.createMany({ data: { ...USAGE, agentId: id } })
      })
    expect(isUnexpectedCount(await failureOf(lockAndAdd(2, 'too few')))).toBe(true)
    await lockAndAdd(1, 'locked')
    expect(await db.usageDay.findMany({ where: { date: USAGE.date } })).toMatchObject([{ agentId: 'locked' }])
  })

  it('later statements see all deferred inserts, in their order', async () => {
    const made = Array.from({ length: 100 }, (_, index) => ({ ...media(index), id: `in order ${index}` }))
    await db.$transaction(async (tx) => {
      for (const data of made) {
        await tx.media.createMany({ data })
        await tx.media.updateMany({ where: { id: data.id, mimeType: data.mimeType }, data: { mimeType: 'seen' } })
      }
      expect(await tx.media.count({ where: { mimeType: 'seen' } })).toBe(100)
    })
  })

  it('an expected update that matches no row fails its transaction without being awaited', async () => {
    const rename = (id: string) => expectsOne({ where: { id }, data: { name: 'renamed' } })
    const renamed = () => db.media.count({ where: { name: 'renamed' } })
    const missing = db.$transaction(async (tx) => {
      expect(await tx.media.updateMany(rename('m1'))).toEqual({ count: 1 })
      expect(await tx.media.updateMany(rename('missing'))).toEqual({ count: 1 })
    })
    expect(isUnexpectedCount(await failureOf(missing))).toBe(true)
    expect(await renamed()).toBe(0)
    await db.$transaction((tx) => tx.media.updateMany(rename('m1')))
    expect(await renamed()).toBe(1)
  })

  it('a failed statement is prepared again with its next execution, and so are those behind it', async () => {
    const adapter = await postgresqlAdapter(shared!.url, 1)
    const one = createFastClient(() => postgresqlClient({ adapter }), adapter)
    const insert = (id: string) =>
      one.$transaction(async (tx) => {
        await tx.media.createMany({ data: { ...media(1), id } })
        await tx.media.updateMany({ where: { id }, data: { size: 7 } })
      })
    // The insert fails at its first execution on the connection, and PostgreSQL skips the update.
    expect(isUniqueViolation(await failureOf(insert('m1')))).toBe(true)
    await insert('prepared again')
    expect(await one.media.count({ where: { id: 'prepared again', size: 7 } })).toBe(1)
    await (await adapter.connect()).dispose()
  })

  it('concurrent queries that share connections get their own answers, and fail alone', async () => {
    const adapter = await postgresqlAdapter(shared!.url, 2)
    const many = createFastClient(() => postgresqlClient({ adapter }), adapter)
    const lengthOf = (divisor: number) =>
      many.$queryRaw<{ length: number }[]>(Prisma.sql`SELECT 12 / ${divisor}::int AS "length"`)
    for (let count = 0; count < 3; count++) await lengthOf(1)
    const all = await Promise.all(Array.from({ length: 40 }, (_, index) => lengthOf(index % 4).catch(() => null)))
    expect(all).toEqual(Array.from({ length: 40 }, (_, index) => (index % 4 ? [{ length: 12 / (index % 4) }] : null)))
    await (await adapter.connect()).dispose()
  })

  it('transactions that are committed together fail alone, and with their own error', async () => {
    const insert = (id: string) => db.$transaction((tx) => tx.media.createMany({ data: { ...media(1), id } }))
    const ids = Array.from({ length: 50 }, (_, index) => `group ${index}`)
    const failures = await Promise.all([...ids, 'm1', 'm2'].map((id) => failureOf(insert(id))))
    expect(failures.slice(0, 50)).toEqual(ids.map(() => null))
    expect(failures.slice(50).map(isUniqueViolation)).toEqual([true, true])
    expect(await db.media.count({ where: { id: { startsWith: 'group ' } } })).toBe(50)
  })

  it('connections prepare short statements with one plan only, and none behind a pooler', async () => {
    const preparedBy = async (pooled: boolean) => {
      const adapter = await postgresqlAdapter(shared!.url, 1, { pooled })
      const one = createFastClient(() => postgresqlClient({ adapter }), adapter)
      await one.media.findFirst({ where: { id: 'm1' } })
      await one.media.findFirst({ where: { size: 1 } })
      await one.media.findFirst({ where: { size: 1 }, orderBy: { id: 'asc' } })
      await one.$transaction((tx) => tx.media.updateMany({ where: { id: 'none' }, data: { size: 1 } }))
      await one.media.findMany({ where: { OR: Array.from({ length: 1600 }, (_, size) => ({ size })) } })
      await countOf(one, { table: 'Agent', organizationId: 'none', given: [], hidden: [] })
      const sql = Prisma.sql`SELECT "statement" FROM pg_prepared_statements
        WHERE "statement" ~ '^\\s*(SELECT "id"|SELECT sum|COMMIT)'`
      const found = await one.$queryRaw<{ statement: string }[]>(sql)
      await (await adapter.connect()).dispose()
      return found.map(({ statement }) => statement.replace(/^SELECT .* FROM "Media" /, '')).sort()
    }
    const once = ['COMMIT', 'WHERE "id" = $1 LIMIT 1', 'WHERE "size" = $1 ORDER BY "id" ASC LIMIT 1']
    expect(await preparedBy(false)).toEqual(once)
    expect(await preparedBy(true)).toEqual([])
  })

  it('a transaction whose commit fails rolls back and throws', async () => {
    await runSql(
      shared!.url,
      `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
      CREATE CONSTRAINT TRIGGER refused AFTER INSERT ON "Media" DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW."name" = 'refused') EXECUTE FUNCTION refuse()`,
    )
    const data = [
      { ...media(1), id: 'refused', name: 'refused' },
      { ...media(1), id: 'with it' },
    ]
    await expect(db.$transaction((tx) => tx.media.createMany({ data }))).rejects.toThrow('refused')
    expect(await idsOf('refused', 'with it')).toEqual([])
  })

  it('a lost connection fails its transaction, and the next one takes another connection', async () => {
    const lost = await failureOf(
      db.$transaction(async (tx) => {
        await tx.media.create({ data: { ...media(1), id: 'lost' } })
        const [row] = await tx.$queryRaw<{ pid: number }[]>(Prisma.sql`SELECT pg_backend_pid() AS "pid"`)
        await prisma.$queryRaw`SELECT pg_terminate_backend(${row?.pid}::int)`
        await tx.media.create({ data: { ...media(1), id: 'lost too' } })
      }),
    )
    expect(isUnavailable(lost)).toBe(true)
    // A read would be repeated.
    const query = failureOf(db.$executeRaw(Prisma.raw('DO $$ BEGIN PERFORM pg_sleep(60); END $$')))
    const end = `SELECT pg_terminate_backend("pid") FROM pg_stat_activity WHERE "query" LIKE 'DO %pg_sleep%'`
    await expect.poll(() => prisma.$queryRawUnsafe<unknown[]>(end)).toHaveLength(1)
    expect(isUnavailable(await query)).toBe(true)
    const all = Array.from({ length: AT_ONCE }, (_, index) =>
      db.$transaction((tx) => tx.media.create({ data: { ...media(1), id: `next ${index}` } })),
    )
    await Promise.all(all)
    expect(await idsOf('lost', 'lost too', 'next 0', 'next 1', 'next 2')).toEqual(['next 0', 'next 1', 'next 2'])
  })

  it('a transaction is stored exactly if its commit succeeded, whichever connections end', async () => {
    // Uses its own connections, so that those of other tests live.
    const adapter = await postgresqlAdapter(`${shared!.url}?application_name=ending`, 3)
    const ending = retryTransactions(createFastClient(() => postgresqlClient({ adapter }), adapter))
    let attempts = 0
    const outcomes = new Map<string, boolean>()
    const insert = async (index: number) => {
      const failure = await failureOf(
        ending.$transaction(async (tx) => {
          attempts++
          for (const part of [1, 2, 3])
            await tx.media.createMany({ data: { ...media(1), id: `ends ${index} ${part}` } })
        }),
      )
      outcomes.set(`ends ${index}`, failure === null)
      expect(failure === null || isUnavailable(failure), String(failure)).toBe(true)
    }
    const end = `SELECT pg_terminate_backend("pid") FROM pg_stat_activity
      WHERE "application_name" = 'ending' ORDER BY random() LIMIT 1`
    // All of them may be stored before a busy machine has ended a connection.
    while (attempts === outcomes.size) {
      const started = outcomes.size
      const all = Array.from({ length: 400 }, (_, index) => insert(started + index))
      while (outcomes.size < started + all.length) await runSql(shared!.url, end)
      await Promise.all(all)
    }
    await (await adapter.connect()).dispose()
    const rows = await prisma.media.findMany({ where: { id: { startsWith: 'ends ' } }, select: { id: true } })
    const found = Map.groupBy(rows, ({ id }) => id.slice(0, id.lastIndexOf(' ')))
    for (const [name, committed] of outcomes)
      expect([name, found.get(name)?.length ?? 0]).toEqual([name, committed ? 3 : 0])
  })

  it('a statement that times out counts as unavailability, and the next one reconnects', async () => {
    const adapter = await postgresqlAdapter(shared!.url, 1, { statementTimeout: 200 })
    const hasty = createFastClient(() => postgresqlClient({ adapter }), adapter)
    const failures = [
      await failureOf(hasty.$queryRaw(Prisma.sql`SELECT pg_sleep(60)::text`)),
      await failureOf(
        hasty.$transaction(async (tx) => {
          await tx.media.createMany({ data: { ...media(1), id: 'unanswered' } })
          await tx.$queryRaw(Prisma.sql`SELECT pg_sleep(60)::text`)
        }),
      ),
    ]
    expect(failures.map(isUnavailable)).toEqual([true, true])
    await hasty.$transaction((tx) => tx.media.createMany({ data: { ...media(1), id: 'answered' } }))
    expect(await idsOf('unanswered', 'answered')).toEqual(['answered'])
    await (await adapter.connect()).dispose()
  })

  it('PostgreSQL compiles no statements, which takes longer than executing them', async () => {
    expect(await db.$queryRaw<unknown[]>(Prisma.sql`SELECT current_setting('jit') AS "jit"`)).toEqual([{ jit: 'off' }])
  })

  it('the database ends an idle transaction, which counts as unavailability', async () => {
    const [limit] = await prisma.$queryRaw<{ ms: string }[]>`
      SELECT "setting" AS "ms" FROM pg_settings WHERE "name" = 'idle_in_transaction_session_timeout'`
    expect(Number(limit?.ms)).toBe(TRANSACTION.timeout)
    const ended = db.$transaction(async (tx) => {
      await tx.media.createMany({ data: { ...media(1), id: 'abandoned' } })
      const [own] = await tx.$queryRaw<{ pid: number }[]>(Prisma.sql`SELECT pg_backend_pid() AS "pid"`)
      await tx.$executeRaw(Prisma.sql`SET LOCAL idle_in_transaction_session_timeout = 20`)
      const alive = () => prisma.$queryRaw<unknown[]>`SELECT FROM pg_stat_activity WHERE "pid" = ${own?.pid}::int`
      await expect.poll(alive).toEqual([])
      await tx.media.count()
    })
    expect(isUnavailable(await failureOf(ended))).toBe(true)
    expect(await idsOf('abandoned')).toEqual([])
  })

  it("a failure on the client's side rolls back the transaction, even if the caller caught it", async () => {
    const failure = await failureOf(
      db.$transaction(async (tx) => {
        await tx.media.createMany({ data: { ...media(1), id: 'unseen' } })
        await tx.$queryRaw(Prisma.sql`SELECT ROW(1, 2)`).catch(() => {})
      }),
    )
    expect(failure).toMatchObject({ cause: { kind: 'UnsupportedNativeDataType' } })
    expect(await idsOf('unseen')).toEqual([])
  })

  it('one of two deadlocked transactions is retried, by either path', async () => {
    const retrying = retryTransactions(db)
    let attempts = 0
    const met = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const crossing = (own: number) =>
      retrying.$transaction(async (tx) => {
        attempts++
        const [first, second] = own ? ['m1', 'm0'] : ['m0', 'm1']
        await tx.media.updateMany({ where: { id: first! }, data: { size: { increment: 100 } } })
        met[own]?.resolve()
        await Promise.all(met.map(({ promise }) => promise))
        // The relation sends this call to Prisma.
        if (own)
          await tx.media.update({ where: { id: second! }, data: { size: { increment: 100 } }, include: { user: true } })
        else await tx.media.updateMany({ where: { id: second! }, data: { size: { increment: 100 } } })
      })
    await Promise.all([crossing(0), crossing(1)])
    expect(attempts).toBeGreaterThan(2)
    const rows = await prisma.media.findMany({ where: { id: { in: ['m0', 'm1'] } }, orderBy: { id: 'asc' } })
    expect(rows.map(({ size }) => size)).toEqual([200, 201])
  })

  it('rows created together take one statement if they set the same columns', async () => {
    const rows = [
      { ...media(0), id: 'a' },
      { ...media(1), id: 'b' },
    ]
    await db.$transaction(async (tx) => {
      statements.length = 0
      expect(await tx.media.createMany({ data: rows })).toEqual({ count: 2 })
      expect(statements).toHaveLength(1)
      expect(await tx.media.createMany({ data: [] })).toEqual({ count: 0 })
      const token = { organizationId: 'o1', userId: 'u', name: 'n', preview: 'p', scopes: [], createdAt: TIMES[0]! }
      const tokens = [
        { id: 'c', digest: 'c', ...token },
        { id: 'd', digest: 'd', ...token, revokedAt: TIMES[0]! },
      ]
      expect(await tx.token.createMany({ data: tokens })).toEqual({ count: 2 })
    })
    expect(await prisma.media.findMany({ where: { id: { in: ['a', 'b'] } }, orderBy: { id: 'asc' } })).toEqual(rows)
    expect(await prisma.token.findMany({ where: { id: { in: ['c', 'd'] } }, select: { revokedAt: true } })).toEqual([
      { revokedAt: null },
      { revokedAt: TIMES[0]! },
    ])
  })
})
