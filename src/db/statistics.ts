import { type Db, Prisma } from './client.ts'
import { quote } from './fast-path/index.ts'

/** Minimum number of rows of a grown table, and the minimum size of a table that was never analyzed (bytes). */
const GROWN = 200
const LARGE = 64 * 1024

/**
 * Analyzes PostgreSQL tables that have grown and were never analyzed, or only while they were empty. PostgreSQL
 * otherwise keeps plans for empty tables with the wrong indexes, so that each run takes longer than the one before. Its
 * own autovacuum runs once a minute and discards all plans. After `pg_upgrade`, which forgets the statistics and the
 * counts of rows, it waits for changes of a table.
 */
export async function analyzeNew(db: Db): Promise<void> {
  const tables = await db.$queryRaw<{ name: string }[]>(Prisma.sql`
    SELECT relname::text AS "name" FROM pg_class
    WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND relkind = 'r'
      AND (reltuples <= 0 AND pg_stat_get_live_tuples(oid) > ${GROWN}
        OR relpages = 0 AND reltuples <= 0 AND pg_relation_size(oid) > ${LARGE})`)
  // Each has the time limit of a statement for itself.
  for (const { name } of tables) await db.$executeRaw(Prisma.raw(`ANALYZE (SKIP_LOCKED) ${quote(name)}`))
}
