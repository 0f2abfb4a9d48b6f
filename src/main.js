import './compile-cache.js'

// Imported after the cache is enabled, so that compiled code is stored.
const { serve } = await import('./serve.ts')
await serve()
