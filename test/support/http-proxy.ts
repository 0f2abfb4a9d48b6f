import { createServer, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { listen } from './listen.ts'

export type HttpProxy = AsyncDisposable & {
  /** Includes the required user and password, if any. */
  url: string
  /** Its requests so far: `CONNECT host:port`, or a method and an absolute URL. */
  requests: string[]
}

/** The proxy's request for a password, because git sends none before it. */
const ASKING = { 'Proxy-Authenticate': 'Basic realm="proxy"' }

/**
 * Starts a forward proxy as companies run it: tunnels by CONNECT, and absolute URLs for `http:`. `leadTo` redirects a
 * tunnel, for names that do not resolve here.
 */
export async function startHttpProxy(
  options: { refuse?: number; user?: string; leadTo?: (authority: string) => number | undefined } = {},
): Promise<HttpProxy> {
  const { refuse, user, leadTo } = options
  const requests: string[] = []
  const sockets = new Set<Socket>()
  const wanted = user && `Basic ${Buffer.from(user).toString('base64')}`
  const server = createServer((req, res) => {
    requests.push(`${req.method} ${req.url}`)
    if (wanted && req.headers['proxy-authorization'] !== wanted) return res.writeHead(407, ASKING).end()
    const { 'proxy-authorization': _, ...headers } = req.headers
    const onward = request(req.url ?? '', { method: req.method, headers }, (answer) => {
      res.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(res)
    })
    onward.on('error', () => res.writeHead(502).end())
    req.pipe(onward)
  })
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  server.on('connect', (req, socket) => {
    requests.push(`CONNECT ${req.url}`)
    const status = wanted && req.headers['proxy-authorization'] !== wanted ? 407 : refuse
    const asking = status === 407 ? `Proxy-Authenticate: ${ASKING['Proxy-Authenticate']}\r\n` : ''
    if (status) return socket.end(`HTTP/1.1 ${status} No\r\n${asking}Connection: close\r\nContent-Length: 0\r\n\r\n`)
    const { hostname, port } = new URL(`tunnel://${req.url}`)
    const onward = connect(leadTo?.(req.url ?? '') ?? Number(port), leadTo ? '127.0.0.1' : hostname, () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n')
      onward.pipe(socket).pipe(onward)
    })
    onward.on('error', () => socket.destroy())
    socket.on('error', () => onward.destroy())
    sockets.add(onward)
  })
  const port = await listen(server)
  const address = `127.0.0.1:${port}`
  return {
    url: `http://${user ? `${user}@` : ''}${address}`,
    requests,
    async [Symbol.asyncDispose]() {
      server.close()
      for (const socket of sockets) socket.destroy()
    },
  }
}
