import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

const ROOT = join(import.meta.dirname, '..')
const START_PATIENCE = 30_000
const STOP_PATIENCE = 10_000
/** Interval at which a program is probed for an answer. */
const POLL = 5

/** A process of this run, with its address. */
export type Program = { url: string; pid: number; process: ChildProcess; stop: () => Promise<void> }

export type StartOptions = {
  env?: Record<string, string>
  /** Whether to open a channel for messages. */
  ipc?: boolean
  /** Time limit for printing its address (ms). */
  patience?: number
  /** Its folder, unless it is this repository. */
  cwd?: string
}

/** Processes of this run that have not ended. */
const running = new Set<ChildProcess>()

function track(child: ChildProcess): void {
  running.add(child)
  child.once('exit', () => running.delete(child))
}

/** Ends all processes of this run at once. */
export function killAll(): void {
  for (const child of running) for (const pid of familyOf(child.pid!)) killOne(pid)
}

/**
 * Starts `node <args>` in the background. Resolves when its output matches `pattern`, the address. A program without
 * such an output gets the address that it will listen on.
 */
export async function start(
  args: string[],
  pattern: RegExp | string,
  { env = {}, ipc = false, patience = START_PATIENCE, cwd = ROOT }: StartOptions = {},
): Promise<Program> {
  const child = spawn(process.execPath, args, {
    cwd,
    env: { PATH: process.env.PATH, SystemRoot: process.env.SystemRoot, ...env },
    stdio: ['ignore', 'pipe', 'pipe', ...(ipc ? (['ipc'] as const) : [])],
  })
  track(child)
  const lines: string[] = []
  const address = Promise.withResolvers<string>()
  const failed = (why: string) => address.reject(new Error(`${args.join(' ')} ${why}\n${lines.join('\n')}`))
  const timer = setTimeout(() => failed('did not start in time'), patience)
  child.once('exit', (code) => failed(`ended with ${code}`))
  for (const stream of [child.stdout!, child.stderr!]) {
    createInterface(stream).on('line', (line) => {
      if (lines.push(line) > 50) lines.shift()
      const found = typeof pattern === 'string' ? undefined : pattern.exec(line)?.[1]
      if (found) address.resolve(found)
    })
  }
  if (typeof pattern === 'string') answers(pattern, patience).then(address.resolve, () => {})
  const url = await address.promise.finally(() => clearTimeout(timer))
  return { url, pid: child.pid!, process: child, stop: () => stop(child) }
}

/** Asks until any answer arrives. */
async function answers(url: string, patience: number): Promise<string> {
  for (const until = Date.now() + patience; Date.now() < until; await sleep(POLL)) {
    try {
      await (await fetch(url)).arrayBuffer()
      return url
    } catch {
      // Not listening yet.
    }
  }
  throw new Error(`${url} does not answer`)
}

async function stop(child: ChildProcess): Promise<void> {
  if (!running.has(child)) return
  const [, ...others] = familyOf(child.pid!)
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_PATIENCE)
  await ended
  clearTimeout(timer)
  for (const pid of others) killOne(pid)
}

/** Lists a process and its descendants. Linux only; elsewhere only itself. */
function familyOf(pid: number): number[] {
  try {
    const tasks = readdirSync(`/proc/${pid}/task`)
    const lists = tasks.map((task) => readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8'))
    return [pid, ...lists.flatMap((list) => list.match(/[1-9]\d*/g) ?? []).flatMap((child) => familyOf(Number(child)))]
  } catch {
    return [pid]
  }
}

function killOne(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended by itself.
  }
}

/** Runs `node <args>` to its end, with a time limit (ms). Returns its output, a JSON value. */
export function runToEnd(args: string[], patience: number): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const options = { cwd: ROOT, timeout: patience, maxBuffer: 16 * 1024 * 1024 }
    const child = execFile(process.execPath, args, options, (error, stdout) =>
      error ? reject(error) : resolve(JSON.parse(stdout)),
    )
    track(child)
  })
}

/** Memory in use by a process (MiB): its resident set. Linux only, null elsewhere. */
export function memoryOf(pid: number): number | null {
  if (process.platform !== 'linux') return null
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024
}

/** The same for a program of several processes: the largest, which serves. */
export const memoryOfFamily = (pid: number): number =>
  Math.max(...familyOf(pid).map((each) => memoryOf(each) ?? Number.NaN))

/** Processor time that a process has used so far (ms), in steps of 10. Linux only, null elsewhere. */
export function cpuTimeOf(pid: number): number | null {
  if (process.platform !== 'linux') return null
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ')
  return (Number(fields[11]) + Number(fields[12])) * 10
}
