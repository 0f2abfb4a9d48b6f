import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Deps } from '../deps.ts'
import { badRequest, notFound } from '../errors.ts'
import { BAD_PATH_DETAIL, isNewPath, isPath } from '../files/schema.ts'
import * as files from '../files/service.ts'
import { checkOrganization } from './organization.ts'
import type { BrowseFiles, Entry, OneFile, WriteSpaceFile } from './schema.ts'

// Files of spaces under their names in the hosted original's client (contract-2.md section 1.15).

/**
 * Normalizes a path: `/docs/`, `./docs` and `docs` become `docs`; the root is empty. Throws 400 for an invalid path.
 */
export function toKey(path: string): string {
  const key = path
    .normalize('NFC')
    .replace(/^(\.?\/)+|^\.$/g, '')
    .replace(/\/+$/, '')
  if (key !== '' && !isPath(key)) throw badRequest('Invalid path', { detail: BAD_PATH_DETAIL })
  return key
}

const fileKey = (path: string): string => {
  const key = toKey(path)
  if (key === '') throw badRequest('Missing required field: path')
  return key
}

/** Returns the path of a file to write. Throws 400 for an invalid one. */
export function newKey(path: string): string {
  const key = fileKey(path)
  if (!isNewPath(key)) throw badRequest('Invalid path', { detail: BAD_PATH_DETAIL })
  return key
}

/**
 * GET /api/files/browse and /api/spaces/{spaceId}/files/browse: lists a folder of a space, folders first; with
 * `recursive` all levels. Leaves out names that begin with a dot unless `showHidden`. Throws 404 for a folder without
 * files.
 */
export async function browse(actor: Actor, deps: Deps, input: z.output<typeof BrowseFiles>) {
  checkOrganization(actor, input.organizationId)
  const key = toKey(input.path ?? '')
  const prefix = key === '' ? '' : `${key}/`
  const listed = await listAll(actor, deps, input.spaceId, prefix)
  if (key !== '' && !listed.length) throw notFound('File')
  const contents = entriesOf(listed, prefix, input).sort(
    (a, b) => Number(a.type === 'file') - Number(b.type === 'file') || (a.name < b.name ? -1 : 1),
  )
  return { spaceId: input.spaceId, path: `/${key}`, type: 'directory' as const, contents, files: contents }
}

type Listed = Awaited<ReturnType<typeof files.list>>['files']
type Listing = Pick<z.output<typeof BrowseFiles>, 'recursive' | 'showHidden'>

/** Returns the files below a prefix, and the folders in which they are. */
function entriesOf(listed: Listed, prefix: string, { recursive, showHidden }: Listing): z.input<typeof Entry>[] {
  const entries = new Map<string, z.input<typeof Entry>>()
  for (const { path, size, updatedAt } of listed) {
    const below = path.slice(prefix.length).split('/')
    if (!showHidden && below.some((part) => part.startsWith('.'))) continue
    for (const depth of recursive ? below.keys() : [0]) {
      const name = below.slice(0, depth + 1).join('/')
      const place = { name, path: prefix + name }
      if (depth === below.length - 1) entries.set(name, { ...place, type: 'file', size, modified: updatedAt })
      else if (!entries.has(name)) entries.set(name, { ...place, type: 'directory', size: 0, modified: null })
    }
  }
  return [...entries.values()]
}

/** Lists all files below a folder. A space has at most 2,000. */
async function listAll(actor: Actor, deps: Deps, id: string, path: string) {
  const found: Listed = []
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page = await files.list(actor, deps, { id, path, ...(cursor && { cursor }) })
    found.push(...page.files)
    cursor = page.nextCursor
  }
  return found
}

/** GET /api/files/read. */
export function read(actor: Actor, deps: Deps, { spaceId: id, path, organizationId }: z.output<typeof OneFile>) {
  checkOrganization(actor, organizationId)
  return files.get(actor, deps, { id, path: fileKey(path) })
}

/** POST /api/files/write: creates or replaces a file. */
export function write(actor: Actor, deps: Deps, input: z.output<typeof WriteSpaceFile>) {
  const { spaceId: id, path, content, encoding, organizationId } = input
  checkOrganization(actor, organizationId)
  return files.write(actor, deps, { id, path: newKey(path), content, encoding })
}

/** POST /api/files/delete. */
export function remove(actor: Actor, deps: Deps, { spaceId: id, path, organizationId }: z.output<typeof OneFile>) {
  checkOrganization(actor, organizationId)
  return files.remove(actor, deps, { id, path: fileKey(path) })
}
