import { setTimeout as sleep } from 'node:timers/promises'
import { DriverAdapterError } from '@prisma/driver-adapter-utils'
import type { Connection } from './connection.ts'

/** How long, in milliseconds, a statement is tried again while another process holds the file. */
const BUSY_TIMEOUT = 5_000

/** A group takes nobody in any more when it has so many members, or is so old (ms). */
const MAX_MEMBERS = 256
const MAX_AGE = 20

/** Somebody's time alone on the writing connection, in a transaction of their own as far as they can tell. */
export type Turn = {
  /** Resolves when what was done is on the disk; rejects, and it never was, when it cannot be. `last`: nobody joins. */
  keep: (last?: boolean) => Promise<void>
  /** Takes back what was done. */
  undo: () => Promise<void>
}

type Turns = {
  take: () => Promise<Turn>
  /** Has the next write raise the file's number: a checkpoint is about to begin the log anew. */
  beginLog: () => void
}

/** Turns whose work goes to the disk together. */
type Group = { members: number; begun: number; end: PromiseWithResolvers<void> }

/**
 * Turns on the writing connection, first come first served. A write to the disk takes longer than most transactions:
 * those that wait for each other share one, as savepoints in one transaction of SQLite's, and none is told that it is
 * done before all are on the disk. Whoever is alone is written when the event loop has come round.
 *
 * `numbered`: the first write, and the first after each `beginLog`, raises the file's `user_version` (sqlite-log.ts).
 */
export function createTurns(writer: Connection, numbered = false): Turns {
  const waiting: (() => void)[] = []
  let taken = false
  let group: Group | null = null
  /** Whether the next write is to raise the number, and how many changes there were before it. */
  let isDue = numbered
  let changes = 0

  /** Lets the next one in. */
  function handOver(): void {
    const next = waiting.shift()
    if (next) next()
    else taken = false
  }

  function end({ end: { resolve, reject } }: Group): void {
    group = null
    try {
      // SQLite gives a transaction up by itself when the disk is full.
      if (!writer.inTransaction())
        throw new DriverAdapterError({ kind: 'TransactionAlreadyClosed', cause: 'Given up.' })
      if (isDue) raise()
      writer.script('COMMIT')
      resolve()
    } catch (error) {
      if (writer.inTransaction()) writer.script('ROLLBACK')
      reject(error)
    }
  }

  /** Raises the file's number, unless nothing was changed: an idle server writes nothing. */
  function raise(): void {
    const { total = 0 } = ask<{ total: number }>('SELECT total_changes() AS "total"')
    if (total === changes) return
    changes = total
    const { version = 0 } = ask<{ version: number }>('SELECT "user_version" AS "version" FROM pragma_user_version')
    writer.script(`PRAGMA user_version = ${Math.abs(version) + 1}`)
    isDue = false
  }

  const ask = <T>(sql: string): Partial<T> =>
    (writer.rows({ sql, args: [] }, { exact: false, readOnly: true })?.[0] ?? {}) as Partial<T>

  async function join(): Promise<Group> {
    if (!group) {
      // At once for writing: a transaction that reads first and writes later could find that somebody else has.
      await untilFree(() => writer.script('BEGIN IMMEDIATE'))
      group = { members: 0, begun: performance.now(), end: Promise.withResolvers() }
      group.end.promise.catch(() => {})
    } else writer.script('SAVEPOINT turn')
    group.members++
    return group
  }

  function leave(own: Group, last: boolean): Promise<void> {
    const full = own.members >= MAX_MEMBERS || performance.now() - own.begun >= MAX_AGE
    if (last || full || !writer.inTransaction()) end(own)
    // A burst of transactions would keep the event loop from all that is under way, until the last one is done.
    if (full) setImmediate(handOver)
    else handOver()
    // Whoever comes in the same turn of the event loop shares it. What they have sent by then is under way while the disk
    // is written, which keeps this process from everything else.
    const endIfIdle = () => group === own && !taken && end(own)
    if (!taken && group === own) setImmediate(() => setImmediate(endIfIdle))
    return own.end.promise
  }

  return {
    beginLog() {
      const { total = 0 } = ask<{ total: number }>('SELECT total_changes() AS "total"')
      if (!group) changes = total
      isDue = true
    },
    async take() {
      if (taken) await new Promise<void>((resolve) => waiting.push(resolve))
      taken = true
      let own: Group
      try {
        own = await join()
      } catch (error) {
        handOver()
        throw error
      }
      const isFirst = own.members === 1
      return {
        async keep(last = false) {
          if (!isFirst && writer.inTransaction()) writer.script('RELEASE turn')
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
          // It may have failed for what it saw of others in its group: its caller is told once that is on the disk.
          await leave(own, false).catch(() => {})
        },
      }
    },
  }
}

/** Runs a statement, again and again while another process has the file. Nothing of it has happened until then. */
export async function untilFree<T>(statement: () => T): Promise<T> {
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
