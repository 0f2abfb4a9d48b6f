import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeEach } from 'vitest'
import { type Prisma, PrismaClient } from '../../prisma/generated/sqlite/client.ts'
import { createFastClient, type FastPathDriver } from '../../src/db/fast-path/index.ts'
import { postgresqlAdapter, postgresqlClient } from '../../src/db/postgresql/adapter.ts'
import { sqliteAdapter } from '../../src/db/sqlite/adapter.ts'
import { migrateSqlite } from '../../src/db/sqlite/migrate.ts'
import { onPostgres, type SharedDatabase, shareDatabase } from '../support/postgres-shared.ts'

/** Maximum number of concurrent transactions. */
export const AT_ONCE = onPostgres ? 3 : 1

const ROWS = 40
export const pick = <T>(list: readonly T[], index: number): T => list[index % list.length] as T
export const WORDS = ['a', 'b', 'B', 'ä', '%', '', "it's", 'x\ny']
export const TIMES = [0, 1, 86_400_000, 1_750_000_000_123].map((time) => new Date(time))

export const media = (index: number): Prisma.MediaUncheckedCreateInput => ({
  id: `m${index}`,
  organizationId: pick(['o1', 'o2'], index),
  userId: 'u',
  name: pick(WORDS, index),
  mimeType: pick(WORDS, Math.floor(index / 3)),
  size: index % 7,
  createdAt: pick(TIMES, index),
})

/**
 * Opens a database with two organizations and a user: by Prisma itself, and by the fast path over it (`db`). Both share
 * their connections. Each test begins with forty rows of media, and without recorded statements.
 */
export async function openFastPathLab() {
  const folder = mkdtempSync(join(tmpdir(), 'muster-direct-'))
  let shared: SharedDatabase | undefined

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

  const [prisma, driver] = await open()
  await prisma.$connect()
  const statements: string[] = []
  const db = createFastClient(
    async () => prisma,
    driver,
    (sql) => statements.push(sql),
  )
  const [createdAt, updatedAt] = [new Date(), new Date()]
  for (const id of ['o1', 'o2']) await db.organization.create({ data: { id, name: id, slug: id, createdAt } })
  await db.user.create({ data: { id: 'u', email: 'u@example.com', name: 'U', createdAt, updatedAt } })
  beforeEach(async () => {
    await prisma.media.deleteMany()
    await prisma.media.createMany({ data: Array.from({ length: ROWS }, (_, index) => media(index)) })
    statements.length = 0
  })
  return {
    prisma,
    db,
    statements,
    /** Address of the database on PostgreSQL. */
    url: shared?.url ?? '',
    async [Symbol.asyncDispose]() {
      await prisma.$disconnect()
      await shared?.drop()
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
    },
  }
}
