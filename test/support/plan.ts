import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import type { TestServer } from './server.ts'

/** How SQLite finds the rows of a statement: its plan, a step each. */
export function planOf({ folder }: Pick<TestServer, 'folder'>, sql: string): string[] {
  const database = new Sqlite(join(folder, 'muster.db'), { readonly: true })
  using _ = { [Symbol.dispose]: () => database.close() }
  const plan = database.prepare<unknown[], { detail: string }>(`EXPLAIN QUERY PLAN ${sql}`)
  return plan.all(...sql.matchAll(/\?/g).map(() => null)).map(({ detail }) => detail)
}
