import { setTimeout as sleep } from 'node:timers/promises'
import { DriverAdapterError } from '@prisma/driver-adapter-utils'
import type { Connection } from './connection.ts'
import { MOVED } from './file-identity.ts'

/** Maximum time that a statement waits while another process holds the file (ms). */
const BUSY_TIMEOUT = 5_000

/** Maximum number of members of a group, and maximum age of a group that can be joined (ms). */
const MAX_MEMBERS = 256
const MAX_AGE = 20

/** Exclusive time on the writing connection, which appears as a separate transaction to its owner. */
export type Turn = {
  /** Resolves when the changes are on the disk, and rejects if they cannot be written. `last`: closes the group. */
  keep: (last?: boolean) => Promise<void>
  /** Rolls the changes back. */
  undo: () => Promise<void>
}

type Turns = {
  take: () => Promise<Turn>
  /** Makes the next write increment the file's number, because a checkpoint is about to restart the log. */
  beginLog: () => void
  /** Returns the file's latest number. */
  version: () => number
}

/** Turns that are committed to the disk together. */
type Group = { members: number; begun: number; end: PromiseWithResolvers<void> }

/**
 * Serializes turns on the writing connection in order of arrival. A disk write takes longer than most transactions, so
 * concurrent ones become savepoints of one SQLite transaction, and none resolves before all are on the disk. A single
 * turn is committed at the end of the event loop turn.
 *
 * `kept`: that of the only server of a file. Its first write, and the first one after each `beginLog`, increments the
 * file's `user_version` (write-ahead-log.ts), and no write follows one that `isMoved`. It gets the latest number.
 */
export function createTurns(writer: Connection, kept?: { isMoved: (version: number) => boolean }): Turns {
  const waiting: (() => void)[] = []
  let taken = false
  let group: Group | null = null
  /** Whether the next write must increment the number, and the number of changes before it. */
  let isDue = kept !== undefined
  let changes = 0
  let version = kept ? readVersion() : 0

  /** Executes a statement of each turn. A prepared one takes half the time of a script. */
  const control = (sql: string) => writer.changes({ sql, args: [] })

  /** Starts the next turn. */
  function handOver(): void {
    const next = waiting.shift()
    if (next) next()
    else taken = false
  }

  function end({ end: { resolve, reject } }: Group): void {
    group = null
    try {
      // SQLite rolls a transaction back by itself when the disk is full.
      if (!writer.inTransaction())
        throw new DriverAdapterError({ kind: 'TransactionAlreadyClosed', cause: 'Given up.' })
      if (kept?.isMoved(version)) throw moved()
      if (isDue) raise()
      control('COMMIT')
      resolve()
    } catch (error) {
      if (writer.inTransaction()) writer.script('ROLLBACK')
      reject(error)
    }
  }

  /** Increments the file's number unless nothing was changed, because an idle server should write nothing. */
  function raise(): void {
    const { total = 0 } = ask<{ total: number }>('SELECT total_changes() AS "total"')
    if (total === changes) return
    changes = total
    version = readVersion() + 1
    writer.script(`PRAGMA user_version = ${version}`)
    isDue = false
  }

  function readVersion(): number {
    const { version = 0 } = ask<{ version: number }>('SELECT "user_version" AS "version" FROM pragma_user_version')
    return Math.abs(version)
  }

  function ask<T>(sql: string): Partial<T> {
    return (writer.rows({ sql, args: [] }, { exact: false, readOnly: true })?.[0] ?? {}) as Partial<T>
  }

  async function join(since: number): Promise<Group> {
    if (!group) {
      // Locks for writing at once. A transaction that reads first could fail to upgrade its lock later.
      await untilFree(() => control('BEGIN IMMEDIATE'), since)
      group = { members: 0, begun: performance.now(), end: Promise.withResolvers() }
      group.end.promise.catch(() => {})
    } else control('SAVEPOINT turn')
    group.members++
    return group
  }

  function leave(own: Group, last: boolean): Promise<void> {
    const full = own.members >= MAX_MEMBERS || performance.now() - own.begun >= MAX_AGE
    if (last || full || !writer.inTransaction()) end(own)
    // Yields to the event loop, which a burst of transactions would otherwise block until the last one is done.
    if (full) setImmediate(handOver)
    else handOver()
    // Turns of the same event loop turn share the group. Their model requests are already on the way while the disk
    // write blocks this process.
    const endIfIdle = () => group === own && !taken && end(own)
    if (!taken && group === own) setImmediate(() => setImmediate(endIfIdle))
    return own.end.promise
  }

  return {
    version: () => version,
    beginLog() {
      const { total = 0 } = ask<{ total: number }>('SELECT total_changes() AS "total"')
      if (!group) changes = total
      isDue = true
    },
    async take() {
      const since = Date.now()
      if (taken) await new Promise<void>((resolve) => waiting.push(resolve))
      taken = true
      let own: Group
      try {
        own = await join(since)
      } catch (error) {
        handOver()
        throw error
      }
      const isFirst = own.members === 1
      return {
        async keep(last = false) {
          if (!isFirst && writer.inTransaction()) control('RELEASE turn')
          await leave(own, last)
        },
        async undo() {
          if (isFirst && writer.inTransaction()) {
            group = null
            writer.script('ROLLBACK')
            handOver()
            return
          }
          if (writer.inTransaction()) writer.script('ROLLBACK TO turn; RELEASE turn')
          // The transaction may have failed because of data of its group, so its caller gets the error only after that
          // data is on the disk.
          await leave(own, false).catch(() => {})
        },
      }
    },
  }
}

const moved = () =>
  new DriverAdapterError({ kind: 'sqlite', originalCode: MOVED, extendedCode: 0, message: 'The file was moved.' })

/**
 * Executes a statement and retries it while another process holds the file. A failed try has no effect. `since`: when
 * its caller began to wait (ms since 1970), so that all callers in the queue learn of the other process in time.
 */
export async function untilFree<T>(statement: () => T, since = Date.now()): Promise<T> {
  const deadline = since + BUSY_TIMEOUT
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
