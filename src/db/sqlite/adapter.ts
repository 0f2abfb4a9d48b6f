import { AsyncLocalStorage } from 'node:async_hooks'
import {
  DriverAdapterError,
  type SqlDriverAdapter,
  type SqlDriverAdapterFactory,
  type Transaction,
} from '@prisma/driver-adapter-utils'
import { type FastPathDriver, type Runner, SQLITE } from '../fast-path/index.ts'
import { bounded, inTime } from '../limits.ts'
import { startCheckpoints } from './checkpoints.ts'
import { type Connection, connect } from './connection.ts'
import { createTurns, type Turn, untilFree } from './transaction-queue.ts'

/** SQLite's own limit of parameters in a statement; Prisma would take it for 999, and fail a page of 1,000 rows. */
const MAX_BIND_VALUES = 32_766

/**
 * After so many pages of the log (32 MiB) they are written to the file, while everybody waits. By default it is 2 MiB,
 * which two dozen runs fill; most of it are the same pages again.
 */
const CHECKPOINT = 16_000

/**
 * How much of the file the writing connection keeps (KiB): what runs write lies together, and 16 MiB, better-sqlite3's
 * default, would fill with what nobody asks for again.
 */
const WRITER_CACHE = 2_000

const NAMES = { provider: 'sqlite', adapterName: 'muster-sqlite' } as const

export type SqliteOptions = {
  /** Whether the log is copied into the file again and again (checkpoints.ts), as the one server of a file does. */
  keepsFile?: boolean
  /** Is called with SQLite's code for each statement that finds the file damaged. */
  onDamage?: ((code: string) => void) | undefined
}

/**
 * SQLite for Prisma, safe under concurrency. (Prisma's own adapter has one connection and no lock on it: everybody's
 * queries run inside whoever's transaction is open, and an acknowledged write vanishes when that one is rolled back.)
 *
 * Writes and transactions take turns on one connection, first come first served. Plain reads outside a transaction run
 * on another, which sees what is committed and nothing else. Within a process nobody ever finds the file locked; while
 * another process has it, a statement is tried again from a timer, since SQLite's own waiting would stop the event loop.
 */
export function sqliteAdapter(
  file: string,
  { keepsFile = false, onDamage }: SqliteOptions = {},
): SqlDriverAdapterFactory & FastPathDriver {
  let opened: SafeAdapter | undefined
  const connected = (): SafeAdapter => {
    if (opened) return opened
    throw new DriverAdapterError({ kind: 'ConnectionClosed' })
  }
  return {
    ...NAMES,
    async connect() {
      const writer = connect(file, onDamage)
      const reader = connect(file, onDamage)
      await untilFree(() => writer.script('PRAGMA journal_mode = WAL'))
      writer.script('PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON')
      writer.script(`PRAGMA wal_autocheckpoint = ${CHECKPOINT}; PRAGMA cache_size = -${WRITER_CACHE}`)
      // Where what a savepoint would take back is kept: by default in a file beyond 64 KiB, which the forty pages of a run
      // are, and each insert would take three times as long.
      writer.script('PRAGMA temp_store = MEMORY')
      reader.script('PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA query_only = ON')
      opened = safeAdapter(writer, reader, keepsFile ? file : null)
      return opened
    },
    dialect: SQLITE,
    plain: {
      rows: (statement, exact) => connected().plain.rows(statement, exact),
      typedRows: (statement) => connected().plain.typedRows(statement),
      changes: (statement) => connected().plain.changes(statement),
    },
    begin: () => connected().begin(),
  }
}

type SafeAdapter = SqlDriverAdapter & Omit<FastPathDriver, 'dialect'>

function safeAdapter(writer: Connection, reader: Connection, kept: string | null): SafeAdapter {
  const turns = createTurns(writer, kept !== null)
  const stopCheckpoints = kept === null ? async () => {} : startCheckpoints(kept, turns.beginLog)
  /** The transaction that Prisma joins instead of beginning one. */
  const joined = new AsyncLocalStorage<Transaction>()

  /** One statement in its turn on the writing connection. */
  async function write<T>(statement: () => T): Promise<T> {
    const turn = await turns.take()
    let answer: T
    try {
      answer = statement()
    } catch (error) {
      await turn.undo()
      throw error
    }
    await turn.keep()
    return answer
  }

  return {
    ...NAMES,
    getConnectionInfo: () => ({ maxBindValues: MAX_BIND_VALUES, supportsRelationJoins: false }),
    queryRaw: async (query) => (await untilFree(() => reader.read(query))) ?? write(() => writer.query(query)),
    executeRaw: (query) => write(() => writer.execute(query)),
    executeScript: (sql) => write(() => writer.script(sql)),
    async startTransaction(isolationLevel) {
      if (isolationLevel && isolationLevel !== 'SERIALIZABLE') {
        throw new DriverAdapterError({ kind: 'InvalidIsolationLevel', level: isolationLevel })
      }
      return joined.getStore() ?? openTransaction(writer, await turns.take()).transaction
    },
    plain: {
      rows: async (statement, exact) =>
        (await untilFree(() => reader.rows(statement, { exact, readOnly: true }))) ??
        (await write(() => writer.rows(statement, { exact, readOnly: false }))) ??
        [],
      typedRows: async (statement) => untilFree(() => reader.typedRows(statement)),
      changes: (statement) => write(() => writer.changes(statement)),
    },
    async begin() {
      const { transaction, inside } = openTransaction(writer, await inTime(turns.take(), (turn) => turn.undo()))
      const runner: Runner = {
        rows: async (statement, exact) => inside().rows(statement, { exact, readOnly: false }) ?? [],
        typedRows: async (statement) => inside().typedRows(statement),
        changes: async (statement) => inside().changes(statement),
      }
      return bounded(transaction, runner, joined)
    },
    async dispose() {
      const turn = await turns.take()
      await turn.keep(true)
      await stopCheckpoints()
      reader.close()
      writer.close()
    },
  }
}

/** The transaction that is open on the writing connection, and has it for itself until it ends. */
function openTransaction(writer: Connection, turn: Turn): { transaction: Transaction; inside: () => Connection } {
  let isOpen = true

  // SQLite ends a transaction by itself when the disk is full, and what came after would be a transaction of its own.
  function inside(): Connection {
    if (isOpen && writer.inTransaction()) return writer
    throw new DriverAdapterError({ kind: 'TransactionAlreadyClosed', cause: 'The transaction has ended.' })
  }

  const transaction: Transaction = {
    ...NAMES,
    // Prisma then sends no COMMIT and ROLLBACK of its own, and the lock cannot outlive them.
    options: { usePhantomQuery: true },
    queryRaw: async (query) => inside().query(query),
    executeRaw: async (query) => inside().execute(query),
    createSavepoint: async (name) => inside().script(`SAVEPOINT ${name}`),
    rollbackToSavepoint: async (name) => inside().script(`ROLLBACK TO ${name}`),
    releaseSavepoint: async (name) => inside().script(`RELEASE ${name}`),
    async rollback() {
      if (!isOpen) return
      isOpen = false
      await turn.undo()
    },
    async commit() {
      const ended = !isOpen || !writer.inTransaction()
      if (isOpen) {
        isOpen = false
        await (ended ? turn.undo() : turn.keep())
      }
      if (ended) throw new DriverAdapterError({ kind: 'TransactionAlreadyClosed', cause: 'The transaction has ended.' })
    },
  }
  return { transaction, inside }
}
