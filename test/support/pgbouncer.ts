import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { createFolder } from './folder.ts'
import { freePort } from './free-port.ts'
import { unprivilegedUser } from './postgres.ts'

/** Debian installs it where only administrators look. */
const PATH = `${process.env.PATH}:/usr/sbin`

/** Whether the program `pgbouncer` is installed. */
export const hasPgbouncer = spawnSync('pgbouncer', ['--version'], { env: { PATH } }).status === 0

export type Pgbouncer = AsyncDisposable & {
  /**
   * Returns the URL of the database through the pooler, which lends connections by session, transaction or statement.
   */
  by: (mode: (typeof MODES)[number]) => string
}

const MODES = ['session', 'transaction', 'statement'] as const

/** Starts PgBouncer on loopback before a database that trusts its user, with few connections, for a number of clients. */
export async function startPgbouncer(url: string, clients = 100): Promise<Pgbouncer> {
  await using cleanup = new AsyncDisposableStack()
  const folder = cleanup.use(await createFolder())
  const { hostname, port: target, username, pathname } = new URL(url)
  const port = await freePort()
  const databases = MODES.map(
    (mode) => `${mode} = host=${hostname} port=${target} dbname=${pathname.slice(1)} pool_mode=${mode}`,
  )
  const file = join(folder.path, 'pgbouncer.ini')
  const ini = `[databases]
${databases.join('\n')}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${join(folder.path, 'users.txt')}
default_pool_size = 4
max_client_conn = ${clients}
`
  await writeFile(file, ini)
  await writeFile(join(folder.path, 'users.txt'), `"${username}" ""\n`)
  await chmod(folder.path, 0o755)
  // It refuses to run as root.
  const child = spawn('pgbouncer', [file], {
    ...(await unprivilegedUser()),
    env: { PATH },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  cleanup.defer(async () => {
    child.kill('SIGKILL')
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  })
  const output: string[] = []
  for await (const line of createInterface(child.stderr)) {
    output.push(line)
    if (line.includes('process up')) break
  }
  child.stderr.resume()
  if (!output.at(-1)?.includes('process up')) throw new Error(`PgBouncer did not start:\n${output.join('\n')}`)
  const owned = cleanup.move()
  return {
    by: (mode) => Object.assign(new URL(url), { host: `127.0.0.1:${port}`, pathname: `/${mode}` }).href,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}
