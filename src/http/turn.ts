import { setImmediate } from 'node:timers/promises'

let reading: Promise<void> | null = null

/**
 * Resolves when all input that arrived in this event loop turn has been read, for all waiting requests together. They
 * then run one after another: code stays warm, database writes share a commit, and clients that are answered together
 * send their next requests together.
 */
export const nextReadBatch = (): Promise<void> => (reading ??= readAll())

async function readAll(): Promise<void> {
  await setImmediate()
  reading = null
}
