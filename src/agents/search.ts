import { type Db, databaseFile, Prisma } from '../db/client.ts'
import { padded } from '../db/fast-path/index.ts'
import type { Deps } from '../deps.ts'

/** Of what no more agents have, they are all looked at; what is more frequent is soon met among the newest. */
export const MAX_RARE = 500

/** By how many parts of a text, spread over it, agents are looked for: more take longer, and seldom leave fewer of them. */
const MAX_TRIGRAMS = 12

/**
 * Returns a text as it is searched: composed (NFC), in lower case (the databases differ in what else they ignore case of)
 * with one form of sigma and without the second dot of a lowered İ, and without what LIKE takes for a pattern.
 */
export const searchable = (text: string): string =>
  text
    .normalize('NFC')
    .toLowerCase()
    .replaceAll('\u03c2', '\u03c3')
    .replaceAll('i\u0307', 'i')
    .replace(/[%_\\]/g, (mark) => String.fromCharCode(0xe000 + mark.charCodeAt(0)))

/** Three letters each, which are code points in both databases. */
function trigramsOf(text: string): string[] {
  const letters = Array.from(text)
  const count = Math.max(letters.length - 2, 0)
  const wanted = Math.min(count, MAX_TRIGRAMS)
  const starts = Array.from({ length: wanted }, (_, index) => Math.floor((index * count) / wanted))
  return [...new Set(starts.map((start) => letters.slice(start, start + 3).join('')))]
}

/** The filter of a list of agents, by columns: one value, or one of several. */
export type Listed = {
  archivedAt: null
  organizationId?: string
  userId?: string
  visibility?: string | { in: string[] }
}

type SearchDeps = Pick<Deps, 'db' | 'settings'>

/**
 * The ids of the agents of a list that may have a text in what is searched of them. Null where they are too many to be
 * named, or the text too short for the index (the migration `search_trigrams`).
 */
export async function findRare({ db, settings }: SearchDeps, text: string, listed: Listed): Promise<string[] | null> {
  const trigrams = trigramsOf(searchable(text))
  if (!trigrams.length) return null
  const among = listed.organizationId === undefined ? 'public' : `organization ${listed.organizationId}`
  // On SQLite of all organizations, since their ids are in no trigrams: where others have many, none are named.
  const found = databaseFile(settings)
    ? Prisma.sql`SELECT k."agentId" FROM (
        SELECT "rowid" AS "key" FROM "AgentText" WHERE "AgentText" MATCH ${trigrams.map(quoted).join(' AND ')}
        LIMIT ${MAX_RARE + 1}) t CROSS JOIN "AgentTextKey" k ON k."key" = t."key"`
    : Prisma.sql`SELECT "id" AS "agentId" FROM "Agent"
        WHERE "searchKeys"("organizationId", "visibility", "searchText") @> ${[among, ...trigrams]} LIMIT ${MAX_RARE + 1}`
  return nameSeen(db, found, listed)
}

/** The ids of the agents of a list that have a tag, by the same rule. */
export function findTagged({ db }: SearchDeps, tag: string, listed: Listed): Promise<string[] | null> {
  const { organizationId } = listed
  const within = organizationId === undefined ? Prisma.empty : Prisma.sql`AND "organizationId" = ${organizationId}`
  const found = Prisma.sql`SELECT "agentId" FROM "AgentTag" WHERE "tag" = ${tag} ${within} LIMIT ${MAX_RARE + 1}`
  return nameSeen(db, found, listed)
}

/**
 * Names those of the agents found that the list shows; null where more than {@link MAX_RARE} were found. One statement
 * does both: to look again for an agent that the caller may not see would take time, and tell of it.
 */
async function nameSeen(db: Db, found: Prisma.Sql, listed: Listed): Promise<string[] | null> {
  const isMany = Prisma.sql`(SELECT count(*) FROM "found") > ${Prisma.raw(`${MAX_RARE}`)}`
  // Agents are found by their ids: for what is written so SQLite uses no index.
  const isListed = Prisma.sql`NOT (NOT (${Prisma.join(Object.entries(listed).flatMap(toCondition), ' AND ')}))`
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
  return value.in.length ? Prisma.sql`${name} IN (${Prisma.join(padded(value.in))})` : Prisma.sql`1 = 0`
}

/** https://sqlite.org/fts5.html#fts5_strings */
const quoted = (trigram: string): string => `"${trigram.replaceAll('"', '""')}"`
