import { Client } from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Db, openDatabase, Prisma, type Tx } from '../../src/db/client.ts'
import { expectsOne } from '../../src/db/fast-path/index.ts'
import { openPool } from '../../src/db/postgresql/pool.ts'
import { violations, watchTransitions } from '../engine/invariants.ts'
import { createFolder } from '../support/folder.ts'
import { startForwarder } from '../support/forwarder.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { postgresEnv, runSql } from '../support/postgres.ts'
import { hasPostgres, shareDatabase } from '../support/postgres-shared.ts'
import { type Receiver, startReceiver } from '../support/receiver.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'

/** PostgreSQL's answer to a new connection while it starts or stops: an ErrorResponse. */
const STARTING = (() => {
  const fields = ['SFATAL', 'VFATAL', 'C57P03', 'Mthe database system is starting up', '']
  const body = Buffer.from(fields.map((field) => `${field}\0`).join(''))
  const head = Buffer.from('E....')
  head.writeInt32BE(body.length + 4, 1)
  return Buffer.concat([head, body])
})()

const LOCK_TIMEOUT = 'options=-c%20lock_timeout%3D300'

/** Raises the error that a title asks for: always, or until it was raised a number of times (`fail 40001 2`). */
const TRIGGERS = `
  CREATE SEQUENCE raised MINVALUE 0 START 0;
  CREATE TABLE disk (is_full boolean);
  CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
  DECLARE words text[] := string_to_array(NEW.title, ' ');
  BEGIN
    IF words[1] = 'fail' AND (words[3] IS NULL OR nextval('raised') < words[3]::int) THEN
      RAISE EXCEPTION 'raised' USING ERRCODE = words[2];
    END IF;
    RETURN NEW;
  END $$;
  CREATE TRIGGER fail BEFORE INSERT ON "Task" FOR EACH ROW EXECUTE FUNCTION fail();
  CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    IF EXISTS (SELECT 1 FROM disk) THEN
      RAISE EXCEPTION 'could not extend file "base/16384/16397": No space left on device' USING ERRCODE = '53100';
    END IF;
    RETURN NULL;
  END $$;
  ${['Execution', 'ExecutionEvent', 'Message', 'Agent']
    .map((table) => `CREATE TRIGGER fill BEFORE INSERT ON "${table}" EXECUTE FUNCTION fill();`)
    .join('\n')}`

describe.runIf(hasPostgres)('PostgreSQL that fails under two servers', () => {
  let admin: string
  let role: string
  /** The URL of the servers' role. */
  let own: string
  let start: (url: string, more?: string) => Promise<TestServer>
  let first: TestServer
  let second: TestServer
  let model: ModelServer
  let receiver: Receiver
  let agentId: string
  let transitions: () => Promise<string[]>
  const cleanup = new AsyncDisposableStack()

  beforeAll(async () => {
    const database = cleanup.adopt(await shareDatabase(), ({ drop }) => drop())
    admin = database.url
    await runSql(admin, TRIGGERS)
    role = `server_${crypto.randomUUID().slice(0, 8)}`
    await runSql(admin, `CREATE ROLE ${role} LOGIN IN ROLE postgres`)
    cleanup.defer(async () => void (await runSql(admin, `REASSIGN OWNED BY ${role} TO postgres; DROP ROLE ${role}`)))
    const folder = cleanup.use(await createFolder())
    model = cleanup.use(await startModelServer())
    receiver = cleanup.use(await startReceiver())
    own = Object.assign(new URL(admin), { username: role }).href
    const env = {
      OPENAI_BASE_URL: model.baseUrl,
      DEFAULT_MODEL: 'compatible/test-model',
      ALLOW_PRIVATE_NETWORK: 'true',
      LEASE_DURATION: '5',
    }
    start = (url, more = '') => startServer({ ...env, ...postgresEnv(`${url}?${LOCK_TIMEOUT}${more}`, folder.path) })
    first = cleanup.use(await start(own))
    // Looks for the host that accepts writes whenever a connection breaks.
    second = cleanup.use(await start(own, '&target_session_attrs=read-write'))
    const body = { name: 'Ada', systemPrompt: 'You are Ada.' }
    agentId = (await request(first, 'POST', '/api/v1/agents', { body })).body.id
    transitions = await watchTransitions(first.service.deps.db)
  })
  afterAll(() => cleanup.disposeAsync())

  /** The second server with the token of the first. */
  const other = () => ({ url: second.url, token: first.token })
  const addTask = (title: string, server: Pick<TestServer, 'url' | 'token'> = first) =>
    request(server, 'POST', '/api/v1/tasks', { body: { title } })
  const tasks = (title: string) => first.service.deps.db.task.count({ where: { title } })
  const readiness = async (server: TestServer) => (await request(server, 'GET', '/readyz')).body
  /** The lines of a server's log that report a trouble; of the first one unless named. */
  const lines = (trouble?: string, { logs } = first) =>
    logs.filter((line) => trouble && JSON.parse(line).trouble === trouble)

  /** Ends the sessions of the servers one by one. Returns their number. */
  async function terminateAll(): Promise<number> {
    const ended = await runSql(
      admin,
      `SELECT pg_terminate_backend(pid), pg_sleep(0.005) FROM pg_stat_activity WHERE usename = '${role}'`,
    )
    return ended.length
  }

  const listening = () =>
    expect
      .poll(async () => [await readiness(first), await readiness(second)].map(({ notices }) => notices))
      .toEqual(['listening', 'listening'])

  async function accepted(body: object): Promise<string> {
    const headers = { 'Idempotency-Key': crypto.randomUUID() }
    for (;;) {
      const answer = await request(first, 'POST', `/api/v1/agents/${agentId}/execute`, { body, headers })
      if (answer.status === 200) return answer.body.executionId
      expect(answer.status).toBe(503)
    }
  }

  async function sound(): Promise<void> {
    const { db } = first.service.deps
    await expect.poll(() => db.execution.count({ where: { status: { in: ['pending', 'running'] } } })).toBe(0)
    expect(await transitions()).toEqual([])
    expect(await violations(db)).toEqual([])
  }

  it('repeats reads, continues runs, streams, webhooks and notices when sessions end one by one', async () => {
    const hook = { url: receiver.url, events: ['execution.completed'] }
    expect((await request(first, 'POST', '/api/v1/webhooks', { body: hook })).status).toBe(200)
    await listening()
    model.fallback = { tokens: Array.from({ length: 40 }, (_, index) => `t${index} `), delay: 25 }
    const ids: string[] = []
    const follow = async (server: { url: string; token: string }, id: string) => {
      await using stream = await openStream(server, `/api/v1/executions/${id}/events`)
      expect(stream.status, stream.text).toBe(200)
      return await stream.rest()
    }
    const streams: ReturnType<typeof follow>[] = []
    let over = false
    const statuses = new Set<number>()
    const read = async (server: { url: string; token: string }) => {
      while (!over) {
        const paths = ['/api/v1/agents', `/api/v1/executions/${ids[0]}`, '/readyz']
        for (const { status } of await Promise.all(paths.map((path) => request(server, 'GET', path))))
          statuses.add(status)
      }
    }
    for (let index = 0; index < 6; index++) {
      ids.push(await accepted({ message: 'Hello', background: true }))
      streams.push(follow(index % 2 ? first : other(), ids.at(-1)!))
    }
    const reading = [read(first), read(other())]
    let ended = 0
    for (let round = 0; round < 2; round++) {
      ended += await terminateAll()
      ids.push(await accepted({ message: 'Hello', background: true }))
    }
    over = true
    await Promise.all(reading)
    expect(ended).toBeGreaterThan(8)
    expect([...statuses]).toEqual([200])
    for (const events of await Promise.all(streams)) {
      expect(events.at(-1)?.event).toBe('result')
      expect(events.map(({ id }) => id)).toEqual([...new Set(events.map(({ id }) => id))].sort((a, b) => a - b))
    }
    await sound()
    await listening()
    const { db } = first.service.deps
    expect(await db.execution.count({ where: { id: { in: ids }, status: 'completed' } })).toBe(ids.length)
    expect(await db.execution.count()).toBe(ids.length)
    const delivered = () => new Set(receiver.received.map(({ body }) => body.data.id))
    await expect.poll(delivered).toEqual(new Set(ids))
    expect(lines('ended')).toHaveLength(1)
  })

  it('answers 503 while another session holds a lock, and continues when the lock is gone', async () => {
    const holder = new Client({ connectionString: admin })
    await holder.connect()
    try {
      model.fallback = { tokens: ['one ', 'two'] }
      await holder.query('BEGIN; LOCK TABLE "Task", "ExecutionEvent", "Message" IN EXCLUSIVE MODE')
      const refused = await addTask('locked')
      expect(refused).toMatchObject({ status: 503, body: { detail: expect.stringContaining('holds a lock') } })
      expect((await request(first, 'GET', '/api/v1/tasks')).status).toBe(200)
      const id = await request(first, 'POST', `/api/v1/agents/${agentId}/execute`, { body: { message: 'M' } })
      expect([200, 503]).toContain(id.status)
      expect(await tasks('locked')).toBe(0)
    } finally {
      await holder.end()
    }
    expect((await addTask('locked')).status).toBe(200)
    expect(await tasks('locked')).toBe(1)
    await sound()
    expect(lines('locked')).toHaveLength(1)
  })

  it.each([
    ['53100', 'disk_full', 'disk'],
    ['25006', 'read_only', 'no writes'],
    ['55P03', 'locked', 'lock'],
    ['57014', 'slow', 'too long'],
    ['25P03', 'idle', 'Nothing was written'],
    ['25P04', 'idle', 'Nothing was written'],
    ['57P03', 'starting', 'starting or stopping'],
    ['55000', 'no_database', 'dropped or renamed'],
    ['42501', 'no_access', 'may not use its tables'],
    ['58030', 'disk_error', 'its files'],
    ['40001', undefined, undefined],
    ['40P01', undefined, undefined],
  ])('answers %s with a clear 503, writes nothing, and serves the tasks beside it', async (code, trouble, detail) => {
    const before = lines(trouble).length
    const titles = [`fail ${code}`, ...Array.from({ length: 6 }, (_, index) => `beside ${code} ${index}`)]
    const answers = await Promise.all(titles.map((title) => addTask(title)))
    expect(answers.map(({ status }) => status)).toEqual([503, ...Array(6).fill(200)])
    expect(answers[0]?.body.detail).toContain(detail ?? 'Repeat the request')
    expect(await Promise.all(titles.map(tasks))).toEqual([0, ...Array(6).fill(1)])
    if (trouble) expect(lines(trouble).length).toBeGreaterThan(0)
    expect(lines(trouble).length - before).toBeLessThanOrEqual(1)
  })

  it.each(['40001', '40P01', '25P03', '25P04'])(
    'repeats a transaction that %s has undone, with one effect',
    async (code) => {
      await runSql(admin, `SELECT setval('raised', 0, false)`)
      expect((await addTask(`fail ${code} 3`)).status).toBe(200)
      expect(await tasks(`fail ${code} 3`)).toBe(1)
    },
  )

  it('repeats a transaction that PostgreSQL ends because it is idle, with one effect', async () => {
    const { db } = first.service.deps
    const before = lines('idle').length
    const data = (id: string) => ({ id, name: id, slug: id, createdAt: new Date() })
    let attempts = 0
    await db.$transaction(async (tx) => {
      await tx.organization.create({ data: data('idle one') })
      if (attempts++ === 0) {
        await tx.$executeRaw(Prisma.sql`SET LOCAL idle_in_transaction_session_timeout = '20ms'`)
        const open = `SELECT 1 FROM pg_stat_activity WHERE usename = '${role}' AND state LIKE 'idle in transaction%'`
        await expect.poll(() => runSql(admin, open)).toEqual([])
      }
      await tx.organization.create({ data: data('idle two') })
    })
    expect(attempts).toBe(2)
    expect(await db.organization.count({ where: { id: { in: ['idle one', 'idle two'] } } })).toBe(2)
    expect(lines('idle').length - before).toBeLessThanOrEqual(1)
    expect(lines('idle')).toHaveLength(1)
  })

  it('answers 503 while PostgreSQL starts or stops, and continues by itself with one effect', async () => {
    await using forwarder = await startForwarder(own)
    await using third = await start(forwarder.url, '&target_session_attrs=read-write')
    const { url } = third
    const { token } = first
    const headers = { 'Idempotency-Key': crypto.randomUUID() }
    const add = () => request({ url, token }, 'POST', '/api/v1/tasks', { body: { title: 'started' }, headers })
    forwarder.refuse(STARTING)
    const refused = { status: 503, body: { detail: expect.stringContaining('starting or stopping') } }
    await expect.poll(add).toMatchObject(refused)
    expect(await request(third, 'GET', '/readyz')).toMatchObject({ status: 503 })
    expect((await addTask('beside the start')).status).toBe(200)
    expect(await tasks('started')).toBe(0)
    forwarder.mend()
    await expect.poll(async () => (await add()).status).toBe(200)
    expect((await add()).status).toBe(200)
    expect(await tasks('started')).toBe(1)
    await expect.poll(() => readiness(third)).toMatchObject({ notices: 'listening' })
    expect(lines('starting', third)).toHaveLength(1)
  })

  it('keeps runs waiting while the disk is full, says so in readiness, and serves reads', async () => {
    const resume = Promise.withResolvers<void>()
    model.script({ tokens: ['one ', resume.promise, 'two'] })
    const before = model.requests.length
    const id = await accepted({ message: 'M', background: true })
    await model.request(before)
    await runSql(admin, 'INSERT INTO disk VALUES (true)')
    resume.resolve()
    const body = { name: 'Eve', systemPrompt: 'You are Eve.' }
    const refused = await request(first, 'POST', '/api/v1/agents', { body })
    expect(refused).toMatchObject({ status: 503, body: { detail: expect.stringContaining('free space') } })
    expect(refused.headers.get('retry-after')).toMatch(/^\d+$/)
    expect(await readiness(first)).toMatchObject({ status: 'ok', writes: 'disk_full' })
    for (const path of ['/api/v1/agents', `/api/v1/executions/${id}`])
      expect((await request(other(), 'GET', path)).status).toBe(200)
    expect((await first.service.deps.db.execution.findUniqueOrThrow({ where: { id } })).status).toBe('running')
    await runSql(admin, 'DELETE FROM disk')
    await sound()
    const ended = await first.service.deps.db.execution.findUniqueOrThrow({ where: { id } })
    expect(ended).toMatchObject({ status: 'completed', attempt: 1, result: 'one two' })
  })

  it('answers 503 while PostgreSQL refuses the role, and recovers by itself', async () => {
    await runSql(admin, `ALTER ROLE ${role} NOLOGIN`)
    await terminateAll()
    await expect
      .poll(() => request(first, 'GET', '/api/v1/agents'))
      .toMatchObject({ status: 503, body: { detail: expect.stringContaining('refuses the user or the password') } })
    const unready = { status: 503, body: { detail: expect.stringContaining('refuses the user') } }
    expect(await request(first, 'GET', '/readyz')).toMatchObject(unready)
    await runSql(admin, `ALTER ROLE ${role} LOGIN`)
    await expect.poll(async () => (await request(first, 'GET', '/readyz')).status).toBe(200)
    expect((await request(first, 'GET', '/api/v1/agents')).status).toBe(200)
    await listening()
  })

  it('answers 503 while the role finds no tables, and recovers as soon as its settings are right', async () => {
    await runSql(admin, `ALTER ROLE ${role} SET search_path = elsewhere`)
    await terminateAll()
    const refused = { status: 503, body: { detail: expect.stringContaining('search_path') } }
    for (const path of ['/api/v1/agents', '/readyz'])
      await expect.poll(() => request(first, 'GET', path)).toMatchObject(refused)
    // A transaction has a session of its own, so these are as many as the pool has.
    const { db, settings } = first.service.deps
    const count = () => db.$transaction((tx) => tx.organization.count()).then(Boolean, () => false)
    const succeeded = () => Promise.all(Array.from({ length: settings.DATABASE_POOL_SIZE }, count))
    expect(await succeeded()).not.toContain(true)
    await runSql(admin, `ALTER ROLE ${role} RESET search_path`)
    await expect.poll(succeeded).not.toContain(false)
    await listening()
  })

  it('serves all requests with the connections that PostgreSQL still gives', async () => {
    await runSql(admin, `ALTER ROLE ${role} CONNECTION LIMIT 6`)
    await terminateAll()
    // Until sessions have ended, they and those of the second server may be all that PostgreSQL gives.
    await expect.poll(async () => (await request(first, 'GET', '/api/v1/agents')).status).toBe(200)
    const reads = Array.from({ length: 20 }, () => request(first, 'GET', '/api/v1/agents'))
    expect(new Set((await Promise.all(reads)).map(({ status }) => status))).toEqual(new Set([200]))
    await runSql(admin, `ALTER ROLE ${role} CONNECTION LIMIT 0`)
    await terminateAll()
    await expect
      .poll(() => request(first, 'GET', '/api/v1/agents'))
      .toMatchObject({ status: 503, body: { detail: expect.stringContaining('max_connections') } })
    await runSql(admin, `ALTER ROLE ${role} CONNECTION LIMIT -1`)
    await expect.poll(async () => (await request(first, 'GET', '/api/v1/agents')).status).toBe(200)
    await listening()
  })

  it('continues with its open connections while PostgreSQL refuses the role', async () => {
    const codes: string[] = []
    const pool = openPool(own, { max: 3 }, (code) => codes.push(code))
    try {
      const held = await pool.take()
      await runSql(admin, `ALTER ROLE ${role} NOLOGIN`)
      const waiting = pool.take()
      try {
        await Promise.race([waiting, expect.poll(() => codes).toEqual(['28000'])])
      } finally {
        pool.give(held)
      }
      const taken = await waiting
      expect(taken).toBe(held)
      pool.give(taken, new Error('lost'))
      await expect(pool.take()).rejects.toMatchObject({ code: '28000' })
    } finally {
      await runSql(admin, `ALTER ROLE ${role} LOGIN`)
      await pool.end()
    }
  })

  it('has the isolation, limits and forms of values that it needs, whatever the database has', async () => {
    const name = new URL(admin).pathname.slice(1)
    await runSql(admin, `ALTER DATABASE "${name}" SET default_transaction_isolation = 'serializable'`)
    await runSql(admin, `ALTER DATABASE "${name}" SET "DateStyle" = 'SQL, DMY'`)
    await terminateAll()
    const { db } = first.service.deps
    const isolation = (tx: Tx) => tx.$queryRaw(Prisma.sql`SHOW transaction_isolation`)
    const expected = [{ transaction_isolation: 'read committed' }]
    expect([await isolation(db), await db.$transaction(isolation)]).toEqual([expected, expected])
    // The shorter one of the role's limit and of the server's own.
    const limit = (name: string) => db.$queryRaw(Prisma.sql`SELECT current_setting(${name}) AS "limit"`)
    expect([await limit('lock_timeout'), await limit('statement_timeout')]).toEqual([
      [{ limit: '300ms' }],
      [{ limit: '9s' }],
    ])
    expect((await addTask('isolated')).status).toBe(200)
    await runSql(admin, `ALTER DATABASE "${name}" RESET ALL`)
  })
})

describe.runIf(hasPostgres)('a transaction of a group that fails', () => {
  let db: Db
  let url: string
  const cleanup = new AsyncDisposableStack()
  beforeAll(async () => {
    const database = cleanup.adopt(await shareDatabase(), ({ drop }) => drop())
    url = database.url
    const source = { DATA_DIR: '', DATABASE_URL: url, DATABASE_POOL_SIZE: 4 }
    db = cleanup.adopt(await openDatabase(source, { statementTimeout: 10_000 }), ({ close }) => close()).client
    await add('counter')
    await runSql(
      url,
      `CREATE SEQUENCE raised MINVALUE 0 START 0;
      CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
      DECLARE words text[] := string_to_array(NEW.name, ' ');
      BEGIN
        IF words[1] = TG_ARGV[0] AND nextval('raised') < words[3]::int THEN
          RAISE EXCEPTION 'raised' USING ERRCODE = words[2];
        END IF;
        RETURN NEW;
      END $$;
      CREATE TRIGGER fail BEFORE INSERT ON "Organization" FOR EACH ROW EXECUTE FUNCTION fail('statement');
      CREATE CONSTRAINT TRIGGER fail_late AFTER INSERT ON "Organization" DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION fail('commit');`,
    )
  })
  afterAll(() => cleanup.disposeAsync())

  const organization = (name: string) => ({ id: name, name, slug: name, createdAt: new Date() })
  const add = (name: string) => db.organization.createMany({ data: organization(name) })
  /** Two deferred statements, the second of which shows a doubled effect. */
  const addAndCount = (name: string) =>
    db.$transaction(async (tx) => {
      await tx.organization.createMany({ data: organization(name) })
      await tx.organization.updateMany(expectsOne({ where: { id: 'counter' }, data: { running: { increment: 1 } } }))
    })

  it.each([
    ['an undone statement is repeated', 'statement 40001 3', true],
    ['an undone COMMIT is repeated', 'commit 40001 3', true],
    ['a deadlock is repeated', 'statement 40P01 3', true],
    ['a statement that fails each time fails alone', 'statement 40001 1000', false],
    ['a COMMIT that fails each time fails alone', 'commit 40P01 1000', false],
    ['a full disk fails it alone', 'statement 53100 1000', false],
    ['an unavailable lock fails it alone', 'statement 55P03 1000', false],
    ['a time limit fails it alone', 'commit 57014 1000', false],
  ])('neither fails nor doubles its neighbours: %s', async (_, bad, succeeds) => {
    await runSql(url, `SELECT setval('raised', 0, false)`)
    const before = (await db.organization.findUniqueOrThrow({ where: { id: 'counter' } })).running
    const names = Array.from({ length: 40 }, (_, index) =>
      (index === 7 ? bad : `${bad} beside ${index}`).replace(/^(\w+)(?=.*beside)/, 'x$1'),
    )
    const results = await Promise.allSettled(names.map(addAndCount))
    const failed = results.flatMap(({ status }, index) => (status === 'rejected' ? [index] : []))
    expect(failed).toEqual(succeeds ? [] : [7])
    const rows = await db.organization.findMany({ where: { id: { in: names } } })
    expect(rows.length).toBe(40 - failed.length)
    const { running } = await db.organization.findUniqueOrThrow({ where: { id: 'counter' } })
    expect(running - before).toBe(40 - failed.length)
  })

  it('does not delay later groups while it waits for a lock', async () => {
    const holder = new Client({ connectionString: url })
    await holder.connect()
    await add('locked')
    await holder.query(`BEGIN; SELECT 1 FROM "Organization" WHERE "id" = 'locked' FOR UPDATE`)
    const update = () =>
      db.$transaction(async (tx) => {
        await tx.organization.updateMany(expectsOne({ where: { id: 'locked' }, data: { running: { increment: 1 } } }))
      })
    const waiting: Promise<void>[] = []
    for (const count of [1, 2]) {
      waiting.push(update())
      const locked = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
      await expect.poll(async () => (await runSql(url, locked)).length).toBe(count)
    }
    let isWaiting = true
    const all = Promise.all(waiting).finally(() => (isWaiting = false))
    await Promise.all(Array.from({ length: 20 }, (_, index) => addAndCount(`free ${index}`)))
    expect(isWaiting).toBe(true)
    await holder.end()
    await all
    expect((await db.organization.findUniqueOrThrow({ where: { id: 'locked' } })).running).toBe(2)
  })
})
