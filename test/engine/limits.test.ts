import Sqlite from 'better-sqlite3'
import { expect, onTestFinished, test, vi } from 'vitest'
import { overrideMembers } from '../../src/db/override-members.ts'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import { createAgent } from '../support/api.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { violations } from './invariants.ts'
import { asked, ended, gates, type Lab, nextTurn, PLAIN, startLab } from './lab.ts'
import { call, startToolLab } from './tool-lab.ts'

const statuses = async ({ db }: Lab, rows: ExecutionRow[]) => {
  const found = await db.execution.findMany({ where: { id: { in: rows.map(({ id }) => id) } } })
  return rows.map(({ id }) => found.find((row) => row.id === id)?.status)
}

async function runAll(lab: Lab, messages: string[], overrides: Parameters<Lab['run']>[0] = {}) {
  const rows: ExecutionRow[] = []
  for (const message of messages) {
    // Ids of the same millisecond have no order.
    lab.clock.advance(1)
    rows.push(await lab.run({ message, ...overrides }))
  }
  return rows
}

const numbered = (prefix: string, count: number) => Array.from({ length: count }, (_, index) => `${prefix}${index}`)

/** Creates a member of a new organization, in the engine's form, with an agent. */
async function anotherOrganization({ server, db }: Lab, organization: string) {
  const member = await server.member({ organization, role: 'owner' })
  const agentId = await createAgent({ url: server.url, token: member.token })
  const agent = await db.agent.findUniqueOrThrow({ where: { id: agentId } })
  const { organizationId, userId } = member
  const { id: spaceId } = await db.space.findFirstOrThrow({ where: { organizationId, isDefault: true } })
  const actor = { userId, organizationId, organizationSlug: organization, role: 'owner', scopes: ['*'], tokenId: '' }
  return { actor: { ...actor, role: 'owner' as const }, agent, conversation: { spaceId } }
}

test('at most MAX_RUNNING runs are active, and the others start in the order of their arrival', async () => {
  await using lab = await startLab({ MAX_RUNNING: '2' })
  const open = gates(lab)
  const messages = numbered('m', 6)
  const rows = await runAll(lab, messages)
  expect(rows.map(({ status }) => status)).toEqual(['running', 'running', 'pending', 'pending', 'pending', 'pending'])
  for (const [index, message] of messages.entries()) {
    await lab.model.request(Math.min(index + 1, 5))
    expect(lab.model.active).toBe(Math.min(2, 6 - index))
    open(message)
    await ended(lab.engine, rows[index]!)
  }
  // The first two start together.
  const [one, two, ...others] = asked(lab)
  expect([[one, two].sort(), others]).toEqual([messages.slice(0, 2), messages.slice(2)])
  expect(await violations(lab.db)).toEqual([])
})

// On PostgreSQL the end of a run takes many turns of the event loop, in which hundreds of runs would arrive.
test('runs accepted without capacity take none from those that wait', async () => {
  await using lab = await startLab({ MAX_RUNNING: '1' })
  const open = gates(lab)
  let gate = Promise.resolve()
  const $transaction = async (work: never) => {
    await gate
    return lab.db.$transaction(work)
  }
  const engine = lab.another({ db: overrideMembers(lab.db, { $transaction }) })
  const agent = await lab.db.agent.findFirstOrThrow()
  const accept = (message: string) =>
    engine.accept({ ...PLAIN, actor: lab.actor, agent, message, conversation: { spaceId: lab.spaceId } })
  // The other process has no capacity either.
  await lab.run({ message: 'Elsewhere' })
  await accept('A')
  await accept('B')
  const held = Promise.withResolvers<void>()
  gate = held.promise
  const accepting = accept('C')
  gate = Promise.resolve()
  open('A')
  await expect.poll(() => asked(lab)).toContain('B')
  held.resolve()
  await accepting
  for (const message of ['Elsewhere', 'B', 'C']) open(message)
  await lab.idle()
  await engine.drain()
})

test.skipIf(onPostgres)('a run that arrives as capacity frees up does not overtake those that wait', async () => {
  await using lab = await startLab({ MAX_RUNNING: '1' })
  const open = gates(lab)
  const rows = await runAll(lab, ['first', 'second'])
  open('first')
  // A run arrives on every turn of the event loop, also between the end of one run and the start of the next.
  const newcomers: Promise<ExecutionRow>[] = []
  const first = ended(lab.engine, rows[0]!).then(() => 'ended')
  for (let index = 0; (await Promise.race([first, nextTurn()])) !== 'ended'; index++) {
    newcomers.push(lab.run({ message: `newcomer ${index}` }))
  }
  for (let index = 0; index < 5; index++) newcomers.push(lab.run({ message: `late ${index}` }))
  const { length } = await Promise.all(newcomers)
  await lab.model.request(1)
  expect(asked(lab)).toEqual(['first', 'second'])
  open('second')
  for (let index = 0; index < length - 5; index++) open(`newcomer ${index}`)
  for (let index = 0; index < 5; index++) open(`late ${index}`)
  await lab.idle()
  expect(asked(lab)).toHaveLength(length + 2)
  expect(await violations(lab.db)).toEqual([])
})

/** Stops all periodic work, so that only the end of a run starts the next. */
function withoutSweeps(): void {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  onTestFinished(() => void vi.useRealTimers())
}

test('an organization runs at most its limit, in order, and does not delay another one', async () => {
  withoutSweeps()
  await using lab = await startLab({ MAX_RUNNING_PER_ORGANIZATION: '2' })
  const open = gates(lab)
  const acme = await anotherOrganization(lab, 'acme')
  const ours = numbered('ours', 5)
  const rows = await runAll(lab, ours)
  expect(await statuses(lab, rows)).toEqual(['running', 'running', 'pending', 'pending', 'pending'])
  const theirs = await runAll(lab, numbered('theirs', 3), acme)
  expect(await statuses(lab, theirs)).toEqual(['running', 'running', 'pending'])

  // They start when one of their own ends, though our runs are older and wait.
  open('theirs0')
  await ended(lab.engine, theirs[0]!)
  await expect.poll(() => statuses(lab, theirs)).toEqual(['completed', 'running', 'running'])
  expect(await statuses(lab, rows)).toEqual(['running', 'running', 'pending', 'pending', 'pending'])
  // The first two start together.
  const begun = () => {
    const [one, two, ...others] = asked(lab).filter((message) => String(message).startsWith('ours'))
    return [...[one, two].sort(), ...others]
  }
  for (const [index, row] of rows.entries()) {
    open(`ours${index}`)
    await ended(lab.engine, row)
    await expect.poll(begun).toEqual(ours.slice(0, index + 3))
  }
  open('theirs1')
  open('theirs2')
  await lab.idle()
  expect(await violations(lab.db)).toEqual([])
})

test("a run locks its own row before its organization's, at its start and at its end", async () => {
  await using lab = await startLab({ MAX_RUNNING_PER_ORGANIZATION: '1' })
  const open = gates(lab)
  const [first, second] = (await runAll(lab, ['first', 'second'])) as [ExecutionRow, ExecutionRow]
  lab.server.queries.length = 0
  open('first')
  await ended(lab.engine, first)
  await expect.poll(() => statuses(lab, [second])).toEqual(['running'])
  const { queries } = lab.server
  const claims = queries.findLastIndex((sql) => /^UPDATE "Execution" SET .*"agentVersion"/.test(sql))
  const takesCapacity = queries.findLastIndex((sql) => /^UPDATE "Organization" SET /.test(sql))
  expect(claims).toBeGreaterThan(-1)
  expect(takesCapacity).toBeGreaterThan(claims)
  open('second')
  await lab.idle()
})

test('an organization with more pending runs than one look reads does not hide another one', async () => {
  withoutSweeps()
  await using lab = await startLab({ MAX_RUNNING_PER_ORGANIZATION: '1' })
  const open = gates(lab)
  const acme = await anotherOrganization(lab, 'acme')
  await runAll(lab, numbered('ours', 120))
  const theirs = await runAll(lab, ['theirs0', 'theirs1'], acme)
  open('theirs0')
  await ended(lab.engine, theirs[0]!)
  await expect.poll(() => statuses(lab, theirs)).toEqual(['completed', 'running'])
})

test('an organization at its own limit does not delay another one, or count as full', async () => {
  await using lab = await startLab({ MAX_RUNNING_PER_ORGANIZATION: '1', MAX_PENDING_RUNS: '1' })
  gates(lab)
  const acme = await anotherOrganization(lab, 'acme')
  await runAll(lab, ['ours0', 'ours1'])
  for (let turn = 0; turn < 50; turn++) await nextTurn()
  const [theirs] = await runAll(lab, ['theirs'], acme)
  expect(theirs?.status).toBe('running')
})

test('beyond MAX_PENDING_RUNS pending runs a request gives 429, until there is capacity', async () => {
  await using lab = await startLab({ MAX_RUNNING: '1', MAX_PENDING_RUNS: '2' })
  const open = gates(lab)
  const path = `/api/v1/agents/${lab.agentId}/execute`
  const execute = (message: string) => request(lab.server, 'POST', path, { body: { message, background: true } })
  const accepted = [await execute('m0'), await execute('m1'), await execute('m2')]
  expect(accepted.map(({ body }) => body.status)).toEqual(['running', 'pending', 'pending'])
  const counts = async () => [await lab.db.execution.count(), await lab.db.chat.count(), await lab.db.session.count()]
  const before = await counts()
  const refused = await execute('m3')
  expect(refused.status).toBe(429)
  expect(refused.headers.get('retry-after')).toBe('60')
  expect(refused.body).toMatchObject({ error: true, message: 'Rate limit exceeded. Retry after 60 seconds.' })
  expect(refused.body.detail).toContain('MAX_PENDING_RUNS')
  expect(await counts()).toEqual(before)

  // A session's queue is pending, too.
  const { chatId, sessionId } = accepted[0]!.body
  const body = { message: 'm4', background: true, chatId, sessionId }
  expect((await request(lab.server, 'POST', path, { body })).status).toBe(429)
  // A run that waits for a person does not.
  const waiting = { where: { id: accepted[2]!.body.executionId as string } }
  await lab.db.execution.update({ ...waiting, data: { waitingFor: 'approval', waitingSince: new Date() } })
  const another = await execute('m6')
  expect(another.body.status).toBe('pending')
  await request(lab.server, 'POST', `/api/v1/executions/${another.body.executionId}/cancel`)
  await lab.db.execution.update({ ...waiting, data: { waitingFor: null, waitingSince: null } })
  open('m0')
  await ended(lab.engine, await lab.row(accepted[0]!.body.executionId))
  await lab.model.request(1)
  expect((await execute('m5')).status).toBe(200)
  for (const message of ['m1', 'm2', 'm5']) open(message)
  await lab.idle()
  expect(await violations(lab.db)).toEqual([])
})

test('of many concurrent runs at most MAX_PENDING_RUNS wait', async () => {
  await using lab = await startLab({ MAX_RUNNING: '1', MAX_PENDING_RUNS: '5' })
  gates(lab)
  const answers = await Promise.allSettled(numbered('m', 40).map((message) => lab.run({ message })))
  const refused = answers.flatMap((answer) => (answer.status === 'rejected' ? answer.reason : []))
  expect(refused).toHaveLength(34)
  expect(refused).toEqual(refused.map(() => expect.objectContaining({ status: 429 })))
  expect(await lab.db.execution.count({ where: { status: 'pending' } })).toBe(5)
})

test('the count of running runs stays right through every end, and through a dead server', async () => {
  await using lab = await startLab({ MAX_RUNNING_PER_ORGANIZATION: '3', LEASE_DURATION: '600' })
  const running = async () => (await lab.db.organization.findFirstOrThrow()).running
  const open = gates(lab)
  const rows = await runAll(lab, ['completes', 'is cancelled', 'hangs', 'waits'])
  expect(await running()).toBe(3)
  await lab.model.request(2)
  await lab.engine.cancel(rows[3]!, lab.actor)
  expect(await running()).toBe(3)
  await lab.engine.cancel(rows[1]!, lab.actor)
  expect(await running()).toBe(2)
  open('completes')
  await ended(lab.engine, rows[0]!)
  expect(await running()).toBe(1)
  lab.model.script({ error: { status: 500 } })
  await ended(lab.engine, await lab.run({ message: 'fails' }))
  expect(await running()).toBe(1)

  // Another process takes it over, and it counts as one run all the time.
  await using other = disposable(lab)
  lab.clock.advance(700_000)
  await other.engine.start(false)
  expect((await lab.row(rows[2]!.id)).attempt).toBe(2)
  expect(await running()).toBe(1)
  open('hangs')
  await lab.idle()
  expect(await running()).toBe(0)
})

const disposable = (lab: Lab) => {
  const engine = lab.another()
  return { engine, [Symbol.asyncDispose]: () => engine.drain() }
}

test('a limit that is set later counts the runs that are active already', async () => {
  await using lab = await startLab()
  gates(lab)
  await runAll(lab, ['m0', 'm1', 'm2'])
  expect((await lab.db.organization.findFirstOrThrow()).running).toBe(0)
  const settings = { ...lab.server.service.deps.settings, MAX_RUNNING_PER_ORGANIZATION: 10 }
  const engine = lab.another({ settings })
  await engine.start(false)
  expect((await lab.db.organization.findFirstOrThrow()).running).toBe(3)
  await engine.drain()
})

test('runs with decided approvals start in their turn, also those with a parent', async () => {
  await using toolLab = await startToolLab({ MAX_RUNNING: '1' })
  const { lab } = toolLab
  const agent = await toolLab.agent({}, [{ tool: 'echo', mode: 'ask' }])
  lab.model.script({ tokens: 'Hello.' })
  const parent = await ended(lab.engine, await lab.run({ agent }))
  const rows: ExecutionRow[] = []
  for (const text of ['a', 'b', 'c']) {
    lab.model.script({ toolCalls: [call('echo', { text })] })
    const row = await lab.run({ agent, parent })
    await expect.poll(async () => (await lab.row(row.id)).waitingFor).toBe('approval')
    rows.push(row)
  }
  let most = 0
  lab.model.fallback = { tokens: Array(20).fill('word '), delay: 10 }
  const { approvals } = (await request(lab.server, 'GET', '/api/v1/approvals')).body
  for (const { id } of approvals) await request(lab.server, 'POST', `/api/v1/approvals/${id}/approve`)
  const isOver = async () => {
    most = Math.max(most, await lab.db.execution.count({ where: { status: 'running' } }))
    return (await statuses(lab, rows)).every((status) => status === 'completed')
  }
  await expect.poll(isOver, { interval: 10 }).toBe(true)
  expect(most).toBe(1)
})

test.skipIf(onPostgres)('a run that cannot start delays neither other pending runs nor new ones', async () => {
  await using lab = await startLab({ MAX_RUNNING: '1' })
  const open = gates(lab)
  const [first, bad, next] = await runAll(lab, ['first', 'bad', 'next'])
  const database = new Sqlite(`${lab.server.folder}/muster.db`)
  database.exec(`CREATE TRIGGER "bad" BEFORE INSERT ON "Message" WHEN NEW."executionId" = '${bad!.id}'
    BEGIN SELECT RAISE(ABORT, 'refused'); END`)
  database.close()
  for (const message of ['first', 'next', 'late']) open(message)
  await ended(lab.engine, first!)
  await ended(lab.engine, next!)
  const late = await lab.run({ message: 'late' })
  expect(await ended(lab.engine, late)).toMatchObject({ status: 'completed' })
  expect(await statuses(lab, [bad!])).toEqual(['pending'])
  expect(lab.server.logs.join()).toContain('failed to start a pending run; the sweep will retry')
})
