import { execFile, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { connect, createServer, Server } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import Sqlite from 'better-sqlite3'
import { afterAll, beforeAll, describe, expect, inject, test, vi } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { createLog } from '../../src/lib/log.ts'
import { newToken } from '../../src/lib/token.ts'
import { explain } from '../../src/serve.ts'
import { readSettings } from '../../src/settings.ts'
import { type Service, startService } from '../../src/start.ts'
import { createFolder } from '../support/folder.ts'
import { listen } from '../support/listen.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { hasPostgres, shareEmptyDatabase } from '../support/postgres-shared.ts'
import { runProgram, type ServerProcess, spawnServer } from '../support/process.ts'
import { request } from '../support/rest.ts'

const TOKEN = /mst_[0-9A-Za-z]{36}/
const firstToken = ({ out }: ServerProcess) => TOKEN.exec(out)?.[0] ?? ''
const agent = { name: 'Ada', systemPrompt: 'You are Ada.' }
const key = (byte: number) => Buffer.alloc(32, byte).toString('base64')

/** Runs the program, which must refuse to start. Returns its output. */
async function refusalOfProcess(cwd: string, env: Record<string, string>): Promise<string> {
  const { code, out, err } = await runProgram('src/main.js', [], cwd, { PORT: '0', ...env })
  expect(code).toBe(1)
  expect(out).not.toContain('ready')
  expect(err).not.toMatch(/^\s+at /m)
  return err
}

/** Starts the service in this process as the program does. Returns the line with which the program would refuse. */
async function refusal(cwd: string, env: Record<string, string>): Promise<string> {
  try {
    await using _ = await start(cwd, env)
  } catch (error) {
    const line = explain(error, env)
    expect(line).toBeTypeOf('string')
    return `${line}\n`
  }
  throw new Error('The service started')
}

/** Starts the service in this process, in the folder that the program would use. */
async function start(cwd: string, env: Record<string, string> = {}): Promise<Service & AsyncDisposable> {
  const settings = readSettings({ PORT: '0', DATA_DIR: join(cwd, 'data'), ...env })
  const service = await startService(settings, createLog('silent'))
  return { ...service, [Symbol.asyncDispose]: service.stop }
}

// One after the other on one process, which the later start restarts.
describe('a new installation', () => {
  let folder: Awaited<ReturnType<typeof createFolder>>
  let model: ModelServer
  let server: ServerProcess
  let token: string

  const launch = () => spawnServer(folder.path, { OPENAI_BASE_URL: model.baseUrl, LEASE_DURATION: '1.5' })

  beforeAll(async () => {
    folder = await createFolder()
    model = await startModelServer()
    server = await launch()
    token = firstToken(server)
  })

  afterAll(async () => {
    await server?.[Symbol.asyncDispose]()
    await model?.close()
    await folder?.[Symbol.asyncDispose]()
  })

  test('prints its addresses, and the token once, with a working curl command', async () => {
    for (const path of ['/api/v1', '/api/docs', '/graphql', '/trpc']) expect(server.out).toContain(server.url + path)
    expect(server.out.match(new RegExp(TOKEN, 'g'))).toHaveLength(2)
    const curl = /^ {2}curl [\s\S]*?[^\\]\n/m.exec(server.out)?.[0] ?? ''
    const pasted = await runShell(curl)
    expect(JSON.parse(pasted)).toMatchObject({ success: true, name: 'Ada', status: 'active' })
  })

  test('answers /healthz, /readyz and /api/health without authentication', async () => {
    for (const path of ['/healthz', '/readyz', '/api/health']) {
      const response = await fetch(server.url + path)
      expect([response.status, response.headers.get('content-type')]).toEqual([200, 'application/json; charset=utf-8'])
    }
  })

  test('is not disturbed by a second server on its database, which refuses to start', async () => {
    const message = await refusal(folder.path, {})
    expect(message).toContain(`Another Muster server (pid ${server.child.pid}) uses ${join(folder.path, 'data')}`)
    expect((await call(server, token)).status).toBe(200)
  })

  test('obeys the command line beside it, which creates and ends organizations, users and tokens', async () => {
    const run = (...args: string[]) => admin(folder.path, ...args)
    const { organization } = await run('org', 'create', 'Acme Works')
    expect(organization).toEqual({ id: expect.any(String), name: 'Acme Works', slug: 'acme-works' })
    const { user, role } = await run('user', 'add', 'ada@example.com', '--org', 'acme-works', '--role', 'admin')
    expect({ user, role }).toEqual({ user: { id: expect.any(String), email: 'ada@example.com' }, role: 'admin' })
    const who = ['--user', 'ada@example.com', '--org', 'acme-works', '--name', 'ci']
    const { id, token: issued, expiresAt } = await run('token', 'create', ...who)
    expect([issued, expiresAt]).toEqual([expect.stringMatching(TOKEN), null])
    const created = await request({ url: server.url, token: issued }, 'POST', '/api/v1/agents', { body: agent })
    expect(created.body).toMatchObject({ success: true, agent: { organizationId: organization.id, userId: user.id } })
    await run('token', 'revoke', id)
    await expect.poll(async () => (await call(server, issued)).status).toBe(401)
    const { token: second } = await run('token', 'create', ...who, '--scope', 'agents:read')
    expect((await call(server, second)).status).toBe(200)
    await run('user', 'add', 'eve@example.com', '--org', 'acme-works', '--role', 'owner')
    await run('user', 'remove', 'ada@example.com', '--org', 'acme-works')
    await expect.poll(async () => (await call(server, second)).status).toBe(403)
  })

  test("cancels a removed user's runs, down to the model's connection", async () => {
    model.fallback = { tokens: ['one '], end: 'hang' }
    const { body } = await request({ url: server.url, token }, 'POST', '/api/v1/agents', { body: agent })
    await admin(folder.path, 'user', 'add', 'ada@example.com', '--org', 'default', '--role', 'member')
    const who = ['--user', 'ada@example.com', '--org', 'default', '--name', 'ada']
    const { token: removed } = await admin(folder.path, 'token', 'create', ...who)
    const input = { message: 'Hello', background: true }
    const as = { url: server.url, token: removed }
    const run = await request(as, 'POST', `/api/v1/agents/${body.id}/execute`, { body: input })
    const { aborted } = await model.request(0)
    const waiting = await request(as, 'POST', `/api/v1/agents/${body.id}/execute`, {
      body: { ...input, sessionId: run.body.sessionId },
    })
    expect(waiting.body.status).toBe('pending')
    expect(await admin(folder.path, 'user', 'remove', 'ada@example.com', '--org', 'default')).toMatchObject({
      removed: true,
      runs: 2,
    })
    await aborted
    for (const { body } of [run, waiting]) {
      const path = `/api/v1/executions/${body.executionId}`
      const status = async () =>
        (await request({ url: server.url, token }, 'GET', path)).body.execution.status as string
      await expect.poll(status).toBe('cancelled')
    }
    expect(model.requests).toHaveLength(1)
  })

  test('prints no token at a later start, and the first one still works', async () => {
    expect((await server.stop()).code).toBe(0)
    server = await launch()
    expect(server.out).not.toMatch(/mst_|curl/)
    expect((await call(server, token)).status).toBe(200)
  })

  test('has a key file that only its owner can read, and refuses a start with another key', async () => {
    const { mode } = await stat(join(folder.path, 'data', 'encryption.key'))
    expect(mode & 0o777).toBe(0o600)
    await server.stop()
    expect(await refusal(folder.path, { ENCRYPTION_KEY: key(1) })).toContain('not the key that this database')
  })
})

describe('after `npm run compile`', () => {
  let folder: Awaited<ReturnType<typeof createFolder>>
  let compiled: { NODE_COMPILE_CACHE: string }

  beforeAll(async () => {
    folder = await createFolder()
    compiled = { NODE_COMPILE_CACHE: join(folder.path, 'compiled') }
    expect(await runProgram('.config/compile.ts', [], folder.path, compiled)).toEqual({ code: 0, out: '', err: '' })
  })

  afterAll(() => folder?.[Symbol.asyncDispose]())

  test.for(hasPostgres ? ['SQLite', 'PostgreSQL'] : ['SQLite'])(
    'the first start on %s and its first run compile no code',
    async (kind) => {
      await using model = await startModelServer()
      const token = newToken('mst')
      const shared = kind === 'PostgreSQL' ? await shareEmptyDatabase() : null
      const database = shared && { DATABASE_URL: shared.url, ENCRYPTION_KEY: key(1) }
      try {
        const provider = model.env
        const env = {
          ...compiled,
          ...database,
          ...provider,
          BOOTSTRAP_TOKEN: token,
          NODE_DEBUG_NATIVE: 'COMPILE_CACHE',
        }
        await using server = await spawnServer(folder.path, env)
        const as = { url: server.url, token }
        const { body } = await request(as, 'POST', '/api/v1/agents', { body: agent })
        const run = await request(as, 'POST', `/api/v1/agents/${body.id}/execute`, { body: { message: 'Hello' } })
        expect(run.status).toBe(200)
        const { err } = await server.stop()
        const anew = [...err.matchAll(/cache for \w+ (\S+) was not initialized/g)].map(([, url]) => url)
        // Apart from the two-line program itself, undici's parser: one text that becomes WebAssembly.
        const unexpected = anew.filter((url) => !/\/src\/main\.js$|\/undici\/.*-wasm\.js$/.test(url ?? ''))
        expect(unexpected).toEqual([])
        // Any file of ours: Node drops lines while its reader is too slow for the pipe.
        expect(err).toMatch(/cache for \w+ \S+\/src\/\S+\.ts was accepted/)
      } finally {
        await shared?.drop()
      }
    },
  )
})

/** Makes a process print the modules that it loads. */
const TELLS_LOADED = `--import data:text/javascript,${encodeURIComponent(`
  import { writeSync } from 'node:fs'
  import { registerHooks } from 'node:module'
  registerHooks({ load(url, context, load) { writeSync(1, 'loaded ' + url + '\\n'); return load(url, context) } })`)}`

describe('a server with the most detailed log', () => {
  const token = newToken('mst')
  let folder: Awaited<ReturnType<typeof createFolder>>
  let server: ServerProcess

  beforeAll(async () => {
    folder = await createFolder()
    const settings = { OPENAI_BASE_URL: 'http://127.0.0.1:9/v1', NODE_OPTIONS: TELLS_LOADED, LOG_LEVEL: 'trace' }
    server = await spawnServer(folder.path, { ...settings, BOOTSTRAP_TOKEN: token })
  })

  afterAll(async () => {
    await server?.[Symbol.asyncDispose]()
    await folder?.[Symbol.asyncDispose]()
  })

  test('loads the modules of the first run before it comes, but after it is ready', async () => {
    await expect.poll(() => server.out).toMatch(/ready at(?=.*chat-completions).*undici/s)
    expect(server.out.match(/chat-completions/g)).toHaveLength(1)
  })

  test('loads no client of Prisma, with its megabytes of source, before a call needs it', () => {
    expect(server.out).toMatch(/loaded \S+\/generated\/sqlite\/internal\/prismaNamespace\.ts/)
    expect(server.out).not.toMatch(/loaded \S+\/generated\/\w+\/(client|internal\/class)\.ts/)
  })

  // Other systems, and old Linux, let fewer connections wait.
  const most = process.platform === 'linux' ? Number(readFileSync('/proc/sys/net/core/somaxconn', 'utf8')) : 0
  test.skipIf(most < 4_096)('lets 1,000 clients connect while its event loop is blocked', async () => {
    const { port } = new URL(server.url)
    let connected = 0
    server.child.kill('SIGSTOP')
    const clients = Array.from({ length: 1_000 }, () => connect(Number(port), '127.0.0.1', () => connected++))
    try {
      await expect.poll(() => connected).toBe(clients.length)
    } finally {
      for (const client of clients) client.destroy()
      server.child.kill('SIGCONT')
    }
  })

  test('makes BOOTSTRAP_TOKEN the first token, and prints no secret', async () => {
    expect((await request({ url: server.url, token }, 'POST', '/api/v1/agents', { body: agent })).status).toBe(200)
    const { out, err } = await server.stop()
    expect(out + err).not.toContain(token.slice(4, 34))
  })
})

test('BOOTSTRAP_TOKEN is stored before a new server listens', async () => {
  await using folder = await createFolder()
  const { listen } = Server.prototype
  let tokens: unknown
  const spy = vi.spyOn(Server.prototype, 'listen').mockImplementation(function (
    this: Server,
    ...args: Parameters<typeof listen>
  ) {
    const file = new Sqlite(join(folder.path, 'data', 'muster.db'), { readonly: true })
    tokens ??= file.prepare('SELECT count(*) AS "count" FROM "Token"').get()
    file.close()
    return listen.apply(this, args)
  })
  try {
    await using _ = await start(folder.path, { BOOTSTRAP_TOKEN: newToken('mst') })
    expect(tokens).toEqual({ count: 1 })
  } finally {
    spy.mockRestore()
  }
})

test.concurrent('a SIGTERM that npm does not pass on stops a server of `npm start`', async () => {
  await using folder = await createFolder()
  // npm ends with its shell, which starts the server as a process of its own.
  const shell = spawn('sh', ['-c', `'${process.execPath}' '${join(import.meta.dirname, '../../src/main.js')}'; exit`], {
    cwd: folder.path,
    env: { PATH: process.env.PATH, PORT: '0', npm_lifecycle_event: 'start' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let out = ''
  shell.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    out += chunk
    if (chunk.includes('Muster is ready')) shell.kill()
  })
  // The server has the other end of the pipe.
  await once(shell, 'close')
  expect(out).toContain('"msg":"stopping"')
})

test.concurrent('the first process of a container obeys SIGTERM while it waits for its database', async ({ skip }) => {
  const inside = ['--user', '--map-root-user', '--pid', '--fork']
  skip(spawnSync('unshare', [...inside, 'true']).status !== 0, 'this machine makes no processes with the number 1')
  await using folder = await createFolder()
  const silent = createServer()
  const url = `postgresql://ada@127.0.0.1:${await listen(silent)}/muster`
  const program = [process.execPath, join(import.meta.dirname, '../../src/main.js')]
  const child = spawn('unshare', [...inside, ...program], {
    cwd: folder.path,
    env: { PATH: process.env.PATH, PORT: '0', DATABASE_URL: url, ENCRYPTION_KEY: key(1) },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const ended = once(child, 'close')
  await once(silent, 'connection')
  process.kill(Number(await readFile(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8')), 'SIGTERM')
  expect(await ended).toEqual([0, null])
  silent.close()
})

test.concurrent('invalid settings stop the start, which names all of them and shows no value', async () => {
  await using folder = await createFolder()
  const bad = {
    PORT: 'sesame-1',
    LOG_LEVEL: 'sesame-2',
    PUBLIC_URL: 'sesame-3',
    OPENAI_BASE_URL: 'ftp://sesame-4',
    ENCRYPTION_KEY: 'sesame-5',
    TRUST_PROXY: 'sesame-6',
    EXECUTION_TIMEOUT: 'sesame-7',
    TOKEN_PREFIX: 'SESAME-8',
  }
  const message = await refusalOfProcess(folder.path, { ...bad, BOOTSTRAP_TOKN: 'sesame-9' })
  expect(message).toContain('BOOTSTRAP_TOKN is no setting. Did you mean BOOTSTRAP_TOKEN?')
  expect(message).toMatch(/^Muster cannot start\. Invalid configuration:\n/)
  for (const name of Object.keys(bad)) expect(message).toMatch(new RegExp(`^ +${name}: `, 'm'))
  expect(message).not.toMatch(/sesame/i)
  expect(await readdir(folder.path)).toEqual([])
})

test.concurrent('an invalid BOOTSTRAP_TOKEN stops the start, and stays hidden', async () => {
  await using folder = await createFolder()
  const message = await refusal(folder.path, { BOOTSTRAP_TOKEN: `${newToken('mst').slice(0, -1)}-` })
  expect(message).toContain('BOOTSTRAP_TOKEN')
  expect(message).not.toMatch(/mst_\w{6}/)
})

test.concurrent('a port in use is reported in one line', async () => {
  await using folder = await createFolder()
  const other = createServer().listen(0, '127.0.0.1')
  await once(other, 'listening')
  const { port } = other.address() as { port: number }
  for (const name of ['PORT', 'METRICS_PORT']) {
    const start = name === 'PORT' ? refusalOfProcess : refusal
    const message = await start(folder.path, { PORT: '0', [name]: String(port) })
    expect(message).toMatch(new RegExp(`^Muster cannot start.*${port}\\. Set ${name} to another\\.\n$`))
  }
  other.close()
})

test.concurrent('a first start that cannot listen stores no token, because none was shown', async () => {
  await using folder = await createFolder()
  const other = createServer().listen(0, '127.0.0.1')
  await once(other, 'listening')
  await refusal(folder.path, { PORT: String((other.address() as { port: number }).port) })
  other.close()
  await using service = await start(folder.path)
  expect(service.firstToken).toMatch(TOKEN)
})

test.concurrent('a connection on which a client waits is probed by TCP, so that routers remember it', async ({
  skip,
  expect,
}) => {
  skip(process.platform !== 'linux', 'only Linux lists its timers')
  await using folder = await createFolder()
  await using service = await start(folder.path)
  const { port } = new URL(service.url)
  const socket = connect(Number(port), '127.0.0.1')
  await once(socket, 'connect')
  // Timer 2 of a line is the one of the probes.
  const end = (number: number) => `0100007F:${number.toString(16).toUpperCase().padStart(4, '0')}`
  const line = `${end(Number(port))} ${end(socket.localPort!)} 01 \\S+ 02:`
  await expect.poll(() => readFile('/proc/net/tcp', 'utf8')).toMatch(new RegExp(line))
  socket.destroy()
})

test.concurrent('a database without write permission is refused, by name', async ({ skip }) => {
  skip(process.getuid?.() !== 0, 'only root can be somebody else')
  await using folder = await createFolder()
  const asNobody = (script: string) => runProgram(script, [], folder.path, { PORT: '0' }, 65534)
  await (await start(folder.path)).stop()
  skip((await asNobody('.config/guard.js')).code !== 0, 'others may not read this checkout')
  const file = join(folder.path, 'data', 'muster.db')
  await runShell(`cd ${folder.path}; chmod 755 .; chown -R 65534:65534 data; chown 0:0 ${file}; chmod 644 ${file}`)
  const { code, err } = await asNobody('src/main.js')
  const reason = `EACCES: permission denied, access '${file}'`
  const remedy = 'Give the user that runs the server write access to the file and its folder'
  expect(code).toBe(1)
  expect(err).toContain(`The database ${file} cannot be used: ${reason}. ${remedy}`)
})

test.concurrent('a failing start takes over no run of another process', async () => {
  await using folder = await createFolder()
  await using model = await startModelServer()
  const env = { OPENAI_BASE_URL: model.baseUrl, DEFAULT_MODEL: 'compatible/test-model' }
  await using server = await spawnServer(folder.path, env)
  const as = { url: server.url, token: firstToken(server) }
  const { id } = (await request(as, 'POST', '/api/v1/agents', { body: agent })).body
  model.script({ end: 'hang' })
  const body = { message: 'Wait', background: true }
  expect((await request(as, 'POST', `/api/v1/agents/${id}/execute`, { body })).status).toBe(200)
  await server.stop('SIGKILL')
  await using other = createServer().listen(0, '127.0.0.1')
  await once(other, 'listening')
  const { port } = other.address() as { port: number }
  expect(await refusal(folder.path, { ...env, PORT: String(port) })).toContain('Set PORT to another')
  const database = new Sqlite(join(folder.path, 'data', 'muster.db'), { readonly: true })
  using _ = { [Symbol.dispose]: () => database.close() }
  const left = database.prepare('SELECT "status", "attempt" FROM "Execution"').all()
  expect(left).toEqual([{ status: 'running', attempt: 1 }])
})

test.concurrent.each([
  ['an address that is not of this machine', { HOST: '192.0.2.1' }, /192\.0\.2\.1.* Set HOST to/],
  ['a host that has no address', { HOST: 'nowhere.invalid' }, /nowhere\.invalid.* Set HOST to/],
  ['a folder that cannot be written', { DATA_DIR: '/sys' }, /EACCES.*\/sys\/muster\.db.*DATA_DIR/],
  ['a folder that cannot be made', { DATA_DIR: '/dev/null/data' }, /\/dev\/null\/data.*DATA_DIR/],
  ['a folder below one that holds none', { DATA_DIR: '/proc/data' }, /\/proc\/data.*DATA_DIR/],
  ['a folder for media that cannot be made', { MEDIA_DIR: '/proc/media' }, /\/proc\/media.*MEDIA_DIR/],
  [
    'a database that does not answer',
    { DATABASE_URL: 'postgresql://ada:sesame@127.0.0.1:1/muster', ENCRYPTION_KEY: key(1) },
    /^(?!.*sesame).*ECONNREFUSED.* correct DATABASE_URL/,
  ],
  [
    'a database that answers on none of its addresses',
    { DATABASE_URL: 'postgresql://ada:sesame@localhost:1/muster', ENCRYPTION_KEY: key(1) },
    /^(?!.*sesame).*ECONNREFUSED.* correct DATABASE_URL/,
  ],
])('%s is reported in one line', async (_, env, message) => {
  await using folder = await createFolder()
  const output = await refusal(folder.path, env)
  expect(output).toMatch(/^Muster cannot start\..*\n$/)
  expect(output).toMatch(message)
})

test.concurrent('an SQLite file that is a folder, or has another format, is reported in one line', async () => {
  await using folder = await createFolder()
  const file = join(folder.path, 'muster.db')
  expect(await refusal(folder.path, { DATABASE_URL: `file:${folder.path}` })).toMatch(
    /^.*muster-test-\w+ is not a regular file.*\n$/,
  )
  await writeFile(file, 'Not what it should be.')
  const output = await refusal(folder.path, { DATABASE_URL: `file:${file}` })
  expect(output).toBe(`Muster cannot start. The database ${file} cannot be used: file is not a database\n`)
  await rm(`${file}.lock`)
  await mkdir(`${file}.lock`)
  expect(await refusal(folder.path, { DATABASE_URL: `file:${file}` })).toMatch(/^.*muster\.db cannot be locked: .*\n$/)
})

const READ_ONLY = '/sys/kernel/uevent_seqnum'

test.runIf(existsSync(READ_ONLY))('a database file without write access is refused with the remedy', async () => {
  await using folder = await createFolder()
  const remedy = /^.* Give the user that runs the server write access .*\n$/
  expect(await refusal(folder.path, { DATABASE_URL: `file:${READ_ONLY}` })).toMatch(remedy)
})

test.runIf(hasPostgres)('a PostgreSQL without the database or the role is reported in one line', async () => {
  await using folder = await createFolder()
  const shared = inject('postgres') ?? ''
  const refused = (change: Partial<URL>) => {
    const DATABASE_URL = Object.assign(new URL(shared), { password: 'sesame' }, change).href
    return refusal(folder.path, { DATABASE_URL, ENCRYPTION_KEY: key(1) })
  }
  const { host } = new URL(shared)
  const start = `Muster cannot start. The database ${host} cannot be used: `
  const remedy = 'Create it, or correct its name in DATABASE_URL: postgresql://user:password@host/database'
  expect(await refused({ pathname: '/nowhere' })).toBe(`${start}database "nowhere" does not exist. ${remedy}\n`)
  expect(await refused({ username: 'nobody' })).toBe(`${start}role "nobody" does not exist\n`)
})

/** Runs the operator's command line beside a server in a folder. Returns its output. */
async function admin(folder: string, ...argv: string[]): Promise<any> {
  const { code, out, err } = await runAdmin([...argv, '--json'], { DATA_DIR: join(folder, 'data') })
  expect([code, err]).toEqual([0, ''])
  return JSON.parse(out)
}

const call = (server: ServerProcess, token: string) => request({ url: server.url, token }, 'GET', '/api/v1/agents')

const runShell = async (command: string) => (await promisify(execFile)('bash', ['--norc', '-c', command])).stdout
