// Loaded before the service (`node --expose-gc --import`): prints the used memory after a collection at SIGUSR2.
import { setImmediate as turn } from 'node:timers/promises'

process.on('SIGUSR2', async () => {
  for (let round = 0; round < 3; round++) {
    globalThis.gc?.()
    await turn()
  }
  const { heapUsed, external } = process.memoryUsage()
  console.log(`holds ${heapUsed + external} bytes`)
})
