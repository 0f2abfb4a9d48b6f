import { expect, test } from 'vitest'
import { openTools } from '../../src/executions/tools.ts'
import { takeOver } from '../../src/organizations/former.ts'
import { removeMember } from '../../src/organizations/service.ts'
import { APIS, apis } from '../support/api.ts'
import type { Input } from '../support/inputs.ts'
import { request } from '../support/rest.ts'
import type { Member } from '../support/server.ts'
import { use } from '../support/use.ts'
import { callTool, startLab } from '../tools/lab.ts'
import { maker } from './fixtures.ts'

/** Sharing by an organization, use of shared things, and its past (contract-2.md sections 8.5 and 8.6). */

const FORBIDDEN = "You don't have permission to access this resource"

const lab = await use(startLab())
const ann = await lab.server.member({ organization: 'Acme' })
const boss = await lab.server.member({ organization: 'Acme', role: 'owner' })
const eve = await lab.server.member({ organization: 'Other' })

const on = (api: (typeof APIS)[number], procedure: string, input: Input, who: Member) =>
  apis[api](lab.server, procedure, input, { token: who.token })
const policy = async (changes: Input) => {
  const { status, body } = await on('REST', 'organizations.updatePolicy', { id: boss.organizationId, ...changes }, boss)
  expect(status, JSON.stringify(body)).toBe(200)
}
const open = async (who: Member, agentId: string, spaceId?: string) =>
  openTools(lab.server.service.deps, await lab.user(who, agentId, spaceId))
const modes = async (...of: Parameters<typeof open>) =>
  Object.fromEntries((await open(...of)).tools.map(({ name, mode }) => [name, mode]))

test.each(APIS)('%s: members read the policy, and admins of the organization change it', async (api) => {
  const { organizationId: id } = boss
  const { body } = await on(api, 'organizations.getPolicy', { id }, ann)
  expect(body.policy).toEqual({ foreignAgents: 'read', builtInTools: [], attachments: 'pinned' })
  for (const who of [ann, eve]) {
    const answer = await on(api, 'organizations.updatePolicy', { id, foreignAgents: 'all' }, who)
    expect([answer.status, answer.body.message]).toEqual([403, FORBIDDEN])
  }
  expect((await on(api, 'organizations.getPolicy', { id }, eve)).status).toBe(403)
  expect((await on(api, 'organizations.updatePolicy', { id, foreignAgents: 'some' }, boss)).status).toBe(400)
  const changed = await on(api, 'organizations.updatePolicy', { id, foreignAgents: 'off' }, boss)
  expect(changed.body.policy).toMatchObject({ foreignAgents: 'off', attachments: 'pinned' })
  const [event] = await lab.server.service.deps.db.auditEvent.findMany({
    where: { action: 'policy.update' },
    orderBy: [{ at: 'desc' }, { id: 'desc' }],
    take: 1,
  })
  expect(JSON.parse(event?.changes ?? '{}')).toEqual({ foreignAgents: { from: 'read', to: 'off' } })
  await policy({ foreignAgents: 'read' })
})

test('a foreign agent has the built-in tools that the policy allows, and loses them during a run', async () => {
  const allowedTools = ['list_tasks', 'create_task', 'read_file', 'write_file']
  const stranger = await lab.agent(eve, { visibility: 'public', allowedTools })
  expect(await modes(ann, stranger)).toEqual({ list_tasks: 'allow', read_file: 'allow' })
  const { tools } = await open(ann, stranger)
  await policy({ foreignAgents: 'off' })
  await expect(tools[0]?.recheck?.()).rejects.toMatchObject({ status: 403 })
  expect(await modes(ann, stranger)).toEqual({})
  await policy({ foreignAgents: 'all' })
  expect(Object.keys(await modes(ann, stranger))).toEqual(allowedTools)
  await policy({ foreignAgents: 'read' })
})

test('the strictest setting of agent, space and organization wins for a built-in tool', async () => {
  const allowedTools = ['list_tasks', 'create_task', 'read_file', 'write_file']
  const permissions = [{ tool: 'create_task', mode: 'ask' }]
  const agent = await lab.agent(ann, { allowedTools, permissions })
  const space = await lab.space(ann, {
    permissions: [
      { tool: 'read_file', mode: 'allow' },
      { tool: '*', mode: 'ask' },
    ],
  })
  const free = { list_tasks: 'allow', create_task: 'ask', read_file: 'allow', write_file: 'allow' }
  expect(await modes(ann, agent)).toEqual(free)
  expect(await modes(ann, agent, space)).toEqual({ ...free, list_tasks: 'ask', write_file: 'ask' })
  const { tools } = await open(ann, agent)
  await policy({ builtInTools: [{ tool: 'write_file', mode: 'deny' }] })
  await expect(tools.find(({ name }) => name === 'write_file')?.recheck?.()).rejects.toMatchObject({ status: 403 })
  const { write_file: _, ...rest } = free
  expect(await modes(ann, agent)).toEqual(rest)
  await policy({ builtInTools: [] })
  expect(await lab.get(ann, `/api/v1/agents/${agent}`)).toMatchObject({ agent: { permissions } })
})

test('an update of a foreign skill adds no tool and no text until it is accepted', async () => {
  const skill = await lab.skill(eve, { visibility: 'public', builtInTools: ['list_tasks'] })
  const agent = await lab.agent(ann, { skillIds: [skill.id] })
  const body = { prompt: 'canary', builtInTools: ['list_tasks', 'write_file'] }
  await request(lab.server, 'PATCH', `/api/v1/skills/${skill.id}`, { token: eve.token, body })
  const { tools } = await open(ann, agent)
  expect(tools.map(({ name }) => name)).toEqual(['load_skill', 'list_tasks'])
  expect(await callTool(tools, 'load_skill', { name: skill.name })).toBe(skill.prompt)
  const ref = { skillId: skill.id, version: 1, latestVersion: 2, foreign: true }
  expect((await lab.get(ann, `/api/v1/agents/${agent}`)).agent.skillRefs).toEqual([ref])
  expect((await on('tRPC', 'agents.updateSkill', { id: agent, skillId: 'none' }, ann)).status).toBe(404)
  const updated = await on('tRPC', 'agents.updateSkill', { id: agent, skillId: skill.id }, ann)
  expect(updated.body.agent.skillRefs).toEqual([{ ...ref, version: 2 }])
  expect(Object.keys(await modes(ann, agent))).toEqual(['load_skill', 'list_tasks', 'write_file'])
})

test.each(APIS)('%s: publishing an agent shows nothing of its private past', async (api) => {
  const make = maker(lab.server, ann)
  const agent = await make.agent({ visibility: 'private', canary: 'canary' })
  const past = await make.run({ canary: 'canary' }, { id: agent })
  await make.does('agents.update', {
    id: agent,
    name: 'Open',
    slug: `open-${api.toLowerCase()}`,
    role: 'Open',
    description: 'Open',
    systemPrompt: 'Open',
    initialGreeting: 'Open',
    visibility: 'organization',
  })
  const shared = await make.run({ canary: 'open' }, { id: agent })
  const seen = async (procedure: string, input: Input) => (await on(api, procedure, input, boss)).body
  const everything = [
    await seen('agents.versions', { id: agent }),
    await seen('executions.list', { agentId: agent }),
    await seen('chats.list', { agentId: agent }),
  ]
  expect(JSON.stringify(everything)).not.toContain('canary')
  expect(everything[0].versions).toMatchObject([{ version: 2 }])
  expect(JSON.stringify(everything)).toContain(shared.execution)
  for (const [procedure, id] of [
    ['executions.get', past.execution],
    ['executions.tree', past.execution],
    ['executions.logs', past.execution],
    ['chats.get', past.chat],
    ['chats.messages', past.chat],
  ] as const) {
    expect((await on(api, procedure, { id }, boss)).status, procedure).toBe(404)
    expect((await on(api, procedure, { id }, ann)).status, procedure).toBe(200)
  }
  for (const input of [{ chatId: past.chat }, { sessionId: past.session }]) {
    const answer = await on(api, 'agents.execute', { id: agent, message: 'And?', background: true, ...input }, boss)
    expect(answer.status).toBe(404)
  }
  const counted = await seen('executions.list', { agentId: agent, count: 'true' })
  expect([counted.total, counted.executions.length]).toEqual([1, 1])
  const chats = await seen('chats.list', { agentId: agent, count: 'true' })
  expect(chats.total).toBe(chats.chats.length)
  await make.idle()
})

test.each(APIS)('%s: only owners list and take over the things of a former member', async (api) => {
  const { db, settings, clock } = lab.server.service.deps
  const gone = await lab.server.member({ organization: 'Acme' })
  const make = maker(lab.server, gone)
  const closed = { visibility: 'private', canary: 'Left' } as const
  const [agent, space, skill] = [await make.agent(closed), await make.space(closed), await make.skill(closed)]
  const [mcp, media] = [await make.mcp(closed), await make.media(closed)]
  const mission = await make.mission(closed, { agentId: agent })
  await db.mission.update({ where: { id: mission }, data: { scopes: 'agents:read' } })
  const named = { id: boss.organizationId, userId: gone.userId }
  expect((await on(api, 'organizations.takeOver', named, boss)).status).toBe(409)
  await db.$transaction((tx) => removeMember(tx, settings, gone.organizationId, gone.userId, clock.now()))
  for (const who of [ann, eve]) {
    for (const procedure of ['organizations.listFormer', 'organizations.listThings', 'organizations.takeOver']) {
      expect((await on(api, procedure, named, who)).status).toBe(403)
    }
  }
  const { members } = (await on(api, 'organizations.listFormer', { id: boss.organizationId }, boss)).body
  expect(members).toMatchObject([
    { userId: gone.userId, things: expect.arrayContaining([{ kind: 'agents', count: 1 }]) },
  ])
  const { things } = (await on(api, 'organizations.listThings', named, boss)).body
  const ids = things.map(({ id }: { id: string }) => id)
  expect(ids).toEqual(expect.arrayContaining([agent, space, skill, mcp, media, mission]))
  expect((await on(api, 'agents.get', { id: agent }, boss)).status).toBe(404)
  expect((await on(api, 'organizations.takeOver', named, boss)).status).toBe(200)
  expect((await on(api, 'agents.get', { id: agent }, boss)).body.agent.userId).toBe(boss.userId)
  expect(await db.chat.findMany({ where: { agentId: agent }, select: { ownerId: true } })).toEqual([
    { ownerId: boss.userId },
  ])
  // It runs within the scopes of the new owner's token, which has all.
  expect((await db.mission.findUniqueOrThrow({ where: { id: mission } })).scopes).toBeNull()
  for (const [procedure, id] of [
    ['missions.delete', mission],
    ['agents.delete', agent],
    ['spaces.delete', space],
    ['skills.delete', skill],
    ['mcps.delete', mcp],
    ['media.delete', media],
  ] as const) {
    expect((await on(api, procedure, { id }, boss)).status, procedure).toBe(200)
  }
  expect((await on(api, 'organizations.listFormer', { id: boss.organizationId }, boss)).body.members).toEqual([])
})

test('any number of things of a former member is taken over, in transactions of limited size', async () => {
  const { db, settings, clock } = lab.server.service.deps
  const gone = await lab.server.member({ organization: 'Acme' })
  const id = await maker(lab.server, gone).media({ canary: 'Left', visibility: 'organization' })
  const row = await db.media.findUniqueOrThrow({ where: { id } })
  const data = Array.from({ length: 1_001 }, (_, index) => ({ ...row, id: `${id}-${index}` }))
  await db.$transaction((tx) => tx.media.createMany({ data }))
  await db.$transaction((tx) => removeMember(tx, settings, gone.organizationId, gone.userId, clock.now()))
  const path = `/api/v1/organizations/${boss.organizationId}/former-members/${gone.userId}/take-over`
  const options = { token: boss.token, headers: { 'Idempotency-Key': 'all' } }
  const sent = await lab.server.statementsOf(async () => {
    const { body } = await request(lab.server, 'POST', path, options)
    expect(body.taken).toEqual([{ kind: 'media', count: 1_002 }])
  })
  const parameters = sent.map((sql) => sql.match(/\?|\$\d+/g)?.length ?? 0)
  expect(Math.max(...parameters)).toBeLessThan(300)
  expect(
    sent.filter((sql) => /^UPDATE "Agent"/.test(sql)),
    'no kind is changed that they do not own',
  ).toEqual([])
  const stored = sent.filter((sql) => /^UPDATE .*"IdempotencyRecord"/s.test(sql))
  expect(stored, 'each transaction renews the lease, or stores the answer').toHaveLength(5)
  expect((await request(lab.server, 'POST', path, options)).body.taken).toEqual([{ kind: 'media', count: 1_002 }])
  expect(await db.media.count({ where: { userId: gone.userId } })).toBe(0)
})

/** Creates a former member with a mission. Returns the ids and the path that takes it over. */
async function leftMission() {
  const { db, settings, clock } = lab.server.service.deps
  const gone = await lab.server.member({ organization: 'Acme' })
  const make = maker(lab.server, gone)
  const agentId = await make.agent({ canary: 'Left', visibility: 'organization' })
  const id = await make.mission({ canary: 'Left', visibility: 'organization' }, { agentId })
  await db.$transaction((tx) => removeMember(tx, settings, gone.organizationId, gone.userId, clock.now()))
  const path = `/api/v1/organizations/${boss.organizationId}/former-members/${gone.userId}/take-over`
  return { gone, id, path }
}

test('missions that remain to be paused are paused before another member owns them', async () => {
  const { db, clock } = lab.server.service.deps
  const { gone, id, path } = await leftMission()
  const nextRunAt = new Date(clock.now().getTime() + 3_600_000)
  const ending = { organizationId: gone.organizationId, kind: 'member', target: gone.userId } as const
  await db.$transaction(async (tx) => {
    await tx.mission.update({ where: { id }, data: { status: 'pending', pauseReason: null, nextRunAt } })
    await tx.ending.create({ data: { ...ending, actor: boss.userId, createdAt: clock.now() } })
  })
  expect((await request(lab.server, 'POST', path, { token: boss.token })).status).toBe(200)
  const { userId, tokenId, status, nextRunAt: next } = await db.mission.findUniqueOrThrow({ where: { id } })
  const { id: key } = await db.token.findFirstOrThrow({ where: { userId: boss.userId, revokedAt: null } })
  expect({ userId, tokenId, status, next }).toEqual({ userId: boss.userId, tokenId: key, status: 'paused', next: null })
})

test('a take-over that cannot be answered, or whose caller has lost access, takes nothing', async () => {
  const { deps } = lab.server.service
  const { db, settings, clock } = deps
  const { gone, id } = await leftMission()
  const { organizationId, userId } = await lab.server.member({ organization: 'Acme', role: 'owner' })
  const { id: tokenId } = await db.token.findFirstOrThrow({ where: { userId } })
  const caller = { organizationId, organizationSlug: 'acme', userId, role: 'owner', scopes: ['*'], tokenId } as const
  const named = { id: organizationId, userId: gone.userId }
  const renew = async () => {}
  const full = takeOver(caller, deps, named, { keep: () => Promise.reject(new Error('The disk is full')), renew })
  await expect(full).rejects.toThrow('The disk is full')
  await db.$transaction((tx) => removeMember(tx, settings, organizationId, userId, clock.now()))
  const late = takeOver(caller, deps, named, { keep: async (_, answer) => answer, renew })
  await expect(late).rejects.toMatchObject({ status: 403 })
  expect((await db.mission.findUniqueOrThrow({ where: { id } })).userId).toBe(gone.userId)
})
