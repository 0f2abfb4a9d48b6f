import { setTimeout as sleep } from 'node:timers/promises'
import { chunk } from '../lib/chunk.ts'
import { type DatabaseSettings, databaseFile, Prisma, type Tx } from './client.ts'

/** An event to announce. */
export type NewEvent = {
  organizationId: string
  type: string
  /** Id of the changed resource, the subject. */
  subjectId: string
  at: Date
  /** Data of the subject that may be different when the event is read. */
  data: object
}

/**
 * Writes an event for webhooks and the event feed in the transaction of its change. Most events need no call: triggers
 * of the tables write them (migration `webhooks`).
 */
export const announce = (tx: Tx, { organizationId, type, subjectId, at, data }: NewEvent) =>
  tx.$executeRaw(Prisma.sql`
    INSERT INTO "NewEvent" ("organizationId", "type", "subjectId", "data", "at")
    VALUES (${organizationId}, ${type}, ${subjectId}, ${JSON.stringify(data)}, ${at})`)

/** A position in the feed of an organization, behind an event. */
export type FeedPosition = { position: number; sequence: number }

/** Returns the position of an event in the feed. */
export const positionOf = (row: Record<keyof FeedPosition, number | bigint>): FeedPosition => ({
  position: Number(row.position),
  sequence: Number(row.sequence),
})

export type EventRow = FeedPosition & {
  type: string
  subjectId: string
  data: string | null
  at: Date
}

type RawRow = Record<keyof EventRow, unknown>

const BASE = Prisma.sql`coalesce((SELECT "eventBase" FROM "Installation" WHERE "id" = 1), 0)`

/**
 * The oldest open transaction of this database. PostgreSQL numbers those of all its databases together, and others may
 * be open for hours, such as a nightly import into another database, or are prepared and forgotten. A transaction that
 * is unknown, because it has just begun or ended, counts as one of this database.
 */
const OLDEST_OPEN = Prisma.sql`(
  SELECT coalesce(min("xid"::text::bigint), pg_snapshot_xmax(pg_current_snapshot())::text::bigint)
  FROM pg_snapshot_xip(pg_current_snapshot()) AS "open"("xid") WHERE "xid"::xid NOT IN (
    SELECT "transactionid" FROM pg_locks JOIN pg_stat_activity USING ("pid")
    WHERE "locktype" = 'transactionid' AND "granted" AND "datname" <> current_database()
    UNION ALL SELECT "transaction" FROM pg_prepared_xacts WHERE "database" <> current_database()))`

/**
 * Returns the condition that keeps readers below every open transaction: its events are not visible yet and will stand
 * before later ones. SQLite has one writer, whose events are in the order of their commits.
 */
const settledEvents = (settings: DatabaseSettings, table = 'OrganizationEvent'): Prisma.Sql =>
  databaseFile(settings) === null
    ? Prisma.sql`${Prisma.raw(`"${table}"`)}."position" < ${BASE} + ${OLDEST_OPEN}`
    : Prisma.sql`true`

/** Events up to a position that match a pattern (`task.completed`, `task.*` or `*`), or have one of some subjects. */
type Selection = { upTo: FeedPosition; patterns: readonly string[]; subjectIds: readonly string[] }

function toCondition({ upTo, patterns, subjectIds }: Selection): Prisma.Sql {
  const alternatives = patterns.map((pattern) =>
    pattern === '*'
      ? Prisma.sql`true`
      : pattern.endsWith('.*')
        ? Prisma.sql`"type" LIKE ${`${pattern.slice(0, -1)}%`}`
        : Prisma.sql`"type" = ${pattern}`,
  )
  if (subjectIds.length) alternatives.push(Prisma.sql`"subjectId" IN (${Prisma.join([...subjectIds])})`)
  return Prisma.sql`AND ("position", "sequence") <= (${upTo.position}, ${upTo.sequence})
    AND (${Prisma.join(alternatives, ' OR ')})`
}

/** Reads the events of an organization behind a position, oldest first: all, or a selection. */
export async function readEvents(
  db: Tx,
  settings: DatabaseSettings,
  organizationId: string,
  { position, sequence }: FeedPosition,
  limit: number,
  selection?: Selection,
): Promise<EventRow[]> {
  const rows = await db.$queryRaw<RawRow[]>(Prisma.sql`
    SELECT "position", "sequence", "type", "subjectId", "data", "at" FROM "OrganizationEvent"
    WHERE "organizationId" = ${organizationId} AND ("position", "sequence") > (${position}, ${sequence})
      AND ${settledEvents(settings)} ${selection ? toCondition(selection) : Prisma.empty}
    ORDER BY "position", "sequence" LIMIT ${limit}`)
  return rows.map(toEvent)
}

/** Finds the events at some positions. Removed ones are missing in the result. */
export async function findEvents(
  db: Tx,
  organizationId: string,
  positions: readonly FeedPosition[],
): Promise<EventRow[]> {
  if (!positions.length) return []
  const keys = positions.map(
    ({ position, sequence }) => Prisma.sql`("position" = ${position} AND "sequence" = ${sequence})`,
  )
  const rows = await db.$queryRaw<RawRow[]>(Prisma.sql`
    SELECT "position", "sequence", "type", "subjectId", "data", "at" FROM "OrganizationEvent"
    WHERE "organizationId" = ${organizationId} AND (${Prisma.join(keys, ' OR ')})`)
  return rows.map(toEvent)
}

/** Returns the position after all current events of an organization. Later events come after it. */
export async function endOfEvents(db: Tx, settings: DatabaseSettings, organizationId: string): Promise<FeedPosition> {
  const ends = await endsOfEvents(db, settings, [organizationId])
  return ends.get(organizationId) ?? { position: 0, sequence: 0 }
}

/** Maximum wait for older transactions, and the interval of looks at them (ms). */
const SETTLING = 2_000
const INTERVAL = 20

/**
 * Waits until {@link endOfEvents} stands behind all events that are committed now: on PostgreSQL, until transactions
 * that are older than them have ended. Returns after two seconds in any case; some of these events then stand behind
 * the end.
 */
export async function settlePresentEvents(db: Tx, settings: DatabaseSettings, organizationId: string): Promise<void> {
  if (databaseFile(settings) !== null) return
  let last: bigint | undefined
  for (const deadline = performance.now() + SETTLING; performance.now() < deadline; await sleep(INTERVAL)) {
    const [row] = await db.$queryRaw<{ position: bigint; isSettled: boolean }[]>(Prisma.sql`
      SELECT "position", coalesce(${last ?? null}::bigint, "position") <
        ${BASE} + ${OLDEST_OPEN} AS "isSettled"
      FROM "OrganizationEvent" WHERE "organizationId" = ${organizationId}
      ORDER BY "position" DESC, "sequence" DESC LIMIT 1`)
    if (!row || row.isSettled) return
    last ??= row.position
  }
}

/** Returns the positions behind all present events of organizations. One without events is missing in the result. */
export async function endsOfEvents(
  db: Tx,
  settings: DatabaseSettings,
  organizationIds: readonly string[],
): Promise<Map<string, FeedPosition>> {
  const ends = new Map<string, FeedPosition>()
  for (const ids of chunk(organizationIds, IDS)) {
    const rows = await db.$queryRaw<{ id: string; end: string | null }[]>(Prisma.sql`
      SELECT o."id", (
        SELECT e."position" || '.' || e."sequence" FROM "OrganizationEvent" e
        WHERE e."organizationId" = o."id" AND ${settledEvents(settings, 'e')}
        ORDER BY e."position" DESC, e."sequence" DESC LIMIT 1) AS "end"
      FROM "Organization" o WHERE o."id" IN (${Prisma.join(ids)})`)
    for (const { id, end } of rows) {
      const [position, sequence] = end?.split('.') ?? []
      if (end !== null) ends.set(id, { position: Number(position), sequence: Number(sequence) })
    }
  }
  return ends
}

/** Maximum number of organizations in one statement. */
const IDS = 1_000

/** Returns whether a position is behind another one. */
export const isBehind = (a: FeedPosition, b: FeedPosition): boolean =>
  a.position > b.position || (a.position === b.position && a.sequence > b.sequence)

const toEvent = (row: RawRow): EventRow => ({
  position: Number(row.position),
  sequence: Number(row.sequence),
  type: row.type as string,
  subjectId: row.subjectId as string,
  data: row.data as string | null,
  at: new Date(row.at as string | number | Date),
})

/** Number of an organization's last events that may have another order than their numbers. */
const LAST = 1_000

/** The organizations that have events: one step in the index for each, whatever the number of events. */
const ORGANIZATIONS = Prisma.sql`
  WITH RECURSIVE "found" AS (
    SELECT min("organizationId") AS "id" FROM "OrganizationEvent"
    UNION ALL
    SELECT (SELECT min(e."organizationId") FROM "OrganizationEvent" e WHERE e."organizationId" > "found"."id")
    FROM "found" WHERE "found"."id" IS NOT NULL)`

/** Returns the organizations whose oldest event happened before a moment. */
export async function organizationsWithEventsBefore(db: Tx, moment: Date): Promise<string[]> {
  const rows = await db.$queryRaw<{ id: string }[]>(Prisma.sql`
    ${ORGANIZATIONS} SELECT "id" FROM "found" WHERE "id" IS NOT NULL AND (
      SELECT e."at" FROM "OrganizationEvent" e WHERE e."organizationId" = "id"
      ORDER BY e."position", e."sequence" LIMIT 1) < ${moment}`)
  return rows.map(({ id }) => id)
}

/**
 * Removes up to `limit` of the oldest events of an organization that happened before a moment, never the newest one.
 * Returns their number.
 */
export const removeEventsBefore = (db: Tx, organizationId: string, moment: Date, limit: number): Promise<number> =>
  db.$executeRaw(Prisma.sql`
    DELETE FROM "OrganizationEvent" WHERE ("organizationId", "position", "sequence") IN (
      SELECT "organizationId", "position", "sequence" FROM (
        SELECT * FROM "OrganizationEvent" WHERE "organizationId" = ${organizationId}
        ORDER BY "position", "sequence" LIMIT ${limit}) AS "oldest"
      WHERE "at" < ${moment} AND EXISTS (
        SELECT 1 FROM "OrganizationEvent" n WHERE n."organizationId" = ${organizationId}
          AND (n."position", n."sequence") > ("oldest"."position", "oldest"."sequence")))`)

/**
 * Lets the positions and numbers of new events continue after the stored ones. The database may have been copied into
 * another PostgreSQL cluster, whose transaction ids are lower.
 */
export async function continueEvents(db: Tx, settings: DatabaseSettings): Promise<void> {
  if (databaseFile(settings) !== null) return
  const last = (column: 'position' | 'sequence') => Prisma.sql`
    ${ORGANIZATIONS} SELECT max("last"."number") AS "newest" FROM "found" CROSS JOIN LATERAL (
      SELECT e.${Prisma.raw(`"${column}"`)} AS "number" FROM "OrganizationEvent" e WHERE e."organizationId" = "id"
      ORDER BY e."position" DESC, e."sequence" DESC LIMIT ${LAST}) AS "last"`
  await db.$executeRaw(Prisma.sql`
    UPDATE "Installation" SET "eventBase" = "newest" FROM (${last('position')}) AS "all"
    WHERE "id" = 1 AND "newest" > "eventBase" + pg_current_xact_id()::text::bigint`)
  await db.$queryRaw(Prisma.sql`
    SELECT setval('"OrganizationEvent_sequence_seq"', "newest") FROM (${last('sequence')}) AS "all"
    WHERE "newest" > (SELECT "last_value" FROM "OrganizationEvent_sequence_seq")`)
}
