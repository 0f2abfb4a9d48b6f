import { Client, DatabaseError } from 'pg'
import { findWritableHost } from './hosts.ts'

/** Maximum time for an answer (ms). A pooler without a free connection keeps its clients waiting. */
const PATIENCE = 3_000
/** Number of questions to each of two connections. */
const QUESTIONS = 3

async function connect(url: string): Promise<Client> {
  const connectionString = await findWritableHost(url)
  const client = new Client({ connectionString, connectionTimeoutMillis: PATIENCE, query_timeout: PATIENCE })
  client.on('error', () => {})
  await client.connect()
  return client
}

/**
 * Returns whether a URL leads through a pooler that lends a connection for each transaction, where nothing of a session
 * lasts: notices, prepared statements. Two open sessions of PostgreSQL are two processes, each always the same.
 */
export async function sharesSessions(url: string): Promise<boolean> {
  const clients: Client[] = []
  const seen: Set<number>[] = [new Set(), new Set()]
  try {
    for (const _ of seen) clients.push(await connect(url))
    for (let count = 0; count < QUESTIONS; count++)
      for (const [index, client] of clients.entries()) {
        const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS "pid"')
        seen[index]!.add(rows[0]!.pid)
      }
  } catch {
    // A pooler that lends its only connection for a whole session lets the second client wait.
    return false
  } finally {
    for (const client of clients) client.end().catch(() => {})
  }
  const [first, second] = seen as [Set<number>, Set<number>]
  return first.size > 1 || second.size > 1 || !first.isDisjointFrom(second)
}

/**
 * Returns whether a URL leads through a pooler that lends a connection for each statement, so that no transaction
 * works.
 */
export async function refusesTransactions(url: string): Promise<boolean> {
  const client = await connect(url)
  try {
    await client.query('BEGIN')
    return false
  } catch (error) {
    if (error instanceof DatabaseError && /statement pooling/.test(error.message)) return true
    throw error
  } finally {
    client.end().catch(() => {})
  }
}
