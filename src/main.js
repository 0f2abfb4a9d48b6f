import './compile-cache.js'

// Not before there is somewhere to keep what is compiled.
const { serve } = await import('./serve.ts')
await serve()
