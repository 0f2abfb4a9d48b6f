import { once } from 'node:events'
import type { Server, ServerResponse } from 'node:http'
import type { Logger } from 'pino'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { Db } from '../db/client.ts'
import type { Clock } from '../lib/clock.ts'
import { createServer } from '../lib/net/http.ts'
import { silent, type Telemetry } from './telemetry.ts'

type MetricsDeps = { db: Db; clock: Clock }

const METHODS: ReadonlySet<string> = new Set(['GET', 'POST', 'PATCH', 'PUT', 'DELETE', 'HEAD', 'OPTIONS'])

/**
 * Creates the metrics of docs/guides/monitoring.md. No label has an unbounded number of values: no organizations, no
 * models, and routes instead of paths.
 */
export function createMetrics({ db, clock }: MetricsDeps): { registry: Registry; telemetry: Telemetry } {
  const registry = new Registry()
  const registers = [registry]
  collectDefaultMetrics({ register: registry })
  const requests = new Histogram({
    name: 'muster_http_request_duration_seconds',
    help: 'Duration of requests by route (seconds), without streams',
    labelNames: ['method', 'route', 'status'],
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
    registers,
  })
  const streams = new Counter({
    name: 'muster_http_streams_total',
    help: 'Number of ended event streams by route',
    labelNames: ['route'],
    registers,
  })
  const open = new Set<ServerResponse>()
  new Gauge({
    name: 'muster_http_streams_open',
    help: 'Number of open event streams of this process',
    registers,
    collect() {
      this.set([...open].filter(isStream).length)
    },
  })
  new Gauge({
    name: 'muster_runs',
    help: 'Number of unfinished runs in the database by state, the same on every server',
    labelNames: ['state'],
    registers,
    async collect() {
      const counts = await countRuns(db)
      for (const [state, count] of Object.entries(counts)) this.set({ state }, count)
    },
  })
  new Gauge({
    name: 'muster_oldest_pending_seconds',
    help: 'Waiting time of the oldest run that has not started (seconds), the same on every server',
    registers,
    async collect() {
      const where = { terminalSeq: null, status: 'pending' as const, waitingFor: null, attempt: 0 }
      const select = { createdAt: true }
      const oldest = await db.execution.findFirst({ where, orderBy: { createdAt: 'asc' }, select })
      this.set(oldest ? (clock.now().getTime() - oldest.createdAt.getTime()) / 1000 : 0)
    },
  })
  const ended = new Counter({
    name: 'muster_runs_ended_total',
    help: 'Number of runs that this process ended, by status',
    labelNames: ['status'],
    registers,
  })
  const expiries = new Counter({
    name: 'muster_lease_expiries_total',
    help: 'Number of runs that this process took over after a lease had expired',
    registers,
  })
  const tokens = new Counter({
    name: 'muster_tokens_total',
    help: 'Number of tokens of the runs that this process ended, by provider',
    labelNames: ['provider', 'direction'],
    registers,
  })
  for (const status of ['completed', 'failed', 'cancelled']) ended.inc({ status }, 0)

  return {
    registry,
    telemetry: {
      ...silent,
      request(res, given, route) {
        const started = performance.now()
        const method = METHODS.has(given) ? given : 'other'
        open.add(res)
        res.on('close', () => {
          open.delete(res)
          if (isStream(res)) streams.inc({ route: route() })
          else
            requests.observe({ method, route: route(), status: res.statusCode }, (performance.now() - started) / 1000)
        })
      },
      ended({ status, model, inputTokens, outputTokens }) {
        ended.inc({ status })
        const provider = model?.split('/', 1)[0]
        if (!provider) return
        tokens.inc({ provider, direction: 'input' }, inputTokens)
        tokens.inc({ provider, direction: 'output' }, outputTokens)
      },
      takenOver: () => expiries.inc(),
    },
  }
}

const isStream = (res: ServerResponse) => String(res.getHeader('content-type') ?? '').startsWith('text/event-stream')

/** Uses a partial index that excludes ended runs. */
async function countRuns(db: Db): Promise<Record<'pending' | 'waiting' | 'running', number>> {
  const groups = await db.execution.groupBy({
    by: ['status', 'waitingFor'],
    where: { terminalSeq: null, status: { in: ['pending', 'running'] } },
    _count: true,
  })
  const counts = { pending: 0, waiting: 0, running: 0 }
  for (const { status, waitingFor, _count } of groups)
    counts[status === 'running' ? 'running' : waitingFor ? 'waiting' : 'pending'] += _count
  return counts
}

/**
 * Serves only `GET /metrics`, without authentication, for the operator's network. Answers 503 while the database is
 * unavailable.
 */
export async function serveMetrics(registry: Registry, host: string, port: number, log: Logger): Promise<Server> {
  const server = createServer(async (req, res) => {
    if (req.url !== '/metrics' || req.method !== 'GET') return res.writeHead(404).end()
    try {
      const text = await registry.metrics()
      res.writeHead(200, { 'Content-Type': registry.contentType }).end(text)
    } catch (error) {
      log.warn({ err: error }, 'failed to collect metrics')
      res.writeHead(503).end()
    }
  })
  server.listen(port, host)
  await once(server, 'listening')
  return server
}
