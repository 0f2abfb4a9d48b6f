import { once } from 'node:events'
import { Agent, createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/** How often it asks each server how it is, and how long it waits for an answer (ms). */
const HEALTH_INTERVAL = 50
const HEALTH_TIMEOUT = 5_000

async function isReady(url: string): Promise<boolean> {
  try {
    const answer = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(HEALTH_TIMEOUT) })
    await answer.text()
    return answer.ok
  } catch {
    return false
  }
}

export type Proxy = AsyncDisposable & {
  url: string
  /** Resolves when it has seen that all servers are ready: who stops the next one before leaves nobody to answer. */
  untilAllReady(): Promise<void>
}

/**
 * A proxy as operators have one: sends each request to a server that was ready when last asked, in turn, and keeps its
 * connections. What a server refuses or breaks off is the caller's failure: only where nobody listens is the next asked.
 */
export async function startProxy(targets: () => string[]): Promise<Proxy> {
  const agent = new Agent({ keepAlive: true })
  const ready = new Map<string, boolean>()
  const asking = new Map<string, Promise<void>>()
  let turn = 0

  /** Asks each, unless it has not answered yet: one that is slow keeps nobody waiting for another. */
  function look(): void {
    for (const url of targets()) {
      if (asking.has(url)) continue
      const asked = isReady(url).then((answer) => {
        ready.set(url, answer)
        asking.delete(url)
      })
      asking.set(url, asked)
    }
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
    const found = targets().filter((target) => ready.get(target))
    const first = turn++ % (found.length || 1)
    const [url, ...others] = [...found.slice(first), ...found.slice(0, first)]
    if (url) send(url, req, body, res, others)
    else res.writeHead(502).end('No server is ready')
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  look()
  await Promise.all(asking.values())
  const timer = setInterval(look, HEALTH_INTERVAL)
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async untilAllReady() {
      while (!targets().every((target) => ready.get(target))) await sleep(HEALTH_INTERVAL)
    },
    async [Symbol.asyncDispose]() {
      clearInterval(timer)
      await Promise.all(asking.values())
      agent.destroy()
      server.closeAllConnections()
      server.close()
    },
  }
}
