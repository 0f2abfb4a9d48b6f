import type { Logger } from 'pino'
import type { Db } from './db/client.ts'
import type { Settings } from './settings.ts'

/** Polling interval of a paused server (ms). */
const INTERVAL = 1_000

/** Whether this server holds back runs and missions and sends nothing outside (contract-2.md section 8.7). */
export type Pause = {
  isPaused(): boolean
  /** Calls `work` once when the pause ends; never without a pause. */
  onResume(work: () => void): void
  stop(): void
}

/**
 * Opens the pause of this server: while PAUSED is set, or while the database is marked as a copy. Only a paused server
 * polls the database for the mark, every second.
 */
export async function openPause(settings: Settings, db: Db, log: Logger): Promise<Pause> {
  const find = () => db.installation.findUnique({ where: { id: 1 }, select: { pausedBy: true } })
  const mark = (await find())?.pausedBy ?? null
  let paused = settings.PAUSED || mark !== null
  const waiting: (() => void)[] = []
  if (paused) log.warn(describe(settings, mark))

  async function look(): Promise<void> {
    if ((await find())?.pausedBy) return
    clearInterval(timer)
    paused = false
    log.warn('the pause has ended: missions fire and runs begin')
    for (const work of waiting) work()
  }
  // A setting is constant while the process runs.
  const timer = paused && !settings.PAUSED ? setInterval(() => look().catch(() => {}), INTERVAL) : undefined

  return {
    isPaused: () => paused,
    onResume(work) {
      if (paused) waiting.push(work)
    },
    stop: () => clearInterval(timer),
  }
}

const REASONS: Readonly<Record<string, string>> = {
  backup: 'the database is a backup',
  'mark-copy': 'the database is marked as a copy',
  older: 'the database is older than the one that last ran with this DATA_DIR',
}

function describe({ PAUSED }: Settings, mark: string | null): string {
  const reason = mark === null ? 'PAUSED is set' : (REASONS[mark] ?? mark)
  const end = mark === null ? 'unset PAUSED' : `${PAUSED ? 'unset PAUSED and run' : 'run'} \`npm run admin -- resume\``
  return `paused, since ${reason}: no mission fires, no run begins or goes on, nothing is sent outside. To end it, ${end}`
}
