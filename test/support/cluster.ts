import { join } from 'node:path'
import { type Db, openDatabase } from '../../src/db/client.ts'
import { newToken } from '../../src/lib/token.ts'
import { createFolder } from './folder.ts'
import { type ModelServer, startModelServer } from './model-server.ts'
import { postgresEnv } from './postgres.ts'
import { type ServerProcess, spawnServer } from './process.ts'
import { request } from './rest.ts'

/** Real servers, each in its own process, on one PostgreSQL. */
export type Cluster = AsyncDisposable & {
  servers: ServerProcess[]
  /** The server at `servers[index]`, for requests. */
  at(index: number): { url: string; token: string }
  token: string
  model: ModelServer
  /** Their database, opened beside them. */
  db: Db
  /** Ends one server, and optionally restarts it. */
  kill(index: number, signal: NodeJS.Signals): Promise<() => Promise<void>>
  createAgent(): Promise<string>
}

/** Starts a server per environment, all at once. The caller disposes of the database. */
export async function startCluster(databaseUrl: string, environments: Record<string, string>[]): Promise<Cluster> {
  await using cleanup = new AsyncDisposableStack()
  const folder = cleanup.use(await createFolder())
  const model = cleanup.use(await startModelServer())
  const token = newToken('mst')
  const settings = {
    ...postgresEnv(databaseUrl, folder.path),
    OPENAI_BASE_URL: model.baseUrl,
    DEFAULT_MODEL: 'compatible/test-model',
    BOOTSTRAP_TOKEN: token,
  }
  // Also takes the servers that start after `cleanup` has moved.
  const processes = cleanup.use(new AsyncDisposableStack())
  let count = 0
  const spawn = async (env: Record<string, string>) => {
    // Each server simulates a machine: they share the database and the folder of media.
    const DATA_DIR = join(folder.path, `server-${++count}`)
    return processes.use(await spawnServer(folder.path, { ...settings, DATA_DIR, ...env }))
  }
  const servers = await Promise.all(environments.map(spawn))
  const source = { DATA_DIR: folder.path, DATABASE_URL: databaseUrl, DATABASE_POOL_SIZE: 2 }
  const database = cleanup.adopt(await openDatabase(source), (opened) => opened.close())
  const owned = cleanup.move()
  const at = (index: number) => ({ url: servers[index]!.url, token })
  return {
    servers,
    at,
    token,
    model,
    db: database.client,
    async kill(index, signal) {
      await servers[index]!.stop(signal)
      return async () => {
        servers[index] = await spawn(environments[index] ?? {})
      }
    },
    async createAgent() {
      const body = { name: 'Ada', systemPrompt: 'You are Ada.' }
      return (await request(at(0), 'POST', '/api/v1/agents', { body })).body.id
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}
