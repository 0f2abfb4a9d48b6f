import { setTimeout as sleep } from 'node:timers/promises'
import { DatabaseError } from 'pg'
import type { PrismaClient } from '../../../prisma/generated/sqlite/client.ts'
import { isConflict, isLostConnection } from '../../lib/database-errors.ts'
import { overrideMembers } from '../override-members.ts'

/** Maximum number of retries, and maximum delay between them (ms). */
const RETRIES = 5
const PAUSE = 50

async function retry<T>(work: () => Promise<T>, mayRepeat: (error: unknown) => boolean): Promise<T> {
  for (let left = RETRIES; ; left--) {
    try {
      return await work()
    } catch (error) {
      if (!left || !mayRepeat(error)) throw error
      await sleep(Math.random() * PAUSE)
    }
  }
}

/** Errors after which the database has nothing of the transaction. */
const rolledBack = new WeakSet<object>()

/** Records that the transaction of an error was not committed, unlike one whose COMMIT got no answer. */
export function markRolledBack(error: unknown): void {
  if (error instanceof Error) rolledBack.add(error)
}

/** Copies the mark of {@link markRolledBack} to the translation of an error. */
export function passMark(error: unknown, translated: unknown): void {
  if (error instanceof Error && rolledBack.has(error)) markRolledBack(translated)
}

/**
 * Returns whether an error is PostgreSQL's own answer to a statement: it has rolled back, also if it ends the session.
 * A pooler whose connection broke answers with class 08, and knows no more than that.
 */
export const isAnswer = (error: unknown): boolean => error instanceof DatabaseError && !error.code?.startsWith('08')

const READ = /^\s*(?:SELECT|\(SELECT)\b/
const LOCK = /\bFOR (?:NO KEY )?(?:UPDATE|SHARE)\b|_lock|\b(?:nextval|setval|pg_notify)\(/

/** Returns whether a statement only reads, and takes no lock. */
export const isRead = (sql: string): boolean => READ.test(sql) && !LOCK.test(sql)

/** Duration of a read beyond which it is not repeated, because an operator may have ended it on purpose (ms). */
const MAX_REPEATED = 5_000

/**
 * Executes a statement outside transactions. Retries it after a deadlock or a serialization failure, and a read after a
 * lost connection too.
 */
export function retryStatement<T>(sql: string, work: () => Promise<T>): Promise<T> {
  let begun = 0
  const execute = () => {
    begun = performance.now()
    return work()
  }
  const mayRead = () => isRead(sql) && performance.now() - begun < MAX_REPEATED
  return retry(execute, (error) => isConflict(error) || (isLostConnection(error) && mayRead()))
}

/**
 * Wraps a client so that transactions are retried after a deadlock or a serialization failure, and after a lost
 * connection if PostgreSQL has certainly not committed. A transaction must therefore only await the database and change
 * nothing else.
 */
export function retryTransactions<Client extends Pick<PrismaClient, '$transaction'>>(client: Client): Client {
  const $transaction = (work: never, options?: object): Promise<unknown> =>
    retry(
      () => client.$transaction(work, options) as Promise<unknown>,
      (error) => isConflict(error) || (isLostConnection(error) && error instanceof Error && rolledBack.has(error)),
    )
  return overrideMembers(client, { $transaction })
}
