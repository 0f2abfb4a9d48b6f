import { enableCompileCache } from 'node:module'
import { join } from 'node:path'

// A third of the time to start is compiling. In a folder that only whoever installs can write to: what it holds is run.
enableCompileCache(join(import.meta.dirname, '../node_modules/.cache/muster'))
const { serve } = await import('./serve.ts')
await serve()
