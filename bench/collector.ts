// Loaded before a server (`node --expose-gc --import`): sends its parent the used memory after a collection (bytes).
import { setImmediate as turn } from 'node:timers/promises'

process.on('message', async () => {
  for (let round = 0; round < 3; round++) {
    // Waits until freed memory has returned to the system.
    await globalThis.gc?.({ type: 'major', execution: 'async', flavor: 'last-resort' })
    await turn()
  }
  process.send?.(process.memoryUsage.rss())
})
