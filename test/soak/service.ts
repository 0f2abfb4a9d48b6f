import assert from 'node:assert/strict'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Database, type Db, openDatabase } from '../../src/db/client.ts'
import { newToken } from '../../src/lib/token.ts'
import { createFolder } from '../support/folder.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { type Finished, type ServerProcess, spawnServer } from '../support/process.ts'
import { type Answer, request } from '../support/rest.ts'

/**
 * The real service in its own process, to be killed and restarted on the same data, with its model server and database.
 */
export type Subject = AsyncDisposable & {
  readonly url: string
  readonly token: string
  readonly process: ServerProcess
  model: ModelServer
  /** The database file, opened beside the server. */
  db: Db
  file: string
  agentId: string
  /** Starts or restarts it, optionally with other settings. */
  start(env?: Record<string, string>): Promise<void>
  /** Ends it, by default with `kill -9`. Returns its output. */
  kill(signal?: NodeJS.Signals): Promise<Finished>
}

export async function createSubject(env: Record<string, string> = {}): Promise<Subject> {
  await using cleanup = new AsyncDisposableStack()
  const folder = cleanup.use(await createFolder())
  const model = cleanup.use(await startModelServer())
  const token = newToken('mst')
  const settings = {
    OPENAI_BASE_URL: model.baseUrl,
    DEFAULT_MODEL: 'compatible/test-model',
    BOOTSTRAP_TOKEN: token,
    ...env,
  }
  let server = await spawnServer(folder.path, settings)
  cleanup.defer(() => server[Symbol.asyncDispose]())
  const source = { DATA_DIR: join(folder.path, 'data'), DATABASE_URL: undefined, DATABASE_POOL_SIZE: 1 }
  const database: Database = cleanup.adopt(await openDatabase(source), (opened) => opened.close())
  const agent = { name: 'Ada', systemPrompt: 'You are Ada.' }
  const created = await request({ url: server.url, token }, 'POST', '/api/v1/agents', { body: agent })
  const owned = cleanup.move()
  return {
    get url() {
      return server.url
    },
    get process() {
      return server
    },
    token,
    model,
    db: database.client,
    file: join(source.DATA_DIR, 'muster.db'),
    agentId: created.body.id,
    async start(more = {}) {
      server = await spawnServer(folder.path, { ...settings, ...more })
    },
    kill: (signal = 'SIGKILL') => server.stop(signal),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

export const executePath = ({ agentId }: Subject): string => `/api/v1/agents/${agentId}/execute`

export const execute = (subject: Subject, body: object, headers: Record<string, string> = {}): Promise<Answer> =>
  request(subject, 'POST', executePath(subject), { body, headers })

/**
 * A dead run has 30 s by contract.md section 4, and 35 s here (ms). Beside other tests a slow machine
 * may take longer.
 */
const PATIENCE = process.env.VITEST ? 120_000 : 35_000

/** Waits until the condition holds. */
export async function until(what: string, holds: () => Promise<boolean> | boolean, timeout = PATIENCE): Promise<void> {
  for (const deadline = Date.now() + timeout; !(await holds()); ) {
    assert(Date.now() < deadline, `${what}: not within ${timeout / 1_000} s`)
    await sleep(10)
  }
}

/** Waits until nothing is pending or running. */
export const settled = (db: Db, timeout?: number): Promise<void> =>
  until(
    'nothing pending or running',
    async () => (await db.execution.count({ where: { status: { in: ['pending', 'running'] } } })) === 0,
    timeout,
  )

/** A seeded random number generator (mulberry32). */
export function createRandom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
