import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { openStream } from '../support/sse.ts'
import { createSubject, execute, executePath, type Subject, settled, until } from './service.ts'

const MIB = 1024 * 1024
const TOKEN = 'x'.repeat(4 * 1024)
const PROBE = import.meta.resolve('./probe.ts')
const LITTLE = 'A little'

export type ReadersReport = {
  readers: number
  /** Text produced for each of them (MiB). */
  each: number
  /**
   * Memory of the server beyond that for the same runs without readers, after all text was produced and none read
   * (MiB).
   */
  grownBy: number
  /** Number of clients that the server has disconnected. */
  dropped: number
}

/** Memory of the server after a forced collection (bytes). */
async function held({ process: server }: Subject): Promise<number> {
  const seen = server.out.length
  const size = () => /^holds (\d+) bytes$/m.exec(server.out.slice(seen))?.[1]
  server.child.kill('SIGUSR2')
  await until('an answer of the probe', () => size() !== undefined)
  return Number(size())
}

/** A client that asks for a stream and reads nothing of it. */
async function neverRead(subject: Subject): Promise<Socket> {
  const { hostname, port } = new URL(subject.url)
  const socket = connect(Number(port), hostname)
  await once(socket, 'connect')
  socket.pause()
  socket.on('error', () => {})
  const body = JSON.stringify({ message: 'Much', stream: true })
  const head = [
    `POST ${executePath(subject)} HTTP/1.1`,
    `Host: ${hostname}`,
    `Authorization: Bearer ${subject.token}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
  ]
  socket.write(`${head.join('\r\n')}\r\n\r\n${body}`)
  return socket
}

/** Counts the clients that the server is connected to. The clients learn of an end only by reading. */
async function connectedTo(subject: Subject, sockets: readonly Socket[]): Promise<number> {
  const hex = (port: number) => port.toString(16).toUpperCase().padStart(4, '0')
  const server = hex(Number(new URL(subject.url).port))
  const table = await readFile('/proc/net/tcp', 'utf8')
  const established = (socket: Socket) =>
    new RegExp(`\\w+:${server} \\w+:${hex(socket.localPort ?? 0)} 01 `).test(table)
  return sockets.filter(established).length
}

/**
 * Starts a number of clients that never read while text (MiB) is produced for each. The runs complete, another stream
 * ends normally, and the server buffers no unread text. `untilDropped`: waits until the server has disconnected each.
 */
export async function readers(count: number, each: number, untilDropped: boolean): Promise<ReadersReport> {
  await using subject = await createSubject({ NODE_OPTIONS: `--expose-gc --import ${PROBE}` })
  const { db, model } = subject
  const tokens = Math.ceil((each * MIB) / TOKEN.length)
  let resume = Promise.withResolvers<void>()
  model.fallback = ({ body }) =>
    body.messages.at(-1)?.content === LITTLE
      ? { tokens: Array.from({ length: 100 }, (_, index) => `t${index} `), delay: 10 }
      : { tokens: [...Array.from({ length: tokens }, () => TOKEN), resume.promise, 'Done.'] }

  /** Waits until all but the last token of every run is stored. Returns the memory of the server. */
  async function heldByRuns(): Promise<number> {
    const live = () => db.execution.findMany({ where: { status: 'running' }, select: { id: true } })
    const isStored = async ({ id }: { id: string }) => {
      const last = await db.executionEvent.findFirst({
        where: { executionId: id },
        orderBy: { firstSeq: 'desc' },
        select: { lastSeq: true },
      })
      return last !== null && last.lastSeq > tokens
    }
    await until('all accepted', async () => (await live()).length === count)
    const runs = await live()
    await until('all produced', async () => (await Promise.all(runs.map(isStored))).every(Boolean), 300_000)
    return held(subject)
  }

  async function finish(): Promise<void> {
    resume.resolve()
    await settled(db, 300_000)
    resume = Promise.withResolvers()
  }

  const inBackground = () =>
    Promise.all(Array.from({ length: count }, () => execute(subject, { message: 'Much', background: true })))
  let without = 0
  // The first round pays for code, caches and buffers.
  for (let time = 0; time < 2; time++) {
    await inBackground()
    without = await heldByRuns()
    await finish()
  }

  const sockets = await Promise.all(Array.from({ length: count }, () => neverRead(subject)))
  const withReaders = await heldByRuns()
  const body = { message: LITTLE, stream: true }
  const other = await openStream(subject, executePath(subject), { method: 'POST', body })
  const events = await other.rest()
  assert.equal(events.at(-1)?.event, 'result')
  assert.equal(events.filter(({ data }) => data.messageType === 'stream_event').length, 100)
  await finish()
  const incomplete = await db.execution.count({ where: { status: { not: 'completed' } } })
  assert.equal(incomplete, 0, `${incomplete} runs did not complete`)

  const dropped = async () => count - (await connectedTo(subject, sockets))
  // A client that reads nothing has half a minute, and as much again if it read a part of something.
  if (untilDropped) await until('all dropped', async () => (await dropped()) === count, 90_000)
  const report = {
    readers: count,
    each,
    grownBy: Math.round(((withReaders - without) / MIB) * 10) / 10,
    dropped: await dropped(),
  }
  for (const socket of sockets) socket.destroy()
  return report
}
