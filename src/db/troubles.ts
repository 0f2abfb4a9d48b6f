import type { Logger } from 'pino'
import { isDamage } from '../lib/database-errors.ts'
import { type Trouble, troubleOf } from '../lib/database-troubles.ts'
import { MOVED } from './sqlite/file-identity.ts'

/** Time without a failure after which a trouble counts as ended (ms). */
const QUIET = 15_000

/** Conditions under which the database serves reads only. */
const WITHOUT_WRITES = ['disk_full', 'read_only'] as const

/** Our own code for a file that another server has locked since. */
export const LOCK_TAKEN = 'MUSTER_LOCK_TAKEN'

const DAMAGED_FILE =
  'the database file is damaged: stop the server and restore a backup (npm run admin -- restore), or repair the file with sqlite3 .recover'
const DAMAGED_DATABASE =
  'PostgreSQL reports a damaged page or index: check its disk, REINDEX a damaged index or restore a backup, then start this server again'

export type Troubles = {
  /** Records the database's own error code of a failed statement. */
  note(code: string): void
  /** Returns the error code of damage, or null while none was found. */
  damage(): string | null
  /** Returns why the database refuses writes, or undefined while it accepts them. */
  writesRefused(): (typeof WITHOUT_WRITES)[number] | undefined
  /** Returns the trouble of a file that was moved, or that another server uses, or undefined. */
  ofFile(): Trouble | undefined
  stop(): void
}

/**
 * Logs each trouble with the database once when it begins and once when it has ended. Damage does not end. `file`: the
 * file of an SQLite database, else null.
 */
export function createTroubles(log: Logger, file: string | null): Troubles {
  const present = new Map<Trouble['name'], NodeJS.Timeout>()
  let damage: string | null = null

  function end(name: Trouble['name']): void {
    present.delete(name)
    log.info({ trouble: name }, `the database has not failed in this way for ${QUIET / 1_000} s`)
  }

  return {
    note(code) {
      if (isDamage(code)) {
        if (damage === null) log.fatal({ database: file, code }, file ? DAMAGED_FILE : DAMAGED_DATABASE)
        damage = code
      }
      const trouble = troubleOf(code)
      if (!trouble) return
      const { name, detail, line = detail } = trouble
      const timer = present.get(name)
      if (timer) return void timer.refresh()
      present.set(name, setTimeout(end, QUIET, name).unref())
      log.error({ code, trouble: name }, line)
    },
    damage: () => damage,
    writesRefused: () => WITHOUT_WRITES.find((name) => present.has(name)),
    ofFile: () => troubleOf(present.has('moved') ? MOVED : present.has('taken') ? LOCK_TAKEN : ''),
    stop() {
      for (const timer of present.values()) clearTimeout(timer)
    },
  }
}
