import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Database, openDatabase } from '../src/db/client.ts'
import { newToken } from '../src/lib/token.ts'
import { type Postgres, postgresEnv } from '../test/support/postgres.ts'
import { killAll, type Program, type StartOptions, start } from './processes.ts'

const BARE = fileURLToPath(import.meta.resolve('./bare.ts'))
const MODEL = fileURLToPath(import.meta.resolve('../test/support/model-server.ts'))
const PACKAGE = join(import.meta.dirname, '..', 'package.json')

export type Service = Program & { headers: Record<string, string> }

type Options = StartOptions & { nodeArgs?: string[] }

export type Lab = {
  /** Creates a folder within the temporary one, which is removed at the end. */
  folder: () => string
  /**
   * Starts the real service as `npm start` does, on a free port, with its database in `folder`, or the folder's
   * database on the lab's PostgreSQL.
   */
  service: (folder: string, options?: Options) => Promise<Service>
  /** The URL of the folder's database; null if it is in the folder. */
  databaseUrl: (folder: string) => Promise<string | null>
  /** Opens the database of a service beside it. */
  beside: (folder: string) => Promise<Database>
  /** Starts the bare node:http server of the comparison, with its own database of the same kind. */
  bare: (model?: string, options?: Options) => Promise<Program>
  /**
   * Starts the scripted model server: a number of tokens per reply, with a delay before each (ms). All callers share
   * it.
   */
  model: (tokens: number, delay: number) => Promise<Program>
  /** Kills remaining processes and removes all files. */
  close: () => void
}

/**
 * Starts the service and its references, each in its own process on loopback, which ends with this one. With PostgreSQL
 * all of them use it.
 */
export function createLab(postgres: Postgres | null): Lab {
  const root = mkdtempSync(join(tmpdir(), 'muster-bench-'))
  const token = newToken('mst')
  const [, ...startArgs] = (JSON.parse(readFileSync(PACKAGE, 'utf8')).scripts.start as string).split(' ')
  const models = new Map<string, Promise<Program>>()
  const databases = new Map<string, Promise<string>>()

  async function databaseOf(folder: string): Promise<Record<string, string>> {
    if (!postgres) return {}
    const created = databases.get(folder) ?? postgres.createDatabase()
    databases.set(folder, created)
    return postgresEnv(await created, folder)
  }

  function close(): void {
    killAll()
    rmSync(root, { recursive: true, force: true, maxRetries: 3 })
  }
  // Also when this process is killed by a signal.
  process.once('exit', close)

  const folder = () => mkdtempSync(join(root, 'data-'))
  return {
    close,
    folder,

    async service(folder, { env = {}, nodeArgs = [], ipc = false } = {}) {
      const own = { DATA_DIR: folder, PORT: '0', LOG_LEVEL: 'warn', BOOTSTRAP_TOKEN: token }
      const settings = { ...own, ...(await databaseOf(folder)), ...env }
      const program = await start([...nodeArgs, ...startArgs], /ready at (http:\S+)/, { env: settings, ipc })
      return { ...program, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' } }
    },

    databaseUrl: async (folder) => (await databaseOf(folder)).DATABASE_URL ?? null,

    async beside(folder) {
      const { DATABASE_URL } = await databaseOf(folder)
      return openDatabase({ DATA_DIR: folder, DATABASE_URL, DATABASE_POOL_SIZE: 2 })
    },

    async bare(model = '', { nodeArgs = [], ...options } = {}) {
      const database = postgres ? await postgres.createDatabase() : join(folder(), 'bare.db')
      const args = [...nodeArgs, BARE, '--database', database, '--model', model]
      return start(args, /"url":"([^"]+)"/, options)
    },

    model(tokens, delay) {
      const key = `${tokens} ${delay}`
      const args = [MODEL, '--tokens', String(tokens), '--delay', String(delay)]
      const started = models.get(key) ?? start(args, /"baseUrl":"([^"]+)"/)
      models.set(key, started)
      return started
    },
  }
}

/** Sends one JSON request that must succeed. Returns its answer. */
export async function call<Answer>(
  service: { url: string; headers: Record<string, string> },
  method: string,
  path: string,
  body?: unknown,
): Promise<Answer> {
  const response = await fetch(service.url + path, {
    method,
    headers: service.headers,
    signal: AbortSignal.timeout(10_000),
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  const answer = await response.text()
  if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${answer}`)
  return JSON.parse(answer) as Answer
}
