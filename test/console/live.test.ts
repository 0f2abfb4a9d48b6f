import { expect, test } from 'vitest'
import { apply, type Live, signInsOf, textOf, waitingIn } from '../../src/console/features/chat/live.ts'
import { diffLines } from '../../src/console/lib/diff.ts'
import type { ChatEvent, MessageData } from '../../src/wire.ts'

const event = (seq: number, data: MessageData): ChatEvent => ({
  id: `run:${seq}`,
  executionId: 'run',
  at: new Date(0),
  event: 'message',
  seq,
  data: { ...data, executionId: 'run' },
})
const delta = (seq: number, text: string, step = 1): ChatEvent =>
  event(seq, { messageType: 'stream_event', step, delta: { type: 'text_delta', text } })
const run = (events: readonly ChatEvent[]) => events.reduce<Live>(apply, new Map()).get('run')

test('a repeated event changes nothing', () => {
  const events = [delta(1, 'One '), delta(2, 'two'), delta(1, 'One '), delta(2, 'two'), delta(3, '.')]
  expect(textOf(run(events)!)).toBe('One two.')
})

test('the fragments of a resumed step start again, and those of earlier steps stay', () => {
  const resumed = event(4, { messageType: 'resumed', step: 2 })
  expect(textOf(run([delta(1, 'First.'), delta(2, 'Half', 2), resumed, delta(5, 'Whole.', 2)])!)).toBe(
    'First.\n\nWhole.',
  )
})

test('a whole step replaces its fragments', () => {
  const whole = event(3, {
    messageType: 'assistant',
    step: 1,
    text: 'All of it',
    content: [{ type: 'text', text: 'All of it' }],
  })
  expect(textOf(run([delta(1, 'All '), whole])!)).toBe('All of it')
})

test('a call waits from its approval event until its result', () => {
  const called = event(1, {
    messageType: 'assistant',
    step: 1,
    text: '',
    content: [{ type: 'tool_use', id: 'call', name: 'echo', input: {} }],
  })
  const asked = event(2, { messageType: 'approval', approvalId: 'a', toolUseId: 'call', name: 'echo' })
  const answered = event(3, { messageType: 'tool_result', toolUseId: 'call', content: 'Hi', isError: false })
  expect(waitingIn(run([called, asked])!).map(({ name }) => name)).toEqual(['echo'])
  expect(waitingIn(run([called, asked, answered])!)).toEqual([])
})

test('a call waits from its authorization event until its result', () => {
  const called = event(1, {
    messageType: 'assistant',
    step: 1,
    text: '',
    content: [{ type: 'tool_use', id: 'call', name: 'echo', input: {} }],
  })
  const server = { mcpId: 'm', mcpName: 'Linear' }
  const needed = event(2, { messageType: 'authorization', ...server, toolUseId: 'call', name: 'echo' })
  const answered = event(3, { messageType: 'tool_result', toolUseId: 'call', content: 'Hi', isError: false })
  expect(signInsOf(run([called, needed])!)).toEqual([server])
  expect(signInsOf(run([called, needed, answered])!)).toEqual([])
})

test('a reset forgets every run', () => {
  const reset: ChatEvent = {
    id: '-:0',
    executionId: null,
    at: new Date(0),
    event: 'reset',
    data: { executionId: null },
  }
  expect(run([delta(1, 'One'), reset])).toBeUndefined()
})

test('a comparison pairs changed lines and keeps common ones on both sides', () => {
  expect(diffLines('a\nb\nc', 'a\nx\nc\nd')).toEqual([
    { left: 'a', right: 'a' },
    { left: 'b', right: 'x' },
    { left: 'c', right: 'c' },
    { left: null, right: 'd' },
  ])
})

test('a summary of earlier turns is announced, and stays once it is written', () => {
  const asked = event(1, { messageType: 'summary', messageId: 'm', text: null })
  const written = event(2, { messageType: 'summary', messageId: 'm', text: 'The user buys milk.' })
  expect(run([asked])?.summary).toBe('')
  expect(run([asked, written, delta(3, 'Hello')])?.summary).toBe('The user buys milk.')
  // The model failed to write it, and answers.
  expect(run([asked, delta(2, 'Hello')])?.summary).toBeNull()
})
