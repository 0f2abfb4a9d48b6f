import { createServer, type Socket } from 'node:net'
import { Client } from 'pg'
import { pino } from 'pino'
import { expect, test } from 'vitest'
import type { Bus } from '../src/bus/index.ts'
import { createLocalBus } from '../src/bus/local.ts'
import { pack, unpack } from '../src/bus/payload.ts'
import { createPostgresBus } from '../src/bus/postgres.ts'
import { openDatabase } from '../src/db/client.ts'
import { newTimedId } from '../src/lib/id.ts'
import { startForwarder } from './support/forwarder.ts'
import { listen } from './support/listen.ts'
import { hasPostgres, shareDatabase } from './support/postgres-shared.ts'

const someIds = (count: number) => Array.from({ length: count }, () => newTimedId('exec', new Date()))

/** Collects a bus's notices of executions: ids, and null for each notice to check everything. */
function collectFrom(bus: Bus) {
  const received: string[] = []
  let looked = 0
  bus.subscribe('execution', (ids) => {
    if (ids) received.push(...ids)
    else looked++
  })
  return { received, looked: () => looked }
}

test("payloads are shorter than PostgreSQL's limit, and contain every id once", () => {
  const ids = someIds(1_000)
  const payloads = pack('me', new Map([['execution', new Set(ids)] as const, ['token', new Set(['t'])] as const]))
  for (const payload of payloads) expect(Buffer.byteLength(payload)).toBeLessThan(8_000)
  const parcels = payloads.map(unpack)
  expect(parcels.flatMap(({ channel, ids }) => (channel === 'execution' ? ids : []))).toEqual(ids)
  expect(parcels.at(-1)).toEqual({ from: 'me', channel: 'token', ids: ['t'] })
})

test('within a process, subscribers get notices before publish returns, of known channels only', () => {
  const bus = createLocalBus()
  const { received } = collectFrom(bus)
  bus.publish('execution', ['a', 'b'])
  bus.publish('unknown' as 'token', ['c'])
  expect(received).toEqual(['a', 'b'])
})

test.runIf(hasPostgres).each([
  ['does not answer a login', false],
  ['accepts a connection and then hangs', true],
])('a database that %s does not keep a server from stopping', async (_, accepts) => {
  await using cleanup = new AsyncDisposableStack()
  const shared = cleanup.adopt(await shareDatabase(), ({ drop }) => drop())
  const open = openDatabase({ DATA_DIR: '', DATABASE_URL: shared.url, DATABASE_POOL_SIZE: 1 })
  const { client: db } = cleanup.adopt(await open, ({ close }) => close())
  const silent = cleanup.use(await startSilentPostgres(accepts))
  const bus = createPostgresBus({ url: silent.url, db, log: pino({ level: 'silent' }) })
  await silent.asked
  await bus.stop()
  expect(bus.state()).toBe('polling')
})

test.runIf(hasPostgres)('a server whose subscription stays silent names a pooler as a possible cause', async () => {
  await using cleanup = new AsyncDisposableStack()
  const [here, elsewhere] = [await shareDatabase(), await shareDatabase()]
  for (const { drop } of [here, elsewhere]) cleanup.defer(drop)
  const open = openDatabase({ DATA_DIR: '', DATABASE_URL: here.url, DATABASE_POOL_SIZE: 1 })
  const { client: db } = cleanup.adopt(await open, ({ close }) => close())
  const lines: string[] = []
  const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) })
  // Notices of one database do not arrive in the other, as behind a pooler.
  const bus = cleanup.adopt(createPostgresBus({ url: elsewhere.url, db, log }), (opened) => opened.stop())
  await expect.poll(() => lines.join()).toContain('Set DATABASE_DIRECT_URL')
  expect(bus.state()).toBe('polling')
})

test.runIf(hasPostgres)('a subscription that a network cuts silently is not blamed on a pooler', async () => {
  await using cleanup = new AsyncDisposableStack()
  const shared = cleanup.adopt(await shareDatabase(), ({ drop }) => drop())
  const way = cleanup.use(await startForwarder(shared.url))
  const open = openDatabase({ DATA_DIR: '', DATABASE_URL: shared.url, DATABASE_POOL_SIZE: 1 })
  const { client: db } = cleanup.adopt(await open, ({ close }) => close())
  const lines: string[] = []
  const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) })
  const bus = cleanup.adopt(createPostgresBus({ url: way.url, db, log, pingInterval: 200 }), (opened) => opened.stop())
  await expect.poll(bus.state).toBe('listening')
  way.hang()
  await expect.poll(bus.state).toBe('polling')
  expect(lines.join()).not.toContain('pooler')
})

test.runIf(hasPostgres)(
  'servers send the notices of a moment in one statement, in order, and look for lost ones',
  async () => {
    await using cleanup = new AsyncDisposableStack()
    const shared = cleanup.adopt(await shareDatabase(), ({ drop }) => drop())
    const way = cleanup.use(await startForwarder(shared.url))
    const statements: string[] = []
    const source = { DATA_DIR: '', DATABASE_URL: shared.url, DATABASE_POOL_SIZE: 2 }
    const open = openDatabase(source, { onQuery: (sql) => void (sql.includes('pg_notify') && statements.push(sql)) })
    const { client: db } = cleanup.adopt(await open, ({ close }) => close())
    const log = pino({ level: 'silent' })
    const start = (url: string) => cleanup.adopt(createPostgresBus({ url, db, log }), (bus) => bus.stop())
    const [one, two] = [start(shared.url), start(way.url)]
    const [here, there] = [collectFrom(one), collectFrom(two)]
    const states = () => [one.state(), two.state()]
    await expect.poll(states).toEqual(['listening', 'listening'])
    // Servers that hear each other for the first time answer.
    for (const [index, [from, to]] of (
      [
        [two, here],
        [one, there],
        [two, here],
      ] as const
    ).entries()) {
      from.publish('execution', [`met-${index}`])
      await expect.poll(() => to.received).toContain(`met-${index}`)
    }
    for (const { received } of [here, there]) received.length = 0

    const looked = there.looked()
    statements.length = 0
    const ids = someIds(3_000)
    for (const id of ids) one.publish('execution', [id])
    expect(here.received).toEqual(ids)
    await expect.poll(() => there.received.length).toBe(ids.length)
    expect(there.received).toEqual(ids)
    expect(here.received).toEqual(ids)
    // Regular pings have one payload each.
    expect(statements.filter((sql) => sql.match(/\(\$\d+\b/g)!.length > 2)).toHaveLength(1)
    expect(there.looked()).toBe(looked)

    way.cut()
    await expect.poll(states).toEqual(['listening', 'polling'])
    one.publish('execution', ['missed'])
    const before = there.looked()
    await expect.poll(there.looked).toBeGreaterThan(before + 1)
    way.mend()
    await expect.poll(states).toEqual(['listening', 'listening'])
    one.publish('execution', ['heard-again'])
    await expect.poll(() => there.received.at(-1)).toBe('heard-again')
    expect(there.received).not.toContain('missed')
  },
)

test.runIf(hasPostgres)(
  'a server alone sends no notices, and a second server looks for the changes before it',
  async () => {
    await using cleanup = new AsyncDisposableStack()
    const { url } = cleanup.adopt(await shareDatabase(), ({ drop }) => drop())
    const payloads: string[] = []
    const ear = new Client({ connectionString: url })
    cleanup.defer(() => ear.end())
    await ear.connect()
    ear.on('notification', ({ payload = '' }) => payloads.push(payload))
    await ear.query('LISTEN muster')
    const open = openDatabase({ DATA_DIR: '', DATABASE_URL: url, DATABASE_POOL_SIZE: 2 })
    const { client: db } = cleanup.adopt(await open, ({ close }) => close())
    const log = pino({ level: 'silent' })
    const start = (pingInterval?: number) =>
      cleanup.adopt(createPostgresBus({ url, db, log, ...(pingInterval && { pingInterval }) }), (bus) => bus.stop())
    const one = start(300)
    let count = 0
    const pings = () => payloads.filter((payload) => payload.endsWith(' ping 1'))
    /** Returns whether the first server sends a notice of a new id. */
    async function sends(): Promise<boolean> {
      const id = `run-${++count}`
      const before = pings().length
      one.publish('execution', [id])
      // The second ping from now on was sent after the notice.
      await expect.poll(() => pings().length).toBeGreaterThan(before + 1)
      return payloads.some((payload) => payload.endsWith(` execution ${id}`))
    }
    expect(await sends()).toBe(true)
    await expect.poll(sends).toBe(false)
    const [mine = ''] = pings()[0]!.split(' ')

    const two = start()
    const there = collectFrom(two)
    const theirs = () =>
      pings()
        .find((payload) => !payload.startsWith(mine))
        ?.split(' ')[0]
    await expect.poll(() => payloads.some((payload) => payload.endsWith(` ping ${theirs()}`))).toBe(true)
    one.publish('execution', ['together'])
    await expect.poll(() => there.received).toEqual(['together'])
    await expect.poll(two.state).toBe('listening')
    const looked = there.looked()
    await ear.query(`SELECT pg_notify('muster', '${mine} ping ${theirs()}')`)
    await expect.poll(there.looked).toBe(looked + 1)

    await two.stop()
    await expect.poll(sends).toBe(false)
  },
)

/** Starts a server that ignores each login, or accepts it and ignores all queries. */
async function startSilentPostgres(accepts: boolean): Promise<AsyncDisposable & { url: string; asked: Promise<void> }> {
  const asked = Promise.withResolvers<void>()
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket
      .on('error', () => {})
      .once('data', () => {
        if (!accepts) return asked.resolve()
        // AuthenticationOk, ReadyForQuery.
        socket.write(Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0, 0x5a, 0, 0, 0, 5, 0x49]))
        socket.once('data', () => asked.resolve())
      })
  })
  const port = await listen(server)
  return {
    url: `postgresql://ada:sesame@127.0.0.1:${port}/muster`,
    asked: asked.promise,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}
