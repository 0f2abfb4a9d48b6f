import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { concat } from '../src/lib/text.ts'

const words = (count: number): string[] => Array.from({ length: count }, (_, index) => JSON.parse(`"word ${index} "`))

test('a text that is put together is that of its pieces, whatever they are', () => {
  const pieces = ['', 'a', 'é', '😀'.slice(0, 1), '😀'.slice(1), '\n', ...words(3_000), 'x'.repeat(100_000), '']
  expect(pieces.reduce(concat, '')).toBe(pieces.join(''))
})

test('what is put together of many pieces takes hardly more memory than it is long', () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc')
  const used = () => {
    collect()
    return process.memoryUsage().heapUsed
  }
  const before = used()
  const texts = Array.from({ length: 50 }, () => words(5_000).reduce(concat, ''))
  const length = texts.reduce((sum, text) => sum + text.length, 0)
  expect((used() - before) / length).toBeLessThan(2)
  expect(texts).toHaveLength(50)
})
