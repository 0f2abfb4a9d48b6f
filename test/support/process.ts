import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'

const ROOT = join(import.meta.dirname, '..', '..')

type Env = Record<string, string>

export type Finished = { code: number | null; out: string; err: string }

export type ServerProcess = AsyncDisposable & {
  child: ChildProcess
  url: string
  /** All output so far. */
  readonly out: string
  /** Sends a signal and waits for the end. */
  stop: (signal?: NodeJS.Signals) => Promise<Finished>
}

/** Excludes the developer's own environment, such as keys of providers and settings. */
const environment = (env: Env): Env => ({ PATH: process.env.PATH ?? '', NO_COLOR: '1', ...env })

const launch = (script: string, args: readonly string[], cwd: string, env: Env, uid?: number) =>
  spawn(process.execPath, [join(ROOT, script), ...args], {
    cwd,
    ...(uid !== undefined && { uid, gid: uid }),
    env: environment(env),
    stdio: ['ignore', 'pipe', 'pipe'],
  })

async function finish(child: ChildProcess, out: Promise<string>, err: Promise<string>): Promise<Finished> {
  const closed = new Promise<number | null>((resolve, reject) => child.on('close', resolve).on('error', reject))
  return { code: await closed, out: await out, err: await err }
}

/** Runs one of the project's programs to its end, in a folder, with its own environment, optionally as another user. */
export async function runProgram(
  script: string,
  args: readonly string[],
  cwd: string,
  env: Env = {},
  uid?: number,
): Promise<Finished> {
  const child = launch(script, args, cwd, env, uid)
  return finish(child, text(child.stdout), text(child.stderr))
}

/** Starts the real server in its own process, by default on a free port. Resolves when it is ready. */
export async function spawnServer(cwd: string, env: Env = {}): Promise<ServerProcess> {
  const child = launch('src/main.js', [], cwd, { PORT: '0', LOG_LEVEL: 'warn', ...env })
  let out = ''
  const err = text(child.stderr)
  const ready = Promise.withResolvers<string>()
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    out += chunk
    // The greeting is printed at once, as indented and empty lines. Log lines may stand before and after it.
    const [, url] = /Muster is ready at (\S+)\n(?:(?: {2}.*)?\n)*\n/.exec(out) ?? []
    if (url) ready.resolve(url)
  })
  const ended = finish(child, Promise.resolve(''), err).then((end) => ({ ...end, out }))
  void ended.then(({ code, err }) => ready.reject(new Error(`The server ended with ${code}:\n${out}${err}`)))
  const url = await ready.promise
  const stop = (signal: NodeJS.Signals = 'SIGTERM') => {
    child.kill(signal)
    return ended
  }
  return {
    child,
    url,
    get out() {
      return out
    },
    stop,
    async [Symbol.asyncDispose]() {
      if (child.exitCode === null && child.signalCode === null) await stop('SIGKILL')
    },
  }
}
