import { join, resolve } from 'node:path'
import Sqlite from 'better-sqlite3'
import { Client } from 'pg'
import { databaseFile, requireOwnLog } from '../db/client.ts'
import { KEEP_ALIVE } from '../db/limits.ts'
import { migratePostgresql } from '../db/postgresql/migrate.ts'
import { FORMS, WITHOUT_TIME_LIMITS } from '../db/postgresql/session.ts'
import { lockDatabase } from '../db/sqlite/file-lock.ts'
import { requireMigrated } from '../db/sqlite/migrate.ts'
import { countedStarts, findCopy } from '../installation.ts'
import { troubleIn } from '../lib/database-troubles.ts'
import { table } from '../lib/table.ts'
import type { Answer, Operator, Options } from './command.ts'
import { AdminError } from './option-values.ts'
import { createProgress } from './progress.ts'
import { allTables, createChecksum, fromPostgres, fromSqlite, type Row, type Table } from './tables.ts'

/** Maximum number of rows per batch, and the approximate length of a batch (characters). */
const BATCH = 500
const BATCH_SIZE = 8 * 1024 * 1024

/** PostgreSQL's error code for `\u0000`. */
const NUL = '22P05'

export type Moved = { name: string; rows: number; checksum: string }

const quote = (name: string) => `"${name.replaceAll('"', '""')}"`
const listOf = ({ columns }: Table, form = quote) => columns.map(({ name }) => form(name)).join(', ')

/**
 * Copies a consistent snapshot of the SQLite database into an empty PostgreSQL database and reads it back to compare.
 * One transaction does both, so a failure leaves the target empty. No server may use the file, because its writes would
 * be lost. A file on which a server would start paused becomes a database on which it does too (contract-2.md section
 * 8.7).
 */
export async function move(operator: Operator, _: string[], { to = '' }: Options): Promise<Answer> {
  const { settings } = operator
  const file = databaseFile(settings)
  if (!file) throw new AdminError('The database is already PostgreSQL. Unset DATABASE_URL to move an SQLite database.')
  if (!/^postgres(ql)?:\/\//.test(to)) throw new AdminError('--to takes an address that begins with postgresql://')
  const lock = lockDatabase(file)
  requireOwnLog(file)
  const source = new Sqlite(file, { readonly: true, timeout: 10_000 }).defaultSafeIntegers()
  const target = new Client({ ...KEEP_ALIVE, connectionString: to, connectionTimeoutMillis: 10_000 })
  try {
    source.exec('BEGIN')
    requireMigrated(source)
    // If the connection is lost between two statements, the next one fails.
    target.on('error', () => {})
    await target.connect().catch((error: Error) => {
      throw new AdminError(
        ['The target cannot be reached:', error.message, troubleIn(error)?.detail ?? ''].join(' ').trim(),
      )
    })
    await refuseForeign(target)
    await migratePostgresql(to)
    const { tables, isPaused } = await copyAll(source, target, operator)
    const rows = tables.reduce((sum, { rows }) => sum + rows, 0)
    return { json: { tables, rows, paused: isPaused }, text: report(tables, rows, settings, isPaused) }
  } finally {
    // Closing rolls back an open transaction.
    await target.end()
    source.close()
    lock.release()
  }
}

/** Throws for a database with foreign tables, before it is migrated. */
async function refuseForeign(target: Client): Promise<void> {
  const { rows } = await target.query<{ name: string }>(
    `SELECT table_name AS name FROM information_schema.tables WHERE table_schema = current_schema()`,
  )
  if (rows.length && !rows.some(({ name }) => name === '_prisma_migrations'))
    throw new AdminError(`The target is not empty: it has a table ${rows[0]?.name}. Give it a database of its own.`)
}

/** Throws if an earlier move has filled the target with this database. It may have ended before its report. */
async function refuseMoved(source: Sqlite.Database, target: Client): Promise<void> {
  const key = `SELECT "masterKey" FROM "Installation" WHERE "id" = 1`
  const { rows } = await target.query<{ masterKey: Buffer }>(key)
  const ours = source.prepare<[], Buffer>(key).pluck().get()
  if (ours && rows[0]?.masterKey.equals(ours))
    throw new AdminError(
      'An earlier move has copied this database to the target, whole. Start Muster with DATABASE_URL set to it. To ' +
        'copy again, give an empty database.',
    )
}

async function copyAll(
  source: Sqlite.Database,
  target: Client,
  operator: Operator,
): Promise<{ tables: Moved[]; isPaused: boolean }> {
  const tables = allTables()
  await target.query(`${FORMS}; BEGIN; ${WITHOUT_TIME_LIMITS}`)
  await target.query(`LOCK TABLE ${tables.map(({ name }) => quote(name)).join(', ')} IN ACCESS EXCLUSIVE MODE`)
  await refuseMoved(source, target)
  for (const { name } of tables) {
    const { rowCount } = await target.query(`SELECT FROM ${quote(name)} LIMIT 1`)
    if (rowCount)
      throw new AdminError(`The target is not empty: there are rows in ${name}. Give it a database of its own.`)
  }
  const counts = tables.map(({ name }) => countIn(source, name))
  // Each row is copied and read back.
  const total = 2 * counts.reduce((sum, count) => sum + count, 0)
  const progress = createProgress(process.stderr)
  let done = 0
  const moved: Moved[] = []
  let isPaused = false
  try {
    const restore = await setForeignKeysAside(target)
    // Values kept by triggers are copied too and would otherwise be counted twice.
    for (const { name } of tables) await target.query(`ALTER TABLE ${quote(name)} DISABLE TRIGGER USER`)
    for (const [index, table] of tables.entries()) {
      const step = (count: number) => {
        done += count
        progress.show(done, total, table.name)
      }
      const written = await copy(source, target, table, step)
      const read = await readBack(target, table, step)
      if (written !== read.checksum || counts[index] !== read.rows)
        throw new AdminError(
          `The copy of ${table.name} differs from the original, so nothing was kept. Stop the server, then try again.`,
        )
      moved.push({ name: table.name, ...read })
    }
    await restore()
    for (const { name } of tables) await target.query(`ALTER TABLE ${quote(name)} ENABLE TRIGGER USER`)
    isPaused = await markCopy(source, target, operator)
    // Before COMMIT: a move that was stopped has kept nothing, and can be repeated.
    await target.query('ANALYZE')
    await target.query('COMMIT')
  } finally {
    progress.end()
  }
  return { tables: moved, isPaused }
}

/**
 * Marks the target if the file is a backup or an older copy on which no server has started yet: only such a start would
 * write the mark into its rows. Returns whether servers on the target start paused.
 */
async function markCopy(source: Sqlite.Database, target: Client, { settings, now }: Operator): Promise<boolean> {
  const { starts, pausedBy } = source
    .prepare<[], { starts: bigint; pausedBy: string | null }>(
      'SELECT "starts", "pausedBy" FROM "Installation" WHERE "id" = 1',
    )
    .get() ?? { starts: 0n, pausedBy: null }
  if (pausedBy !== null) return true
  const version = Number(source.pragma('user_version', { simple: true }))
  const found = findCopy(version, countedStarts(settings, null) > Number(starts))
  if (found === null) return false
  const values = [found, now.toISOString()]
  await target.query(`UPDATE "Installation" SET "pausedBy" = $1, "pausedAt" = $2 WHERE "id" = 1`, values)
  await target.query('DELETE FROM "MediaDraft"')
  return true
}

const countIn = (source: Sqlite.Database, name: string): number =>
  Number(source.prepare<[], { count: bigint }>(`SELECT count(*) AS "count" FROM ${quote(name)}`).get()?.count)

/**
 * Drops the foreign keys until all rows are copied, because rows may refer to later ones and a joint check is faster.
 * Returns a function that recreates them, which fails for dangling references.
 */
async function setForeignKeysAside(target: Client): Promise<() => Promise<void>> {
  const { rows } = await target.query<{ of: string; name: string; definition: string }>(
    `SELECT conrelid::regclass::text AS of, conname AS name, pg_get_constraintdef(oid) AS definition
     FROM pg_constraint WHERE contype = 'f' AND connamespace = current_schema()::regnamespace`,
  )
  for (const { of, name } of rows) await target.query(`ALTER TABLE ${of} DROP CONSTRAINT ${quote(name)}`)
  return async () => {
    for (const { of, name, definition } of rows)
      await target.query(`ALTER TABLE ${of} ADD CONSTRAINT ${quote(name)} ${definition}`)
  }
}

/** Copies a table in batches and returns its checksum. */
async function copy(source: Sqlite.Database, target: Client, table: Table, step: (count: number) => void) {
  const checksum = createChecksum()
  // PostgreSQL converts the text of a value to the column type.
  const insert = `INSERT INTO ${quote(table.name)} (${listOf(table)})
    SELECT ${listOf(table)} FROM json_populate_recordset(NULL::${quote(table.name)}, $1::json)`
  let batch: string[] = []
  let size = 0
  async function flush(): Promise<void> {
    await target.query(insert, [`[${batch.join(',')}]`]).catch((error: Error & { code?: string }) => {
      if (error.code !== NUL) throw error
      throw new AdminError(
        `${table.name} has text with a NUL character, which PostgreSQL cannot store. Remove it first.`,
      )
    })
    step(batch.length)
    batch = []
    size = 0
  }
  const statement = source.prepare<[], unknown[]>(`SELECT ${listOf(table)} FROM ${quote(table.name)}`).raw()
  for (const values of statement.iterate()) {
    const row: Row = table.columns.map(({ type }, index) => fromSqlite(type, values[index]))
    checksum.add(row)
    const text = JSON.stringify(Object.fromEntries(table.columns.map(({ name }, index) => [name, toJson(row[index])])))
    size += text.length
    if (batch.push(text) >= BATCH || size >= BATCH_SIZE) await flush()
  }
  if (batch.length) await flush()
  return checksum.digest()
}

const toJson = (value: Row[number] | undefined): unknown => (value && typeof value === 'object' ? value.json : value)

async function readBack(target: Client, table: Table, step: (count: number) => void): Promise<Omit<Moved, 'name'>> {
  const checksum = createChecksum()
  const selected = listOf(table, (name) => `${quote(name)}::text`)
  await target.query(`DECLARE "copied" NO SCROLL CURSOR FOR SELECT ${selected} FROM ${quote(table.name)}`)
  let rows = 0
  for (;;) {
    const query = { text: `FETCH ${BATCH} FROM "copied"`, rowMode: 'array' }
    const batch = await target.query<(string | null)[]>(query)
    for (const values of batch.rows)
      checksum.add(table.columns.map(({ type }, index) => fromPostgres(type, values[index] ?? null)))
    rows += batch.rows.length
    step(batch.rows.length)
    if (batch.rows.length < BATCH) break
  }
  await target.query('CLOSE "copied"')
  return { rows, checksum: checksum.digest() }
}

function report(
  tables: Moved[],
  rows: number,
  { ENCRYPTION_KEY, DATA_DIR, MEDIA_DIR, S3_BUCKET }: Operator['settings'],
  isPaused: boolean,
): string {
  const lines = tables.map(({ name, rows, checksum }) => [name, String(rows), checksum])
  const key = ENCRYPTION_KEY ? 'the same as now' : `the content of ${resolve(DATA_DIR, 'encryption.key')}`
  const media = S3_BUCKET
    ? 'Uploaded files stay in their bucket.'
    : `Uploaded files stay in ${resolve(MEDIA_DIR ?? join(DATA_DIR, 'media'))}: all servers need them, see MEDIA_DIR.`
  const paused = isPaused ? '\nThe database is a copy: servers on it start paused until `npm run admin -- resume`.' : ''
  return `${table([['TABLE', 'ROWS', 'CHECKSUM'], ...lines])}

Copied ${rows} rows, and read them back. To switch, start Muster with
  DATABASE_URL    the address that --to was given
  ENCRYPTION_KEY  ${key}
${media}
The SQLite file is as it was. Start no server on it again.${paused}`
}
