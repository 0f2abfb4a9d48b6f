import {
  type ColumnType,
  ColumnTypeEnum,
  DriverAdapterError,
  type MappedError,
  type SqlQuery,
  type SqlResultSet,
} from '@prisma/driver-adapter-utils'
import Sqlite from 'better-sqlite3'
import type { Statement } from '../fast-path/index.ts'

/** Maximum number of prepared statements per connection. Preparing one costs as much as the rest of a query. */
const STATEMENTS = 500

/** Column types that Prisma's migrations declare. The type of an expression is inferred from its value. */
const TYPES: Record<string, ColumnType> = {
  TEXT: ColumnTypeEnum.Text,
  INTEGER: ColumnTypeEnum.Int32,
  BIGINT: ColumnTypeEnum.Int64,
  REAL: ColumnTypeEnum.Double,
  DECIMAL: ColumnTypeEnum.Numeric,
  BOOLEAN: ColumnTypeEnum.Boolean,
  DATETIME: ColumnTypeEnum.DateTime,
  JSONB: ColumnTypeEnum.Json,
  BLOB: ColumnTypeEnum.Bytes,
}

type Row = Record<string, unknown>

export type Connection = {
  query: (query: SqlQuery) => SqlResultSet
  /** Executes a read-only query. Returns null without executing it if it writes. */
  read: (query: SqlQuery) => SqlResultSet | null
  /** Returns the number of changed rows. */
  execute: (query: SqlQuery) => number
  /**
   * Returns rows as objects with stored values, numbers as BigInt if `exact`. Returns null without executing the
   * statement if `readOnly` and it writes.
   */
  rows: (statement: Statement, options: { exact: boolean; readOnly: boolean }) => Row[] | null
  /** Returns rows as objects with values of the declared column types, like Prisma's raw queries. */
  typedRows: (statement: Statement) => Row[] | null
  changes: (statement: Statement) => number
  /** Executes statements without parameters. */
  script: (sql: string) => void
  inTransaction: () => boolean
  close: () => void
}

/**
 * Opens a connection to an SQLite file with Prisma's error and value types. All methods are synchronous and throw a
 * DriverAdapterError, of kind SocketTimeout at once if another process holds the file. A DateTime is stored in
 * milliseconds since 1970. `onFailure` receives SQLite's error code of each failed statement.
 */
export function connect(file: string, onFailure: (code: string) => void = () => {}): Connection {
  const client = new Sqlite(file, { timeout: 0 })
  function translated<T>(statement: () => T): T {
    try {
      return statement()
    } catch (error) {
      if (!(error instanceof Sqlite.SqliteError)) throw error
      // A file that is locked for a moment is no failure: the statement is tried again.
      if (!error.code.startsWith('SQLITE_BUSY')) onFailure(error.code)
      throw new DriverAdapterError({ originalCode: error.code, originalMessage: error.message, ...translate(error) })
    }
  }
  const prepare = cache((sql) => describe(client.prepare<unknown[], unknown[]>(sql)))
  const prepareRows = cache((sql) => client.prepare<unknown[], Row>(sql))
  const prepareTyped = cache((sql) => declare(client.prepare<unknown[], Row>(sql)))

  return {
    query: (given) =>
      translated(() => {
        const query = withLimit(given)
        return execute(prepare(query.sql), query)
      }),
    read: (given) =>
      translated(() => {
        const query = withLimit(given)
        const statement = prepare(query.sql)
        return statement.handle.reader && statement.handle.readonly ? execute(statement, query) : null
      }),
    execute: (query) => translated(() => prepare(query.sql).handle.run(...bind(query)).changes),
    rows: ({ sql, args, byteBudget }, { exact, readOnly }) =>
      translated(() => {
        const handle = prepareRows(sql)
        if (readOnly && !handle.readonly) return null
        handle.safeIntegers(exact)
        return byteBudget === undefined ? handle.all(...args) : upTo(byteBudget, handle.iterate(...args))
      }),
    typedRows: ({ sql, args }) =>
      translated(() => {
        const { handle, convert } = prepareTyped(sql)
        if (!handle.reader || !handle.readonly) return null
        return handle.all(...args).map(convert)
      }),
    changes: ({ sql, args }) => translated(() => prepareRows(sql).run(...args).changes),
    script: (sql) => translated(() => void client.exec(sql)),
    inTransaction: () => client.inTransaction,
    close: () => void client.close(),
  }
}

/** Returns rows until the size exceeds `byteBudget`, plus one more. */
function upTo(byteBudget: number, found: Iterable<Row>): Row[] {
  const rows: Row[] = []
  let bytes = 0
  for (const row of found) {
    rows.push(row)
    if (bytes > byteBudget) break
    for (const name in row) {
      const value = row[name]
      if (typeof value === 'string' || value instanceof Uint8Array) bytes += value.length
    }
  }
  return rows
}

/** Caches a value per statement text, with a limited number of entries. */
function cache<T>(make: (sql: string) => T): (sql: string) => T {
  const kept = new Map<string, T>()
  return (sql) => {
    const known = kept.get(sql)
    if (known !== undefined && kept.size < STATEMENTS / 2) return known
    const value = known ?? make(sql)
    // Reinserted at the end, so that the first entry is the least recently used.
    kept.delete(sql)
    kept.set(sql, value)
    for (const [oldest] of kept) {
      if (kept.size <= STATEMENTS) break
      kept.delete(oldest)
    }
    return value
  }
}

const DECLARED: Record<string, (value: unknown) => unknown> = {
  INTEGER: Number,
  BOOLEAN: Boolean,
  DATETIME: (value) => new Date(Number(value)),
  JSONB: (value) => JSON.parse(value as string),
  BLOB: (value) => new Uint8Array(value as Buffer),
}

/** Prepares a statement with a function that converts its rows to their declared types. */
function declare(handle: Sqlite.Statement<unknown[], Row>) {
  const conversions = (handle.reader ? handle.columns() : []).flatMap(({ name, type }) => {
    const convert = DECLARED[type ?? '']
    return convert ? [[name, convert] as const] : []
  })
  function convert(row: Row): Row {
    for (const [name, conversion] of conversions) if (row[name] !== null) row[name] = conversion(row[name])
    return row
  }
  return { handle: handle.safeIntegers(), convert }
}

const plain = (arg: unknown): unknown => {
  if (typeof arg === 'boolean') return arg ? 1 : 0
  return arg instanceof Date ? arg.getTime() : arg
}

type Described = {
  handle: Sqlite.Statement<unknown[], unknown[]>
  columnNames: string[]
  /** null for an expression, whose type is inferred from its values. */
  columnTypes: (ColumnType | null)[]
}

function describe(handle: Sqlite.Statement<unknown[], unknown[]>): Described {
  const columns = handle.reader ? handle.raw().columns() : []
  const columnTypes = columns.map(({ type }) => TYPES[type ?? ''] ?? null)
  // A BigInt is exact and distinguishable from a real, but slow and unnecessary for most statements.
  handle.safeIntegers(columnTypes.some((type) => type === null || type === ColumnTypeEnum.Int64))
  return { handle, columnNames: columns.map(({ name }) => name), columnTypes }
}

/** Inlines the limit, because SQLite replans a statement for each parameterized limit. */
function withLimit(query: SqlQuery): SqlQuery {
  if (!query.sql.endsWith(' LIMIT ? OFFSET ?')) return query
  const [limit, offset] = query.args.slice(-2)
  if (!Number.isSafeInteger(limit) || !Number.isSafeInteger(offset)) return query
  const sql = `${query.sql.slice(0, -' LIMIT ? OFFSET ?'.length)} LIMIT ${limit} OFFSET ${offset}`
  return { sql, args: query.args.slice(0, -2), argTypes: query.argTypes.slice(0, -2) }
}

function execute({ handle, columnNames, columnTypes }: Described, query: SqlQuery): SqlResultSet {
  if (!handle.reader) {
    handle.run(...bind(query))
    return { columnNames, columnTypes: [], rows: [] }
  }
  const rows = handle.all(...bind(query))
  const types = columnTypes.map((type, index) => type ?? typeOf(rows.find((row) => row[index] !== null)?.[index]))
  for (const row of rows) {
    for (const [index, value] of row.entries()) row[index] = fromSqlite(value, types[index])
  }
  return { columnNames, columnTypes: types, rows }
}

function typeOf(value: unknown): ColumnType {
  if (typeof value === 'bigint') return ColumnTypeEnum.Int64
  if (typeof value === 'string') return ColumnTypeEnum.Text
  if (typeof value === 'number') return ColumnTypeEnum.UnknownNumber
  return value instanceof Uint8Array ? ColumnTypeEnum.Bytes : ColumnTypeEnum.Int32
}

function fromSqlite(value: unknown, type: ColumnType | undefined): unknown {
  if (typeof value !== 'number' && typeof value !== 'bigint') return value
  const number = Number(value)
  if (type === ColumnTypeEnum.DateTime) return new Date(number).toISOString()
  return typeof value === 'number' || Number.isSafeInteger(number) ? number : String(value)
}

/** Converts parameters for SQLite: no booleans, dates as milliseconds, and Prisma's text encodings as their values. */
function bind({ args, argTypes }: SqlQuery): unknown[] {
  return args.map((arg, index) => {
    if (typeof arg !== 'string') return plain(arg)
    switch (argTypes[index]?.scalarType) {
      case 'datetime':
        return Date.parse(arg)
      case 'int':
      case 'float':
      case 'decimal':
        return Number(arg)
      case 'bigint':
        return BigInt(arg)
      case 'bytes':
        return Buffer.from(arg, 'base64')
      default:
        return arg
    }
  })
}

/** Translates an SQLite error into Prisma's terms: https://www.sqlite.org/rescode.html. */
function translate({ code, message }: { code: string; message: string }): MappedError {
  const after = (text: string) => message.split(text)[1] ?? ''
  const fields = after('constraint failed: ')
    .split(', ')
    .map((column) => column.split('.').pop() ?? '')
  switch (code) {
    case 'SQLITE_CONSTRAINT_UNIQUE':
    case 'SQLITE_CONSTRAINT_PRIMARYKEY':
      return { kind: 'UniqueConstraintViolation', constraint: { fields } }
    case 'SQLITE_CONSTRAINT_NOTNULL':
      return { kind: 'NullConstraintViolation', constraint: { fields } }
    case 'SQLITE_CONSTRAINT_FOREIGNKEY':
    case 'SQLITE_CONSTRAINT_TRIGGER':
      return { kind: 'ForeignKeyConstraintViolation', constraint: { foreignKey: {} } }
  }
  if (code.startsWith('SQLITE_BUSY')) return { kind: 'SocketTimeout' }
  if (message.startsWith('no such table')) return { kind: 'TableDoesNotExist', table: after(': ') }
  if (message.startsWith('no such column')) return { kind: 'ColumnNotFound', column: after(': ') }
  return { kind: 'sqlite', extendedCode: 1, message }
}
