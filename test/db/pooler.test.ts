import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openDatabase } from '../../src/db/client.ts'
import { violations } from '../engine/invariants.ts'
import { createFolder } from '../support/folder.ts'
import { startModelServer } from '../support/model-server.ts'
import { hasPgbouncer, type Pgbouncer, startPgbouncer } from '../support/pgbouncer.ts'
import { postgresEnv } from '../support/postgres.ts'
import { hasPostgres, type SharedDatabase, shareEmptyDatabase } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'

if (!hasPgbouncer) console.warn('The program pgbouncer is not installed: nothing is tried behind it')

describe.runIf(hasPgbouncer && hasPostgres)('behind PgBouncer', () => {
  let database: SharedDatabase
  let pooler: Pgbouncer
  const cleanup = new AsyncDisposableStack()
  beforeAll(async () => {
    database = cleanup.adopt(await shareEmptyDatabase(), ({ drop }) => drop())
    pooler = cleanup.use(await startPgbouncer(database.url))
  })
  afterAll(() => cleanup.disposeAsync())

  const opened = async (url: string, direct?: string) => {
    const source = { DATA_DIR: '', DATABASE_URL: url, DATABASE_POOL_SIZE: 2, DATABASE_DIRECT_URL: direct }
    const { client, close } = await openDatabase(source)
    try {
      await client.$transaction((tx) => tx.organization.count())
    } finally {
      await close()
    }
  }

  it('a server migrates, runs and listens by transaction, beyond the connections of the pooler', async () => {
    await using folder = await createFolder()
    await using model = await startModelServer()
    await using server = await startServer({
      OPENAI_BASE_URL: model.baseUrl,
      DEFAULT_MODEL: 'compatible/test-model',
      ...postgresEnv(pooler.by('transaction'), folder.path),
      DATABASE_DIRECT_URL: database.url,
    })
    const body = { name: 'Ada', systemPrompt: 'You are Ada.' }
    const { id } = (await request(server, 'POST', '/api/v1/agents', { body })).body
    const path = `/api/v1/agents/${id}`
    const execute = () => request(server, 'POST', `${path}/execute`, { body: { message: 'Hello' } })
    for (let round = 0; round < 3; round++) {
      const work = Array.from({ length: 20 }, (_, index) => (index % 2 ? request(server, 'GET', path) : execute()))
      expect(new Set((await Promise.all(work)).map(({ status }) => status))).toEqual(new Set([200]))
    }
    expect((await request(server, 'GET', '/readyz')).body.notices).toBe('listening')
    expect(await violations(server.service.deps.db)).toEqual([])
    expect(server.logs.filter((line) => JSON.parse(line).level >= 50)).toEqual([])
  })

  it('a server makes do with the few connections that a pooler accepts', async () => {
    await using narrow = await startPgbouncer(database.url, 3)
    const source = { DATABASE_URL: narrow.by('transaction'), DATABASE_DIRECT_URL: database.url, DATABASE_POOL_SIZE: 10 }
    const { client, close } = await openDatabase({ DATA_DIR: '', ...source })
    try {
      // Longer than the retries of a connection that is lost.
      const work = () => client.$transaction((tx) => tx.$queryRaw`SELECT pg_sleep(0.1)::text`)
      await expect(Promise.all(Array.from({ length: 20 }, work))).resolves.toHaveLength(20)
    } finally {
      await close()
    }
  })

  it('a database by session works like PostgreSQL itself', async () => {
    await opened(pooler.by('session'))
  })

  it('a server that has no other way to the database than by transaction names the setting', async () => {
    const way = pooler.by('transaction')
    for (const direct of [undefined, `${way}?application_name=direct`])
      await expect(opened(way, direct)).rejects.toThrow(
        /by transaction.*Set DATABASE_DIRECT_URL to the address of Postgre/,
      )
  })

  it('a pooler that lends by statement is refused', async () => {
    await expect(opened(pooler.by('statement'), database.url)).rejects.toThrow(/by statement.*pool_mode to transaction/)
  })
})
