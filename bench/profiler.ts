// Loaded before a profiled service (`node --import`): starts and stops at the parent's messages.
import { Session } from 'node:inspector/promises'

const session = new Session()
session.connect()
await session.post('Profiler.enable')
await session.post('Profiler.setSamplingInterval', { interval: 500 })

process.on('message', async (word) => {
  if (word === 'start') await session.post('Profiler.start')
  const profile = word === 'stop' && (await session.post('Profiler.stop')).profile
  process.send?.(profile || null)
})
