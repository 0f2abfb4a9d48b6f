/** Runs the scripts `check:…` of package.json at once. Prints the output of each when it ends. Exits with 1 if one fails. */
import { exec } from 'node:child_process'
import packageJson from '../package.json' with { type: 'json' }

const MAX_OUTPUT = 64 * 2 ** 20

const check = (name: string): Promise<void> =>
  new Promise((resolve) => {
    exec(`npm run -s ${name}`, { maxBuffer: MAX_OUTPUT }, (error, out, err) => {
      process.stdout.write(out)
      process.stderr.write(err)
      if (error) {
        console.error(`npm run ${name} failed`)
        process.exitCode = 1
      }
      resolve()
    })
  })

const names = Object.keys(packageJson.scripts).filter((name) => name.startsWith('check:'))
await Promise.all(names.map(check))
