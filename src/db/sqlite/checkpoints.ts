import { stat } from 'node:fs/promises'
import { Worker } from 'node:worker_threads'
import { logOf } from './write-ahead-log.ts'

type Options = {
  /** Called before each checkpoint. */
  onCheckpoint: () => void
  /** Whether another program has touched the file or its log, which are then left alone. */
  isMoved: () => boolean
  /** Called with the first failure since the start or the last complete checkpoint. Each is tried again. */
  onFailure: (error: Error) => void
  /** Size from which a log is reported that could not be copied (bytes). */
  largeLog?: number
}

/** Interval of checks, idle time before a checkpoint, and maximum time between checkpoints under load (ms). */
const INTERVAL = 1_000
const IDLE = 5_000
const LONGEST = 60_000

/** Eight times the usual size of the log (bytes). */
const LARGE_LOG = 256 * 1024 * 1024

const READ_TOO_LONG =
  'another program reads the database without a pause, such as a shell of sqlite3 with an open transaction, so the log ' +
  'grows until the disk is full: end that program'

/**
 * Checkpoints the log of an SQLite file after 5 s without writes, and every 60 s under load. So a plain copy of the
 * file is nearly complete. A worker thread does this on its own connection, because a log of 32 MiB takes 0.25 to
 * 0.4 s, which would block the event loop. Returns a function that stops it.
 */
export function startCheckpoints(file: string, options: Options): () => Promise<void> {
  const { onCheckpoint, isMoved, onFailure, largeLog = LARGE_LOG } = options
  /** The thread of the checkpoint in progress. An idle one would keep 14 MiB. */
  let thread: Worker | undefined
  let isStopped = false
  /** Time stamp of the log's last write, and the time stamp up to which the file contains it. */
  let written = 0
  let done = 0
  /** Size of the log (bytes). */
  let size = 0
  /** Time at which the last write was noticed, and since which the log is ahead of the file (ms, monotonic clock). */
  let writtenAt = 0
  let since = 0
  let hasFailed = false

  async function look(): Promise<void> {
    // The thread would open the other file, and copy the log of this one into it.
    if (isMoved()) return
    const log = await stat(logOf(file)).catch(() => null)
    if (!log || log.size === 0 || thread || isStopped) return
    const now = performance.now()
    if (log.mtimeMs !== written) {
      if (written === done) since = now
      written = log.mtimeMs
      writtenAt = now
    }
    size = log.size
    if (written === done) return
    if (now - writtenAt < IDLE && now - since < LONGEST) return
    checkpoint()
  }

  function checkpoint(): void {
    const upTo = written
    onCheckpoint()
    let isDone = false
    function end(): void {
      thread = undefined
      since = performance.now()
      // Writes during the checkpoint have a later time stamp.
      if (isDone) done = upTo
      else {
        writtenAt = since
        if (size > largeLog) fail(new Error(READ_TOO_LONG))
      }
    }
    try {
      thread = new Worker(new URL('./checkpoint-thread.js', import.meta.url), { workerData: file, execArgv: [] })
    } catch (error) {
      // The system gives no further thread.
      fail(error as Error)
      end()
      return
    }
    thread.unref()
    thread
      .on('message', (message: { isDone: boolean }) => {
        isDone = message.isDone
        hasFailed &&= !isDone
      })
      .on('error', fail)
      .on('exit', end)
  }

  function fail(error: Error & { code?: string }): void {
    // Another program holds the file for a moment.
    if (error.code?.startsWith('SQLITE_BUSY')) return
    if (!hasFailed) onFailure(error)
    hasFailed = true
  }

  const timer = setInterval(() => void look(), INTERVAL).unref()
  return async () => {
    isStopped = true
    clearInterval(timer)
    await thread?.terminate()
  }
}
