import { type Db, Prisma } from './client.ts'
import { quote } from './fast-path/index.ts'

/** Minimum number of rows of a grown table. */
const GROWN = 200

/**
 * Analyzes PostgreSQL tables that have grown and were never analyzed, or only while they were empty. PostgreSQL
 * otherwise keeps plans for empty tables with the wrong indexes, so that each run takes longer than the one before. Its
 * own autovacuum runs once a minute and discards all plans.
 */
export async function analyzeNew(db: Db): Promise<void> {
  const tables = await db.$queryRaw<{ name: string }[]>(Prisma.sql`
    SELECT relname::text AS "name" FROM pg_class
    WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND relkind = 'r'
      AND reltuples <= 0 AND pg_stat_get_live_tuples(oid) > ${GROWN}`)
  if (!tables.length) return
  const names = tables.map(({ name }) => quote(name)).join(', ')
  await db.$executeRaw(Prisma.raw(`ANALYZE (SKIP_LOCKED) ${names}`))
}
