import { once } from 'node:events'
import { createServer } from 'node:http'
import { json } from 'node:stream/consumers'
import { listen } from './listen.ts'

export type CollectedSpan = {
  name: string
  traceId: string
  spanId: string
  parentSpanId?: string
  kind: number
  /** 2 is an error. */
  status: { code?: number; message?: string }
  attributes: Record<string, unknown>
}

type Value = { stringValue?: string; intValue?: number | string; arrayValue?: { values: Value[] } }
const toValue = ({ stringValue, intValue, arrayValue }: Value): unknown =>
  arrayValue ? arrayValue.values.map(toValue) : (stringValue ?? Number(intValue))

/** A collector of OpenTelemetry's traces (OTLP over HTTP, JSON) on loopback. */
export async function startCollector() {
  const spans: CollectedSpan[] = []
  const resources: Record<string, unknown>[] = []
  const bodies: string[] = []
  const attributesOf = (list: { key: string; value: Value }[]) =>
    Object.fromEntries(list.map(({ key, value }) => [key, toValue(value)]))
  const server = createServer(async (req, res) => {
    const body: any = await json(req)
    bodies.push(`${req.method} ${req.url} ${JSON.stringify(body)}`)
    for (const { resource, scopeSpans } of body.resourceSpans) {
      resources.push(attributesOf(resource.attributes))
      for (const scope of scopeSpans)
        for (const span of scope.spans) spans.push({ ...span, attributes: attributesOf(span.attributes) })
    }
    res.writeHead(200, { 'Content-Type': 'application/json' }).end('{}')
  })
  const port = await listen(server)
  return {
    url: `http://127.0.0.1:${port}`,
    spans,
    resources,
    bodies,
    async [Symbol.asyncDispose]() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}
