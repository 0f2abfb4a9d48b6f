import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import type { Worker } from 'node:worker_threads'
import Sqlite from 'better-sqlite3'
import { afterEach, expect, test, vi } from 'vitest'
import { startCheckpoints } from '../../src/db/sqlite/checkpoints.ts'
import { createFolder } from '../support/folder.ts'

afterEach(() => void vi.useRealTimers())

test('under writes every second, the database file is never two minutes old, and no thread stays', async () => {
  await using folder = await createFolder()
  const file = join(folder.path, 'muster.db')
  const db = new Sqlite(file)
  db.pragma('journal_mode = WAL')
  db.pragma('wal_autocheckpoint = 0')
  db.exec('CREATE TABLE written (second INTEGER)')
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
  const threads: Worker[] = []
  const note = (thread: Worker) => void threads.push(thread)
  process.on('worker', note)
  const stop = startCheckpoints(file, { onCheckpoint: () => {}, isMoved: () => false })
  try {
    for (let second = 0; second < 130; second++) {
      db.prepare('INSERT INTO written VALUES (?)').run(second)
      vi.advanceTimersByTime(1000)
      // The fake clock alternates with turns of the real event loop, which run the checkpoint's thread.
      for (let turns = 0; turns < 20; turns++) await turn()
    }
    // Copies the file without its log, as a careless backup does.
    const copy = join(folder.path, 'copy.db')
    const copied = () => {
      copyFileSync(file, copy)
      using opened = { db: new Sqlite(copy), [Symbol.dispose]: () => opened.db.close() }
      return opened.db.prepare('SELECT max(second) FROM written').pluck().get()
    }
    await expect.poll(copied).toBeGreaterThan(9)
    // The id of a thread that has ended is -1.
    await expect.poll(() => threads.filter(({ threadId }) => threadId !== -1)).toEqual([])
    expect(threads).not.toEqual([])
  } finally {
    process.off('worker', note)
    await stop()
    db.close()
  }
})
