import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** How many bytes may pass before what held them is collected. */
const PORTION = 8 * 1024 * 1024

let passed = 0
let collect: ((options: { type: 'minor' }) => void) | undefined

/**
 * To be told of the bytes that a stream lets pass. V8 sees the small objects only, not the buffers behind them: left to
 * itself it lets 64 MiB of dead ones pile up and then goes through its whole heap, many times in a large upload. They
 * are all young, and a collection of the young ones takes a millisecond.
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
