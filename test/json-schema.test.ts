import { expect, it } from 'vitest'
import { misfit } from '../src/approvals/json-schema.ts'

const schema = {
  type: 'object',
  properties: {
    to: { type: 'string' },
    copies: { type: 'array', items: { type: 'integer' } },
    when: { anyOf: [{ type: 'string' }, { type: 'number' }] },
  },
  required: ['to'],
  additionalProperties: false,
}

it.each([
  [{ to: 'ann' }, null],
  [[], 'The type "array" is invalid. Expected "object".'],
  [{}, 'The value does not have required property "to".'],
  [{ to: 1 }, 'Field "to": The type "number" is invalid. Expected "string".'],
  [{ to: 'ann', copies: [1, 'x'] }, 'Field "copies/1": The type "string" is invalid. Expected "integer".'],
  [{ to: 'ann', when: null }, 'Field "when": The value does not match any subschemas.'],
  [{ to: 'ann', cc: 'ben' }, 'Field "cc": The schema does not allow it.'],
])('a mismatch is a sentence about the innermost wrong value: %j', async (value, sentence) => {
  expect(await misfit(schema, value)).toBe(sentence)
})

it('a pattern that takes too long fits nothing, within a time limit', async () => {
  const slow = { type: 'string', pattern: '^(a+)+$' }
  expect(await misfit(slow, `${'a'.repeat(40)}!`)).toBe('The schema cannot be checked.')
})

it('a check that other programs slow down runs again', async () => {
  let reads = 0
  const value = {
    get to() {
      reads += 1
      // The thread has no processor for longer than the time limit.
      if (reads === 1) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400)
      return 'ann'
    },
  }
  expect(await misfit(schema, value)).toBeNull()
  expect(reads).toBeGreaterThan(1)
})
