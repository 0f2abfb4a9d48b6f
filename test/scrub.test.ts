import fc from 'fast-check'
import { expect, it } from 'vitest'
import { scrubber } from '../src/lib/scrub.ts'
import { formsOf } from '../src/secrets/resolve.ts'

/** Few characters, so that secrets overlap, repeat themselves and look like escapes. */
const text = (minLength: number, maxLength: number) =>
  fc
    .array(fc.constantFrom('a', 'b', '"', '\\', '/', 'u', '0', '2', '5', 'c', ' '), { minLength, maxLength })
    .map((all) => all.join(''))
const secrets = fc.array(
  text(6, 9).filter((secret) => secret.trim().length >= 6),
  { minLength: 1, maxLength: 4 },
)

/** A plain reference implementation: marks each character of each secret by a search at every position. */
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

it('scrubbing removes every character of every secret, and nothing else', () => {
  const plain = text(0, 60).map((all) => all.replaceAll('\\', 'b'))
  fc.assert(
    fc.property(secrets, plain, fc.nat(60), (values, around, at) => {
      const text = around.slice(0, at) + values.join('') + around.slice(at)
      fc.pre(!text.includes('\\'))
      expect(scrubber(values)(text, false)).toBe(naive(values, text))
    }),
  )
})

it('scrubbing removes secrets however JSON escapes them, and leaves valid JSON', () => {
  fc.assert(
    fc.property(secrets, fc.nat(2), (values, levels) => {
      // Between two values, the quotes around them may be part of a secret as well.
      const isBroken = (json: string) => values.some((value) => value.includes('"') && json.includes(value.trim()))
      let text = JSON.stringify(values)
      fc.pre(!isBroken(text))
      for (let level = 1; level < levels; level++) text = JSON.stringify([text])
      fc.pre(!isBroken(text))
      let cleaned = scrubber(values)(text, false)
      for (let level = 1; level < levels; level++) cleaned = JSON.parse(cleaned)[0]
      for (const value of JSON.parse(cleaned)) expect(value.trim()).toBe('[removed]')
    }),
  )
})

it('scrubbing leaves no prefix of a secret at the end of a text that is cut', () => {
  fc.assert(
    fc.property(text(6, 40), fc.nat(40), (secret, length) => {
      const word = secret.trim()
      fc.pre(word.length >= 6)
      const kept = word.slice(0, Math.max(length, 6))
      expect(scrubber([word])(`x${kept}`, true)).toBe('x[removed]')
    }),
  )
})

it('scrubbing takes time proportional to the text, whatever the text and the secrets are', () => {
  const half = 'a'.repeat(4000)
  const scrub = scrubber(Array.from({ length: 50 }, (_, index) => `${half}${index}b${half}`))
  const text = 'a'.repeat(512 * 1024)
  // A search at each position would compare two hundred billion characters, and exceed the test's time limit.
  expect(scrub(text, false)).toBe(text)
})

it.each(['base64', 'base64url'] as const)('scrubbing removes a secret from the %s of a longer text', (encoding) => {
  const value = 'a-key?~of>>a~service'
  const scrub = scrubber(formsOf([value]))
  for (const before of ['', 'a', 'ab', 'abc', 'Bearer ', 'user:']) {
    for (const after of ['', '/', '/a', '/ab']) {
      const text = scrub(Buffer.from(before + value + after).toString(encoding), false).replace(/=+$/, '')
      // A character at each end also has bits of what stands beside the value.
      const around = [before, after].map(({ length }) => Math.ceil((length * 8) / 6) + 2)
      expect(text).toMatch(new RegExp(`^.{0,${around[0]}}\\[removed\\].{0,${around[1]}}$`))
    }
  }
})

it('scrubbing removes the token of a value with a scheme, which a server may name alone', () => {
  const scrub = scrubber(formsOf(['Bearer token-of-a-server', 'a pass phrase of words']))
  expect(scrub('Invalid token: token-of-a-server', false)).toBe('Invalid token: [removed]')
  expect(scrub('phrase', false)).toBe('phrase')
})
