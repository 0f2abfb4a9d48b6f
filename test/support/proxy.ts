import { once } from 'node:events'
import { Agent, createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/** How often it asks each server how it is (ms). */
const HEALTH_INTERVAL = 50

/**
 * A proxy as operators have one: sends each request to a server that was ready when last asked, in turn, and keeps its
 * connections. What a server refuses or breaks off is the caller's failure: only where nobody listens is the next asked.
 */
export async function startProxy(targets: () => string[]): Promise<AsyncDisposable & { url: string }> {
  const agent = new Agent({ keepAlive: true })
  let ready: string[] = []
  let turn = 0

  async function look(): Promise<void> {
    const asked = targets()
    const answers = await Promise.all(
      asked.map((url) => fetch(`${url}/readyz`, { signal: AbortSignal.timeout(1_000) }).catch(() => null)),
    )
    ready = asked.filter((_, index) => answers[index]?.ok)
    await Promise.all(answers.map((answer) => answer?.body?.cancel()))
  }

  function send(url: string, from: IncomingMessage, body: Buffer, res: ServerResponse, left: string[]): void {
    const { method, headers, url: path } = from
    const onward = request(url + path, { method, headers, agent }, (answer) => {
      res.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.on('error', () => res.destroy()).pipe(res)
    })
    onward.on('error', (error: NodeJS.ErrnoException) => {
      const [next, ...rest] = left
      if (error.code === 'ECONNREFUSED' && next) return send(next, from, body, res, rest)
      if (!res.headersSent) res.writeHead(502)
      res.end(error.message)
    })
    res.on('close', () => onward.destroy())
    onward.end(body)
  }

  const server = createServer(async (req, res) => {
    const body = Buffer.concat(await Array.fromAsync(req))
    const first = turn++ % (ready.length || 1)
    const [url, ...others] = [...ready.slice(first), ...ready.slice(0, first)]
    if (url) send(url, req, body, res, others)
    else res.writeHead(502).end('No server is ready')
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  await look()
  const stopped = new AbortController()
  const looking = (async () => {
    while (!stopped.signal.aborted) {
      await sleep(HEALTH_INTERVAL, null, { signal: stopped.signal }).catch(() => {})
      await look()
    }
  })()
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      stopped.abort()
      await looking
      agent.destroy()
      server.closeAllConnections()
      server.close()
    },
  }
}
