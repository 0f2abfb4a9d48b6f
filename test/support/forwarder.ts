import { connect, createServer, type Socket } from 'node:net'
import { listen } from './listen.ts'

export type Forwarder = AsyncDisposable & {
  /** The URL through the forwarder. */
  url: string
  /** Breaks open connections, and refuses new ones until `mend`. */
  cut(): void
  /** Accepts connections, and forwards nothing until `mend`. */
  hang(): void
  /** Breaks open connections, and answers new ones at once with these bytes until `mend`. */
  refuse(answer: Buffer): void
  mend(): void
}

/** A forwarder to a TCP server that can be cut, fall silent, or refuse connections. */
export async function startForwarder(target: string): Promise<Forwarder> {
  const to = new URL(target)
  const sockets = new Set<Socket>()
  let isCut = false
  let hangs = false
  let refusal: Buffer | null = null
  const server = createServer((socket) => {
    if (isCut) return void socket.destroy()
    if (refusal) return void socket.on('error', () => {}).end(refusal)
    const onward = connect(Number(to.port), to.hostname)
    socket.pipe(onward).pipe(socket)
    for (const [one, other] of [
      [socket, onward],
      [onward, socket],
    ] as const) {
      sockets.add(one)
      one
        .on('error', () => {})
        .on('close', () => {
          sockets.delete(one)
          other.destroy()
        })
      if (hangs) one.pause()
    }
  })
  const port = await listen(server)
  const breakAll = () => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    url: Object.assign(new URL(target), { host: `127.0.0.1:${port}` }).href,
    cut() {
      isCut = true
      breakAll()
    },
    hang() {
      hangs = true
      for (const socket of sockets) socket.pause()
    },
    refuse(answer) {
      refusal = answer
      breakAll()
    },
    mend() {
      refusal = null
      isCut = false
      hangs = false
      for (const socket of sockets) socket.resume()
    },
    async [Symbol.asyncDispose]() {
      breakAll()
      server.close()
    },
  }
}
