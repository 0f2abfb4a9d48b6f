import { expect, test } from 'vitest'
import { agentFor } from '../../src/executions/agent-for.ts'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import type { Reply } from '../support/model-replies.ts'
import { questionOf } from '../support/model-server.ts'
import { onPostgres, races } from '../support/postgres-shared.ts'
import { type Answer, request } from '../support/rest.ts'
import { violations, watchTransitions } from './invariants.ts'
import { asked, ended, gates, type Lab, PLAIN, setTimeLimits, startLab } from './lab.ts'

const SESSIONS = races(100)

const numbers = (count: number) => Array.from({ length: count }, (_, index) => index)

const execute = ({ server, agentId }: Lab, body: object): Promise<Answer> =>
  request(server, 'POST', `/api/v1/agents/${agentId}/execute`, { body })

/** A chat's messages, in order. */
const history = ({ db }: Lab, sessionId: string) =>
  db.message.findMany({ where: { sessionId }, orderBy: { position: 'asc' } })

/** Checks that every question is followed by its own answer, and was sent with everything before it. */
async function expectConversation(lab: Lab, sessionId: string, count: number): Promise<void> {
  const messages = await history(lab, sessionId)
  expect(messages).toHaveLength(count * 2)
  for (const [index, { role, content, executionId }] of messages.entries()) {
    const question = messages[index - (index % 2)]!
    expect([role, executionId]).toEqual([index % 2 ? 'assistant' : 'user', question.executionId])
    if (role === 'assistant') expect(content).toBe(`Answer to ${question.content}`)
  }
  const spoken = messages.map(({ content }) => content)
  const prompts = lab.model.requests.map(({ body }) => body.messages.slice(1).map(({ content }) => content))
  for (const index of numbers(count)) expect(prompts).toContainEqual(spoken.slice(0, index * 2 + 1))
}

const echo = (lab: Lab) => {
  lab.model.fallback = (request) => ({ tokens: ['Answer ', 'to ', String(questionOf(request))] })
}

test('20 concurrent messages to a session run one by one, each answer after its question', async () => {
  await using lab = await startLab()
  echo(lab)
  const transitions = await watchTransitions(lab.db)
  const { sessionId, chatId } = await lab.session()
  const answers = await Promise.all(
    numbers(20).map((index) => execute(lab, { message: `m${index}`, sessionId, chatId })),
  )
  for (const [index, { status, body }] of answers.entries()) {
    expect([status, body.result, body.sessionId]).toEqual([200, `Answer to m${index}`, sessionId])
  }
  const rows = await lab.db.execution.findMany({ orderBy: { queueSeq: 'asc' } })
  expect(rows.map(({ queueSeq }) => queueSeq)).toEqual(numbers(21).map((index) => index + 1))
  expect(asked(lab)).toEqual(rows.map(({ message }) => message))
  await expectConversation(lab, sessionId, 21)
  expect(await transitions()).toEqual([])
  expect(await violations(lab.db)).toEqual([])
})

test('20 concurrent messages to a chat without a session create one, and run one by one in it', async () => {
  await using lab = await startLab()
  echo(lab)
  const { id: chatId, spaceId } = await lab.db.chat.findFirstOrThrow({ where: { agentId: lab.agentId } })
  const rows = await Promise.all(
    numbers(20).map((index) => lab.run({ message: `m${index}`, conversation: { spaceId, chatId } })),
  )
  expect(new Set(rows.map(({ sessionId }) => sessionId)).size).toBe(1)
  await lab.idle()
  await expectConversation(lab, rows[0]!.sessionId, 20)
  expect((await lab.db.chat.findUniqueOrThrow({ where: { id: chatId } })).sessionId).toBe(rows[0]!.sessionId)
  expect(await violations(lab.db)).toEqual([])
})

const AGENT = { name: 'Bo', systemPrompt: 'You are Bo.' }

test("messages keep the conversation's order in lists after the clock is set back", async () => {
  await using lab = await startLab()
  echo(lab)
  lab.clock.advance(7_200_000)
  const conversation = await lab.session()
  lab.clock.advance(-7_200_000)
  for (const message of ['two', 'three']) await ended(lab.engine, await lab.run({ message, conversation }))
  const { body } = await request(lab.server, 'GET', `/api/v1/chats/${conversation.chatId}/messages`, {})
  const contents = body.messages.map(({ content }: { content: string }) => content)
  expect(contents).toEqual((await history(lab, conversation.sessionId)).map(({ content }) => content))
})

test('a run during which the clock is set back has no negative duration', async () => {
  await using lab = await startLab()
  const resume = Promise.withResolvers<string>()
  lab.model.script({ tokens: [resume.promise] })
  const { id } = await lab.run()
  lab.clock.advance(-60_000)
  resume.resolve('Done.')
  await ended(lab.engine, await lab.row(id))
  const { execution } = (await request(lab.server, 'GET', `/api/v1/executions/${id}`, {})).body
  expect(execution.executionTime).toBe(0)
})

test('sessions run independently of one another', async () => {
  await using lab = await startLab()
  const open = gates(lab)
  const slow = await lab.run({ message: 'slow' })
  const quick = await lab.run({ message: 'quick' })
  open('quick')
  expect((await ended(lab.engine, quick)).status).toBe('completed')
  expect((await lab.row(slow.id)).status).toBe('running')
  open('slow')
  await lab.idle()
})

test('a run that fails, is cancelled or times out lets the next of its session start', async () => {
  await using lab = await startLab()
  const first = await lab.session()
  const replies: Record<string, Reply> = {
    fails: { error: { status: 500 } },
    hangs: { end: 'hang' },
    breaks: { tokens: ['part '], end: 'drop' },
    completes: { tokens: 'Done.' },
  }
  lab.model.fallback = (asked) => replies[String(questionOf(asked))] ?? {}
  // The limit of each run as it starts: a slow machine takes longer for the others than the one that hangs may.
  const engine = lab.another({
    agentFor(db, row) {
      setTimeLimits(lab, { EXECUTION_TIMEOUT: row.message === 'hangs' ? 300 : 60_000 })
      return agentFor(db, row)
    },
  })
  const agent = await lab.db.agent.findUniqueOrThrow({ where: { id: lab.agentId } })
  const rows: ExecutionRow[] = []
  for (const message of Object.keys(replies)) {
    rows.push(await engine.accept({ ...PLAIN, actor: lab.actor, agent, message, conversation: first }))
  }
  const outcomes = await Promise.all(rows.map((row) => ended(engine, row)))
  expect(outcomes.map(({ status }) => status)).toEqual(['failed', 'failed', 'failed', 'completed'])
  expect(outcomes[1]?.error).toBe('timeout')
  expect(await violations(lab.db)).toEqual([])
  await engine.drain()
})

test('onBusy reject admits one of 20 concurrent messages, and the others give 409', async () => {
  await using lab = await startLab()
  const open = gates(lab)
  open('Begin')
  const conversation = await lab.session()
  const { sessionId } = conversation
  const answers = await Promise.all(
    numbers(20).map((index) => execute(lab, { message: `m${index}`, sessionId, onBusy: 'reject', background: true })),
  )
  const refused = answers.filter(({ status }) => status === 409)
  expect(refused).toHaveLength(19)
  for (const { body } of refused) expect(body).toMatchObject({ error: true, message: 'Session is busy' })
  expect(await lab.db.execution.count()).toBe(2)
  const { lastQueueSeq } = await lab.db.session.findUniqueOrThrow({ where: { id: sessionId } })
  expect(lastQueueSeq).toBe(2)
  for (const index of numbers(20)) open(`m${index}`)
  await lab.idle()
  expect((await execute(lab, { message: 'm0', sessionId, onBusy: 'reject' })).status).toBe(200)
  expect(await violations(lab.db)).toEqual([])
})

test('onBusy interrupt cancels running and pending runs and their requests, and starts the new', async () => {
  await using lab = await startLab()
  const open = gates(lab)
  open('Begin')
  const conversation = await lab.session()
  const running = await lab.run({ message: 'running', conversation })
  const waiting = await lab.run({ message: 'waiting', conversation })
  const asks = await lab.model.request(1)
  const answer = execute(lab, { message: 'new', sessionId: conversation.sessionId, onBusy: 'interrupt' })
  await asks.aborted
  await lab.model.request(2)
  open('new')
  expect((await answer).status).toBe(200)
  expect((await lab.row(running.id)).status).toBe('cancelled')
  expect((await lab.row(waiting.id)).status).toBe('cancelled')
  expect(asked(lab)).toEqual(['Begin', 'running', 'new'])
  expect(await violations(lab.db)).toEqual([])
})

test('onBusy interrupt completes the last of 20 concurrent messages, and cancels the others', async () => {
  await using lab = await startLab()
  const transitions = await watchTransitions(lab.db)
  const open = gates(lab)
  open('Begin')
  const conversation = await lab.session()
  await Promise.all(numbers(20).map((index) => lab.run({ message: `m${index}`, conversation, onBusy: 'interrupt' })))
  const accepted = async () =>
    lab.db.execution.findMany({ where: { message: { not: 'Begin' } }, orderBy: { queueSeq: 'asc' } })
  await expect
    .poll(async () => (await accepted()).filter(({ status }) => status === 'running' || status === 'pending').length)
    .toBe(1)
  const last = (await accepted()).at(-1)!
  open(last.message)
  await lab.idle()
  const outcomes = (await accepted()).map(({ status }) => status)
  expect(outcomes).toEqual([...Array(19).fill('cancelled'), 'completed'])
  expect(await transitions()).toEqual([])
  expect(await violations(lab.db)).toEqual([])
})

test('onBusy interrupt also interrupts the session that a concurrent first message created', async () => {
  await using lab = await startLab()
  const open = gates(lab)
  const { id: chatId, spaceId } = await lab.db.chat.findFirstOrThrow({ where: { agentId: lab.agentId } })
  const first = await lab.run({ message: 'one', conversation: { spaceId, chatId } })
  const second = await lab.run({ message: 'two', conversation: { spaceId, chatId }, onBusy: 'interrupt' })
  expect([first.sessionId, (await lab.row(first.id)).status]).toEqual([second.sessionId, 'cancelled'])
  open('two')
  await lab.idle()
  expect(await violations(lab.db)).toEqual([])
})

test('onBusy interrupt leaves other sessions of the chat alone', async () => {
  await using lab = await startLab()
  const open = gates(lab)
  open('Begin')
  const conversation = await lab.session()
  const agentId = await otherAgent(lab)
  const other = await execute({ ...lab, agentId }, { message: 'other', chatId: conversation.chatId, background: true })
  await lab.run({ message: 'mine', conversation })
  await lab.run({ message: 'again', conversation, onBusy: 'interrupt' })
  expect((await lab.row(other.body.executionId)).status).toBe('running')
  open('other')
  open('again')
  await lab.idle()
  expect(await violations(lab.db)).toEqual([])
})

/** Creates another agent's session in a chat, as if it came before its messages. */
async function secondSession(lab: Lab, chatId: string, message: string) {
  const agent = await lab.db.agent.findUniqueOrThrow({ where: { id: await otherAgent(lab) } })
  const conversation = { spaceId: lab.spaceId, chatId }
  return { agent, row: await lab.run({ agent, message, conversation }) }
}

/** Starts steps that wait for the lock of a chat's row, in this order, until all of them do. */
async function queuedFor({ db }: Lab, chatId: string, steps: readonly (() => unknown)[]): Promise<void> {
  const waiting = () => db.$queryRaw<object[]>`
    SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
  await db.$transaction(async (tx) => {
    await tx.chat.update({ where: { id: chatId }, data: { title: 'Held' } })
    for (const [index, step] of steps.entries()) {
      step()
      if (onPostgres) await expect.poll(waiting, { interval: 5 }).toHaveLength(index + 1)
    }
  })
}

const statusOf = async ({ db }: Lab, id: string) => (await db.chat.findUniqueOrThrow({ where: { id } })).status

test('the later of two sessions that end concurrently leaves the chat idle', async () => {
  await using lab = await startLab()
  const open = gates(lab)
  const { chatId } = await lab.run({ message: 'one' })
  await secondSession(lab, chatId, 'two')
  await lab.model.request(1)
  await queuedFor(lab, chatId, [() => open('one'), () => open('two')])
  await lab.idle()
  expect(await statusOf(lab, chatId)).toBe('done')
  expect(await violations(lab.db)).toEqual([])
})

test('a session that ends while a run starts in another one of the chat leaves it working', async () => {
  await using lab = await startLab()
  const open = gates(lab)
  open('Begin')
  const conversation = await lab.session()
  const { chatId } = conversation
  const { agent, row } = await secondSession(lab, chatId, 'Begin')
  await ended(lab.engine, row)
  // PostgreSQL chooses which of the two proceeds first.
  for (const round of numbers(5)) {
    const asked = lab.model.requests.length
    const first = await lab.run({ message: `one ${round}`, conversation })
    await lab.model.request(asked)
    const second = Promise.withResolvers<ExecutionRow>()
    const message = `two ${round}`
    const begin = () => lab.run({ agent, message, conversation: row }).then(second.resolve, second.reject)
    await queuedFor(lab, chatId, [begin, () => open(`one ${round}`)])
    await Promise.all([second.promise, ended(lab.engine, first)])
    expect(await statusOf(lab, chatId)).toBe('working')
    open(message)
    await lab.idle()
    expect(await statusOf(lab, chatId)).toBe('done')
  }
  expect(await violations(lab.db)).toEqual([])
})

test('a chat with 20 concurrent messages in five sessions is working until the last ends', async () => {
  await using lab = await startLab()
  echo(lab)
  const { chatId } = await lab.session()
  const others = await Promise.all(numbers(4).map(() => secondSession(lab, chatId, 'Begin')))
  const agent = await lab.db.agent.findUniqueOrThrow({ where: { id: lab.agentId } })
  const agents = [agent, ...others.map((other) => other.agent)]
  const conversation = { spaceId: lab.spaceId, chatId }
  await Promise.all(
    numbers(20).flatMap((index) => agents.map((agent) => lab.run({ agent, message: `m${index}`, conversation }))),
  )
  await lab.idle()
  expect(await statusOf(lab, chatId)).toBe('done')
  expect(await violations(lab.db)).toEqual([])
})

const otherAgent = async ({ server }: Lab): Promise<string> =>
  (await request(server, 'POST', '/api/v1/agents', { body: AGENT })).body.id

test(`${SESSIONS} sessions with 3 concurrent messages each have alternating histories`, async () => {
  await using lab = await startLab({ MAX_RUNNING: '16' })
  echo(lab)
  const firsts = await Promise.all(numbers(SESSIONS).map((index) => lab.run({ message: `s${index}` })))
  await Promise.all(
    firsts.flatMap(({ spaceId, chatId, sessionId }) =>
      numbers(2).map((index) => lab.run({ message: `n${index}`, conversation: { spaceId, chatId, sessionId } })),
    ),
  )
  await lab.idle()
  for (const { sessionId } of firsts) {
    const roles = (await history(lab, sessionId)).map(({ role }) => role)
    expect(roles).toEqual(['user', 'assistant', 'user', 'assistant', 'user', 'assistant'])
  }
  expect(await violations(lab.db)).toEqual([])
})
