import type { Logger } from 'pino'
import { type Trouble, troubleOf } from '../lib/database-errors.ts'

/** Time without a failure after which a trouble counts as ended (ms). */
const QUIET = 15_000

/** Conditions under which the database serves reads only. */
const WITHOUT_WRITES = ['disk_full', 'read_only'] as const

export type Troubles = {
  /** Records the database's own error code of a failed statement. */
  note(code: string): void
  /** Returns why the database refuses writes, or undefined while it accepts them. */
  writesRefused(): (typeof WITHOUT_WRITES)[number] | undefined
  stop(): void
}

/** Logs each trouble with the database once when it begins and once when it has ended. */
export function createTroubles(log: Logger): Troubles {
  const present = new Map<Trouble['name'], NodeJS.Timeout>()

  function end(name: Trouble['name']): void {
    present.delete(name)
    log.info({ trouble: name }, `the database has not failed in this way for ${QUIET / 1_000} s`)
  }

  return {
    note(code) {
      const trouble = troubleOf(code)
      if (!trouble) return
      const { name, detail, line = detail } = trouble
      const timer = present.get(name)
      if (timer) return void timer.refresh()
      present.set(name, setTimeout(end, QUIET, name).unref())
      log.error({ code, trouble: name }, line)
    },
    writesRefused: () => WITHOUT_WRITES.find((name) => present.has(name)),
    stop() {
      for (const timer of present.values()) clearTimeout(timer)
    },
  }
}
