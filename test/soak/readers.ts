import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { openStream } from '../support/sse.ts'
import { createSubject, execute, executePath, type Subject, settled, until } from './service.ts'

const READERS = 20
const MIB = 1024 * 1024
const TOKEN = 'x'.repeat(4 * 1024)

export type ReadersReport = {
  readers: number
  /** What was produced for each of them (MiB). */
  each: number
  /** Memory beyond what the same runs take without readers (MiB). */
  grownBy: number
  dropped: number
}

/** The resident memory of the server, in bytes. */
async function memory({ process: server }: Subject): Promise<number> {
  const status = await readFile(`/proc/${server.child.pid}/status`, 'utf8')
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024
}

/** A client that asks for a stream and reads nothing of it. */
async function neverRead(subject: Subject): Promise<Socket> {
  const { hostname, port } = new URL(subject.url)
  const socket = connect(Number(port), hostname)
  await once(socket, 'connect')
  socket.pause()
  socket.on('error', () => {})
  const body = JSON.stringify({ message: 'Hello', stream: true })
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

/** The most memory that the server takes until everything has settled. */
async function highest(subject: Subject): Promise<number> {
  let most = 0
  let isOver = false
  const over = settled(subject.db, 300_000).finally(() => {
    isOver = true
  })
  while (!isOver) {
    most = Math.max(most, await memory(subject))
    await sleep(20)
  }
  await over
  return most
}

/**
 * 20 readers that never read while so much is produced for each. The runs complete, another stream goes on, and memory
 * does not grow with what nobody reads. `untilDropped`: waits until the server has hung up on each.
 */
export async function readers(each: number, untilDropped: boolean): Promise<ReadersReport> {
  await using subject = await createSubject({ NODE_OPTIONS: '--max-semi-space-size=4' })
  const much = { tokens: Array.from({ length: (each * MIB) / TOKEN.length }, () => TOKEN) }
  const little = { tokens: Array.from({ length: 100 }, (_, index) => `t${index} `), delay: 10 }
  subject.model.fallback = ({ body }) => (body.messages.at(-1)?.content === 'A little' ? little : much)
  const background = () =>
    Promise.all(Array.from({ length: READERS }, () => execute(subject, { message: 'Hello', background: true })))
  await background()
  await highest(subject)
  await background()
  const without = await highest(subject)

  const count = await subject.db.execution.count()
  const sockets = await Promise.all(Array.from({ length: READERS }, () => neverRead(subject)))
  const accepted = async () => (await subject.db.execution.count()) - count
  await until('all accepted', async () => (await accepted()) === READERS)
  const other = await openStream(subject, executePath(subject), {
    method: 'POST',
    body: { message: 'A little', stream: true },
  })
  const [grown, events] = await Promise.all([highest(subject), other.rest()])
  assert.equal(events.at(-1)?.event, 'result')
  assert.equal(events.filter(({ event }) => event === 'message').length, 101)
  const incomplete = await subject.db.execution.count({ where: { status: { not: 'completed' } } })
  assert.equal(incomplete, 0, `${incomplete} runs did not complete`)

  const hasLeft = (socket: Socket) => socket.readableEnded || socket.destroyed
  if (untilDropped) {
    // Whoever has been hung up on sees the end, or an error, behind what is left in the connection.
    await sleep(45_000)
    for (const socket of sockets) socket.resume()
    await until('all dropped', () => sockets.every(hasLeft), 10_000)
  }
  console.log(grown / MIB, without / MIB)
  const report = {
    readers: READERS,
    each,
    grownBy: Math.round((grown - without) / MIB),
    dropped: sockets.filter(hasLeft).length,
  }
  for (const socket of sockets) socket.destroy()
  assert(report.grownBy <= 32, `memory grew by ${report.grownBy} MiB`)
  return report
}
