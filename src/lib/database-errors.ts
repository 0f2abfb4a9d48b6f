import { CERTIFICATE } from './net/certificate.ts'

/** Prisma's error codes: refused, unreachable, timed out, closed, no connection or transaction available, deadlock. */
const CODES = new Set(['P1000', 'P1001', 'P1002', 'P1008', 'P1010', 'P1017', 'P2024', 'P2028', 'P2034', 'P2037'])

/** Our own code for a transaction that exceeded its time limit. */
export const OVERDUE = 'MUSTER_TRANSACTION_OVERDUE'

/** Prisma's kind of a database that cannot be reached, which has no code. */
export const NOT_REACHABLE = 'DatabaseNotReachable'

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
export const TLS = new RegExp(`^(?:${TLS_KIND}|ERR_(?:TLS|SSL)_\\w+)$|${CERTIFICATE.source}`)

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
  const { code, message, kind, syscall } = detailsOf(error)
  if (CODES.has(String(code)) || KINDS.has(String(kind)) || CONNECTING.test(String(syscall))) return true
  const own = codeIn(error)
  return DRIVER.test(own) || TLS.test(own) || MESSAGE.test(String(message))
}

/** Returns whether an error is one of Prisma's, or of the adapters of the databases. */
export const isOfDatabase = (error: unknown): boolean =>
  error instanceof Error && /^(PrismaClient|DriverAdapterError)/.test(error.name)

/** Returns whether a unique key has the value already, in a model call or a raw statement. */
export function isUniqueViolation(error: unknown): boolean {
  const { code, kind } = detailsOf(error)
  return code === 'P2002' || kind === 'UniqueConstraintViolation'
}

/** Returns whether an update matched no row although the caller expected one (`expectsOne` of the fast path). */
export function isUnexpectedCount(error: unknown): boolean {
  return detailsOf(error).originalCode === '22012'
}

/** Returns whether the database rolled a transaction back because of a deadlock or a serialization failure. */
export function isConflict(error: unknown): boolean {
  const { code, kind } = detailsOf(error)
  return code === 'P2034' || kind === 'TransactionWriteConflict'
}

/** Codes of a transaction that PostgreSQL has ended because it was idle, or open, for too long. */
export const TIMED_OUT = /^25P0[34]$/

/** Returns whether PostgreSQL has ended a transaction, and its connection, because of a time limit. */
export const isTimedOut = (code: unknown): code is string => TIMED_OUT.test(String(code))

/** Codes and messages of a connection that was open and broke, or that PostgreSQL has ended. */
const LOST = /^(ECONNRESET|EPIPE|08...|25P0[34]|57P01|57P05)$/
const LOST_MESSAGE = /^(Connection terminated unexpectedly|Client has encountered a connection error|Client was closed)/

/** Returns whether the connection broke while it was used. Another one may work at once. */
export function isLostConnection(error: unknown): boolean {
  const { code, kind, message, originalCode } = detailsOf(error)
  if (code === 'P1017' || kind === 'ConnectionClosed') return true
  return LOST.test(String(originalCode ?? code)) || LOST_MESSAGE.test(String(message))
}

/** PostgreSQL's codes of a refused right, and of a missing table or schema. */
export const NO_ACCESS = /^(3F000|42501|42P01)$/

/** Returns whether a session may not use the tables. Another one may, once the settings of its role are corrected. */
export const lacksAccess = (code: unknown): boolean => NO_ACCESS.test(String(code))

/** Returns the database's own code of an error, and Prisma's kind for a connection that fails without one. */
export function codeIn(error: unknown): string {
  const { originalCode, code, kind, message } = detailsOf(error)
  const isTls = kind === TLS_KIND || TLS_MESSAGE.test(String(message))
  return String(originalCode ?? code ?? (isTls ? TLS_KIND : kind === NOT_REACHABLE ? kind : undefined))
}

/** Returns whether a code of SQLite or PostgreSQL reports a damaged file, page or index. */
export const isDamage = (code: string): boolean => /^(SQLITE_(CORRUPT|NOTADB).*|XX00[12])$/.test(code)

/** Returns an error's own fields and those of the driver adapter's error that it is or contains. */
export function detailsOf(error: unknown): Details {
  if (!(error instanceof Error)) return {}
  const { code, syscall, meta, cause } = error as Error & {
    code?: unknown
    syscall?: unknown
    meta?: { driverAdapterError?: { cause?: Details } }
  }
  const driver = meta?.driverAdapterError?.cause ?? (error.name === 'DriverAdapterError' ? (cause as Details) : {})
  return { code, syscall, message: error.message, kind: driver.kind, originalCode: driver.originalCode }
}
