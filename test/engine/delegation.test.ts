import { setTimeout as sleep } from 'node:timers/promises'
import { beforeEach, describe, expect, test } from 'vitest'
import { overrideMembers } from '../../src/db/override-members.ts'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import { openTools } from '../../src/executions/tools.ts'
import { createAgent } from '../support/api.ts'
import type { ModelRequest } from '../support/model-server.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { use } from '../support/use.ts'
import { violations, watchTransitions } from './invariants.ts'
import { ended, followed, PLAIN, setTimeLimits } from './lab.ts'
import { call, offered, results, startToolLab } from './tool-lab.ts'

const toolLab = await use(startToolLab())
const lab = toolLab.lab
const transitions = await watchTransitions(lab.db)
beforeEach(() => {
  lab.model.fallback = { tokens: 'Done.' }
})

const agentOf = (id: string) => lab.db.agent.findUniqueOrThrow({ where: { id } })
const make = (name: string, subagentIds: readonly string[] = [], fields: object = {}) =>
  createAgent(lab.server, { name, systemPrompt: `You are ${name}.`, subagentIds, ...fields })

/** Returns the agent of a request to the model. */
const speaker = ({ body }: ModelRequest) => /^You are (\w+)\./.exec(String(body.messages[0]?.content))?.[1] ?? ''
const lastRole = ({ body }: ModelRequest) => body.messages.at(-1)?.role
const delegate = (name: string, message: string, id = `to-${name}`) => call(`delegate_to_${name}`, { message }, id)

async function run(agentId: string): Promise<{ row: ExecutionRow; children: ExecutionRow[] }> {
  const begun = await lab.run({ agent: await agentOf(agentId) })
  const row = await ended(lab.engine, begun)
  return { row, children: await lab.db.execution.findMany({ where: { parentExecutionId: row.id } }) }
}

describe('an agent with subagents', () => {
  test('has a tool for each, which answers with the result of a run in its own chat', async () => {
    const boss = await make('Boss', [await make('Sue', [], { role: 'Researcher', description: 'Finds things.' })])
    lab.model.script(
      { toolCalls: [delegate('sue', 'Find it')], usage: { input: 10, output: 1 } },
      { tokens: 'Found.', usage: { input: 20, output: 2 } },
      { tokens: 'Sue found it.', usage: { input: 30, output: 3 } },
    )
    const asked = lab.model.requests.length
    const { row, children } = await run(boss)
    expect(row).toMatchObject({ status: 'completed', result: 'Sue found it.', inputTokens: 40 })
    const [child] = children
    expect(child).toMatchObject({ status: 'completed', message: 'Find it', depth: 1, rootExecutionId: row.id })
    expect(child).toMatchObject({ spaceId: row.spaceId, userId: row.userId })
    expect(child!.chatId).not.toBe(row.chatId)
    const [first, second, third] = lab.model.requests.slice(asked)
    expect(first!.body.tools).toMatchObject([
      { function: { name: 'delegate_to_sue', description: expect.stringContaining('Sue (Researcher)') } },
    ])
    expect(second!.body.messages.at(-1)?.content).toBe('Find it')
    expect(third!.body.messages.at(-1)).toMatchObject({ role: 'tool', content: 'Found.' })
    const { body } = await request(lab.server, 'GET', `/api/v1/executions/${row.id}/tree`)
    expect(body).toMatchObject({
      tree: { id: row.id, children: [{ id: child!.id }] },
      usage: { input_tokens: 60, output_tokens: 6 },
    })
  })

  test('waits for the run that it started, once, through a database outage', async () => {
    const boss = await make('Boss', [await make('Sue')])
    lab.model.script({ toolCalls: [delegate('sue', 'Find it')] }, { tokens: 'Found.' }, { tokens: 'Sue found it.' })
    const { deps } = lab.server.service
    const lost: string[] = []
    /** The first transaction commits, and its answer gets lost. */
    const once = <Given extends unknown[], Result>(name: string, work: (...given: Given) => Promise<Result>) => {
      return async (...given: Given): Promise<Result> => {
        const result = await work(...given)
        if (lost.includes(name)) return result
        lost.push(name)
        throw new Error('Connection terminated')
      }
    }
    const engine = overrideMembers(deps.engine, {
      accept: once('accept', deps.engine.accept),
      ended: once('ended', deps.engine.ended),
    })
    const other = lab.another({ openTools: (user) => openTools({ ...deps, engine }, user) })
    const row = await other.accept({
      actor: lab.actor,
      agent: await agentOf(boss),
      ...PLAIN,
      conversation: { spaceId: lab.spaceId },
    })
    expect(await ended(other, row)).toMatchObject({ status: 'completed', result: 'Sue found it.' })
    expect(lost).toEqual(['accept', 'ended'])
    expect(await lab.db.execution.count({ where: { parentExecutionId: row.id } })).toBe(1)
    await other.drain()
  })

  test('reads that one failed or was cancelled, and continues', async () => {
    const boss = await make('Boss', [await make('Fay'), await make('Cal')])
    lab.model.fallback = (asked) => {
      if (speaker(asked) === 'Fay') return { error: { status: 400, message: 'no such thing' } }
      if (speaker(asked) === 'Cal') return { end: 'hang' }
      return lastRole(asked) === 'tool'
        ? { tokens: 'I see.' }
        : { toolCalls: [delegate('fay', 'Fail'), delegate('cal', 'Wait')] }
    }
    const begun = await lab.run({ agent: await agentOf(boss) })
    const calls = () => lab.db.execution.findFirst({ where: { parentExecutionId: begun.id, message: 'Wait' } })
    await expect.poll(calls).toMatchObject({ status: 'running' })
    await lab.engine.cancel((await calls())!, lab.actor)
    const events = await followed(lab.engine, begun)
    const contents = new Map(results(events).map(({ toolUseId, content }) => [toolUseId, content]))
    expect(contents.get('to-fay')).toMatch(/^Fay failed: HTTP 400/)
    expect(contents.get('to-cal')).toBe('The work of Cal was cancelled')
    expect(results(events).every(({ isError }) => isError)).toBe(true)
    expect((await lab.row(begun.id)).result).toBe('I see.')
  })

  test('runs several of them at the same time', async () => {
    const boss = await make('Boss', [await make('Ann'), await make('Bob'), await make('Cid')])
    const all = Promise.withResolvers<void>()
    const here = new Set<string>()
    lab.model.fallback = (asked) => {
      const name = speaker(asked)
      if (name !== 'Boss') {
        here.add(name)
        if (here.size === 3) all.resolve()
        return { tokens: [all.promise, name] }
      }
      const names = ['ann', 'bob', 'cid']
      return lastRole(asked) === 'tool' ? { tokens: 'All.' } : { toolCalls: names.map((one) => delegate(one, 'Go')) }
    }
    const { row, children } = await run(boss)
    expect(row.result).toBe('All.')
    expect(children.map(({ result }) => result).sort()).toEqual(['Ann', 'Bob', 'Cid'])
  })

  test('runs at most ten of them at once; the others wait and start as these end', async () => {
    const boss = await make('Boss', [await make('Sub')])
    const open = Promise.withResolvers<void>()
    let most = 0
    let working = 0
    lab.model.fallback = (asked) => {
      if (speaker(asked) !== 'Boss') {
        most = Math.max(most, ++working)
        return { tokens: [open.promise.then(() => void working--), 'Done.'] }
      }
      const calls = Array.from({ length: 25 }, (_, index) => delegate('sub', `Do ${index}`, `call-${index}`))
      return lastRole(asked) === 'tool' ? { tokens: 'All.' } : { toolCalls: calls }
    }
    const begun = await lab.run({ agent: await agentOf(boss) })
    const started = () => lab.db.execution.count({ where: { parentExecutionId: begun.id } })
    await expect.poll(() => working).toBe(10)
    expect(await started()).toBe(10)
    open.resolve()
    const outcomes = results(await followed(lab.engine, begun))
    expect(outcomes.map(({ content }) => content)).toEqual(Array(25).fill('Done.'))
    expect([most, await started()]).toEqual([10, 25])
  })

  test.skipIf(onPostgres)('starts at most 200 runs per tree, and reads that further calls start none', async () => {
    const boss = await make('Boss', [await make('Sub')])
    lab.model.fallback = (asked) => {
      if (speaker(asked) !== 'Boss' || lastRole(asked) === 'tool') return { tokens: 'Done.' }
      return { toolCalls: Array.from({ length: 205 }, (_, index) => delegate('sub', 'Go', `call-${index}`)) }
    }
    const begun = await lab.run({ agent: await agentOf(boss) })
    const outcomes = results(await followed(lab.engine, begun))
    expect(outcomes.filter(({ isError }) => isError).map(({ content }) => content)).toEqual(
      Array(6).fill('Delegation limit reached: a run tree can have at most 200 runs'),
    )
    expect(await lab.db.execution.count({ where: { rootExecutionId: begun.id } })).toBe(200)
    expect((await lab.row(begun.id)).status).toBe('completed')
  })

  test('cannot call in a circle, or deeper than five levels', async () => {
    const names = ['Zero', 'One', 'Two', 'Three', 'Four', 'Five', 'Six']
    let id = await make('Seven')
    for (const name of names.toReversed()) id = await make(name, [id])
    lab.model.fallback = (asked) => {
      const next = ['seven', ...names.toReversed()].find((_, index, all) => all[index + 1] === speaker(asked))
      if (lastRole(asked) === 'tool') return { tokens: String(asked.body.messages.at(-1)?.content) }
      return { toolCalls: [delegate(next!.toLowerCase(), 'Deeper')] }
    }
    const { row } = await run(id)
    expect(row.result).toBe('Delegation limit reached: at most 5 levels')
    expect(await lab.db.execution.count({ where: { rootExecutionId: row.id } })).toBe(6)

    const [ping, pong] = [await make('Ping'), await make('Pong')]
    for (const [from, to] of [
      [ping, pong],
      [pong, ping],
    ]) {
      await request(lab.server, 'PATCH', `/api/v1/agents/${from}`, { body: { subagentIds: [to] } })
    }
    lab.model.fallback = (asked) => {
      if (lastRole(asked) === 'tool') return { tokens: String(asked.body.messages.at(-1)?.content) }
      return { toolCalls: [delegate(speaker(asked) === 'Ping' ? 'pong' : 'ping', 'Yours')] }
    }
    const round = await run(ping)
    expect(round.row.result).toBe('This agent itself waits for the result of this run')
    expect(await lab.db.execution.count({ where: { rootExecutionId: round.row.id } })).toBe(2)
  })

  test('has only those that its user can reach, and none if it is of another organization', async () => {
    const member = await lab.server.member()
    const token = member.token
    const hidden = await make('Hidden', [], { visibility: 'private' })
    const boss = await make('Boss', [await make('Open'), hidden], { visibility: 'public' })
    const asked = async (by: string) => {
      const index = lab.model.requests.length
      const body = { message: 'Hello' }
      expect((await request(lab.server, 'POST', `/api/v1/agents/${boss}/execute`, { body, token: by })).status).toBe(
        200,
      )
      return offered(lab.model.requests[index]!)
    }
    expect(await asked(lab.server.token)).toEqual(['delegate_to_open', 'delegate_to_hidden'])
    expect(await asked(token)).toEqual(['delegate_to_open'])
    expect(await asked((await lab.server.member({ organization: 'Other' })).token)).toEqual([])
  })

  test('runs them within the scopes of the token that started it', async () => {
    const boss = await make('Boss', [await make('Tim', [], { allowedTools: ['create_task'] })])
    lab.model.fallback = (asked) => {
      if (lastRole(asked) === 'tool') return { tokens: String(asked.body.messages.at(-1)?.content) }
      if (speaker(asked) === 'Boss') return { toolCalls: [delegate('tim', 'Note it')] }
      return { toolCalls: [call('create_task', { title: 'Noted' })] }
    }
    const actor = { ...lab.actor, scopes: ['agents:execute', 'tasks:read'] }
    const begun = await lab.run({ agent: await agentOf(boss), actor })
    expect((await ended(lab.engine, begun)).result).toBe("This run's token lacks the scope tasks:write")
    expect(await lab.db.task.count()).toBe(0)
    await run(boss)
    expect(await lab.db.task.count()).toBe(1)
  })

  test('has a tool for each, whatever the script of a name, and also for equal names', async () => {
    const boss = await make('Boss', [
      await make('Ю'),
      await make('Ann'),
      await make('Änn'),
      await make('x'.repeat(200)),
    ])
    const index = lab.model.requests.length
    await run(boss)
    const names = offered(lab.model.requests[index]!)
    expect(names.slice(0, 3)).toEqual(['delegate_to_agent', 'delegate_to_ann', 'delegate_to_ann_2'])
    for (const name of names) expect(name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/)
  })

  test('lists both of an ambiguous name without its number, and the second with it', async () => {
    const two = [await make('Ann'), await make('Änn')]
    const [first, second] = ['delegate_to_ann', 'delegate_to_ann_2']
    const offers = async (lists: object) => {
      const index = lab.model.requests.length
      await run(await make('Boss', two, lists))
      return offered(lab.model.requests[index]!)
    }
    expect(await offers({ disallowedTools: [first] })).toEqual([])
    expect(await offers({ disallowedTools: [second] })).toEqual([first])
    expect(await offers({ allowedTools: [first] })).toEqual([first, second])
    expect(await offers({ allowedTools: [second] })).toEqual([second])
  })
})

test('cancelling a tree of 1 + 3 + 9 runs ends all of them and their connections', async () => {
  const leaf = await make('Leaf')
  const branch = await make('Branch', [leaf])
  const root = await make('Root', [branch])
  const three = (name: string) => [1, 2, 3].map((index) => delegate(name, `Go ${index}`, `${name}-${index}`))
  lab.model.fallback = (asked) => {
    if (speaker(asked) === 'Root') return { toolCalls: three('branch') }
    return speaker(asked) === 'Branch' ? { toolCalls: three('leaf') } : { tokens: 'Hm', end: 'hang' }
  }
  const before = lab.model.active
  const row = await lab.run({ agent: await agentOf(root) })
  await expect.poll(() => lab.model.active - before).toBe(9)
  const family = () => lab.db.execution.findMany({ where: { rootExecutionId: row.id } })
  expect(await family()).toHaveLength(13)
  const { token, userId } = await lab.server.member({ role: 'admin' })
  const answer = await request(lab.server, 'POST', `/api/v1/executions/${row.id}/cancel`, { token })
  expect(answer.status).toBe(200)
  const target = { in: (await family()).map(({ id }) => id) }
  const audited = await lab.db.auditEvent.findMany({ where: { action: 'execution.cancel', target } })
  expect(audited.map(({ actor }) => actor)).toEqual(Array(13).fill(userId))
  const isOver = async () =>
    lab.model.active === before && (await family()).every(({ status }) => status === 'cancelled')
  await expect.poll(isOver).toBe(true)
})

test('a run that times out ends the runs that it waits for', async () => {
  // Long enough to delegate, also on a slow machine.
  await using short = await startToolLab({ EXECUTION_TIMEOUT: '2' })
  const sub = await createAgent(short.lab.server, { name: 'Slow' })
  const boss = await createAgent(short.lab.server, { name: 'Boss', subagentIds: [sub] })
  const delegates = () => {
    // The child's own time is never over.
    setTimeLimits(short.lab, { EXECUTION_TIMEOUT: 600_000 })
    return { tokens: 'Well.', toolCalls: [delegate('slow', 'Wait')] }
  }
  short.lab.model.script(delegates, { end: 'hang' })
  const agent = await short.lab.db.agent.findUniqueOrThrow({ where: { id: boss } })
  const row = await ended(short.lab.engine, await short.lab.run({ agent }))
  expect(row).toMatchObject({ status: 'failed', error: 'timeout' })
  await short.lab.idle()
  const [child] = await short.lab.db.execution.findMany({ where: { parentExecutionId: row.id } })
  expect(child).toMatchObject({ status: 'cancelled' })
  await expect.poll(() => short.lab.model.active).toBe(0)
  expect(await violations(short.lab.db)).toEqual([])
})

test('a run that fails ends the runs that it waits for, even if its process dies', async () => {
  // The lab's engine executes the child, and looks for cancelled runs every 2 s.
  await using short = await startToolLab({ LEASE_DURATION: '6' })
  const { lab } = short
  const { settings } = lab.server.service.deps
  const sub = await createAgent(lab.server, { name: 'Slow' })
  const id = await createAgent(lab.server, { name: 'Boss', subagentIds: [sub] })
  const agent = await lab.db.agent.findUniqueOrThrow({ where: { id } })
  lab.model.script({ toolCalls: [delegate('slow', 'Wait')] }, { end: 'hang' })
  let isDead = false
  const dying = lab.another({
    // Long enough to delegate, also on a slow machine.
    settings: { ...settings, EXECUTION_TIMEOUT: 2_000 },
    // The database is gone after its last transaction.
    db: new Proxy(lab.db, {
      get(db, name) {
        if (isDead) throw new Error('The process has died')
        return Reflect.get(db, name)
      },
    }),
    runHooks: [
      {
        async onRunEnded() {
          isDead = true
        },
      },
    ],
  })
  const row = await dying.accept({ actor: lab.actor, agent, ...PLAIN, conversation: { spaceId: lab.spaceId } })
  await lab.idle()
  expect(await lab.row(row.id)).toMatchObject({ status: 'failed', error: 'timeout' })
  const [child] = await lab.db.execution.findMany({ where: { parentExecutionId: row.id } })
  expect(child).toMatchObject({ status: 'cancelled' })
  expect(await lab.db.executionStep.count({ where: { executionId: row.id } })).toBe(0)
  isDead = false
  await dying.drain()
})

test('children that wait for an approval end with their parent, each audited once', async () => {
  const sub = await toolLab.agent({ name: 'Asks' }, [{ tool: 'echo', mode: 'ask' }])
  const boss = await make('Boss', [sub.id])
  lab.model.fallback = (asked) => {
    if (speaker(asked) !== 'Boss') return { toolCalls: [call('echo', { text: 'a' })] }
    return { toolCalls: Array.from({ length: 8 }, (_, index) => delegate('asks', 'Ask', `call-${index}`)) }
  }
  const row = await lab.run({ agent: await agentOf(boss) })
  const children = { parentExecutionId: row.id }
  await expect.poll(() => lab.db.execution.count({ where: { ...children, waitingFor: 'approval' } })).toBe(8)
  await lab.engine.cancel(row, lab.actor)
  await lab.idle()
  const ids = (await lab.db.execution.findMany({ where: { ...children, status: 'cancelled' } })).map(({ id }) => id)
  const where = { action: 'execution.cancel', target: { in: ids } }
  const audited = (await lab.db.auditEvent.findMany({ where })).map(({ target }) => target)
  expect(audited.sort()).toEqual(ids.sort())
  expect(ids).toHaveLength(8)
})

test.each([
  ['for longer than its time limit', 6_200, 0],
  ['and then for a run that exceeds the limit in total', 5_700, 300],
])("a run's time stands still while its child waits for an approval: %s", async (_, waits, delay) => {
  await using short = await startToolLab({ EXECUTION_TIMEOUT: '6' })
  const sub = await short.agent({ name: 'Sub' }, [{ tool: 'echo', mode: 'ask' }])
  const boss = await createAgent(short.lab.server, { name: 'Boss', subagentIds: [sub.id] })
  short.lab.model.script(
    { toolCalls: [delegate('sub', 'Ask')] },
    { toolCalls: [call('echo', { text: 'a' })] },
    { tokens: ['Al', 'lowed.'], delay },
    { tokens: 'Good.' },
  )
  const agent = await short.lab.db.agent.findUniqueOrThrow({ where: { id: boss } })
  const row = await short.lab.run({ agent })
  await expect.poll(() => short.lab.db.approval.count()).toBe(1)
  await sleep(waits)
  const { approvals } = (await request(short.lab.server, 'GET', '/api/v1/approvals')).body
  await request(short.lab.server, 'POST', `/api/v1/approvals/${approvals[0].id}/approve`)
  expect((await ended(short.lab.engine, row)).result).toBe('Good.')
})

test('a run that waits for a child holds its capacity, and the child gets its own', async () => {
  await using small = await startToolLab({
    MAX_RUNNING: '1',
    MAX_RUNNING_PER_ORGANIZATION: '1',
    MAX_PENDING_RUNS: '0',
  })
  const sub = await small.agent({ name: 'Sub' }, [{ tool: 'echo', mode: 'ask' }])
  const boss = await createAgent(small.lab.server, { name: 'Boss', subagentIds: [sub.id] })
  small.lab.model.script(
    { toolCalls: [delegate('sub', 'Ask')] },
    { toolCalls: [call('echo', { text: 'a' })] },
    { tokens: 'Allowed.' },
    { tokens: 'Good.' },
  )
  const agent = await small.lab.db.agent.findUniqueOrThrow({ where: { id: boss } })
  const row = await small.lab.run({ agent })
  await expect.poll(() => small.lab.db.approval.count()).toBe(1)
  const { approvals } = (await request(small.lab.server, 'GET', '/api/v1/approvals')).body
  await request(small.lab.server, 'POST', `/api/v1/approvals/${approvals[0].id}/approve`)
  expect((await ended(small.lab.engine, row)).result).toBe('Good.')
  expect(await violations(small.lab.db)).toEqual([])
})

test('every run of this file has ended', async () => {
  await lab.idle()
  expect(await transitions()).toEqual([])
  expect(await violations(lab.db)).toEqual([])
})
