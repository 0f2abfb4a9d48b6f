import { type Db, Prisma } from '../../src/db/client.ts'

type Trigger = {
  name: string
  /** As in `AFTER UPDATE`. */
  event: string
  table: string
  /** A condition, unless it applies to every row. */
  when?: string
  /** One statement that both databases understand. */
  effect: string
}

/** Creates a trigger on SQLite or PostgreSQL. */
export async function createTrigger(db: Db, { name, event, table, when, effect }: Trigger): Promise<void> {
  const run = (sql: string) => db.$executeRaw(Prisma.raw(sql))
  if (await isSqlite(db)) {
    await run(`CREATE TRIGGER "${name}" ${event} ON "${table}" ${when ? `WHEN ${when}` : ''} BEGIN ${effect}; END`)
    return
  }
  await run(`CREATE FUNCTION "${name}"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${effect}; RETURN NEW; END $$`)
  const condition = when ? `WHEN (${when})` : ''
  await run(`CREATE TRIGGER "${name}" ${event} ON "${table}" FOR EACH ROW ${condition} EXECUTE FUNCTION "${name}"()`)
}

export async function dropTrigger(db: Db, name: string): Promise<void> {
  await db.$executeRaw(Prisma.raw((await isSqlite(db)) ? `DROP TRIGGER "${name}"` : `DROP FUNCTION "${name}" CASCADE`))
}

const isSqlite = (db: Db): Promise<boolean> =>
  db.$queryRaw(Prisma.sql`SELECT sqlite_version()`).then(
    () => true,
    () => false,
  )
