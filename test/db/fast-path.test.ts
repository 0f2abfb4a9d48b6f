import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { Prisma, type PrismaClient } from '../../prisma/generated/sqlite/client.ts'
import { POSTGRESQL } from '../../src/db/fast-path/index.ts'
import { tablesOf } from '../../src/db/fast-path/schema.ts'
import { isUniqueViolation } from '../../src/lib/database-errors.ts'
import { withByteBudget } from '../../src/lib/page.ts'
import { onPostgres, times } from '../support/postgres-shared.ts'
import { use } from '../support/use.ts'
import { media, openFastPathLab, pick, TIMES, WORDS } from './fast-path-lab.ts'

const { prisma, db, statements } = await use(openFastPathLab())

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

  it('creates all rows or none outside a transaction', async () => {
    const create = (ids: unknown[]) => db.media.createMany({ data: ids.map((id) => ({ ...media(0), id })) as never })
    const stored = () => prisma.media.count({ where: { id: { startsWith: 'whole' } } })
    const doubled = await create(['whole 1', 'whole 2', 'whole 1']).catch((error: unknown) => error)
    expect(isUniqueViolation(doubled)).toBe(true)
    expect(await stored()).toBe(0)
    await expect(create(['whole 1', null])).rejects.toThrow()
    expect(await stored()).toBe(0)
    expect(await create(['whole 1', 'whole 2'])).toEqual({ count: 2 })
    expect(await stored()).toBe(2)
    await prisma.media.deleteMany({ where: { id: { startsWith: 'whole' } } })
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
