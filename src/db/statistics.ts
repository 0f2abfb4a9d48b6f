import { type Db, Prisma } from './client.ts'
import { quote } from './fast-path/index.ts'

/** Rows of a table that has grown. */
const GROWN = 200

/**
 * Has PostgreSQL look at tables that have grown and that it has never looked at. It makes plans for an empty table, keeps
 * them, and finds by the wrong index what rows refer to: each run takes longer than the one before. Its own autovacuum
 * comes round once a minute, and all plans are made anew then.
 */
export async function analyzeNew(db: Db): Promise<void> {
  const tables = await db.$queryRaw<{ name: string }[]>(Prisma.sql`
    SELECT relname::text AS "name" FROM pg_class
    WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND relkind = 'r'
      AND reltuples < 0 AND pg_stat_get_live_tuples(oid) > ${GROWN}`)
  if (!tables.length) return
  const names = tables.map(({ name }) => quote(name)).join(', ')
  await db.$executeRaw(Prisma.raw(`ANALYZE (SKIP_LOCKED) ${names}`))
}
