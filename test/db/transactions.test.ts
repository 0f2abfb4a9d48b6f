import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { Prisma } from '../../prisma/generated/sqlite/client.ts'
import { countOf } from '../../src/db/counting.ts'
import { addsTo, createFastClient, expectsOne, locksRows } from '../../src/db/fast-path/index.ts'
import { TRANSACTION } from '../../src/db/limits.ts'
import { postgresqlAdapter, postgresqlClient } from '../../src/db/postgresql/adapter.ts'
import { retryTransactions } from '../../src/db/postgresql/retry.ts'
import { isUnavailable, isUnexpectedCount, isUniqueViolation } from '../../src/lib/database-errors.ts'
import { troubleIn } from '../../src/lib/database-troubles.ts'
import { runSql } from '../support/postgres.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { use } from '../support/use.ts'
import { AT_ONCE, media, openFastPathLab, TIMES } from './fast-path-lab.ts'

const { prisma, db, statements, url } = await use(openFastPathLab())

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
    const adapter = await postgresqlAdapter(url, 1)
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
    const adapter = await postgresqlAdapter(url, 2)
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
      const adapter = await postgresqlAdapter(url, 1, { pooled })
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
      url,
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
    const adapter = await postgresqlAdapter(`${url}?application_name=ending`, 3)
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
      while (outcomes.size < started + all.length) await runSql(url, end)
      await Promise.all(all)
    }
    await (await adapter.connect()).dispose()
    const rows = await prisma.media.findMany({ where: { id: { startsWith: 'ends ' } }, select: { id: true } })
    const found = Map.groupBy(rows, ({ id }) => id.slice(0, id.lastIndexOf(' ')))
    for (const [name, committed] of outcomes)
      expect([name, found.get(name)?.length ?? 0]).toEqual([name, committed ? 3 : 0])
  })

  it('a statement that times out counts as unavailability, and the next one reconnects', async () => {
    const adapter = await postgresqlAdapter(url, 1, { statementTimeout: 200 })
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
