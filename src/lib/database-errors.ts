/** Prisma's error codes: unreachable, timed out, closed, no connection or transaction available, deadlock. */
const CODES = new Set(['P1001', 'P1002', 'P1008', 'P1017', 'P2024', 'P2028', 'P2034', 'P2037'])

/** The same in Prisma's adapters, whose errors are not wrapped when a COMMIT fails. */
const KINDS = new Set([
  'DatabaseNotReachable',
  'SocketTimeout',
  'ConnectionClosed',
  'TransactionWriteConflict',
  'TooManyConnections',
  'TransactionAlreadyClosed',
])

/**
 * Codes of the operating system, SQLite and PostgreSQL: class 08 (connections), 25006 (read-only standby, or a
 * provider's full disk), class 53 (out of memory, disk or connections), shutdown, startup, and cancellation by an
 * operator's or our own limit for a transaction (25P03).
 */
const DRIVER =
  /^(E(CONN(REFUSED|RESET|ABORTED)|PIPE|TIMEDOUT|(HOST|NET)UNREACH|NOTFOUND|AI_AGAIN)|SQLITE_(BUSY|FULL|IOERR).*|08...|25006|25P03|53...|55P03|57014|57P0[1-3])$/

/** Messages of pg errors without a code: a broken or silent connection, an exhausted pool. */
const MESSAGE =
  /^(Connection terminated|Query read timeout|Client has encountered a connection error|Client was closed|timeout exceeded when trying to connect)/

type Details = { code?: unknown; message?: unknown; kind?: unknown; originalCode?: unknown }

/**
 * Returns whether the database is unreachable or overloaded: nothing was written, and the same request may succeed
 * later (contract.md section 1: 503).
 */
export function isUnavailable(error: unknown): boolean {
  const { code, message, kind, originalCode } = details(error)
  if (CODES.has(String(code)) || KINDS.has(String(kind))) return true
  return DRIVER.test(String(originalCode ?? code)) || MESSAGE.test(String(message))
}

/** Returns whether a unique key has the value already, in a model call or a raw statement. */
export function isUniqueViolation(error: unknown): boolean {
  const { code, kind } = details(error)
  return code === 'P2002' || kind === 'UniqueConstraintViolation'
}

/** Returns whether an update matched no row although the caller expected one (`expectsOne` of the fast path). */
export function isUnexpectedCount(error: unknown): boolean {
  return details(error).originalCode === '22012'
}

/** Returns whether the database rolled a transaction back because of a deadlock. */
export function isDeadlock(error: unknown): boolean {
  const { code, kind } = details(error)
  return code === 'P2034' || kind === 'TransactionWriteConflict'
}

/**
 * Returns the loggable part of an error that comes from the database or from unreadable JSON: its codes and stack
 * locations. The message may repeat queries or stored data. Returns undefined for any other error.
 */
export function describeDatabaseError(error: unknown): object | undefined {
  let cause = error
  while (cause instanceof Error && !REPEATING.test(cause.name)) cause = cause.cause
  if (!(cause instanceof Error)) return undefined
  const { code, kind, originalCode } = details(cause)
  const { name: type, message, stack = '' } = cause
  const said = stack.indexOf(message)
  return { type, code, kind, originalCode, stack: said < 0 ? '' : stack.slice(said + message.length) }
}

const REPEATING = /^(PrismaClient|DriverAdapterError|SyntaxError)/

/** Returns an error's own fields and those of the driver adapter's error that it is or contains. */
function details(error: unknown): Details {
  if (!(error instanceof Error)) return {}
  const { code, meta, cause } = error as Error & { code?: unknown; meta?: { driverAdapterError?: { cause?: Details } } }
  const driver = meta?.driverAdapterError?.cause ?? (error.name === 'DriverAdapterError' ? (cause as Details) : {})
  return { code, message: error.message, kind: driver.kind, originalCode: driver.originalCode }
}
