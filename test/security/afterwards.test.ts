import { beforeEach, describe, expect, test } from 'vitest'
import { BUILT_IN_TOOLS } from '../../src/lib/built-in-tools.ts'
import { fire } from '../../src/missions/runs.ts'
import { startLab } from '../engine/lab.ts'
import { APIS, apis, procedures } from '../support/api.ts'
import { callRoot, rootsOf } from '../support/graphql-api.ts'
import { type Input, shapeOf, takesId } from '../support/inputs.ts'
import type { ModelRequest } from '../support/model-server.ts'
import type { Member } from '../support/server.ts'
import { use } from '../support/use.ts'
import { everything, type Ids, inputWith, kindsOf, maker, neverWas } from './fixtures.ts'

/**
 * The isolation matrix for decisions made after the request. A run opens its tools when it begins and checks again at
 * each call; a pending run begins later; a mission fires when it is due; a request is repeated. By then access may be
 * closed.
 */

const CANARY = 'canary-closed'

const others = {} as Record<'colleague' | 'outsider', Member>
const OTHERS = [
  ['another member', 'colleague'],
  ['the owner of another organization', 'outsider'],
] as const

const lab = await use(startLab())
const organization = 'Victim'
const victim = await lab.server.member({ organization })
others.colleague = await lab.server.member({ organization })
others.outsider = await lab.server.member({ organization: 'Other', role: 'owner' })

type Call = { name: string; input: Input }

/** A model that obeys: it makes the calls listed in a message, and otherwise repeats everything that it received. */
function obey({ body: { messages, tools } }: ModelRequest) {
  const answers = messages.flatMap(({ role, content }) => (role === 'tool' ? [content] : []))
  if (answers.length) return { tokens: JSON.stringify(answers) }
  const message = messages.at(-1)?.content
  if (typeof message !== 'string' || !message.startsWith('[')) return { tokens: JSON.stringify({ messages, tools }) }
  return { toolCalls: (JSON.parse(message) as Call[]).map((call, index) => ({ id: `call-${index}`, ...call })) }
}
beforeEach(() => {
  lab.model.fallback = obey
})

/** Returns the result of a run. */
async function run(who: Member, input: Input): Promise<string> {
  return (await maker(lab.server, who).does('agents.execute', { message: 'What do you know?', ...input })).result
}

/** Returns the result of each tool, as the model received it. */
const answersOf = async (who: Member, id: string, calls: Call[]): Promise<string[]> =>
  JSON.parse(await run(who, { id, message: JSON.stringify(calls) }))

describe('a run', () => {
  test.each(OTHERS)('a run of %s learns nothing about foreign things attached to its agent', async (_, who) => {
    const make = maker(lab.server, victim)
    const closed = { visibility: 'private', canary: CANARY } as const
    const [agent, skill] = await Promise.all([make.agent(closed), make.skill(closed)])
    const hanging = { subagentIds: [agent], skillIds: [skill] }
    const marks = { canary: 'open', visibility: who === 'outsider' ? 'public' : 'organization' } as const
    const id = await make.agent(marks, hanging)
    const spaceId = await make.space({ canary: 'open' }, { addAgents: [agent], addSkills: [skill] })
    const input = who === 'outsider' ? { id } : { id, spaceId }
    expect(await run(victim, { id, spaceId })).toContain(CANARY)
    expect(await run(others[who], input)).not.toContain(CANARY)
  })

  test("learns nothing that another user's private agent said in the same chat", async () => {
    const make = maker(lab.server, victim)
    const shared = await everything(lab.server, victim, 'open')
    const agent = await make.agent({ visibility: 'private', canary: CANARY })
    await make.run({ canary: CANARY }, { id: agent, chatId: shared.chat })
    expect(await run(others.colleague, { id: shared.agent, chatId: shared.chat })).not.toContain(CANARY)
  })

  test('learns nothing that its agent was told in the same chat while it was private', async () => {
    const make = maker(lab.server, victim)
    const shared = await everything(lab.server, victim, 'open')
    const id = await make.agent({ visibility: 'private', canary: 'open' })
    await make.run({ canary: CANARY }, { id, chatId: shared.chat })
    await make.does('agents.update', { id, visibility: 'organization' })
    const message = 'What did I miss?'
    for (const before of ['none', message]) {
      const seen = await run(others.colleague, { id, chatId: shared.chat, message })
      expect(seen).not.toContain(CANARY)
      expect(seen.split(message).length > 2).toBe(before === message)
    }
  })

  test.each(OTHERS)(
    'a run of %s finds nothing by any id that its model names, as if it never existed',
    async (_, who) => {
      const make = maker(lab.server, victim)
      const theirs: Ids = await everything(lab.server, victim, CANARY)
      // All members share the tasks of an organization.
      const closed: Ids = { agent: await make.agent({ visibility: 'private', canary: CANARY }) }
      const ids = who === 'outsider' ? theirs : closed
      const own = await everything(lab.server, others[who], 'own')
      const id = await maker(lab.server, others[who]).agent({ canary: 'own' }, { allowedTools: [...BUILT_IN_TOOLS] })
      const { tools } = JSON.parse(await run(others[who], { id })) as { tools: OfferedTool[] }
      const fields = tools.flatMap(({ function: { name, parameters } }) =>
        Object.keys(parameters.properties)
          .filter(takesId)
          .flatMap((field) => kindsOf('tasks', field).map((kind) => ({ name, field, kind, ...parameters }))),
      )
      expect(fields.length).toBeGreaterThan(6)
      const attacks = fields.flatMap((field) => {
        const id = ids[field.kind]
        return id ? [{ ...field, id }] : []
      })
      const callWith = ({ name, field, required = [] }: (typeof fields)[number], value: string): Call => {
        const examples = required.map((key) => [key, key === 'id' ? own.task : 'an-example'])
        return { name, input: { ...Object.fromEntries(examples), [field]: value } }
      }
      const nobodys = attacks.map(({ kind }) => neverWas(kind))
      const found = await answersOf(
        others[who],
        id,
        attacks.map((attack) => callWith(attack, attack.id)),
      )
      const none = await answersOf(
        others[who],
        id,
        attacks.map((attack, index) => callWith(attack, nobodys[index]!)),
      )
      expect(found.map((text, index) => text.replaceAll(attacks[index]!.id, '<id>'))).toEqual(
        none.map((text, index) => text.replaceAll(nobodys[index]!, '<id>')),
      )
    },
  )

  test('refuses to call an agent that was closed to its user after the run began', async () => {
    const make = maker(lab.server, victim)
    const subagent = await make.agent({ canary: 'open' }, { name: 'Sue' })
    const boss = await make.agent({ canary: 'open' }, { subagentIds: [subagent] })
    const input = { message: 'Go on' }
    const before = await answersOf(others.colleague, boss, [{ name: 'delegate_to_sue', input }])
    expect(before.join()).toContain('Go on')
    lab.model.script((asked) => {
      const closing = make.does('agents.update', { id: subagent, visibility: 'private' }).then(() => '')
      return { tokens: [closing], ...obey(asked) }
    })
    const after = await answersOf(others.colleague, boss, [{ name: 'delegate_to_sue', input }])
    expect(after).toEqual(['Agent not found'])
    expect(await lab.db.execution.count({ where: { agentId: subagent } })).toBe(1)
  })
})

type OfferedTool = {
  function: { name: string; parameters: { properties: Record<string, unknown>; required?: string[] } }
}

/** Creates an agent and a space that all members see. `close` makes one private to its owner. */
async function opened() {
  const make = maker(lab.server, victim)
  const [agent, space] = [await make.agent({ canary: 'open' }), await make.space({ canary: 'open' })]
  return {
    agent,
    space,
    close: {
      agent: () => make.does('agents.update', { id: agent, visibility: 'private' }),
      space: () => make.does('spaces.update', { id: space, visibility: 'private' }),
    },
  }
}

const CLOSED = [
  ['agent', 'Agent not found'],
  ['space', 'Space not found'],
] as const

describe('once an agent or a space is closed to a user', () => {
  test.each(CLOSED)("the user's pending run never begins (%s)", async (what, error) => {
    const { agent, space, close } = await opened()
    const { does } = maker(lab.server, others.colleague)
    const gate = Promise.withResolvers<string>()
    lab.model.fallback = () => ({ tokens: [gate.promise] })
    const message = `Wait for the ${what}`
    const input = { id: agent, background: true }
    const { sessionId } = await does('agents.execute', { ...input, spaceId: space, message: 'First' })
    const { executionId, status } = await does('agents.execute', { ...input, sessionId, message })
    expect(status).toBe('pending')
    await close[what]()
    gate.resolve('Done.')
    await lab.idle()
    expect(await lab.row(executionId)).toMatchObject({ status: 'failed', error })
    expect(JSON.stringify(lab.model.requests.map(({ body }) => body))).not.toContain(message)
  })

  test.each(CLOSED)("the user's mission no longer runs when it is due (%s)", async (what, pauseReason) => {
    const { agent, space, close } = await opened()
    const make = maker(lab.server, others.colleague)
    const schedule = { type: 'cron', value: '0 * * * *' }
    const id = await make.mission({ canary: 'own' }, { agentId: agent, spaceId: space, schedule })
    await close[what]()
    const mission = await lab.db.mission.findUniqueOrThrow({ where: { id } })
    await fire(lab.server.service.deps, mission, mission.nextRunAt!)
    expect(await lab.db.mission.findUniqueOrThrow({ where: { id } })).toMatchObject({ status: 'paused', pauseReason })
    expect(await lab.db.execution.count({ where: { missionId: id } })).toBe(0)
  })

  test.each(APIS)('%s repeats no answer that names things made with it', async (api) => {
    const { agent, space, close } = await opened()
    const make = maker(lab.server, others.colleague)
    const own = await everything(lab.server, others.colleague, 'own')
    const again = async (procedure: string, id: string) => {
      const headers = { 'Idempotency-Key': procedure }
      const input = {
        ...inputWith(procedure, 'id', id, own),
        ...(procedure.endsWith('execute') && { message: 'Hello' }),
      }
      const { status, body } = await apis[api](lab.server, procedure, input, { ...others.colleague, headers })
      return { status, body: { ...body, requestId: '' } }
    }
    const done = new Map<string, string>()
    for (const procedure of REPEATED) {
      const gate = Promise.withResolvers<string>()
      const hangs = procedure === 'executions.cancel'
      lab.model.fallback = () => (hangs ? { tokens: [gate.promise] } : { tokens: 'Done.' })
      const begun = await make.does('agents.execute', { id: agent, spaceId: space, message: 'Hello', background: true })
      if (!hangs) await make.idle()
      const { approval } = hangs ? { approval: undefined } : await make.approved({ canary: 'own' }, begun)
      const mission = await make.mission({ canary: 'own' }, { agentId: agent, spaceId: space })
      if (procedure === 'missions.resume') await make.does('missions.pause', { id: mission })
      const id = { agent, approval, mission, execution: begun.executionId }[kindOf(procedure)] ?? ''
      if ((await again(procedure, id)).status === 200) done.set(procedure, id)
      gate.resolve('Done.')
      await make.idle()
    }
    expect([...done.keys()]).toEqual(REPEATED)
    await close.agent()
    await close.space()
    for (const [procedure, id] of done) {
      // A rerun needs the agent.
      if (CONTROLLED.has(kindOf(procedure)) && procedure !== 'executions.rerun') {
        const answer = await again(procedure, id)
        expect([procedure, answer.status]).not.toEqual([procedure, 404])
        expect(JSON.stringify(answer)).not.toMatch(/open agent|Hello/)
        continue
      }
      const never = neverWas(kindOf(procedure))
      expect([procedure, await again(procedure, id)]).toEqual([procedure, await again(procedure, never)])
    }
  })

  test.each(['private', 'archived'])('%s: an agent of another organization hides its new name', async (how) => {
    const make = maker(lab.server, victim)
    const agent = await make.agent({ visibility: 'public', canary: 'open' })
    const own = await everything(lab.server, others.outsider, 'own')
    const theirs = maker(lab.server, others.outsider)
    const made = await theirs.run({ canary: 'own' }, { id: agent })
    const mission = await theirs.mission({ canary: 'own' }, { agentId: agent })
    await make.does('agents.update', {
      id: agent,
      name: CANARY,
      role: CANARY,
      description: CANARY,
      visibility: 'private',
    })
    if (how === 'archived') await make.does('agents.delete', { id: agent })
    const { token } = others.outsider
    const traces: string[] = []
    const hear = (where: string, answer: object) => {
      const at = JSON.stringify(answer).indexOf(CANARY)
      if (at >= 0) traces.push(`${where}: ${JSON.stringify(answer).slice(at - 100, at + 20)}`)
    }
    for (const procedure of Object.keys(procedures).filter((name) => procedures[name]!._def.type !== 'mutation')) {
      const input = inputWith(procedure, null, undefined, { ...own, ...made, mission })
      for (const api of APIS) hear(procedure, await apis[api](lab.server, procedure, input, { token }))
      for (const root of rootsOf(procedure)) {
        hear(`GraphQL ${procedure}`, await callRoot(lab.server, root, input, { token, depth: 3 }))
      }
    }
    expect(traces).toEqual([])
    const { body } = await apis.REST(lab.server, 'missions.run', { id: mission }, { token })
    expect(body.message).toBe(how === 'private' ? 'Agent not found' : 'Mission is paused')
  })
})

/**
 * Kinds that depend on other users' agents and spaces. Files are left out because only a space's owner writes them, and
 * tasks because all members share them.
 */
const HANGING = ['agent', 'approval', 'execution', 'mission'] as const
type Hanging = (typeof HANGING)[number]

/** The starter of a run keeps control of it and of its approvals, without its texts (contract-2.md section 8.3). */
const CONTROLLED: ReadonlySet<Hanging> = new Set(['approval', 'execution'])

const kindOf = (procedure: string) => kindsOf(procedure, 'id')[0] as Hanging

/**
 * Every POST with such an id in its path, because its answer is stored under its Idempotency-Key. Changes that only the
 * owner of an agent or a space may make are left out.
 */
const REPEATED = Object.keys(procedures).filter((name) => {
  const isPost = procedures[name]!._def.meta.openapi?.method === 'POST' && !name.endsWith('.updateSkill')
  return isPost && 'id' in shapeOf(name) && HANGING.includes(kindOf(name))
})
