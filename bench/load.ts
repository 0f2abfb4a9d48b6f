import { fileURLToPath } from 'node:url'
import { cpuTimeOf, type Program, runToEnd } from './processes.ts'

const AUTOCANNON = fileURLToPath(import.meta.resolve('autocannon'))
/** Requests in flight. */
const CONNECTIONS = 16

export type Target = {
  program: Program
  path: string
  method?: 'GET' | 'POST'
  headers?: Record<string, string>
  /** `[<id>]` in it is replaced by a unique id per request. */
  body?: unknown
}

export type Throughput = {
  /** Requests per second. */
  rate: number
  requests: number
  /** Processor time of the server per request (µs); null if unknown. */
  cpu: number | null
}

/** Loads one path for a number of seconds, from its own process. Throws if any answer failed. */
export async function load(target: Target, seconds: number): Promise<Throughput> {
  const { program, path, method = 'GET', headers = {}, body } = target
  const args = ['-j', '-n', '-c', String(CONNECTIONS), '-d', String(seconds), '-m', method]
  for (const [name, value] of Object.entries(headers)) args.push('-H', `${name}=${value}`)
  if (body !== undefined) args.push('-b', JSON.stringify(body))
  if (args.at(-1)?.includes('[<id>]')) args.push('-I')
  const before = cpuTimeOf(program.pid)
  const printed = await runToEnd([AUTOCANNON, ...args, program.url + path], (seconds + 20) * 1000)
  const after = cpuTimeOf(program.pid)
  const result = printed as { '2xx': number; non2xx: number; errors: number; duration: number }
  const requests = result['2xx']
  if (!requests || result.non2xx || result.errors) {
    throw new Error(`${method} ${path}: ${result.non2xx} answers were no success, ${result.errors} errors`)
  }
  const cpu = before === null || after === null ? null : ((after - before) * 1000) / requests
  return { rate: requests / result.duration, requests, cpu }
}
