import type { AddressInfo } from 'node:net'
import type { Logger } from 'pino'
import type { Db } from '../db/client.ts'
import type { Clock } from '../lib/clock.ts'
import { createProxyFor } from '../lib/net/proxies.ts'
import type { Settings } from '../settings.ts'
import { silent, type Telemetry } from './telemetry.ts'

type MetricsDeps = { db: Db; clock: Clock; log: Logger }

type Started = {
  telemetry: Telemetry
  /** Address of the metrics; null without METRICS_PORT. */
  metricsUrl: string | null
  stop: () => Promise<void>
}

/** Starts and loads only the configured telemetry: metrics on a separate port, traces to a collector, or neither. */
export async function startTelemetry(
  settings: Settings,
  deps: MetricsDeps & { isPaused: () => boolean },
): Promise<Started> {
  const { METRICS_PORT, OTEL_EXPORTER_OTLP_ENDPOINT, HOST } = settings
  const withContent = settings.OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT
  const metrics = METRICS_PORT === undefined ? null : await startMetrics(deps, HOST, METRICS_PORT)
  const traces =
    OTEL_EXPORTER_OTLP_ENDPOINT === undefined
      ? null
      : (await import('./traces.ts')).createTraces(OTEL_EXPORTER_OTLP_ENDPOINT, {
          withContent,
          proxyFor: createProxyFor(settings),
          isPaused: deps.isPaused,
        })
  return {
    metricsUrl: metrics?.url ?? null,
    telemetry: both(metrics?.telemetry ?? silent, traces?.telemetry ?? silent),
    async stop() {
      metrics?.server.close()
      metrics?.server.closeAllConnections()
      // An unavailable collector must not prevent the shutdown.
      await traces?.stop().catch(() => {})
    },
  }
}

async function startMetrics(deps: MetricsDeps, host: string, port: number) {
  const { createMetrics, serveMetrics } = await import('./metrics.ts')
  const { registry, telemetry } = createMetrics(deps)
  const server = await serveMetrics(registry, host, port, deps.log)
  const url = `http://${host}:${(server.address() as AddressInfo).port}/metrics`
  return { telemetry, server, url }
}

/** Combines metrics, which need requests, traces, which need the inputs of a run, and the outcome, which both need. */
function both(metrics: Telemetry, traces: Telemetry): Telemetry {
  return {
    ...(metrics.request && { request: metrics.request }),
    begin: traces.begin,
    left: traces.left,
    takenOver: metrics.takenOver,
    ended(row) {
      metrics.ended(row)
      traces.ended(row)
    },
  }
}
