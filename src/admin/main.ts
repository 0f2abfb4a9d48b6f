import { runAdmin } from './run.ts'

process.umask(0o077)
const { code, out, err } = await runAdmin(process.argv.slice(2), process.env)
if (out) console.log(out)
if (err) console.error(err)
process.exitCode = code
