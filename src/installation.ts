import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Logger } from 'pino'
import { type Database, databaseFile, Prisma } from './db/client.ts'
import { isOrphanedLog, logOf, setLogAside } from './db/sqlite/write-ahead-log.ts'
import { findMedia, mediaFolder } from './media/storage.ts'
import type { Settings } from './settings.ts'

/** A start would make a new installation beside what an older one has left. */
export class NewInstallationError extends Error {
  override name = 'NewInstallationError'
}

/** A first start leaves this file until it has ended: one that was killed may begin again. */
const MARKER = 'first-start'
/** Holds how often a server has started with this DATA_DIR, and on which installation. */
const COUNTER = 'starts.json'

const refusal = (found: string, database: string) =>
  new NewInstallationError(
    `${database} has no installation yet, but ${found} is of one. If its database is elsewhere, set DATA_DIR or DATABASE_URL, or restore a backup (npm run admin -- restore FILE). To make a new installation anyway, set ALLOW_NEW_INSTALLATION=true.`,
  )

/** Takes an orphaned log out of the way of a new installation that the operator wants. Throws where nobody said so. */
export function checkLog(file: string, settings: Settings, now: Date, log: Logger): void {
  if (!isOrphanedLog(file)) return
  if (!settings.ALLOW_NEW_INSTALLATION) throw refusal(logOf(file), file)
  const aside = setLogAside(file, now)
  log.warn({ file: aside }, 'the log of an earlier database was set aside')
}

/** What a start found of its installation: whether it makes one, and how to end its first start. */
type Found = { isNew: boolean; end: () => void }

/**
 * Finds out whether this start makes a new installation, and marks a first start. Throws a NewInstallationError where a key
 * or media of another installation are there, unless ALLOW_NEW_INSTALLATION is set or a first start was killed.
 */
export async function findInstallation({ client }: Database, settings: Settings): Promise<Found> {
  const file = databaseFile(settings)
  const marker = join(settings.DATA_DIR, MARKER)
  const end = () => rmSync(marker, { force: true })
  const find = () => client.installation.findUnique({ where: { id: 1 }, select: { id: true } })
  if (await find()) return { isNew: false, end: existsSync(marker) ? end : () => {} }
  if (!settings.ALLOW_NEW_INSTALLATION && !existsSync(marker)) {
    const key = resolve(settings.DATA_DIR, 'encryption.key')
    const left = file && existsSync(key) ? key : await findMedia(resolve(mediaFolder(settings)))
    // Of several servers another may have made it meanwhile.
    if (left && !(await find())) throw refusal(left, file ?? 'The database')
  }
  if (file) {
    mkdirSync(settings.DATA_DIR, { recursive: true, mode: 0o700 })
    writeFileSync(marker, '', { mode: 0o600 })
  }
  return { isNew: true, end }
}

type Counted = { installation: string; starts: number }

function readCounter(path: string): Counted | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Counted
  } catch {
    return null
  }
}

/** Returns how often a server has started with this DATA_DIR on an installation. */
export function countedStarts({ DATA_DIR }: Pick<Settings, 'DATA_DIR'>, installation: string): number {
  const counted = readCounter(join(DATA_DIR, COUNTER))
  return counted?.installation === installation && Number.isSafeInteger(counted.starts) ? counted.starts : 0
}

/**
 * Counts this start in an SQLite database and in DATA_DIR, and marks the database as paused (contract-2.md section 8.7)
 * where it is a copy: a backup, one that was put in place of another (`isReplaced`), or one that has seen fewer starts
 * than DATA_DIR. Uploads that its original had under way are no concern of a copy.
 */
export async function countStart(
  { client }: Database,
  settings: Settings,
  { installation, isReplaced, now }: { installation: string; isReplaced: boolean; now: Date },
): Promise<void> {
  const { starts, pausedBy } = await client.installation.findUniqueOrThrow({
    where: { id: 1 },
    select: { starts: true, pausedBy: true },
  })
  const [header] = await client.$queryRaw<{ version: number }[]>(
    Prisma.sql`SELECT "user_version" AS "version" FROM pragma_user_version`,
  )
  const counted = countedStarts(settings, installation)
  const isOlder = isReplaced || counted > starts
  const found = Number(header?.version ?? 0) < 0 ? 'backup' : isOlder ? 'older' : null
  const mark = pausedBy === null && found ? { pausedBy: found, pausedAt: now } : {}
  const next = Math.max(starts, counted) + 1
  await client.$transaction(async (tx) => {
    await tx.installation.update({ where: { id: 1 }, data: { starts: next, ...mark }, select: { id: true } })
    if (mark.pausedBy) await tx.mediaDraft.deleteMany({})
  })
  const path = join(settings.DATA_DIR, COUNTER)
  mkdirSync(settings.DATA_DIR, { recursive: true, mode: 0o700 })
  writeFileSync(`${path}.part`, JSON.stringify({ installation, starts: next }), { mode: 0o600 })
  renameSync(`${path}.part`, path)
}
