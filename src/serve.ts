import { flushCompileCache } from 'node:module'
import { EncryptionKeyError } from './crypto/secrets.ts'
import { MigrationError } from './db/migrations.ts'
import { DatabaseLockedError, shortageAdvice } from './db/sqlite/file-lock.ts'
import { greet } from './greeting.ts'
import { NewInstallationError } from './installation.ts'
import { isUnavailable } from './lib/database-errors.ts'
import { troubleIn } from './lib/database-troubles.ts'
import { createLog } from './lib/log.ts'
import { readSettings, SettingsError } from './settings.ts'
import { startService } from './start.ts'

/** Delay before compiled modules are cached for the next start (ms), so that the first requests come first. */
const FLUSH_DELAY = 5_000

/** Interval of the checks for npm's shell (ms). */
const SHELL_INTERVAL = 500

const STOP_SIGNALS = ['SIGTERM', 'SIGINT'] as const

const exit = () => process.exit(0)

const EXPECTED = [SettingsError, DatabaseLockedError, MigrationError, EncryptionKeyError, NewInstallationError]

/**
 * Explains why the service cannot start: the message of a problem that the operator can solve, with the way out, or any
 * other error itself, which is printed with its stack.
 */
export function explain(error: unknown, env: Readonly<Record<string, string | undefined>>): unknown {
  const { message, code, syscall } = error as NodeJS.ErrnoException
  // Errors of the operating system: an unusable address or folder, an unreachable database. If several addresses
  // failed, only the code is available.
  if (syscall || isUnavailable(error)) {
    return ['Muster cannot start.', `${message || code}.`, ...wayOutOf(error, env)].join(' ')
  }
  return EXPECTED.some((kind) => error instanceof kind) ? `Muster cannot start. ${message}` : error
}

/** Returns the setting to change, or the other remedy, for an error of the operating system or of the database. */
function wayOutOf(error: unknown, env: Readonly<Record<string, string | undefined>>): string[] {
  const trouble = troubleIn(error)
  if (trouble) return [trouble.detail]
  const shortage = shortageAdvice(error)
  if (shortage) return [shortage.trim()]
  const { code = '', syscall, path, port, hostname } = error as NodeJS.ErrnoException & Listened
  if (syscall === 'listen' || (syscall === 'getaddrinfo' && hostname && env.HOST?.includes(hostname))) {
    const setting = port === Number(env.METRICS_PORT) ? 'METRICS_PORT' : 'PORT'
    if (code === 'EADDRINUSE') return [`Set ${setting} to another.`]
    if (code === 'EACCES') return [`Set ${setting} to one above 1023, which needs no privilege.`]
    return ['Set HOST to an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all.']
  }
  if (path) return ['Correct it, or the setting that names it (DATA_DIR, DATABASE_URL, MEDIA_DIR).']
  return env.DATABASE_URL ? ['Start the database, or correct DATABASE_URL.'] : []
}

/** Further fields of the errors of a server that cannot listen, and of a name that cannot be resolved. */
type Listened = { port?: number; hostname?: string }

/** Runs the service with the settings of the environment until it is asked to stop. */
export async function serve(): Promise<void> {
  // Makes all created files private: database, log, key, media, folders.
  process.umask(0o077)
  try {
    // A failed greeting must not end the process.
    for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
    const settings = readSettings(process.env)
    const log = createLog(settings.LOG_LEVEL)
    // The first process of a container ignores signals without a listener, also while it waits for its database.
    if (process.pid === 1) for (const signal of STOP_SIGNALS) process.on(signal, exit)
    const service = await startService(settings, log)
    for (const signal of STOP_SIGNALS) process.off(signal, exit)
    let stopping = false
    const stop = () => {
      if (stopping) process.exit(1)
      stopping = true
      log.info('stopping')
      service.stop().then(
        () => process.exit(0),
        (error) => {
          log.error({ err: error }, 'failed to stop')
          process.exit(1)
        },
      )
    }
    for (const signal of STOP_SIGNALS) process.on(signal, stop)
    const stopOnce = () => stopping || stop()
    // A terminal that closes may send it twice. Without a listener it ends Node at once, also under nohup.
    process.on('SIGHUP', stopOnce)
    if (process.env.npm_lifecycle_event === 'start') onOrphaned(stopOnce)
    // A supervisor may stop the server as soon as it reports readiness.
    await greet(service, settings)
    // Saved early, because the process may be killed.
    setTimeout(flushCompileCache, FLUSH_DELAY).unref()
  } catch (error) {
    console.error(explain(error, process.env))
    process.exit(1)
  }
}

/**
 * Calls back when the parent process has ended. A SIGTERM to npm ends npm and its shell, which do not pass it on: the
 * server would stay behind, with its port and its database.
 */
function onOrphaned(callback: () => void): void {
  const parent = process.ppid
  const timer = setInterval(() => {
    if (process.ppid === parent) return
    clearInterval(timer)
    callback()
  }, SHELL_INTERVAL).unref()
}
