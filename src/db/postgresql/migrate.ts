import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { codeIn } from '../../lib/database-errors.ts'
import { hostsOf } from '../../lib/postgres-url.ts'
import { KEEP_ALIVE } from '../limits.ts'
import {
  APPLIED,
  type Applied,
  failure,
  MIGRATIONS,
  MigrationError,
  missingIn,
  naming,
  RECORD,
  read,
} from '../migrations.ts'
import { WITHOUT_TIME_LIMITS } from './session.ts'

/** The lock that Prisma's own tools take on PostgreSQL. */
const ADVISORY_LOCK = 72707369

/** Oldest major version of PostgreSQL that knows all statements of the migrations. */
const OLDEST_POSTGRESQL = 13

/**
 * Maximum wait of a migration for the locks of other sessions, and time between two tries (ms). All requests for the
 * same table queue behind a waiting migration, which a dump of the database would block for hours.
 */
const LOCK_WAIT = { longest: 2_000, pause: 5_000 }

/** PostgreSQL's codes of a lock that another session did not give up in time, or that led to a deadlock. */
const BLOCKED = /^(55P03|40P01)$/

/** The history of migrations: Prisma's own table, column for column, so that its tools can read it. */
const HISTORY = `CREATE TABLE IF NOT EXISTS "_prisma_migrations" (
  "id" VARCHAR(36) PRIMARY KEY NOT NULL, "checksum" VARCHAR(64) NOT NULL, "finished_at" TIMESTAMPTZ,
  "migration_name" VARCHAR(255) NOT NULL, "logs" TEXT, "rolled_back_at" TIMESTAMPTZ,
  "started_at" TIMESTAMPTZ NOT NULL DEFAULT now(), "applied_steps_count" INTEGER NOT NULL DEFAULT 0)`

/** A migration that waits, and the sessions of PostgreSQL whose transactions have locked the tables. */
export type BlockedMigration = { migration: string; sessions: { pid: number; user: string; application: string }[] }

type MigrateOptions = {
  migrations?: string
  lockWait?: typeof LOCK_WAIT
  /** Called after each try that could not lock the tables. */
  onBlocked?: ((blocked: BlockedMigration) => void) | undefined
}

/**
 * Applies pending migrations to PostgreSQL, each in its own transaction under an advisory lock. Waits for tables that
 * other sessions have locked, but lets requests pass meanwhile.
 */
export const migratePostgresql = (url: string, options: MigrateOptions = {}): Promise<void> =>
  naming(hostsOf(url), () => inPostgresql(url, options, true))

/** Throws unless all migrations are applied, like `requireSqlite`. */
export const requirePostgresql = (url: string): Promise<void> =>
  naming(hostsOf(url), () => inPostgresql(url, {}, false))

async function inPostgresql(url: string, options: MigrateOptions, mayApply: boolean): Promise<void> {
  const { migrations = MIGRATIONS, lockWait = LOCK_WAIT, onBlocked = () => {} } = options
  const [{ PrismaPg }, { findWritableHost }, { sharesSessions }] = await Promise.all([
    import('@prisma/adapter-pg'),
    import('./hosts.ts'),
    import('./pooler.ts'),
  ])
  const folder = join(migrations, 'postgresql')
  const adapter = await new PrismaPg({
    ...KEEP_ALIVE,
    connectionString: await findWritableHost(url),
    max: 1,
    connectionTimeoutMillis: 10_000,
  }).connect()
  try {
    const connection = await adapter.underlyingDriver().connect()
    // A connection that breaks fails its statement, too.
    connection.on('error', () => {})
    const missing = async () => {
      const history = await connection.query<{ found: boolean; pid: number; schema: string | null; version: string }>(
        `SELECT to_regclass('"_prisma_migrations"') IS NOT NULL AS "found", pg_backend_pid() AS "pid",
          current_schema() AS "schema", current_setting('server_version') AS "version"`,
      )
      const { schema, version } = history.rows[0]!
      if (Number.parseInt(version, 10) < OLDEST_POSTGRESQL)
        throw new MigrationError(
          `Muster needs PostgreSQL ${OLDEST_POSTGRESQL} or later. ${hostsOf(url)} has ${version}.`,
        )
      if (schema !== 'public') throw new MigrationError(`${OTHER_SCHEMA} It is ${schema ?? 'none'}.`)
      // A pooler has a number of its own for the session.
      const { processID } = connection as typeof connection & { processID: number | null }
      if (history.rows[0]?.pid !== processID && (await sharesSessions(url))) throw new MigrationError(NO_SESSIONS)
      const applied = history.rows[0]?.found ? (await connection.query<Applied>(APPLIED)).rows : []
      return missingIn(hostsOf(url), folder, applied, mayApply)
    }
    const applyNext = async (next: string) => {
      let name: string | undefined = next
      try {
        await connection.query(`BEGIN; ${WITHOUT_TIME_LIMITS}; SET LOCAL standard_conforming_strings = on;
          SET LOCAL lock_timeout = ${lockWait.longest}; SELECT pg_advisory_xact_lock(${ADVISORY_LOCK})`)
        await connection.query(HISTORY)
        ;[name] = await missing()
        if (name) await apply(name)
      } catch (error) {
        if (!BLOCKED.test(codeIn(error))) throw error
        await connection.query('ROLLBACK')
        onBlocked({ migration: name ?? next, sessions: (await connection.query(BLOCKING)).rows })
        return sleep(lockWait.pause)
      }
      return connection.query('COMMIT')
    }
    const apply = async (name: string) => {
      const { sql, checksum } = read(folder, name)
      try {
        await connection.query(sql)
      } catch (error) {
        throw BLOCKED.test(codeIn(error)) ? error : failure(name, error)
      }
      await connection.query(`${RECORD} ($1, $2, $3, now(), clock_timestamp(), 1)`, [randomUUID(), checksum, name])
    }
    try {
      // Otherwise the session of a killed server keeps its locks until its statement has ended. PostgreSQL 13, and one on
      // another system than Linux, may not have the setting.
      const notice = `SET client_connection_check_interval = ${lockWait.longest}`
      if (mayApply) await connection.query(notice).catch(() => {})
      for (let [next] = await missing(); next; [next] = await missing()) await applyNext(next)
    } finally {
      // true closes the connection instead of pooling it, which rolls back an open transaction.
      connection.release(true)
    }
  } finally {
    await adapter.dispose()
  }
}

/** Sessions that migrate, or whose transactions have locked tables of Muster. */
const BLOCKING = `SELECT DISTINCT "pid", "usename" AS "user", "application_name" AS "application"
  FROM pg_locks JOIN pg_stat_activity USING ("pid") LEFT JOIN pg_class ON pg_class."oid" = "relation"
  WHERE "granted" AND "pid" <> pg_backend_pid() AND "datname" = current_database()
    AND ("relnamespace" = 'public'::regnamespace OR "locktype" = 'advisory' AND "objid" = ${ADVISORY_LOCK})
  ORDER BY 1 LIMIT 10`

const OTHER_SCHEMA =
  'The first schema in the search_path of the role must be public. Set it: ALTER ROLE … SET search_path = public.'

const NO_SESSIONS =
  'The database is behind a pooler that lends connections by transaction, where notices and prepared statements do not ' +
  'work. Set DATABASE_DIRECT_URL to the address of PostgreSQL itself.'

/** Throws unless transactions work through a pooler. */
export const requireTransactions = (url: string): Promise<void> =>
  naming(hostsOf(url), async () => {
    const { refusesTransactions } = await import('./pooler.ts')
    if (await refusesTransactions(url))
      throw new MigrationError(
        'The database is behind a pooler that lends connections by statement, where transactions do not work. ' +
          'Set its pool_mode to transaction.',
      )
  })
