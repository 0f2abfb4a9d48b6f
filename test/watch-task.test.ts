import { expect, test } from 'vitest'
import { watchTask } from '../src/lib/watch-task.ts'

test('a periodic task that fails again and again is reported once, and anew after a success', async () => {
  const reported: unknown[] = []
  const watch = watchTask((error) => reported.push(error))
  const shared = Promise.reject('first')
  for (const execution of [shared, shared, Promise.reject('second')]) await watch(execution)
  expect(reported).toEqual(['first'])
  await watch(Promise.resolve())
  await watch(Promise.reject('third'))
  expect(reported).toEqual(['first', 'third'])
})
