import { beforeEach, describe, expect, it } from 'vitest'
import { CORE_SKILLS } from '../../src/skills/core.ts'
import { openSkills } from '../../src/skills/tools.ts'
import { request } from '../support/rest.ts'
import type { Member } from '../support/server.ts'
import { use } from '../support/use.ts'
import { callTool, type Lab, startLab } from './lab.ts'

const lab = await use(startLab())
const ann = await lab.server.member({ organization: 'Acme' })
const ben = await lab.server.member({ organization: 'Acme' })
const eve = await lab.server.member({ organization: 'Other' })

const open = async (who: Member, agentId: string, spaceId?: string) =>
  openSkills(lab.server.service.deps, await lab.user(who, agentId, spaceId))
type Opened = Awaited<ReturnType<typeof open>>

const namesIn = ({ instructions }: Opened) =>
  [...instructions.join('\n').matchAll(/^- ([\w-]+): /gm)].map(([, name]) => name)
const load = ({ tools }: Opened, name: string) => callTool(tools, 'load_skill', { name })
const change = (who: Member, id: string, body: object) =>
  request(lab.server, 'PATCH', `/api/v1/skills/${id}`, { token: who.token, body })

describe('a run with skills of its agent and of its space', () => {
  it('lists them by name and description, and loads a prompt when it needs it', async () => {
    const [a, b] = [await lab.skill(ann, { builtInTools: ['list_tasks'] }), await lab.skill(ann)]
    const core = CORE_SKILLS[0]!
    const agentId = await lab.agent(ann, { skillIds: [a.id, core.id] })
    const spaceId = await lab.space(ann, { addSkills: [b.id, a.id] })
    const opened = await open(ben, agentId, spaceId)
    expect(namesIn(opened)).toEqual([a.name, core.name, b.name])
    expect(opened.instructions.join()).toContain(core.description)
    expect(opened.instructions.join()).not.toContain(a.prompt)
    for (const skill of [a, b, core]) expect(await load(opened, skill.name)).toBe(skill.prompt)
    expect(opened.builtInTools).toEqual(new Set(['list_tasks', ...core.builtInTools]))
    await expect(load(opened, 'none')).rejects.toMatchObject({ status: 400 })
  })

  it('an agent without skills has neither the tool nor instructions', async () => {
    const opened = await open(ann, await lab.agent(ann))
    expect(opened).toEqual({ tools: [], instructions: [], builtInTools: new Set(), hasForeign: false })
  })

  it('distinguishes equal names of several organizations', async () => {
    const fields = { name: 'same-name', visibility: 'public' }
    const [own, other] = [
      await lab.skill(ann, { ...fields, prompt: 'own' }),
      await lab.skill(eve, { ...fields, prompt: 'other' }),
    ]
    const opened = await open(ann, await lab.agent(ann, { skillIds: [own.id, other.id] }))
    expect(namesIn(opened)).toEqual(['same-name', 'same-name-2'])
    expect([await load(opened, 'same-name'), await load(opened, 'same-name-2')]).toEqual(['own', 'other'])
  })

  it('keeps a description on its line', async () => {
    const skill = await lab.skill(ann, { description: 'For this.\n- evil: and\n\n# Orders' })
    const opened = await open(ann, await lab.agent(ann, { skillIds: [skill.id] }))
    expect(namesIn(opened)).toEqual([skill.name])
  })
})

describe('a skill in a run', () => {
  let skill: Awaited<ReturnType<Lab['skill']>>
  let agentId: string
  let spaceId: string
  beforeEach(async () => {
    skill = await lab.skill(ann, { visibility: 'public' })
    agentId = await lab.agent(ben, { skillIds: [skill.id] })
    spaceId = await lab.space(ben, { addSkills: [skill.id] })
  })

  it('is absent from each run and each call after its deletion', async () => {
    const opened = await open(ben, agentId, spaceId)
    await request(lab.server, 'DELETE', `/api/v1/skills/${skill.id}`, { token: ann.token })
    await expect(load(opened, skill.name)).rejects.toMatchObject({ status: 404, message: 'Skill not found' })
    expect(namesIn(await open(ben, agentId, spaceId))).toEqual([])
    expect((await lab.get(ben, `/api/v1/agents/${agentId}`)).agent.skillIds).toEqual([])
    expect((await lab.get(ben, `/api/v1/spaces/${spaceId}`)).space).toMatchObject({ skillIds: [], skillRefs: [] })
  })

  it("stays only in its owner's runs once it is private", async () => {
    const opened = await open(ben, agentId, spaceId)
    await change(ann, skill.id, { visibility: 'private' })
    await expect(load(opened, skill.name)).rejects.toMatchObject({ status: 404 })
    expect(namesIn(await open(ben, agentId, spaceId))).toEqual([])
    expect(namesIn(await open(ann, agentId, spaceId))).toEqual([skill.name])
    expect((await lab.get(ben, `/api/v1/agents/${agentId}`)).agent.skillIds).toEqual([])
    expect((await lab.get(ann, `/api/v1/agents/${agentId}`)).agent.skillIds).toEqual([skill.id])
  })

  it('keeps its version until the agent or the space accepts a change', async () => {
    const opened = await open(ben, agentId, spaceId)
    await change(ann, skill.id, { prompt: '# Better', builtInTools: ['write_file'] })
    expect(await load(opened, skill.name)).toBe(skill.prompt)
    const later = await open(ben, agentId, spaceId)
    expect(await load(later, skill.name)).toBe(skill.prompt)
    expect(later.builtInTools).toEqual(new Set())
    const behind = [{ skillId: skill.id, version: 1, latestVersion: 2, foreign: false }]
    expect((await lab.get(ben, `/api/v1/agents/${agentId}`)).agent.skillRefs).toEqual(behind)
    expect((await lab.get(ben, `/api/v1/spaces/${spaceId}`)).space.skillRefs).toMatchObject(behind)
    const { agent } = await lab.post(ben, `/api/v1/agents/${agentId}/skills/${skill.id}/update`, {})
    expect(agent).toMatchObject({ version: 2, skillRefs: [{ ...behind[0], version: 2 }] })
    expect(await load(await open(ben, agentId), skill.name)).toBe('# Better')
    const other = await lab.agent(ben)
    expect(await load(await open(ben, other, spaceId), skill.name)).toBe(skill.prompt)
    const { space } = await lab.post(ben, `/api/v1/spaces/${spaceId}/skills/${skill.id}/update`, {})
    expect(space.skillRefs).toMatchObject([{ ...behind[0], version: 2 }])
    expect(await load(await open(ben, other, spaceId), skill.name)).toBe('# Better')
  })

  it('changes with the next call if the policy accepts changes at once', async () => {
    const [boss, own] = [await lab.server.member({ organization: 'Latest', role: 'owner' }), 'Latest']
    const { id } = await lab.skill(boss, { name: 'own' })
    const agent = await lab.agent(boss, { skillIds: [id] })
    const path = `/api/v1/organizations/${boss.organizationId}/policy`
    const { body } = await request(lab.server, 'PATCH', path, { token: boss.token, body: { attachments: 'latest' } })
    expect(body.policy, own).toEqual({ foreignAgents: 'read', builtInTools: [], attachments: 'latest' })
    const opened = await open(boss, agent)
    await change(boss, id, { prompt: '# Better' })
    expect(await load(opened, 'own')).toBe('# Better')
    const { skillRefs } = (await lab.get(boss, `/api/v1/agents/${agent}`)).agent
    expect(skillRefs).toEqual([{ skillId: id, version: 2, latestVersion: 2, foreign: false }])
  })

  it('is absent once it is disabled in the space, or removed from it', async () => {
    const other = await lab.agent(ben)
    expect(namesIn(await open(ben, other, spaceId))).toEqual([skill.name])
    const enable = (enabled: boolean) =>
      lab.server.service.deps.db.spaceSkill.updateMany({ where: { spaceId }, data: { enabled } })
    await enable(false)
    expect(namesIn(await open(ben, other, spaceId))).toEqual([])
    expect((await lab.get(ben, `/api/v1/spaces/${spaceId}`)).space).toMatchObject({ skillIds: [], skillRefs: [{}] })
    await enable(true)
    await request(lab.server, 'PATCH', `/api/v1/spaces/${spaceId}`, {
      token: ben.token,
      body: { removeSkills: [skill.id] },
    })
    expect(namesIn(await open(ben, other, spaceId))).toEqual([])
  })
})

describe('a public agent of another organization', () => {
  it('gets the skills that its organization shares, and no tool shows their text', async () => {
    const [shared, secret, open_] = [
      await lab.skill(eve, { prompt: 'canary shared', builtInTools: ['write_file'] }),
      await lab.skill(eve, { prompt: 'canary secret', visibility: 'private' }),
      await lab.skill(eve, { prompt: 'canary public', visibility: 'public' }),
    ]
    const agentId = await lab.agent(eve, { visibility: 'public', skillIds: [shared.id, secret.id, open_.id] })
    const own = await lab.skill(ann, { prompt: 'of the space' })
    const opened = await open(ann, agentId, await lab.space(ann, { addSkills: [own.id] }))
    const text = opened.instructions.join('\n')
    expect(text).toContain('canary shared')
    expect(text).toContain('canary public')
    expect(text).not.toContain('canary secret')
    expect(opened.builtInTools).toEqual(new Set(['write_file']))
    expect(namesIn(opened)).toEqual([own.name])
    expect(await load(opened, own.name)).toBe('of the space')
    await expect(load(opened, shared.name)).rejects.toMatchObject({ status: 400 })
  })

  it('gets no more text than the limit', async () => {
    const prompt = 'x'.repeat(99_000)
    const skills = await Promise.all([1, 2, 3].map(() => lab.skill(eve, { prompt })))
    const agentId = await lab.agent(eve, { visibility: 'public', skillIds: skills.map(({ id }) => id) })
    const { instructions } = await open(ann, agentId)
    expect(instructions).toHaveLength(2)
  })
})

it('many skills take as few statements as one', async () => {
  const skills = await Promise.all(Array.from({ length: 20 }, () => lab.skill(ann)))
  const ids = skills.map(({ id }) => id)
  const user = await lab.user(ann, await lab.agent(ann, { skillIds: ids }), await lab.space(ann, { addSkills: ids }))
  const sent = await lab.server.statementsOf(() => openSkills(lab.server.service.deps, user))
  // The user's membership takes two of them.
  expect(sent.length, sent.join('\n')).toBeLessThanOrEqual(5)
})
