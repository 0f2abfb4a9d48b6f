import { statSync } from 'node:fs'
import { rm, writeFile } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { TLSSocket } from 'node:tls'
import { DriverAdapterError } from '@prisma/driver-adapter-utils'
import Sqlite from 'better-sqlite3'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Database, openDatabase, Prisma } from '../../src/db/client.ts'
import { postgresqlAdapter } from '../../src/db/postgresql/adapter.ts'
import { toAppError } from '../../src/errors.ts'
import { isUnavailable, isUniqueViolation } from '../../src/lib/database-errors.ts'
import { troubleIn } from '../../src/lib/database-troubles.ts'
import { createLog } from '../../src/lib/log.ts'
import { explain } from '../../src/serve.ts'
import { createCertificate } from '../support/certificate.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { createFolder } from '../support/folder.ts'
import { listen } from '../support/listen.ts'
import { type Postgres, startPostgres } from '../support/postgres.ts'

const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => 'no failure',
    (error: unknown) => error,
  )

const createdAt = new Date('2026-01-02T03:04:05.678Z')

/** Returns the errors of every way to violate a unique key, and of some look-alikes. */
async function violations({ client }: Database) {
  const data = { id: 'a', name: 'a', slug: 'a', createdAt }
  const membership = { organizationId: 'nowhere', userId: 'nobody', role: 'member' as const, createdAt }
  await client.organization.create({ data })
  return {
    unique: await Promise.all([
      failure(client.organization.create({ data })),
      failure(client.organization.create({ data: { ...data, id: 'b' } })),
      failure(client.$transaction((tx) => tx.organization.create({ data: { ...data, id: 'b' } }))),
      failure(client.$executeRaw`INSERT INTO "Organization" SELECT * FROM "Organization"`),
    ]),
    other: [
      await failure(client.membership.create({ data: membership })),
      await failure(client.organization.update({ where: { id: 'c' }, data: { name: 'b' } })),
      await failure(client.$queryRaw`SELECT nothing`),
      new Error('P2002'),
      'P2002',
      null,
    ],
  }
}

const SECRET = 'canary-value-51b0c7'

/** Returns the log lines of failing statements, each with its own secret value. */
async function logged({ client }: Database): Promise<string[]> {
  const lines: string[] = []
  const log = createLog('info', { write: (line) => void lines.push(line) })
  const data = { id: SECRET, name: SECRET, slug: SECRET, createdAt }
  await client.organization.create({ data })
  const errors = [
    await failure(client.organization.create({ data })),
    await failure(client.organization.create({ data: { ...data, slug: 5 as never } })),
    await failure(client.organization.count({ where: { name: SECRET, running: 1e19 } })),
    await failure(client.$executeRaw`INSERT INTO "Organization" SELECT ${SECRET}`),
    await failure(client.$transaction((tx) => tx.$queryRaw`SELECT CAST(${SECRET} AS timestamp), nothing`)),
  ]
  await client.organization.deleteMany({ where: { id: SECRET } })
  for (const err of errors) {
    expect(err).toBeInstanceOf(Error)
    log.error({ err }, 'refused')
    log.error({ err: new Error('It failed', { cause: err }) }, 'refused')
  }
  return lines
}

/** Each line has the kind of the error and its location, and no value. */
function expectNoValues(lines: readonly string[]): void {
  expect(lines).toHaveLength(10)
  for (const line of lines) {
    expect(line).not.toContain(SECRET)
    const { err } = JSON.parse(line)
    expect(err.type).toMatch(/^(PrismaClient|DriverAdapter)/)
    expect(err.stack).toContain('database-errors.test.ts')
  }
}

describe('SQLite', () => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await createTestDatabase()
  })
  afterAll(() => database.dispose())

  test('unique violations are recognized, and only they', async () => {
    const { unique, other } = await violations(database.database)
    expect(unique.map(isUniqueViolation)).toEqual([true, true, true, true])
    expect(other.filter(isUniqueViolation)).toEqual([])
    expect([...unique, ...other].filter(isUnavailable)).toEqual([])
  })

  test('the log omits the values of a failed statement', async () => {
    expectNoValues(await logged(database.database))
  })

  test('a full disk counts as unavailability', async () => {
    const { db } = database
    const [{ max_page_count: before }] = await db.$queryRaw<[{ max_page_count: bigint }]>`PRAGMA max_page_count`
    // Caps the file at its present number of pages.
    await db.$executeRaw`PRAGMA max_page_count = 1`
    const data = { id: 'large', name: 'x'.repeat(10_000_000), slug: 'large', createdAt }
    expect(isUnavailable(await failure(db.organization.create({ data })))).toBe(true)
    await db.$executeRaw(Prisma.raw(`PRAGMA max_page_count = ${before}`))
    await db.organization.create({ data })
  })

  test('a log that has grown is cut when it begins anew', async () => {
    const { db, folder } = database
    const file = join(folder, 'muster.db')
    const log = `${file}-wal`
    const reader = new Sqlite(file)
    reader.exec('BEGIN')
    reader.prepare('SELECT count(*) FROM "Organization"').get()
    const add = (id: string, size: number) =>
      db.$executeRaw`INSERT INTO "Organization" ("id", "name", "slug", "createdAt")
        VALUES (${id}, hex(zeroblob(${size / 2})), ${id}, 0)`
    await add('grown', 70 * 1024 * 1024)
    expect(statSync(log).size).toBeGreaterThan(64 * 1024 * 1024)
    reader.exec('COMMIT')
    reader.pragma('wal_checkpoint(PASSIVE)')
    reader.close()
    await add('later', 2)
    expect(statSync(log).size).toBe(64 * 1024 * 1024)
  })
})

test('a disk that fails or is full is unavailable, and a start says what to look at', async () => {
  const broken = (originalCode: string) =>
    new DriverAdapterError({ kind: 'sqlite', extendedCode: 1, message: 'disk I/O error', originalCode })
  for (const error of ['SQLITE_IOERR_SHMSIZE', 'SQLITE_IOERR_LOCK', 'SQLITE_CANTOPEN'].map(broken)) {
    expect(isUnavailable(error)).toBe(true)
    expect(toAppError(error)).toMatchObject({ status: 503, detail: expect.stringContaining('df -i') })
    expect(explain(error, {})).toMatch(/^Muster cannot start\. .*df -i/)
  }
  const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC', syscall: 'write' })
  expect(explain(full, {})).toMatch(/^Muster cannot start\. ENOSPC: .* write\. Free space on its disk/)
  const exhausted = Object.assign(new Error('listen EMFILE: too many open files'), {
    code: 'EMFILE',
    syscall: 'listen',
  })
  expect(explain(exhausted, {})).toMatch(/too many open files\. Raise the limit of open files/)
})

test('another server that does not answer is not taken for the database', () => {
  const refused = Object.assign(new Error('connect ECONNREFUSED 10.0.0.9:443'), { code: 'ECONNREFUSED' })
  expect(toAppError(new TypeError('fetch failed', { cause: refused }))).toMatchObject({ status: 500 })
})

/** A PostgreSQL that gets as far as the encryption: with a certificate, without one, or with its answers to plain text. */
async function startGreeter(certificate: { key: string; cert: string } | null, answers = [UNENCRYPTED]) {
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', (asked) => {
      if (asked.length !== SSL_REQUEST) return reply(socket, answers)
      if (!certificate) return socket.end('N')
      socket.write('S')
      new TLSSocket(socket, { isServer: true, ...certificate }).on('error', () => {})
    })
  })
  const port = await listen(server)
  return {
    url: `postgresql://ada@127.0.0.1:${port}/muster`,
    [Symbol.asyncDispose]: async () => void server.close(),
  }
}

/** Sends one answer to each message of the client. */
function reply(socket: Socket, [answer = Buffer.alloc(0), ...others]: readonly Buffer[]): void {
  if (!others.length) return void socket.end(answer)
  socket.write(answer)
  socket.once('data', () => reply(socket, others))
}

const SSL_REQUEST = 8
const message = (type: string, body: string) => {
  const bytes = Buffer.from(`${type}\0\0\0\0${body}`, 'latin1')
  bytes.writeInt32BE(bytes.length - 1, 1)
  return bytes
}
const refusal = (code: string, text: string) => message('E', `SFATAL\0C${code}\0M${text}\0\0`)
const UNENCRYPTED = refusal(
  '28000',
  'no pg_hba.conf entry for host "10.0.0.1", user "ada", database "muster", no encryption',
)
const SCRAM = [message('R', '\0\0\0\nSCRAM-SHA-256\0\0'), message('R', '\0\0\0\vr=a,s=b,i=1')]

test('a PostgreSQL whose socket is gone while it restarts counts as unavailability', async () => {
  await using folder = await createFolder()
  const url = `postgresql://ada@/muster?host=${encodeURIComponent(folder.path)}`
  const adapter = await postgresqlAdapter(url, 1)
  const connected = await adapter.connect()
  const errors = [
    await failure(adapter.begin().then(({ runner }) => runner.rows({ sql: 'SELECT 1', args: [] }, false))),
    await failure(connected.queryRaw({ sql: 'SELECT 1', args: [], argTypes: [] })),
    await failure(openDatabase({ DATABASE_URL: url, DATA_DIR: '', DATABASE_POOL_SIZE: 1 })),
  ]
  await connected.dispose()
  expect(errors.map(isUnavailable)).toEqual([true, true, true])
  expect(errors.slice(0, 2).map((error) => toAppError(error).status)).toEqual([503, 503])
  expect(explain(errors[2], { DATABASE_URL: url })).toMatch(
    /ENOENT .*\. Start the database, or correct DATABASE_URL\.$/,
  )
})

test('a certificate that is gone while requests wait for a connection is unavailability', async () => {
  await using folder = await createFolder()
  await using greeter = await startGreeter(createCertificate('localhost'))
  const authority = join(folder.path, 'ca.pem')
  await writeFile(authority, createCertificate('localhost').cert)
  const adapter = await postgresqlAdapter(`${greeter.url}?sslmode=verify-full&sslrootcert=${authority}`, 1)
  const connected = await adapter.connect()
  const ask = () => failure(adapter.plain.rows({ sql: 'SELECT 1', args: [] }, false))
  const asked = [ask(), ask(), ask()]
  await rm(authority)
  const errors = await Promise.all(asked)
  await connected.dispose()
  expect(errors.map((error) => toAppError(error).status)).toEqual([503, 503, 503])
})

test.each([
  ['Max client connections reached', 'no_connections'],
  ['The endpoint has been disabled. Enable it and retry.', 'unreachable'],
])('a pooler that refuses connections with a code of defects counts as unavailability: %s', async (text, trouble) => {
  await using greeter = await startGreeter(null, [refusal('XX000', text)])
  const adapter = await postgresqlAdapter(greeter.url, 1)
  const connected = await adapter.connect()
  const errors = [
    await failure(adapter.plain.rows({ sql: 'SELECT 1', args: [] }, false)),
    await failure(connected.queryRaw({ sql: 'SELECT 1', args: [], argTypes: [] })),
  ]
  await connected.dispose()
  expect(errors.map((error) => toAppError(error).status)).toEqual([503, 503])
  expect(errors.map((error) => troubleIn(error)?.name)).toEqual([trouble, trouble])
})

describe('an encrypted connection to PostgreSQL', () => {
  test.each([
    ['certificate of an unknown authority', () => createCertificate('localhost'), 'DEPTH_ZERO_SELF_SIGNED_CERT'],
    ['offer of encryption missing', () => null, 'TlsConnectionError'],
  ])(
    'an encrypted connection that fails counts as unavailability, and says what to set: %s',
    async (_, certificate, code) => {
      await using greeter = await startGreeter(certificate())
      const url = `${greeter.url}?sslmode=verify-full`
      const codes: string[] = []
      const adapter = await postgresqlAdapter(url, 1, { onFailure: (each) => codes.push(each) })
      const connected = await adapter.connect()
      const errors = [
        await failure(openDatabase({ DATABASE_URL: url, DATA_DIR: '', DATABASE_POOL_SIZE: 1 })),
        await failure(adapter.begin().then(({ runner }) => runner.rows({ sql: 'SELECT 1', args: [] }, false))),
        await failure(connected.queryRaw({ sql: 'SELECT 1', args: [], argTypes: [] })),
      ]
      await connected.dispose()
      expect(errors.map(isUnavailable)).toEqual([true, true, true])
      expect(errors.map((error) => troubleIn(error)?.name)).toEqual(['tls', 'tls', 'tls'])
      expect(codes[0]).toBe(code)
      expect(explain(errors[0], { DATABASE_URL: url })).toMatch(/^Muster cannot start\. .*sslmode in DATABASE_URL\.$/)
    },
  )

  test('an encrypted connection that PostgreSQL demands is named by the setting that adds it', async () => {
    await using greeter = await startGreeter(null)
    const error = await failure(openDatabase({ DATABASE_URL: greeter.url, DATA_DIR: '', DATABASE_POOL_SIZE: 1 }))
    expect((error as Error).message).toMatch(/no encryption\. If .* add sslmode=require to DATABASE_URL$/)
  })
})

describe('a start that PostgreSQL refuses says what to do', () => {
  test.each([
    ['with a wrong password', [refusal('28P01', 'password authentication failed for user "ada"')], /%40 for @/],
    [
      'without a client certificate',
      [refusal('28000', 'connection requires a valid client certificate')],
      /sslcert=.*&sslkey=/,
    ],
    ['without a password', SCRAM, /Add the user and the password/],
    [
      'for an unknown database',
      [refusal('3D000', 'database "muster" does not exist')],
      /Create it, or correct its name/,
    ],
  ])('%s', async (_, answers, remedy) => {
    await using greeter = await startGreeter(null, answers)
    const error = await failure(openDatabase({ DATABASE_URL: greeter.url, DATA_DIR: '', DATABASE_POOL_SIZE: 1 }))
    expect((error as Error).message).toMatch(remedy)
    expect(explain(error, {})).toBe(`Muster cannot start. ${(error as Error).message}`)
  })
})

describe.skipIf(process.env.SKIP_POSTGRES === '1')('PostgreSQL', () => {
  let postgres: Postgres
  let database: Database
  let url: string
  const settings = () => ({ DATABASE_URL: url, DATA_DIR: '', DATABASE_POOL_SIZE: 2 })
  beforeAll(async () => {
    postgres = await startPostgres()
    url = await postgres.createDatabase()
    database = await openDatabase(settings())
  })
  afterAll(async () => {
    await database?.close()
    await postgres?.[Symbol.asyncDispose]()
  })

  test('unique violations are recognized, and only they', async () => {
    const { unique, other } = await violations(database)
    expect(unique.map(isUniqueViolation)).toEqual([true, true, true, true])
    expect(other.filter(isUniqueViolation)).toEqual([])
    expect([...unique, ...other].filter(isUnavailable)).toEqual([])
  })

  test('the log omits the values of a failed statement', async () => {
    expectNoValues(await logged(database))
  })

  test("a statement that an operator's limit cuts short counts as unavailability", async () => {
    const slow = database.client.$transaction(async (tx) => {
      await tx.$executeRaw`SET LOCAL statement_timeout = 10`
      await tx.$queryRaw`SELECT pg_sleep(60)::text`
    })
    expect(isUnavailable(await failure(slow))).toBe(true)
  })

  test('an exhausted pool counts as unavailability', async () => {
    const release = Promise.withResolvers<void>()
    const began = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const held = began.map(({ resolve }) =>
      database.client.$transaction(async (tx) => {
        // A transaction takes its connection with its first statement.
        await tx.$queryRaw`SELECT 1`
        resolve()
        await release.promise
      }),
    )
    await Promise.all(began.map(({ promise }) => promise))
    const third = await failure(database.client.$transaction((tx) => tx.$queryRaw`SELECT 1`, { maxWait: 50 }))
    release.resolve()
    await Promise.all(held)
    expect(toAppError(third).status).toBe(503)
  })

  test('a lost server counts as unavailability, and the same client works when the server is back', async () => {
    const { client } = database
    const began = Promise.withResolvers<void>()
    const stopped = Promise.withResolvers<void>()
    const query = failure(client.$queryRaw`SELECT pg_sleep(60)::text`)
    const transaction = failure(
      client.$transaction(async (tx) => {
        await tx.organization.count()
        began.resolve()
        await stopped.promise
        await tx.organization.count()
      }),
    )
    await began.promise
    await postgres.stop()
    stopped.resolve()
    const errors = [
      await query,
      await transaction,
      await failure(client.organization.count()),
      await failure(client.$transaction((tx) => tx.organization.count())),
      await failure(openDatabase(settings())),
      await failure(openDatabase({ ...settings(), DATABASE_URL: url.replace('127.0.0.1', 'localhost') })),
    ]
    expect(errors.filter((error) => !isUnavailable(error))).toEqual([])
    expect(errors.slice(0, 4).map((error) => toAppError(error).status)).toEqual([503, 503, 503, 503])
    await postgres.start()
    expect(await client.organization.count()).toBe(1)
  })
})
