import type { Deps } from '../deps.ts'
import { HOUR } from './drafts.ts'
import { dayOf } from './service.ts'
import type { Trashed } from './storage.ts'

/** Maximum share and number of the installation's files that one start moves to the trash. */
const MAX_SHARE = 0.01
const MAX_REMOVED = 100
/** Maximum number of recorded uploads and deletions that a start checks. */
const MAX_LOOKED_AT = 1_000
/** Time that a file stays in the trash (days). */
export const TRASH_DAYS = 14
const DAY = 24 * HOUR

type Parts = Pick<Deps, 'db' | 'storage' | 'clock' | 'log'>

/**
 * Moves files to the trash that interrupted uploads and deletions of this installation left behind, as recorded in its
 * database, and deletes trash older than 14 days. A file is never removed merely because it is unknown to the database:
 * the storage may be shared, and the database may be older. Runs at a start, unless the server is paused.
 */
export async function removeLeftovers(deps: Parts): Promise<void> {
  const { db, log } = deps
  const leftovers = await findRecorded(deps)
  const most = Math.min(MAX_REMOVED, Math.floor((await db.media.count()) * MAX_SHARE))
  for (const id of leftovers.slice(0, most)) await moveToTrash(deps, id)
  const rest = leftovers.length - most
  if (rest > 0) {
    const advice = '`npm run admin -- media-clean` lists them, and with --yes moves them to the trash'
    log.warn({ files: rest }, `files of interrupted uploads and deletions remain: ${advice}`)
  }
  await emptyTrash(deps)
  log.debug('cleaned up media files')
}

/** Returns the ids of files without a row that the database has recorded for more than an hour. */
async function findRecorded({ db, storage, clock }: Parts): Promise<string[]> {
  const recorded = await db.mediaDraft.findMany({
    where: { createdAt: { lt: new Date(clock.now().getTime() - HOUR) } },
    orderBy: { createdAt: 'asc' },
    take: MAX_LOOKED_AT,
  })
  const ids = recorded.map(({ id }) => id)
  const known = await findExisting({ db }, ids)
  const found: string[] = []
  const settled: string[] = []
  for (const id of ids) {
    if (known.has(id) || !(await storage.has(id))) settled.push(id)
    else found.push(id)
  }
  if (settled.length) await db.mediaDraft.deleteMany({ where: { id: { in: settled } } })
  return found
}

async function findExisting({ db }: Pick<Parts, 'db'>, ids: string[]): Promise<Set<string>> {
  if (!ids.length) return new Set()
  const rows = await db.media.findMany({ where: { id: { in: ids } }, select: { id: true } })
  return new Set(rows.map(({ id }) => id))
}

async function moveToTrash({ db, storage, clock, log }: Parts, id: string): Promise<void> {
  await storage.trash(id, dayOf(clock.now()))
  await db.mediaDraft.deleteMany({ where: { id } })
  log.info({ mediaId: id, days: TRASH_DAYS }, 'moved a file without a row to the trash')
}

/**
 * Deletes expired files from the trash. A file whose row exists, as after a restore of the database, is put back
 * instead.
 */
async function emptyTrash({ db, storage, clock, log }: Parts): Promise<void> {
  const oldest = dayOf(new Date(clock.now().getTime() - TRASH_DAYS * DAY))
  for await (const some of storage.listTrash()) {
    const old = some.filter(({ day }) => day < oldest)
    const known = await findExisting(
      { db },
      old.map(({ id }) => id),
    )
    for (const trashed of old) {
      if (known.has(trashed.id)) {
        await storage.restore(trashed.id)
        log.warn({ mediaId: trashed.id }, 'restored a file from the trash because the database refers to it')
        continue
      }
      await storage.purge(trashed)
      log.info({ mediaId: trashed.id, trashed: trashed.day }, 'deleted a file from the trash')
    }
  }
}

/** Lists the installation's files without a row: recorded ones, and any under its prefix that are an hour old. */
export async function findLeftovers(deps: Parts): Promise<string[]> {
  const found = new Set(await findRecorded(deps))
  for await (const ids of deps.storage.list()) {
    const known = await findExisting(deps, ids)
    for (const id of ids) if (!known.has(id)) found.add(id)
  }
  return [...found]
}

/** Moves all of the installation's files without a row to the trash. Returns their ids. */
export async function cleanMedia(deps: Parts): Promise<string[]> {
  const ids = await findLeftovers(deps)
  for (const id of ids) await moveToTrash(deps, id)
  return ids
}

/** Restores files from the trash: one, or all whose row exists. Returns their ids. */
export async function restoreMedia({ db, storage }: Parts, id: string | null): Promise<string[]> {
  if (id !== null) return (await storage.restore(id)) ? [id] : []
  const trashed: Trashed[] = []
  for await (const some of storage.listTrash()) trashed.push(...some)
  const known = await findExisting(
    { db },
    trashed.map((one) => one.id),
  )
  const restored: string[] = []
  for (const { id: each } of trashed) if (known.has(each) && (await storage.restore(each))) restored.push(each)
  return restored
}
