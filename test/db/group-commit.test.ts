import type { PoolClient } from 'pg'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createGroupCommit } from '../../src/db/postgresql/group-commit.ts'

test('eight transactions, or a slow group before them, begin another group, and fewer wait', async () => {
  vi.useFakeTimers()
  onTestFinished(() => void vi.useRealTimers())
  // A group that gets no connection lasts.
  const take = vi.fn(() => new Promise<PoolClient>(() => {}))
  const prepare = () => ({ sql: '', values: [], name: '', returns: false })
  const { commit } = createGroupCommit({ take, give: () => {}, end: async () => {} }, prepare, false)
  const arrive = (count: number) => {
    for (let left = count; left; left--) void commit([{ sql: '', args: [], certain: 1 }])
    return vi.advanceTimersByTimeAsync(1)
  }

  await arrive(1)
  expect(take).toHaveBeenCalledTimes(1)
  await arrive(7)
  expect(take).toHaveBeenCalledTimes(1)
  await vi.advanceTimersByTimeAsync(20)
  expect(take).toHaveBeenCalledTimes(2)
  await arrive(16)
  expect(take).toHaveBeenCalledTimes(2)
  await vi.advanceTimersByTimeAsync(1_000)
  expect(take).toHaveBeenCalledTimes(3)
  await arrive(8)
  expect(take).toHaveBeenCalledTimes(4)
})
