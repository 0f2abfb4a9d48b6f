import { expect, onTestFinished, test, vi } from 'vitest'
import { openDatabase } from '../../src/db/client.ts'
import { overrideMembers } from '../../src/db/override-members.ts'
import { openDatabaseClock } from '../../src/db/postgresql/clock.ts'
import { createLog } from '../../src/lib/log.ts'
import { hasPostgres, shareDatabase } from '../support/postgres-shared.ts'

test.runIf(hasPostgres)(
  'a wrong machine clock is corrected once a minute; a clock that was set gets one warning',
  async () => {
    await using cleanup = new AsyncDisposableStack()
    const shared = cleanup.adopt(await shareDatabase(), ({ drop }) => drop())
    const source = { DATA_DIR: '', DATABASE_URL: shared.url, DATABASE_POOL_SIZE: 1 }
    const { client } = cleanup.adopt(await openDatabase(source), ({ close }) => close())
    let looks = 0
    const $queryRaw = (query: never) => client.$queryRaw(query).finally(() => looks++)
    const lines: string[] = []
    const log = createLog('warn', { write: (line) => void lines.push(line) })
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    onTestFinished(() => void vi.useRealTimers())
    let wrong = 0
    const machine = { now: () => new Date(Date.now() + wrong) }
    const opened = openDatabaseClock(overrideMembers(client, { $queryRaw }), log, machine)
    const clock = cleanup.adopt(await opened, ({ stop }) => stop())
    const isRight = () => Math.abs(clock.now().getTime() - Date.now()) < 300
    expect(isRight()).toBe(true)

    wrong = 600
    expect(isRight()).toBe(false)
    const aMinuteLater = () => {
      vi.advanceTimersByTime(60_000)
      return isRight()
    }
    await expect.poll(aMinuteLater).toBe(true)
    expect(lines).toEqual([])

    for (wrong of [10_000_000, -20_000_000]) {
      looks = 0
      expect(isRight()).toBe(true)
      await expect.poll(() => looks).toBe(1)
      expect(isRight()).toBe(true)
    }
    expect(lines).toHaveLength(1)
    expect(looks).toBe(1)
  },
)
