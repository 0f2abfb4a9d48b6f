import { enableCompileCache } from 'node:module'
import { join } from 'node:path'

// A third of the time to start is compiling. In a folder that only whoever installs can write to: what it holds is run.
// No TypeScript here: what Node strips types with is 20 MB, and is loaded only for what is not kept compiled.
enableCompileCache(join(import.meta.dirname, '../node_modules/.cache/muster'))
