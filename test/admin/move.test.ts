import { copyFile, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { Client } from 'pg'
import { beforeAll, describe, expect, test } from 'vitest'
import { getDatamodel } from '../../prisma/generated/pothos.ts'
import * as enums from '../../prisma/generated/sqlite/enums.ts'
import { createProgress } from '../../src/admin/progress.ts'
import { runAdmin } from '../../src/admin/run.ts'
import { dataKeyContext } from '../../src/crypto/data-key.ts'
import { unseal } from '../../src/crypto/envelope.ts'
import { migratePostgresql } from '../../src/db/postgresql/migrate.ts'
import { contextOf } from '../../src/secrets/resolve.ts'
import { createFolder } from '../support/folder.ts'
import { startPostgres } from '../support/postgres.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

type Field = { name: string; kind: string; type: string; isRequired: boolean; isId: boolean }
const MODELS = Object.entries(
  (getDatamodel().datamodel as unknown as { models: Record<string, { fields: Field[] }> }).models,
).map(([name, { fields }]) => ({ name, fields: fields.filter(({ kind }) => kind !== 'object') }))

let token: string
let executionId: string

/** Creates the file of a used server, with rows in every table. */
const postgres = await use(startPostgres())
const source = await use(createFolder())
beforeAll(async () => {
  await using server = await startServer({}, { folder: source.path })
  token = server.token
  const { body: agent } = await request(server, 'POST', '/api/v1/agents', {
    body: { name: 'Ada 😀 "\\', systemPrompt: 'Line\nline' },
  })
  const { body: run } = await request(server, 'POST', `/api/v1/agents/${agent.id}/execute`, { body: { message: 'Hi' } })
  executionId = run.executionId
  const { body } = await request(server, 'GET', '/api/v1/spaces')
  const secrets = { body: { secrets: { API_KEY: 'the value' } } }
  await request(server, 'POST', `/api/v1/spaces/${body.spaces[0].id}/secrets`, secrets)
  await server[Symbol.asyncDispose]()
  fill(join(source.path, 'muster.db'))
})

/** Two rows in each table: one with a value in every column, and one with as few as possible. */
function fill(file: string): void {
  const database = new Sqlite(file)
  database.pragma('foreign_keys = OFF')
  for (const { name, fields } of MODELS) {
    for (const number of [1001, 1002]) {
      const given = fields.filter(({ isRequired }) => isRequired || number === 1001)
      const columns = given.map((field) => `"${field.name}"`).join(', ')
      const values = given.map((field) => sampleOf(field, number))
      database.prepare(`INSERT INTO "${name}" (${columns}) VALUES (${values.map(() => '?')})`).run(values)
    }
  }
  // Triggers announce the rows of other tables.
  database.exec(`DELETE FROM "OrganizationEvent" WHERE "organizationId" LIKE '100_ %' AND "type" NOT LIKE '100_ %'`)
  expect(database.pragma('foreign_key_check')).toEqual([])
  database.close()
}

/**
 * The same number for all columns of a type, so that every reference leads to the row of that number; states are final.
 */
function sampleOf({ name, kind, type }: Field, number: number): unknown {
  if (kind === 'enum') return Object.values((enums as Record<string, Record<string, string>>)[type] ?? {}).at(-1)
  if (type === 'String') return `${number} "ö\\ \t\n${'😀'} 'x' {}`
  if (type === 'DateTime') return Date.UTC(2026, 2, 29, 1, 30, 0, number % 1000)
  if (type === 'Bytes') return Buffer.from([0, 1, 254, 255, number % 256])
  if (type === 'Json') return JSON.stringify({ b: [1.5, 1e21, 'ü'], a: { d: null, c: [{}] }, [name]: `${number}` })
  if (type === 'BigInt') return 2n ** 60n + BigInt(number)
  if (type === 'Boolean') return number === 1001 ? 1 : 0
  if (type === 'Int') return number
  throw new Error(`${name} is of an unknown type: ${type}`)
}

/** The databases sort differently. */
const byKey = (a: unknown, b: unknown) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)

const move = (to: string, folder = source.path) => runAdmin(['move', '--to', to, '--json'], { DATA_DIR: folder })

async function sql(url: string, text: string): Promise<any[]> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

const FOREIGN_KEYS = `SELECT conrelid::regclass::text AS of, conname, pg_get_constraintdef(oid) FROM pg_constraint
  WHERE contype = 'f' ORDER BY 1, 2`

async function expectEmpty(url: string): Promise<void> {
  for (const { name } of MODELS) expect([name, await sql(url, `SELECT * FROM "${name}"`)]).toEqual([name, []])
}

describe('a moved database', () => {
  let url: string
  beforeAll(async () => {
    url = await postgres.createDatabase()
    // Settings of a database or a role that are for its other programs.
    const database = `ALTER DATABASE "${new URL(url).pathname.slice(1)}"`
    const theirs = ["DateStyle = 'German'", "TimeZone = 'Asia/Kathmandu'", "bytea_output = 'escape'"]
    for (const setting of [...theirs, "transaction_timeout = '2s'"]) await sql(url, `${database} SET ${setting}`)
    const { code, out, err } = await move(url)
    expect([code, err]).toEqual([0, ''])
    await sql(url, `${database} RESET ALL`)
    const { tables, rows } = JSON.parse(out)
    expect(tables.map(({ name }: { name: string }) => name)).toEqual(MODELS.map(({ name }) => name))
    expect(rows).toBeGreaterThan(2 * MODELS.length + 10)
  })

  test('has every row with every value', async () => {
    const file = new Sqlite(join(source.path, 'muster.db'), { readonly: true })
    for (const { name, fields } of MODELS) {
      const [{ count }] = await sql(url, `SELECT count(*)::int AS count FROM "${name}"`)
      expect([name, count]).toEqual([name, file.prepare(`SELECT count(*) FROM "${name}"`).pluck().get()])
      // The driver reads the values, without the encoding of the writer. Its clock counts times in UTC.
      const columns = fields.map(({ name, type }) =>
        type === 'DateTime' ? `"${name}" AT TIME ZONE 'UTC' AS "${name}"` : `"${name}"`,
      )
      const id = fields.find(({ type, kind }) => type === 'String' && kind === 'scalar')
      const where = id ? `"${id.name}" LIKE '1001 %'` : `"id" = 1001`
      const [row] = await sql(url, `SELECT ${columns} FROM "${name}" WHERE ${where}`)
      for (const field of fields)
        expect([name, field.name, row[field.name]]).toEqual([name, field.name, expectedOf(field)])
    }
    file.close()
  })

  function expectedOf(field: Field): unknown {
    const value = sampleOf(field, 1001)
    if (field.type === 'DateTime') return new Date(value as number)
    if (field.type === 'Json') return JSON.parse(value as string)
    if (field.type === 'BigInt') return String(value)
    return field.type === 'Boolean' ? true : value
  }

  test('has the same references between rows', async () => {
    const fresh = await postgres.createDatabase()
    await migratePostgresql(fresh)
    expect(await sql(url, FOREIGN_KEYS)).toEqual(await sql(fresh, FOREIGN_KEYS))
  })

  test('has the original totals of lists, and maintains them', async () => {
    const file = new Sqlite(join(source.path, 'muster.db'), { readonly: true })
    const totals = 'SELECT * FROM "Total" ORDER BY 1, 2, 3, 4'
    const before = file.prepare(totals).all()
    file.close()
    expect(before.length).toBeGreaterThan(10)
    expect((await sql(url, totals)).toSorted(byKey)).toEqual(before.toSorted(byKey))
    const [{ count }] = await sql(
      url,
      'WITH gone AS (DELETE FROM "McpServer" RETURNING 1) SELECT count(*)::int FROM gone',
    )
    expect(count).toBe(2)
    expect(await sql(url, `SELECT sum("count")::int AS count FROM "Total" WHERE "list" = 'mcps'`)).toEqual([
      { count: 0 },
    ])
  })

  test('works with the previous encryption key: tokens, runs and secrets are unchanged', async () => {
    const key = (await readFile(join(source.path, 'encryption.key'), 'utf8')).trim()
    await using folder = await createFolder()
    await using server = await startServer({ DATABASE_URL: url, ENCRYPTION_KEY: key }, { folder: folder.path })
    const as = { url: server.url, token }
    const { body } = await request(as, 'GET', `/api/v1/executions/${executionId}`)
    expect(body.execution).toMatchObject({ status: 'completed', message: 'Hi' })
    const { body: stream } = await request(as, 'GET', `/api/v1/executions/${executionId}/events`)
    expect(stream).toContain('event: result')
    const { db, wrappingKey } = server.service.deps
    const secret = await db.secret.findFirstOrThrow({ where: { name: 'API_KEY' } })
    const { organizationId } = secret
    const { wrapped } = await db.dataKey.findUniqueOrThrow({ where: { organizationId } })
    const dataKey = unseal(wrappingKey, dataKeyContext(organizationId), wrapped)
    expect(unseal(dataKey, contextOf(secret), secret.ciphertext).toString()).toBe('the value')
  })

  test('accepts no second copy, as after a move that was killed before its report', async () => {
    const { code, err } = await move(url)
    expect(code).toBe(1)
    expect(err).toMatch(/^An earlier move has copied .* Start Muster with DATABASE_URL set to it\./)
  })

  test('accepts no copy of another installation', async () => {
    await using folder = await createFolder()
    const file = join(folder.path, 'muster.db')
    new Sqlite(join(source.path, 'muster.db')).prepare('VACUUM INTO ?').run(file)
    const other = new Sqlite(file)
    other.exec(`UPDATE "Installation" SET "masterKey" = x'00'`)
    other.close()
    const { code, err } = await move(url, folder.path)
    expect([code, err]).toEqual([
      1,
      'The target is not empty: there are rows in Installation. Give it a database of its own.',
    ])
  })
})

describe('a copy of the database', () => {
  const markIn = async (url: string) =>
    (await sql(url, 'SELECT "pausedBy", "pausedAt" FROM "Installation" WHERE "id" = 1'))[0]
  const drafts = async (url: string) => (await sql(url, 'SELECT * FROM "MediaDraft"')).length

  /** A folder with a copy of the source's database that `change` has modified. */
  async function createCopy(change: (file: Sqlite.Database) => void) {
    const folder = await createFolder()
    const path = join(folder.path, 'muster.db')
    new Sqlite(join(source.path, 'muster.db')).prepare('VACUUM INTO ?').run(path)
    await copyFile(join(source.path, 'encryption.key'), join(folder.path, 'encryption.key'))
    const file = new Sqlite(path)
    change(file)
    file.close()
    return folder
  }

  test('a paused copy is paused on PostgreSQL too, even before a server has started on it', async () => {
    const url = await postgres.createDatabase()
    await using folder = await createCopy((file) => file.pragma('user_version = -70000'))
    const { out, err } = await move(url, folder.path)
    expect([err, JSON.parse(out || '{}').paused]).toEqual(['', true])
    expect(await markIn(url)).toMatchObject({ pausedBy: 'backup', pausedAt: expect.any(Date) })
    // Uploads of the original do not belong to the copy.
    expect(await drafts(url)).toBe(0)
    const key = (await readFile(join(folder.path, 'encryption.key'), 'utf8')).trim()
    const env = { DATABASE_URL: url, ENCRYPTION_KEY: key }
    await using server = await startServer(env, { folder: folder.path })
    const readiness = async () => (await (await fetch(`${server.url}/readyz`)).json()).status
    expect(await readiness()).toBe('paused')
    const resumed = await runAdmin(['resume'], { ...env, DATA_DIR: folder.path })
    expect([resumed.err, resumed.out]).toEqual(['', expect.stringContaining('The pause has ended')])
    await expect.poll(readiness).toBe('ok')
  })

  test('is paused if its folder counted more starts, or if it has a mark', async () => {
    const older = await postgres.createDatabase()
    await using folder = await createCopy(() => {})
    await writeFile(join(folder.path, 'starts.json'), JSON.stringify({ installation: 'muster-0', starts: 9 }))
    expect((await move(older, folder.path)).err).toBe('')
    expect(await markIn(older)).toMatchObject({ pausedBy: 'older' })

    const marked = await postgres.createDatabase()
    const at = Date.UTC(2026, 2, 3)
    await using other = await createCopy((file) =>
      file.prepare(`UPDATE "Installation" SET "pausedBy" = 'mark-copy', "pausedAt" = ? WHERE "id" = 1`).run(at),
    )
    expect((await move(marked, other.path)).err).toBe('')
    expect(await markIn(marked)).toMatchObject({ pausedBy: 'mark-copy' })
  })

  test('starts unpaused if its own server used it last', async () => {
    const url = await postgres.createDatabase()
    const { out } = await move(url)
    expect(JSON.parse(out).paused).toBe(false)
    expect(await markIn(url)).toEqual({ pausedBy: null, pausedAt: null })
  })
})

describe('nothing is copied', () => {
  test('nothing is copied while a server uses the file', async () => {
    await using server = await startServer()
    const url = await postgres.createDatabase()
    const { code, err } = await move(url, server.folder)
    const file = join(server.folder, 'muster.db')
    expect(code).toBe(1)
    expect(err).toContain(`Another Muster server (pid ${process.pid}) uses ${file}. Stop it first`)
    expect(
      await sql(url, 'SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()'),
    ).toEqual([])
  })

  test('nothing is copied into a database with other content, which stays unchanged', async () => {
    const url = await postgres.createDatabase()
    await sql(url, 'CREATE TABLE "theirs" ("id" int)')
    const { code, err } = await move(url)
    expect([code, err]).toEqual([1, 'The target is not empty: it has a table theirs. Give it a database of its own.'])
    expect(await sql(url, 'SELECT to_regclass(\'"Installation"\') AS found')).toEqual([{ found: null }])
  })

  test('nothing is copied from a file of an earlier version', async () => {
    const url = await postgres.createDatabase()
    await using folder = await createFolder()
    const file = join(folder.path, 'muster.db')
    new Sqlite(join(source.path, 'muster.db')).prepare('VACUUM INTO ?').run(file)
    const older = new Sqlite(file)
    older.exec(
      `DELETE FROM "_prisma_migrations" WHERE "migration_name" = (SELECT max("migration_name") FROM "_prisma_migrations")`,
    )
    older.close()
    const { code, err } = await move(url, folder.path)
    expect([code, err]).toEqual([1, expect.stringContaining('Start the server once to migrate it')])
  })

  test('nothing is copied when a row arrives changed', async () => {
    const url = await postgres.createDatabase()
    await migratePostgresql(url)
    await sql(url, `CREATE RULE change AS ON INSERT TO "Mission" DO ALSO UPDATE "Mission" SET title = title || '!'`)
    const { code, err } = await move(url)
    expect([code, err]).toEqual([
      1,
      'The copy of Mission differs from the original, so nothing was kept. Stop the server, then try again.',
    ])
    await expectEmpty(url)
  })

  test('nothing is copied if a row has a dangling reference, or a value that PostgreSQL rejects', async () => {
    const url = await postgres.createDatabase()
    await using folder = await createFolder()
    const file = join(folder.path, 'muster.db')
    new Sqlite(join(source.path, 'muster.db')).prepare('VACUUM INTO ?').run(file)
    const copy = new Sqlite(file)
    copy.pragma('foreign_keys = OFF')
    copy.exec(`UPDATE "Task" SET "spaceId" = 'nothing'`)
    const broken = await move(url, folder.path)
    expect([broken.code, broken.err]).toEqual([1, expect.stringContaining('violates foreign key constraint')])
    await expectEmpty(url)
    copy.prepare('UPDATE "Task" SET "title" = ?').run('a\0b')
    copy.close()
    const { code, err } = await move(url, folder.path)
    expect([code, err]).toEqual([
      1,
      'Task has text with a NUL character, which PostgreSQL cannot store. Remove it first.',
    ])
  })

  test.each([
    [
      'to something that is no PostgreSQL',
      ['--to', 'file:x'],
      1,
      '--to takes an address that begins with postgresql://',
    ],
    ['to where nothing answers', ['--to', 'postgresql://127.0.0.1:1/x'], 1, expect.stringContaining('ECONNREFUSED')],
    ['to nowhere', [], 2, 'Missing option: --to. Usage: move --to URL'],
  ])('%s', async (_, args, code, err) => {
    expect(await runAdmin(['move', ...args], { DATA_DIR: source.path })).toEqual({ code, out: '', err })
  })
})

describe('the progress', () => {
  const output = (isTTY: boolean) => {
    const written: string[] = []
    const progress = createProgress({ isTTY, write: (text: string) => written.push(text) > 0 })
    for (const done of [0, 50, 50, 100]) progress.show(done, 100, 'Task')
    progress.end()
    return written.map((text) => text.replace('\r\x1b[K', '')).join('|')
  }

  test('is a bar on a terminal, which disappears, and is drawn only when it changes', () => {
    const [none, half, full] = ['░'.repeat(30), '█'.repeat(15) + '░'.repeat(15), '█'.repeat(30)]
    expect(output(true)).toBe(`${none} 0 %  Task|${half} 50 %  Task|${full} 100 %  Task|`)
  })

  test('is absent from a file', () => expect(output(false)).toBe(''))
})
