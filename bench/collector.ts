// Loaded before a server (`node --expose-gc --import`): tells its parent what memory is left after a collection (bytes).
import { setImmediate as turn } from 'node:timers/promises'

process.on('message', async () => {
  for (let round = 0; round < 3; round++) {
    // What has been freed goes back to the system.
    await globalThis.gc?.({ type: 'major', execution: 'async', flavor: 'last-resort' })
    await turn()
  }
  process.send?.(process.memoryUsage.rss())
})
