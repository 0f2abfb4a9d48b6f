import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { call, type Lab, type Service } from './lab.ts'

const DAY = 24 * 60 * 60 * 1000
/** What executions and chats are shared out among. */
const AGENTS = 20

/** A service whose one organization has many rows of everything, and what requests are made of. */
export type Filled = {
  service: Service
  /** The headers of the owner, and of a member who may see less. */
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

/** Puts so many rows of everything into a new database, as SQL, and starts a service on it. */
export async function startFilled(lab: Lab, count: number): Promise<Filled> {
  const folder = lab.folder()
  const first = await lab.service(folder)
  const ids = await makeOne(first)
  await first.stop()
  const file = new Sqlite(join(folder, 'muster.db'))
  const from = Date.now() - count - DAY
  fill(file, ids, count, from)
  file.close()
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

/** One row of everything, made as any caller makes it: the copies are of these. */
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

/**
 * Fills a table with copies of its first row. What differs is an SQL expression for a column, of that row and of the
 * copy's number `n`, from 1.
 */
function addCopies(database: Sqlite.Database, table: string, count: number, changes: Record<string, string>) {
  const names = (database.pragma(`table_info("${table}")`) as { name: string }[]).map(({ name }) => name)
  const columns = names.map((name) => `"${name}"`).join(', ')
  const values = names.map((name) => changes[name] ?? `"${name}"`).join(', ')
  database
    .prepare(`
      INSERT INTO "${table}" (${columns})
      WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
      SELECT ${values} FROM (SELECT * FROM "${table}" LIMIT 1), numbers`)
    .run(count)
}

/** One of the values for each copy, in no order that has to do with another column's. */
function anyOf(...values: string[]): string {
  const cases = values.slice(1).map((value, index) => `WHEN ${index + 1} THEN ${value}`)
  return `CASE abs(random()) % ${values.length} ${cases.join(' ')} ELSE ${values[0]} END`
}

function fill(file: Sqlite.Database, ids: Ids, count: number, from: number): void {
  file.exec(`PRAGMA foreign_keys = OFF; PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF;
    PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -500000`)
  const add = (table: string, prefix: string, changes: Record<string, string>) =>
    addCopies(file, table, count, { id: `'${prefix}-' || n`, createdAt: `${from} + n`, ...changes })
  // The first and the seventh of everything are there for everybody.
  const some = (prefix: string) =>
    `'${prefix}-' || (CASE WHEN n IN (1, 7) THEN 1 ELSE 1 + abs(random()) % ${AGENTS} END)`
  const agentId = some('agent')
  const missionId = anyOf(some('mission'), 'NULL', 'NULL', 'NULL')
  const spaceId = anyOf(`'${ids.spaceId}'`, some('space'))
  const conversation = { chatId: `'chat-' || n`, sessionId: `'session-' || n`, agentId }
  // Every tenth is private, every other one of these the member's.
  const visibility = `CASE n % 10 WHEN 0 THEN 'private' WHEN 1 THEN 'public' ELSE 'organization' END`
  const owner = `CASE WHEN n % 20 < 10 THEN 'member' ELSE '${ids.userId}' END`
  file.transaction(() => {
    addCopies(file, 'User', 1, { id: `'member'`, email: `'member@example.com'` })
    addCopies(file, 'Membership', 1, { userId: `'member'`, role: `'member'` })
    file.exec(`UPDATE "Token" SET "userId" = 'member' WHERE "name" = 'member'`)
    add('Token', 'token', { digest: `'digest-' || n`, userId: `'${ids.userId}'`, revokedAt: 'NULL' })
    add('Space', 'space', { isDefault: '0', visibility, ownerId: owner, name: `'Space ' || n` })
    add('Agent', 'agent', {
      name: `'Agent ' || n`,
      searchText: `'agent ' || n || char(10) || 'librarian who finds what you look for'`,
      visibility,
      userId: owner,
      tags: `CASE WHEN n <= 10 THEN '["rare","common"]' ELSE '["common"]' END`,
    })
    file.exec(`INSERT INTO "AgentTag" SELECT "organizationId", a."id", "value" FROM "Agent" a, json_each(a."tags")
      WHERE a."id" <> '${ids.agentId}'`)
    add('Task', 'task', {
      status: anyOf(`'pending'`, `'in_progress'`, `'completed'`, `'cancelled'`),
      priority: anyOf(`'low'`, `'medium'`, `'high'`, `'urgent'`),
      assignedTo: anyOf(`'agent-1'`, `'${ids.userId}'`, 'NULL'),
      spaceId,
    })
    add('Mission', 'mission', {
      agentId,
      spaceId,
      visibility,
      userId: owner,
      status: anyOf(`'pending'`, `'completed'`, `'paused'`),
    })
    add('Skill', 'skill', { name: `'skill-' || n`, visibility, ownerId: owner })
    add('McpServer', 'mcp', { name: `'Server ' || n` })
    file.exec(`INSERT INTO "Media" ("id", "organizationId", "userId", "name", "mimeType", "size", "createdAt")
      VALUES ('first', '${ids.organizationId}', '${ids.userId}', 'note.txt', 'text/plain', 1, ${from})`)
    add('Media', 'media', {})
    const ended = { startedAt: `${from} + n`, completedAt: `${from} + n - n % 365 * ${DAY}` }
    add('Execution', 'exec', {
      ...{ ...conversation, ...ended, missionId, spaceId },
      rootExecutionId: `'exec-' || n`,
      taskId: anyOf(some('task'), 'NULL', 'NULL', 'NULL'),
      queueSeq: '1',
      status: anyOf(`'failed'`, `'cancelled'`, `'completed'`, `'completed'`, `'completed'`),
    })
    add('Chat', 'chat', {
      ...{ agentId, missionId, spaceId, sessionId: conversation.sessionId, ownerId: owner },
      runNumber: 'n',
      status: anyOf(`'done'`, `'error'`, `'standby'`),
    })
    add('Session', 'session', conversation)
    const ofLong = (column: string) => `CASE WHEN n <= ${count >> 1} THEN "${column}" ELSE`
    for (const role of ['user', 'assistant']) {
      add('Message', role, {
        chatId: `${ofLong('chatId')} 'chat-' || n END`,
        sessionId: `${ofLong('sessionId')} 'session-' || n END`,
        executionId: `'exec-' || n`,
        role: `'${role}'`,
        position: `${ofLong('position')} 0 END + 2 * n + ${role === 'user' ? 1 : 2}`,
      })
    }
    file.exec(`UPDATE "Session" SET "messageCount" =
      (SELECT count(*) FROM "Message" m WHERE m."sessionId" = "Session"."id")`)
    addCopies(file, 'ExecutionEvent', count, { executionId: `'exec-' || n` })
    file.exec(`INSERT INTO "Approval" ("id", "organizationId", "executionId", "chatId", "step", "position", "toolUseId",
        "tool", "input", "status", "createdAt", "expiresAt")
      SELECT 'approval-' || "id", "organizationId", "id", "chatId", 1, 0, 'call', 'find', '{}',
        CASE "status" WHEN 'failed' THEN 'denied' ELSE 'approved' END, "createdAt", "createdAt" FROM "Execution"`)
    // As the executions would have left it when they ended.
    file.exec(`DELETE FROM "UsageDay";
      INSERT INTO "UsageDay" SELECT "organizationId", date("completedAt" / 1000, 'unixepoch'), "agentId", "model",
        count(*), 0, sum("inputTokens"), sum("outputTokens") FROM "Execution" GROUP BY 1, 2, 3, 4`)
  })()
}
