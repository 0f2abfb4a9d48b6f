import { describe, expect, test } from 'vitest'
import type { Scope } from '../../src/auth/scopes.ts'
import { startLab } from '../engine/lab.ts'
import { call } from '../engine/tool-lab.ts'
import { APIS, apis } from '../support/api.ts'
import type { Input } from '../support/inputs.ts'
import { request } from '../support/rest.ts'
import type { Member } from '../support/server.ts'
import { use } from '../support/use.ts'
import { maker } from './fixtures.ts'

/** Leaks beyond a matrix of ids: ids that the caller may name, of things connected to foreign ones. */

const FORBIDDEN = "You don't have permission to access this resource"

const lab = await use(startLab())
const ann = await lab.server.member({ organization: 'Acme' })
const ben = await lab.server.member({ organization: 'Acme' })
const boss = await lab.server.member({ organization: 'Acme', role: 'owner' })

/** Creates a token of a user with only these scopes. */
async function limited(who: Member, scopes: Scope[]): Promise<Member> {
  const { email } = await lab.db.user.findUniqueOrThrow({ where: { id: who.userId } })
  return lab.server.member({ organization: 'Acme', email, scopes })
}

const on = (api: (typeof APIS)[number], procedure: string, input: Input, who: Member) =>
  apis[api](lab.server, procedure, input, { token: who.token })
const statusOf = async (answer: Promise<{ status: number }>) => (await answer).status

describe('a task that a private agent works on', () => {
  /** A task of Ann's private agent, whose run has ended or is active. */
  async function taskOf(api: string, isOn: boolean) {
    const make = maker(lab.server, ann)
    const agent = await make.agent({ visibility: 'private', canary: 'canary' })
    const { id } = await make.does('tasks.create', { title: `Task on ${api}`, assignTo: agent })
    const gate = Promise.withResolvers<void>()
    lab.model.fallback = () => ({ tokens: isOn ? [gate.promise, 'canary result'] : 'canary result' })
    const { executionId } = await make.does('tasks.execute', { id, background: true })
    if (!isOn) await make.idle()
    return { id: id as string, executionId: executionId as string, open: gate.resolve }
  }
  const liveRun = (id: string) => lab.db.execution.findFirst({ where: { id, terminalSeq: null, wantsCancel: false } })

  test.each(APIS)('%s: shows its result only to callers who can read the run', async (api) => {
    const { id } = await taskOf(api, false)
    const textOf = async (who: Member) => JSON.stringify((await on(api, 'tasks.get', { id }, who)).body)
    const listed = async (who: Member) => JSON.stringify((await on(api, 'tasks.list', {}, who)).body)
    expect(await textOf(ann)).toContain('canary result')
    expect(await listed(ann)).toContain('canary result')
    for (const who of [ben, boss]) {
      expect(await textOf(who)).not.toContain('canary result')
      expect(await listed(who)).not.toContain('canary result')
    }
    const changed = await on(api, 'tasks.update', { id, title: 'Renamed' }, ben)
    expect(JSON.stringify(changed.body)).not.toContain('canary result')
  })

  test.each(APIS)('%s: resists cancelling and deleting by another member during the run', async (api) => {
    const { id, executionId, open } = await taskOf(api, true)
    for (const [procedure, input] of [
      ['tasks.update', { id, status: 'cancelled' }],
      ['tasks.delete', { id }],
    ] as const) {
      const answer = await on(api, procedure, input, ben)
      expect([answer.status, answer.body.message]).toEqual([403, FORBIDDEN])
    }
    expect(await liveRun(executionId)).not.toBeNull()
    expect(await statusOf(on(api, 'tasks.update', { id, status: 'cancelled' }, boss))).toBe(200)
    expect(await liveRun(executionId)).toBeNull()
    open()
    await maker(lab.server, ann).idle()
  })
})

describe('a token that may execute and read nothing', () => {
  test.each(APIS)('%s: gives its model no foreign message of a chat and no uploaded file', async (api) => {
    const agent = await maker(lab.server, ann).agent({ canary: 'open' })
    const { chat: chatId, session: sessionId } = await maker(lab.server, boss).run({ canary: 'open' }, { id: agent })
    const media = await maker(lab.server, boss).media({ canary: 'canary of the boss' })
    const few = await limited(ann, ['agents:execute'])
    const more = await limited(ann, ['agents:execute', 'chats:read', 'media:read'])
    const run = { id: agent, message: 'What was said?', background: true }
    for (const extra of [{ chatId }, { sessionId }, { chatId, sessionId }, { mediaIds: [media] }]) {
      const answer = await on(api, 'agents.execute', { ...run, ...extra }, few)
      expect([answer.status, answer.body.message], JSON.stringify(extra)).toEqual([403, FORBIDDEN])
      expect(await statusOf(on(api, 'agents.execute', { ...run, ...extra }, more))).toBe(200)
    }
    await maker(lab.server, ann).idle()
  })

  test('continues a chat in which its user wrote everything', async () => {
    const agent = await maker(lab.server, ann).agent({ canary: 'open' })
    const few = await limited(ann, ['agents:execute'])
    const begun = await on('REST', 'agents.execute', { id: agent, message: 'One' }, few)
    const { chatId, sessionId } = begun.body
    expect(await statusOf(on('REST', 'agents.execute', { id: agent, message: 'Two', chatId, sessionId }, few))).toBe(
      200,
    )
    await on('REST', 'agents.execute', { id: agent, message: 'Three', chatId }, ben)
    expect(await statusOf(on('REST', 'agents.execute', { id: agent, message: 'Four', chatId }, few))).toBe(403)
  })
})

describe('a tree of runs', () => {
  test.each(APIS)('%s: accepts new runs only from the user of the run', async (api) => {
    const agent = await maker(lab.server, ann).agent({ canary: 'open' })
    const { execution: parentExecutionId } = await maker(lab.server, ann).run({ canary: 'open' }, { id: agent })
    const run = { id: agent, message: 'Hi', background: true, parentExecutionId }
    for (const who of [ben, boss]) expect(await statusOf(on(api, 'agents.execute', run, who))).toBe(403)
    expect(await statusOf(on(api, 'agents.execute', run, ann))).toBe(200)
    await maker(lab.server, ann).idle()
  })

  test('keeps capacity for its delegates, whatever runs its user attached', async () => {
    const make = maker(lab.server, ann)
    const sub = await make.agent({ canary: 'open' }, { name: 'Sub' })
    const id = await make.agent({ canary: 'open' }, { name: 'Boss', subagentIds: [sub] })
    const { execution: attached } = await make.run({ canary: 'open' }, { id: sub })
    const gate = Promise.withResolvers<void>()
    lab.model.fallback = ({ body: { messages } }) =>
      messages.at(-1)?.role === 'tool' || messages.at(-1)?.content !== 'Delegate'
        ? { tokens: 'Done.' }
        : { toolCalls: [call('delegate_to_sub', { message: 'Go' })], tokens: [gate.promise, 'Working.'] }
    const { executionId } = await make.does('agents.execute', { id, message: 'Delegate', background: true })
    const row = await lab.db.execution.findUniqueOrThrow({ where: { id: attached } })
    const copies = Array.from({ length: 250 }, (_, index) => ({
      ...row,
      id: `${row.id}-${index}`,
      mediaIds: [],
      files: [],
      overrides: {},
      modelsTried: [],
      queueSeq: 100 + index,
      rootExecutionId: executionId,
      depth: 1,
      parentExecutionId: executionId as string,
    }))
    await lab.db.execution.createMany({ data: copies })
    gate.resolve()
    await make.idle()
    const of = { parentExecutionId: executionId as string, message: 'Go' }
    expect(await lab.db.execution.findMany({ where: of })).toMatchObject([{ status: 'completed', result: 'Done.' }])
  })
})

test("an organization's search runs the same SQL whether another's private agent matches or not", async () => {
  const make = maker(lab.server, boss)
  const ask = (path: string) =>
    lab.server.statementsOf(() => request(lab.server, 'GET', `/api/v1/${path}`, { token: ben.token }))
  const searches = (word: string) => [`agents?search=${word}`, `agents?tag=${word}`, `public/agents?search=${word}`]
  await make.agent({ visibility: 'private', canary: 'x' }, { name: 'zanzibar', tags: ['zanzibar'] })
  for (const [index, path] of searches('zanzibar').entries()) {
    const none = await ask(searches('quixotic')[index]!)
    expect(await ask(path), path).toEqual(none)
  }
})

test.each(APIS)('%s: only those who may change a space write its files', async (api) => {
  const id = await maker(lab.server, ann).space({ canary: 'open' })
  const file = { id, path: 'notes.md', content: 'Mine' }
  expect(await statusOf(on(api, 'files.write', file, ann))).toBe(200)
  for (const [procedure, input] of [
    ['files.write', { ...file, content: 'Theirs' }],
    ['files.write', { ...file, path: 'new.md' }],
    ['files.delete', { id, path: file.path }],
  ] as const) {
    const answer = await on(api, procedure, input, ben)
    expect([answer.status, answer.body.message]).toEqual([403, FORBIDDEN])
  }
  expect((await on('REST', 'files.get', { id, path: file.path }, ben)).body.content).toBe('Mine')
  expect(await statusOf(on(api, 'files.write', file, boss))).toBe(200)
})

test('tRPC takes a boolean where a list is to be counted, and REST the word', async () => {
  for (const list of ['tasks.list', 'executions.list', 'chats.list']) {
    expect((await on('tRPC', list, { count: true }, ann)).body.total).toEqual(expect.any(Number))
    expect((await on('tRPC', list, { count: false }, ann)).body.total).toBeUndefined()
    expect((await on('REST', list, { count: 'true' }, ann)).body.total).toEqual(expect.any(Number))
    expect((await on('REST', list, { count: 'false' }, ann)).body.total).toBeUndefined()
    expect(await statusOf(on('REST', list, { count: 'no' }, ann))).toBe(400)
  }
})
