import { PrismaPg } from '@prisma/adapter-pg'
import { DriverAdapterError, type Transaction } from '@prisma/driver-adapter-utils'
import { Pool, type PoolClient } from 'pg'
import type { Runner, Statement } from '../fast-path/index.ts'
import { type Answer, type Prepared, sendBatch, sendTogether } from './batch.ts'
import { combine } from './combine.ts'
import { isOfStatement } from './pool.ts'
import { isAnswer, markRolledBack } from './retry.ts'
import { toRows } from './values.ts'

/** Sends a statement and reads its answer. */
type Ask = <T>(statement: Statement, returns: boolean, read: (answer: Answer) => T) => Promise<T>

/** Makes a statement ready to be sent. */
export type Prepare = (statement: Statement, returns: boolean) => Prepared

/** Returns a runner that sends its statements with `ask`. */
export const runnerOf = (ask: Ask): Runner => ({
  rows: (statement) => ask(statement, true, (answer) => toRows(answer, false)),
  typedRows: (statement) => ask(statement, true, (answer) => toRows(answer, true)),
  changes: (statement) => ask(statement, false, ({ count }) => count),
})

/** Maximum number of statements that wait in a transaction to be sent with its next one. */
const MAX_WAITING = 16

type TransactionOptions = {
  /** Takes a connection, and gives it back or closes it after an error that is not a statement's own. */
  take: () => Promise<PoolClient>
  give: (client: PoolClient, error?: unknown) => void
  /** Executes a whole transaction that has awaited no statement. */
  commitWhole: (statements: readonly Statement[]) => Promise<void>
  prepare: Prepare
  /** Throws the translated error of a statement. */
  failed: (error: unknown) => Promise<never>
  /** Options of Prisma's adapter. */
  options: ConstructorParameters<typeof PrismaPg>[1]
}

export const BEGIN: Statement = { sql: 'BEGIN ISOLATION LEVEL READ COMMITTED', args: [] }
export const COMMIT: Statement = { sql: 'COMMIT', args: [] }

/**
 * Opens a transaction. Its inserts and expected updates wait for the next statement and are sent with it; a failure of
 * theirs appears in it. The first awaited statement takes a connection. A transaction without one is executed as a
 * whole by COMMIT.
 */
export function openTransaction({ take, give, commitWhole, prepare, failed, options }: TransactionOptions): {
  transaction: Transaction
  runner: Runner
} {
  let isOpen = true
  /** Resolves with the connection on which the transaction has begun. */
  let connection: Promise<PoolClient> | null = null
  /** PostgreSQL aborts a transaction after any failure: its COMMIT would silently be a ROLLBACK. */
  let failure: unknown
  /** The driver's error of the statement that failed. */
  let loss: unknown
  let waiting: Statement[] = []

  function assertOpen(): void {
    if (isOpen) return
    throw new DriverAdapterError({ kind: 'TransactionAlreadyClosed', cause: 'The transaction has ended.' })
  }

  /** Statements after a failed one fail with its error. */
  async function inside<T>(statement: (client: PoolClient) => Promise<T>): Promise<T> {
    assertOpen()
    try {
      connection ??= begin()
      const client = await connection
      assertOpen()
      return await statement(client).catch((error) => {
        loss ??= error
        return failed(error)
      })
    } catch (error) {
      failure ??= error
      // COMMIT has not been sent.
      if (isOpen) markRolledBack(failure)
      throw failure
    }
  }

  /** BEGIN, until it is sent. */
  let opening: Prepared[] = []

  async function begin(): Promise<PoolClient> {
    const client = await take()
    opening = [prepare(BEGIN, false)]
    return client
  }

  /** Returns the statements to send before the next one. */
  function takeWaiting(): Prepared[] {
    const statements = [...opening, ...combine([waiting]).map((statement) => prepare(statement, false))]
    opening = []
    waiting = []
    return statements
  }

  const runner = runnerOf((statement, returns, read) =>
    inside(async (client) => {
      const answers = await sendTogether(client, [...takeWaiting(), prepare(statement, returns)])
      return read(answers.at(-1)!)
    }),
  )

  async function rollback(): Promise<void> {
    if (!isOpen) return
    isOpen = false
    const client = await connection?.catch(() => null)
    if (!client) return
    give(client, (await rollBack(client)) ?? loss)
  }

  let prisma: Promise<Transaction> | undefined
  const throughPrisma = <T>(work: (transaction: Transaction) => Promise<T>): Promise<T> =>
    inside(async (client) => {
      prisma ??= prismaOn(client, options)
      const transaction = await prisma
      const statements = takeWaiting()
      const [, answer] = await Promise.all([statements.length && sendTogether(client, statements), work(transaction)])
      return answer
    })

  const transaction: Transaction = {
    provider: 'postgres',
    adapterName: 'muster-postgresql',
    // Makes Prisma send no COMMIT and ROLLBACK of its own.
    options: { usePhantomQuery: true },
    queryRaw: (query) => throughPrisma((theirs) => theirs.queryRaw(query)),
    executeRaw: (query) => throughPrisma((theirs) => theirs.executeRaw(query)),
    rollback,
    async commit() {
      assertOpen()
      if (failure) {
        await rollback()
        throw failure
      }
      isOpen = false
      if (!connection) {
        if (waiting.length) await commitWhole(waiting).catch(failed)
        return
      }
      const client = await connection
      const error = await sendCommit(client, [...takeWaiting(), prepare(COMMIT, false)], give)
      if (error) await failed(error)
      // A statement that was not awaited.
      if (failure) throw failure
    },
  }
  return {
    transaction,
    runner: {
      ...runner,
      async changes(statement) {
        const { certain } = statement
        if (certain === undefined || waiting.length > MAX_WAITING) return runner.changes(statement)
        assertOpen()
        if (failure) throw failure
        waiting.push(statement)
        return certain
      },
    },
  }
}

/**
 * Sends the last statements of a transaction, up to its COMMIT, and gives the connection back. Returns the error of a
 * transaction that is not committed, or may not be.
 */
export async function sendCommit(
  client: PoolClient,
  statements: readonly Prepared[],
  give: TransactionOptions['give'],
): Promise<unknown> {
  const { answers, error } = await sendBatch(client, statements)
  if (answers.length === statements.length) {
    give(client, error)
    return undefined
  }
  // A connection that broke without an answer may have committed, and so may one that broke during COMMIT.
  if (isAnswer(error) && answers.length < statements.length - 1) markRolledBack(error)
  give(client, isOfStatement(error) ? await rollBack(client) : error)
  return error
}

/**
 * Executes a transaction of one statement, which PostgreSQL commits at the end of the message, and gives the connection
 * back. Returns the error of a transaction that is not committed, or may not be.
 */
export async function sendWhole(
  client: PoolClient,
  statement: Prepared,
  give: TransactionOptions['give'],
): Promise<unknown> {
  const { answers, error } = await sendBatch(client, [statement])
  if (isAnswer(error) && !answers.length) markRolledBack(error)
  give(client, error)
  return error
}

/** Ends a failed transaction. Returns the error of a connection that has broken, and its transaction with it. */
const rollBack = (client: PoolClient): Promise<unknown> =>
  client.query('ROLLBACK').then(
    () => undefined,
    (error) => error,
  )

/** Opens Prisma's adapter for a transaction that has begun on a connection. */
async function prismaOn(client: PoolClient, options: TransactionOptions['options']): Promise<Transaction> {
  const ignore = () => {}
  const query = async (sent: { text: string }) => (sent.text === 'BEGIN' ? { rowCount: 0 } : client.query(sent))
  const lent = { query, on: ignore, removeListener: ignore, release: ignore }
  const pool: Pool = Object.assign(Object.create(Pool.prototype), { connect: async () => lent })
  return (await new PrismaPg(pool, options).connect()).startTransaction()
}
