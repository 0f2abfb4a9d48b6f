import { type Db, databaseFile, Prisma } from '../db/client.ts'
import { padToPowerOfTwo } from '../db/fast-path/index.ts'
import { withoutIndex } from '../db/without-index.ts'
import type { Deps } from '../deps.ts'
import { searchable } from '../lib/search.ts'

/**
 * Maximum number of agents that match rarely enough to be listed by id. More frequent matches are soon found among the
 * newest agents.
 */
export const MAX_RARE = 500

/**
 * Maximum number of trigrams that are searched, spread over the text. More take longer and seldom exclude further
 * agents.
 */
const MAX_TRIGRAMS = 12

/** Returns the trigrams of a text, in code points as in both databases. */
function trigramsOf(text: string): string[] {
  const letters = Array.from(text)
  const count = Math.max(letters.length - 2, 0)
  const wanted = Math.min(count, MAX_TRIGRAMS)
  const starts = Array.from({ length: wanted }, (_, index) => Math.floor((index * count) / wanted))
  return [...new Set(starts.map((start) => letters.slice(start, start + 3).join('')))]
}

/** Filter of a list of agents by column: one value, or one of several. */
export type Listed = {
  archivedAt: null
  organizationId?: string
  userId?: string
  visibility?: string | { in: string[] }
}

type SearchDeps = Pick<Deps, 'db' | 'settings'>

/**
 * Returns the ids of listed agents that may contain a text. Returns null if there are too many, or if the text is too
 * short for the index (the migration `search_trigrams`).
 */
export async function findRare({ db, settings }: SearchDeps, text: string, listed: Listed): Promise<string[] | null> {
  const trigrams = trigramsOf(searchable(text))
  if (!trigrams.length) return null
  const among = listed.organizationId === undefined ? 'public' : `organization ${listed.organizationId}`
  // On SQLite the index covers all organizations, because trigrams do not contain ids. If others have many matches,
  // null is returned.
  const found = databaseFile(settings)
    ? Prisma.sql`SELECT k."agentId" FROM (
        SELECT "rowid" AS "key" FROM "AgentText" WHERE "AgentText" MATCH ${trigrams.map(quoted).join(' AND ')}
        LIMIT ${MAX_RARE + 1}) t CROSS JOIN "AgentTextKey" k ON k."key" = t."key"`
    : Prisma.sql`SELECT "id" AS "agentId" FROM "Agent"
        WHERE "searchKeys"("organizationId", "visibility", "searchText") @> ${[among, ...trigrams]} LIMIT ${MAX_RARE + 1}`
  return nameSeen(db, found, listed)
}

/** Returns the ids of listed agents with a tag, by the same rule. */
export function findTagged({ db }: SearchDeps, tag: string, listed: Listed): Promise<string[] | null> {
  const { organizationId } = listed
  const within = organizationId === undefined ? Prisma.empty : Prisma.sql`AND "organizationId" = ${organizationId}`
  const found = Prisma.sql`SELECT "agentId" FROM "AgentTag" WHERE "tag" = ${tag} ${within} LIMIT ${MAX_RARE + 1}`
  return nameSeen(db, found, listed)
}

/**
 * Returns the ids of the found agents that the list contains, or null if more than {@link MAX_RARE} were found. One
 * statement does both, because a second look at hidden agents would take time and reveal their existence.
 */
async function nameSeen(db: Db, found: Prisma.Sql, listed: Listed): Promise<string[] | null> {
  const isMany = Prisma.sql`(SELECT count(*) FROM "found") > ${Prisma.raw(`${MAX_RARE}`)}`
  // Agents are found by id.
  const isListed = withoutIndex(Prisma.join(Object.entries(listed).flatMap(toCondition), ' AND '))
  const rows = await db.$queryRaw<{ id: string | null }[]>(Prisma.sql`
    WITH "found" AS MATERIALIZED (${found})
    SELECT a."id" FROM "found" f CROSS JOIN "Agent" a
      WHERE a."id" = f."agentId" AND NOT (${isMany}) AND ${isListed}
    UNION ALL SELECT NULL WHERE ${isMany}`)
  const ids = rows.flatMap(({ id }) => id ?? [])
  return ids.length < rows.length ? null : ids
}

function toCondition([column, value]: [string, Listed[keyof Listed]]): Prisma.Sql | [] {
  const name = Prisma.raw(`a."${column}"`)
  if (value === undefined) return []
  if (value === null) return Prisma.sql`${name} IS NULL`
  if (typeof value === 'string') return Prisma.sql`${name} = ${value}`
  return value.in.length ? Prisma.sql`${name} IN (${Prisma.join(padToPowerOfTwo(value.in))})` : Prisma.sql`1 = 0`
}

/** Quotes a trigram for FTS5 (https://sqlite.org/fts5.html#fts5_strings). */
const quoted = (trigram: string): string => `"${trigram.replaceAll('"', '""')}"`
