import { setTimeout as sleep } from 'node:timers/promises'
import {
  DriverAdapterError,
  type SqlDriverAdapter,
  type SqlDriverAdapterFactory,
  type Transaction,
} from '@prisma/driver-adapter-utils'
import { type Connection, connect } from './sqlite-connection.ts'

/** SQLite's own limit of parameters in a statement; Prisma would take it for 999, and fail a page of 1,000 rows. */
const MAX_BIND_VALUES = 32_766

/** How long, in milliseconds, a statement is tried again while another process holds the file. */
const BUSY_TIMEOUT = 5_000

const NAMES = { provider: 'sqlite', adapterName: 'muster-sqlite' } as const

/**
 * SQLite for Prisma, safe under concurrency. (Prisma's own adapter has one connection and no lock on it: everybody's
 * queries run inside whoever's transaction is open, and an acknowledged write vanishes when that one is rolled back.)
 *
 * Writes and transactions take turns on one connection, first come first served. Plain reads outside a transaction run
 * on another, which sees what is committed and nothing else. Within a process nobody ever finds the file locked; while
 * another process has it, a statement is tried again from a timer, since SQLite's own waiting would stop the event loop.
 */
export function sqliteAdapter(file: string): SqlDriverAdapterFactory {
  return {
    ...NAMES,
    async connect() {
      const writer = connect(file)
      const reader = connect(file)
      await untilFree(() => writer.script('PRAGMA journal_mode = WAL'))
      writer.script('PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON')
      reader.script('PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA query_only = ON')
      return safeAdapter(writer, reader)
    },
  }
}

function safeAdapter(writer: Connection, reader: Connection): SqlDriverAdapter {
  const acquire = createLock()

  /** One statement in its turn on the writing connection. */
  async function write<T>(statement: () => T): Promise<T> {
    const release = await acquire()
    try {
      return await untilFree(statement)
    } finally {
      release()
    }
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
      const release = await acquire()
      try {
        // At once for writing: a transaction that reads first and writes later could find that somebody else has.
        await untilFree(() => writer.script('BEGIN IMMEDIATE'))
      } catch (error) {
        release()
        throw error
      }
      return openTransaction(writer, release)
    },
    async dispose() {
      const release = await acquire()
      reader.close()
      writer.close()
      // Whoever still waits is told so, by the closed connection.
      release()
    },
  }
}

/** The transaction that is open on the writing connection, and has it for itself until it ends. */
function openTransaction(writer: Connection, release: () => void): Transaction {
  let isOpen = true

  // SQLite ends a transaction by itself when the disk is full, and what came after would be a transaction of its own.
  function inside(): Connection {
    if (isOpen && writer.inTransaction()) return writer
    throw new DriverAdapterError({ kind: 'TransactionAlreadyClosed', cause: 'The transaction has ended.' })
  }
  function rollback(): void {
    if (!isOpen) return
    try {
      if (writer.inTransaction()) writer.script('ROLLBACK')
    } finally {
      isOpen = false
      release()
    }
  }

  return {
    ...NAMES,
    // Prisma then sends no COMMIT and ROLLBACK of its own, and the lock cannot outlive them.
    options: { usePhantomQuery: true },
    queryRaw: async (query) => inside().query(query),
    executeRaw: async (query) => inside().execute(query),
    createSavepoint: async (name) => inside().script(`SAVEPOINT ${name}`),
    rollbackToSavepoint: async (name) => inside().script(`ROLLBACK TO ${name}`),
    releaseSavepoint: async (name) => inside().script(`RELEASE ${name}`),
    rollback: async () => rollback(),
    async commit() {
      try {
        inside().script('COMMIT')
      } finally {
        rollback()
      }
    },
  }
}

/** A lock that is given out in the order it was asked for: `const release = await acquire()`. */
function createLock(): () => Promise<() => void> {
  let last = Promise.resolve()
  return async () => {
    const before = last
    const { promise, resolve } = Promise.withResolvers<void>()
    last = promise
    await before
    return resolve
  }
}

/** Runs a statement, again and again while another process has the file. Nothing of it has happened until then. */
async function untilFree<T>(statement: () => T): Promise<T> {
  const deadline = Date.now() + BUSY_TIMEOUT
  for (let pause = 1; ; pause = Math.min(pause * 2, 50)) {
    try {
      return statement()
    } catch (error) {
      const isBusy = error instanceof DriverAdapterError && error.cause.kind === 'SocketTimeout'
      if (!isBusy || Date.now() >= deadline) throw error
    }
    await sleep(pause)
  }
}
