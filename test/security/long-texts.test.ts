import { expect, it } from 'vitest'
import { isCommonPassword } from '../../src/auth/common-passwords.ts'
import { idTokenOf } from '../../src/auth/identity.ts'
import { parseInput } from '../../src/executions/engine/models/call-inputs.ts'
import { createFenceFilter } from '../../src/executions/engine/models/code-fence.ts'
import { createEventReader } from '../../src/executions/engine/models/event-reader.ts'
import type { ProviderEvents } from '../../src/executions/engine/models/provider-events.ts'
import { fitSchema } from '../../src/executions/engine/models/tool-schemas.ts'
import { findTool } from '../../src/executions/engine/run/offers.ts'
import { mendMessage } from '../../src/mcps/client/mend-message.ts'
import { createCalls } from '../../src/protocols/openai/functions.ts'
import { createTurns } from '../../src/protocols/shared/turns.ts'
import { calls, chunk, DONE, partsOf, summarize } from '../engine/chat-bytes.ts'

// Texts of strangers for which a pattern takes time quadratic or exponential in their length. During a match no other
// request is answered, so a slow pattern exceeds the time of its test.

it('a long password that nearly consists of common words is checked at once', () => {
  expect(isCommonPassword(`${'thisisa'.repeat(140)}x`, 'ann@example.com')).toBe(false)
  expect(isCommonPassword('iloveyou'.repeat(12), 'ann@example.com')).toBe(true)
  expect(isCommonPassword('thisisabcmypassword', 'ann@example.com')).toBe(true)
})

it('a header of dots and a blank is no ID token', () => {
  expect(idTokenOf(`Bearer ${'.'.repeat(1_000_000)} x`)).toBeUndefined()
  expect(idTokenOf('Bearer a.b.c')).toBe('a.b.c')
})

it('a called name of a million quotes is no tool', () => {
  const tools = [{ name: 'echo' }] as unknown as Parameters<typeof findTool>[0]
  expect(findTool(tools, `x${'"'.repeat(1_000_000)}x`)).toBeUndefined()
  expect(findTool(tools, ' "echo" ')).toBe(tools[0])
})

it('a property whose name has a million underscores gets a short name', () => {
  const name = `.x${'_'.repeat(1_000_000)}x`
  const { schema } = fitSchema({ type: 'object', properties: { [name]: { type: 'string' } } })!
  expect(Object.keys(schema.properties!)).toEqual([`x${'_'.repeat(63)}`])
})

it.each([`{'code': '${"\\'".repeat(1_000_000)}`, `{'code': None, 'text': "${'\\"'.repeat(1_000_000)}`])(
  'an input in Python that was cut off in a text full of quotes is unreadable',
  (input) => {
    expect(parseInput(input)).toBeUndefined()
  },
)

it('a message that was cut off in a text full of quotes stays as it is', () => {
  const message = `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"${'\\"'.repeat(1_000_000)}`
  expect(mendMessage(message, 1)).toBe(message)
})

// Answers of model servers, whose pieces must not take longer the more came before.
const BLANKS = Array<string>(1_000).fill(' '.repeat(16_384))

it('an answer that begins with 16 MB of blanks is read as fast as its pieces arrive', () => {
  expect(summarize(partsOf([...BLANKS, chunk({ content: 'Hi' }, 'stop'), DONE])).text).toBe('Hi')
  const read: unknown[] = []
  const events = createEventReader({
    keepAlive() {},
    read: (event: unknown) => read.push(event),
  } as unknown as ProviderEvents)
  for (const text of [...BLANKS, 'data: {"type":"ping"}\n\n']) events.feed(text)
  expect(read).toEqual([{ type: 'ping' }])
  const filter = createFenceFilter()
  expect(Array.from({ length: 200_000 }, () => filter.feed(' ')).join('')).toHaveLength(200_000)
})

it('objects behind the long input of a call are compared with it once', () => {
  const long = { name: 'add', arguments: `{${' '.repeat(500_000)}"x":1}` }
  const same = calls({ index: 0, function: { arguments: '{"x":1}' } })
  const other = calls({ index: 0, function: { arguments: '{"x":2}' } })
  const inputs = (more: string[]) =>
    summarize(partsOf([calls({ index: 0, id: 'a', function: long }), ...more, DONE])).calls.map(({ input }) => input)
  expect(inputs(Array(2_000).fill(same))).toEqual([long.arguments])
  expect(inputs(Array(500).fill(other))).toEqual(['{"x":1}', ...Array(500).fill('{"x":2}')])
})

it('the results of 100,000 calls in the messages of a client find their calls at once', () => {
  const indexes = Array.from({ length: 100_000 }, (_, index) => index)
  for (const idOf of [(index: number) => `call_${index}`, () => 'call_0']) {
    const turns = createTurns()
    const made = createCalls()
    for (const index of indexes) turns.call(made.call('echo', {}, idOf(index)), 'echo', {})
    for (const index of indexes) turns.result(made.result('echo', `${index}`, idOf(index)), `${index}`)
    const results = indexes.map(String)
    expect(turns.finish().history[0]?.toolCalls.map(({ result }) => result)).toEqual(results)
    expect(made.finish().calls.map(({ result }) => result)).toEqual(results)
  }
})
