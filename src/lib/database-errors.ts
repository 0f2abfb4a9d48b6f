import { CERTIFICATE } from './net/certificate.ts'

/** Prisma's error codes: refused, unreachable, timed out, closed, no connection or transaction available, deadlock. */
const CODES = new Set(['P1000', 'P1001', 'P1002', 'P1008', 'P1010', 'P1017', 'P2024', 'P2028', 'P2034', 'P2037'])

/** Prisma's kind of a database that cannot be reached, which has no code. */
const NOT_REACHABLE = 'DatabaseNotReachable'

/** The same in Prisma's adapters, whose errors are not wrapped when a COMMIT fails. */
const KINDS = new Set([
  'AuthenticationFailed',
  'DatabaseAccessDenied',
  NOT_REACHABLE,
  'SocketTimeout',
  'ConnectionClosed',
  'TransactionWriteConflict',
  'TooManyConnections',
  'TransactionAlreadyClosed',
  'TlsConnectionError',
])

/**
 * Codes that mean an unavailable database, of the operating system, SQLite and PostgreSQL. From PostgreSQL these are:
 * - class 08 (connections), class 53 (out of memory, disk or connections) and class 28 (a refused user or password),
 * - 3D000 and 55000 (a database that is missing, or closed to connections), 42501, 42P01 and 3F000 (rights, tables),
 * - 25006 (a read-only standby, or a provider's full disk) and class 58 (its files),
 * - shutdown, startup and conflicts (class 40),
 * - time limits of the operator or of this service (25P03, 25P04, 57014, 57P05).
 */
const DRIVER =
  /^(E(CONN(REFUSED|RESET|ABORTED)|PIPE|TIMEDOUT|(HOST|NET)UNREACH|NOTFOUND|AI_AGAIN)|SQLITE_(BUSY|FULL|IOERR|CANTOPEN|READONLY_DBMOVED).*|08...|25006|25P0[34]|28...|3[DF]000|40001|40P01|42501|42P01|53...|55000|55P03|57014|57P0[1-5]|58...)$/

/** The system calls of a connection: whatever their code, such as ENOENT of a socket, there is none. */
const CONNECTING = /^(connect|getaddrinfo)$/

/** Node's codes of an encrypted connection that fails, mostly because of a certificate, and Prisma's kind of all these. */
const TLS_KIND = 'TlsConnectionError'
const TLS = new RegExp(`^(?:${TLS_KIND}|ERR_(?:TLS|SSL)_\\w+)$|${CERTIFICATE.source}`)

/** Messages of pg errors of such connections, which have no code. */
const TLS_MESSAGE = /^(The server does not support|There was an error establishing an) SSL connection/

/** Messages of pg errors without a code: a broken or silent connection, an exhausted pool. */
const MESSAGE =
  /^(Connection terminated|Query read timeout|Client has encountered a connection error|Client was closed|timeout exceeded when trying to connect)/

type Details = { code?: unknown; message?: unknown; kind?: unknown; originalCode?: unknown; syscall?: unknown }

/**
 * Returns whether the database is unreachable or overloaded: nothing was written, and the same request may succeed
 * later (contract.md section 1: 503).
 */
export function isUnavailable(error: unknown): boolean {
  const { code, message, kind, syscall } = details(error)
  if (CODES.has(String(code)) || KINDS.has(String(kind)) || CONNECTING.test(String(syscall))) return true
  const own = codeIn(error)
  return DRIVER.test(own) || TLS.test(own) || MESSAGE.test(String(message))
}

/** Returns whether an error is one of Prisma's, or of the adapters of the databases. */
export const isOfDatabase = (error: unknown): boolean =>
  error instanceof Error && /^(PrismaClient|DriverAdapterError)/.test(error.name)

/** Returns whether a unique key has the value already, in a model call or a raw statement. */
export function isUniqueViolation(error: unknown): boolean {
  const { code, kind } = details(error)
  return code === 'P2002' || kind === 'UniqueConstraintViolation'
}

/** Returns whether an update matched no row although the caller expected one (`expectsOne` of the fast path). */
export function isUnexpectedCount(error: unknown): boolean {
  return details(error).originalCode === '22012'
}

/** Returns whether the database rolled a transaction back because of a deadlock or a serialization failure. */
export function isConflict(error: unknown): boolean {
  const { code, kind } = details(error)
  return code === 'P2034' || kind === 'TransactionWriteConflict'
}

/** Codes of a transaction that PostgreSQL has ended because it was idle, or open, for too long. */
const TIMED_OUT = /^25P0[34]$/

/** Returns whether PostgreSQL has ended a transaction, and its connection, because of a time limit. */
export const isTimedOut = (code: unknown): code is string => TIMED_OUT.test(String(code))

/** Codes and messages of a connection that was open and broke, or that PostgreSQL has ended. */
const LOST = /^(ECONNRESET|EPIPE|08...|25P0[34]|57P01|57P05)$/
const LOST_MESSAGE = /^(Connection terminated unexpectedly|Client has encountered a connection error|Client was closed)/

/** Returns whether the connection broke while it was used. Another one may work at once. */
export function isLostConnection(error: unknown): boolean {
  const { code, kind, message, originalCode } = details(error)
  if (code === 'P1017' || kind === 'ConnectionClosed') return true
  return LOST.test(String(originalCode ?? code)) || LOST_MESSAGE.test(String(message))
}

/** A state of the database that its operator has to end. */
export type Trouble = {
  name:
    | 'unreachable'
    | 'disk_full'
    | 'disk_error'
    | 'moved'
    | 'read_only'
    | 'taken'
    | 'no_connections'
    | 'no_database'
    | 'no_access'
    | 'refused'
    | 'tls'
    | 'locked'
    | 'slow'
    | 'starting'
    | 'ended'
    | 'idle'
  /** Explanations of troubles for callers: the problem and the remedy. */
  detail: string
  /** The same for the log, if it differs. */
  line?: string
}

/** PostgreSQL's codes of a refused right, and of a missing table or schema. */
const NO_ACCESS = /^(3F000|42501|42P01)$/

/** Returns whether a session may not use the tables. Another one may, once the settings of its role are corrected. */
export const lacksAccess = (code: unknown): boolean => NO_ACCESS.test(String(code))

const TROUBLES: readonly (readonly [codes: RegExp, trouble: Trouble])[] = [
  [
    /^DatabaseNotReachable$/,
    {
      name: 'unreachable',
      detail:
        'The database cannot be reached. Repeat the request in a moment; the operator has to start it, or to look at the ' +
        'network and at DATABASE_URL.',
    },
  ],
  [
    /^(53100|SQLITE_FULL)$/,
    {
      name: 'disk_full',
      detail: 'The disk of the database is full: reads work, writes fail. The operator has to free space.',
    },
  ],
  [
    /^SQLITE_(IOERR|CANTOPEN)/,
    {
      name: 'disk_error',
      detail:
        'The database file cannot be read or written: its disk fails, is read-only, has no space or inodes left, or knows ' +
        'no locks, as some network shares. The operator has to look at the disk (df -h, df -i) and at the log of its system.',
    },
  ],
  [
    /^58...$/,
    {
      name: 'disk_error',
      detail: 'PostgreSQL cannot use its files. The operator has to look at its log and at its disk.',
    },
  ],
  [
    /^SQLITE_READONLY_DBMOVED$/,
    {
      name: 'moved',
      detail:
        'The database file was deleted, moved or replaced while the server uses it. The operator has to move it back, or ' +
        'to stop the server and restore a backup.',
      line:
        'the database file was deleted, moved or replaced while this server uses it, so writes are refused: move it back, ' +
        'or stop this server and restore a backup (npm run admin -- restore). A deleted file can be copied from ' +
        '/proc/<pid>/fd until this server stops',
    },
  ],
  [
    /^MUSTER_LOCK_TAKEN$/,
    {
      name: 'taken',
      detail: 'Another server uses the same database file. The operator has to stop one of the two.',
      line:
        'the file <database>.lock was deleted while this server runs, and another server uses the database by now. Runs can ' +
        'begin twice: stop one of the two servers (<database>.pid has the pid of the other one)',
    },
  ],
  [
    /^25006$/,
    {
      name: 'read_only',
      detail:
        'The database accepts no writes, as a standby or a provider with a full disk does. The operator has to make it ' +
        'writable, or to correct DATABASE_URL.',
    },
  ],
  [
    /^53300$/,
    {
      name: 'no_connections',
      detail:
        'PostgreSQL, or its pooler, has no free connection. The operator has to raise max_connections (max_client_conn of ' +
        'PgBouncer), or to lower DATABASE_POOL_SIZE.',
    },
  ],
  [
    /^28...$/,
    {
      name: 'refused',
      detail:
        'PostgreSQL refuses the user or the password of this server. The operator has to correct it, in PostgreSQL or in ' +
        'DATABASE_URL.',
    },
  ],
  [
    /^(3D000|55000|57P04)$/,
    {
      name: 'no_database',
      detail:
        'The database was dropped or renamed, or accepts no connections. The operator has to restore it, or to correct ' +
        'DATABASE_URL.',
    },
  ],
  [
    NO_ACCESS,
    {
      name: 'no_access',
      detail:
        'The role of this server may not use its tables, or does not find them. The operator has to undo a change of the ' +
        'rights, the schema public or the search_path.',
    },
  ],
  [
    TLS,
    {
      name: 'tls',
      detail:
        'The encrypted connection to PostgreSQL fails: PostgreSQL offers none, or its certificate is not accepted. The ' +
        'operator has to renew the certificate, or to set sslrootcert (the file of its authority) or sslmode in ' +
        'DATABASE_URL.',
    },
  ],
  [
    /^SQLITE_BUSY/,
    {
      name: 'locked',
      detail:
        'Another program holds a lock on the database file, such as a shell of sqlite3 with an open transaction. The ' +
        'operator has to end it.',
    },
  ],
  [
    /^55P03$/,
    {
      name: 'locked',
      detail:
        'Another session holds a lock for too long. Repeat the request; pg_locks shows the operator who holds it.',
    },
  ],
  [
    /^57014$/,
    {
      name: 'slow',
      detail:
        'PostgreSQL took too long for a statement and ended it. Repeat the request; the operator may have to raise ' +
        'statement_timeout, or to look for load and locks.',
    },
  ],
  [/^57P0[23]$/, { name: 'starting', detail: 'PostgreSQL is starting or stopping. Repeat the request in a moment.' }],
  [
    /^57P0[15]$/,
    {
      name: 'ended',
      detail: 'PostgreSQL has ended the connection of the request. Whether a write took effect is unknown: look first.',
      line: 'PostgreSQL has ended connections of this server: reads and unfinished transactions are repeated',
    },
  ],
  [
    TIMED_OUT,
    {
      name: 'idle',
      detail:
        'PostgreSQL has ended a transaction that was idle or open for too long. Nothing was written: repeat the request.',
      line:
        'PostgreSQL has ended transactions that were idle or open for too long, as when this process was suspended or ' +
        'overloaded: they are repeated',
    },
  ],
]

/** Returns what the operator has to end, by the database's own error code. */
export const troubleOf = (code: string): Trouble | undefined => TROUBLES.find(([codes]) => codes.test(code))?.[1]

/** Returns what the operator has to end, if that is why a statement failed. */
export const troubleIn = (error: unknown): Trouble | undefined => troubleOf(codeIn(error))

/** Returns the database's own code of an error, and Prisma's kind for a connection that fails without one. */
export function codeIn(error: unknown): string {
  const { originalCode, code, kind, message } = details(error)
  const isTls = kind === TLS_KIND || TLS_MESSAGE.test(String(message))
  return String(originalCode ?? code ?? (isTls ? TLS_KIND : kind === NOT_REACHABLE ? kind : undefined))
}

/** Returns whether a code of SQLite or PostgreSQL reports a damaged file, page or index. */
export const isDamage = (code: string): boolean => /^(SQLITE_(CORRUPT|NOTADB).*|XX00[12])$/.test(code)

/**
 * Returns the loggable part of an error that comes from the database or from unreadable JSON: its codes and stack
 * locations, which are omitted for a {@link Trouble}. The message may repeat queries or stored data, unless there was no
 * connection. Returns undefined for any other error.
 */
export function describeDatabaseError(error: unknown): object | undefined {
  let cause = error
  while (cause instanceof Error && !REPEATING.test(cause.name)) cause = cause.cause
  if (!(cause instanceof Error)) return undefined
  const { code, kind, originalCode } = details(cause)
  const { name: type, message, stack = '' } = cause
  const refusal = kind === NOT_REACHABLE && { message }
  if (troubleIn(cause)) return { type, code, kind, originalCode, ...refusal }
  const start = stack.indexOf(message)
  return { type, code, kind, originalCode, stack: start < 0 ? '' : stack.slice(start + message.length) }
}

const REPEATING = /^(PrismaClient|DriverAdapterError|SyntaxError)/

/** Returns an error's own fields and those of the driver adapter's error that it is or contains. */
function details(error: unknown): Details {
  if (!(error instanceof Error)) return {}
  const { code, syscall, meta, cause } = error as Error & {
    code?: unknown
    syscall?: unknown
    meta?: { driverAdapterError?: { cause?: Details } }
  }
  const driver = meta?.driverAdapterError?.cause ?? (error.name === 'DriverAdapterError' ? (cause as Details) : {})
  return { code, syscall, message: error.message, kind: driver.kind, originalCode: driver.originalCode }
}
