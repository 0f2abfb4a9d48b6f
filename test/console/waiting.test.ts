import { expect, test } from 'vitest'
import { apply, type Live } from '../../src/console/features/chat/live.ts'
import { type Outgoing, unlistedMessages, waitsForTurn } from '../../src/console/features/chat/waiting.ts'
import type { ChatEvent } from '../../src/wire.ts'

const outgoing = (text: string, executionId: string | null): Outgoing => ({ key: text, text, executionId, error: null })
const message = (executionId: string) => ({
  executionId,
  branch: 'session',
  role: 'user',
  content: `Of ${executionId}`,
})
const run = (executionId: string, message: string) => ({ executionId, message, userId: 'someone' })

const isAccepted = (executionId: string): ChatEvent => ({
  id: `${executionId}:1`,
  executionId,
  at: new Date(0),
  event: 'meta',
  seq: 1,
  data: { executionId, chatId: 'chat', sessionId: executionId === '9' ? 'branch' : 'session' },
})
const isCancelled = (executionId: string): ChatEvent => ({
  id: `${executionId}:2`,
  executionId,
  at: new Date(0),
  event: 'error',
  seq: 2,
  data: { executionId, message: 'Cancelled', status: 'cancelled', code: 'cancelled', stopReason: 'cancelled' },
})
const live = [...['1', '2', '8', '9'].map(isAccepted), isCancelled('8')].reduce<Live>(apply, new Map())

test.for([
  ['of another page', [], [run('2', 'B'), run('1', 'A')], [], ['A', 'B']],
  [
    'of this page, also before it has the id',
    [outgoing('A', '1'), outgoing('B', null)],
    [run('2', 'B'), run('1', 'A')],
  ],
  ['before later ones of this page', [outgoing('B', '2'), outgoing('C', null)], [run('1', 'A')], [], ['A', 'B', 'C']],
  ['that the chat lists by now', [], [run('2', 'B'), run('1', 'A')], ['1'], ['B']],
  ['that answers an earlier one again in a branch', [], [run('9', 'A')], ['1'], []],
  ['that was cancelled', [], [run('8', 'A')], [], []],
  ['whose run ended long ago', [], [run('0', 'A')], [], []],
] as [string, Outgoing[], ReturnType<typeof run>[], string[]?, string[]?][])(
  'a waiting message %s appears at most once, in its place',
  ([, sent, waiting, listed = [], texts = ['A', 'B']]) => {
    expect(unlistedMessages(sent, waiting, listed.map(message), live).map(({ text }) => text)).toEqual(texts)
  },
)

test('a listed message is not shown twice while the answer to it is late', () => {
  const late = { ...outgoing('Of 2', null), after: '1' }
  const shown = (sent: Outgoing[]) =>
    unlistedMessages(sent, [], [message('1'), message('2')], live).map(({ text }) => text)
  expect(shown([late])).toEqual([])
  // The same text was listed before it was sent, is another one's, or its sending has failed.
  expect(shown([{ ...late, after: '2' }])).toEqual(['Of 2'])
  expect(shown([outgoing('Of 2', '2'), late])).toEqual(['Of 2', 'Of 2'])
  expect(shown([{ ...late, error: 'Not sent' }])).toEqual(['Of 2'])
})

test('a run waits while an earlier run of its session is not over', () => {
  const running = [...live.values()].filter(({ status }) => status === 'running')
  const waiting = running.filter((each) => waitsForTurn(each, running))
  expect(waiting.map(({ executionId }) => executionId)).toEqual(['2'])
})
