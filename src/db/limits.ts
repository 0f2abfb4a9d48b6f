import type { AsyncLocalStorage } from 'node:async_hooks'
import { DriverAdapterError, type Transaction as PrismaTransaction } from '@prisma/driver-adapter-utils'
import { detailsOf, OVERDUE } from '../lib/database-errors.ts'
import type { Runner, Transaction } from './fast-path/index.ts'

/** Maximum wait for a transaction to start (the lock, or a connection), and maximum duration of one (ms). */
export const TRANSACTION = { maxWait: 10_000, timeout: 10_000 }

/** Maximum wait for the answer to a statement (ms). */
export const STATEMENT_TIMEOUT = TRANSACTION.timeout

const CLOSED = 'TransactionAlreadyClosed'
const overdue = () =>
  new DriverAdapterError({
    kind: CLOSED,
    cause: `The transaction took longer than ${TRANSACTION.timeout} ms.`,
    originalCode: OVERDUE,
  })

/** Detects a vanished peer of a PostgreSQL connection within 20 s, regardless of how long an answer takes. */
export const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelayMillis: 10_000 }

/** Waits until a transaction can start. A resource that arrives too late is given back. */
export function withTimeout<T extends object>(coming: Promise<T>, giveBack: (late: T) => Promise<void>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      reject(new DriverAdapterError({ kind: 'SocketTimeout' }))
      coming.then(giveBack).catch(() => {})
    }, TRANSACTION.maxWait)
    coming.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}

/**
 * Creates a driver adapter transaction that is rolled back when it exceeds its time limit, and that Prisma joins
 * through `joined`.
 */
export function bounded(
  transaction: PrismaTransaction,
  runner: Runner,
  joined: AsyncLocalStorage<PrismaTransaction>,
): Transaction {
  let isOverdue = false
  const timer = setTimeout(() => {
    isOverdue = true
    transaction.rollback().catch(() => {})
  }, TRANSACTION.timeout)
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
    explain: (error) => (isOverdue && detailsOf(error).kind === CLOSED ? overdue() : error),
  }
}
