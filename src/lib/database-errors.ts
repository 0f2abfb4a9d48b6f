/** Prisma's codes: not reached, timed out, closed, no connection or transaction to be had, undone by a deadlock. */
const CODES = new Set(['P1001', 'P1002', 'P1008', 'P1017', 'P2024', 'P2028', 'P2034', 'P2037'])

/** The same as its adapters say it, whose errors come through bare when they meet a COMMIT. */
const KINDS = new Set([
  'DatabaseNotReachable',
  'SocketTimeout',
  'ConnectionClosed',
  'TransactionWriteConflict',
  'TooManyConnections',
  'TransactionAlreadyClosed',
])

/**
 * The operating system's and SQLite's, and PostgreSQL's: class 08 (connections), 25006 (a standby, or a full disk of the
 * provider's), class 53 (no memory, disk or connection left), shutting down, starting up, and what an operator's limits,
 * or ours for a transaction (25P03), have cut short.
 */
const DRIVER =
  /^(E(CONN(REFUSED|RESET|ABORTED)|PIPE|TIMEDOUT|(HOST|NET)UNREACH|NOTFOUND|AI_AGAIN)|SQLITE_(BUSY|FULL|IOERR).*|08...|25006|25P03|53...|55P03|57014|57P0[1-3])$/

/** What pg says without any code, of a connection that broke or keeps silent, and of a pool that is exhausted. */
const MESSAGE =
  /^(Connection terminated|Query read timeout|Client has encountered a connection error|Client was closed|timeout exceeded when trying to connect)/

type Details = { code?: unknown; message?: unknown; kind?: unknown; originalCode?: unknown }

/**
 * Whether an error says that the database cannot be reached or has no room just now: nothing was written, and the same
 * request may succeed later (contract.md section 1: 503).
 */
export function isUnavailable(error: unknown): boolean {
  const { code, message, kind, originalCode } = details(error)
  if (CODES.has(String(code)) || KINDS.has(String(kind))) return true
  return DRIVER.test(String(originalCode ?? code)) || MESSAGE.test(String(message))
}

/** Whether an error says that a unique key has the value already, whether a model's or a raw statement's. */
export function isUniqueViolation(error: unknown): boolean {
  const { code, kind } = details(error)
  return code === 'P2002' || kind === 'UniqueConstraintViolation'
}

/** Whether the database has undone a transaction because it and another waited for each other. */
export function isDeadlock(error: unknown): boolean {
  const { code, kind } = details(error)
  return code === 'P2034' || kind === 'TransactionWriteConflict'
}

/**
 * What may be logged of an error that is one of the database, or has come of one, or of JSON that cannot be read: its
 * codes, and where it happened. What such an error says may repeat what was asked, answered or stored. Undefined for any
 * other.
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

/** An error's own fields, and those of the driver adapter's error that it is or carries. */
function details(error: unknown): Details {
  if (!(error instanceof Error)) return {}
  const { code, meta, cause } = error as Error & { code?: unknown; meta?: { driverAdapterError?: { cause?: Details } } }
  const driver = meta?.driverAdapterError?.cause ?? (error.name === 'DriverAdapterError' ? (cause as Details) : {})
  return { code, message: error.message, kind: driver.kind, originalCode: driver.originalCode }
}
