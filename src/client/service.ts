import type { z } from 'zod'
import { type Actor, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Deps } from '../deps.ts'
import { badRequest, conflict, paused } from '../errors.ts'
import { isNewPath, MAX_FILE_BYTES, MAX_FILES, MAX_SPACE_BYTES } from '../files/schema.ts'
import { add, spaceFull, tooManyFiles } from '../files/service.ts'
import type { Keep } from '../idempotency.ts'
import { createProxyFor } from '../lib/net/proxies.ts'
import { find, get, keepText } from '../spaces/service.ts'
import { mayChange } from '../spaces/visibility.ts'
import { type Entry, type NetworkOptions, type Repository, readRepository } from './git.ts'
import type { InitSpace } from './schema.ts'
import { readme, starterKit } from './starter.ts'

type Contents = { files: { path: string; content: Buffer<ArrayBuffer> }[]; skipped: number }

/** Finds a space that the caller may initialize: its owner and admins may. */
export async function findInitializable(actor: Actor, deps: Deps, id: string) {
  const space = await find(actor, deps, id)
  return permit(space, mayChange(actor, space))
}

/**
 * POST /spaces/{spaceId}/init: creates the first files of a space, once (contract.md section 6). Throws 404 for an
 * unknown space, 409 if it was already done, and 400 for a repository that cannot be read or does not fit.
 */
export async function init(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof InitSpace>,
  signal: AbortSignal,
  keep: Keep,
) {
  const space = await findInitializable(actor, deps, input.spaceId)
  if (space.initializedAs !== null) throw alreadyInitialized()
  const name = input.spaceName ?? space.name
  const { files, skipped } = await contentsOf(deps, input, { ...space, name }, signal)
  const now = deps.clock.now()
  return deps.db.$transaction(async (tx) => {
    const [row] = await tx.space.updateManyAndReturn({
      where: { id: space.id, archivedAt: null, initializedAs: null },
      data: { initializedAs: input.type, name, updatedAt: now },
    })
    if (!row) throw alreadyInitialized()
    await keepText(tx, row)
    await audit(tx, actor, 'space.init', space.id, now)
    const paths = await add(tx, actor, space.id, files, now)
    return keep(tx, { ...(await get(actor, { db: tx }, space.id)), files: paths, skipped })
  })
}

const alreadyInitialized = () =>
  conflict('Space is already initialized', { detail: 'Create another space, or write its files one by one.' })

async function contentsOf(
  { settings, pause }: Deps,
  { type, url, branch }: z.output<typeof InitSpace>,
  space: { name: string; description: string | null; organizationId: string },
  signal: AbortSignal,
): Promise<Contents> {
  switch (type) {
    case 'empty':
      return { files: [], skipped: 0 }
    case 'readme':
      return { files: readme(space), skipped: 0 }
    case 'starterKit':
      return { files: starterKit(space), skipped: 0 }
    case 'git': {
      if (!url?.trim()) throw badRequest('Missing required field: url')
      if (pause.isPaused()) throw paused()
      const repository = { url, branch: branch || null, organizationId: space.organizationId }
      return importRepository(
        repository,
        { allowPrivate: settings.ALLOW_PRIVATE_NETWORK, proxyFor: createProxyFor(settings) },
        signal,
      )
    }
  }
}

/** Reads a repository as files of a space. Leaves out invalid paths. Throws 400 as soon as the limits are exceeded. */
async function importRepository(
  repository: Repository,
  network: NetworkOptions,
  signal: AbortSignal,
): Promise<Contents> {
  const paths = new Map<string, Entry>()
  let bytes = 0
  const { contents, total } = await readRepository(repository, network, signal, {
    offer(entry) {
      const path = entry.path.normalize('NFC')
      if (entry.size > MAX_FILE_BYTES || !isNewPath(path) || paths.has(path)) return
      paths.set(path, entry)
      bytes += entry.size
      if (paths.size > MAX_FILES) throw tooManyFiles()
      if (bytes > MAX_SPACE_BYTES) throw spaceFull()
    },
    choose: () => [...paths.values()],
  })
  const files = [...paths.keys()].map((path, index) => ({ path, content: contents[index] ?? Buffer.alloc(0) }))
  return { files, skipped: total - files.length }
}
