import { parentPort, workerData } from 'node:worker_threads'
import Sqlite from 'better-sqlite3'

// Copies the log of an SQLite file into the file once, while the connections of the main thread continue. This file is
// JavaScript, because a thread does not use the compile cache, and would retain 15 MB of Node's type stripper.

const connection = new Sqlite(workerData, { timeout: 0 })
const [result] = connection.pragma('wal_checkpoint(PASSIVE)')
connection.close()
parentPort?.postMessage({ isDone: result?.log === result?.checkpointed })
