import { setTimeout as sleep } from 'node:timers/promises'
import { newToken } from '../../src/lib/token.ts'
import { startCluster } from '../support/cluster.ts'
import { createFolder } from '../support/folder.ts'
import { spawnServer } from '../support/process.ts'
import { type Receiver, startReceiver } from '../support/receiver.ts'
import { request } from '../support/rest.ts'

export type WebhooksReport = {
  /** Changes that were committed, as the server lists them at the end. */
  committed: number
  /** Requests of deliveries. */
  received: number
  /** Committed changes without a delivery, and deliveries without a committed change. */
  missing: string[]
  invented: string[]
}

type Servers = AsyncDisposable & { at(): { url: string; token: string }; kill(): Promise<() => Promise<unknown>> }

/** Starts one server on SQLite, or two on a PostgreSQL. */
async function start(databaseUrl: string | null): Promise<Servers> {
  const env = { ALLOW_PRIVATE_NETWORK: 'true', LOG_LEVEL: 'fatal' }
  if (databaseUrl !== null) {
    const cluster = await startCluster(databaseUrl, [env, env])
    let next = 0
    return {
      at: () => cluster.at(next),
      kill: () => {
        const index = next
        next = 1 - next
        return cluster.kill(index, 'SIGKILL')
      },
      [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
    }
  }
  const folder = await createFolder()
  const token = newToken('mst')
  const spawn = () => spawnServer(folder.path, { ...env, DATA_DIR: folder.path, BOOTSTRAP_TOKEN: token })
  let server = await spawn()
  return {
    at: () => ({ url: server.url, token }),
    async kill() {
      await server.stop('SIGKILL')
      return async () => {
        server = await spawn()
      }
    },
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]()
      await folder[Symbol.asyncDispose]()
    },
  }
}

async function createWebhook(server: { url: string; token: string }, { url }: Receiver): Promise<void> {
  const body = { url: `${url}/hook`, events: ['task.created'] }
  const answer = await request(server, 'POST', '/api/v1/webhooks', { body })
  if (answer.status !== 200) throw new Error(`no webhook: ${answer.status} ${JSON.stringify(answer.body)}`)
}

/**
 * Kills a server while changes are made and delivered, and restarts it, `rounds` times. Returns what was committed and
 * what was delivered.
 */
export async function killedWebhooks(rounds: number, databaseUrl: string | null): Promise<WebhooksReport> {
  await using receiver = await startReceiver()
  await using servers = await start(databaseUrl)
  await createWebhook(servers.at(), receiver)
  let count = 0
  for (let round = 0; round < rounds; round++) {
    const target = servers.at()
    // Each request may be cut off by the kill.
    const making = Array.from({ length: 8 }, () =>
      request(target, 'POST', '/api/v1/tasks', { body: { title: `Task ${count++}` } }).catch(() => null),
    )
    await making[0]
    await sleep(Math.random() * 60)
    const restart = await servers.kill()
    await Promise.all(making)
    await restart()
  }
  const committed = new Set<string>()
  for (let cursor = ''; ; ) {
    const { tasks, nextCursor } = (await request(servers.at(), 'GET', `/api/v1/tasks?limit=1000${cursor}`)).body
    for (const { id } of tasks) committed.add(id)
    if (nextCursor === null) break
    cursor = `&cursor=${nextCursor}`
  }
  const delivered = () => new Set(receiver.received.map(({ body }) => body.data.id as string))
  // A delivery whose server was killed during the attempt follows after the claim has lapsed.
  const deadline = Date.now() + 120_000
  while (committed.difference(delivered()).size && Date.now() < deadline) await sleep(100)
  return {
    committed: committed.size,
    received: receiver.received.length,
    missing: [...committed.difference(delivered())],
    invented: [...delivered().difference(committed)],
  }
}

/** Lets two servers deliver `count` events. Returns how often each was received. */
export async function sharedWebhooks(count: number, databaseUrl: string): Promise<number[]> {
  await using receiver = await startReceiver()
  const env = { ALLOW_PRIVATE_NETWORK: 'true', LOG_LEVEL: 'fatal' }
  await using cluster = await startCluster(databaseUrl, [env, env])
  await createWebhook(cluster.at(0), receiver)
  const ids = await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const task = { body: { title: `Task ${index}` } }
      return (await request(cluster.at(index % 2), 'POST', '/api/v1/tasks', task)).body.id as string
    }),
  )
  const times = () => ids.map((id) => receiver.received.filter(({ body }) => body.data.id === id).length)
  const deadline = Date.now() + 120_000
  while (times().includes(0) && Date.now() < deadline) await sleep(50)
  return times()
}
