import type { Database } from 'better-sqlite3'

/** Rows of a table that has grown. */
const ROWS = 10_000_000

/**
 * How many of them have the same value in a column, whatever stands before it in an index; of any other column one. As in
 * an installation with an organization that has a tenth of everything. A table's own column stands with its name.
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

/** Indexes that few of the rows are in: what is under way. */
const SMALL: Readonly<Record<string, number>> = { Execution_status_leaseUntil_idx: 100 }

function of(rows: number, ...columns: string[]): Record<string, number> {
  return Object.fromEntries(columns.map((column) => [column, rows]))
}

type Part = { table: string; index: string; isUnique: 0 | 1; column: string }
type Told = { tbl: string; idx: string; stat: string }

const PARTS = `SELECT t."name" AS "table", l."name" AS "index", l."unique" AS "isUnique", i."name" AS "column"
  FROM pragma_table_list t JOIN pragma_index_list(t."name") l JOIN pragma_index_info(l."name") i
  WHERE t."schema" = 'main' AND t."type" = 'table' ORDER BY 1, 2, i."seqno"`

const TOLD = 'sqlite_stat1'

/** What is told is kept in, and the samples of rows that ANALYZE takes. */
const KEPT = `SELECT "name" FROM "sqlite_schema" WHERE "type" = 'table' AND "name" GLOB 'sqlite_stat?' ORDER BY 1`

/**
 * Tells SQLite how rows are spread in a database that has grown: what ANALYZE would find in one. Who knows nothing takes it
 * that a value of an index's first column, which is the organization in most, finds ten rows, and goes through all chats of
 * an organization for twenty that are named by their ids. What is said does not depend on what is there, so that a
 * statement has one plan, which tests can hold. Connections that are open already do not learn of it.
 */
export function tellStatistics(connection: Database): void {
  const parts = connection.prepare<[], Part>(PARTS).all()
  const wanted = [...Map.groupBy(parts, ({ index }) => index).values()].map(toldOf)
  const tables = connection.prepare<[], string>(KEPT).pluck().all()
  const rowsOf = (table: string) => connection.prepare(`SELECT * FROM "${table}" ORDER BY 1, 2`).all()
  const isTold = tables.includes(TOLD) && JSON.stringify(tables.flatMap(rowsOf)) === JSON.stringify(wanted)
  if (isTold) return
  connection.transaction(() => {
    // The one way to make the table.
    if (!tables.includes(TOLD)) connection.exec('ANALYZE "_prisma_migrations"')
    for (const table of connection.prepare<[], string>(KEPT).pluck().all()) connection.exec(`DELETE FROM "${table}"`)
    const tell = connection.prepare<Told>(`INSERT INTO "${TOLD}" ("tbl", "idx", "stat") VALUES (@tbl, @idx, @stat)`)
    for (const each of wanted) tell.run(each)
  })()
}

/** https://sqlite.org/fileformat2.html#stat1tab: how many rows an index has, and a value of its first columns in it. */
function toldOf(parts: readonly Part[]): Told {
  const [{ table: tbl, index: idx, isUnique } = { table: '', index: '', isUnique: 0 }] = parts
  const all = SMALL[idx] ?? ROWS
  const found: number[] = []
  for (const { column } of parts) {
    const isKey = isUnique && found.length === parts.length - 1
    const same = SAME[`${tbl}.${column}`] ?? SAME[column] ?? 1
    found.push(isKey ? 1 : Math.min(found.at(-1) ?? all, same))
  }
  // What lies in an index behind another organization's rows is not looked for in it: there may be very many of those.
  return { tbl, idx, stat: [all, ...found, 'noskipscan'].join(' ') }
}
