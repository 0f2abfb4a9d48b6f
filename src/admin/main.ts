import '../compile-cache.js'

process.umask(0o077)
// Imported after the cache is enabled, so that compiled code is stored.
const { runAdmin } = await import('./run.ts')
const { code, out, err } = await runAdmin(process.argv.slice(2), process.env)
if (out) console.log(out)
if (err) console.error(err)
process.exitCode = code
