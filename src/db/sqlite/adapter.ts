import { AsyncLocalStorage } from 'node:async_hooks'
import {
  DriverAdapterError,
  type SqlDriverAdapter,
  type SqlDriverAdapterFactory,
  type Transaction,
} from '@prisma/driver-adapter-utils'
import { type FastPathDriver, type Runner, SQLITE } from '../fast-path/index.ts'
import { bounded, withTimeout } from '../limits.ts'
import { startCheckpoints } from './checkpoints.ts'
import { type Connection, connect } from './connection.ts'
import { createFileCheck, MOVED, type Tampering } from './file-identity.ts'
import { createTurns, type Turn, untilFree } from './transaction-queue.ts'

/** SQLite's limit of parameters in a statement. Prisma assumes 999 and would fail for a page of 1,000 rows. */
const MAX_BIND_VALUES = 32_766

/**
 * Log pages (32 MiB) after which a checkpoint runs and blocks writers. The default of 2 MiB is filled by two dozen
 * runs, mostly with repeated pages.
 */
const CHECKPOINT = 16_000

/**
 * Size to which the log is cut when it begins anew (bytes), twice its usual one. A long read of another program makes it
 * grow, and its file would stay as large until the server stops.
 */
const LOG_SIZE = 64 * 1024 * 1024

/**
 * Page cache of the writing connection (KiB). Runs write adjacent pages, and better-sqlite3's default of 16 MiB would
 * fill with pages that are not read again.
 */
const WRITER_CACHE = 2_000

const NAMES = { provider: 'sqlite', adapterName: 'muster-sqlite' } as const

export type SqliteOptions = {
  /** Whether checkpoints run regularly (checkpoints.ts), as in the only server of a file. */
  keepsFile?: boolean
  /** Called with SQLite's error code for each failed statement. */
  onFailure?: ((code: string) => void) | undefined
  /** Called with the first error of a regular checkpoint since the last complete one. */
  onCheckpointFailure?: ((error: Error) => void) | undefined
}

/**
 * Creates an SQLite adapter for Prisma that is safe under concurrency. Prisma's own adapter shares one connection
 * without a lock. Queries of other requests then run inside an open transaction, and its rollback discards their
 * acknowledged writes.
 *
 * Writes and transactions take turns on one connection in order of arrival. Plain reads outside a transaction run on
 * another connection, which sees committed data only. Within a process the file is never locked. While another process
 * holds it, statements are retried from a timer, because SQLite's own waiting would block the event loop.
 */
export function sqliteAdapter(
  file: string,
  { keepsFile = false, onFailure, onCheckpointFailure }: SqliteOptions = {},
): SqlDriverAdapterFactory & FastPathDriver {
  let opened: SafeAdapter | undefined
  const connected = (): SafeAdapter => {
    if (opened) return opened
    throw new DriverAdapterError({ kind: 'ConnectionClosed' })
  }
  return {
    ...NAMES,
    async connect() {
      const writer = connect(file, onFailure)
      const reader = connect(file, onFailure)
      await untilFree(() => writer.script('PRAGMA journal_mode = WAL'))
      writer.script('PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON')
      writer.script(`PRAGMA wal_autocheckpoint = ${CHECKPOINT}; PRAGMA cache_size = -${WRITER_CACHE}`)
      writer.script(`PRAGMA journal_size_limit = ${LOG_SIZE}`)
      // Savepoint journals stay in memory. By default they spill into a file beyond 64 KiB, the size of a run's forty
      // pages, and each insert would take three times as long.
      writer.script('PRAGMA temp_store = MEMORY')
      reader.script('PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA query_only = ON')
      opened = safeAdapter(writer, reader, keepsFile ? { file, onFailure, onCheckpointFailure } : null)
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

/** The file of its only server. */
type Kept = Pick<SqliteOptions, 'onFailure' | 'onCheckpointFailure'> & { file: string }

function safeAdapter(writer: Connection, reader: Connection, kept: Kept | null): SafeAdapter {
  const check = kept && createFileCheck(kept.file)
  const note = (found: Tampering = null) => {
    if (found) kept?.onFailure?.(MOVED)
    return found
  }
  const turns = createTurns(writer, kept ? { isMoved: (version) => note(check?.file(version)) !== null } : undefined)
  const stopCheckpoints = kept
    ? startCheckpoints(kept.file, {
        onCheckpoint: turns.beginLog,
        isMoved: () => inspect() !== null,
        onFailure: kept.onCheckpointFailure ?? (() => {}),
      })
    : async () => {}

  /** Empties the log of a moved file, so that it is not mixed into the file that has taken its place. */
  function inspect(): Tampering {
    const found = note(check?.fileAndLog(turns.version()))
    if (found === 'moved') emptyLog()
    return found
  }

  /** Copies the log into the file that the connections have open. */
  function emptyLog(): void {
    if (writer.inTransaction()) return
    try {
      writer.script('PRAGMA wal_checkpoint(TRUNCATE)')
    } catch {
      // The connection has reported it. The next check tries again.
    }
  }

  /** The transaction that Prisma joins instead of beginning one. */
  const joined = new AsyncLocalStorage<Transaction>()

  /** Executes one statement in its turn on the writing connection. */
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
      const { transaction, inside } = openTransaction(writer, await withTimeout(turns.take(), (turn) => turn.undo()))
      const runner: Runner = {
        rows: (statement, exact) => inside(() => writer.rows(statement, { exact, readOnly: false }) ?? []),
        typedRows: (statement) => inside(() => writer.typedRows(statement)),
        changes: (statement) => inside(() => writer.changes(statement)),
      }
      return bounded(transaction, runner, joined)
    },
    async dispose() {
      const turn = await turns.take()
      // Members of the group get its error.
      await turn.keep(true).catch(() => {})
      await stopCheckpoints()
      const closeAll = () => {
        reader.close()
        writer.close()
      }
      if (check) check.close(closeAll, inspect())
      else closeAll()
    },
  }
}

/** Opens a transaction with exclusive use of the writing connection until it ends. */
function openTransaction(
  writer: Connection,
  turn: Turn,
): { transaction: Transaction; inside: <T>(statement: () => T) => Promise<T> } {
  let isOpen = true
  let isRolledBack = false
  const ended = () => new DriverAdapterError({ kind: 'TransactionAlreadyClosed', cause: 'The transaction has ended.' })

  async function inside<T>(statement: () => T): Promise<T> {
    if (!isOpen || isRolledBack) throw ended()
    try {
      return statement()
    } catch (error) {
      // SQLite rolls a transaction back by itself when the disk is full. Later statements would then run outside it.
      isRolledBack = !writer.inTransaction()
      throw error
    }
  }

  const transaction: Transaction = {
    ...NAMES,
    // Makes Prisma send no COMMIT and ROLLBACK of its own, so that the lock cannot outlive them.
    options: { usePhantomQuery: true },
    queryRaw: (query) => inside(() => writer.query(query)),
    executeRaw: (query) => inside(() => writer.execute(query)),
    createSavepoint: (name) => inside(() => writer.script(`SAVEPOINT ${name}`)),
    rollbackToSavepoint: (name) => inside(() => writer.script(`ROLLBACK TO ${name}`)),
    releaseSavepoint: (name) => inside(() => writer.script(`RELEASE ${name}`)),
    async rollback() {
      if (!isOpen) return
      isOpen = false
      await turn.undo()
    },
    async commit() {
      const hasEnded = !isOpen || isRolledBack
      if (isOpen) {
        isOpen = false
        await (hasEnded ? turn.undo() : turn.keep())
      }
      if (hasEnded) throw ended()
    },
  }
  return { transaction, inside }
}
