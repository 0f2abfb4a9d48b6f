import { expect, onTestFinished, test, vi } from 'vitest'
import { openDatabase } from '../../src/db/client.ts'
import { openDatabaseClock } from '../../src/db/clock.ts'
import { createLog } from '../../src/lib/log.ts'
import { hasPostgres, shareDatabase } from '../support/postgres-shared.ts'

test.runIf(hasPostgres)('the clock of a machine is put right while the server runs, and told of once', async () => {
  await using cleanup = new AsyncDisposableStack()
  const shared = cleanup.adopt(await shareDatabase(), ({ drop }) => drop())
  const source = { DATA_DIR: '', DATABASE_URL: shared.url, DATABASE_POOL_SIZE: 1 }
  const { client } = cleanup.adopt(await openDatabase(source), ({ close }) => close())
  const lines: string[] = []
  const log = createLog('warn', { write: (line) => void lines.push(line) })
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  onTestFinished(() => void vi.useRealTimers())
  let wrong = 0
  const machine = { now: () => new Date(Date.now() + wrong) }
  const clock = cleanup.adopt(await openDatabaseClock(client, log, machine), ({ stop }) => stop())
  const isRight = () => Math.abs(clock.now().getTime() - Date.now()) < 5_000
  expect(isRight()).toBe(true)
  expect(lines).toEqual([])
  for (wrong of [10_000_000, -20_000_000]) {
    expect(isRight()).toBe(false)
    vi.advanceTimersByTime(60_000)
    await expect.poll(isRight).toBe(true)
  }
  expect(lines).toHaveLength(1)
})
