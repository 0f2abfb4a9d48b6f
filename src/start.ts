import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { createKnownAgents } from './agents/known.ts'
import { createApp } from './app.ts'
import { createActors } from './auth/actors.ts'
import { createRevocations } from './auth/revocations.ts'
import { bootstrap } from './bootstrap.ts'
import { createLocalBus } from './bus/local.ts'
import type { PostgresBus } from './bus/postgres.ts'
import { removeStaleClones } from './client/git.ts'
import { deriveKey, openMasterKey } from './crypto/secrets.ts'
import { type Db, databaseFile, openDatabase } from './db/client.ts'
import { STATEMENT_TIMEOUT } from './db/limits.ts'
import { openDatabaseClock } from './db/postgresql/clock.ts'
import { lockDatabase } from './db/sqlite/file-lock.ts'
import { hasForeignLog, setLogAside } from './db/sqlite/write-ahead-log.ts'
import type { Deps } from './deps.ts'
import { damaged } from './errors.ts'
import { createEngine } from './executions/engine/engine.ts'
import { createNotices } from './executions/engine/events/notices.ts'
import { createModels } from './executions/engine/models/models.ts'
import { agentFor } from './executions/start.ts'
import { openTools } from './executions/tools.ts'
import { limitConnections } from './http/connections.ts'
import { refuseMalformed } from './http/malformed.ts'
import { checkLog, countStart, findInstallation } from './installation.ts'
import { type Clock, systemClock } from './lib/clock.ts'
import { connected } from './lib/turn.ts'
import { unlessAborted } from './lib/unless-aborted.ts'
import { installationId } from './media/installation.ts'
import { removeLeftovers } from './media/leftovers.ts'
import { noStorage, openStorage } from './media/storage.ts'
import { createScheduler, type Scheduler } from './missions/scheduler.ts'
import { lockSettled, settle as settleMission } from './missions/service.ts'
import { openPause } from './pause.ts'
import { createReadProviders } from './providers/records.ts'
import type { Settings } from './settings.ts'
import { settle as settleTask } from './tasks/service.ts'
import { startTelemetry } from './telemetry/start.ts'
import { count as countUsage } from './usage/service.ts'

export type Service = {
  deps: Deps
  /** Where it listens. */
  url: string
  /** Where the metrics are, if they are anywhere. */
  metricsUrl: string | null
  /** The first token, when this start made it: to be shown once. */
  firstToken: string | null
  /** The absolute path of the SQLite file, or the host of the PostgreSQL, in which this start made an installation. */
  newInstallation: string | null
  /** Says that it is not ready, after SHUTDOWN_DELAY refuses new work, gives runs time to end, closes everything. */
  stop: () => Promise<void>
}

/**
 * Starts the whole service in this process: locks, migrates and opens the database, listens, and recovers what a crash
 * left behind. Throws when any of it cannot be; nothing is left open then.
 */
export async function startService(
  settings: Settings,
  log: Logger,
  options: { clock?: Clock; onQuery?: (sql: string) => void } = {},
): Promise<Service> {
  await using cleanup = new AsyncDisposableStack()
  const { onQuery } = options
  const file = databaseFile(settings)
  if (file) cleanup.adopt(lockDatabase(file), (lock) => lock.release())
  const now = (options.clock ?? systemClock).now()
  const isReplaced = file !== null && hasForeignLog(file)
  if (file) checkLog(file, settings, now, log)
  if (file && isReplaced) {
    const advice = 'It was set aside; delete it when you no longer need it'
    log.warn({ file: setLogAside(file, now), database: file }, `the log belonged to the database of before. ${advice}`)
  }
  let damage: string | null = null
  function onDamage(code: string): void {
    if (damage === null) log.fatal({ database: file, code }, file ? DAMAGED_FILE : DAMAGED_DATABASE)
    damage = code
  }
  const database = cleanup.adopt(
    await openDatabase(settings, { keepsFile: true, onQuery, onDamage, statementTimeout: STATEMENT_TIMEOUT }),
    (opened) => opened.close(),
  )
  const db = database.client
  const clock =
    options.clock ?? (file ? systemClock : cleanup.adopt(await openDatabaseClock(db, log), (opened) => opened.stop()))
  const found = await findInstallation(database, settings)
  const masterKey = await openMasterKey(database, settings, clock.now())
  const installation = installationId(masterKey)
  if (file) await countStart(database, settings, { installation, isReplaced, now: clock.now() })
  const pause = cleanup.adopt(await openPause(settings, db, log), (opened) => opened.stop())
  const storage = await openStorage(settings, installation, file !== null)
  // A paused server may have the folder of another's database: what it does not know of is under way there.
  if (!pause.isPaused()) await storage?.cleanDrafts(file ? 'all' : 'old')
  if (!storage) log.warn('media answer 503: the servers on a PostgreSQL need an S3_BUCKET or a MEDIA_DIR in common')
  const far = file ? null : cleanup.adopt(await openPostgresBus(settings, db, log), (bus) => bus.stop())
  const bus = far ?? createLocalBus()
  const told = cleanup.adopt(await startTelemetry(settings, { db, clock, isPaused: pause.isPaused }), (started) =>
    started.stop(),
  )
  const { telemetry } = told
  const wrappingKey = deriveKey(masterKey, 'data keys')
  const readProviders = createReadProviders({ db, wrappingKey })
  const models = createModels(settings, { clock, isPaused: pause.isPaused, readProviders })
  cleanup.defer(bus.subscribe('provider', models.forget))
  const base = {
    settings,
    db,
    clock,
    log,
    storage: storage ?? noStorage,
    uploads: new Map<string, number>(),
    pause,
    bus,
    models,
    telemetry,
  }
  const engine = createEngine({
    ...base,
    agentFor,
    openTools: (user) => openTools(deps, user),
    lockSettled: (tx, ended) => lockSettled(tx, base, ended),
    async settle(tx, ended, now) {
      await settleTask(tx, ended, now)
      await settleMission(tx, ended, now)
      await countUsage(tx, ended, now)
    },
  })
  const chatNotices = createNotices(bus, 'chat')
  cleanup.defer(() => chatNotices.stop())
  const revocations = createRevocations(base)
  cleanup.defer(() => revocations.stop())
  const tokenKey = deriveKey(masterKey, 'tokens')
  const actors = createActors({ ...base, tokenKey })
  cleanup.defer(() => actors.stop())
  // Imported only where it is configured: it is slow to load.
  const idTokens = settings.OIDC_ISSUER
    ? (await import('./auth/id-tokens.ts')).createIdTokens(settings, clock, log)
    : null
  const deps: Deps = {
    ...base,
    engine,
    chatNotices,
    actors,
    knownAgents: createKnownAgents(),
    revocations,
    idTokens,
    tokenKey,
    idempotencyKey: deriveKey(masterKey, 'idempotency'),
    wrappingKey,
  }
  removeStaleClones().then(
    (folders) => folders.length && log.info({ folders }, 'removed folders of clones that a killed server left'),
    (error) => log.warn({ err: error }, 'folders of clones that a killed server left could not be removed'),
  )
  if (!pause.isPaused())
    removeLeftovers(deps).catch((error) => log.error({ err: error }, 'files without a row could not be removed'))

  const stopping = new AbortController()
  let isStarted = false
  const ready = async () => {
    if (!isStarted) return null
    if (damage !== null) throw damaged(damage)
    const asked = db.$queryRaw`SELECT 1`.then(Boolean, () => false)
    // Who asked before is told, too: it would send requests here for as long as the answer is on its way.
    const patience = AbortSignal.any([stopping.signal, AbortSignal.timeout(READY_PATIENCE)])
    if (!(await unlessAborted(asked, patience))) return null
    if (damage !== null) throw damaged(damage)
    return { ...(pause.isPaused() && { status: 'paused' as const }), ...(far && { notices: far.state() }) }
  }
  const app = createApp(deps, ready)
  const answer: RequestListener = (req, res) => {
    // A connection that is kept would be closed while its next request may be on the way.
    if (stopping.signal.aborted) res.setHeader('Connection', 'close')
    app(req, res)
  }
  // Who names no host, or expects what there is not, is answered by the app, not by Node.
  const server = createServer({ keepAliveTimeout: KEEP_ALIVE, requireHostHeader: false }, answer)
  server.on('connection', connected).on('checkExpectation', answer).on('clientError', refuseMalformed)
  await limitConnections(server, log)
  await listen(server, settings)
  cleanup.defer(() => close(server))
  let scheduler: Scheduler | null = null
  // From there on new runs are refused, those of missions too: the next server begins them.
  cleanup.defer(async () => {
    await Promise.all([scheduler?.stop(), engine.drain()])
  })
  // Not before it listens: who starts again and again in vain takes no runs over. The lock proves that no other server uses
  // the file: whatever runs there was left behind.
  await engine.start(file !== null)
  // What it returns is shown once: nothing may fail after it.
  const firstToken = await bootstrap(deps)
  found.end()
  const made = found.isNew ? (file ?? new URL(settings.DATABASE_URL ?? '').host) : null
  if (made) log.warn({ database: made }, 'a new installation was made')
  isStarted = true
  if (settings.ROLE !== 'api') {
    scheduler = createScheduler(deps)
    // Who needs it is told if it fails.
    const preload = () => models.preload().catch(() => {})
    const timer = setTimeout(preload, PRELOAD_AFTER)
    cleanup.defer(() => clearTimeout(timer))
  }
  const resources = cleanup.move()
  return {
    deps,
    url: urlOf(server, settings),
    metricsUrl: told.metricsUrl,
    firstToken,
    newInstallation: made,
    async stop() {
      stopping.abort()
      // Until proxies have seen that it is not ready, it takes what they send.
      if (settings.SHUTDOWN_DELAY) await sleep(settings.SHUTDOWN_DELAY)
      await resources.disposeAsync()
    },
  }
}

const DAMAGED_FILE =
  'the database file is damaged: stop the server and restore a backup (npm run admin -- restore), or repair the file with sqlite3 .recover'
const DAMAGED_DATABASE =
  'PostgreSQL reports a damaged page or index: check its disk, REINDEX a damaged index or restore a backup, then start this server again'

/** How long the database may take to answer whether it is there (ms): who asks waits for 5 s. */
const READY_PATIENCE = 4_000

// Loaded only where it is used.
async function openPostgresBus(settings: Settings, db: Db, log: Logger): Promise<PostgresBus> {
  const { createPostgresBus } = await import('./bus/postgres.ts')
  return createPostgresBus({ url: settings.DATABASE_DIRECT_URL ?? settings.DATABASE_URL ?? '', db, log })
}

/** How long (ms) after the start what the first run needs is loaded: the first answers do not wait for it. */
const PRELOAD_AFTER = 1_000

function listen(server: Server, { HOST, PORT }: Settings): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject).listen(PORT, HOST, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

function urlOf(server: Server, { PUBLIC_URL }: Settings): string {
  const { address, family, port } = server.address() as AddressInfo
  const host = address === '0.0.0.0' || address === '::' ? 'localhost' : family === 'IPv6' ? `[${address}]` : address
  return PUBLIC_URL?.replace(/\/$/, '') ?? `http://${host}:${port}`
}

/**
 * How long a connection may be idle (ms): longer than in proxies, which would send a request on one that is just being
 * closed here.
 */
const KEEP_ALIVE = 150_000
/** How long answers that are under way may still take (ms). */
const CLOSE_PATIENCE = 3_000

async function close(server: Server): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve))
  // Those that are answered only now become idle now.
  const idle = setInterval(() => server.closeIdleConnections(), 20)
  const timer = setTimeout(() => server.closeAllConnections(), CLOSE_PATIENCE)
  await closed
  clearTimeout(timer)
  clearInterval(idle)
}
