import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { overrideMembers } from '../../src/db/override-members.ts'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import { parseExact } from '../../src/lib/exact-json.ts'
import { createLog } from '../../src/lib/log.ts'
import { reply, startHostileMcp } from '../support/hostile-mcp.ts'
import { type McpTestServer, startMcpServer } from '../support/mcp-server.ts'
import { races } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { openStream } from '../support/sse.ts'
import { use } from '../support/use.ts'
import { violations, watchTransitions } from './invariants.ts'
import { ended, followed, PLAIN } from './lab.ts'
import { call, createMcp, messagesOf, offered, results, startToolLab, type ToolLab } from './tool-lab.ts'

const RACES = races(50)
const WAITING = races(100)

const ASK = [{ tool: 'echo', mode: 'ask' }]

const toolLab = await use(startToolLab({ APPROVAL_TIMEOUT: '3600', QUEUE_TIMEOUT: '60', EXECUTION_TIMEOUT: '600' }))
const lab = toolLab.lab
const transitions = await watchTransitions(lab.db)

const echo = (text: string, id = `echo-${text}`) => call('echo', { text }, id)
const made = (text: string) =>
  toolLab.mcp.calls.filter(({ input }) => (input as { text?: string }).text === text).length

const waiting = async (row: ExecutionRow) => {
  const waits = { status: 'pending', waitingFor: 'approval' }
  await expect.poll(() => lab.row(row.id)).toMatchObject(waits)
  return lab.row(row.id)
}

/** Starts a run that waits for decisions about these calls. */
async function asking(texts: readonly string[], agent?: Awaited<ReturnType<ToolLab['agent']>>): Promise<ExecutionRow> {
  lab.model.script({ tokens: 'May I?', toolCalls: texts.map((text) => echo(text)) })
  return waiting(await lab.run({ agent: agent ?? (await toolLab.agent({}, ASK)) }))
}

const approvalsOf = async ({ id }: ExecutionRow) =>
  (await request(lab.server, 'GET', `/api/v1/approvals?executionId=${id}`)).body.approvals

const decide = async (row: ExecutionRow, verdict: 'approve' | 'deny', body: object = {}, toolUseId?: string) => {
  const approval = (await approvalsOf(row)).find((one: any) => !toolUseId || one.toolUseId === toolUseId)
  return request(lab.server, 'POST', `/api/v1/approvals/${approval.id}/${verdict}`, { body })
}

const chatOf = async ({ chatId }: ExecutionRow) =>
  (await request(lab.server, 'GET', `/api/v1/chats/${chatId}`)).body.chat

describe('a run whose tool wants an approval', () => {
  test('waits without a lease: the stream reports it, the chat needs attention, no tool is called', async () => {
    const row = await asking(['a'])
    expect(row).toMatchObject({ leaseOwner: null, leaseUntil: null, attempt: 1 })
    expect(row.waitingSince).not.toBeNull()
    expect(await chatOf(row)).toMatchObject({ status: 'needs_attention' })
    expect(made('a')).toBe(0)
    const [approval] = await approvalsOf(row)
    expect(approval).toMatchObject({ tool: 'echo', input: { text: 'a' }, status: 'pending', executionId: row.id })
    const stream = await openStream(lab.server, `/api/v1/executions/${row.id}/events`)
    let event = await stream.next()
    while (event?.data.messageType !== 'approval') event = await stream.next()
    expect(event.data).toEqual({
      type: 'message',
      messageType: 'approval',
      approvalId: approval.id,
      toolUseId: 'echo-a',
      name: 'echo',
    })
    lab.model.script({ tokens: 'Thank you.' })
    expect(await decide(row, 'approve', { reason: 'Fine' })).toMatchObject({
      status: 200,
      body: { approval: { status: 'approved', reason: 'Fine', decidedBy: lab.actor.userId } },
    })
    // The stream continues, which was open all the time.
    const rest = await stream.rest()
    expect(rest.map(({ data }) => data.messageType)).toEqual([
      ...['tool_result', 'stream_event', 'stream_event', 'assistant', undefined],
    ])
    const whole = await followed(lab.engine, await lab.row(row.id))
    for (const [index, { seq }] of whole.entries()) expect(seq).toBeGreaterThan(whole[index - 1]?.seq ?? 0)
    const { startedAt } = row
    expect(await lab.row(row.id)).toMatchObject({ status: 'completed', result: 'Thank you.', attempt: 2, startedAt })
    expect(await chatOf(row)).toMatchObject({ status: 'done' })
    expect(made('a')).toBe(1)
  })

  test('continues without the tool if it is denied, and the model reads the reason', async () => {
    const row = await asking(['b'])
    lab.model.script({ tokens: 'As you wish.' })
    await decide(row, 'deny', { reason: 'Not on a Friday' })
    expect((await ended(lab.engine, row)).result).toBe('As you wish.')
    expect(results(await followed(lab.engine, row))).toMatchObject([
      { content: 'A person denied this call: Not on a Friday', isError: true },
    ])
    expect(made('b')).toBe(0)
  })

  test('continues with its agent as it was at first, which is read only if it has changed', async () => {
    const row = await asking(['v'])
    const body = { systemPrompt: 'You are new.', maxTurns: 1 }
    await request(lab.server, 'PATCH', `/api/v1/agents/${row.agentId}`, { body })
    const goesOn = async (waiting: ExecutionRow) => {
      lab.server.queries.length = 0
      lab.model.script({ tokens: 'Thank you.' })
      await decide(waiting, 'approve')
      expect(await ended(lab.engine, waiting)).toMatchObject({ result: 'Thank you.', agentVersion: 1 })
      expect(lab.model.requests.at(-1)?.body.messages[0]).toMatchObject({ role: 'system', content: 'You are Ada.' })
      return lab.server.queries.filter((sql) => sql.includes('AgentVersion')).length
    }
    // Maintenance, which looks for waiting runs, may find it, too.
    expect(await goesOn(row)).toBeGreaterThan(0)
    expect(made('v')).toBe(1)
    expect(await goesOn(await asking(['w']))).toBe(0)
  })

  test('keeps the digits of numbers beyond 2^53 that a client has rounded, and refuses new ones', async () => {
    const input = parseExact('{"text":"id","id":1234567890123456789,"ids":[7,9007199254740993],"size":1e20}')
    lab.model.script({ toolCalls: [call('echo', input)] })
    const row = await waiting(await lab.run({ agent: await toolLab.agent({}, ASK) }))
    const [approval] = await approvalsOf(row)
    for (const id of [Number('1234567890123456999'), Number('1234567890123456999000')]) {
      const rounded = await decide(row, 'approve', { input: { ...approval.input, id } })
      expect(rounded).toMatchObject({ status: 400, body: { detail: expect.stringContaining('send it as a text') } })
    }
    lab.model.script({ tokens: 'Thank you.' })
    expect(
      await decide(row, 'approve', { input: { ...approval.input, text: 'other', ids: [9007199254740992] } }),
    ).toMatchObject({ status: 200 })
    await ended(lab.engine, row)
    expect(toolLab.mcp.bodies.at(-1)).toContain(
      '{"text":"other","id":1234567890123456789,"ids":[9007199254740993],"size":100000000000000000000}',
    )
    const { body } = await request(lab.server, 'GET', `/api/v1/chats/${row.chatId}/messages`)
    expect(body.messages.at(-1).toolCalls[0].input.id).toBe('1234567890123456789')
  })

  test('makes its other calls first, and continues when all have been decided', async () => {
    const agent = await toolLab.agent({}, ASK)
    lab.model.script({ toolCalls: [echo('c'), call('add', { a: 1, b: 2 }), echo('d')] })
    const row = await waiting(await lab.run({ agent }))
    expect(messagesOf(await storedMessages(row)).map((data) => data.messageType)).toEqual([
      ...['assistant', 'tool_result', 'approval', 'approval'],
    ])
    await decide(row, 'approve', {}, 'echo-d')
    expect(await lab.row(row.id)).toMatchObject({ status: 'pending', waitingFor: 'approval' })
    lab.model.script({ tokens: 'Done.' })
    await decide(row, 'deny', {}, 'echo-c')
    await ended(lab.engine, row)
    expect(results(await followed(lab.engine, row)).map(({ toolUseId, isError }) => [toolUseId, isError])).toEqual([
      ['add-1', false],
      ['echo-c', true],
      ['echo-d', false],
    ])
    // The model sees them in the order of its calls.
    const answers = lab.model.requests.at(-1)!.body.messages.filter(({ role }) => role === 'tool')
    expect(answers.map(({ content }) => content)).toEqual([expect.stringContaining('denied'), '3', 'd'])
  })

  test('is decided once: one of ten concurrent decisions wins, and the others give 409', async () => {
    const row = await asking(['e'])
    lab.model.script({ tokens: 'Well.' })
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, index) => decide(row, index % 2 ? 'approve' : 'deny')),
    )
    expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array(9).fill(409)])
    expect(answers.find(({ status }) => status === 409)?.body.message).toBe('Approval was already decided')
    await ended(lab.engine, row)
  })

  test('occupies its session, while its waiting counts towards no timeout', async () => {
    const row = await asking(['f'])
    const { spaceId, chatId, sessionId } = row
    const next = await lab.run({ message: 'And?', conversation: { spaceId, chatId, sessionId } }).catch((e) => e)
    expect(next.status).toBe('pending')
    await lab.engine.cancel(next, lab.actor)
    lab.clock.advance(1_800_000)
    const other = lab.another()
    await other.start(false)
    expect(await lab.row(row.id)).toMatchObject({ status: 'pending', waitingFor: 'approval' })
    await other.drain()
    lab.model.script({ tokens: 'At last.' })
    await decide(row, 'approve')
    expect(await ended(lab.engine, row)).toMatchObject({ status: 'completed', result: 'At last.' })
    expect((await lab.row(row.id)).waitedMs).toBeGreaterThanOrEqual(1_800_000)
  })

  test('resumes with its full time after a wait beyond a 32-bit timer', async () => {
    await using patient = await startToolLab({ APPROVAL_TIMEOUT: '315360000' })
    const { lab } = patient
    const agent = await patient.agent({}, ASK)
    const isWaiting = { status: 'pending', waitingFor: 'approval' }
    const approve = async () => {
      const [approval] = (await request(lab.server, 'GET', '/api/v1/approvals?status=pending')).body.approvals
      expect((await request(lab.server, 'POST', `/api/v1/approvals/${approval.id}/approve`)).status).toBe(200)
    }
    lab.model.script({ toolCalls: [echo('p')] }, { toolCalls: [echo('q')] }, { tokens: 'At last.' })
    const row = await lab.run({ agent })
    for (const days of [20, 40]) {
      await expect.poll(() => lab.row(row.id)).toMatchObject({ ...isWaiting, attempt: days / 20 })
      lab.clock.advance(days * 24 * 60 * 60 * 1000)
      await approve()
    }
    expect(await ended(lab.engine, row)).toMatchObject({ status: 'completed', result: 'At last.' })
    expect(await violations(lab.db)).toEqual([])
  })

  test('refuses a late decision, also before the next check for expired approvals', async () => {
    const row = await asking(['late'])
    lab.model.script({ tokens: 'Too late.' })
    await lab.db.approval.updateMany({ where: { executionId: row.id }, data: { expiresAt: lab.clock.now() } })
    const refused = { status: 409, body: { message: 'Approval was already decided' } }
    expect(await decide(row, 'approve')).toMatchObject(refused)
    expect(await ended(lab.engine, row)).toMatchObject({ status: 'completed', result: 'Too late.' })
    expect((await approvalsOf(row))[0]).toMatchObject({ status: 'expired' })
    expect(made('late')).toBe(0)
  })

  test('fails with the reason if its space is gone by then', async () => {
    const body = { name: 'Mine', visibility: 'private' }
    const { id: spaceId } = (await request(lab.server, 'POST', '/api/v1/spaces', { body })).body
    const agent = await toolLab.agent({}, ASK)
    lab.model.script({ toolCalls: [echo('gone')] })
    const row = await waiting(await lab.run({ agent, conversation: { spaceId } }))
    const [approval] = await approvalsOf(row)
    await request(lab.server, 'DELETE', `/api/v1/spaces/${spaceId}`)
    const { status } = await request(lab.server, 'POST', `/api/v1/approvals/${approval.id}/approve`)
    expect(status).toBe(200)
    expect(await ended(lab.engine, row)).toMatchObject({ status: 'failed', error: 'Space not found' })
    expect(made('gone')).toBe(0)
  })

  test('continues without the tool if the approval expires', async () => {
    const row = await asking(['g'])
    lab.clock.advance(3_700_000)
    lab.model.script({ tokens: 'Nobody there.' })
    const other = lab.another()
    await other.start(false)
    expect(await ended(other, row)).toMatchObject({ status: 'completed', result: 'Nobody there.' })
    expect(results(await followed(other, row))).toMatchObject([
      { content: 'The approval of this call expired before anyone decided', isError: true },
    ])
    expect((await approvalsOf(row))[0]).toMatchObject({ status: 'expired' })
    expect(await decide(row, 'approve')).toMatchObject({ status: 409 })
    await other.drain()
    expect(made('g')).toBe(0)
  })

  test('causes no error on a server that expires its approval after another one', async () => {
    const row = await asking(['r'])
    lab.clock.advance(3_700_000)
    lab.model.script({ tokens: 'Nobody there.' })
    const findMany = async (query: never) => {
      const overdue = await lab.db.approval.findMany(query)
      await ended(lab.engine, row)
      return overdue
    }
    const approval = overrideMembers(lab.db.approval, { findMany })
    const lines: string[] = []
    const log = createLog('error', { write: (line) => void lines.push(line) })
    const late = lab.another({ db: overrideMembers(lab.db, { approval }), log })
    await late.start(false)
    await late.drain()
    expect(lines).toEqual([])
    expect(await ended(lab.engine, row)).toMatchObject({ status: 'completed', attempt: 2 })
  })

  test('resumes once on a server that starts after the expiry, however slow the database is', async () => {
    const rows = [await asking(['s']), await asking(['t']), await asking(['u'])]
    lab.clock.advance(3_700_000)
    lab.model.fallback = { tokens: 'Nobody there.' }
    const findMany = (query: never) => sleep(20).then(() => lab.db.executionStep.findMany(query))
    const executionStep = overrideMembers(lab.db.executionStep, { findMany })
    const other = lab.another({ db: overrideMembers(lab.db, { executionStep }) })
    await other.start(true)
    for (const row of rows) expect(await ended(other, row)).toMatchObject({ status: 'completed', attempt: 2 })
    await other.drain()
  })

  test('can be cancelled: open approvals expire, its session is free, its history has its text', async () => {
    const row = await asking(['h', 'i'])
    await decide(row, 'approve', {}, 'echo-i')
    const answer = await request(lab.server, 'POST', `/api/v1/executions/${row.id}/cancel`)
    expect(answer).toMatchObject({ status: 200, body: { execution: { status: 'cancelled' } } })
    expect(answer.body.execution.waitingFor).toBeUndefined()
    const approvals = (await approvalsOf(row)).map(({ toolUseId, status }: any) => [toolUseId, status]).toSorted()
    expect(approvals).toEqual([
      ['echo-h', 'expired'],
      ['echo-i', 'approved'],
    ])
    expect((await decide(row, 'approve', {}, 'echo-h')).status).toBe(409)
    const message = await lab.db.message.findFirstOrThrow({ where: { executionId: row.id, role: 'assistant' } })
    expect(message).toMatchObject({
      content: 'May I?',
      interrupted: true,
      toolCalls: [{ result: null }, { result: null }],
    })
    const events = await followed(lab.engine, row)
    expect(events.at(-1)).toMatchObject({ event: 'error', data: { status: 'cancelled' } })
    expect(events.at(-1)!.seq).toBeGreaterThan(events.at(-2)!.seq)
  })

  test('leaves its chat in need of attention until the decision, whatever else runs there', async () => {
    const row = await asking(['n'])
    const { spaceId, chatId, sessionId } = row
    const agent = await lab.db.agent.findUniqueOrThrow({ where: { id: row.agentId } })
    const waits = async () => {
      const { body } = await request(lab.server, 'GET', '/api/v1/chats?status=needs_attention')
      expect(body.chats.map(({ id }: { id: string }) => id)).toContain(chatId)
    }
    const queued = await lab.run({ agent, conversation: { spaceId, chatId, sessionId } })
    await waits()
    await lab.engine.cancel(queued, lab.actor)
    await waits()
    // Another agent in the same chat: one run ends, and another waits, too.
    lab.model.script({ tokens: 'Me neither.' })
    await ended(lab.engine, await lab.run({ conversation: { spaceId, chatId } }))
    await waits()
    lab.model.script({ tokens: 'May I?', toolCalls: [echo('o')] })
    const asks = await toolLab.agent({}, ASK)
    const other = await waiting(await lab.run({ agent: asks, conversation: { spaceId, chatId } }))
    let resume = () => {}
    const thanks = () => ({ tokens: [new Promise<void>((resolve) => (resume = resolve)), 'Thank you.'] })
    lab.model.script(thanks())
    await decide(row, 'approve')
    await waits()
    await expect.poll(() => lab.row(row.id)).toMatchObject({ status: 'running' })
    await lab.engine.cancel(other, lab.actor)
    expect(await chatOf(row)).toMatchObject({ status: 'working' })
    resume()
    await ended(lab.engine, row)
    expect(await chatOf(row)).toMatchObject({ status: 'done' })
  })

  test('announces no approval if a cancellation came first', async () => {
    const gate = Promise.withResolvers<void>()
    lab.model.script({ tokens: [gate.promise, 'May I?'], toolCalls: [echo('never')] })
    const asked = lab.model.request(lab.model.requests.length)
    const row = await lab.run({ agent: await toolLab.agent({}, ASK) })
    await asked
    // Another server cancels, whose notice is late. A heartbeat here may still come before the reply.
    await lab.db.execution.update({ where: { id: row.id }, data: { wantsCancel: true } })
    gate.resolve()
    expect(await ended(lab.engine, row)).toMatchObject({ status: 'cancelled' })
    const types = messagesOf(await followed(lab.engine, row)).map(({ messageType }) => messageType)
    expect(types).not.toContain('approval')
    expect(await approvalsOf(row)).toEqual([])
  })

  test('is cancelled by a message that interrupts it', async () => {
    const row = await asking(['i'])
    const { spaceId, chatId, sessionId } = row
    lab.model.script({ tokens: 'Something else, then.' })
    const agent = await lab.db.agent.findUniqueOrThrow({ where: { id: row.agentId } })
    const next = await lab.run({ agent, onBusy: 'interrupt', conversation: { spaceId, chatId, sessionId } })
    expect((await ended(lab.engine, next)).result).toBe('Something else, then.')
    expect(await lab.row(row.id)).toMatchObject({ status: 'cancelled', waitingFor: null })
    expect(made('i')).toBe(0)
  })

  test(`${RACES} races of a decision against a cancel: each run ends once, as the cancel reports`, async () => {
    const agent = await toolLab.agent({}, ASK)
    lab.model.fallback = ({ body }) =>
      body.messages.at(-1)?.role === 'tool' ? { tokens: 'Done.' } : { toolCalls: [echo('race')] }
    for (let round = 0; round < RACES / 10; round++) {
      const rows = await Promise.all(Array.from({ length: 10 }, async () => waiting(await lab.run({ agent }))))
      await Promise.all(
        rows.map(async (row, index) => {
          const decided = decide(row, 'approve')
          if (index % 2) await decided
          await lab.engine.cancel(await lab.row(row.id), lab.actor)
          await decided
        }),
      )
    }
    await lab.idle()
  })
})

describe('an approved call', () => {
  let other: McpTestServer
  beforeAll(async () => {
    other = await startMcpServer()
  })
  afterAll(() => other[Symbol.asyncDispose]())

  const change = async (path: string, body: object) =>
    expect((await request(lab.server, 'PATCH', `/api/v1${path}`, { body })).status).toBe(200)

  /**
   * Approves a call after its agent or server has changed. Returns the call's result and the requests to the servers.
   */
  async function approved(text: string, changing: (agentId: string, mcpId: string) => Promise<unknown>) {
    const agent = await toolLab.agent({}, ASK)
    const [mcpId] = agent.mcpInstanceIds as string[]
    const row = await asking([text], agent)
    await changing(agent.id, mcpId!)
    lab.model.script({ tokens: 'I see.' })
    expect((await decide(row, 'approve')).status).toBe(200)
    expect(await ended(lab.engine, row)).toMatchObject({ status: 'completed', result: 'I see.' })
    const [result] = results(await followed(lab.engine, row))
    const calls = [made(text), other.calls.filter(({ input }) => (input as { text?: string }).text === text).length]
    return { result, calls }
  }

  const listed = (inputSchema: object) => ({ name: 'echo', description: 'A', inputSchema })

  /** Reverses the order of all fields and names. */
  const reversed = (value: unknown): object => {
    if (Array.isArray(value)) return value.toReversed()
    const fields = Object.entries(value as object).map(([name, part]) => [
      name,
      typeof part === 'object' ? reversed(part) : part,
    ])
    return Object.fromEntries(fields.toReversed())
  }

  /**
   * Approves a call of a tool that its server then lists as another one. `stored`: fields of the approval from an older
   * version. Returns whether the call was made, and the number of approvals.
   */
  async function approveChanged(tool: object, other: object, stored?: { digest: string }) {
    await using wild = await startHostileMcp()
    let isMade = false
    let tools = [tool]
    wild.answer = (response, message) => {
      if (message.method === 'tools/list') return reply(response, message, { tools })
      isMade = true
      reply(response, message, { content: [{ type: 'text', text: 'done' }] })
    }
    const mcpInstanceIds = [await createMcp(lab.server, wild.url, ASK)]
    const row = await asking(['a'], await toolLab.agent({ mcpInstanceIds }))
    if (stored) await lab.db.approval.updateMany({ where: { executionId: row.id }, data: stored })
    tools = [other]
    lab.model.script({ tokens: 'I see.' })
    await decide(row, 'approve')
    await expect.poll(async () => isMade || (await approvalsOf(row)).length > 1).toBe(true)
    const approvals = await approvalsOf(row)
    const outcome = [isMade, approvals.length]
    const again = approvals.find(({ status }: { status: string }) => status === 'pending')
    if (again) await request(lab.server, 'POST', `/api/v1/approvals/${again.id}/deny`)
    await ended(lab.engine, row)
    return outcome
  }

  const GONE = { content: 'The tool echo is gone by now, or is another one: nothing was called', isError: true }

  /** Puts another server with an equal tool into the space of a run, until the test has ended. */
  async function attachOther() {
    const id = await createMcp(lab.server, other.url)
    await change(`/spaces/${lab.spaceId}`, { addMcps: [id] })
    onTestFinished(() => change(`/spaces/${lab.spaceId}`, { removeMcps: [id] }))
  }

  test('is not made if another server has replaced its own', async () => {
    const { result, calls } = await approved('in-place', async (_, mcpId) => {
      await request(lab.server, 'DELETE', `/api/v1/mcps/${mcpId}`)
      await attachOther()
    })
    expect([result, calls]).toMatchObject([GONE, [0, 0]])
  })

  test('is not made if its server has another address', async () => {
    const { result, calls } = await approved('moved', (_, mcpId) => change(`/mcps/${mcpId}`, { url: other.url }))
    expect([result, calls]).toMatchObject([GONE, [0, 0]])
  })

  test('names its server if that cannot be reached when the run goes on', async () => {
    const away = await startMcpServer()
    const mcpInstanceIds = [await createMcp(lab.server, away.url, ASK)]
    const row = await asking(['away'], await toolLab.agent({ mcpInstanceIds }))
    await away[Symbol.asyncDispose]()
    lab.model.script({ tokens: 'I see.' })
    await decide(row, 'approve')
    await ended(lab.engine, row)
    const content = expect.stringMatching(/"Test" .* cannot be reached\. Nothing was called/)
    expect(results(await followed(lab.engine, row))).toMatchObject([{ content, isError: true }])
  })

  test.each([
    ['is made if only the order of its fields has changed', (tool: object) => reversed(tool), [true, 1]],
    [
      'is asked about again if its description has changed',
      (tool: object) => ({ ...tool, description: 'B' }),
      [false, 2],
    ],
    ['is asked about again if its schema has changed', () => listed({ type: 'object', properties: {} }), [false, 2]],
  ])('%s', async (_, changing, outcome) => {
    const fields = { text: { type: 'string', title: 'Text' }, more: { type: 'string' } }
    const tool = listed({ type: 'object', properties: fields, required: ['text', 'more'] })
    expect(await approveChanged(tool, changing(tool))).toEqual(outcome)
  })

  test('is made if an older version has digested its description as its server wrote it', async () => {
    const tool = listed({ type: 'object', properties: {} })
    const digest = createHash('sha256')
      .update(JSON.stringify(['A', tool.inputSchema]))
      .digest('base64url')
    expect(await approveChanged(tool, tool, { digest })).toEqual([true, 1])
  })

  test('is made although its agent lost the tool since, because the run keeps its agent', async () => {
    const lists = { disallowedTools: ['echo'] }
    const { result, calls } = await approved('kept', (agentId) => change(`/agents/${agentId}`, lists))
    expect([result, calls]).toMatchObject([{ content: 'kept', isError: false }, [1, 0]])
  })

  test('is made under the new name that the tool got beside one of the same name', async () => {
    const { result, calls } = await approved('beside', attachOther)
    expect([result, calls]).toMatchObject([{ content: 'beside', isError: false }, [1, 0]])
    expect(offered(lab.model.requests.at(-1)!)).toEqual(expect.arrayContaining(['Test__echo', 'Test_2__echo']))
  })

  test('is found by its name if an older version stored only the name', async () => {
    const { result, calls } = await approved('older', () => lab.db.toolCall.updateMany({ data: { target: null } }))
    expect([result, calls]).toMatchObject([{ content: 'older', isError: false }, [1, 0]])
  })
})

const storedMessages = async (row: ExecutionRow) => {
  const { body } = await request(lab.server, 'GET', `/api/v1/executions/${row.id}/logs`)
  return body.logs
}

test('a waiting run frees the capacity of its process and its organization', async () => {
  await using small = await startToolLab({
    MAX_RUNNING: '1',
    MAX_RUNNING_PER_ORGANIZATION: '1',
    MAX_PENDING_RUNS: '1',
  })
  const agent = await small.agent({}, ASK)
  small.lab.model.script({ toolCalls: [echo('a')] }, { tokens: 'Other.' }, { tokens: 'First.' })
  const first = await small.lab.run({ agent })
  await expect.poll(() => small.lab.row(first.id)).toMatchObject({ waitingFor: 'approval' })
  const second = await small.lab.run()
  expect((await ended(small.lab.engine, second)).result).toBe('Other.')
  const [approval] = (await request(small.lab.server, 'GET', '/api/v1/approvals?status=pending')).body.approvals
  await request(small.lab.server, 'POST', `/api/v1/approvals/${approval.id}/approve`)
  expect((await ended(small.lab.engine, first)).result).toBe('First.')
  expect(await violations(small.lab.db)).toEqual([])
})

test(`${WAITING} waiting runs do not delay other runs`, async () => {
  const agent = await toolLab.agent({}, ASK)
  lab.model.fallback = { toolCalls: [echo('many')] }
  const rows = await Promise.all(Array.from({ length: WAITING }, () => lab.run({ agent })))
  const waits = { waitingFor: 'approval' as const }
  await expect.poll(() => lab.db.execution.count({ where: waits })).toBe(WAITING)
  lab.model.fallback = { tokens: 'Hi.' }
  const other = lab.another()
  await other.start(false)
  const plain = await lab.db.agent.findUniqueOrThrow({ where: { id: lab.agentId } })
  const row = await other.accept({ ...PLAIN, actor: lab.actor, agent: plain, conversation: { spaceId: lab.spaceId } })
  expect((await ended(other, row)).result).toBe('Hi.')
  await other.drain()
  await Promise.all(rows.map(async ({ id }) => lab.engine.cancel(await lab.row(id), lab.actor)))
})

test('every run has ended, and passed through documented states only', async () => {
  await lab.idle()
  expect(await transitions()).toEqual([])
  expect(await violations(lab.db)).toEqual([])
  expect(await lab.db.approval.count({ where: { status: 'pending' } })).toBe(0)
})
