import fc from 'fast-check'
import { afterAll, beforeAll, expect, it } from 'vitest'
import * as directory from '../../src/agents/directory.ts'
import { countListed as countAgents, listedBy as listedAgents } from '../../src/agents/list.ts'
import * as agents from '../../src/agents/service.ts'
import type { Actor } from '../../src/auth/actor.ts'
import type { Db, MissionStatus, Role, Tx } from '../../src/db/client.ts'
import { lockCounts } from '../../src/db/totals.ts'
import type { Deps } from '../../src/deps.ts'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import { countListed as countMcps } from '../../src/mcps/list.ts'
import { reachable as reachableMcps } from '../../src/mcps/rows.ts'
import { countListed as countMissions, listedBy as listedMissions } from '../../src/missions/list.ts'
import type { MissionRow } from '../../src/missions/rows.ts'
import * as runEnded from '../../src/missions/run-ended.ts'
import { beginRun, fire } from '../../src/missions/runs.ts'
import * as missions from '../../src/missions/service.ts'
import { pause, resume } from '../../src/missions/status.ts'
import { removeMember } from '../../src/organizations/service.ts'
import { CORE_SKILLS } from '../../src/skills/core.ts'
import { listPage as listSkills } from '../../src/skills/list.ts'
import { listed as listedSkills } from '../../src/skills/rows.ts'
import * as spaces from '../../src/spaces/service.ts'
import { chatsFor, listedBy as listedSpaces } from '../../src/spaces/visibility.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { onPostgres, times } from '../support/postgres-shared.ts'

// Triggers maintain the totals. After any writes, each total must equal the number of rows that its list finds.

const ORGANIZATIONS = ['acme', 'other'] as const
const USERS = ['ann', 'ben'] as const
const TAGS = ['a', 'b c'] as const
const now = new Date()

let database: TestDatabase
let db: Db
beforeAll(async () => {
  database = await createTestDatabase()
  db = database.db
  for (const id of USERS) {
    await db.user.create({ data: { id, email: id, name: id, createdAt: now, updatedAt: now } })
  }
  for (const id of ORGANIZATIONS) await createOrganization(id)
})
afterAll(() => database.dispose())

const createOrganization = (id: string) => db.organization.create({ data: { id, name: id, slug: id, createdAt: now } })

/** Values of a created or changed row; `at` selects one of the existing rows. */
type Values = {
  at: number
  organization: (typeof ORGANIZATIONS)[number]
  user: (typeof USERS)[number]
  visibility: 'private' | 'organization' | 'public'
  isUnlisted: boolean
  tags: readonly string[]
  agent: number
  space: number
  mission: number
  status: MissionStatus
  isArchived: boolean
}
const STATUSES = ['pending', 'running', 'completed', 'paused'] as const satisfies MissionStatus[]
const NOTHING = {
  at: 0,
  isUnlisted: false,
  tags: [],
  agent: 0,
  space: 0,
  mission: 0,
  status: 'pending' as const,
  isArchived: false,
}
const seldom = fc.nat(4).map((number) => number === 0)
const values: fc.Arbitrary<Values> = fc.record({
  at: fc.nat(20),
  organization: fc.constantFrom(...ORGANIZATIONS),
  user: fc.constantFrom(...USERS),
  visibility: fc.constantFrom('private', 'private', 'organization', 'public'),
  isUnlisted: seldom,
  tags: fc.subarray([...TAGS]),
  agent: fc.nat(20),
  space: fc.nat(20),
  mission: fc.nat(20),
  status: fc.constantFrom(...STATUSES),
  isArchived: seldom,
})

const MODELS = ['agent', 'skill', 'mcpServer', 'space', 'mission', 'chat'] as const
type Model = (typeof MODELS)[number]
/** A step changes one column unless `all` is set. */
type Step = { model: Model; step: 'create' | 'change' | 'remove'; values: Values; column: number; all: boolean }

const steps: fc.Arbitrary<Step> = fc.record({
  model: fc.constantFrom(...MODELS, 'mission', 'chat'),
  step: fc.oneof(
    { weight: 4, arbitrary: fc.constant('create' as const) },
    { weight: 12, arbitrary: fc.constant('change' as const) },
    { weight: 1, arbitrary: fc.constant('remove' as const) },
  ),
  values,
  column: fc.nat(6),
  all: seldom,
})

let made = 0

type Row = { id: string; organizationId: string }
type Delegate = {
  create(call: object): Promise<Row>
  updateMany(call: object): Promise<unknown>
  deleteMany(call: object): Promise<unknown>
  findMany(call: object): Promise<Row[]>
}
const of = (tx: Tx, model: Model) => tx[model] as unknown as Delegate

/** Selects one of the existing rows. */
async function one(tx: Tx, model: Model, index: number, where: object = {}): Promise<Row | undefined> {
  const rows = await of(tx, model).findMany({
    where,
    orderBy: { id: 'asc' },
    select: { id: true, organizationId: true },
  })
  return rows[index % rows.length]
}

const META = { createdAt: now, updatedAt: now }

/** Writes any column of the organization's rows, in combinations that no service writes. */
const does: Record<Model, (tx: Tx, values: Values) => Promise<{ change: object; rest: object } | null>> = {
  agent: async (_, { user, visibility, isUnlisted, tags, isArchived }) => ({
    change: {
      userId: user,
      visibility: isUnlisted ? 'unlisted' : visibility,
      tags,
      archivedAt: isArchived ? now : null,
    },
    rest: {
      name: 'A',
      role: 'R',
      systemPrompt: 'S',
      searchText: '',
      version: 1,
      skillIds: [],
      mcpInstanceIds: [],
      mcpTypes: [],
      subagentIds: [],
      allowedTools: [],
      disallowedTools: [],
    },
  }),
  skill: async (_, { user, visibility }) => ({
    change: { ownerId: user, visibility },
    rest: {
      name: crypto.randomUUID(),
      displayName: 'S',
      description: 'D',
      prompt: 'P',
      category: 'other',
      version: 1,
      builtInTools: [],
      requiredMCPs: [],
    },
  }),
  mcpServer: async (_, { user }) => ({
    change: { ownerId: user },
    rest: { name: 'M', mcpType: 'custom', url: 'x', transport: 'sse', headers: {}, permissions: [] },
  }),
  space: async (_, { user, visibility, isArchived }) => ({
    change: { ownerId: user, visibility, archivedAt: isArchived ? now : null },
    rest: { name: 'S' },
  }),
  mission: async (tx, { organization, user, visibility, agent, space, status, isArchived }) => {
    const [by, where] = [await one(tx, 'agent', agent), await one(tx, 'space', space, { organizationId: organization })]
    if (!by || !where) return null
    return {
      change: {
        userId: user,
        visibility,
        status,
        archivedAt: isArchived ? now : null,
        agentId: by.id,
        agentOrganizationId: by.organizationId,
        spaceId: where.id,
      },
      rest: {
        title: 'T',
        goal: 'G',
        scheduleType: 'none',
        timezone: 'UTC',
        overlap: 'skip',
        catchUp: 'skip',
      },
    }
  },
  chat: async (tx, { organization, user, agent, space, mission, isArchived }) => {
    const where = { organizationId: organization }
    const [by, its, of] = [
      await one(tx, 'agent', agent),
      await one(tx, 'space', space, where),
      await one(tx, 'mission', mission, where),
    ]
    if (!its) return null
    const opened = by && agent % 4 ? { agentId: by.id, agentOrganizationId: by.organizationId } : null
    return {
      change: {
        spaceId: its.id,
        archivedAt: isArchived ? now : null,
        missionId: of && mission % 2 ? of.id : null,
        agentId: null,
        agentOrganizationId: null,
        ...opened,
      },
      rest: { ownerId: user, title: 'C', status: 'standby' },
    }
  },
}

async function take(tx: Tx, { model, step, values, column, all }: Step): Promise<void> {
  const { organization: organizationId, at, tags } = values
  const row = await one(tx, model, at, { organizationId })
  if (step === 'remove') return void (row && (await of(tx, model).deleteMany({ where: { id: row.id } })))
  const data = await does[model](tx, values)
  if (!data) return
  const id = step === 'create' ? `${model}-${++made}` : row?.id
  if (id === undefined) return
  // Two columns name the agent.
  const named = (name: string) => name.replace('agentOrganizationId', 'agentId')
  const names = [...new Set(Object.keys(data.change).map(named))]
  const change = Object.fromEntries(
    Object.entries(data.change).filter(([name]) => all || named(name) === names[column % names.length]),
  )
  if (step === 'create') {
    await of(tx, model).create({ data: { id, organizationId, ...data.change, ...data.rest, ...META } })
  } else {
    await of(tx, model).updateMany({ where: { id }, data: change })
  }
  if (model !== 'agent' || (step === 'change' && !('tags' in change))) return
  await tx.agentTag.deleteMany({ where: { agentId: id } })
  await tx.agentTag.createMany({ data: tags.map((tag) => ({ organizationId, agentId: id, tag })) })
}

/** Runs a few steps in one transaction, which may be rolled back at its end. Returns whether it was committed. */
const transaction = async (each: readonly Step[], isUndone: boolean): Promise<boolean> => {
  const undone = new Error('undone')
  const done = db.$transaction(async (tx) => {
    for (const step of each) await take(tx, step)
    if (isUndone) throw undone
  })
  return done.then(
    () => true,
    (error) => {
      // Foreign keys refuse the removal of an agent with missions, and the use of a row that was removed concurrently.
      if (error !== undone && !/foreign key|ForeignKey|P2003|Restrict/i.test(`${error.message} ${error.cause?.kind}`))
        throw error
      return false
    },
  )
}

const actors = ORGANIZATIONS.flatMap((organizationId) =>
  USERS.flatMap((userId) =>
    (['member', 'admin'] as const).map(
      (role: Role): Actor => ({
        organizationId,
        organizationSlug: organizationId,
        userId,
        role,
        scopes: [],
        tokenId: '',
      }),
    ),
  ),
)
const VISIBILITIES = [undefined, 'private', 'organization', 'public', 'unlisted'] as const

/** Yields the total of each list and the number of rows that its filters find. */
async function* totals(): AsyncGenerator<[list: string, total: number, found: number]> {
  const deps = { db } as Deps
  const page = { limit: 1 }
  for (const tag of [undefined, ...TAGS]) {
    const input = { ...page, ...(tag && { tag }) }
    const where = await directory.publiclyVisibleBy(deps, input)
    yield [`public ${tag}`, await directory.countPubliclyVisible(deps, input, where), await db.agent.count({ where })]
  }
  for (const actor of actors) {
    const who = `${actor.organizationId} ${actor.userId} ${actor.role}`
    for (const visibility of actor.role === 'member' ? VISIBILITIES : []) {
      for (const filter of [{}, { owner: 'me' as const }, ...TAGS.map((tag) => ({ tag }))]) {
        const input = { ...page, ...filter, ...(visibility && { visibility }) }
        const where = await listedAgents(actor, deps, input)
        const total = await countAgents(actor, deps, input, where)
        yield [`agents ${who} ${JSON.stringify(input)}`, total, await db.agent.count({ where })]
      }
    }
    const listed = await Promise.all(listedSkills(actor).map((where) => db.skill.count({ where })))
    const skillsFound = listed.reduce((sum, count) => sum + count, CORE_SKILLS.length)
    yield [`skills ${who}`, (await listSkills(actor, deps, page, false)).total, skillsFound]
    const mcpsFound = await db.mcpServer.count({ where: reachableMcps(actor) })
    yield [`mcps ${who}`, await countMcps(actor, db, {}), mcpsFound]
    const spacesFound = await db.space.count({ where: listedSpaces(actor, {}) })
    yield [`spaces ${who}`, await spaces.countListed(actor, db, {}), spacesFound]
    for (const { id, chatCount } of (await spaces.list(actor, deps, { limit: 100 })).spaces) {
      const where = { spaceId: id, ...chatsFor(actor) }
      yield [`chats of ${id} ${who}`, chatCount, await db.chat.count({ where })]
    }
    for (const filter of [{}, ...STATUSES.map((status) => ({ status }))]) {
      const found = await db.mission.count({ where: listedMissions(actor, filter) })
      yield [`missions ${who} ${JSON.stringify(filter)}`, await countMissions(actor, db, filter), found]
    }
  }
}

/** Compares all totals. Returns the largest number of rows found. */
async function expectTotals(): Promise<number> {
  const wrong: string[] = []
  let most = 0
  for await (const [list, total, found] of totals()) {
    if (total !== found) wrong.push(`${list}: ${total}, not ${found}`)
    most = Math.max(most, found)
  }
  expect(wrong).toEqual([])
  return most
}

const transactions = fc.array(fc.tuple(fc.array(steps, { minLength: 1, maxLength: 3 }), fc.nat(5)), {
  minLength: 100,
  maxLength: 110,
  size: 'max',
})

it("every total equals its list's length after any writes in any order", async () => {
  let [kept, most] = [0, 0]
  const write = fc.asyncProperty(transactions, async (each) => {
    for (const [some, chance] of each) if (await transaction(some, chance === 0)) kept++
    most = Math.max(most, await expectTotals())
  })
  await fc.assert(write, { numRuns: times(25), endOnFailure: true })
  expect(kept).toBeGreaterThan(50 * times(25))
  expect(most).toBeGreaterThan(5)
})

it("every total equals its list's length after concurrent writes", async () => {
  const write = fc.asyncProperty(transactions, async (each) => {
    await Promise.all(each.map(([[step], chance]) => transaction([step!], chance === 0)))
    await expectTotals()
  })
  await fc.assert(write, { numRuns: times(5), endOnFailure: true })
})

/** Returns the transactions that wait for a counting lock. */
const waiting = () => db.$queryRaw<object[]>`
  SELECT 1 FROM pg_locks JOIN pg_database d ON d.oid = database AND d.datname = current_database()
  WHERE locktype = 'advisory' AND NOT granted`
const oneWaits = () => expect.poll(waiting, { interval: 5 }).toHaveLength(1)

const SHARED: Values = {
  ...NOTHING,
  organization: 'acme',
  user: 'ann',
  visibility: 'organization',
  agent: 1,
  mission: 1,
}

/** Creates a row that all members of the organization see. */
const create = (tx: Tx, model: Model) => take(tx, { model, step: 'create', values: SHARED, column: 0, all: true })

/** Empties the tables and creates these rows, each in its own transaction. */
async function startWith(...models: Model[]): Promise<void> {
  for (const model of ['chat', 'mission', 'space', 'agent'] as const) await of(db, model).deleteMany({})
  for (const model of models) await db.$transaction((tx) => create(tx, model))
}

it.runIf(onPostgres).each([
  ['mission', 'space'],
  ['mission', 'agent'],
  ['chat', 'agent'],
  ['chat', 'mission'],
] as const)('a %s is counted before or after its %s is hidden, never in between', async (counted, model) => {
  await startWith('space', 'agent', 'mission')
  const { hidden } = await db.$transaction(async (tx) => {
    await create(tx, counted)
    const hidden = of(db, model).updateMany({ data: { visibility: 'private' } })
    await oneWaits()
    return { hidden }
  })
  await hidden
  await expectTotals()
})

it.runIf(onPostgres)('hiding a mission while its run begins makes only one of the two wait', async () => {
  await startWith('space', 'agent', 'mission')
  const { id } = await db.mission.findFirstOrThrow()
  const settings = { DATABASE_URL: 'postgresql://', DATA_DIR: '' }
  const deps = { db, settings, clock: { now: () => now } } as Deps
  database.queries.length = 0
  let begun = 0
  const { hidden } = await db.$transaction(async (tx) => {
    begun++
    await create(tx, 'chat')
    const hidden = missions.update(actors[0]!, deps, { id, visibility: 'private' })
    await oneWaits()
    await tx.mission.updateMany({ where: { id }, data: { runCount: 1 } })
    return { hidden }
  })
  await hidden
  // Neither was rolled back and retried.
  const hiding = database.queries.filter((sql) => /^UPDATE "Mission" SET .*"visibility" =/.test(sql))
  expect([begun, hiding.length]).toEqual([1, 1])
  expect(await db.mission.findFirst()).toMatchObject({ visibility: 'private', runCount: 1 })
  await expectTotals()
})

type Change = (deps: Deps, mission: MissionRow) => Promise<unknown>

/** Every change that completes, pauses or activates a mission, with the status before it and the locks that it takes. */
const PHASES: [what: string, status: MissionStatus, change: Change, locks?: number][] = [
  [
    'the end of its run',
    'running',
    (deps, { id }) =>
      deps.db.$transaction(async (tx) => {
        await runEnded.lockForRunEnded(tx, deps, endOf(id))
        await runEnded.onRunEnded(tx, endOf(id), now)
      }),
  ],
  [
    'a run by hand that begins as another ends',
    'completed',
    (deps, mission) => beginRun(deps, { ...mission, status: 'running' }, { actor: ANN, fire: null, key: null }),
  ],
  ['a run by hand', 'completed', (deps, mission) => beginRun(deps, mission, { actor: ANN, fire: null, key: null })],
  ['a fire time without an owner', 'pending', (deps, mission) => fire(deps, { ...mission, userId: 'gone' }, now)],
  ['a pause', 'pending', (deps, { id }) => pause(ANN, deps, id)],
  ['the end of its pause', 'paused', (deps, { id }) => resume(ANN, deps, id)],
  ['another time', 'completed', (deps, { id }) => missions.update(ANN, deps, { id, schedule: TOMORROW })],
  ['its deletion', 'pending', (deps, { id }) => missions.remove(ANN, deps, id)],
  ['the end of its agent', 'pending', (deps, { agentId }) => agents.remove(ANN, deps, agentId)],
  [
    'the end of a membership',
    'pending',
    ({ db, settings }) => db.$transaction((tx) => removeMember(tx, settings, 'acme', 'ann', now)),
    // Before it locks the organization, and again as it pauses the missions.
    2,
  ],
]
const ANN = actors[0]!
const TOMORROW = { type: 'once' as const, value: new Date(now.getTime() + 86_400_000).toISOString() }
const endOf = (missionId: string) => ({ id: 'run', missionId, status: 'completed' }) as ExecutionRow

/** The dependencies that these changes use. `accept` runs only the mission's part of an acceptance. */
const deps = () =>
  ({
    db,
    settings: { DATABASE_URL: 'postgresql://', DATA_DIR: '' },
    clock: { now: () => now },
    pause: { isPaused: () => false },
    engine: {
      accept: ({ first, also }: Parameters<Deps['engine']['accept']>[0]) =>
        db.$transaction(async (tx) => {
          await first?.(tx)
          await also?.(tx, 'run', now)
        }),
    },
  }) as unknown as Deps

it.runIf(onPostgres).each(PHASES)(
  '%s waits for the counting lock of its mission without locking a row',
  async (_, status, change, expected = 1) => {
    await startWith('space', 'agent', 'mission')
    await db.membership.deleteMany()
    for (const userId of USERS) {
      const role = userId === 'ann' ? 'member' : 'owner'
      await db.membership.create({ data: { organizationId: 'acme', userId, role, createdAt: now } })
    }
    await db.mission.updateMany({ data: { status, executionId: 'run', nextRunAt: status === 'pending' ? now : null } })
    const mission = await db.mission.findFirstOrThrow()
    database.queries.length = 0
    let begun = 0
    const { changed } = await db.$transaction(async (tx) => {
      begun++
      await lockCounts(tx, deps().settings, 'acme')
      const changed = change(deps(), mission)
      await oneWaits()
      await tx.mission.updateMany({ data: { title: 'U' } })
      return { changed }
    })
    await changed
    // Neither was rolled back and retried.
    const locks = database.queries.filter((sql) => sql.includes('"lockMissionTotals"'))
    expect([begun, locks.length]).toEqual([1, expected])
    const after = await db.mission.findFirstOrThrow()
    expect(after).not.toMatchObject({ status, archivedAt: null })
    await expectTotals()
  },
)

it.runIf(onPostgres)(
  'the end of a membership locks its runs, the mission totals and its organization, in order',
  async () => {
    await startWith('space', 'agent', 'mission')
    await db.membership.deleteMany()
    await db.membership.create({ data: { organizationId: 'acme', userId: 'ann', role: 'member', createdAt: now } })
    database.queries.length = 0
    await db.$transaction((tx) => removeMember(tx, deps().settings, 'acme', 'ann', now))
    const LOCK = /^UPDATE "(Execution|Organization|Mission)"|"lockMissionTotals"/
    const locks = database.queries.flatMap((sql) => LOCK.exec(sql)?.[0] ?? [])
    const order = ['UPDATE "Execution"', '"lockMissionTotals"', 'UPDATE "Organization"', 'UPDATE "Mission"']
    expect([...new Set(locks)]).toEqual(order)
  },
)

it.runIf(onPostgres)('a mission that is resumed and hidden at once locks its run first, then the totals', async () => {
  await startWith('space', 'agent', 'mission')
  await db.mission.updateMany({ data: { status: 'paused', executionId: 'run' } })
  const { id } = await db.mission.findFirstOrThrow()
  database.queries.length = 0
  await missions.update(ANN, deps(), { id, status: 'pending', visibility: 'private' })
  const locks = database.queries.flatMap((sql) => /^UPDATE "(Execution|Mission)"|"lockCounts"/.exec(sql)?.[0] ?? [])
  expect(locks.slice(0, 2)).toEqual(['UPDATE "Execution"', '"lockCounts"'])
  expect(locks.slice(2)).toContain('UPDATE "Mission"')
  await expectTotals()
})

/**
 * Returns how often a change writes to `ChatCount` and `Total`, also at the end of the transaction. The session counts
 * earlier transactions, too.
 */
const writesOf = (change: (tx: Tx) => Promise<unknown>) =>
  db.$transaction(async (tx) => {
    const countWrites = () => tx.$queryRaw<{ chats: number; totals: number }[]>`
      SELECT sum("writes") FILTER (WHERE relname = 'ChatCount')::int AS "chats",
        sum("writes") FILTER (WHERE relname = 'Total')::int AS "totals"
      FROM (SELECT relname, n_tup_ins + n_tup_upd AS "writes" FROM pg_stat_xact_user_tables) AS tables`
    const [before] = await countWrites()
    await change(tx)
    await tx.$executeRaw`SET CONSTRAINTS ALL IMMEDIATE`
    const [after] = await countWrites()
    return { chats: after!.chats - before!.chats, totals: after!.totals - before!.totals }
  })

it.runIf(onPostgres).each([
  ['pause', { status: 'paused' }],
  ['hide', { visibility: 'private' }],
] as const)('a statement that %ss many missions changes each total once', async (_, data) => {
  await startWith('space', 'agent', 'mission', 'mission', 'mission', 'chat', 'chat', 'chat')
  const changes = await writesOf((tx) => tx.mission.updateMany({ data }))
  expect(changes).toEqual({ chats: 'status' in data ? 0 : 2, totals: 4 })
  await expectTotals()
})

it.runIf(onPostgres).each([
  ['agent', 'userId'],
  ['skill', 'ownerId'],
  ['space', 'ownerId'],
] as const)('a statement that gives many %ss to another user changes each total once', async (model, owner) => {
  await startWith()
  const hidden: Values = { ...SHARED, visibility: 'private' }
  for (const user of ['ann', 'ann', 'ben'] as const)
    await take(db, { model, step: 'create', values: { ...hidden, user }, column: 0, all: true })
  const where = { organizationId: 'acme', [owner]: 'ann' }
  const changes = await writesOf((tx) => of(tx, model).updateMany({ where, data: { [owner]: 'ben' } }))
  expect(changes).toEqual({ chats: 0, totals: 2 })
  await expectTotals()
})

it.runIf(onPostgres)('a chat is counted in one part, whatever row count PostgreSQL estimates', async () => {
  await startWith('space')
  await db.$executeRaw`VACUUM FULL "ChatCount"`
  await db.$transaction((tx) => create(tx, 'chat'))
  await db.$executeRaw`ANALYZE "ChatCount"`
  // Two concurrent creations make a second part.
  await db.$transaction(async (tx) => {
    await create(tx, 'chat')
    await db.$transaction((other) => create(other, 'chat'))
  })
  expect(await db.chatCount.count()).toBe(2)
  for (let count = 0; count < 20; count++) await db.$transaction((tx) => create(tx, 'chat'))
  await expectTotals()
})

it('deleting a space subtracts its chats from the totals, whichever part counted them', async () => {
  await startWith('space', 'chat', 'chat')
  await expectTotals()
  await db.chatCount.updateMany({ data: { part: 99 } })
  await db.space.deleteMany()
  expect(await db.chat.count()).toBe(0)
  expect(await db.chatCount.count()).toBe(0)
})

it('a deleted organization leaves no totals, and public totals drop its rows', async () => {
  for (const model of ['chat', 'mission'] as const) await of(db, model).deleteMany({})
  await db.organization.deleteMany({ where: { id: 'other' } })
  expect(await db.total.count({ where: { organizationId: 'other' } })).toBe(0)
  await createOrganization('other')
  await expectTotals()
  const ofAll = await db.total.findMany({ where: { organizationId: '', list: { not: 'skills' } } })
  expect(ofAll.filter(({ value }) => !value.startsWith('public'))).toEqual([])
  for (const model of ['agent', 'skill', 'mcpServer', 'space'] as const) await of(db, model).deleteMany({})
  expect(await db.total.findMany({ where: { count: { not: 0 } } })).toEqual([])
  expect(await db.chatCount.count()).toBe(0)
})
