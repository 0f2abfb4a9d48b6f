import type { PostgresBus } from './bus/postgres.ts'
import type { Troubles } from './db/troubles.ts'
import type { Deps } from './deps.ts'
import { damaged, unavailable } from './errors.ts'
import { troubleIn } from './lib/database-troubles.ts'
import { raceAbort } from './lib/race-abort.ts'

/** Maximum wait for the database in a readiness check (ms), below the usual 5 s of probes. */
const PATIENCE = 4_000

type ReadyDeps = Pick<Deps, 'db' | 'pause'> & {
  troubles: Troubles
  /** Null on SQLite. */
  bus: Pick<PostgresBus, 'state'> | null
  stopping: AbortSignal
}

/**
 * Returns a check whether the database answers. It returns the limitations of the service, and throws 503 if the
 * database is damaged, was moved, is used by another server, or does not answer in time.
 */
export function createReadyCheck({ db, pause, troubles, bus, stopping }: ReadyDeps) {
  function throwIfUnusable(): void {
    const code = troubles.damage()
    if (code !== null) throw damaged(code)
    const trouble = troubles.ofFile()
    if (trouble) throw unavailable(undefined, trouble.detail)
  }

  return async () => {
    throwIfUnusable()
    let failure: unknown
    // A table, which the role may not be allowed to read.
    const asked = db.$queryRaw`SELECT 1 FROM "Installation"`.then(Boolean, (error) => {
      failure = error
      return false
    })
    // Requests received before must also end their connections, because clients would send further requests here.
    const patience = AbortSignal.any([stopping, AbortSignal.timeout(PATIENCE)])
    if (!(await raceAbort(asked, patience))) throw unavailable(undefined, troubleIn(failure)?.detail)
    throwIfUnusable()
    const writes = troubles.writesRefused()
    return {
      ...(pause.isPaused() && { status: 'paused' as const }),
      ...(writes && { writes }),
      ...(bus && { notices: bus.state() }),
    }
  }
}
