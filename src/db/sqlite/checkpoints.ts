import { stat } from 'node:fs/promises'
import { Worker } from 'node:worker_threads'
import { logOf } from './write-ahead-log.ts'

/** How often the log is looked at, how long it may be idle, and how long it may have grown before a checkpoint (ms). */
const INTERVAL = 1_000
const IDLE = 5_000
const LONGEST = 60_000

/**
 * Copies the log of an SQLite file into the file when nobody has written for 5 s, and every 60 s while somebody does: a
 * plain copy of the file then lacks little. The work is a thread's, with a connection of its own: a log of 32 MiB takes
 * 0.25 to 0.4 s, in which the event loop would stand still. `onCheckpoint` is called before each. The result stops it.
 */
export function startCheckpoints(file: string, onCheckpoint: () => void): () => Promise<void> {
  let thread: Worker | undefined
  let isBusy = false
  /** When the log was last written to, by its own time stamp, and up to which it is in the file. */
  let written = 0
  let done = 0
  /** When that was noticed, and since when the log has more than the file (ms, by the clock that nobody sets). */
  let writtenAt = 0
  let since = 0

  async function look(): Promise<void> {
    const log = await stat(logOf(file)).catch(() => null)
    if (!log || log.size === 0 || isBusy) return
    const now = performance.now()
    if (log.mtimeMs !== written) {
      if (written === done) since = now
      written = log.mtimeMs
      writtenAt = now
    }
    if (written === done) return
    if (now - writtenAt < IDLE && now - since < LONGEST) return
    checkpoint()
  }

  function checkpoint(): void {
    isBusy = true
    const upTo = written
    onCheckpoint()
    thread ??= open()
    thread.once('message', ({ isDone }: { isDone: boolean }) => {
      isBusy = false
      since = performance.now()
      // What was written meanwhile has a later time stamp.
      if (isDone) done = upTo
      else writtenAt = since
    })
    thread.postMessage('checkpoint')
  }

  function open(): Worker {
    const opened = new Worker(new URL('./checkpoint-thread.ts', import.meta.url), { workerData: file, execArgv: [] })
    opened.unref()
    const forget = () => {
      if (thread === opened) thread = undefined
      isBusy = false
    }
    return opened.on('error', forget).on('exit', forget)
  }

  const timer = setInterval(() => void look(), INTERVAL).unref()
  return async () => {
    clearInterval(timer)
    await thread?.terminate()
  }
}
