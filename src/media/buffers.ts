import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Number of passed bytes after which their buffers are collected. */
const PORTION = 8 * 1024 * 1024

let passed = 0
let collect: ((options: { type: 'minor' }) => void) | undefined

/**
 * Counts the bytes that pass through a stream and collects garbage regularly. V8 sees only the small wrapper objects:
 * it would let 64 MiB of dead buffers pile up and then scan its whole heap, many times in a large upload. A collection
 * of the young generation takes a millisecond.
 */
export function countPassed(bytes: number): void {
  passed += bytes
  if (passed < PORTION) return
  passed = 0
  if (!collect) {
    setFlagsFromString('--expose-gc')
    collect = runInNewContext('gc') as NonNullable<typeof collect>
  }
  collect({ type: 'minor' })
}
