import { afterEach } from 'vitest'
import { forgetScripts } from './model-server.ts'

// A scripted answer that a test leaves would reach the next one. In a test that passes it shows that the model was asked
// less often than expected. Concurrent tests share the scripts.
afterEach(({ task }) => {
  if (task.concurrent) return
  const left = forgetScripts()
  if (left && task.result?.state === 'pass') throw new Error(`No request asked for the last ${left} scripted answers`)
})
