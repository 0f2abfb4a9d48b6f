import { once } from 'node:events'
import type { Profiler } from 'node:inspector'
import type { Lab, Service } from './lab.ts'
import { load } from './load.ts'
import type { Program } from './processes.ts'
import { populate, runAgentRequest } from './rows/requests.ts'

/** The processor time of one request by part, largest first (µs). */
export type Profile = { name: string; micros: number; parts: [part: string, micros: number][] }

/** Profiles the service under load, request by request. */
export async function profile(lab: Lab, seconds: number): Promise<Profile[]> {
  const [offline, online] = [await start(lab), await start(lab, await lab.model(20, 0))]
  return [
    await profileOne(offline, 'get', seconds),
    await profileOne(offline, 'list', seconds),
    await profileOne(offline, 'execute', seconds),
    await profileOne(offline, 'mcp', seconds),
    { ...(await profileOne(online, 'execute', seconds)), name: 'runs' },
  ]
}

/** A service that can be profiled, with its requests. */
async function start(lab: Lab, model?: Program) {
  const nodeArgs = ['--import', import.meta.resolve('./profiler.ts')]
  const env = model && { env: { OPENAI_BASE_URL: model.url } }
  const service = await lab.service(lab.folder(), { nodeArgs, ipc: true, ...env })
  const workloads = await populate(service)
  const mcp = runAgentRequest(workloads.execute.path.split('/')[4] ?? '')
  return { service, workloads: { ...workloads, mcp: { ...mcp, headers: { ...service.headers, ...mcp.headers } } } }
}

async function profileOne(
  { service, workloads }: Awaited<ReturnType<typeof start>>,
  name: 'get' | 'list' | 'execute' | 'mcp',
  seconds: number,
): Promise<Profile> {
  const target = { ...workloads[name], program: service }
  await load(target, 2)
  await say(service, 'start')
  const { requests } = await load(target, seconds)
  const taken = (await say(service, 'stop')) as Profiler.Profile
  const parts = [...aggregate(taken)]
    .map(([part, micros]): [string, number] => [part, micros / requests])
    .sort(([, a], [, b]) => b - a)
  return { name, micros: parts.reduce((sum, [, micros]) => sum + micros, 0), parts }
}

async function say(service: Service, word: 'start' | 'stop'): Promise<unknown> {
  const answer = once(service.process, 'message', { signal: AbortSignal.timeout(20_000) })
  service.process.send(word)
  return (await answer)[0]
}

/** Sums microseconds by part. Time in functions without a file (natives, builtins) belongs to their callers. */
function aggregate({ nodes, samples = [], timeDeltas = [] }: Profiler.Profile): Map<string, number> {
  const parents = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id] as const)))
  const byId = new Map(nodes.map((node) => [node.id, node]))
  const known = new Map<number, string | null>()

  function partOf(id: number): string | null {
    const cached = known.get(id)
    if (cached !== undefined) return cached
    const { functionName, url } = byId.get(id)!.callFrame
    const parent = parents.get(id)
    const part = partByName(functionName, url) ?? (parent === undefined ? 'node: other' : partOf(parent))
    known.set(id, part)
    return part
  }

  const total = new Map<string, number>()
  for (const [index, id] of samples.entries()) {
    const part = partOf(id) ?? 'node: other'
    if (part !== 'idle') total.set(part, (total.get(part) ?? 0) + (timeDeltas[index] ?? 0))
  }
  return total
}

const PARTS: readonly (readonly [RegExp, string])[] = [
  [/^wasm:/, 'Prisma, query compiler (wasm)'],
  [/node_modules\/@prisma\/|prisma\/generated\//, 'Prisma, client'],
  [/node_modules\/better-sqlite3\/|src\/db\/sqlite/, 'SQLite, statements'],
  [/\/src\/(.+)$/, 'Muster'],
  [/node_modules\/(@ai-sdk\/|eventsource-parser)/, 'AI SDK'],
  [/node_modules\/((?:@[^/]+\/)?[^/]+)\//, '$1'],
  [/^node:internal\/deps\/undici/, 'node: fetch'],
  [/^node:internal\/webstreams/, 'node: web streams'],
  [/^node:(_http|internal\/http|net|internal\/net|_tls|dgram)|http_/, 'node:http'],
  [
    /^node:(internal\/(streams|stream_base)|stream|events|buffer|internal\/(event|buffer|abort))/,
    'node: streams, events',
  ],
  [/^node:internal\/(crypto|hash)|^node:crypto/, 'node: crypto'],
  [/^node:/, 'node: other'],
]

function partByName(functionName: string, url: string): string | null {
  if (functionName === '(garbage collector)') return 'garbage collection'
  if (functionName === '(idle)') return 'idle'
  if (functionName === '(program)') return 'native, system calls'
  if (functionName === 'exec' && url.includes('/better-sqlite3/')) return 'SQLite, begin and commit'
  if (url === '') return functionName === 'parse' || functionName === 'stringify' ? 'JSON' : null
  for (const [pattern, part] of PARTS) {
    const found = pattern.exec(url)
    if (found) return part.replace('$1', found[1] ?? '')
  }
  return 'other'
}
