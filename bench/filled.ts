import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { Client } from 'pg'
import { call, type Lab, type Service } from './lab.ts'

const DAY = 24 * 60 * 60 * 1000
/** Owners and groups among which executions and chats are distributed. */
const AGENTS = 20

/** A service whose one organization has many rows of everything, with the parts of requests. */
export type Filled = {
  service: Service
  /** The headers of the owner, and of a member who sees less. */
  owner: Record<string, string>
  member: Record<string, string>
  organizationId: string
  userId: string
  spaceId: string
  /** The chat with half of all messages. */
  longChatId: string
  /** The cursor of the row in the middle of a list. */
  cursor: (prefix: string) => string
}

/** Fills a new database with a number of rows of everything by SQL, and starts a service on it. */
export async function startFilled(lab: Lab, count: number): Promise<Filled> {
  const folder = lab.folder()
  const first = await lab.service(folder)
  const ids = await makeOne(first)
  await first.stop()
  const url = await lab.databaseUrl(folder)
  const filling = url ? await fillPostgresql(url) : fillSqlite(join(folder, 'muster.db'))
  const from = Date.now() - count - DAY
  await fill(filling, ids, count, from)
  await filling.end()
  const service = await lab.service(folder)
  const middle = count >> 1
  return {
    ...ids,
    service,
    owner: service.headers,
    member: { ...service.headers, authorization: `Bearer ${ids.memberToken}` },
    cursor: (prefix) => Buffer.from(`${from + middle}.${prefix}-${middle}`).toString('base64url'),
  }
}

type Ids = Awaited<ReturnType<typeof makeOne>>

/** Creates one row of everything over the API, as templates for the copies. */
async function makeOne(service: Service) {
  const post = <Answer>(path: string, body: unknown) => call<Answer>(service, 'POST', path, body)
  const agent = { name: 'Ada', systemPrompt: 'You are a helpful librarian.', tags: ['books'] }
  const { id: agentId } = await post<{ id: string }>('/api/v1/agents', agent)
  const { space } = await post<{ space: { id: string } }>('/api/v1/spaces', { name: 'Reading room' })
  const { task } = await post<{ task: { organizationId: string; createdBy: string } }>('/api/v1/tasks', { title: 'T' })
  await post('/api/v1/missions', { title: 'News', goal: 'Where is the atlas?', agentId })
  await post('/api/v1/skills', { name: 'first', description: 'D', prompt: 'P' })
  await post('/api/v1/mcps', { name: 'First', url: 'https://example.com/mcp' })
  const { token: memberToken } = await post<{ token: string }>('/api/v1/keys', { name: 'member' })
  const ran = await post<{ executionId: string; chatId: string; sessionId: string }>(
    `/api/v1/agents/${agentId}/execute`,
    { message: 'Where is the atlas?', spaceId: space.id },
  )
  return {
    agentId,
    spaceId: space.id,
    organizationId: task.organizationId,
    userId: task.createdBy,
    memberToken,
    executionId: ran.executionId,
    longChatId: ran.chatId,
    longSessionId: ran.sessionId,
  }
}

/** A database to fill, with the differences of its SQL. */
type Filling = {
  run: (sql: string) => Promise<unknown> | unknown
  /** The columns of a table, with the cast of an expression to each. */
  columns: (table: string) => Promise<Column[]> | Column[]
  /** A time from an expression in milliseconds. */
  time: (milliseconds: string) => string
  no: string
  /** A random whole number below another. */
  chance: (below: number) => string
  /** Each element of a column's JSON array as `value`. */
  elements: (column: string) => string
  /** The day of a column's time. */
  day: (column: string) => string
  end: () => Promise<unknown> | unknown
}
type Column = { name: string; cast: (expression: string) => string }

function fillSqlite(path: string): Filling {
  const file = new Sqlite(path)
  file.exec(`PRAGMA foreign_keys = OFF; PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF;
    PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -500000; BEGIN`)
  const asItIs = (expression: string) => expression
  return {
    run: (sql) => file.exec(sql),
    columns: (table) =>
      (file.pragma(`table_info("${table}")`) as { name: string }[]).map(({ name }) => ({ name, cast: asItIs })),
    time: asItIs,
    no: '0',
    chance: (below) => `abs(random()) % ${below}`,
    elements: (column) => `json_each(${column})`,
    day: (column) => `date(${column} / 1000, 'unixepoch')`,
    end() {
      file.exec('COMMIT')
      file.close()
    },
  }
}

/**
 * Without triggers, because each row would change the same totals. Only the chats of spaces are counted
 * afterwards.
 */
async function fillPostgresql(url: string): Promise<Filling> {
  const client = new Client(url)
  await client.connect()
  await client.query(`SET session_replication_role = 'replica'; SET synchronous_commit = off`)
  return {
    run: (sql) => client.query(sql),
    async columns(table) {
      const { rows } = await client.query<{ name: string; type: string; own: boolean }>(
        `SELECT column_name AS "name", udt_name AS "type", data_type = 'USER-DEFINED' AS "own"
          FROM information_schema.columns WHERE table_name = $1 AND table_schema = 'public'`,
        [table],
      )
      return rows.map(({ name, type, own }) => ({
        name,
        cast: (expression) => (own || type === 'jsonb' ? `(${expression})::text::"${type}"` : expression),
      }))
    },
    time: (milliseconds) => `to_timestamp((${milliseconds}) / 1000.0)`,
    no: 'false',
    chance: (below) => `floor(random() * ${below})::int`,
    elements: (column) => `jsonb_array_elements_text(${column}) AS "elements" ("value")`,
    day: (column) => `to_char(${column}, 'YYYY-MM-DD')`,
    async end() {
      await client.query(`TRUNCATE "ChatCount"; INSERT INTO "ChatCount"
        SELECT "organizationId", "spaceId", "userId", 0, count(*) FROM "countedChats"() GROUP BY 1, 2, 3`)
      // The service would soon do this by itself.
      await client.query('VACUUM ANALYZE')
      await client.end()
    },
  }
}

/**
 * Fills a table with copies of its first row. SQL expressions of that row and of the copy's number `n`, from 1, replace
 * columns.
 */
async function addCopies({ run, columns }: Filling, table: string, count: number, changes: Record<string, string>) {
  const all = await columns(table)
  const values = all.map(({ name, cast }) => (changes[name] === undefined ? `"${name}"` : cast(changes[name])))
  await run(`
    INSERT INTO "${table}" (${all.map(({ name }) => `"${name}"`).join(', ')})
    WITH RECURSIVE numbers(n) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < ${count})
    SELECT ${values.join(', ')} FROM (SELECT * FROM "${table}" LIMIT 1) AS "first", numbers`)
}

async function fill(filling: Filling, ids: Ids, count: number, from: number): Promise<void> {
  const { run, time, chance } = filling
  const created = time(`${from} + n`)
  const add = (table: string, prefix: string, changes: Record<string, string>) =>
    addCopies(filling, table, count, { id: `'${prefix}-' || n`, createdAt: created, ...changes })
  /** Picks one of the values for each copy, independently of other columns. */
  function anyOf(...values: string[]): string {
    const cases = values.slice(1).map((value, index) => `WHEN ${index + 1} THEN ${value}`)
    return `CASE ${chance(values.length)} ${cases.join(' ')} ELSE ${values[0]} END`
  }
  // All members see the first and the seventh of everything.
  const some = (prefix: string) => `'${prefix}-' || (CASE WHEN n IN (1, 7) THEN 1 ELSE 1 + ${chance(AGENTS)} END)`
  const agentId = some('agent')
  const missionId = anyOf(some('mission'), 'NULL', 'NULL', 'NULL')
  const spaceId = anyOf(`'${ids.spaceId}'`, some('space'))
  const conversation = { chatId: `'chat-' || n`, sessionId: `'session-' || n`, agentId }
  // Every tenth is private, half of these to the member.
  const visibility = `CASE n % 10 WHEN 0 THEN 'private' WHEN 1 THEN 'public' ELSE 'organization' END`
  const owner = `CASE WHEN n % 20 < 10 THEN 'member' ELSE '${ids.userId}' END`
  await addCopies(filling, 'User', 1, { id: `'member'`, email: `'member@example.com'` })
  await addCopies(filling, 'Membership', 1, { userId: `'member'`, role: `'member'` })
  await run(`UPDATE "Token" SET "userId" = 'member' WHERE "name" = 'member'`)
  await add('Token', 'token', { digest: `'digest-' || n`, userId: `'${ids.userId}'`, revokedAt: 'NULL' })
  await add('Space', 'space', { isDefault: filling.no, visibility, ownerId: owner, name: `'Space ' || n` })
  await add('Agent', 'agent', {
    name: `'Agent ' || n`,
    slug: `'agent-' || n`,
    searchText: `'agent ' || n || ' librarian who finds what you look for'`,
    visibility,
    userId: owner,
    tags: `CASE WHEN n <= 10 THEN '["rare","common"]' ELSE '["common"]' END`,
  })
  await run(`INSERT INTO "AgentTag" SELECT "organizationId", a."id", "value" FROM "Agent" a, ${filling.elements('a."tags"')}
    WHERE a."id" <> '${ids.agentId}'`)
  await add('Task', 'task', {
    status: anyOf(`'pending'`, `'in_progress'`, `'completed'`, `'cancelled'`),
    priority: anyOf(`'low'`, `'medium'`, `'high'`, `'urgent'`),
    assignedTo: anyOf(`'agent-1'`, `'${ids.userId}'`, 'NULL'),
    spaceId,
  })
  await add('Mission', 'mission', {
    agentId,
    spaceId,
    visibility,
    userId: owner,
    status: anyOf(`'pending'`, `'completed'`, `'paused'`),
  })
  await add('Skill', 'skill', { name: `'skill-' || n`, visibility, ownerId: owner })
  await add('McpServer', 'mcp', { name: `'Server ' || n` })
  await run(`INSERT INTO "Media" ("id", "organizationId", "userId", "name", "mimeType", "size", "createdAt")
    VALUES ('first', '${ids.organizationId}', '${ids.userId}', 'note.txt', 'text/plain', 1, ${time(String(from))})`)
  await add('Media', 'media', {})
  const ended = { startedAt: created, completedAt: time(`${from} + n - n % 365 * ${DAY}`) }
  await add('Execution', 'exec', {
    ...conversation,
    ...ended,
    missionId,
    spaceId,
    rootExecutionId: `'exec-' || n`,
    taskId: anyOf(some('task'), 'NULL', 'NULL', 'NULL'),
    queueSeq: '1',
    status: anyOf(`'failed'`, `'cancelled'`, `'completed'`, `'completed'`, `'completed'`),
  })
  await add('Chat', 'chat', {
    agentId,
    missionId,
    spaceId,
    sessionId: conversation.sessionId,
    ownerId: owner,
    runNumber: 'n',
    status: anyOf(`'done'`, `'error'`, `'standby'`),
  })
  await add('Session', 'session', conversation)
  const ofLong = (column: string) => `CASE WHEN n <= ${count >> 1} THEN "${column}" ELSE`
  for (const role of ['user', 'assistant']) {
    await add('Message', role, {
      chatId: `${ofLong('chatId')} 'chat-' || n END`,
      sessionId: `${ofLong('sessionId')} 'session-' || n END`,
      executionId: `'exec-' || n`,
      role: `'${role}'`,
      position: `${ofLong('position')} 0 END + 2 * n + ${role === 'user' ? 1 : 2}`,
    })
  }
  await run(`UPDATE "Session" SET "messageCount" =
    (SELECT count(*) FROM "Message" m WHERE m."sessionId" = "Session"."id")`)
  await addCopies(filling, 'ExecutionEvent', count, { executionId: `'exec-' || n` })
  const decided = (await filling.columns('Approval')).find(({ name }) => name === 'status')
  const status = decided?.cast(`CASE "status" WHEN 'failed' THEN 'denied' ELSE 'approved' END`)
  await run(`INSERT INTO "Approval" ("id", "organizationId", "executionId", "chatId", "step", "position", "toolUseId",
      "tool", "input", "status", "createdAt", "expiresAt")
    SELECT 'approval-' || "id", "organizationId", "id", "chatId", 1, 0, 'call', 'find', '{}',
      ${status}, "createdAt", "createdAt" FROM "Execution"`)
  // As the executions would have counted it at their ends.
  await run(`DELETE FROM "UsageDay";
    INSERT INTO "UsageDay" ("organizationId", "date", "agentId", "model", "userId",
        "executions", "failed", "inputTokens", "outputTokens")
      SELECT "organizationId", ${filling.day('"completedAt"')}, "agentId", "model", "userId",
        count(*), 0, sum("inputTokens"), sum("outputTokens") FROM "Execution" GROUP BY 1, 2, 3, 4, 5`)
}
