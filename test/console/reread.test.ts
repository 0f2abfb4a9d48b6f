import { QueryClient, QueryObserver } from '@tanstack/react-query'
import { expect, test } from 'vitest'
import { inTurn, reread } from '../../src/console/lib/reread.ts'

/** A watched query whose answers come when they are released. Each answer has its number. */
function watched(cache: QueryClient) {
  const answers: PromiseWithResolvers<number>[] = []
  const queryFn = () => {
    answers.push(Promise.withResolvers())
    return answers.at(-1)!.promise
  }
  const observer = new QueryObserver(cache, { queryKey: ['rows'], queryFn })
  const stop = observer.subscribe(() => {})
  return { answer: (index: number) => answers[index]?.resolve(index), read: () => answers.length, observer, stop }
}

test('a change during the first read is followed by another read', async () => {
  const cache = new QueryClient()
  const rows = watched(cache)
  const done = reread(cache, { queryKey: ['rows'] })
  rows.answer(0)
  await expect.poll(rows.read).toBe(2)
  rows.answer(1)
  await done
  expect(rows.observer.getCurrentResult().data).toBe(1)
  rows.stop()
})

test('a change during a later read replaces it', async () => {
  const cache = new QueryClient()
  const rows = watched(cache)
  rows.answer(0)
  await expect.poll(() => rows.observer.getCurrentResult().data).toBe(0)
  void cache.invalidateQueries({ queryKey: ['rows'] })
  const done = reread(cache, { queryKey: ['rows'] })
  rows.answer(2)
  await done
  expect(rows.observer.getCurrentResult().data).toBe(2)
  expect(rows.read()).toBe(3)
  rows.stop()
})

test('changes during a read are read together by one more', async () => {
  const ends: (() => void)[] = []
  const read = inTurn(() => new Promise<void>((resolve) => ends.push(resolve)))
  const first = read()
  for (let change = 0; change < 3; change++) void read()
  expect(ends).toHaveLength(1)
  ends[0]?.()
  await expect.poll(() => ends.length).toBe(2)
  ends[1]?.()
  await first
  void read()
  expect(ends).toHaveLength(3)
})
