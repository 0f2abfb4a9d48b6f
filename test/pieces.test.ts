import fc from 'fast-check'
import { expect, test } from 'vitest'
import { hasLongText, jsonPieces, PIECE_LENGTH, textPieces } from '../src/http/pieces.ts'

/** Texts that are cut once or twice, with surrogate pairs at every place of a possible cut. */
const long = fc
  .tuple(
    fc.integer({ min: PIECE_LENGTH - 3, max: 2 * PIECE_LENGTH + 3 }),
    fc.constantFrom('x', '😀', 'é"\\', '\ud83d', '\ude00😀'),
  )
  .map(([length, word]) => word.repeat(Math.ceil(length / word.length)).slice(0, length))

test('JSON in pieces equals the output of JSON.stringify for any value', () => {
  const value = fc.oneof(
    { weight: 3, arbitrary: fc.anything({ withDate: true, maxDepth: 2 }).filter((given) => !hasBigInt(given)) },
    { weight: 1, arbitrary: long },
  )
  const object = fc.dictionary(fc.string(), fc.oneof(value, fc.array(value, { maxLength: 3 })), { maxKeys: 4 })
  fc.assert(
    fc.property(object, (given) => {
      expect([...jsonPieces(given)].join('')).toBe(JSON.stringify(given))
    }),
    { numRuns: 200 },
  )
})

test('no piece of a text divides a character or exceeds its maximum length', () => {
  fc.assert(
    fc.property(long, (text) => {
      const pieces = [...textPieces(text)]
      expect(pieces.join('')).toBe(text)
      for (const piece of pieces) {
        expect(piece.length).toBeLessThanOrEqual(PIECE_LENGTH + 1)
        if (text.isWellFormed()) expect(piece.isWellFormed()).toBe(true)
      }
    }),
  )
})

test('8 MB of text arrive in pieces, and a page of short rows as a whole', () => {
  const answer = { execution: { result: '"'.repeat(8 * 1024 * 1024) }, id: '1' }
  expect(hasLongText(answer)).toBe(true)
  for (const piece of jsonPieces(answer)) expect(piece.length).toBeLessThan(4 * PIECE_LENGTH)
  expect(hasLongText({ agents: Array.from({ length: 1000 }, () => ({ prompt: 'short' })) })).toBe(false)
})

function hasBigInt(value: unknown): boolean {
  if (typeof value === 'bigint') return true
  return typeof value === 'object' && value !== null && Object.values(value).some(hasBigInt)
}
