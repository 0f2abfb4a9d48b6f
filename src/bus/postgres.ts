import { setImmediate, setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'pg'
import type { Logger } from 'pino'
import { type Db, Prisma } from '../db/client.ts'
import { findWritableHost } from '../db/postgresql/hosts.ts'
import { newId } from '../lib/id.ts'
import { abortable } from '../lib/race-abort.ts'
import type { Bus } from './index.ts'
import { createLocalBus } from './local.ts'
import { type NotifyPayload, pack, unpack } from './payload.ts'

const CHANNEL = 'muster'
/** Polling interval while notifications do not arrive, and the retry interval after failures (ms). */
const POLL_INTERVAL = 250
/** Interval and deadline of the server's notifications to itself (ms). */
const PING_INTERVAL = 5_000
/** Number of intervals without a notification after which another server counts as gone. */
const PATIENCE = 3
/** Number of intervals after which each other server has sent a ping, unless it is slow: its ping then finds it. */
const HEARD = 1.5
const CONNECT_TIMEOUT = 5_000

export type PostgresBus = Bus & {
  /** Whether notifications of other servers arrive or subscribers poll. */
  state(): 'listening' | 'polling'
  stop(): Promise<void>
}

/**
 * Creates a bus between the processes on one PostgreSQL database. Notifications are sent through the pool, those of one
 * moment together, because a commit with NOTIFY takes a lock of the whole database server. They are received on a
 * dedicated connection to `url`, which must be a session. The bus verifies it with a notification to itself. Until that
 * arrives, and whenever the connection is lost, subscribers must poll.
 *
 * Only these pings are sent while no other server answers. A server that receives a ping of a new one answers with a
 * ping. The new one then checks everything, because it has missed the notifications before.
 */
export function createPostgresBus({
  url,
  db,
  log,
  pingInterval = PING_INTERVAL,
}: {
  url: string
  db: Db
  log: Logger
  pingInterval?: number
}): PostgresBus {
  const local = createLocalBus()
  const me = newId()
  const stopped = new AbortController()
  const waiting = new Map<NotifyPayload['channel'], Set<string>>()
  let sending: Promise<void> | null = null
  let state: 'listening' | 'polling' = 'polling'
  /** Times of the last notice of other servers (ms, monotonic). */
  const others = new Map<string, number>()
  /** Time of the last change to `listening`. */
  let listeningSince = 0
  /** Whether the last ping has come back. */
  let isReceiving = true
  let advised = false
  /** Whether the log says that notifications arrive: a connection that is replaced at once is not reported. */
  let reported = false

  /** Returns whether no other server listens: each would have sent a ping by now, or would poll. */
  function isAlone(): boolean {
    if (state !== 'listening') return false
    const now = performance.now()
    for (const [id, at] of others) if (at < now - PATIENCE * pingInterval) others.delete(id)
    return !others.size && listeningSince < now - HEARD * pingInterval
  }

  function post(channel: NotifyPayload['channel'], ids: readonly string[]): void {
    const known = waiting.get(channel) ?? new Set()
    waiting.set(channel, known)
    for (const id of ids) known.add(id)
    // Notifications of the same moment, or published while others are sent, go together.
    sending ??= send()
  }

  async function send(): Promise<void> {
    await setImmediate()
    while (waiting.size && !stopped.signal.aborted) {
      const taken = new Map(waiting)
      waiting.clear()
      try {
        const payloads = pack(me, taken).map((payload) => Prisma.sql`(${payload})`)
        await db.$executeRaw(Prisma.sql`
          SELECT pg_notify(${CHANNEL}, "payload") FROM (VALUES ${Prisma.join(payloads)}) AS "notices" ("payload")`)
      } catch {
        for (const [channel, ids] of taken) {
          waiting.set(channel, new Set([...ids, ...(waiting.get(channel) ?? [])]))
        }
        await pause()
      }
    }
    sending = null
  }

  const pause = () => sleep(POLL_INTERVAL, null, { signal: stopped.signal }).catch(() => {})

  function receive(payload: string): void {
    const { from, channel, ids } = unpack(payload)
    if (from !== me) {
      const isNew = !others.has(from)
      others.set(from, performance.now())
      if (isNew) post('ping', [from])
      if (channel !== 'ping') local.publish(channel, ids)
      else if (ids.includes(me)) local.notifyAll()
      return
    }
    if (channel !== 'ping') return
    isReceiving = true
    if (state === 'listening') return
    state = 'listening'
    listeningSince = performance.now()
    if (!reported) log.info('receiving notifications of other servers')
    reported = true
    local.notifyAll()
  }

  /** Resolves when the connection is lost or the bus stops. */
  async function listen(): Promise<void> {
    const client = new Client({
      connectionString: await findWritableHost(url),
      connectionTimeoutMillis: CONNECT_TIMEOUT,
      query_timeout: CONNECT_TIMEOUT,
      application_name: 'muster notices',
    })
    const lost = new AbortController()
    client.on('error', () => lost.abort()).on('end', () => lost.abort())
    // Closes the connection, even if it does not answer.
    const leave = () => void client.end().catch(() => {})
    stopped.signal.addEventListener('abort', leave, { once: true, signal: lost.signal })
    client.on('notification', ({ payload }) => receive(payload ?? ''))
    try {
      // A client that is ended while it connects never says so.
      await abortable(client.connect(), stopped.signal)
      await client.query(`LISTEN ${CHANNEL}`)
      const signal = AbortSignal.any([lost.signal, stopped.signal])
      do {
        isReceiving = false
        post('ping', ['1'])
        await sleep(pingInterval, null, { signal }).catch(() => {})
      } while (isReceiving && !signal.aborted)
      if (!isReceiving && !signal.aborted) adviseOnPooler()
    } finally {
      // Not awaited, because the connection may be dead.
      client.end().catch(() => {})
    }
  }

  /**
   * Logs advice once if the server accepts LISTEN but nothing has ever arrived, as behind a transaction pooler. Notices
   * that arrived before, or cannot be sent, mean a connection that a network has cut silently.
   */
  function adviseOnPooler(): void {
    if (advised || listeningSince || sending) return
    advised = true
    log.warn(
      'the database accepts LISTEN, but no notice arrives: DATABASE_URL seems to lead through a pooler that works by ' +
        'transactions. Set DATABASE_DIRECT_URL to the address of PostgreSQL itself; until then servers poll',
    )
  }

  async function keepListening(): Promise<void> {
    while (!stopped.signal.aborted) {
      await listen().catch((error) => log.debug({ err: error }, 'failed to receive notifications'))
      if (stopped.signal.aborted) break
      if (state === 'polling' && reported) {
        log.warn('notifications of other servers do not arrive: polling instead')
        reported = false
      }
      state = 'polling'
      await pause()
    }
  }

  const polling = setInterval(() => state === 'polling' && local.notifyAll(), POLL_INTERVAL)
  const listening = keepListening()

  return {
    publish(channel, ids) {
      local.publish(channel, ids)
      if (!isAlone()) post(channel, ids)
    },
    subscribe: local.subscribe,
    state: () => state,
    async stop() {
      clearInterval(polling)
      // Published notifications are still sent.
      await Promise.race([sending, sleep(POLL_INTERVAL)])
      stopped.abort()
      await listening
    },
  }
}
