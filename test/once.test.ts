import { expect, test } from 'vitest'
import { onceDone } from '../src/lib/once.ts'

test('work that is done once is repeated after a failure, and then no more', async () => {
  let calls = 0
  const work = onceDone(async () => {
    if (++calls === 1) throw new Error('EMFILE: too many open files')
    return calls
  })
  const both = await Promise.allSettled([work(), work()])
  expect(both.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  expect([await work(), await work()]).toEqual([2, 2])
})
