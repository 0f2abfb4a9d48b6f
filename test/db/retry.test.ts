import { afterEach, expect, test, vi } from 'vitest'
import { retryStatement } from '../../src/db/postgresql/retry.ts'

/** Repetitions of statements on PostgreSQL whose connection is lost. */

afterEach(() => void vi.restoreAllMocks())

const lost = () => Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })

/** Executes a statement whose first connection is lost after a time (ms). Returns the number of its executions. */
async function executionsOf(sql: string, after: number): Promise<number> {
  let now = 0
  vi.spyOn(performance, 'now').mockImplementation(() => now)
  let count = 0
  const work = async () => {
    if (++count > 1) return
    now += after
    throw lost()
  }
  await retryStatement(sql, work).catch((error) => expect(error).toEqual(lost()))
  return count
}

test('a read is repeated unless it took longer than five seconds, and a write never', async () => {
  expect(await executionsOf('SELECT 1', 4_900)).toBe(2)
  expect(await executionsOf('SELECT 1', 5_100)).toBe(1)
  expect(await executionsOf('SELECT 1 FOR UPDATE', 0)).toBe(1)
  expect(await executionsOf('DELETE FROM "Task"', 0)).toBe(1)
})
