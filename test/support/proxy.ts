import { Agent, createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import { listen } from './listen.ts'

/** Interval of health checks, and the time limit of each (ms). */
const HEALTH_INTERVAL = 50
const HEALTH_TIMEOUT = 5_000
/** Idle time of connections (ms), which exceeds that of clients, so that no client sends on a closing connection. */
const KEEP_ALIVE = 600_000

/** The header with the age of the health check by which the server was chosen (ms). */
export const AGE_OF_LOOK = 'x-age-of-look'

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
  /** Whether it has seen all servers ready, so that the next one can be stopped without a failed request. */
  allReady(): boolean
}

/**
 * A proxy as operators run it: sends each request to a server that was ready at the last check, in turn, over
 * kept-alive connections. It retries another server only if a connection is refused; other failures reach the caller.
 */
export async function startProxy(targets: () => string[]): Promise<Proxy> {
  const agent = new Agent({ keepAlive: true })
  const ready = new Map<string, boolean>()
  const looked = new Map<string, number>()
  const asking = new Map<string, Promise<void>>()
  let turn = 0

  /** Checks each server without a pending check, so that a slow one does not delay the others. */
  function look(): void {
    for (const url of targets()) {
      if (asking.has(url)) continue
      const asked = isReady(url).then((answer) => {
        ready.set(url, answer)
        looked.set(url, Date.now())
        asking.delete(url)
      })
      asking.set(url, asked)
    }
  }

  function send(url: string, from: IncomingMessage, body: Buffer, res: ServerResponse, left: string[]): void {
    const { method, headers, url: path } = from
    const onward = request(url + path, { method, headers, agent }, (answer) => {
      const age = Date.now() - (looked.get(url) ?? 0)
      res.writeHead(answer.statusCode ?? 502, { ...answer.headers, [AGE_OF_LOOK]: age })
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

  const server = createServer({ keepAliveTimeout: KEEP_ALIVE }, async (req, res) => {
    const body = Buffer.concat(await Array.fromAsync(req))
    const found = targets().filter((target) => ready.get(target))
    const first = turn++ % (found.length || 1)
    const [url, ...others] = [...found.slice(first), ...found.slice(0, first)]
    if (url) send(url, req, body, res, others)
    else res.writeHead(502).end('No server is ready')
  })
  const port = await listen(server)
  look()
  await Promise.all(asking.values())
  const timer = setInterval(look, HEALTH_INTERVAL)
  return {
    url: `http://127.0.0.1:${port}`,
    allReady: () => targets().every((target) => ready.get(target)),
    async [Symbol.asyncDispose]() {
      clearInterval(timer)
      await Promise.all(asking.values())
      agent.destroy()
      server.closeAllConnections()
      server.close()
    },
  }
}
