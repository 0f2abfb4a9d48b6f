import fc from 'fast-check'
import { expect, it } from 'vitest'
import { scrubber } from '../../src/mcps/scrub.ts'

/** Of few characters, so that they overlap, repeat themselves and look like escapes. */
const text = (minLength: number, maxLength: number) =>
  fc
    .array(fc.constantFrom('a', 'b', '"', '\\', '/', 'u', '0', '2', '5', 'c', ' '), { minLength, maxLength })
    .map((all) => all.join(''))
const secrets = fc.array(
  text(6, 9).filter((secret) => secret.trim().length >= 6),
  { minLength: 1, maxLength: 4 },
)

/** What is left where each character of each secret is taken out: looked for at every place. */
function naive(values: readonly string[], from: string): string {
  const hidden = new Set<number>()
  for (const value of values.map((value) => value.trim())) {
    for (let at = from.indexOf(value); at >= 0; at = from.indexOf(value, at + 1)) {
      for (let within = at; within < at + value.length; within++) hidden.add(within)
    }
  }
  return [...from]
    .map((character, at) => (hidden.has(at) ? '\0' : character))
    .join('')
    .replace(/\0+/g, '[removed]')
}

it('takes out every character of every secret, and nothing else', () => {
  const plain = text(0, 60).map((all) => all.replaceAll('\\', 'b'))
  fc.assert(
    fc.property(secrets, plain, fc.nat(60), (values, around, at) => {
      const said = around.slice(0, at) + values.join('') + around.slice(at)
      fc.pre(!said.includes('\\'))
      expect(scrubber(values)(said, false)).toBe(naive(values, said))
    }),
  )
})

it('takes them out however JSON escapes them, and leaves JSON', () => {
  fc.assert(
    fc.property(secrets, fc.nat(2), (values, levels) => {
      let said = JSON.stringify(values)
      for (let level = 1; level < levels; level++) said = JSON.stringify([said])
      let shown = scrubber(values)(said, false)
      for (let level = 1; level < levels; level++) shown = JSON.parse(shown)[0]
      for (const value of JSON.parse(shown)) expect(value.trim()).toBe('[removed]')
    }),
  )
})

it('leaves no beginning of one at the end of a text that is cut', () => {
  fc.assert(
    fc.property(text(6, 40), fc.nat(40), (secret, length) => {
      const word = secret.trim()
      fc.pre(word.length >= 6)
      const kept = word.slice(0, Math.max(length, 6))
      expect(scrubber([word])(`x${kept}`, true)).toBe('x[removed]')
    }),
  )
})

it('is done in time that grows with the text, whatever it and they are made of', () => {
  const half = 'a'.repeat(4000)
  const scrub = scrubber(Array.from({ length: 50 }, (_, index) => `${half}${index}b${half}`))
  const said = 'a'.repeat(512 * 1024)
  // A search at each place would compare two hundred billion characters, and be over long after the test's patience.
  expect(scrub(said, false)).toBe(said)
})
