import { randomBytes } from 'node:crypto'

/** The digits of base62, in the order of ASCII. */
export const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

/** Random bytes are requested in bulk, because a call costs more than the bytes. None is used twice. */
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
 * Returns `length` base62 characters from the CSPRNG without bias: bytes past the last whole multiple of 62 are
 * discarded. 22 characters carry 130 bits.
 */
export function randomBase62(length: number): string {
  let text = ''
  while (text.length < length) {
    const byte = randomByte()
    if (byte < 248) text += BASE62[byte % 62]
  }
  return text
}

/** Encodes a number in base62, most significant digit first, zero-padded to `length`. */
export function toBase62(value: number, length: number): string {
  let text = ''
  for (let rest = value; text.length < length; rest = Math.floor(rest / 62)) text = BASE62[rest % 62] + text
  return text
}

/** Decodes a number that {@link toBase62} has encoded. */
export const fromBase62 = (text: string): number =>
  [...text].reduce((value, digit) => value * 62 + BASE62.indexOf(digit), 0)

/** Returns a secret of 256 random bits, for cookies and links. */
export const newSecret = (): string => randomBase62(43)

/**
 * Returns a resource id. It has at least 128 bits, because an unlisted agent is protected only by its id (contract.md
 * section 1).
 */
export const newId = (): string => randomBase62(22)

/**
 * Returns an id for numerous resources, such as the rows of a run: the time (ms, 9 digits of base 36) followed by the
 * 22 characters of {@link newId}. Ids of the same time are adjacent in every index, so that few index pages are
 * written.
 */
export const newSortableId = (now: Date): string => now.getTime().toString(36).padStart(9, '0') + randomBase62(22)

/** Returns `task-<ms>-<random>` or `exec-<ms>-<random>` (service.md, "Task" and "Execution"). */
export const newTimedId = (prefix: 'task' | 'exec', now: Date): string =>
  `${prefix}-${now.getTime()}-${randomBase62(22)}`

/** Returns a lower bound for the ids that {@link newTimedId} has created since a moment. */
export const timedIdsSince = (prefix: 'task' | 'exec', moment: Date): string =>
  `${prefix}-${String(Math.max(0, moment.getTime())).padStart(13, '0')}`
