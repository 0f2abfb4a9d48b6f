import { copyFileSync, existsSync, readFileSync } from 'node:fs'
import { mkdir, rm, rmdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import type { Worker } from 'node:worker_threads'
import Sqlite from 'better-sqlite3'
import { afterEach, expect, test, vi } from 'vitest'
import { startCheckpoints } from '../../src/db/sqlite/checkpoints.ts'
import { createFolder } from '../support/folder.ts'

afterEach(() => void vi.useRealTimers())

/** Creates a database with a log. */
function createDatabase(folder: string) {
  const file = join(folder, 'muster.db')
  const db = new Sqlite(file)
  db.pragma('journal_mode = WAL')
  db.exec('CREATE TABLE written (second INTEGER)')
  return { file, db }
}

test('under writes every second, the database file is never two minutes old, and no thread stays', async () => {
  await using folder = await createFolder()
  const { file, db } = createDatabase(folder.path)
  db.pragma('wal_autocheckpoint = 0')
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
  const threads: Worker[] = []
  const note = (thread: Worker) => void threads.push(thread)
  process.on('worker', note)
  const stop = startCheckpoints(file, { onCheckpoint: () => {}, isMoved: () => false, onFailure: () => {} })
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

test('a checkpoint that fails is tried again and reported once, until one is complete', async () => {
  await using folder = await createFolder()
  const written = join(folder.path, 'written.db')
  const db = new Sqlite(written)
  db.pragma('journal_mode = WAL')
  db.exec('CREATE TABLE written (second INTEGER)')
  const [content, log] = [readFileSync(written), readFileSync(`${written}-wal`)]
  db.close()
  const file = join(folder.path, 'muster.db')
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
  let tries = 0
  const failures: unknown[] = []
  const stop = startCheckpoints(file, {
    onCheckpoint: () => tries++,
    isMoved: () => false,
    onFailure: (error) => failures.push((error as { code?: unknown }).code),
  })
  /** Lets seconds pass on the fake clock. */
  async function pass() {
    vi.advanceTimersByTime(1000)
    for (let turns = 0; turns < 20; turns++) await turn()
  }
  try {
    for (const round of [1, 2]) {
      await rm(file, { force: true })
      await mkdir(file)
      await writeFile(`${file}-wal`, log)
      for (const before = tries; tries < before + 3; ) await pass()
      expect(failures).toEqual(Array(round).fill('SQLITE_CANTOPEN'))
      await rmdir(file)
      await writeFile(file, content)
      // Its only connection removes the log once it is in the file.
      while (existsSync(`${file}-wal`)) await pass()
    }
  } finally {
    await stop()
  }
})

test('a log that grows because another program keeps reading is reported once', async () => {
  await using folder = await createFolder()
  const { file, db } = createDatabase(folder.path)
  const reader = new Sqlite(file)
  reader.exec('BEGIN')
  reader.prepare('SELECT * FROM written').all()
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
  let tries = 0
  const failures: string[] = []
  const stop = startCheckpoints(file, {
    onCheckpoint: () => tries++,
    isMoved: () => false,
    onFailure: ({ message }) => failures.push(message),
    largeLog: 1,
  })
  async function pass() {
    db.exec('INSERT INTO written VALUES (1)')
    vi.advanceTimersByTime(60_000)
    for (let turns = 0; turns < 20; turns++) await turn()
  }
  try {
    while (tries < 4) await pass()
    expect(failures).toEqual([expect.stringContaining('another program reads the database without a pause')])
  } finally {
    await stop()
    for (const each of [reader, db]) each.close()
  }
})
