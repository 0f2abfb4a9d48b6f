import { databaseFile, Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'

/** Of what no more agents have, they are all looked at; what is more frequent is soon met among the newest. */
export const MAX_RARE = 500

/** By how many parts of a text, spread over it, agents are looked for: more take longer, and seldom leave fewer of them. */
const MAX_TRIGRAMS = 12

/** In lower case (the databases differ in what else they ignore case of), and without what LIKE takes for a pattern. */
export const searchable = (text: string): string =>
  text.toLowerCase().replace(/[%_\\]/g, (mark) => String.fromCharCode(0xe000 + mark.charCodeAt(0)))

/** Three letters each, which are code points in both databases. */
function trigramsOf(text: string): string[] {
  const letters = Array.from(text)
  const count = Math.max(letters.length - 2, 0)
  const wanted = Math.min(count, MAX_TRIGRAMS)
  const starts = Array.from({ length: wanted }, (_, index) => Math.floor((index * count) / wanted))
  return [...new Set(starts.map((start) => letters.slice(start, start + 3).join('')))]
}

/**
 * The ids of all agents that may have a text in what is searched of them, and of others: of an organization, or of those
 * that are public. Null where they are too many to be named, or the text too short for the index (the migration
 * `search_trigrams`).
 */
export async function findRare(
  { db, settings }: Pick<Deps, 'db' | 'settings'>,
  text: string,
  organizationId: string | undefined,
): Promise<string[] | null> {
  const trigrams = trigramsOf(searchable(text))
  if (!trigrams.length) return null
  const among = organizationId === undefined ? 'public' : `organization ${organizationId}`
  // On SQLite of all organizations, since their ids are in no trigrams: where others have many, none are named.
  const found = databaseFile(settings)
    ? Prisma.sql`SELECT k."agentId" AS "id" FROM (
        SELECT "rowid" AS "key" FROM "AgentText" WHERE "AgentText" MATCH ${trigrams.map(quoted).join(' AND ')}
        LIMIT ${MAX_RARE + 1}) t CROSS JOIN "AgentTextKey" k ON k."key" = t."key"`
    : Prisma.sql`SELECT "id" FROM "Agent"
        WHERE "searchKeys"("organizationId", "visibility", "searchText") @> ${[among, ...trigrams]} LIMIT ${MAX_RARE + 1}`
  const rows = await db.$queryRaw<{ id: string }[]>(found)
  return rows.length > MAX_RARE ? null : rows.map(({ id }) => id)
}

/** https://sqlite.org/fts5.html#fts5_strings */
const quoted = (trigram: string): string => `"${trigram.replaceAll('"', '""')}"`
