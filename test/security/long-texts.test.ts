import { expect, it } from 'vitest'
import { idTokenOf } from '../../src/auth/identity.ts'
import { isCommonPassword } from '../../src/auth/passwords.ts'
import { parseInput } from '../../src/executions/engine/models/call-inputs.ts'
import { fitSchema } from '../../src/executions/engine/models/tool-schemas.ts'
import { findTool } from '../../src/executions/engine/run/offers.ts'
import { mendMessage } from '../../src/mcps/client/mend-message.ts'

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
