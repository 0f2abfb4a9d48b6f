import { databaseFile, Prisma, type Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { newId } from '../lib/id.ts'

/** Maximum length of a slug (characters). */
const MAX_SLUG = 64
/** Number of agents with the same name after which slugs get a random suffix instead of a number. */
const NUMBERED = 9

const trimmed = (text: string) => text.replace(/^-+|-+$/g, '')

const plain = (name: string) =>
  name
    .normalize('NFKD')
    .replace(/\p{M}+/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')

/** Makes a slug from a name: its letters without accents, and digits; `agent` if it has neither. */
export const slugOf = (name: string): string => trimmed(trimmed(plain(name)).slice(0, MAX_SLUG)) || 'agent'

/**
 * Returns a free slug for an agent of this name in the organization: that of the name, with a number if it is taken.
 * Concurrent creations with the same name wait for each other.
 */
export async function freeSlug(
  tx: Tx,
  { settings }: Pick<Deps, 'settings'>,
  { id, organizationId, name }: { id: string; organizationId: string; name: string },
): Promise<string> {
  const base = slugOf(name)
  if (databaseFile(settings) === null) {
    await tx.$queryRaw(
      Prisma.sql`SELECT pg_advisory_xact_lock(hashtextextended(${`${organizationId} ${base}`}, 0))::text`,
    )
  }
  const ending = (end: string | number) => `${trimmed(base.slice(0, MAX_SLUG - `-${end}`.length))}-${end}`
  const wanted = [base, ...Array.from({ length: NUMBERED - 1 }, (_, index) => ending(index + 2))]
  const found = await tx.agent.findMany({
    where: { organizationId, archivedAt: null, slug: { in: wanted } },
    select: { id: true, slug: true },
  })
  const taken = new Set(found.flatMap((agent) => (agent.id === id ? [] : agent.slug)))
  return wanted.find((slug) => !taken.has(slug)) ?? ending(newId().toLowerCase().slice(0, 8))
}
