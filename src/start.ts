import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { createAgentCache } from './agents/agent-cache.ts'
import { createApp } from './app.ts'
import { createActors } from './auth/actors.ts'
import { createKeyNetworks } from './auth/key-networks.ts'
import { createRateLimits } from './auth/rate-limits.ts'
import { createRevocations } from './auth/revocations.ts'
import { bootstrap } from './bootstrap.ts'
import { createLocalBus } from './bus/local.ts'
import type { PostgresBus } from './bus/postgres.ts'
import { removeStaleClones } from './client/git.ts'
import { deriveKey, openMasterKey } from './crypto/secrets.ts'
import { type Db, databaseFile, openDatabase } from './db/client.ts'
import { continueEvents } from './db/events.ts'
import { STATEMENT_TIMEOUT } from './db/limits.ts'
import { openDatabaseClock } from './db/postgresql/clock.ts'
import { warnOfExposure } from './db/postgresql/exposure.ts'
import type { BlockedMigration } from './db/postgresql/migrate.ts'
import { putBack } from './db/sqlite/file-identity.ts'
import { lockDatabase } from './db/sqlite/file-lock.ts'
import { requireOwnFile } from './db/sqlite/migrate.ts'
import { sortBeside } from './db/sqlite/temp-files.ts'
import { hasForeignLog, setLogAside } from './db/sqlite/write-ahead-log.ts'
import { createTroubles, LOCK_TAKEN } from './db/troubles.ts'
import type { Deps } from './deps.ts'
import { agentFor } from './executions/agent-for.ts'
import { createEngine } from './executions/engine/engine.ts'
import { createNotices } from './executions/engine/events/notices.ts'
import { createModels } from './executions/engine/models/models.ts'
import { close, listen, portOf, urlOf } from './http/listen.ts'
import { checkLog, countStart, findInstallation } from './installation.ts'
import { type Clock, systemClock } from './lib/clock.ts'
import { onceDone } from './lib/once.ts'
import { hostsOf } from './lib/postgres-url.ts'
import { raceAbort } from './lib/race-abort.ts'
import { createMailer } from './mail/service.ts'
import { createOperatorServers } from './mcps/operator.ts'
import { installationId } from './media/installation.ts'
import { removeLeftovers } from './media/leftovers.ts'
import { noStorage, openStorage } from './media/storage.ts'
import { createFinisher, type Finisher } from './missions/endings.ts'
import { createScheduler, type Scheduler } from './missions/scheduler.ts'
import { openPause } from './pause.ts'
import { createReadProviders } from './providers/records.ts'
import { createReadyCheck } from './ready.ts'
import type { Settings } from './settings.ts'
import { startTelemetry } from './telemetry/setup.ts'
import { createDeliverer, type Deliverer } from './webhooks/deliverer.ts'
import type { PushBody } from './webhooks/push.ts'

export type Service = {
  deps: Deps
  /** Address of the service. */
  url: string
  /** Address of the metrics, if they are enabled. */
  metricsUrl: string | null
  /** The first token if this start created it, to be displayed once. */
  firstToken: string | null
  /** The code that signs the first owner in once, beside that token. */
  firstLink: string | null
  /**
   * The absolute path of the SQLite file, or the host of the PostgreSQL, in which this start created an installation.
   */
  newInstallation: string | null
  /**
   * Stops the service: reports that it is not ready, rejects new work after SHUTDOWN_DELAY, lets runs finish, closes
   * everything.
   */
  stop: () => Promise<void>
}

type StartOptions = { clock?: Clock; onQuery?: (sql: string) => void }

/**
 * Starts the whole service in this process: locks, migrates and opens the database, listens, and recovers after a
 * crash. Throws and closes everything again if any step fails.
 */
export async function startService(
  given: Readonly<Settings>,
  log: Logger,
  options: StartOptions = {},
): Promise<Service> {
  await using cleanup = new AsyncDisposableStack()
  const settings = { ...given }
  const stores = await openStores(cleanup, settings, log, options)
  const { file, db, installation } = stores
  const { deps, far, metricsUrl } = await createDeps(cleanup, settings, log, stores)
  removeRemains(deps)

  const stopping = new AbortController()
  let isStarted = false
  const isReady = createReadyCheck({ ...stores, bus: far, stopping: stopping.signal })
  const app = createApp(deps, async () => (isStarted ? isReady() : null))
  // A given token works as soon as the server listens.
  if (settings.BOOTSTRAP_TOKEN !== undefined) await bootstrap(deps)
  const server = cleanup.adopt(await listen(app, settings, log, stopping.signal), close)
  // Links name the port that the system chose for 0.
  settings.PORT = portOf(server)
  let scheduler: Scheduler | null = null
  let deliverer: Deliverer | null = null
  cleanup.defer(() => deliverer?.stop())
  let finisher: Finisher | null = null
  cleanup.defer(() => finisher?.stop())
  // From here on new runs are rejected, including those of missions; the next server starts them.
  cleanup.defer(async () => {
    const patience = AbortSignal.timeout(settings.DRAIN_TIMEOUT)
    await Promise.all([scheduler?.stop(), deps.engine.drain()])
    await raceAbort(Promise.allSettled(deps.tokenRefreshes), patience)
  })
  // Recovery starts after listening, so that a server that fails to start repeatedly takes over no runs. The lock
  // proves that no other server uses the file, so all of its runs are orphaned.
  await deps.engine.start(file !== null)
  // The token in the result is displayed once, so nothing may fail after this.
  const first = await bootstrap(deps)
  await deps.operatorServers
    .declare()
    .catch((error) =>
      log.error({ err: error }, 'failed to store the MCP servers of MCP_CONFIG: start the server again'),
    )
  installation.end()
  const made = installation.isNew ? (file ?? hostsOf(settings.DATABASE_URL ?? '')) : null
  if (made) log.warn({ database: made }, 'a new installation was made')
  isStarted = true
  if (settings.ROLE !== 'api') {
    scheduler = createScheduler(deps)
    finisher = createFinisher(deps)
    deliverer = createDeliverer(deps, pushBody)
    // A failure is reported to its user later.
    const preload = () => Promise.all([deps.models.preload(), deps.engine.preload(), loadTools()]).catch(() => {})
    const timer = setTimeout(preload, PRELOAD_AFTER)
    cleanup.defer(() => clearTimeout(timer))
  }
  if (!file)
    warnOfExposure(db, log).catch((error) =>
      log.warn(
        { err: error },
        'failed to check whether an API serves the tables to anyone; the next start tries again',
      ),
    )
  const resources = cleanup.move()
  return {
    deps,
    url: urlOf(server, settings),
    metricsUrl,
    firstToken: first?.token ?? null,
    firstLink: first?.link ?? null,
    newInstallation: made,
    async stop() {
      stopping.abort()
      // Serves requests until proxies have noticed that it is not ready.
      if (settings.SHUTDOWN_DELAY) await sleep(settings.SHUTDOWN_DELAY)
      await resources.disposeAsync()
    },
  }
}

type Stores = Awaited<ReturnType<typeof openStores>>

/** Locks, migrates and opens the database and the storage of media. */
async function openStores(cleanup: AsyncDisposableStack, settings: Settings, log: Logger, options: StartOptions) {
  const file = databaseFile(settings)
  const troubles = cleanup.adopt(createTroubles(log, file), (opened) => opened.stop())
  if (file) {
    sortBeside(file)
    const lock = lockDatabase(file, () => troubles.note(LOCK_TAKEN))
    cleanup.defer(() => lock.release())
    if (putBack(file))
      log.warn({ database: file }, 'a server was killed while it closed the file, which has its name back')
  }
  const now = (options.clock ?? systemClock).now()
  const isReplaced = file !== null && (await checkLogOf(file, settings, now, log))
  const onBlocked = (blocked: BlockedMigration) =>
    log.warn(
      blocked,
      'a migration waits for these sessions of PostgreSQL, such as another server that migrates or a pg_dump',
    )
  const onCheckpointFailure = (error: Error) =>
    log.warn({ err: error, database: file }, 'failed to copy the log of the database into its file, trying again')
  const limits = { keepsFile: true, statementTimeout: STATEMENT_TIMEOUT, onBlocked, onCheckpointFailure }
  const database = cleanup.adopt(
    await openDatabase(settings, { ...limits, onQuery: options.onQuery, onFailure: troubles.note }),
    (opened) => opened.close(),
  )
  const db = database.client
  const clock =
    options.clock ?? (file ? systemClock : cleanup.adopt(await openDatabaseClock(db, log), (opened) => opened.stop()))
  const installation = await findInstallation(database, settings)
  const masterKey = await openMasterKey(database, settings, clock.now())
  const id = installationId(masterKey)
  if (file) await countStart(database, settings, { installation: id, isReplaced, now: clock.now() })
  await continueEvents(db, settings)
  const pause = cleanup.adopt(await openPause(settings, db, log), (opened) => opened.stop())
  const storage = await openStorage(settings, id, file !== null)
  // A paused server may use the folder of another database, whose uploads are in progress.
  if (!pause.isPaused()) await storage?.cleanDrafts(file ? 'all' : 'old')
  if (!storage) log.warn('media answer 503: servers on PostgreSQL need a common S3_BUCKET or MEDIA_DIR')
  return { file, troubles, db, clock, installation, masterKey, pause, storage }
}

/** Creates the parts that all requests and runs share. */
async function createDeps(cleanup: AsyncDisposableStack, settings: Settings, log: Logger, stores: Stores) {
  const { file, db, clock, masterKey, pause, storage } = stores
  const far = file ? null : cleanup.adopt(await openPostgresBus(settings, db, log), (bus) => bus.stop())
  const bus = far ?? createLocalBus()
  const startedTelemetry = cleanup.adopt(
    await startTelemetry(settings, { db, clock, log, isPaused: pause.isPaused }),
    (started) => started.stop(),
  )
  const operatorServers = cleanup.adopt(createOperatorServers({ settings, db, clock, log }), (servers) =>
    servers.stop(),
  )
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
    tokenRefreshes: new Set<Promise<void>>(),
    pause,
    bus,
    models,
    telemetry: startedTelemetry.telemetry,
  }
  const engine = createEngine({
    ...base,
    agentFor,
    openTools: async (user) => (await loadTools()).openTools(deps, user),
  })
  const chatNotices = createNotices(bus, 'chat')
  cleanup.defer(() => chatNotices.stop())
  const revocations = createRevocations(base)
  cleanup.defer(() => revocations.stop())
  const identity = await openIdentityProviders(settings, clock, log)
  const tokenKey = deriveKey(masterKey, 'tokens')
  const sessionKey = deriveKey(masterKey, 'sessions')
  const actors = createActors({ ...base, ...identity, tokenKey, sessionKey })
  cleanup.defer(() => actors.stop())
  const rateLimits = createRateLimits(base)
  cleanup.defer(() => rateLimits?.stop())
  const keyNetworks = createKeyNetworks(base)
  cleanup.defer(() => keyNetworks.stop())
  const mail = createMailer(settings, log, pause)
  cleanup.defer(() => mail?.stop())
  const deps: Deps = {
    ...base,
    ...identity,
    rateLimits,
    keyNetworks,
    mail,
    operatorServers,
    engine,
    chatNotices,
    actors,
    agentCache: createAgentCache(),
    revocations,
    tokenKey,
    sessionKey,
    idempotencyKey: deriveKey(masterKey, 'idempotency'),
    wrappingKey,
  }
  return { deps, far, metricsUrl: startedTelemetry.metricsUrl }
}

/**
 * Sets the log of an earlier database aside. Returns whether there was one beside another database's file. Throws for a
 * file of another program, whose log stays.
 */
async function checkLogOf(file: string, settings: Settings, now: Date, log: Logger): Promise<boolean> {
  const isReplaced = hasForeignLog(file)
  checkLog(file, settings, now, log)
  if (!isReplaced) return false
  await requireOwnFile(file)
  const advice = 'It was set aside; delete it when you no longer need it'
  log.warn({ file: setLogAside(file, now), database: file }, `the log belonged to an earlier database. ${advice}`)
  return true
}

/** Opens the configured identity providers. The others are not imported, because they are slow to load. */
async function openIdentityProviders(settings: Settings, clock: Clock, log: Logger) {
  const { OIDC_ISSUER, OIDC_CLIENT_ID, MCP_AUTHORIZATION_SERVER } = settings
  return {
    idTokens: OIDC_ISSUER ? (await import('./auth/id-tokens.ts')).createIdTokens(settings, clock, log) : null,
    signInProvider: OIDC_CLIENT_ID
      ? (await import('./auth/sign-in-provider.ts')).createSignInProvider(settings, clock, log)
      : null,
    accessTokens: MCP_AUTHORIZATION_SERVER
      ? (await import('./auth/access-tokens.ts')).createAccessTokens(settings, MCP_AUTHORIZATION_SERVER, clock)
      : null,
  }
}

/** Removes files that killed servers have left, without waiting. A paused server may share them with another one. */
function removeRemains(deps: Deps): void {
  const { log, pause } = deps
  removeStaleClones().then(
    (folders) => folders.length && log.info({ folders }, 'removed folders of clones that a killed server left'),
    (error) => log.warn({ err: error }, 'failed to remove folders of clones that a killed server left'),
  )
  if (!pause.isPaused())
    removeLeftovers(deps).catch((error) => log.error({ err: error }, 'failed to remove files without a row'))
}

/** Imported a second after the start, or with an earlier run that has tools. */
const loadTools = onceDone(() => import('./executions/tools.ts'))

/** Writes a push notification. Loaded with the first one, as the whole protocol is. */
const pushBody: PushBody = async (...given) => (await import('./protocols/a2a/push.ts')).bodyOf(...given)

// Imported on demand.
async function openPostgresBus(settings: Settings, db: Db, log: Logger): Promise<PostgresBus> {
  const { createPostgresBus } = await import('./bus/postgres.ts')
  return createPostgresBus({ url: settings.DATABASE_DIRECT_URL ?? settings.DATABASE_URL ?? '', db, log })
}

/**
 * Delay after the start before modules of the first run are preloaded (ms), so that the first responses do not wait.
 */
const PRELOAD_AFTER = 1_000
