import '../compile-cache.js'

process.umask(0o077)
// Imported after the cache is enabled, so that compiled code is stored.
const { runAdmin } = await import('./run.ts')
const { code, out, err } = await runAdmin(process.argv.slice(2), process.env)
process.exitCode = code
if (out) {
  // A list in a file on a full disk would otherwise be cut without a word. A reader that has closed its end wants no more.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return
    console.error(`The command succeeded, but its output cannot be written: ${error.message}`)
    process.exitCode = 1
  })
  process.stdout.write(`${out}\n`)
}
if (err) console.error(err)
