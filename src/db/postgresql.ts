import { setTimeout as sleep } from 'node:timers/promises'
import { PrismaPg } from '@prisma/adapter-pg'
import { PrismaClient } from '../../prisma/generated/postgresql/client.ts'
import type { PrismaClient as SqliteClient } from '../../prisma/generated/sqlite/client.ts'
import { isDeadlock } from '../lib/database-errors.ts'
import { over } from './over.ts'

type Options = {
  log: { emit: 'event'; level: 'query' }[]
  transactionOptions: { maxWait: number; timeout: number }
}

/** How often a transaction that was undone for another's sake is tried again, and how long at most in between (ms). */
const RETRIES = 5
const PAUSE = 50

/** A client of a PostgreSQL with so many connections. The two clients differ in what nobody uses: isolation levels. */
export function postgresqlClient(url: string, connections: number, options: Options): SqliteClient<'query'> {
  const connectionTimeoutMillis = options.transactionOptions.maxWait
  const adapter = new PrismaPg({ connectionString: url, max: connections, connectionTimeoutMillis })
  return new PrismaClient({ ...options, adapter }) as unknown as SqliteClient<'query'>
}

/**
 * The same client, whose transactions are done again when the database has undone them because two waited for each
 * other. So a transaction does nothing that may not happen twice: it awaits the database and changes nothing else.
 */
export function retryDeadlocks<Client extends Pick<SqliteClient, '$transaction'>>(client: Client): Client {
  const $transaction = async (work: never, options?: object): Promise<unknown> => {
    for (let left = RETRIES; ; left--) {
      try {
        return await client.$transaction(work, options)
      } catch (error) {
        if (!left || !isDeadlock(error)) throw error
        await sleep(Math.random() * PAUSE)
      }
    }
  }
  return over(client, { $transaction })
}
