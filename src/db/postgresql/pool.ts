import { DriverAdapterError } from '@prisma/driver-adapter-utils'
import { Client, type ClientConfig, DatabaseError, Pool, type PoolClient, type PoolConfig } from 'pg'
import { codeIn, isUnavailable, lacksAccess, TLS } from '../../lib/database-errors.ts'
import { choosesHost } from '../../lib/postgres-url.ts'
import { findWritableHost } from './hosts.ts'

/** Connections to the host that accepts writes. */
export type Connections = {
  take: () => Promise<PoolClient>
  /** Gives a connection back, or closes it after an error that is not a statement's own. */
  give: (client: PoolClient, error?: unknown) => void
  end: () => Promise<void>
}

/** Codes after which the host is no longer the one to write to: a standby, a shutdown, a crash, a start. */
const WRONG_HOST = /^(25006|57P0[123]|08...)$/

/** Codes with which PostgreSQL ends a connection for another reason: a time limit, or a dropped database. */
const ENDED = /^(25P0[34]|57P0[45])$/

/** Time for which a pool opens no further connections after PostgreSQL gave none (ms), and maximum number of tries. */
const NEXT_TRY = 5_000
const TRIES = 3

/** PostgreSQL's code for a connection too many, and messages of poolers (PgBouncer, Neon, Supavisor) with other codes. */
const FULL = '53300'
const FULL_MESSAGE = /max_\w*client_conn|max client|too many (?:clients|connections)/i

const isFull = (error: unknown): boolean =>
  codeIn(error) === FULL || (error instanceof DatabaseError && FULL_MESSAGE.test(error.message))

/**
 * Codes of a connection that does not open while open ones work: PostgreSQL refuses the role or its password, nobody
 * knows the name of the host, or this process has too many open files.
 */
const NOT_OPENED = /^(28...|ENOTFOUND|EAI_AGAIN|EMFILE|ENFILE)$/

/**
 * Returns the error of a connection that was not opened. Poolers and providers refuse with codes of defects, such as
 * `XX000` of Supavisor and Neon, but without a connection nothing was asked.
 */
function refusalOf(error: unknown): unknown {
  const originalMessage = error instanceof Error ? error.message : String(error)
  if (isFull(error))
    return new DriverAdapterError({ kind: 'TooManyConnections', cause: originalMessage, originalCode: FULL })
  return isUnavailable(error) ? error : new DriverAdapterError({ kind: 'DatabaseNotReachable', originalMessage })
}

/** Returns whether an error is a statement's own. After any other, its connection is of no use. */
export const isOfStatement = (error: unknown): boolean =>
  error instanceof DatabaseError &&
  !WRONG_HOST.test(error.code ?? '') &&
  !ENDED.test(error.code ?? '') &&
  !lacksAccess(error.code)

/**
 * Opens a pool. If the URL lists several hosts, the pool connects to the one that accepts writes. When a connection
 * breaks or a host turns out to be a standby, the pool looks again and replaces all connections. `onRefused` gets the
 * code if no further connection opens and the pool goes on with those that it has.
 */
export function openPool(url: string, options: PoolConfig, onRefused: (code: string) => void = () => {}): Connections {
  const chooses = choosesHost(url)
  /** Number of the present choice of a host, and the choice. */
  let choice = 0
  let choosing: Promise<string> | null = null
  let chosen = url
  const choices = new WeakMap<Client, number>()

  /**
   * Makes a client of the host that is chosen then. If a certificate that the URL names cannot be read, the client fails
   * to connect: a thrown error would end the process, because the pool also makes clients after others were closed.
   */
  function ChosenClient(config?: ClientConfig): Client {
    let client: Client
    try {
      client = new Client({ ...config, connectionString: chosen })
    } catch (error) {
      const connect = (done: (error: unknown) => void) => process.nextTick(done, error)
      client = Object.assign(new Client(), { connect })
    }
    choices.set(client, choice)
    return client
  }
  const made = ChosenClient as unknown as new (config?: ClientConfig) => Client
  const pool = new Pool({ ...options, connectionString: url, Client: made })
  const { max } = pool.options
  let established = 0
  pool.on('connect', () => established++).on('remove', () => established--)

  /** Returns whether a connection was not opened, although those of this pool continue to work. */
  function keepsOthers(error: unknown): boolean {
    const code = codeIn(error)
    return isFull(error) ? pool.totalCount > 0 : established > 0 && (NOT_OPENED.test(code) || TLS.test(code))
  }

  /** Takes a connection. If no further one opens, waits for one that this pool has or is opening. */
  async function connect(): Promise<PoolClient> {
    for (let left = TRIES; ; left--) {
      try {
        return await pool.connect()
      } catch (error) {
        const refusal = refusalOf(error)
        if (!left || !keepsOthers(error)) throw refusal
        onRefused(codeIn(refusal))
        pool.options.max = Math.max(1, established)
        setTimeout(() => (pool.options.max = max), NEXT_TRY).unref()
      }
    }
  }

  // Idle connections that break are removed by the pool.
  pool.on('error', (_, client) => lose(choices.get(client) ?? choice))

  function lose(of: number): void {
    if (!chooses || of !== choice) return
    choice++
    choosing = null
  }

  async function choose(): Promise<void> {
    choosing ??= findWritableHost(url)
    const asked = choosing
    try {
      chosen = await asked
    } catch (error) {
      if (choosing === asked) choosing = null
      throw error
    }
  }

  /** Returns a connection to the chosen host. Closes those of earlier choices. */
  async function takeChosen(): Promise<PoolClient> {
    for (;;) {
      await choose()
      const of = choice
      let client: PoolClient
      try {
        client = await connect()
      } catch (error) {
        // It is the right host, and the connections that it has given stay.
        if (isFull(error) || keepsOthers(error)) throw error
        lose(of)
        await choose()
        client = await connect()
      }
      if (choices.get(client) === choice) return client
      client.release(true)
    }
  }

  return {
    take: chooses ? takeChosen : connect,
    give(client, error) {
      const isLost = error !== undefined && !isOfStatement(error)
      if (isLost) lose(choices.get(client) ?? choice)
      client.release(isLost)
    },
    end: () => pool.end(),
  }
}
