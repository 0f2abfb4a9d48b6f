import { setImmediate } from 'node:timers/promises'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Prisma } from '../../src/db/client.ts'
import { createCompaction } from '../../src/executions/engine/events/compaction.ts'
import type { ExecutionEvent } from '../../src/executions/engine/events/events.ts'
import { LIFETIME } from '../../src/idempotency.ts'
import { planOf } from '../support/plan.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { openStream } from '../support/sse.ts'
import { ended, followed, type Lab, maintenanceOf, nextTurn, startLab } from './lab.ts'

const DAY = 24 * 60 * 60 * 1_000
const MINUTE = 60_000

// All periodic work happens when the test triggers it.
beforeEach(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }))
afterEach(() => void vi.useRealTimers())

/** Creates a run with this number of additional events, at a time in the past. */
async function oldRun(lab: Lab, count: number, age: number) {
  const row = await ended(lab.engine, await lab.run())
  const at = lab.clock.now()
  const events = JSON.stringify([{ step: 1, text: 'x', lengths: [1] }])
  const segments = Array.from({ length: count }, (_, index) => ({ firstSeq: 1_000 + index, lastSeq: 1_000 + index }))
  await lab.db.executionEvent.createMany({
    data: segments.map((segment) => ({ executionId: row.id, at, events, ...segment })),
  })
  const terminalSeq = 1_000 + count
  lab.clock.advance(age)
  return lab.db.execution.update({ where: { id: row.id }, data: { terminalSeq } })
}

/** Removes expired events until none is left: one pass removes a tenth. */
const forgotten = (count: () => Promise<number>) =>
  expect
    .poll(
      () => {
        vi.advanceTimersByTime(MINUTE)
        return count()
      },
      { interval: 2 },
    )
    .toBe(0)

const deletions = ({ server }: Lab, table: string) =>
  server.queries.filter((sql) => sql.includes(`DELETE FROM "${table}"`))

test('the server deletes expired events in small batches, and no executions or messages', async () => {
  await using lab = await startLab({ EVENT_RETENTION_DAYS: '10' })
  const old = await oldRun(lab, 1_200, 2 * DAY)
  const recent = await oldRun(lab, 3, 9 * DAY)
  const kept = await lab.db.executionEvent.count({ where: { executionId: recent.id } })
  const messages = await lab.db.message.count()
  lab.server.queries.length = 0
  await forgotten(() => lab.db.executionEvent.count({ where: { executionId: old.id } }))
  // A statement is reported after its answer, when other connections can see its effect.
  await expect.poll(() => deletions(lab, 'ExecutionEvent').length).toBeGreaterThanOrEqual(3)
  for (const sql of deletions(lab, 'ExecutionEvent')) {
    expect(sql).toMatch(/LIMIT/)
    if (!onPostgres) expect(planOf(lab.server, sql).join()).toContain('(executionId<?)')
  }
  expect(await lab.db.executionEvent.count({ where: { executionId: recent.id } })).toBe(kept)
  expect(await lab.db.message.count()).toBe(messages)
  expect(await lab.row(old.id)).toEqual(old)
})

test('one pass under a clock years ahead removes a tenth of the events, with a log line', async () => {
  const lines: string[] = []
  await using lab = await startLab({ EVENT_RETENTION_DAYS: '10' })
  const { id } = await oldRun(lab, 200, 0)
  const where = { executionId: id }
  const before = await lab.db.executionEvent.count({ where })
  lab.server.service.deps.log.warn = (...line: unknown[]) => void lines.push(JSON.stringify(line))
  lab.clock.advance(400 * DAY)
  vi.advanceTimersByTime(MINUTE)
  await expect.poll(() => lab.db.executionEvent.count({ where })).toBe(before - Math.ceil(before / 10))
  lab.clock.advance(-400 * DAY)
  expect(lines.join()).toContain('EVENT_RETENTION_DAYS: check the clock')
})

test('sign-ins, links, limits and the like are removed once they have ended, and not before', async () => {
  await using lab = await startLab({ AUDIT_RETENTION_DAYS: '10' })
  const { db, clock, server } = lab
  const { organizationId, userId, tokenId } = await server.member({ organization: 'Acme' })
  const createdAt = clock.now()
  const mcp = { id: 'm', organizationId, ownerId: userId, mcpType: 'm', name: 'm', url: 'https://x.example/' }
  const empty = { transport: 'sse', headers: {}, permissions: [] }
  await db.mcpServer.create({ data: { ...mcp, ...empty, createdAt, updatedAt: createdAt } })
  const session = { userId, method: 'password' as const, createdAt, lastSeenAt: createdAt }
  const invitation = { organizationId, role: 'member' as const, mailOnly: false, createdBy: userId, createdAt }
  const signIn = { organizationId, mcpId: 'm', userId, url: 'x', sealed: new Uint8Array(1), createdAt }
  /** Creates a row, by the table and the column of its name. */
  const make: Record<string, (name: string, end: Date) => Promise<unknown>> = {
    'Invitation email': (id, expiresAt) =>
      db.invitation.create({ data: { id, email: id, digest: id, ...invitation, expiresAt } }),
    'FormerSlug slug': (slug, endsAt) => db.formerSlug.create({ data: { slug, organizationId, endsAt } }),
    'RateWindow key': (key, endsAt) => db.rateWindow.create({ data: { key, startsAt: createdAt, endsAt, count: 1 } }),
    'BrowserSession id': (id, expiresAt) =>
      db.browserSession.create({ data: { id, digest: id, ...session, expiresAt } }),
    'OneTimeLink id': (id, expiresAt) =>
      db.oneTimeLink.create({ data: { id, userId, digest: id, purpose: 'sign_in', createdAt, expiresAt } }),
    'McpSignIn id': (id, expiresAt) => db.mcpSignIn.create({ data: { id, ...signIn, expiresAt } }),
    'SignInLimit key': (key, expiresAt) => db.signInLimit.create({ data: { key, times: [], expiresAt } }),
    'IdempotencyRecord id': (id, end) =>
      db.idempotencyRecord.create({
        data: { id, organizationId, inputDigest: id, createdAt: new Date(end.getTime() - LIFETIME) },
      }),
    // Stored as long after its last use as audit events.
    'TokenAddress network': (network, end) =>
      db.tokenAddress.create({ data: { tokenId, network, seenAt: new Date(end.getTime() - 10 * DAY) } }),
  }
  for (const each of Object.values(make)) {
    await each('old', new Date(createdAt.getTime() + MINUTE - 1))
    await each('new', new Date(createdAt.getTime() + DAY))
  }
  clock.advance(MINUTE)
  const left = (name: string): Promise<object[]> => {
    const [table, column] = name.split(' ').map((part) => Prisma.raw(`"${part}"`))
    return db.$queryRaw(Prisma.sql`SELECT ${column} AS "name" FROM ${table} WHERE ${column} IN ('old', 'new')`)
  }
  const allLeft = () => Promise.all(Object.keys(make).map(left))
  const remains = async () => {
    vi.advanceTimersByTime(MINUTE)
    return (await allLeft()).flat().length
  }
  await expect.poll(remains, { interval: 10 }).toBe(Object.keys(make).length)
  expect(await allLeft()).toEqual(Object.keys(make).map(() => [{ name: 'new' }]))
})

test('other writes get their turn between the batches', async () => {
  await using lab = await startLab({ EVENT_RETENTION_DAYS: '10' })
  const old = await oldRun(lab, 3_000, 11 * DAY)
  const order: string[] = []
  const [held, written] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  // PostgreSQL removes while it writes, and could finish first. The test therefore delays one batch until the write is
  // done.
  const holding = lab.db.$transaction(async (tx) => {
    if (onPostgres) {
      await tx.$queryRaw`SELECT 1 FROM "ExecutionEvent" WHERE "executionId" = ${old.id} AND "firstSeq" = 2000 FOR UPDATE`
    }
    held.resolve()
    if (onPostgres) await written.promise
  })
  await held.promise
  lab.server.queries.length = 0
  vi.advanceTimersByTime(MINUTE)
  while (!onPostgres && !deletions(lab, 'ExecutionEvent').length) await nextTurn()
  await lab.db.execution.update({ where: { id: old.id }, data: { preview: 'changed' } })
  for (const sql of lab.server.queries) {
    if (sql.includes('DELETE FROM "ExecutionEvent"')) order.push('delete')
    else if (/^UPDATE.*SET .preview/.test(sql)) order.push('update')
  }
  written.resolve()
  await holding
  await forgotten(() => lab.db.executionEvent.count({ where: { executionId: old.id } }))
  expect(order).toContain('update')
  expect(deletions(lab, 'ExecutionEvent').length).toBeGreaterThan(order.indexOf('update'))
})

test('the stream of a run with expired events has its meta and its end, from any number on', async () => {
  await using lab = await startLab({ EVENT_RETENTION_DAYS: '10' })
  const row = await oldRun(lab, 10, 11 * DAY)
  await forgotten(() => lab.db.executionEvent.count())
  expect((await followed(lab.engine, row)).map(({ event, seq }) => [event, seq])).toEqual([
    ['meta', 1],
    ['result', 1_010],
  ])
  const headers = { 'Last-Event-ID': '1003' }
  const stream = await openStream(lab.server, `/api/v1/executions/${row.id}/events`, { headers })
  expect((await stream.rest()).map(({ event, id }) => [event, id])).toEqual([['result', 1_010]])
})

test('an active run whose first events expire still ends its streams in order', async () => {
  await using lab = await startLab({ EVENT_RETENTION_DAYS: '10' })
  const resume = Promise.withResolvers<void>()
  lab.model.script({ tokens: ['one ', resume.promise, 'two'] })
  const row = await lab.run()
  await expect.poll(() => lab.db.executionEvent.count()).toBe(1)
  const events: ExecutionEvent[] = []
  const following = (async () => {
    const { signal } = new AbortController()
    for await (const batch of lab.engine.follow(row, 0, signal)) events.push(...batch)
  })()
  await expect.poll(() => events.length).toBe(2)
  lab.clock.advance(11 * DAY)
  await forgotten(() => lab.db.executionEvent.count())
  resume.resolve()
  await following
  expect(events.map(({ event }) => event)).toEqual(['meta', 'message', 'message', 'message', 'result'])
  const late = await followed(lab.engine, row)
  expect(late.at(-1)).toEqual(events.at(-1))
  expect(await lab.row(row.id)).toMatchObject({ status: 'completed', result: 'one two' })
})

test('a lease further ahead than its duration counts from now, so that the run is taken over', async () => {
  await using lab = await startLab({ LEASE_DURATION: '10' })
  const { id } = await ended(lab.engine, await lab.run())
  const leaseUntil = new Date(lab.clock.now().getTime() + 60 * MINUTE)
  // A server that was killed before the clock was set back by an hour.
  const data = { status: 'running', terminalSeq: null, completedAt: null, leaseOwner: 'killed', leaseUntil } as const
  await lab.db.execution.update({ where: { id }, data })
  const swept = async () => {
    vi.advanceTimersByTime(2 * SECOND)
    return lab.row(id)
  }
  await expect
    .poll(async () => ((await swept()).leaseUntil?.getTime() ?? 0) - lab.clock.now().getTime())
    .toBeLessThan(11 * SECOND)
  expect(await lab.row(id)).toMatchObject({ status: 'running', attempt: 1 })
  lab.clock.advance(11 * SECOND)
  await expect.poll(async () => (await swept()).leaseOwner).not.toBe('killed')
})

const SECOND = 1_000

test.runIf(onPostgres)('PostgreSQL analyzes a grown or upgraded table before its autovacuum would', async () => {
  await using lab = await startLab()
  const { db } = lab
  const rows = () =>
    db.$queryRaw<{ rows: number }[]>`
      SELECT "reltuples"::int AS "rows" FROM pg_class WHERE oid = '"ExecutionEvent"'::regclass`
  await db.$executeRaw`ALTER TABLE "ExecutionEvent" SET (autovacuum_enabled = false)`
  // As PostgreSQL 13 says of every new table, and later versions of one that was analyzed while it was empty.
  await db.$executeRaw`ANALYZE "ExecutionEvent"`
  await oldRun(lab, 1_200, DAY)
  expect(await rows()).toEqual([{ rows: 0 }])
  const looked = () => {
    vi.advanceTimersByTime(5 * SECOND)
    return rows()
  }
  const analyzed = [{ rows: expect.toSatisfy((count) => count > 1_000) }]
  await expect.poll(looked).toEqual(analyzed)
  // As after pg_upgrade, whose cluster also has no counts of rows.
  await db.$executeRaw`
    UPDATE pg_class SET "reltuples" = -1, "relpages" = 0 WHERE oid = '"ExecutionEvent"'::regclass`
  await db.$executeRaw`SELECT pg_stat_reset_single_table_counters('"ExecutionEvent"'::regclass)`
  await expect.poll(looked).toEqual(analyzed)
})

test('a stop waits for the maintenance in progress, whose failure is then not logged', async () => {
  await using lab = await startLab()
  const { promise, reject } = Promise.withResolvers<void>()
  const logged: object[] = []
  const log = Object.assign(Object.create(lab.server.service.deps.log), {
    error: (facts: object) => logged.push(facts),
  })
  const maintenance = maintenanceOf(lab, { compact: () => promise, log })
  await maintenance.start(false)
  vi.advanceTimersByTime(SECOND)
  const stopping = maintenance.stop()
  expect(await Promise.race([stopping, setImmediate('waiting')])).toBe('waiting')
  reject(new Error('The pool is closed.'))
  await stopping
  expect(logged).toEqual([])
})

const WORDS = 20

/** A run with slow words, each in its own segment. */
async function slowRun(lab: Lab) {
  const next = Array.from({ length: WORDS }, () => Promise.withResolvers<void>())
  lab.model.script({ tokens: next.flatMap(({ promise }, index) => [`${index} `, promise]) })
  const row = await lab.run()
  const where = { executionId: row.id }
  for (const [index, { resolve }] of next.entries()) {
    await expect.poll(() => lab.db.executionEvent.count({ where })).toBe(index + 1)
    resolve()
  }
  return ended(lab.engine, row)
}

test('small segments are merged after the end of their run, without any change for readers', async () => {
  await using lab = await startLab()
  const row = await slowRun(lab)
  const plain = (events: ExecutionEvent[]) => events.map(({ seq, event, data }) => ({ seq, event, data }))
  const before = plain(await followed(lab.engine, row))
  expect(before).toHaveLength(WORDS + 3)
  vi.advanceTimersByTime(SECOND)
  await expect.poll(() => lab.db.executionEvent.count({ where: { executionId: row.id } })).toBeLessThan(4)
  expect(plain(await followed(lab.engine, row))).toEqual(before)
  expect(plain(await followed(lab.engine, row, 7))).toEqual(before.slice(7))
})

test('segments whose merge failed are unchanged, and merged later', async () => {
  await using lab = await startLab()
  const row = await slowRun(lab)
  const before = await followed(lab.engine, row)
  let failures = 0
  const failing = {
    ...lab.db,
    $transaction: ((task: (tx: unknown) => Promise<unknown>) =>
      lab.db.$transaction(async (tx) => {
        await task(tx)
        if (++failures === 1) throw new Error('The disk is full')
      })) as Lab['db']['$transaction'],
  } as Lab['db']
  const compaction = createCompaction(failing)
  compaction.add(row.id)
  await expect(compaction.run()).rejects.toThrow('The disk is full')
  expect(await followed(lab.engine, row)).toEqual(before)
  await compaction.run()
  const after = await followed(lab.engine, row)
  expect(after.map(({ data }) => data)).toEqual(before.map(({ data }) => data))
  expect(await lab.db.executionEvent.count({ where: { executionId: row.id } })).toBeLessThan(4)
})
