import { execFile, spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { PrismaBetterSqlite3 } from '@prisma/adapter-better-sqlite3'
import { PrismaPg } from '@prisma/adapter-pg'
import Sqlite from 'better-sqlite3'
import { Client } from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { postgresqlTwin } from '../../.config/generate.ts'
import { database, diff, emptied, noDatabase, schema } from '../../.config/schema-engine.ts'
import { openDatabase } from '../../src/db/client.ts'
import { MigrationError } from '../../src/db/migrations.ts'
import { warnOfExposure } from '../../src/db/postgresql/exposure.ts'
import { type BlockedMigration, migratePostgresql } from '../../src/db/postgresql/migrate.ts'
import { migrateSqlite, requireSqlite } from '../../src/db/sqlite/migrate.ts'
import { searchedIn } from '../../src/lib/search.ts'
import { startForwarder } from '../support/forwarder.ts'
import { type Postgres, startPostgres } from '../support/postgres.ts'

const prisma = join(import.meta.dirname, '..', '..', 'prisma')
const models = readFileSync(join(prisma, 'schema.prisma'), 'utf8')

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'muster-test-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

/** Creates a migrations folder from pairs of name and SQL. */
function migrations(kind: 'sqlite' | 'postgresql', scripts: Record<string, string>): string {
  for (const [name, sql] of Object.entries(scripts)) {
    mkdirSync(join(folder, kind, name), { recursive: true })
    writeFileSync(join(folder, kind, name, 'migration.sql'), sql)
  }
  return folder
}

test('the schema that the next migration starts from equals the models', async () => {
  const snapshot = readFileSync(join(prisma, 'migrations', 'schema.prisma'), 'utf8')
  expect(await diff(noDatabase('sqlite'), schema(snapshot), schema(models))).toBe('')
})

/** Partial indexes. Prisma ignores them, and its engine fails on them in SQLite. */
const PARTIAL = [
  'Agent_organizationId_slug_key',
  'Chat_organizationId_missionId_idx',
  'Chat_wasPrivate_idx',
  'Execution_organizationId_missionId_createdAt_id_idx',
  'Execution_organizationId_rootExecutionId_idx',
  'Execution_organizationId_taskId_createdAt_id_idx',
  'Execution_parentExecutionId_createdAt_id_idx',
  'Execution_status_leaseUntil_idx',
  'Execution_wasPrivate_idx',
  'Message_sessionId_position_idx',
]

/** Covering indexes on SQLite (`search_index`), which the models cannot express. */
const SEARCHED = [
  'Agent_organizationId_archivedAt_visibility_createdAt_id_idx',
  'Agent_organizationId_userId_archivedAt_createdAt_id_idx',
  'Agent_visibility_archivedAt_createdAt_id_idx',
  'Chat_organizationId_archivedAt_createdAt_id_idx',
  'Mission_organizationId_archivedAt_createdAt_id_idx',
  'Space_organizationId_archivedAt_createdAt_id_visibility_ownerId_idx',
  'Task_organizationId_createdAt_id_idx',
  'Task_organizationId_status_createdAt_id_idx',
]

/** The view through which events are written (`webhooks`). */
const WITHOUT_EVENTS = 'DROP VIEW "NewEvent"'

/** The trigram index of agents (`search_trigrams`): extra tables on SQLite, an index of a function on PostgreSQL. */
const WITHOUT_SEARCH = {
  sqlite: 'DROP TABLE "AgentText"; DROP TABLE "AgentTextKey"',
  postgresql: 'DROP INDEX "Agent_searchKeys_idx"',
}

/** Copies the migrations before the given one into a folder. */
function upTo(kind: 'sqlite' | 'postgresql', migration: string): string {
  cpSync(join(prisma, 'migrations'), folder, { recursive: true })
  const later = readdirSync(join(folder, kind)).filter((name) => name >= migration)
  for (const name of later) rmSync(join(folder, kind, name), { recursive: true })
  return folder
}

const MESSAGE_COUNT = '20261122000433_message_count'

/**
 * Two sessions with two runs each. The second run of `busy` is running and has its question only; that of `new` is
 * pending.
 */
const CONVERSATIONS = [
  ...['idle', 'busy', 'new'].map(
    (id) => `INSERT INTO "Session" ("id", "organizationId", "chatId", "agentId", "agentOrganizationId", "userId",
      "activeExecutionId", "createdAt", "updatedAt")
      VALUES ('${id}', 'o', 'c', 'a', 'o', 'u', ${id === 'idle' ? 'NULL' : `'${id}-2'`}, '2026-01-01', '2026-01-01')`,
  ),
  ...['idle-1', 'idle-2', 'busy-1', 'busy-2', 'new-2'].map((id) => {
    const [session] = id.split('-')
    return `INSERT INTO "Execution" ("id", "organizationId", "agentId", "agentOrganizationId", "agentVersion", "userId",
      "chatId", "sessionId", "spaceId", "rootExecutionId", "status", "message", "preview", "queueSeq", "attempt",
      "createdAt", "updatedAt") VALUES ('${id}', 'o', 'a', 'o', 1, 'u', 'c', '${session}', 's', '${id}', 'running',
      'Hi', 'Hi', ${id.at(-1)}, ${id === 'new-2' ? 0 : 1}, '2026-01-01', '2026-01-01')`
  }),
  ...['idle-1-1', 'idle-1-2', 'idle-2-3', 'idle-2-4', 'busy-1-1', 'busy-1-2', 'busy-2-3'].map((id) => {
    const [session, run, position] = id.split('-')
    const role = Number(position) % 2 ? 'user' : 'assistant'
    return `INSERT INTO "Message" ("id", "organizationId", "chatId", "sessionId", "executionId", "position", "role",
      "content", "toolCalls", "createdAt") VALUES ('${id}', 'o', 'c', '${session}', '${session}-${run}', ${position},
      '${role}', 'Hi', '[]', '2026-01-01')`
  }),
].join(';')
const MESSAGE_COUNTS = 'SELECT "id", "messageCount" FROM "Session" ORDER BY 1'

const TOTALS = '20261122035200_totals'

const CREDENTIAL_SETTERS = '20261123041310_credential_setters'

/** Credentials of a server of `u`: one created with it, one set by `v`, and one without a known author. */
const CREDENTIALS = [
  `INSERT INTO "Organization" ("id", "name", "slug", "createdAt") VALUES ('o', 'O', 'o', '2026-01-01')`,
  `INSERT INTO "User" ("id", "email", "name", "createdAt", "updatedAt") VALUES ('u', 'u', 'U', '2026-01-01',
    '2026-01-01')`,
  `INSERT INTO "McpServer" ("id", "organizationId", "ownerId", "mcpType", "name", "url", "transport", "headers",
    "permissions", "createdAt", "updatedAt") VALUES ('m', 'o', 'u', 'T', 'M', 'U', 'sse', '{}', '[]', '2026-01-01',
    '2026-01-01')`,
  ...[
    ['m', 'u', 'mcp.create', '2026-01-01'],
    ['x', 'w', 'mcp.update', '2026-01-02'],
    ['m', 'w', 'space.update', '2026-01-02'],
    ['m', 'v', 'mcp.update', '2026-01-02'],
  ].map(
    ([target, actor, action, at], id) => `INSERT INTO "AuditEvent" ("id", "organizationId", "actor", "action",
      "target", "at") VALUES ('${id}', 'o', '${actor}', '${action}', '${target}', '${at}')`,
  ),
  ...[
    ['given', '2026-01-01'],
    ['set', '2026-01-02'],
    ['unknown', '2026-01-03'],
  ].map(
    ([name, at]) => `INSERT INTO "McpCredential" ("organizationId", "mcpId", "name", "ciphertext", "isSecret",
      "updatedAt") VALUES ('o', 'm', '${name}', '', true, '${at}')`,
  ),
].join(';')
const SETTERS = 'SELECT "name", "updatedBy" FROM "McpCredential" ORDER BY 1'
const EXPECTED_SETTERS = [
  ['given', 'u'],
  ['set', 'v'],
  ['unknown', 'u'],
]

const SEARCH_MORE = '20261130050054_search_more'

/** Texts as older versions have stored them. */
const TEXTS = ['Plain title', 'ÀÉŽ ŁÓDŹ 100%', 'ΟΔΥΣΣΕΥΣ Ώρα', 'ЁЖ И ДЖЕЙ_Ќ', 'İstanbul\\a', '漢字 🦊', "It's"]
const quotedText = (text: string) => `'${text.replaceAll("'", "''")}'`
const TITLED = [
  `INSERT INTO "Organization" ("id", "name", "slug", "createdAt") VALUES ('o', 'O', 'o', '2026-01-01')`,
  `INSERT INTO "User" ("id", "email", "name", "createdAt", "updatedAt") VALUES ('u', 'u', 'U', '2026-01-01',
    '2026-01-01')`,
  `INSERT INTO "Space" ("id", "organizationId", "name", "visibility", "ownerId", "createdAt", "updatedAt") VALUES
    ('s', 'o', 'S', 'organization', 'u', '2026-01-01', '2026-01-01')`,
  `INSERT INTO "Agent" ("id", "organizationId", "userId", "name", "role", "systemPrompt", "visibility", "tags",
    "skillIds", "mcpInstanceIds", "mcpTypes", "subagentIds", "allowedTools", "disallowedTools", "searchText", "version",
    "createdAt", "updatedAt") VALUES ('a', 'o', 'u', 'A', 'R', 'P', 'public', '[]', '[]', '[]', '[]', '[]', '[]', '[]',
    'a', 1, '2026-01-01', '2026-01-01')`,
  ...TEXTS.map(quotedText).flatMap((text, n) => [
    `INSERT INTO "Chat" ("id", "organizationId", "spaceId", "ownerId", "title", "status", "createdAt", "updatedAt")
      VALUES ('c${n}', 'o', 's', 'u', ${text}, 'standby', '2026-01-01', '2026-01-01')`,
    `INSERT INTO "Skill" ("id", "organizationId", "ownerId", "name", "displayName", "description", "prompt",
      "category", "builtInTools", "requiredMCPs", "visibility", "version", "createdAt", "updatedAt")
      VALUES ('s${n}', 'o', 'u', 'skill-${n}', ${text}, 'D', 'P', 'C', '[]', '[]', 'public', 1, '2026-01-01', '2026-01-01')`,
    `INSERT INTO "McpServer" ("id", "organizationId", "ownerId", "mcpType", "name", "url", "transport", "headers",
      "permissions", "createdAt", "updatedAt") VALUES ('m${n}', 'o', 'u', 'T', ${text}, 'U', 'sse', '{}', '[]',
      '2026-01-01', '2026-01-01')`,
    `INSERT INTO "Space" ("id", "organizationId", "name", "description", "visibility", "ownerId", "createdAt",
      "updatedAt") VALUES ('p${n}', 'o', ${text}, ${n ? text : 'NULL'}, 'organization', 'u', '2026-01-01',
      '2026-01-01')`,
    `INSERT INTO "Task" ("id", "organizationId", "title", "status", "priority", "createdBy", "createdAt",
      "updatedAt") VALUES ('t${n}', 'o', ${text}, 'pending', 'low', 'u', '2026-01-01', '2026-01-01')`,
    `INSERT INTO "Mission" ("id", "organizationId", "userId", "spaceId", "agentId", "agentOrganizationId", "title",
      "goal", "visibility", "status", "scheduleType", "timezone", "overlap", "catchUp", "createdAt", "updatedAt")
      VALUES ('i${n}', 'o', 'u', 's', 'a', 'o', ${text}, 'G', 'organization', 'pending', 'none', 'UTC', 'skip',
      'last', '2026-01-01', '2026-01-01')`,
  ]),
].join(';')
const SEARCHED_TEXTS = ['Chat', 'Skill', 'McpServer', 'Space', 'Task', 'Mission']
  .map((table) => `SELECT "id", "searchText" FROM "${table}"`)
  .join(' UNION ALL ')
  .concat(' ORDER BY 1')
const EXPECTED_TEXTS = [
  ...TEXTS.map((text, n) => [`c${n}`, searchedIn(text).searchText]),
  ...TEXTS.map((text, n) => [`i${n}`, searchedIn(text).searchText]),
  ...TEXTS.map((text, n) => [`m${n}`, searchedIn(text, null, 'T', 'U').searchText]),
  ...TEXTS.map((text, n) => [`p${n}`, searchedIn(text, n ? text : null).searchText]),
  ['s', searchedIn('S', null).searchText],
  ...TEXTS.map((text, n) => [`s${n}`, searchedIn(`skill-${n}`, text, 'D').searchText]),
  ...TEXTS.map((text, n) => [`t${n}`, searchedIn(text).searchText]),
]

/** Rows of two organizations, some archived or private, including missions whose space or agent is. */
const COUNTED = [
  ...['o', 'p'].map(
    (id) => `INSERT INTO "Organization" ("id", "name", "slug", "createdAt") VALUES
    ('${id}', 'O', '${id}', '2026-01-01')`,
  ),
  ...['u', 'v'].map(
    (id) => `INSERT INTO "User" ("id", "email", "name", "createdAt", "updatedAt") VALUES
    ('${id}', '${id}', 'U', '2026-01-01', '2026-01-01')`,
  ),
  ...[
    ['secret', 'o', 'private', 'NULL'],
    ['shared', 'o', 'organization', 'NULL'],
    ['gone', 'o', 'public', `'2026-01-01'`],
    ['open', 'p', 'public', 'NULL'],
  ].map(
    ([id, organization, visibility, archivedAt]) => `INSERT INTO "Agent" ("id", "organizationId", "userId", "name",
      "role", "systemPrompt", "visibility", "tags", "skillIds", "mcpInstanceIds", "mcpTypes", "subagentIds",
      "allowedTools", "disallowedTools", "searchText", "version", "archivedAt", "createdAt", "updatedAt") VALUES
      ('${id}', '${organization}', 'u', 'A', 'R', 'S', '${visibility}', '["a b"]', '[]', '[]', '[]', '[]', '[]', '[]',
      '${id} agent', 1, ${archivedAt}, '2026-01-01', '2026-01-01')`,
  ),
  ...['private', 'organization', 'public'].map(
    (visibility) => `INSERT INTO "Skill" ("id", "organizationId", "ownerId",
      "name", "displayName", "description", "prompt", "category", "builtInTools", "requiredMCPs", "visibility",
      "version", "createdAt", "updatedAt") VALUES ('${visibility}', 'o', 'u', '${visibility}', 'S', 'D', 'P', 'C', '[]',
      '[]', '${visibility}', 1, '2026-01-01', '2026-01-01')`,
  ),
  `INSERT INTO "McpServer" ("id", "organizationId", "ownerId", "mcpType", "name", "url", "transport", "headers",
    "permissions", "createdAt", "updatedAt") VALUES ('m', 'o', 'u', 'T', 'M', 'U', 'sse', '{}', '[]', '2026-01-01',
    '2026-01-01')`,
  ...['private', 'organization'].map(
    (visibility) => `INSERT INTO "Space" ("id", "organizationId", "name", "visibility",
    "ownerId", "createdAt", "updatedAt") VALUES ('${visibility}', 'o', 'S', '${visibility}', 'v', '2026-01-01',
    '2026-01-01')`,
  ),
  ...[
    ['organization', 'shared', 'organization', 'o', 'pending'],
    ['organization', 'secret', 'organization', 'o', 'running'],
    ['private', 'shared', 'organization', 'o', 'completed'],
    ['private', 'open', 'private', 'p', 'paused'],
    ['private', 'secret', 'organization', 'o', 'paused'],
  ].map(
    (
      [space, agent, visibility, by, status],
      index,
    ) => `INSERT INTO "Mission" ("id", "organizationId", "userId", "spaceId",
      "agentId", "agentOrganizationId", "title", "goal", "visibility", "status", "scheduleType", "timezone", "overlap",
      "catchUp", "createdAt", "updatedAt") VALUES ('${index}', 'o', 'v', '${space}', '${agent}', '${by}', 'T', 'G',
      '${visibility}', '${status}', 'none', 'UTC', 'skip', 'skip', '2026-01-01', '2026-01-01')`,
  ),
  ...[
    ['organization', 'shared', null],
    ['organization', 'secret', 0],
    ['organization', 'shared', 3],
    // The agent belongs to one organization and its mission to the other.
    ['organization', 'secret', 3],
    ['private', 'shared', null],
    ['private', 'shared', null, `'2026-01-01'`],
  ].map(
    ([space, agent, mission, archivedAt = 'NULL'], index) => `INSERT INTO "Chat" ("id", "organizationId", "spaceId",
      "agentId", "agentOrganizationId", "ownerId", "title", "status", "missionId", "archivedAt", "createdAt",
      "updatedAt") VALUES ('${index}', 'o', '${space}', '${agent}', 'o', 'u', 'T', 'standby',
      ${mission === null ? 'NULL' : `'${mission}'`}, ${archivedAt}, '2026-01-01', '2026-01-01')`,
  ),
].join(';')
const COUNTS = `SELECT "organizationId", "list", "userId", "value", "count" FROM "Total"
  UNION ALL SELECT "organizationId", 'chats', "userId", "spaceId", "count" FROM "ChatCount" ORDER BY 1, 2, 3, 4`
const EXPECTED_COUNTS = [
  ['', 'agents', '', 'public', 1],
  ['', 'skills', '', '', 1],
  ['', 'tagged agents', '', 'public a b', 1],
  ['o', 'agents', '', 'organization', 1],
  ['o', 'agents', 'u', 'organization', 1],
  ['o', 'agents', 'u', 'private', 1],
  ['o', 'chats', '', 'organization', 1],
  ['o', 'chats', '', 'private', 1],
  ['o', 'chats', 'u', 'organization', 1],
  ['o', 'chats', 'v', 'organization', 1],
  ['o', 'mcps', '', '', 1],
  ['o', 'missions', '', 'pending', 1],
  ['o', 'missions', 'u', 'pending', 1],
  ['o', 'missions', 'v', 'completed', 1],
  ['o', 'missions', 'v', 'paused', 1],
  ['o', 'missions for admins', '', 'completed', 1],
  ['o', 'missions for admins', '', 'pending', 1],
  ['o', 'missions for admins', 'u', 'paused', 1],
  ['o', 'missions for admins', 'u', 'pending', 1],
  ['o', 'missions for admins', 'v', 'paused', 1],
  ['o', 'skills', '', '', 1],
  ['o', 'skills', 'u', '', 1],
  ['o', 'spaces', '', '', 1],
  ['o', 'spaces', 'v', '', 1],
  ['o', 'spaces for admins', '', '', 2],
  ['o', 'tagged agents', '', 'organization a b', 1],
  ['p', 'agents', '', 'public', 1],
  ['p', 'agents', 'u', 'public', 1],
  ['p', 'tagged agents', '', 'public a b', 1],
]

describe('SQLite', () => {
  let file: string
  beforeEach(() => {
    file = join(folder, 'data', 'muster.db')
  })
  const rows = (sql: string): unknown[] => {
    const connection = new Sqlite(file)
    try {
      return connection.prepare(sql).raw().all().flat()
    } finally {
      connection.close()
    }
  }

  test('the migrations create the tables of the models', async () => {
    await migrateSqlite(file)
    const indexes = (like: string) =>
      rows(`SELECT "name" FROM "sqlite_schema" WHERE "type" = 'index' AND "sql" LIKE '${like}' ORDER BY 1`)
    expect(indexes('%WHERE%')).toEqual(PARTIAL)
    expect(indexes('%, "searchText")')).toEqual(SEARCHED)
    const connection = new Sqlite(file)
    connection.exec(WITHOUT_SEARCH.sqlite)
    for (const name of PARTIAL) connection.exec(`DROP INDEX "${name}"`)
    for (const name of SEARCHED) {
      const [sql] = rows(`SELECT "sql" FROM "sqlite_schema" WHERE "name" = '${name}'`)
      connection.exec(`DROP INDEX "${name}"; ${String(sql).replace(', "searchText"', '')}`)
    }
    connection.close()
    expect(await diff(new PrismaBetterSqlite3({ url: file }), database(models), schema(models))).toBe('')
  })

  test('a new file has pages of 2 KiB, because a run writes many pages', async () => {
    await migrateSqlite(file)
    expect(rows('PRAGMA page_size')).toEqual([2048])
  })

  test('each migration is applied once, in order, whatever the number of starting processes', async () => {
    const scripts = migrations('sqlite', {
      '1_table': 'CREATE TABLE "t" ("n" INTEGER); INSERT INTO "t" VALUES (1)',
      '2_more': 'INSERT INTO "t" SELECT max("n") + 1 FROM "t"',
    })
    const migrate = join(prisma, '..', 'src', 'db', 'sqlite', 'migrate.ts')
    const program =
      'const { migrateSqlite } = await import(process.argv[1]); await migrateSqlite(...process.argv.slice(2))'
    const args = ['--input-type=module', '-e', program, migrate, file, scripts]
    await Promise.all([1, 2, 3].map(() => promisify(execFile)(process.execPath, args)))
    migrations('sqlite', { '3_last': 'INSERT INTO "t" SELECT max("n") + 1 FROM "t"' })
    await migrateSqlite(file, scripts)
    await migrateSqlite(file, scripts)
    expect(rows('SELECT "n" FROM "t"')).toEqual([1, 2, 3])
    expect(rows('SELECT "migration_name" FROM "_prisma_migrations" ORDER BY "started_at", 1')).toEqual([
      '1_table',
      '2_more',
      '3_last',
    ])
  })

  test('a large table gets an index where only the folder of the file can be written', async ({ skip }) => {
    const inside = ['--user', '--map-root-user', '--mount']
    skip(spawnSync('unshare', [...inside, 'true']).status !== 0, 'this machine gives no process its own file systems')
    const scripts = migrations('sqlite', {
      '1_large': `CREATE TABLE "t" AS
          WITH RECURSIVE "n"("i") AS (SELECT 1 UNION ALL SELECT "i" + 1 FROM "n" WHERE "i" < 60000)
          SELECT hex(randomblob(200)) AS "text" FROM "n";
        CREATE INDEX "t_text" ON "t" ("text")`,
    })
    const program =
      'const { migrateSqlite } = await import(process.argv[1]); await migrateSqlite(...process.argv.slice(2))'
    const args = [new URL('../../src/db/sqlite/migrate.ts', import.meta.url).href, file, scripts]
    const readOnly = 'mount --bind "$0" "$0" && mount -o remount,bind,ro / && cd / && exec "$@"'
    const run = ['sh', '-c', readOnly, folder, process.execPath, '--input-type=module', '-e', program, ...args]
    await promisify(execFile)('unshare', [...inside, ...run], { env: { PATH: process.env.PATH } })
    expect(rows(`SELECT "name" FROM "sqlite_schema" WHERE "type" = 'index'`)).toContain('t_text')
  })

  test('a failing migration leaves the file unchanged, and the error names it and the reason', async () => {
    const scripts = migrations('sqlite', { '1_table': 'CREATE TABLE "t" ("n" INTEGER); INSERT INTO "t" VALUES (1)' })
    await migrateSqlite(file, scripts)
    migrations('sqlite', {
      '2_good': 'CREATE TABLE "u" ("n" INTEGER); DELETE FROM "t"',
      '3_bad': 'ALTER TABLE "u" ADD COLUMN "m"; INSERT INTO "nowhere" VALUES (1)',
    })
    const failure = migrateSqlite(file, scripts)
    await expect(failure).rejects.toThrow(MigrationError)
    await expect(failure).rejects.toThrow('The migration 3_bad failed and was undone: no such table: nowhere')
    expect(rows('SELECT "n" FROM "t"')).toEqual([1])
    const tables = rows(`SELECT "name" FROM "sqlite_schema" WHERE "type" = 'table' AND "name" NOT LIKE 'sqlite_%'`)
    expect(tables).toEqual(['_prisma_migrations', 't'])
    writeFileSync(join(scripts, 'sqlite', '3_bad', 'migration.sql'), 'ALTER TABLE "u" ADD COLUMN "m"')
    await migrateSqlite(file, scripts)
    expect(rows('SELECT "n" FROM "t"')).toEqual([])
  })

  test('rebuilding a table preserves the rows that refer to it', async () => {
    const scripts = migrations('sqlite', {
      '1_tables': `CREATE TABLE "p" ("id" TEXT PRIMARY KEY);
        CREATE TABLE "c" ("p" TEXT NOT NULL REFERENCES "p" ("id") ON DELETE CASCADE);
        INSERT INTO "p" VALUES ('a'); INSERT INTO "c" VALUES ('a')`,
      '2_rebuild': `PRAGMA defer_foreign_keys=ON; PRAGMA foreign_keys=OFF;
        CREATE TABLE "new_p" ("id" TEXT PRIMARY KEY, "n" INTEGER NOT NULL DEFAULT 0);
        INSERT INTO "new_p" ("id") SELECT "id" FROM "p"; DROP TABLE "p"; ALTER TABLE "new_p" RENAME TO "p";
        PRAGMA foreign_keys=ON; PRAGMA defer_foreign_keys=OFF;`,
    })
    await migrateSqlite(file, scripts)
    expect(rows('SELECT * FROM "p", "c"')).toEqual(['a', 0, 'a'])
  })

  test('a migration that would leave a dangling reference is undone', async () => {
    const scripts = migrations('sqlite', {
      '1_tables': `CREATE TABLE "p" ("id" TEXT PRIMARY KEY);
        CREATE TABLE "c" ("p" TEXT REFERENCES "p" ("id")); INSERT INTO "c" VALUES ('nobody')`,
    })
    await expect(migrateSqlite(file, scripts)).rejects.toThrow('rows of c would refer to nothing')
    expect(rows('SELECT "name" FROM "sqlite_schema"')).toEqual([])
  })

  test('a database of a newer version is left alone', async () => {
    const scripts = migrations('sqlite', { '1_a': 'CREATE TABLE "a" ("n")', '2_b': 'CREATE TABLE "b" ("n")' })
    await migrateSqlite(file, scripts)
    rmSync(join(scripts, 'sqlite', '2_b'), { recursive: true })
    await expect(migrateSqlite(file, scripts)).rejects.toThrow('made by a newer version of Muster (it has 2_b)')
  })

  test('a file of another program is refused by name, and stays as it was', async () => {
    mkdirSync(join(folder, 'data'))
    const connection = new Sqlite(file)
    connection.exec('CREATE TABLE "Customer" ("id" INTEGER PRIMARY KEY AUTOINCREMENT); CREATE TABLE "_tool" ("n")')
    connection.close()
    const before = readFileSync(file)
    const refused = `The database ${file} belongs to another program: it has a table Customer, and no tables of Muster. Give`
    await expect(migrateSqlite(file)).rejects.toThrow(refused)
    await expect(requireSqlite(file)).rejects.toThrow(refused)
    expect(readFileSync(file)).toEqual(before)
  })

  test('a file with tables of Litestream alone is new; one that Prisma made for others is refused', async () => {
    mkdirSync(join(folder, 'data'))
    const connection = new Sqlite(file)
    connection.exec('CREATE TABLE "_litestream_seq" ("id" INTEGER PRIMARY KEY, "seq" INTEGER)')
    connection.close()
    await migrateSqlite(file)
    const theirs = join(folder, 'data', 'theirs.db')
    await migrateSqlite(theirs, migrations('sqlite', { '20200101000000_init': 'CREATE TABLE "Customer" ("n")' }))
    await expect(migrateSqlite(theirs)).rejects.toThrow(
      `The database ${theirs} belongs to another program: it has the migration 20200101000000_init`,
    )
  })

  test('an existing database with rows is migrated from its first version', async () => {
    const names = readdirSync(join(prisma, 'migrations', 'sqlite')).sort()
    // Each table gets a row from the version that created it.
    for (const name of names) {
      cpSync(join(prisma, 'migrations', 'sqlite', name), join(folder, 'sqlite', name), { recursive: true })
      await migrateSqlite(file, folder)
      fillTables()
    }
    const columns = rows(`SELECT 'SELECT ' || quote(c."name") || ', "' || c."name" || '" FROM "' || t."name" || '"'
      FROM "sqlite_schema" t, pragma_table_info(t."name") c WHERE t."type" = 'table' AND c."type" = 'JSONB'`)
    const values = rows(columns.join(' UNION ALL ')) as string[]
    expect(values).toContain('mediaIds')
    const objects = new Set(['modelSettings', 'output', 'overrides'])
    for (const [index, value] of values.entries()) {
      if (index % 2) expect(JSON.parse(value)).toEqual(objects.has(values[index - 1]!) ? {} : [])
    }
    const { client, close } = await openDatabase({ DATABASE_URL: `file:${file}`, DATA_DIR: '', DATABASE_POOL_SIZE: 1 })
    expect(await client.organization.count({ where: { id: 'x' } })).toBe(1)
    await close()
  })

  /** Adds a row to each empty table, with references between them. `Installation` had another key at first. */
  function fillTables(): void {
    const values: Record<string, string> = { JSONB: "'[]'", INTEGER: '1', BIGINT: '1', DATETIME: '0', BOOLEAN: '0' }
    const connection = new Sqlite(file)
    connection.pragma('foreign_keys = OFF')
    const tables = connection.prepare<[], string>(
      `SELECT "name" FROM pragma_table_list WHERE "type" = 'table' AND "name" <> 'Installation' AND "name" NOT GLOB 'sqlite_*'`,
    )
    for (const table of tables.pluck().all()) {
      const columns = connection.pragma(`table_info("${table}")`) as { name: string; type: string }[]
      const row = columns.map(({ type }) => values[type] ?? "'x'")
      connection.exec(`INSERT INTO "${table}" SELECT ${row.join(', ')} WHERE NOT EXISTS (SELECT 1 FROM "${table}")`)
    }
    connection.close()
  }

  test('a JSON default equals that of the schema, also with quotes in it', async () => {
    const [head] = models.split(/^(?=enum|model)/m)
    const model = `${head}model T {\n  id Int @id\n  list Json @default("[]")\n  text Json @default("\\"it's\\"")\n}`
    const sql = await diff(noDatabase('sqlite'), schema(emptied(models)), schema(model))
    await migrateSqlite(file, migrations('sqlite', { '1_t': `${sql}; INSERT INTO "T" ("id") VALUES (1)` }))
    expect(rows('SELECT "list", "text" FROM "T"')).toEqual(['[]', `"it's"`])
  })

  test('existing messages are counted, except those of an unfinished run', async () => {
    await migrateSqlite(file, upTo('sqlite', MESSAGE_COUNT))
    const connection = new Sqlite(file)
    connection.exec(`PRAGMA foreign_keys = OFF; ${CONVERSATIONS}`)
    connection.exec(readFileSync(join(prisma, 'migrations', 'sqlite', MESSAGE_COUNT, 'migration.sql'), 'utf8'))
    connection.close()
    expect(rows(MESSAGE_COUNTS)).toEqual(['busy', 2, 'idle', 4, 'new', 0])
  })

  /** Migrates a database that contains these statements' rows from before the migration. */
  async function bringUpToDate(migration: string, filling: string): Promise<void> {
    await migrateSqlite(file, upTo('sqlite', migration))
    const connection = new Sqlite(file)
    connection.exec(filling)
    connection.close()
    await migrateSqlite(file)
  }

  test('existing credentials belong to their author, as far as one is known', async () => {
    await bringUpToDate(CREDENTIAL_SETTERS, CREDENTIALS)
    expect(rows(SETTERS)).toEqual(EXPECTED_SETTERS.flat())
  })

  test('totals count the existing rows', async () => {
    await bringUpToDate(TOTALS, COUNTED)
    expect(rows(COUNTS)).toEqual(EXPECTED_COUNTS.flat())
  })

  test('existing rows of all searched lists have the text that searches look in', async () => {
    await bringUpToDate(SEARCH_MORE, TITLED)
    expect(rows(SEARCHED_TEXTS)).toEqual(EXPECTED_TEXTS.flat())
  })

  test('a trigram search finds the existing agents', async () => {
    await bringUpToDate(TOTALS, COUNTED)
    const found = (trigrams: string) =>
      rows(`SELECT "agentId" FROM "AgentText" t JOIN "AgentTextKey" k ON k."key" = t."rowid"
        WHERE "AgentText" MATCH '${trigrams}' ORDER BY 1`)
    expect(found('"age" AND "ent"')).toEqual(['gone', 'open', 'secret', 'shared'])
    expect(found('"har"')).toEqual(['shared'])
  })
})

describe.skipIf(process.env.SKIP_POSTGRES === '1')('PostgreSQL', () => {
  let postgres: Postgres
  beforeAll(async () => {
    postgres = await startPostgres()
  })
  afterAll(() => postgres?.[Symbol.asyncDispose]())

  async function rows(url: string, sql: string): Promise<unknown[][]> {
    const adapter = await new PrismaPg(url).connect()
    try {
      return (await adapter.queryRaw({ sql, args: [], argTypes: [] })).rows
    } finally {
      await adapter.dispose()
    }
  }

  /** Begins a transaction, which lasts until it is disposed of. */
  async function transaction(url: string, sql: string): Promise<AsyncDisposable & { pid: number }> {
    const client = new Client({ connectionString: url, application_name: 'pg_dump' })
    await client.connect()
    await client.query(`BEGIN; ${sql}`)
    const { pid } = (await client.query<{ pid: number }>('SELECT pg_backend_pid() AS "pid"')).rows[0]!
    return { pid, [Symbol.asyncDispose]: () => client.end() }
  }

  test('the migrations create the tables of the models', async () => {
    const migrated = await postgres.createDatabase()
    await migratePostgresql(migrated)
    const wanted = await postgres.createDatabase()
    const twin = postgresqlTwin(models)
    const script = await diff(noDatabase('postgres'), schema(emptied(twin)), schema(twin))
    await migratePostgresql(wanted, { migrations: migrations('postgresql', { '1_all': script }) })
    const partial = `SELECT indexname FROM pg_indexes WHERE schemaname = 'public' AND indexdef LIKE '%WHERE%' ORDER BY 1`
    expect((await rows(migrated, partial)).flat()).toEqual(PARTIAL)
    const others = [...PARTIAL.map((name) => `DROP INDEX "${name}"`), WITHOUT_SEARCH.postgresql, WITHOUT_EVENTS]
    for (const sql of others) await rows(migrated, sql)
    expect(await rows(migrated, CATALOG)).toEqual(await rows(wanted, CATALOG))
    expect((await rows(migrated, CATALOG)).length).toBeGreaterThan(100)
  })

  test('each migration is applied once, in order, whatever the number of starting servers', async () => {
    const url = await postgres.createDatabase()
    const scripts = migrations('postgresql', {
      '1_table': 'CREATE TABLE "t" ("n" INTEGER); INSERT INTO "t" VALUES (1)',
      '2_more': 'INSERT INTO "t" SELECT max("n") + 1 FROM "t"',
    })
    await Promise.all([1, 2, 3, 4, 5].map(() => migratePostgresql(url, { migrations: scripts })))
    await migratePostgresql(url, { migrations: scripts })
    expect(await rows(url, 'SELECT "n" FROM "t" ORDER BY 1')).toEqual([[1], [2]])
  })

  test('a database with another encoding is refused', async () => {
    const url = new URL(await postgres.createDatabase())
    await rows(url.href, `CREATE DATABASE "bytes" ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
    url.pathname = '/bytes'
    await expect(migratePostgresql(url.href)).rejects.toThrow(
      /the encoding of the database is SQL_ASCII, and must be UTF8\. Create the database again: CREATE DATABASE /,
    )
  })

  test('a PostgreSQL that is too old is refused, with the oldest version that works', async () => {
    const url = await postgres.createDatabase()
    await rows(url, `ALTER DATABASE "${new URL(url).pathname.slice(1)}" SET search_path = public, pg_catalog`)
    await rows(url, `CREATE FUNCTION public.current_setting(text) RETURNS text LANGUAGE sql AS $$SELECT '12.22'$$`)
    await expect(migratePostgresql(url)).rejects.toThrow(/^Muster needs PostgreSQL 13 or later\. 127\S+ has 12\.22\.$/)
  })

  test('a role that cannot create tables in the schema public is refused, with the way out', async () => {
    const url = new URL(await postgres.createDatabase())
    await rows(url.href, 'CREATE ROLE guest LOGIN')
    await rows(url.href, 'REVOKE CREATE ON SCHEMA public FROM PUBLIC')
    url.username = 'guest'
    await expect(migratePostgresql(url.href)).rejects.toThrow(/permission denied .+ the owner of the database$/)
    url.username = 'postgres'
    await rows(url.href, 'CREATE SCHEMA guest AUTHORIZATION guest')
    url.username = 'guest'
    await expect(migratePostgresql(url.href)).rejects.toThrow(/SET search_path = public\. .+ guest\.$/)
  })

  test('tables that the API of a database host serves to anyone are reported at the start', async () => {
    const url = await postgres.createDatabase()
    // As Supabase does by default.
    for (const role of ['anon', 'authenticated']) await rows(url, `CREATE ROLE ${role}`)
    await rows(url, 'ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO anon, authenticated')
    const { client, close } = await openDatabase({ DATABASE_URL: url, DATA_DIR: '', DATABASE_POOL_SIZE: 1 })
    const reported: object[] = []
    const look = () => warnOfExposure(client, { warn: (facts: object) => void reported.push(facts) })
    await look()
    expect(reported).toEqual([{ roles: ['anon', 'authenticated'] }])
    await rows(url, 'REVOKE ALL ON ALL TABLES IN SCHEMA public FROM anon')
    await rows(url, 'ALTER TABLE "Execution" ENABLE ROW LEVEL SECURITY')
    await look()
    await rows(url, 'ALTER TABLE "Execution" DISABLE ROW LEVEL SECURITY')
    await look()
    expect(reported.slice(1)).toEqual([{ roles: ['authenticated'] }])
    await close()
  })

  /** Creates a database with a role that may make tables, and returns its URLs for this role and for the superuser. */
  async function withRole(role: string): Promise<{ url: string; superuser: string }> {
    const superuser = await postgres.createDatabase()
    await rows(superuser, `CREATE ROLE ${role} LOGIN`)
    await rows(superuser, `GRANT CREATE ON SCHEMA public TO ${role}`)
    await rows(superuser, `GRANT CREATE ON DATABASE "${new URL(superuser).pathname.slice(1)}" TO ${role}`)
    return { url: Object.assign(new URL(superuser), { username: role }).href, superuser }
  }

  test('tables of other programs in the schema are left alone, whatever columns they have', async () => {
    const { url, superuser } = await withRole('tenant')
    await rows(superuser, 'CREATE TABLE "Bill" ("organizationId" TEXT, "agentOrganizationId" TEXT)')
    await migratePostgresql(url)
    const options = `SELECT "attoptions" FROM pg_attribute WHERE "attrelid" = '"Bill"'::regclass AND "attnum" > 0`
    expect(await rows(superuser, options)).toEqual([[null], [null]])
  })

  test('a migration of a table that another role owns is refused, with the way out', async () => {
    const { url, superuser } = await withRole('renter')
    const scripts = migrations('postgresql', { '1_wide': 'ALTER TABLE "t" ADD COLUMN "m" INTEGER' })
    await rows(superuser, 'CREATE TABLE "t" ("n" INTEGER)')
    await expect(migratePostgresql(url, { migrations: scripts })).rejects.toThrow(
      /must be owner of table t\. Make the role of DATABASE_URL the owner .+: ALTER TABLE … OWNER TO …$/,
    )
  })

  test('a failing migration is undone as a whole, and the error names it and the reason', async () => {
    const url = await postgres.createDatabase()
    const scripts = migrations('postgresql', {
      '1_good': 'CREATE TABLE "t" ("n" INTEGER)',
      '2_bad': 'CREATE TABLE "u" ("n" INTEGER); INSERT INTO "nowhere" VALUES (1)',
    })
    await expect(migratePostgresql(url, { migrations: scripts })).rejects.toThrow(
      'The migration 2_bad failed and was undone: relation "nowhere" does not exist',
    )
    expect(await rows(url, `SELECT to_regclass('t') IS NOT NULL, to_regclass('u') IS NOT NULL`)).toEqual([
      [true, false],
    ])
  })

  test('requests pass while a migration waits for a table that a dump has locked', async () => {
    const url = await postgres.createDatabase()
    await rows(url, 'CREATE TABLE "t" ("n" INTEGER)')
    await using dump = await transaction(url, 'LOCK TABLE "t" IN ACCESS SHARE MODE')
    const blocked = Promise.withResolvers<BlockedMigration>()
    const scripts = migrations('postgresql', { '1_wide': 'ALTER TABLE "t" ADD COLUMN "m" INTEGER' })
    const lockWait = { longest: 50, pause: 10 }
    const migrating = migratePostgresql(url, { migrations: scripts, lockWait, onBlocked: blocked.resolve })
    expect(await blocked.promise).toEqual({
      migration: '1_wide',
      sessions: [{ pid: dump.pid, user: 'postgres', application: 'pg_dump' }],
    })
    expect(await rows(url, 'SELECT "n" FROM "t"')).toEqual([])
    await dump[Symbol.asyncDispose]()
    await migrating
    expect(await rows(url, 'SELECT "n", "m" FROM "t"')).toEqual([])
  })

  test("each column with an organization's id is planned as if there were ten organizations", async () => {
    const url = await postgres.createDatabase()
    await migratePostgresql(url)
    const others = await rows(
      url,
      `SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND NOT a.attisdropped
          AND a.attname ~* 'organizationId$' AND a.attoptions IS DISTINCT FROM '{n_distinct=10}'`,
    )
    expect(others).toEqual([])
  })

  test('a server that waits for another one to migrate says so, and goes on if that is killed', async () => {
    const url = await postgres.createDatabase()
    await using forwarder = await startForwarder(url)
    const lockWait = { longest: 50, pause: 10 }
    const sleep = 'SELECT pg_sleep(3600)'
    const of = (sql: string) => ({ migrations: migrations('postgresql', { '1_slow': sql }), lockWait })
    const killed = migratePostgresql(forwarder.url, of(sleep)).catch(() => 'killed')
    const sleeping = () => rows(url, `SELECT "pid" FROM pg_stat_activity WHERE "query" = '${sleep}'`)
    await expect.poll(sleeping).toHaveLength(1)
    const [[pid] = []] = await sleeping()
    const blocked = Promise.withResolvers<BlockedMigration>()
    const next = migratePostgresql(url, { ...of('SELECT 1'), onBlocked: blocked.resolve })
    expect(await blocked.promise).toMatchObject({ migration: '1_slow', sessions: [{ pid }] })
    forwarder.cut()
    expect(await killed).toBe('killed')
    await next
  })

  test('a migration takes longer than the time limits of the role', async () => {
    const url = await postgres.createDatabase()
    const limits = ['statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout']
    const name = new URL(url).pathname.slice(1)
    for (const limit of limits) await rows(url, `ALTER DATABASE "${name}" SET ${limit} = '1s'`)
    await migratePostgresql(url, { migrations: migrations('postgresql', { '1_slow': 'SELECT pg_sleep(1.1)' }) })
    expect(await rows(url, 'SELECT count(*) FROM "_prisma_migrations"')).toEqual([['1']])
  })

  test('a database in which another program has a table of the same name is refused unchanged', async () => {
    const url = await postgres.createDatabase()
    await rows(url, 'CREATE TABLE "User" ("id" INTEGER)')
    await expect(migratePostgresql(url)).rejects.toThrow(
      /_init failed and was undone: .*"User" already exists\. Give Muster a database of its own \(DATABASE_URL\)$/,
    )
    expect(await rows(url, `SELECT "tablename" FROM "pg_tables" WHERE "schemaname" = 'public'`)).toEqual([['User']])
  })

  /** Migrates a database that had these rows before the migration. */
  async function migrated(before: string, script: string): Promise<string> {
    const url = await postgres.createDatabase()
    await migratePostgresql(url, { migrations: upTo('postgresql', before) })
    const adapter = await new PrismaPg(url).connect()
    await adapter.executeScript(script)
    await adapter.dispose()
    await migratePostgresql(url)
    return url
  }

  test('existing messages are counted, except those of an unfinished run', async () => {
    const url = await migrated(MESSAGE_COUNT, `SET session_replication_role = replica; ${CONVERSATIONS}`)
    expect(await rows(url, MESSAGE_COUNTS)).toEqual([
      ['busy', 2],
      ['idle', 4],
      ['new', 0],
    ])
  })

  test('existing credentials belong to their author, as far as one is known', async () => {
    const url = await migrated(CREDENTIAL_SETTERS, CREDENTIALS)
    expect(await rows(url, SETTERS)).toEqual(EXPECTED_SETTERS)
  })

  test('totals count the existing rows', async () => {
    const url = await migrated(TOTALS, COUNTED)
    expect(await rows(url, COUNTS)).toEqual(EXPECTED_COUNTS)
  })

  test('existing rows of all searched lists have the text that searches look in', async () => {
    expect(await rows(await migrated(SEARCH_MORE, TITLED), SEARCHED_TEXTS)).toEqual(EXPECTED_TEXTS)
  })

  test('the client works as on SQLite', async () => {
    const url = await postgres.createDatabase()
    const settings = { DATABASE_URL: url, DATA_DIR: folder, DATABASE_POOL_SIZE: 2 }
    const { client, kind, close } = await openDatabase(settings)
    const createdAt = new Date('2026-01-02T03:04:05.678Z')
    await client.$transaction((tx) => tx.organization.create({ data: { id: 'o', name: 'a', slug: 'o', createdAt } }))
    expect(kind).toBe('postgresql')
    expect(await client.organization.findUnique({ where: { id: 'o' } })).toMatchObject({ id: 'o', createdAt })
    await close()
  })
})

/** Lists the parts of a schema in a fixed order: columns, constraints, indexes, enums. */
const CATALOG = `
  SELECT 'column', table_name, column_name, udt_name || ' ' || is_nullable || ' ' || coalesce(column_default, '') ||
      ' ' || coalesce(datetime_precision::text, '') AS definition
    FROM information_schema.columns WHERE table_schema = 'public'
  UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype <> 't'
  UNION ALL SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
  UNION ALL SELECT 'enum', typname, enumlabel, enumsortorder::text
    FROM pg_enum JOIN pg_type ON pg_type.oid = enumtypid
  ORDER BY 1, 2, 3, 4`
