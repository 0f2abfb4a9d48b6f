import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { appendFlat, beginningWhole, toTitle } from '../src/lib/text.ts'

const words = (count: number): string[] => Array.from({ length: count }, (_, index) => JSON.parse(`"word ${index} "`))

test('a joined text equals its pieces', () => {
  const pieces = ['', 'a', 'é', '😀'.slice(0, 1), '😀'.slice(1), '\n', ...words(3_000), 'x'.repeat(100_000), '']
  expect(pieces.reduce(appendFlat, '')).toBe(pieces.join(''))
})

test('a joined text takes hardly more memory than its length', () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc')
  const used = () => {
    collect()
    return process.memoryUsage().heapUsed
  }
  const before = used()
  const texts = Array.from({ length: 50 }, () => words(5_000).reduce(appendFlat, ''))
  const length = texts.reduce((sum, text) => sum + text.length, 0)
  expect((used() - before) / length).toBeLessThan(2)
  expect(texts).toHaveLength(50)
})

test.each([
  ['  First line\n\nSecond\tline\r\nthird\u2028fourth\u0085fifth', 'First line Second line third fourth fifth'],
  ['\u202eevil\u202c \u2066text\u2069 \u200f!', 'evil text !'],
  ['a\u0007\u001b[31mred\u0000', 'a[31mred'],
  ['a\u200b\u2060 \ufeff b\u00ad', 'a b'],
  [
    '\u06a9\u062a\u0627\u0628\u200c\u0647\u0627 \u2764\ufe0f 👩🏽\u200d💻',
    '\u06a9\u062a\u0627\u0628\u200c\u0647\u0627 \u2764\ufe0f 👩🏽\u200d💻',
  ],
  ['\u200b\u2060 \u3164\u115f', null],
  ['\u2800\u200d\ufe0f', null],
  ['\ud83d lone', '\ufffd lone'],
])('the title of %j is one visible line', (text, title) => {
  expect(toTitle(text, 80)).toBe(title)
})

test.each([
  ['👩\u200d👩\u200d👧\u200d👦', 'xx'],
  ['e\u0301', 'xx'],
  ['🇩🇪', 'xx'],
  ['한', 'xx한'],
])('a text is cut before or after %j, never within it', (grapheme, cut) => {
  expect(beginningWhole(`xx${grapheme}yy`, 3)).toBe(cut)
})

test('a single grapheme that is longer than the limit is cut all the same', () => {
  expect(beginningWhole(`e${'\u0301'.repeat(500)}`, 10)).toBe(`e${'\u0301'.repeat(9)}`)
})
