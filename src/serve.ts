import { flushCompileCache } from 'node:module'
import { EncryptionKeyError } from './crypto/secrets.ts'
import { MigrationError } from './db/migrate.ts'
import { DatabaseLockedError } from './db/sqlite/file-lock.ts'
import { greet } from './greeting.ts'
import { NewInstallationError } from './installation.ts'
import { isUnavailable } from './lib/database-errors.ts'
import { createLog } from './lib/log.ts'
import { readSettings, SettingsError } from './settings.ts'
import { startService } from './start.ts'

/** When the compiled modules are kept for the next start (ms): the first requests come before. */
const FLUSH_DELAY = 5_000

const EXPECTED = [DatabaseLockedError, MigrationError, EncryptionKeyError, NewInstallationError]

/** A problem that the operator can solve gets its message alone; anything else its stack too. */
function refuseToStart(error: unknown): never {
  const { message, code, syscall, port } = error as NodeJS.ErrnoException & { port?: number }
  const setting = port === Number(process.env.METRICS_PORT) ? 'METRICS_PORT' : 'PORT'
  const wayOut = code === 'EADDRINUSE' ? ` Set ${setting} to another.` : ''
  if (error instanceof SettingsError) console.error(`Muster cannot start. ${message}`)
  // Of the operating system: an address or a folder that cannot be used, a database that does not answer. Of several
  // addresses that were tried in vain there is only the code.
  else if (syscall || isUnavailable(error)) console.error(`Muster cannot start. ${message || code}.${wayOut}`)
  else console.error(EXPECTED.some((kind) => error instanceof kind) ? message : error)
  process.exit(1)
}

/** Runs the service as the environment sets it, until it is told to stop. */
export async function serve(): Promise<void> {
  // Nobody else reads what is created: database, log, key, media, folders.
  process.umask(0o077)
  try {
    // A greeting that nobody can read is no reason to end.
    for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
    const settings = readSettings(process.env)
    const log = createLog(settings.LOG_LEVEL)
    const service = await startService(settings, log)
    let stopping = false
    const stop = () => {
      if (stopping) process.exit(1)
      stopping = true
      log.info('stopping')
      service.stop().then(
        () => process.exit(0),
        (error) => {
          log.error({ err: error }, 'the stop failed')
          process.exit(1)
        },
      )
    }
    process.on('SIGTERM', stop).on('SIGINT', stop)
    // Whoever reads that it is ready may stop it at once.
    await greet(service, settings)
    // Not left to the end, which may never be an orderly one.
    setTimeout(flushCompileCache, FLUSH_DELAY).unref()
  } catch (error) {
    refuseToStart(error)
  }
}
