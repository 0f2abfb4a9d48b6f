import type { Deps } from '../deps.ts'
import { HOUR } from './drafts.ts'
import { dayOf } from './service.ts'
import type { Trashed } from './storage.ts'

/** Share of the installation's files, and number of files, that a start moves to the trash at most. */
const MAX_SHARE = 0.01
const MAX_REMOVED = 100
/** How many records of uploads and deletions a start looks at. */
const MAX_LOOKED_AT = 1_000
/** How long a file stays in the trash (days). */
export const TRASH_DAYS = 14
const DAY = 24 * HOUR

type Parts = Pick<Deps, 'db' | 'storage' | 'clock' | 'log'>

/**
 * Moves files to the trash that uploads and deletions of this installation left behind, as its database records them, and
 * empties the trash of what is older than 14 days. Nothing is ever removed because the database does not know it: the
 * storage may belong to others, and the database may be an older one. Runs at a start, unless the server is paused.
 */
export async function removeLeftovers(deps: Parts): Promise<void> {
  const { db, log } = deps
  const leftovers = await findRecorded(deps)
  const most = Math.min(MAX_REMOVED, Math.floor((await db.media.count()) * MAX_SHARE))
  for (const id of leftovers.slice(0, most)) await moveToTrash(deps, id)
  const rest = leftovers.length - most
  if (rest > 0) {
    const advice = '`npm run admin -- media-clean` lists them, and with --yes moves them to the trash'
    log.warn({ files: rest }, `files of broken-off uploads and deletions are left: ${advice}`)
  }
  await emptyTrash(deps)
  log.debug('media were looked after')
}

/** Returns the ids of files without a row that the database has recorded for more than an hour. */
async function findRecorded({ db, storage, clock }: Parts): Promise<string[]> {
  const recorded = await db.mediaDraft.findMany({
    where: { createdAt: { lt: new Date(clock.now().getTime() - HOUR) } },
    orderBy: { createdAt: 'asc' },
    take: MAX_LOOKED_AT,
  })
  const ids = recorded.map(({ id }) => id)
  const known = await findKnown({ db }, ids)
  const found: string[] = []
  const settled: string[] = []
  for (const id of ids) {
    if (known.has(id) || !(await storage.has(id))) settled.push(id)
    else found.push(id)
  }
  if (settled.length) await db.mediaDraft.deleteMany({ where: { id: { in: settled } } })
  return found
}

async function findKnown({ db }: Pick<Parts, 'db'>, ids: string[]): Promise<Set<string>> {
  if (!ids.length) return new Set()
  const rows = await db.media.findMany({ where: { id: { in: ids } }, select: { id: true } })
  return new Set(rows.map(({ id }) => id))
}

async function moveToTrash({ db, storage, clock, log }: Parts, id: string): Promise<void> {
  await storage.trash(id, dayOf(clock.now()))
  await db.mediaDraft.deleteMany({ where: { id } })
  log.info({ mediaId: id, days: TRASH_DAYS }, 'a file without a row was moved to the trash')
}

/** Deletes for good what is too old in the trash. A file whose row is there, as after a restore, is put back instead. */
async function emptyTrash({ db, storage, clock, log }: Parts): Promise<void> {
  const oldest = dayOf(new Date(clock.now().getTime() - TRASH_DAYS * DAY))
  for await (const some of storage.listTrash()) {
    const old = some.filter(({ day }) => day < oldest)
    const known = await findKnown(
      { db },
      old.map(({ id }) => id),
    )
    for (const trashed of old) {
      if (known.has(trashed.id)) {
        await storage.restore(trashed.id)
        log.warn({ mediaId: trashed.id }, 'a file that the database knows was in the trash, and was put back')
        continue
      }
      await storage.purge(trashed)
      log.info({ mediaId: trashed.id, trashed: trashed.day }, 'a file in the trash was deleted for good')
    }
  }
}

/** Lists the installation's own files without a row: recorded ones, and any under its prefix that are an hour old. */
export async function findLeftovers(deps: Parts): Promise<string[]> {
  const found = new Set(await findRecorded(deps))
  for await (const ids of deps.storage.list()) {
    const known = await findKnown(deps, ids)
    for (const id of ids) if (!known.has(id)) found.add(id)
  }
  return [...found]
}

/** Moves the installation's own files without a row to the trash, however many there are; returns their ids. */
export async function cleanMedia(deps: Parts): Promise<string[]> {
  const ids = await findLeftovers(deps)
  for (const id of ids) await moveToTrash(deps, id)
  return ids
}

/** Puts files back from the trash: one, or all whose row is there. Returns their ids. */
export async function restoreMedia({ db, storage }: Parts, id: string | null): Promise<string[]> {
  if (id !== null) return (await storage.restore(id)) ? [id] : []
  const trashed: Trashed[] = []
  for await (const some of storage.listTrash()) trashed.push(...some)
  const known = await findKnown(
    { db },
    trashed.map((one) => one.id),
  )
  const restored: string[] = []
  for (const { id: each } of trashed) if (known.has(each) && (await storage.restore(each))) restored.push(each)
  return restored
}
