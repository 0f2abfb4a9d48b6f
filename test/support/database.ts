import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Database, type Db, openDatabase } from '../../src/db/client.ts'
import { onPostgres, shareDatabase } from './postgres-shared.ts'
import { copySqlite } from './sqlite-shared.ts'

export type TestDatabase = AsyncDisposable & {
  db: Db
  database: Database
  /** Its folder, as DATA_DIR. */
  folder: string
  /** Every SQL statement so far, in order. Set `queries.length = 0` to restart the count. */
  queries: string[]
  /** Closes it and removes the folder. `await using` does the same. */
  dispose: () => Promise<void>
}

/**
 * Creates a migrated database: an SQLite file in its own temporary folder (about 5 ms), or one of PostgreSQL if the
 * environment has `DATABASE=postgresql`.
 */
export async function createTestDatabase(): Promise<TestDatabase> {
  const folder = await mkdtemp(join(tmpdir(), 'muster-test-'))
  const queries: string[] = []
  const shared = onPostgres ? await shareDatabase(folder) : null
  if (!onPostgres) await copySqlite(folder)
  const settings = { DATA_DIR: folder, DATABASE_URL: shared?.url, DATABASE_POOL_SIZE: 10 }
  const database = await openDatabase(settings, { onQuery: (sql) => queries.push(sql) })
  const dispose = async () => {
    await database.close()
    await shared?.drop()
    await rm(folder, { recursive: true, force: true })
  }
  return { db: database.client, database, folder, queries, dispose, [Symbol.asyncDispose]: dispose }
}
