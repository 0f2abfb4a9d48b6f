import fc from 'fast-check'
import { expect, test } from 'vitest'
import { hasLongText, jsonPieces, PIECE, textPieces } from '../src/lib/pieces.ts'

/** Texts that are cut once or twice, with characters of two halves wherever a cut may be. */
const long = fc
  .tuple(fc.integer({ min: PIECE - 3, max: 2 * PIECE + 3 }), fc.constantFrom('x', '😀', 'é"\\', '\ud83d', '\ude00😀'))
  .map(([length, word]) => word.repeat(Math.ceil(length / word.length)).slice(0, length))

test('JSON in pieces is what JSON.stringify writes, whatever is in it', () => {
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

test('no piece of a text divides a character, and none is longer than it may be', () => {
  fc.assert(
    fc.property(long, (text) => {
      const pieces = [...textPieces(text)]
      expect(pieces.join('')).toBe(text)
      for (const piece of pieces) {
        expect(piece.length).toBeLessThanOrEqual(PIECE + 1)
        if (text.isWellFormed()) expect(piece.isWellFormed()).toBe(true)
      }
    }),
  )
})

test('8 MB of text come in pieces, and a page of short rows as it is', () => {
  const answer = { execution: { result: '"'.repeat(8 * 1024 * 1024) }, id: '1' }
  expect(hasLongText(answer)).toBe(true)
  for (const piece of jsonPieces(answer)) expect(piece.length).toBeLessThan(4 * PIECE)
  expect(hasLongText({ agents: Array.from({ length: 1000 }, () => ({ prompt: 'short' })) })).toBe(false)
})

function hasBigInt(value: unknown): boolean {
  if (typeof value === 'bigint') return true
  return typeof value === 'object' && value !== null && Object.values(value).some(hasBigInt)
}
