import {
  type ColumnType,
  ColumnTypeEnum,
  DriverAdapterError,
  type MappedError,
  type SqlQuery,
  type SqlResultSet,
} from '@prisma/driver-adapter-utils'
import Sqlite from 'better-sqlite3'

/** How many prepared statements a connection keeps. To prepare one costs as much as all the rest of a query. */
const STATEMENTS = 500

/** The column types that Prisma's migrations declare. Of anything else (an expression) the value tells the type. */
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

export type Connection = {
  query: (query: SqlQuery) => SqlResultSet
  /** The same if the statement writes nothing; else null, and it was not run. */
  read: (query: SqlQuery) => SqlResultSet | null
  /** The number of rows changed. */
  execute: (query: SqlQuery) => number
  /** Statements without parameters. */
  script: (sql: string) => void
  inTransaction: () => boolean
  close: () => void
}

/**
 * One connection to an SQLite file, in Prisma's terms. Everything is synchronous and throws a DriverAdapterError; where
 * another process holds the file, at once and of kind SocketTimeout. A DateTime is stored in milliseconds since 1970.
 */
export function connect(file: string): Connection {
  const client = new Sqlite(file, { timeout: 0 })
  const statements = new Map<string, Statement>()

  function prepare(sql: string): Statement {
    let statement = statements.get(sql)
    if (statement) statements.delete(sql)
    else statement = describe(client.prepare<unknown[], unknown[]>(sql))
    // Put back at the end: the first one is then the one not used for longest.
    statements.set(sql, statement)
    for (const [oldest] of statements) {
      if (statements.size <= STATEMENTS) break
      statements.delete(oldest)
    }
    return statement
  }

  return {
    query: (query) => translated(() => run(prepare(query.sql), query)),
    read: (query) =>
      translated(() => {
        const statement = prepare(query.sql)
        return statement.handle.reader && statement.handle.readonly ? run(statement, query) : null
      }),
    execute: (query) => translated(() => prepare(query.sql).handle.run(...bind(query)).changes),
    script: (sql) => translated(() => void client.exec(sql)),
    inTransaction: () => client.inTransaction,
    close: () => void client.close(),
  }
}

type Statement = {
  handle: Sqlite.Statement<unknown[], unknown[]>
  columnNames: string[]
  /** null: an expression, whose type its values tell. */
  columnTypes: (ColumnType | null)[]
}

function describe(handle: Sqlite.Statement<unknown[], unknown[]>): Statement {
  const columns = handle.reader ? handle.raw().columns() : []
  const columnTypes = columns.map(({ type }) => TYPES[type ?? ''] ?? null)
  // As BigInt, an integer is exact and can be told from a real. It is slow, and needless for most statements.
  handle.safeIntegers(columnTypes.some((type) => type === null || type === ColumnTypeEnum.Int64))
  return { handle, columnNames: columns.map(({ name }) => name), columnTypes }
}

function run({ handle, columnNames, columnTypes }: Statement, query: SqlQuery): SqlResultSet {
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

/** The parameters as SQLite takes them: no booleans, dates as milliseconds, what Prisma writes as text as what it is. */
function bind({ args, argTypes }: SqlQuery): unknown[] {
  return args.map((arg, index) => {
    if (typeof arg === 'boolean') return arg ? 1 : 0
    if (arg instanceof Date) return arg.getTime()
    if (typeof arg !== 'string') return arg
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

function translated<T>(statement: () => T): T {
  try {
    return statement()
  } catch (error) {
    if (!(error instanceof Sqlite.SqliteError)) throw error
    throw new DriverAdapterError({ originalCode: error.code, originalMessage: error.message, ...translate(error) })
  }
}

/** An SQLite error in Prisma's terms: https://www.sqlite.org/rescode.html. */
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
