import type { AsyncLocalStorage } from 'node:async_hooks'
import { DriverAdapterError, type Transaction as PrismaTransaction } from '@prisma/driver-adapter-utils'
import type { Runner, Transaction } from './fast-path/index.ts'

/** In milliseconds: how long to wait for a transaction to begin (the lock, or a connection), and for how long it may last. */
export const TRANSACTION = { maxWait: 10_000, timeout: 10_000 }

/** How long a server waits for the answer to a statement (ms). */
export const STATEMENT_TIMEOUT = TRANSACTION.timeout

/** A connection to PostgreSQL whose other end has vanished is found out within 20 s, however long an answer may take. */
export const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelayMillis: 10_000 }

/** What a transaction waits for to begin. What does not come in time is given back when it comes. */
export async function inTime<T extends object>(coming: Promise<T>, giveBack: (late: T) => Promise<void>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(resolve, TRANSACTION.maxWait, null)
  })
  const come = await Promise.race([coming, late]).finally(() => clearTimeout(timer))
  if (come) return come
  coming.then(giveBack).catch(() => {})
  throw new DriverAdapterError({ kind: 'SocketTimeout' })
}

/** A transaction of a driver adapter that is undone when it lasts too long, and that Prisma finds in `joined` to join. */
export function bounded(
  transaction: PrismaTransaction,
  runner: Runner,
  joined: AsyncLocalStorage<PrismaTransaction>,
): Transaction {
  const timer = setTimeout(() => transaction.rollback().catch(() => {}), TRANSACTION.timeout)
  const ending = (end: () => Promise<void>) => () => {
    clearTimeout(timer)
    return end()
  }
  const theirs: PrismaTransaction = { ...transaction, commit: async () => {} }
  return {
    runner,
    adopt: (start) => joined.run(theirs, start),
    commit: ending(transaction.commit),
    rollback: ending(transaction.rollback),
  }
}
