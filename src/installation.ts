import { existsSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Logger } from 'pino'
import { type Database, databaseFile, Prisma } from './db/client.ts'
import { isOrphanedLog, logOf, restoringOf, setLogAside, sizeOf } from './db/sqlite/write-ahead-log.ts'
import { makeFolder, writeOwnFile } from './lib/folders.ts'
import { findMedia, mediaFolder } from './media/storage.ts'
import type { Settings } from './settings.ts'

/** Thrown if a start would create a new installation beside the remains of an older one. */
export class NewInstallationError extends Error {
  override name = 'NewInstallationError'
}

/** Marker file of a first start, removed at its end, so that a killed first start can be repeated. */
const MARKER = 'first-start'
/** File with the number of starts with this DATA_DIR and the id of the installation. */
const COUNTER = 'starts.json'

const refusal = (found: string, database: string) =>
  new NewInstallationError(
    `${database} has no installation yet, but ${found} is of one. If its database is elsewhere, set DATA_DIR or DATABASE_URL, or restore a backup (npm run admin -- restore FILE). To make a new installation anyway, set ALLOW_NEW_INSTALLATION=true.`,
  )

/**
 * Moves an orphaned log away for an intended new installation. Throws without the operator's permission, also if a
 * restore was killed before its backup took the place of the database.
 */
export function checkLog(file: string, settings: Settings, now: Date, log: Logger): void {
  if (!sizeOf(file) && existsSync(restoringOf(file)) && !settings.ALLOW_NEW_INSTALLATION)
    throw new NewInstallationError(
      `${file} is missing because a restore was interrupted. Repeat it: npm run admin -- restore FILE`,
    )
  if (!isOrphanedLog(file)) return
  if (!settings.ALLOW_NEW_INSTALLATION) throw refusal(logOf(file), file)
  const aside = setLogAside(file, now)
  log.warn({ file: aside }, 'the log of an earlier database was set aside')
}

/** State of the installation at a start: whether it is new, and how to finish its first start. */
type Found = { isNew: boolean; end: () => void }

/**
 * Detects whether this start creates a new installation, and marks a first start. Throws a NewInstallationError if a
 * key or media of another installation exist, unless ALLOW_NEW_INSTALLATION is set or a first start was killed.
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
    // Another server may have created it meanwhile.
    if (left && !(await find())) throw refusal(left, file ?? 'The database')
  }
  if (file) {
    makeFolder(settings.DATA_DIR)
    writeOwnFile(marker, '')
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

/** Returns the number of starts with this DATA_DIR on an installation, or with null on the last one. */
export function countedStarts({ DATA_DIR }: Pick<Settings, 'DATA_DIR'>, installation: string | null): number {
  const counted = readCounter(join(DATA_DIR, COUNTER))
  if (!counted || !Number.isSafeInteger(counted.starts)) return 0
  return installation === null || counted.installation === installation ? counted.starts : 0
}

/** Returns why a database is a copy by its header and its number of starts, or null if it is none. */
export function findCopy(version: number, isOlder: boolean): 'backup' | 'older' | null {
  if (version < 0) return 'backup'
  return isOlder ? 'older' : null
}

/**
 * Counts this start in an SQLite database and in DATA_DIR. Marks the database as paused (contract-2.md section 8.7) if
 * it is a copy: a backup, a replacement (`isReplaced`), or one with fewer starts than DATA_DIR. Unfinished uploads of
 * its original are ignored.
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
  const found = findCopy(Number(header?.version ?? 0), isOlder)
  const mark = pausedBy === null && found ? { pausedBy: found, pausedAt: now } : {}
  const next = Math.max(starts, counted) + 1
  await client.$transaction(async (tx) => {
    await tx.installation.update({ where: { id: 1 }, data: { starts: next, ...mark }, select: { id: true } })
    if (mark.pausedBy) await tx.mediaDraft.deleteMany({})
  })
  const path = join(settings.DATA_DIR, COUNTER)
  makeFolder(settings.DATA_DIR)
  writeOwnFile(`${path}.part`, JSON.stringify({ installation, starts: next }))
  renameSync(`${path}.part`, path)
}
