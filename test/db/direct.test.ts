import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { type Prisma, PrismaClient } from '../../prisma/generated/sqlite/client.ts'
import { direct } from '../../src/db/direct.ts'
import { TRANSACTION } from '../../src/db/limits.ts'
import { migrateSqlite } from '../../src/db/migrate.ts'
import { sqliteAdapter } from '../../src/db/sqlite.ts'
import { isUnavailable, isUniqueViolation } from '../../src/lib/database-errors.ts'

const folder = mkdtempSync(join(tmpdir(), 'muster-direct-'))
/** Prisma as it is, and the short way over it; both on the same connections. */
let prisma: PrismaClient
let db: PrismaClient
const told: string[] = []

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

beforeAll(async () => {
  const file = join(folder, 'test.db')
  await migrateSqlite(file)
  const adapter = sqliteAdapter(file)
  prisma = new PrismaClient({ adapter })
  await prisma.$connect()
  db = direct(prisma, adapter, (sql) => told.push(sql))
  const [createdAt, updatedAt] = [new Date(), new Date()]
  for (const id of ['o1', 'o2']) await db.organization.create({ data: { id, name: id, slug: id, createdAt } })
  await db.user.create({ data: { id: 'u', email: 'u@example.com', name: 'U', createdAt, updatedAt } })
})
beforeEach(async () => {
  await prisma.media.deleteMany()
  await prisma.media.createMany({ data: Array.from({ length: ROWS }, (_, index) => media(index)) })
  told.length = 0
})
afterAll(async () => {
  await prisma.$disconnect()
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
})

const word = fc.constantFrom(...WORDS)
const time = fc.constantFrom(...TIMES)
const number = fc.integer({ min: -1, max: 8 })
const operators = <T>(value: fc.Arbitrary<T>) =>
  fc.oneof(
    value,
    fc.record({ equals: value }),
    fc.record({ not: value }),
    fc.record({ in: fc.array(value, { maxLength: 3 }) }),
    fc.record({ notIn: fc.array(value, { maxLength: 3 }) }),
    fc.record({ gte: value, lt: value }),
    fc.record({ gt: value }),
    fc.record({ lte: value }),
  )
const where: fc.Arbitrary<Prisma.MediaWhereInput> = fc.letrec<{ filter: Prisma.MediaWhereInput }>((tie) => ({
  filter: fc.oneof(
    { maxDepth: 3 },
    fc.record(
      {
        name: operators(word),
        size: operators(number),
        createdAt: operators(time),
        organizationId: fc.constantFrom('o1', 'o2', 'o3'),
      },
      { requiredKeys: [] },
    ),
    fc.record({ AND: fc.array(tie('filter'), { maxLength: 2 }) }),
    fc.record({ OR: fc.array(tie('filter'), { minLength: 1, maxLength: 3 }) }),
    fc.record({ AND: tie('filter'), size: operators(number) }),
  ),
})).filter

const orderBy = fc.constantFrom<Prisma.MediaOrderByWithRelationInput[]>(
  [{ id: 'asc' }],
  [{ createdAt: 'desc' }, { id: 'desc' }],
  [{ name: 'asc' }, { size: 'desc' }, { id: 'asc' }],
)
const call = fc.record(
  {
    where,
    orderBy,
    take: fc.integer({ min: 1, max: 50 }),
    select: fc.constantFrom({ id: true }, { name: true, createdAt: true, size: true }),
  },
  { requiredKeys: ['orderBy'] },
)

describe('a call that concerns one table', () => {
  it('finds and counts what Prisma finds, mostly without it', async () => {
    let simple = 0
    await fc.assert(
      fc.asyncProperty(call, async ({ take, ...args }) => {
        const page = take === undefined ? args : { ...args, take }
        const asked = async (client: PrismaClient) => [
          await client.media.findMany(page),
          await client.media.findFirst(args),
          await client.media.count({ where: args.where ?? {} }),
        ]
        told.length = 0
        expect(await asked(db)).toEqual(await asked(prisma))
        simple += Number(told.length === 3)
      }),
      { numRuns: 300 },
    )
    expect(simple).toBeGreaterThan(50)
  })

  it('changes and deletes what Prisma changes and deletes', async () => {
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
      { numRuns: 60 },
    )
    expect(await all()).toEqual(before)
  })

  it('makes what Prisma makes, every type and default of it', async () => {
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
    told.length = 0
    expect(await made(db, 'short')).toEqual(await made(prisma, 'long'))
    expect(told).toHaveLength(6)
    const stored = (client: PrismaClient, id: string) => client.usageDay.findFirst({ where: { date: id } })
    expect((await stored(db, 'long'))?.inputTokens).toBe(2n ** 53n + 1n)
    expect((await stored(prisma, 'short'))?.inputTokens).toBe(2n ** 53n + 1n)
  })

  it('returns the rows it has changed', async () => {
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

describe('a filter by what is related', () => {
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

  const { task } = fc.letrec<{ task: Prisma.TaskWhereInput; space: Prisma.SpaceWhereInput }>((tie) => ({
    task: fc.oneof(
      { maxDepth: 3 },
      fc.record({ title: operators(word) }),
      fc.record({ status: fc.constantFrom('pending', 'completed'), space: tie('space') }),
      fc.record({ space: tie('space'), organization: fc.record({ slug: fc.constantFrom('o1', 'o2') }) }),
      fc.record({ OR: fc.array(tie('task'), { minLength: 1, maxLength: 2 }) }),
      fc.record({ AND: fc.array(tie('task'), { maxLength: 2 }) }),
    ),
    space: fc.oneof(
      { maxDepth: 3 },
      fc.record({ visibility: fc.record({ not: fc.constantFrom(...SPACES) }), archivedAt: fc.constant(null) }),
      fc.record({ name: operators(word) }),
      fc.record({ organization: fc.constant({}), tasks: fc.record({ some: tie('task') }) }),
      fc.record({ tasks: fc.record({ none: tie('task') }) }),
      fc.record({ owner: fc.record({ spaces: fc.record({ some: tie('space') }) }) }),
    ),
  }))

  it('finds, counts and changes what Prisma finds, counts and changes, mostly without it', async () => {
    let short = 0
    await fc.assert(
      fc.asyncProperty(task, async (where) => {
        const asked = async (client: PrismaClient) => [
          await client.task.findMany({ where, orderBy: { id: 'asc' }, omit: { title: true, updatedAt: true } }),
          await client.task.count({ where }),
          await client.task.updateMany({ where, data: { updatedAt: TIMES[2]! } }),
        ]
        told.length = 0
        expect(await asked(db)).toEqual(await asked(prisma))
        short += Number(told.length === 3)
      }),
      { numRuns: 200 },
    )
    expect(short).toBeGreaterThan(40)
  })
})

describe('everything else is Prisma’s', () => {
  it.each<[what: string, call: () => Promise<unknown>]>([
    ['every one of a relation', () => db.user.findMany({ where: { media: { every: { size: 1 } } } })],
    ['a relation that is wanted too', () => db.media.findMany({ include: { user: true } })],
    ['a pattern', () => db.media.findMany({ where: { name: { contains: 'a' } } })],
    ['a Json filter', () => db.token.findMany({ where: { scopes: { equals: ['*'] } } })],
    ['a cursor', () => db.media.findMany({ cursor: { id: 'm3' }, take: 2, orderBy: { id: 'asc' } })],
    ['a negation', () => db.media.findMany({ where: { NOT: { size: 1 } } })],
    ['groups', () => db.media.groupBy({ by: ['size'], _count: true })],
  ])('%s', async (_, call) => {
    await expect(call()).resolves.toBeDefined()
    expect(told).toEqual([])
  })

  it('what is missing, and what is no value, is refused as Prisma refuses it', async () => {
    const nobody = { where: { id: 'nobody' } }
    await expect(db.media.findFirstOrThrow(nobody)).rejects.toMatchObject({ code: 'P2025' })
    await expect(db.media.update({ ...nobody, data: { size: 1 } })).rejects.toMatchObject({ code: 'P2025' })
    await expect(db.media.findMany({ where: { id: undefined as never } })).rejects.toThrow('undefined')
    await expect(db.media.create({ data: { ...media(1), size: 'x' as never } })).rejects.toThrow('size')
  })
})

describe('a transaction', () => {
  it('sees what it has written, by either way, and others do not until it is done', async () => {
    await db.$transaction(async (tx) => {
      await tx.media.create({ data: { ...media(1), id: 'new' } })
      expect(await tx.media.findUnique({ where: { id: 'new' } })).toMatchObject({ id: 'new' })
      const withUser = await tx.media.findFirst({ where: { id: 'new' }, include: { user: true } })
      expect(withUser?.user.id).toBe('u')
      expect(await db.media.findFirst({ where: { id: 'new' } })).toBeNull()
    })
    expect(await db.media.findFirst({ where: { id: 'new' } })).toMatchObject({ id: 'new' })
  })

  it('is undone as a whole, whichever way its statements went', async () => {
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

  it('is begun by Prisma only where it has to be', async () => {
    const begun = vi.spyOn(prisma, '$transaction')
    await db.$transaction((tx) => tx.media.updateMany({ data: { name: 'new' } }))
    expect(begun).toHaveBeenCalledTimes(0)
    await db.$transaction((tx) =>
      Promise.all([tx.media.findFirst({ include: { user: true } }), tx.media.findMany({ include: { user: true } })]),
    )
    expect(begun).toHaveBeenCalledTimes(1)
    begun.mockRestore()
  })

  it('that lasts too long is undone and frees the database; who waits too long for it is told so', async () => {
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
    expect(isUnavailable(await slow.catch((error: unknown) => error))).toBe(true)
    expect(await db.media.count({ where: { id: { in: ['slow', 'waited'] } } })).toBe(1)
  })

  it('that has to wait too long to begin is refused, and never happens', async () => {
    const go = Promise.withResolvers<void>()
    const begun = Promise.withResolvers<void>()
    const first = db.$transaction(async () => {
      begun.resolve()
      await go.promise
    })
    await begun.promise
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const refused = db
      .$transaction((tx) => tx.media.create({ data: { ...media(1), id: 'refused' } }))
      .catch((error: unknown) => error)
    vi.advanceTimersByTime(TRANSACTION.maxWait)
    vi.useRealTimers()
    expect(isUnavailable(await refused)).toBe(true)
    go.resolve()
    await first
    expect(await db.media.count({ where: { id: 'refused' } })).toBe(0)
    await db.media.create({ data: { ...media(1), id: 'next' } })
  })

  it('that has ended takes no more statements', async () => {
    const { left } = await db.$transaction(async (tx) => ({ left: tx }))
    const failure = await left.media.deleteMany({ where: { id: 'm1' } }).catch((error: unknown) => error)
    expect(isUnavailable(failure)).toBe(true)
    expect(await db.media.count({ where: { id: 'm1' } })).toBe(1)
  })
})

it('a key that is taken is told as such', async () => {
  const taken = await db.media.create({ data: media(1) }).catch((error: unknown) => error)
  expect(isUniqueViolation(taken)).toBe(true)
  const inside = await db.$transaction((tx) => tx.media.create({ data: media(1) })).catch((error: unknown) => error)
  expect(isUniqueViolation(inside)).toBe(true)
})
