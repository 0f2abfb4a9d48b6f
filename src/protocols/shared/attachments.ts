import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { type Actor, requireScope } from '../../auth/actor.ts'
import { covers } from '../../auth/scopes.ts'
import type { Deps } from '../../deps.ts'
import { AppError, badRequest } from '../../errors.ts'
import { create, receive } from '../../media/service.ts'

/**
 * A file in a message of a client, as a `data:` URL. `isUnreadable`: a part of a kind that agents cannot read, whose
 * type is the name.
 */
export type GivenFile = { url: string; name?: string | undefined; isUnreadable?: boolean }

/** Stands for the text of a message that has files alone. */
export const NO_TEXT = '[attachment]'

/** Maximum number of files in a message. */
export const MAX_FILES = 20

const DATA_URL = /^data:([\w.+-]+\/[\w.+-]+)?(?:;[\w=.-]+)*;base64,([A-Za-z0-9+/=\s]*)$/

/**
 * Returns the text of a message that can have no files, such as the result of a tool, with a note for each. To refuse
 * them would end the conversation, because they stay in all of its later requests.
 */
export const withNotes = ({ text, files }: { text: string; files: readonly GivenFile[] }): string =>
  [text, ...files.map(noteOf)].filter(Boolean).join('\n')

function noteOf({ url, name = 'file' }: GivenFile): string {
  const [, type, base64] = DATA_URL.exec(url) ?? []
  if (base64 === undefined) return `[${name}${/^https?:/.test(url) ? ` ${url.slice(0, 500)}` : ''}: not shown]`
  return `[${name}, ${type ?? 'without a type'}, ${Buffer.byteLength(base64, 'base64')} bytes: not shown]`
}

/**
 * Stores the files of a message as media, and returns their ids. A file that the user has sent before is not stored
 * again. Throws 400 for addresses, which the service does not fetch, and for parts of other kinds, and 403 without the
 * scope `media:write`.
 */
export async function storeFiles(actor: Actor, deps: Deps, files: readonly GivenFile[]): Promise<string[]> {
  if (!files.length) return []
  const other = files.find(({ isUnreadable }) => isUnreadable)
  if (other) {
    const detail = `Leave the part out (${other.name?.slice(0, 100)}), or send its content as text or as a file.`
    throw badRequest('Invalid part of a message. Expected text, images or files', { detail })
  }
  requireScope(actor, 'media:write')
  if (files.length > MAX_FILES) {
    throw badRequest(`A message has at most ${MAX_FILES} files`, { detail: 'Send the others with a later message.' })
  }
  const ids: string[] = []
  for (const file of files) ids.push(await storeFile(actor, deps, file))
  return ids
}

/**
 * Stores the latest files of earlier messages, at most `max`, and returns their ids. Those that cannot be stored are
 * left out: a refusal would end the conversation, because they stay in all of its later requests.
 */
export async function storeReadable(
  actor: Actor,
  deps: Deps,
  files: readonly GivenFile[],
  max: number,
): Promise<string[]> {
  const isAllowed = covers(actor.scopes, 'media:write') && covers(actor.scopes, 'media:read')
  const ids: string[] = []
  for (const file of isAllowed && max > 0 ? files.filter(({ url }) => DATA_URL.test(url)).slice(-max) : []) {
    try {
      ids.push(await storeFile(actor, deps, file))
    } catch (error) {
      if (!(error instanceof AppError && error.status < 500)) throw error
    }
  }
  return ids
}

async function storeFile(actor: Actor, deps: Deps, { url, name }: GivenFile): Promise<string> {
  const [, type = 'application/octet-stream', base64] = DATA_URL.exec(url) ?? []
  if (base64 === undefined) {
    const detail = 'Send the content as data:<type>;base64, in the message: the service fetches no addresses.'
    throw badRequest('Invalid file in a message. Expected a data URL', { detail })
  }
  const bytes = Buffer.from(base64, 'base64')
  const digest = createHash('sha256').update(bytes).digest('hex').slice(0, 16)
  const stored = `${digest}-${name ?? `file.${type.split('/')[1]?.replace(/[^\w]/g, '')}`}`.slice(0, 200)
  const { organizationId, userId } = actor
  const found = await deps.db.media.findFirst({
    where: { organizationId, userId, name: stored, size: bytes.length },
    select: { id: true },
  })
  if (found) return found.id
  const upload = await receive(actor, deps, Readable.from([bytes]), stored)
  try {
    return (await create(actor, deps, upload, async (_, answer) => answer)).id
  } finally {
    await upload.draft.discard()
  }
}
