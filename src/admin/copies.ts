import { constants, existsSync, statSync } from 'node:fs'
import { chmod, copyFile, readdir, rename, rm } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import Sqlite from 'better-sqlite3'
import { openMasterKey } from '../crypto/secrets.ts'
import { databaseFile, Prisma } from '../db/client.ts'
import { lockDatabase } from '../db/sqlite/file-lock.ts'
import { hasForeignLog, logOf, restoringOf, setLogAside, sizeOf } from '../db/sqlite/write-ahead-log.ts'
import { countedStarts } from '../installation.ts'
import { makeFolder } from '../lib/folders.ts'
import { installationId } from '../media/installation.ts'
import { flush, markCopy } from './backup.ts'
import type { Admin, Answer, Operator } from './command.ts'
import { AdminError } from './option-values.ts'

const REPEAT = `What was changed after the copy was made is not in it. Before you resume, repeat what matters: revoke the
tokens that were revoked since, remove the members who left, and change secrets that were changed.`

/**
 * Replaces the SQLite database with a backup, with the server stopped. The previous database is kept aside with its
 * log, so that no data is lost and the log is not mixed into the backup. A server that starts on it is paused.
 */
export async function restore({ settings, now }: Operator, [given = '']: string[]): Promise<Answer> {
  const file = databaseFile(settings)
  if (!file) throw new AdminError('The database is PostgreSQL: restore it with pg_restore, then run mark-copy.')
  const source = resolve(given)
  checkBackup(source)
  makeFolder(dirname(file))
  const lock = lockDatabase(file)
  const draft = restoringOf(file)
  // If this fails, the draft stays: a start recognizes the interrupted restore by it.
  await undoInterrupted(file)
  if (hasForeignLog(file)) setLogAside(file, now)
  const existed = sizeOf(file) > 0
  const aside = `${file}.before-${now.toISOString().replace(/\D/g, '')}`
  try {
    await rm(draft, { force: true })
    await copyFile(source, draft, constants.COPYFILE_EXCL)
    await chmod(draft, 0o600)
    markCopy(draft)
    await flush(draft, 'r+')
    if (existed) await rename(file, aside)
    await rename(draft, file).catch(async (error) => {
      if (existed) await rename(aside, file)
      throw error
    })
    // The log is moved last. The number of the new database shows that the log is not its own, but the old database
    // without it would be an older one.
    for (const suffix of ['-wal', '-shm', '-journal'])
      if (existsSync(file + suffix)) await rename(file + suffix, aside + suffix)
    await flush(dirname(file), 'r').catch(() => {})
  } finally {
    await rm(draft, { force: true })
    lock.release()
  }
  const kept = existed ? `\nThe database that was there is now ${aside}.` : ''
  const key = resolve(settings.DATA_DIR, 'encryption.key')
  const missing =
    !settings.ENCRYPTION_KEY && !existsSync(key) ? `\nPut its encryption key at ${key} before you start.` : ''
  const text = `Restored ${source} to ${file}.${kept}${missing}
The server will start paused. Check its data, then run \`npm run admin -- resume\`.
${REPEAT}`
  return { json: { file, replaced: existed ? aside : null }, text }
}

/** Gives the database its name back if an earlier restore was killed before the backup had the name. */
async function undoInterrupted(file: string): Promise<void> {
  if (sizeOf(file) || !existsSync(restoringOf(file))) return
  const begin = `${basename(file)}.before-`
  // Its log has a suffix.
  const names = (await readdir(dirname(file))).filter((name) => name.startsWith(begin) && /\d$/.test(name))
  const latest = names.sort().at(-1)
  if (latest !== undefined) await rename(join(dirname(file), latest), file)
}

/** Throws unless a file is an intact SQLite database of Muster, complete without a log. */
function checkBackup(source: string): void {
  const found = statSync(source, { throwIfNoEntry: false })
  if (!found) throw new AdminError(`There is no file ${source}. Name a backup that exists.`)
  if (found.isDirectory()) throw new AdminError(`${source} is a folder. Name the backup file in it.`)
  if (existsSync(logOf(source)))
    throw new AdminError(
      `${logOf(source)} exists beside it, so the copy is incomplete. Make it with the command backup.`,
    )
  let connection: Sqlite.Database | undefined
  try {
    connection = new Sqlite(source, { readonly: true, timeout: 10_000 })
    const [{ quick_check: state }] = connection.pragma('quick_check(1)') as [{ quick_check: string }]
    if (state !== 'ok') throw new AdminError(`${source} is damaged, use another backup: ${state}`)
    if (!connection.prepare('SELECT 1 FROM "Installation"').get())
      throw new AdminError(`${source} has no installation of Muster. Name a backup of a server that has started once.`)
  } catch (error) {
    if (error instanceof AdminError) throw error
    throw new AdminError(`${source} is no database of Muster: ${(error as Error).message}`)
  } finally {
    connection?.close()
  }
}

/** Marks a database as a copy, so that servers started on it are paused: a restored dump, or a copied file. */
export async function markDatabase({ database, now }: Admin): Promise<Answer> {
  const where = { id: 1, pausedBy: null }
  const { count } = await database.client.$transaction(async (tx) => {
    await tx.mediaDraft.deleteMany({})
    return tx.installation.updateMany({ where, data: { pausedBy: 'mark-copy', pausedAt: now } })
  })
  const text = count ? 'The database is marked as a copy.' : 'The database is marked as a copy already.'
  const advice = 'Servers that start on it are paused until `npm run admin -- resume`; any that run on it now are not.'
  return { json: { marked: true }, text: `${text} ${advice}` }
}

/**
 * Ends the pause of a copy, also for running servers. Runs that were active when the copy was made belong to the
 * original, so they are cancelled and nothing is executed twice.
 */
export async function resume(admin: Admin): Promise<Answer> {
  const { database, settings, now } = admin
  const { client, kind } = database
  const row = await client.installation.findUniqueOrThrow({ where: { id: 1 } })
  const version = kind === 'sqlite' ? await readVersion(admin) : 0
  const counted =
    kind === 'sqlite' ? countedStarts(settings, installationId(await openMasterKey(database, settings, now))) : 0
  const isCopy = row.pausedBy !== null || version < 0 || counted > row.starts
  const still = settings.PAUSED ? ' PAUSED is set: unset it, and restart the servers.' : ''
  if (!isCopy) return { json: { resumed: false, cancelled: 0 }, text: `The database is not marked as a copy.${still}` }
  const runs = { terminalSeq: null, createdAt: { lte: row.pausedAt ?? now }, wantsCancel: false }
  const cancelled = await client.$transaction(async (tx) => {
    const { count } = await tx.execution.updateMany({ where: runs, data: { wantsCancel: true, updatedAt: now } })
    const data = { pausedBy: null, pausedAt: null, starts: Math.max(row.starts, counted) }
    await tx.installation.update({ where: { id: 1 }, data, select: { id: true } })
    return count
  })
  if (version < 0) await client.$executeRaw(Prisma.sql`PRAGMA user_version = ${Prisma.raw(String(-version))}`)
  const text = `The pause has ended: missions fire and runs begin. Cancelled runs from before the copy: ${cancelled}.${still}`
  return { json: { resumed: true, cancelled }, text }
}

async function readVersion({ database }: Admin): Promise<number> {
  const [row] = await database.client.$queryRaw<{ version: number }[]>(
    Prisma.sql`SELECT "user_version" AS "version" FROM pragma_user_version`,
  )
  return Number(row?.version ?? 0)
}
