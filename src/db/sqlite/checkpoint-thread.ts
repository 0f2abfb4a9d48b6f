import { parentPort, workerData } from 'node:worker_threads'
import Sqlite from 'better-sqlite3'

// Copies the log of an SQLite file into the file, while the connections of the main thread continue.

const connection = new Sqlite(workerData as string, { timeout: 0 })
parentPort?.on('message', () => {
  try {
    const [result] = connection.pragma('wal_checkpoint(PASSIVE)') as { log: number; checkpointed: number }[]
    parentPort?.postMessage({ isDone: result?.log === result?.checkpointed })
  } catch {
    parentPort?.postMessage({ isDone: false })
  }
})
