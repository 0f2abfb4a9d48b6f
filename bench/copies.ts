import { join } from 'node:path'
import Sqlite from 'better-sqlite3'

/** The database of a service that runs in `folder`. */
export const openBeside = (folder: string): Sqlite.Database => new Sqlite(join(folder, 'muster.db'), { timeout: 5_000 })

/**
 * Fills a table with copies of its first row. What differs is an SQL expression for a column, of that row and of the
 * copy's number `n`, from 1.
 */
export function addCopies(database: Sqlite.Database, table: string, count: number, changes: Record<string, string>) {
  const names = (database.pragma(`table_info("${table}")`) as { name: string }[]).map(({ name }) => name)
  const columns = names.map((name) => `"${name}"`).join(', ')
  const values = names.map((name) => changes[name] ?? `"${name}"`).join(', ')
  database
    .prepare(`
      INSERT INTO "${table}" (${columns})
      WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
      SELECT ${values} FROM (SELECT * FROM "${table}" LIMIT 1), numbers`)
    .run(count)
}
