import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Database, openDatabase, Prisma } from '../../src/db/client.ts'
import { isUnavailable, isUniqueViolation } from '../../src/lib/database-errors.ts'
import { createLog } from '../../src/lib/log.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type Postgres, startPostgres } from '../support/postgres.ts'

const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => 'no failure',
    (error: unknown) => error,
  )

const createdAt = new Date('2026-01-02T03:04:05.678Z')

/** Every way in which a unique key is met twice, and some that look like it. */
async function violations({ client }: Database) {
  const data = { id: 'a', name: 'a', slug: 'a', createdAt }
  const membership = { organizationId: 'nowhere', userId: 'nobody', role: 'member' as const, createdAt }
  await client.organization.create({ data })
  return {
    unique: await Promise.all([
      failure(client.organization.create({ data })),
      failure(client.organization.create({ data: { ...data, id: 'b' } })),
      failure(client.$transaction((tx) => tx.organization.create({ data: { ...data, id: 'b' } }))),
      failure(client.$executeRaw`INSERT INTO "Organization" SELECT * FROM "Organization"`),
    ]),
    other: [
      await failure(client.membership.create({ data: membership })),
      await failure(client.organization.update({ where: { id: 'c' }, data: { name: 'b' } })),
      await failure(client.$queryRaw`SELECT nothing`),
      new Error('P2002'),
      'P2002',
      null,
    ],
  }
}

const SECRET = 'canary-value-51b0c7'

/** What is logged of statements that fail, each with a value of its own. */
async function logged({ client }: Database): Promise<string[]> {
  const lines: string[] = []
  const log = createLog('info', { write: (line) => void lines.push(line) })
  const data = { id: SECRET, name: SECRET, slug: SECRET, createdAt }
  await client.organization.create({ data })
  const errors = [
    await failure(client.organization.create({ data })),
    await failure(client.organization.create({ data: { ...data, slug: 5 as never } })),
    await failure(client.organization.count({ where: { name: SECRET, running: 1e19 } })),
    await failure(client.$executeRaw`INSERT INTO "Organization" SELECT ${SECRET}`),
    await failure(client.$transaction((tx) => tx.$queryRaw`SELECT CAST(${SECRET} AS timestamp), nothing`)),
  ]
  await client.organization.deleteMany({ where: { id: SECRET } })
  for (const err of errors) {
    expect(err).toBeInstanceOf(Error)
    log.error({ err }, 'refused')
    log.error({ err: new Error('It failed', { cause: err }) }, 'refused')
  }
  return lines
}

/** None with a value, each with the kind of the error and where it happened. */
function expectNoValues(lines: readonly string[]): void {
  expect(lines).toHaveLength(10)
  for (const line of lines) {
    expect(line).not.toContain(SECRET)
    const { err } = JSON.parse(line)
    expect(err.type).toMatch(/^(PrismaClient|DriverAdapter)/)
    expect(err.stack).toContain('database-errors.test.ts')
  }
}

describe('SQLite', () => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await createTestDatabase()
  })
  afterAll(() => database.dispose())

  test('a unique key that is met twice is known, and nothing else is taken for it', async () => {
    const { unique, other } = await violations(database.database)
    expect(unique.map(isUniqueViolation)).toEqual([true, true, true, true])
    expect(other.filter(isUniqueViolation)).toEqual([])
    expect([...unique, ...other].filter(isUnavailable)).toEqual([])
  })

  test('the values of a statement that failed are not logged', async () => {
    expectNoValues(await logged(database.database))
  })

  test('a disk that is full is unavailability', async () => {
    const { db } = database
    const [{ max_page_count: before }] = await db.$queryRaw<[{ max_page_count: bigint }]>`PRAGMA max_page_count`
    // No page more than there are.
    await db.$executeRaw`PRAGMA max_page_count = 1`
    const data = { id: 'large', name: 'x'.repeat(10_000_000), slug: 'large', createdAt }
    expect(isUnavailable(await failure(db.organization.create({ data })))).toBe(true)
    await db.$executeRaw(Prisma.raw(`PRAGMA max_page_count = ${before}`))
    await db.organization.create({ data })
  })
})

describe.skipIf(process.env.SKIP_POSTGRES === '1')('PostgreSQL', () => {
  let postgres: Postgres
  let database: Database
  let url: string
  const settings = () => ({ DATABASE_URL: url, DATA_DIR: '', DATABASE_POOL_SIZE: 2 })
  beforeAll(async () => {
    postgres = await startPostgres()
    url = await postgres.createDatabase()
    database = await openDatabase(settings())
  })
  afterAll(async () => {
    await database?.close()
    await postgres?.[Symbol.asyncDispose]()
  })

  test('a unique key that is met twice is known, and nothing else is taken for it', async () => {
    const { unique, other } = await violations(database)
    expect(unique.map(isUniqueViolation)).toEqual([true, true, true, true])
    expect(other.filter(isUniqueViolation)).toEqual([])
    expect([...unique, ...other].filter(isUnavailable)).toEqual([])
  })

  test('the values of a statement that failed are not logged', async () => {
    expectNoValues(await logged(database))
  })

  test('a statement that the limits of an operator cut short is unavailability', async () => {
    const slow = database.client.$transaction(async (tx) => {
      await tx.$executeRaw`SET LOCAL statement_timeout = 10`
      await tx.$queryRaw`SELECT pg_sleep(60)::text`
    })
    expect(isUnavailable(await failure(slow))).toBe(true)
  })

  test('an exhausted pool is unavailability', async () => {
    const release = Promise.withResolvers<void>()
    const began = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const held = began.map(({ resolve }) =>
      database.client.$transaction(async () => {
        resolve()
        await release.promise
      }),
    )
    await Promise.all(began.map(({ promise }) => promise))
    const third = await failure(database.client.$transaction(async () => {}, { maxWait: 50 }))
    release.resolve()
    await Promise.all(held)
    expect(isUnavailable(third)).toBe(true)
  })

  test('a server that goes away and is away is unavailability, and the same client works when it is back', async () => {
    const { client } = database
    const began = Promise.withResolvers<void>()
    const stopped = Promise.withResolvers<void>()
    const query = failure(client.$queryRaw`SELECT pg_sleep(60)::text`)
    const transaction = failure(
      client.$transaction(async (tx) => {
        await tx.organization.count()
        began.resolve()
        await stopped.promise
        await tx.organization.count()
      }),
    )
    await began.promise
    await postgres.stop()
    stopped.resolve()
    const errors = [
      await query,
      await transaction,
      await failure(client.organization.count()),
      await failure(client.$transaction((tx) => tx.organization.count())),
      await failure(openDatabase(settings())),
      await failure(openDatabase({ ...settings(), DATABASE_URL: url.replace('127.0.0.1', 'localhost') })),
    ]
    expect(errors.filter((error) => !isUnavailable(error))).toEqual([])
    await postgres.start()
    expect(await client.organization.count()).toBe(1)
  })
})
