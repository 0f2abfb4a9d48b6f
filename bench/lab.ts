import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { newToken } from '../src/lib/token.ts'

const ROOT = join(import.meta.dirname, '..')
const BARE = fileURLToPath(import.meta.resolve('./bare.ts'))
const START_PATIENCE = 20_000
const STOP_PATIENCE = 10_000

/** A process that this run started, and where it listens. */
export type Program = { url: string; pid: number; process: ChildProcess; stop: () => Promise<void> }
export type Service = Program & { headers: Record<string, string> }

type StartOptions = {
  env?: Record<string, string>
  /** Whether to open a channel for messages. */
  ipc?: boolean
}

export type Lab = {
  /** A new folder under the temporary one, gone at the end. */
  folder: () => string
  /** `node <args>` in a process of its own, once it has printed what `pattern` finds: its address. */
  start: (args: string[], pattern: RegExp, options?: StartOptions) => Promise<Program>
  /** The real service, on a free port, with its database in `folder`. */
  service: (folder: string, options?: StartOptions & { nodeArgs?: string[] }) => Promise<Service>
  /** The bare node:http server that rows are compared with. */
  bare: (model?: string) => Promise<Program>
  /** The scripted model server: so many tokens in a reply, so many milliseconds before each. Shared by all who ask. */
  model: (tokens: number, delay: number) => Promise<Program>
  /** Kills what still runs, removes every file. */
  close: () => void
}

/** Starts and ends processes, all on loopback. Whatever way this process ends, they and their files go with it. */
export function createLab(): Lab {
  const root = mkdtempSync(join(tmpdir(), 'muster-bench-'))
  const token = newToken('mst')
  const running = new Set<ChildProcess>()
  const models = new Map<string, Promise<Program>>()

  function close(): void {
    for (const child of running) child.kill('SIGKILL')
    rmSync(root, { recursive: true, force: true, maxRetries: 3 })
  }
  process.once('exit', close)

  const lab: Lab = {
    close,
    folder: () => mkdtempSync(join(root, 'data-')),

    async start(args, pattern, { env = {}, ipc = false } = {}) {
      const child = spawn(process.execPath, args, {
        cwd: ROOT,
        env: { PATH: process.env.PATH, SystemRoot: process.env.SystemRoot, ...env },
        stdio: ['ignore', 'pipe', 'pipe', ...(ipc ? (['ipc'] as const) : [])],
      })
      running.add(child)
      child.once('exit', () => running.delete(child))
      const said: string[] = []
      const address = Promise.withResolvers<string>()
      const failed = (why: string) => address.reject(new Error(`${args.join(' ')} ${why}\n${said.join('\n')}`))
      const patience = setTimeout(() => failed('did not start in time'), START_PATIENCE)
      child.once('exit', (code) => failed(`ended with ${code}`))
      for (const stream of [child.stdout!, child.stderr!]) {
        createInterface(stream).on('line', (line) => {
          if (said.push(line) > 50) said.shift()
          const found = pattern.exec(line)?.[1]
          if (found) address.resolve(found)
        })
      }
      const url = await address.promise.finally(() => clearTimeout(patience))
      const stop = async () => {
        if (child.exitCode !== null || child.signalCode !== null) return
        const ended = once(child, 'exit')
        child.kill('SIGTERM')
        const timer = setTimeout(() => child.kill('SIGKILL'), STOP_PATIENCE)
        await ended
        clearTimeout(timer)
      }
      return { url, pid: child.pid!, process: child, stop }
    },

    async service(folder, { env, nodeArgs = [], ipc = false } = {}) {
      const settings = { DATA_DIR: folder, PORT: '0', LOG_LEVEL: 'warn', BOOTSTRAP_TOKEN: token, ...env }
      const program = await lab.start([...nodeArgs, 'src/main.ts'], /ready at (http:\S+)/, { env: settings, ipc })
      return { ...program, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' } }
    },

    bare: (model = '') =>
      lab.start([BARE, '--file', join(lab.folder(), 'bare.db'), '--model', model], /"url":"([^"]+)"/),

    model(tokens, delay) {
      const key = `${tokens} ${delay}`
      const args = ['test/support/model-server.ts', '--tokens', String(tokens), '--delay', String(delay)]
      const started = models.get(key) ?? lab.start(args, /"baseUrl":"([^"]+)"/)
      models.set(key, started)
      return started
    },
  }
  return lab
}

/** Memory in use by a process (MiB): its resident set. Linux only, null elsewhere. */
export function memoryOf(pid: number): number | null {
  if (process.platform !== 'linux') return null
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024
}

/** Processor time that a process has used so far (ms), in steps of 10. Linux only, null elsewhere. */
export function cpuTimeOf(pid: number): number | null {
  if (process.platform !== 'linux') return null
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ')
  return (Number(fields[11]) + Number(fields[12])) * 10
}

/** One JSON request that must succeed; its answer. */
export async function call<Answer>(
  service: { url: string; headers: Record<string, string> },
  method: string,
  path: string,
  body?: unknown,
): Promise<Answer> {
  const response = await fetch(service.url + path, {
    method,
    headers: service.headers,
    signal: AbortSignal.timeout(10_000),
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  const answer = await response.text()
  if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${answer}`)
  return JSON.parse(answer) as Answer
}
