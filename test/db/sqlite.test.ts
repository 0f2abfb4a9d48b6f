import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { PrismaBetterSqlite3 } from '@prisma/adapter-better-sqlite3'
import type { SqlDriverAdapterFactory, SqlQuery } from '@prisma/driver-adapter-utils'
import Sqlite from 'better-sqlite3'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { PrismaClient } from '../../prisma/generated/sqlite/client.ts'
import type { Db } from '../../src/db/client.ts'
import { TRANSACTION } from '../../src/db/limits.ts'
import { sqliteAdapter } from '../../src/db/sqlite/adapter.ts'
import { connect } from '../../src/db/sqlite/connection.ts'
import { migrateSqlite } from '../../src/db/sqlite/migrate.ts'
import { createTurns } from '../../src/db/sqlite/transaction-queue.ts'
import { isUnavailable } from '../../src/lib/database-errors.ts'

const now = new Date('2026-01-02T03:04:05.678Z')
const query = (sql: string, args: unknown[] = []): SqlQuery => ({
  sql,
  args,
  argTypes: args.map(() => ({ scalarType: 'unknown', arity: 'scalar' })),
})

const insert = (id: string, name = 'a') =>
  query(`INSERT INTO "Organization" ("id", "name", "slug", "createdAt") VALUES (?, ?, ?, 0)`, [id, name, id])

let folder: string
let file: string
let db: PrismaClient

/** Opens a database with the service's limits: Prisma's own, 2 s to start a transaction, are short for a busy machine. */
async function open(adapter: SqlDriverAdapterFactory): Promise<PrismaClient> {
  const client = new PrismaClient({ adapter, transactionOptions: TRANSACTION })
  await client.$connect()
  return client
}

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'muster-test-'))
  file = join(folder, 'muster.db')
  await migrateSqlite(file)
  db = await open(sqliteAdapter(file))
})

afterEach(async () => {
  await db.$disconnect()
  rmSync(folder, { recursive: true, force: true })
})

const addOrganization = (client: Pick<Db, 'organization'>, id: string, name = 'a') =>
  client.organization.create({ data: { id, name, slug: id, createdAt: now } })

/** Starts a transaction that has done its work and waits for `commit` or `rollback`. */
async function begin(client: Db, work: (tx: Pick<Db, 'organization'>) => Promise<unknown>) {
  const ready = Promise.withResolvers<void>()
  const end = Promise.withResolvers<void>()
  const done = client.$transaction(async (tx) => {
    await work(tx)
    ready.resolve()
    await end.promise
  })
  await Promise.race([ready.promise, done])
  return {
    commit: async () => {
      end.resolve()
      await done
    },
    rollback: async () => {
      end.reject(new Error('rolled back'))
      await expect(done).rejects.toThrow('rolled back')
    },
  }
}

/** Writes while another transaction is open that is then rolled back. Returns the number of rows that survive. */
async function writeBesideRollback(client: Db): Promise<number> {
  const transaction = await begin(client, (tx) => addOrganization(tx, 'undone'))
  const write = addOrganization(client, 'acknowledged')
  // Without a queue the write happens at once, inside the transaction.
  await Promise.race([write, sleep(100)])
  await transaction.rollback()
  await write
  expect(await client.organization.count({ where: { id: 'undone' } })).toBe(0)
  return client.organization.count({ where: { id: 'acknowledged' } })
}

async function readBesideTransaction(client: Db): Promise<number> {
  const transaction = await begin(client, (tx) => addOrganization(tx, 'uncommitted'))
  const seen = await client.organization.count()
  await transaction.rollback()
  return seen
}

describe('transactions', () => {
  test("a concurrent write survives the rollback of somebody else's transaction", async () => {
    expect(await writeBesideRollback(db)).toBe(1)
  })

  test('a concurrent read sees no uncommitted row', async () => {
    expect(await readBesideTransaction(db)).toBe(0)
  })

  test('the stock adapter fails the two tests above', async () => {
    await db.$disconnect()
    db = await open(new PrismaBetterSqlite3({ url: file }))
    expect(await readBesideTransaction(db)).toBe(1)
    expect(await writeBesideRollback(db)).toBe(0)
  })

  test('a transaction reads its own writes', async () => {
    const count = await db.$transaction(async (tx) => {
      await addOrganization(tx, 'a')
      return tx.organization.count()
    })
    expect(count).toBe(1)
  })

  test('50 parallel transactions that each read, add one and write give 50', async () => {
    await addOrganization(db, 'counter', '0')
    const increment = () =>
      db.$transaction(async (tx) => {
        const { name } = await tx.organization.findUniqueOrThrow({ where: { id: 'counter' } })
        await tx.organization.update({ where: { id: 'counter' }, data: { name: String(Number(name) + 1) } })
      })
    await Promise.all(Array.from({ length: 50 }, increment))
    expect((await db.organization.findUniqueOrThrow({ where: { id: 'counter' } })).name).toBe('50')
  })

  test('a transaction over its time limit rolls back and frees the database', async () => {
    const forever = db.$transaction(
      async (tx) => {
        await addOrganization(tx, 'late')
        await new Promise(() => {})
      },
      { timeout: 50 },
    )
    forever.catch(() => {})
    await addOrganization(db, 'next')
    expect(await db.organization.findMany({ select: { id: true } })).toEqual([{ id: 'next' }])
  })

  test('a caller that stops waiting leaves the queue in order', async () => {
    const transaction = await begin(db, (tx) => addOrganization(tx, 'first'))
    const impatient = db.$transaction((tx) => addOrganization(tx, 'impatient'), { maxWait: 20 })
    const failure = await impatient.catch((error: unknown) => error)
    expect(isUnavailable(failure)).toBe(true)
    await transaction.commit()
    await addOrganization(db, 'second')
    expect(await db.organization.count()).toBe(2)
  })

  test('a commit that the database refuses undoes everything and frees the database', async () => {
    const broken = db.$transaction(async (tx) => {
      await tx.$executeRaw`PRAGMA defer_foreign_keys = ON`
      await tx.$executeRaw`INSERT INTO "Membership" ("organizationId", "userId", "role", "createdAt")
        VALUES ('nowhere', 'nobody', 'member', 0)`
      await addOrganization(tx, 'undone')
    })
    await expect(broken).rejects.toThrow('ForeignKeyConstraintViolation')
    await addOrganization(db, 'next')
    expect(await db.organization.findMany({ select: { id: true } })).toEqual([{ id: 'next' }])
  })

  test('a statement after the end of its transaction is refused', async () => {
    const adapter = await sqliteAdapter(file).connect()
    const first = await adapter.startTransaction()
    await first.rollback()
    const second = await adapter.startTransaction()
    const late = first.executeRaw(
      query(`INSERT INTO "Organization" ("id", "name", "slug", "createdAt") VALUES ('late', 'a', 'late', 0)`),
    )
    await expect(late).rejects.toThrow('TransactionAlreadyClosed')
    await first.rollback()
    await second.commit()
    await adapter.dispose()
    expect(await db.organization.count()).toBe(0)
  })

  test('writes and transactions take turns in the order of their requests', async () => {
    const adapter = await sqliteAdapter(file).connect()
    const held = await adapter.startTransaction()
    const turns = [
      adapter.executeRaw(insert('1')),
      adapter.startTransaction().then(async (transaction) => {
        await nextTurn()
        await transaction.executeRaw(insert('2'))
        await transaction.commit()
      }),
      adapter.queryRaw(insert('3')),
    ]
    await nextTurn()
    await held.executeRaw(insert('0'))
    await held.commit()
    await Promise.all(turns)
    const { rows } = await adapter.queryRaw(query('SELECT "id" FROM "Organization" ORDER BY rowid'))
    expect(rows.flat()).toEqual(['0', '1', '2', '3'])
    await adapter.dispose()
  })
})

describe('waiting transactions', () => {
  /** Counts the commits in the file's log: the frames that end a transaction. */
  function commits(): number {
    const log = readFileSync(`${file}-wal`)
    let count = 0
    for (let frame = 32; frame < log.length; frame += 24 + 4096) count += Number(log.readUInt32BE(frame + 4) > 0)
    return count
  }
  const committed = (id: string): boolean => {
    const other = new Sqlite(file, { readonly: true })
    using _ = { [Symbol.dispose]: () => other.close() }
    return other.prepare('SELECT 1 FROM "Organization" WHERE "id" = ?').get(id) !== undefined
  }

  test('share a write to the disk, and each is committed when it is acknowledged', async () => {
    const adapter = await sqliteAdapter(file).connect()
    const before = commits()
    const held = await adapter.startTransaction()
    const writes = Array.from({ length: 20 }, async (_, index) => {
      await adapter.executeRaw(insert(`${index}`))
      expect(committed(`${index}`)).toBe(true)
    })
    await held.commit()
    await Promise.all(writes)
    expect(commits() - before).toBeLessThan(10)
    await adapter.dispose()
  })

  test('yield to the event loop, whatever their number', async () => {
    const connection = connect(file)
    const turns = createTurns(connection)
    let rounds = 0
    let over = false
    const count = () => {
      rounds++
      if (!over) setImmediate(count)
    }
    setImmediate(count)
    const one = async () => {
      const turn = await turns.take()
      for (const end = performance.now() + 1; performance.now() < end; );
      await turn.keep()
    }
    await Promise.all(Array.from({ length: 100 }, one))
    over = true
    connection.close()
    // A group lasts 20 ms.
    expect(rounds).toBeGreaterThanOrEqual(4)
  })

  test('survive the rollback or the failure of another one', async () => {
    const adapter = await sqliteAdapter(file).connect()
    const held = await adapter.startTransaction()
    const transaction = async (id: string, end: 'commit' | 'rollback') => {
      const own = await adapter.startTransaction()
      await own.executeRaw(insert(id))
      await own[end]()
    }
    const all = [
      transaction('1', 'commit'),
      transaction('2', 'rollback'),
      adapter.executeRaw(insert('3')),
      adapter.executeRaw(insert('3')),
      transaction('4', 'commit'),
    ]
    await held.executeRaw(insert('0'))
    await held.rollback()
    const states = (await Promise.allSettled(all)).map(({ status }) => status)
    expect(states).toEqual(['fulfilled', 'fulfilled', 'fulfilled', 'rejected', 'fulfilled'])
    expect(['0', '1', '2', '3', '4'].filter(committed)).toEqual(['1', '3', '4'])
    await adapter.dispose()
  })

  test('all fail if the disk is full', async () => {
    const adapter = await sqliteAdapter(file).connect()
    const { rows } = await adapter.queryRaw(query('PRAGMA page_count'))
    await adapter.executeScript(`PRAGMA max_page_count = ${Number(rows[0]?.[0]) + 10}`)
    const held = await adapter.startTransaction()
    const small = adapter.executeRaw(insert('small'))
    const large = adapter.executeRaw(insert('large', 'x'.repeat(1_000_000)))
    await held.executeRaw(insert('held'))
    const all = await Promise.allSettled([held.commit(), small, large])
    expect(all.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
    expect(['held', 'small', 'large'].filter(committed)).toEqual([])
    await adapter.executeRaw(insert('next'))
    expect(committed('next')).toBe(true)
    await adapter.dispose()
  })
})

describe('statements outside a transaction', () => {
  test('only a statement that writes waits for an open transaction, also if it returns rows', async () => {
    const transaction = await begin(db, (tx) => addOrganization(tx, 'held'))
    const [{ n }] = await db.$queryRaw<
      [{ n: bigint }]
    >`WITH o AS (SELECT * FROM "Organization") SELECT count(*) n FROM o`
    expect(n).toBe(0n)
    let written = false
    const write =
      db.$queryRaw`INSERT INTO "Organization" ("id", "name", "slug", "createdAt") VALUES ('raw', 'a', 'raw', 0) RETURNING "id"`.then(
        (rows) => {
          written = true
          return rows
        },
      )
    await nextTurn()
    expect(written).toBe(false)
    await transaction.commit()
    expect(await write).toEqual([{ id: 'raw' }])
    expect(await db.organization.count()).toBe(2)
  })

  test('a write waits for another process without blocking the event loop', async () => {
    const other = new Sqlite(file)
    other.exec('BEGIN IMMEDIATE')
    let written = false
    const writes = Promise.all([addOrganization(db, 'a'), db.$transaction((tx) => addOrganization(tx, 'b'))])
    writes.then(() => {
      written = true
    })
    for (let turn = 0; turn < 20; turn++) await nextTurn()
    expect(written).toBe(false)
    expect(await db.organization.count()).toBe(0)
    other.exec('COMMIT')
    other.close()
    await writes
    expect(await db.organization.count()).toBe(2)
  })

  test('every commit is on disk before its acknowledgement, and references hold', async () => {
    const adapter = await sqliteAdapter(file).connect()
    const transaction = await adapter.startTransaction()
    const pragma = async (name: string) => (await transaction.queryRaw(query(`PRAGMA ${name}`))).rows[0]?.[0]
    const FULL = 2
    expect(await pragma('synchronous')).toBe(FULL)
    expect(await pragma('journal_mode')).toBe('wal')
    expect(await pragma('foreign_keys')).toBe(1)
    await transaction.rollback()
    await adapter.dispose()
  })

  test('a date filters, sorts and aggregates as a date', async () => {
    const dates = [9, 10, 11].map((year) => new Date(`20${String(year).padStart(2, '0')}-01-01T00:00:00.000Z`))
    for (const [index, createdAt] of dates.entries()) {
      await db.organization.create({ data: { id: String(index), slug: String(index), name: 'a', createdAt } })
    }
    const later = await db.organization.findMany({
      where: { createdAt: { gt: dates[0]! } },
      orderBy: { createdAt: 'desc' },
    })
    expect(later.map(({ createdAt }) => createdAt)).toEqual([dates[2], dates[1]])
    expect((await db.organization.aggregate({ _max: { createdAt: true } }))._max.createdAt).toEqual(dates[2])
  })
})

test('values of every type come back as from the stock adapter', async () => {
  const path = join(folder, 'values.db')
  const ours = await sqliteAdapter(path).connect()
  const stock = await new PrismaBetterSqlite3({ url: path }, { timestampFormat: 'unixepoch-ms' }).connect()
  const values: [type: string, scalarType: SqlQuery['argTypes'][number]['scalarType'], value: unknown][] = [
    ['TEXT', 'string', 'tëxt'],
    ['INTEGER', 'int', 42],
    ['INTEGER', 'int', '43'],
    ['BIGINT', 'bigint', '9007199254740993'],
    ['BIGINT', 'bigint', 7],
    ['REAL', 'float', 1.5],
    ['REAL', 'float', 3],
    ['DECIMAL', 'decimal', '12.25'],
    ['BOOLEAN', 'boolean', true],
    ['DATETIME', 'datetime', now.toISOString()],
    ['DATETIME', 'datetime', now],
    ['JSONB', 'json', '{"a":[1]}'],
    ['TEXT', 'string', null],
  ]
  const columns = values.map(([type], index) => `"c${index}" ${type}`)
  await ours.executeScript(`CREATE TABLE "v" (${columns.join(', ')})`)
  const insert: SqlQuery = {
    sql: `INSERT INTO "v" VALUES (${values.map(() => '?').join(', ')})`,
    args: values.map(([, , value]) => value),
    argTypes: values.map(([, scalarType]) => ({ scalarType, arity: 'scalar' })),
  }
  expect(await ours.executeRaw(insert)).toBe(1)
  expect(await stock.executeRaw(insert)).toBe(1)
  const names = values.map((_, index) => `"c${index}"`)
  const expressions = `SELECT count(*) AS "n", max("c9") AS "d", avg("c1") AS "a", 1.5 AS "r", 'x' AS "s", NULL AS "z" FROM "v"`
  for (const sql of ['SELECT * FROM "v"', `SELECT ${names} FROM "v" WHERE "c1" = 0`, expressions]) {
    expect(await ours.queryRaw(query(sql))).toEqual(await stock.queryRaw(query(sql)))
  }
  const bytes = Buffer.from([0, 1, 255])
  const blob: SqlQuery = {
    sql: 'SELECT ? AS "b"',
    args: [bytes.toString('base64')],
    argTypes: [{ scalarType: 'bytes', arity: 'scalar' }],
  }
  expect((await ours.queryRaw(blob)).rows).toEqual([[bytes]])
  await stock.dispose()
  await ours.dispose()
})
