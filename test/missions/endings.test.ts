import { expect, it } from 'vitest'
import { finishEndings } from '../../src/missions/endings.ts'
import { addMember } from '../../src/organizations/service.ts'
import { ok } from '../support/api.ts'
import { stopClock } from '../support/clock.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { createTrigger, dropTrigger } from '../support/trigger.ts'
import { use } from '../support/use.ts'

const { advance, now } = stopClock('2026-06-01T12:00:00Z')
/** Gives each transaction its own time. */
const clock = {
  now() {
    advance(1)
    return now()
  },
}
const server = await use(startServer({}, { clock }))
const { db } = server.service.deps
const { admin, ann, ben, owner } = await server.people('admin', 'ann', 'ben', 'owner')

type Holder = { token: string }
const call = ({ token }: Holder, method: string, path: string, body?: object) =>
  ok(request(server, method, `/api/v1${path}`, { token, ...(body && { body }) }))

/** Number of missions and of tasks that a transaction changes, and some more. */
const MANY = 1_002
const schedule = { type: 'cron', value: '* * * * *' }

/** Creates the rows of a table again with other ids, until there are {@link MANY}. */
const copies = <Row extends { id: string }>(row: Row) =>
  Array.from({ length: MANY - 1 }, (_, index) => ({ ...row, id: `${row.id}-${index}` }))

/** Creates an agent and {@link MANY} missions with it. Returns their ids. */
async function createMissions(who: Holder): Promise<{ agentId: string; ids: string[] }> {
  const { id: agentId } = await call(owner, 'POST', '/agents', { name: 'Ada', systemPrompt: 'x' })
  const { id } = await call(who, 'POST', '/missions', { title: 'M', goal: 'g', agentId, schedule })
  const { output: _, ...row } = await db.mission.findUniqueOrThrow({ where: { id } })
  const data = copies(row)
  await db.$transaction((tx) => tx.mission.createMany({ data }))
  return { agentId, ids: [id, ...data.map((copy) => copy.id)] }
}

/** Returns the largest number of rows that were changed in one transaction. */
const mostAtOnce = (rows: readonly { updatedAt: Date }[]) =>
  Math.max(
    ...Map.groupBy(rows, ({ updatedAt }) => updatedAt.getTime())
      .values()
      .map(({ length }) => length),
  )

/** Finishes the endings, and expects that all missions of an agent are paused. Returns how many were at once at most. */
async function pausedAtOnce(agentId: string, pauseReason: string): Promise<number> {
  await finishEndings(server.service.deps)
  const paused = { agentId, status: 'paused', pauseReason, nextRunAt: null } as const
  expect(await db.mission.count({ where: paused })).toBe(MANY)
  expect(await db.ending.count({})).toBe(0)
  return mostAtOnce(await db.mission.findMany({ where: paused, select: { updatedAt: true } }))
}

const remove = (who: Member) => call(admin, 'DELETE', `/organizations/${who.organizationId}/members/${who.userId}`)

it('a member with many missions and tasks loses access at once, and the rest follows', async () => {
  const { agentId } = await createMissions(ann)
  const { task } = await call(owner, 'POST', '/tasks', { title: 'T', assignTo: ann.userId })
  const { output: _, ...row } = await db.task.findUniqueOrThrow({ where: { id: task.id } })
  await db.$transaction((tx) => tx.task.createMany({ data: copies(row) }))
  await remove(ann)
  expect((await request(server, 'GET', '/api/v1/agents', { token: ann.token })).status).toBe(403)
  // A server does it by itself, also after a restart.
  await expect.poll(() => db.ending.count({})).toBe(0)
  expect(await pausedAtOnce(agentId, 'The owner is no longer a member')).toBeLessThanOrEqual(1_000)
  expect(await db.task.count({ where: { assignedTo: ann.userId } })).toBe(0)
  const tasks = await db.task.findMany({ where: { assignedTo: null }, select: { updatedAt: true } })
  expect(tasks).toHaveLength(MANY)
  expect(mostAtOnce(tasks)).toBeLessThanOrEqual(1_000)
})

it('a key revoked with cascade is refused at once, and many missions of it are paused', async () => {
  const { id, token } = await call(ben, 'POST', '/keys', { name: 'k' })
  const { agentId, ids } = await createMissions({ token })
  const { derived } = await call(ben, 'DELETE', `/keys/${id}?cascade=true`)
  expect(derived.missions).toHaveLength(1_000)
  expect((await request(server, 'GET', '/api/v1/agents', { token })).status).toBe(401)
  expect(await pausedAtOnce(agentId, 'The key it was written with was revoked')).toBe(1_000)
  const events = await db.auditEvent.findMany({ where: { action: 'mission.pause', actor: ben.userId } })
  expect(events.map(({ target }) => target).sort()).toEqual(ids.sort())
})

it('an agent with many missions is archived, and they are paused', async () => {
  const { agentId } = await createMissions(ben)
  await call(owner, 'DELETE', `/agents/${agentId}`)
  expect(await pausedAtOnce(agentId, 'The agent was archived')).toBeLessThanOrEqual(1_000)
})

it('a mission whose key was revoked with cascade does not start before it is paused', async () => {
  const { id: keyId, token } = await call(ben, 'POST', '/keys', { name: 'k' })
  const { id: agentId } = await call(owner, 'POST', '/agents', { name: 'Ada', systemPrompt: 'x' })
  const { id } = await call({ token }, 'POST', '/missions', { title: 'M', goal: 'g', agentId, schedule })
  await db.token.update({ where: { id: keyId }, data: { revokedAt: clock.now(), cascade: true } })
  advance(60_000)
  const found = () => db.mission.findUniqueOrThrow({ where: { id } })
  await expect.poll(async () => (await found()).status).toBe('paused')
  expect(await found()).toMatchObject({ pauseReason: 'The key it was written with was revoked', runCount: 0 })
})

it('a user is not added again while missions of the earlier membership remain', async () => {
  const { organizationId, userId } = await server.member({ organization: 'Acme', email: 'dan@acme' })
  await call(owner, 'DELETE', `/organizations/${organizationId}/members/${userId}`)
  const ending = {
    organizationId,
    kind: 'member',
    target: userId,
    actor: owner.userId,
    createdAt: clock.now(),
  } as const
  const addAgain = db.$transaction(async (tx) => {
    await tx.ending.create({ data: ending })
    return addMember(tx, organizationId, 'dan@acme', 'member', clock.now())
  })
  await expect(addAgain).rejects.toThrow('The earlier membership of this user is still ending')
})

it('a server that reads an ending before another finishes it leaves a new membership alone', async () => {
  const { agentId, ids } = await createMissions(ben)
  const { task } = await call(owner, 'POST', '/tasks', { title: 'T', assignTo: ben.userId })
  const finished = { organizationId: ben.organizationId, kind: 'member', target: ben.userId, tokenId: null } as const
  const row = { ...finished, actor: owner.userId, createdAt: clock.now() }
  const read = [row]
  const late = { ...db, ending: { ...db.ending, findFirst: async () => read.pop() ?? null } } as typeof db
  await finishEndings({ ...server.service.deps, db: late })
  expect(await db.mission.count({ where: { agentId, status: 'paused' } })).toBe(0)
  expect(await db.mission.count({ where: { agentId } })).toBe(ids.length)
  expect(await db.task.count({ where: { id: task.id, assignedTo: ben.userId } })).toBe(1)
})

it('any number of endings that fail are reported by name, and delay no other', async () => {
  const { organizationId, userId: actor } = owner
  const targets = [...Array.from({ length: 101 }, (_, index) => `fails-${index}`), 'follows']
  const data = targets.map((target) => ({ organizationId, kind: 'agent' as const, target, actor, createdAt: now() }))
  const where = { target: { startsWith: 'fails-' } }
  await using cleanup = new AsyncDisposableStack()
  const effect = `UPDATE "Ending" SET "actor" = NULL`
  const trigger = {
    name: 'broken',
    event: 'BEFORE DELETE',
    table: 'Ending',
    when: `OLD."target" LIKE 'fails-%'`,
    effect,
  }
  await createTrigger(db, trigger)
  cleanup.defer(async () => {
    await dropTrigger(db, 'broken')
    await db.ending.deleteMany({ where })
  })
  await db.ending.createMany({ data })
  await expect(finishEndings(server.service.deps)).rejects.toThrow(/null/i)
  expect(await db.ending.count({})).toBe(101)
  expect(await db.ending.count({ where })).toBe(101)
  await expect.poll(() => server.logs.join('')).toContain('"kind":"agent","target":"fails-0"')
})
