import { expect, test } from 'vitest'
import { planOf } from '../support/plan.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { addTurns, type Conversation, ended, type Lab, startLab } from './lab.ts'

async function ask(lab: Lab, conversation: Conversation, message: string) {
  const { id } = await lab.run({ message, conversation })
  await ended(lab.engine, await lab.row(id))
  return lab.model.requests
    .at(-1)!
    .body.messages.slice(1)
    .map(({ content }) => content)
}

test('a long session sends the latest turns within MAX_HISTORY_TOKENS, starting with a question', async () => {
  // A message of a short turn takes 5 bytes: 3 of its own, and 2 for its empty list of calls.
  await using lab = await startLab({ MAX_HISTORY_TOKENS: '10' })
  const session = await lab.session()
  await addTurns(lab, session, 40)
  expect(await ask(lab, session, 'What now?')).toEqual([
    'q38',
    'a38',
    'q39',
    'a39',
    'q40',
    'a40',
    'q41',
    'a41',
    'What now?',
  ])
  // If only the answer fits, both the answer and its question are left out.
  const long = 'x'.repeat(20)
  await lab.db.message.updateMany({ where: { sessionId: session.sessionId, position: 83 }, data: { content: long } })
  await lab.db.message.updateMany({ where: { sessionId: session.sessionId, position: 84 }, data: { content: long } })
  expect(await ask(lab, session, 'And now?')).toEqual(['And now?'])
})

test('a message longer than MAX_HISTORY_TOKENS is left out, with all before it', async () => {
  await using lab = await startLab({ MAX_HISTORY_TOKENS: '10' })
  const session = await lab.session()
  await addTurns(lab, session, 3)
  const where = { sessionId: session.sessionId, position: 6 }
  await lab.db.message.updateMany({ where, data: { content: 'ä'.repeat(21) } })
  expect(await ask(lab, session, 'What now?')).toEqual(['q4', 'a4', 'What now?'])
})

test('with MAX_HISTORY_TOKENS=0 every message is sent alone', async () => {
  await using lab = await startLab({ MAX_HISTORY_TOKENS: '0' })
  expect(await ask(lab, await lab.session(), 'What now?')).toEqual(['What now?'])
})

test.skipIf(onPostgres).each([
  { room: '10', few: 10, many: 6, more: 0 },
  { room: '100000', few: 18, many: 1_000, more: 1 },
])(
  'of 1,000 turns $many messages within $room tokens take $more reads more than of 9',
  async ({ room, few, many, more }) => {
    await using lab = await startLab({ MAX_HISTORY_TOKENS: room })
    const [short, long] = [await lab.session(), await lab.session()]
    await addTurns(lab, short, 8)
    await addTurns(lab, long, 999)
    const statements = async ({ chatId, sessionId }: Conversation, messages: number) => {
      const sent = await lab.server.statementsOf(async () => {
        const body = { message: 'What now?', chatId, sessionId }
        const answer = await request(lab.server, 'POST', `/api/v1/agents/${lab.agentId}/execute`, { body })
        expect(answer.status).toBe(200)
      })
      await lab.idle()
      expect(lab.model.requests.at(-1)!.body.messages).toHaveLength(messages + 2)
      // The server reads token and providers only if it has not read them a moment ago. A slow reply has more writes.
      return sent.filter((sql) => /^\s*SELECT/.test(sql) && !/FROM "(Token|Provider)"/.test(sql))
    }
    await lab.run()
    await lab.idle()
    expect(await statements(long, many)).toHaveLength((await statements(short, few)).length + more)
  },
)

test.skipIf(onPostgres)(
  'a history is found by its session, newest first, and only the needed rows are read',
  async () => {
    await using lab = await startLab()
    const session = await lab.session()
    lab.server.queries.length = 0
    await ask(lab, session, 'What now?')
    const sql = lab.server.queries.find((text) => text.includes('octet_length')) ?? ''
    expect(planOf(lab.server, sql).filter((step) => /^(SEARCH|SCAN) (m|e|Message)/.test(step))).toEqual([
      expect.stringMatching(/^SEARCH m USING INDEX \S+ \(sessionId=\? AND position>\? AND position<\?\)$/),
      expect.stringMatching(/^SEARCH m USING INDEX \S+ \(sessionId=\? AND position<\?\)$/),
      expect.stringMatching(/^SEARCH e USING INDEX \S+ \(id=\?\)$/),
    ])
  },
)
