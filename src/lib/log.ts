import { writeSync } from 'node:fs'
import { type DestinationStream, type Logger, pino } from 'pino'
import { describeError } from './log-errors.ts'

/**
 * Creates the log: lines of JSON, by default on stdout. Messages of database errors are omitted, because they repeat
 * stored values.
 */
export const createLog = (level: string, destination: DestinationStream = createDestination()): Logger =>
  pino({ level, serializers: { err: describeError } }, destination)

/**
 * Number of retries for a full pipe, and the pause before each (ms). After a lost line there are none, because the
 * process waits for them.
 */
const TRIES = 10
const PAUSE = 10

/**
 * Writes lines to a file descriptor. A line that cannot be written (full disk, closed terminal or reader) is dropped
 * and counted. The next successful line is preceded by one with their number and the reason.
 */
export function createDestination(fd = 1, write: (fd: number, bytes: Buffer) => number = writeSync): DestinationStream {
  let lost = 0
  let reason = ''
  let isTorn = false

  function writeAll(text: string): void {
    let left = Buffer.from(text)
    let tries = 0
    while (left.length) {
      try {
        left = left.subarray(write(fd, left))
        isTorn = left.length > 0
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EAGAIN' || ++tries > (lost ? 0 : TRIES)) throw error
        Atomics.wait(SLEEP, 0, 0, PAUSE)
      }
    }
  }

  function note(): string {
    if (!lost) return ''
    const line = { level: 40, time: Date.now(), lost, reason, msg: 'log lines could not be written and were dropped' }
    return `${JSON.stringify(line)}\n`
  }

  return {
    write(line) {
      try {
        writeAll(`${isTorn ? '\n' : ''}${note()}${line}`)
        lost = 0
      } catch (error) {
        lost++
        reason = (error as NodeJS.ErrnoException).code ?? String(error)
      }
    },
  }
}

const SLEEP = new Int32Array(new SharedArrayBuffer(4))
