import { enableCompileCache } from 'node:module'
import { join } from 'node:path'

// Saves the compilation, a third of the start-up time. Only the installing user can write to the folder, because its
// contents are executed. This file is JavaScript, because Node loads its 20 MB type stripper only for uncached code.
enableCompileCache(join(import.meta.dirname, '../node_modules/.cache/muster'))
