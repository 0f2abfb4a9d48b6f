import { openMasterKey } from '../crypto/secrets.ts'
import { databaseFile } from '../db/client.ts'
import { createLog } from '../lib/log.ts'
import { installationId } from '../media/installation.ts'
import { cleanMedia, findLeftovers, restoreMedia, TRASH_DAYS } from '../media/leftovers.ts'
import { openStorage } from '../media/storage.ts'
import type { Admin, Answer, Options } from './command.ts'
import { AdminError } from './option-values.ts'

async function open({ database, settings, now }: Admin) {
  const id = installationId(await openMasterKey(database, settings, now))
  const storage = await openStorage(settings, id, databaseFile(settings) !== null)
  if (!storage)
    throw new AdminError('Media storage is not configured. Set S3_BUCKET or MEDIA_DIR as the servers have it.')
  return { db: database.client, storage, clock: { now: () => now }, log: createLog('silent') }
}

/**
 * Lists the installation's files without a row, or moves them to the trash. A paused copy does not know the files of
 * its original, so it moves none.
 */
export async function clean(admin: Admin, _: string[], { yes = false }: Options): Promise<Answer> {
  const parts = await open(admin)
  const installation = await parts.db.installation.findUnique({ where: { id: 1 }, select: { pausedBy: true } })
  if (yes && installation?.pausedBy)
    throw new AdminError('The database is a copy, which may miss newer files. Run `npm run admin -- resume` first.')
  const ids = yes ? await cleanMedia(parts) : await findLeftovers(parts)
  const list = ids.map((id) => `  ${id}\n`).join('')
  const outcome = yes
    ? `Moved ${ids.length} files to the trash, for ${TRASH_DAYS} days. media-restore puts one back.`
    : `${ids.length} files have no row. Run it with --yes to move them to the trash, for ${TRASH_DAYS} days.`
  return { json: { files: ids, moved: yes }, text: ids.length ? list + outcome : 'Every file has a row.' }
}

/** Restores a file from the trash, or all files whose rows exist. */
export async function restore(admin: Admin, [given = '']: string[]): Promise<Answer> {
  const ids = await restoreMedia(await open(admin), given === 'all' ? null : given)
  if (!ids.length && given !== 'all')
    throw new AdminError(`The trash has no file ${given}. It keeps files for ${TRASH_DAYS} days.`)
  return { json: { files: ids }, text: `Put back ${ids.length} files.\n${ids.join('\n')}`.trim() }
}
