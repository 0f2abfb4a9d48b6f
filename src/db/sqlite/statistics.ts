import type { Database } from 'better-sqlite3'

/** Assumed number of rows of a grown table. */
const ROWS = 10_000_000

/**
 * Assumed number of rows with the same value in a column, wherever it stands in an index; 1 for any other column.
 * Models an installation with an organization that has a tenth of everything. A table's own column is prefixed with the
 * table's name.
 */
const SAME: Readonly<Record<string, number>> = {
  ...of(ROWS, 'archivedAt', 'revokedAt', 'issuer', 'list'),
  ...of(1_000_000, 'organizationId', 'agentOrganizationId'),
  ...of(300_000, 'visibility', 'status', 'priority', 'role'),
  ...of(10_000, 'userId', 'ownerId', 'assignedTo', 'agentId', 'spaceId', 'tag'),
  ...of(1_000, 'missionId'),
  ...of(100, 'executionId', 'skillId', 'mcpId', 'AgentVersion.agentId'),
  ...of(10, 'SpaceAgent.spaceId', 'SpaceSkill.spaceId', 'SpaceMcp.spaceId', 'AgentTag.agentId'),
  ...of(10, 'chatId', 'sessionId', 'taskId', 'parentExecutionId', 'rootExecutionId', 'scope'),
}

/** Partial indexes with few rows: active runs. */
const SMALL: Readonly<Record<string, number>> = { Execution_status_leaseUntil_idx: 100 }

function of(rows: number, ...columns: string[]): Record<string, number> {
  return Object.fromEntries(columns.map((column) => [column, rows]))
}

type Part = { table: string; index: string; isUnique: 0 | 1; column: string }
type StatRow = { tbl: string; idx: string; stat: string }

const PARTS = `SELECT t."name" AS "table", l."name" AS "index", l."unique" AS "isUnique", i."name" AS "column"
  FROM pragma_table_list t JOIN pragma_index_list(t."name") l JOIN pragma_index_info(l."name") i
  WHERE t."schema" = 'main' AND t."type" = 'table' ORDER BY 1, 2, i."seqno"`

const STAT_TABLE = 'sqlite_stat1'

/** Tables that hold statistics, and the row samples that ANALYZE takes. */
const STAT_TABLES = `SELECT "name" FROM "sqlite_schema" WHERE "type" = 'table' AND "name" GLOB 'sqlite_stat?' ORDER BY 1`

/**
 * Gives SQLite fixed statistics of a grown database instead of running ANALYZE. Without statistics it assumes that a
 * value of an index's first column, mostly the organization, matches ten rows, and scans all chats of an organization
 * for twenty named by id. The statistics do not depend on the data, so each statement has one plan that tests can
 * check. Open connections do not see the change.
 */
export function writeStatistics(connection: Database): void {
  const parts = connection.prepare<[], Part>(PARTS).all()
  const wanted = [...Map.groupBy(parts, ({ index }) => index).values()].map(statisticsOf)
  const tables = connection.prepare<[], string>(STAT_TABLES).pluck().all()
  const rowsOf = (table: string) => connection.prepare(`SELECT * FROM "${table}" ORDER BY 1, 2`).all()
  const isCurrent = tables.includes(STAT_TABLE) && JSON.stringify(tables.flatMap(rowsOf)) === JSON.stringify(wanted)
  if (isCurrent) return
  connection.transaction(() => {
    // ANALYZE is the only way to create the table.
    if (!tables.includes(STAT_TABLE)) connection.exec('ANALYZE "_prisma_migrations"')
    for (const table of connection.prepare<[], string>(STAT_TABLES).pluck().all())
      connection.exec(`DELETE FROM "${table}"`)
    const insert = connection.prepare<StatRow>(
      `INSERT INTO "${STAT_TABLE}" ("tbl", "idx", "stat") VALUES (@tbl, @idx, @stat)`,
    )
    for (const each of wanted) insert.run(each)
  })()
}

/**
 * Returns the statistics of an index (https://sqlite.org/fileformat2.html#stat1tab): its rows, and the rows per value
 * of its first columns.
 */
function statisticsOf(parts: readonly Part[]): StatRow {
  const [{ table: tbl, index: idx, isUnique } = { table: '', index: '', isUnique: 0 }] = parts
  const all = SMALL[idx] ?? ROWS
  const found: number[] = []
  for (const { column } of parts) {
    const isKey = isUnique && found.length === parts.length - 1
    const same = SAME[`${tbl}.${column}`] ?? SAME[column] ?? 1
    found.push(isKey ? 1 : Math.min(found.at(-1) ?? all, same))
  }
  // Prevents skip scans past other organizations' rows, of which there may be many.
  return { tbl, idx, stat: [all, ...found, 'noskipscan'].join(' ') }
}
