import { randomBytes } from 'node:crypto'

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

/** Random bytes are asked for in bulk: a call costs more than the bytes. None is used twice. */
const POOL_SIZE = 4096
let pool = Buffer.alloc(0)
let used = 0

function randomByte(): number {
  if (used === pool.length) {
    pool = randomBytes(POOL_SIZE)
    used = 0
  }
  return pool[used++]!
}

/**
 * `length` base62 characters from the CSPRNG, without bias: bytes past the last whole multiple of 62 are thrown away.
 * 22 characters carry 130 bits.
 */
export function randomBase62(length: number): string {
  let text = ''
  while (text.length < length) {
    const byte = randomByte()
    if (byte < 248) text += BASE62[byte % 62]
  }
  return text
}

/** A number in base62, most significant digit first, zero-padded to `length`. */
export function toBase62(value: number, length: number): string {
  let text = ''
  for (let rest = value; text.length < length; rest = Math.floor(rest / 62)) text = BASE62[rest % 62] + text
  return text
}

/** An id of a resource. At least 128 bits, since an unlisted agent's id is its only lock (contract.md section 1). */
export const newId = (): string => randomBase62(22)

/**
 * An id of what comes in great numbers, as a run's rows do: the time first (ms, 9 digits of base 36), so that those of one
 * moment lie beside each other in every index that has them, and few of its pages are written for many of them. Behind
 * it the 22 characters of {@link newId}.
 */
export const newSortableId = (now: Date): string => now.getTime().toString(36).padStart(9, '0') + randomBase62(22)

/** `task-<ms>-<random>` or `exec-<ms>-<random>` (service.md, "Task" and "Execution"). */
export const newTimedId = (prefix: 'task' | 'exec', now: Date): string =>
  `${prefix}-${now.getTime()}-${randomBase62(22)}`

/** Less than the ids that {@link newTimedId} has given since a moment, and greater than those before it. */
export const timedIdsSince = (prefix: 'task' | 'exec', moment: Date): string =>
  `${prefix}-${String(Math.max(0, moment.getTime())).padStart(13, '0')}`
