import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { nextReadBatch } from '../src/http/turn.ts'
import { listen } from './support/listen.ts'

const COUNT = 5

/** Clients of a server that records in `order` when it reads and when it continues. */
async function withClients(work: (clients: Socket[], order: string[], here: () => Promise<number>) => Promise<void>) {
  const order: string[] = []
  const server = createServer((socket) => {
    socket.on('data', async () => {
      order.push('read')
      await nextReadBatch()
      order.push('continued')
    })
  })
  const port = await listen(server)
  const clients = Array.from({ length: COUNT }, () => connect(port, '127.0.0.1'))
  const here = () => new Promise<number>((resolve) => server.getConnections((_, count) => resolve(count)))
  try {
    await work(clients, order, here)
  } finally {
    for (const client of clients) client.destroy()
    server.close()
  }
}

test('all requests of one event loop turn are read before any of them continues', () =>
  withClients(async (clients, order, here) => {
    await Promise.all(clients.map((client) => once(client, 'connect')))
    await expect.poll(here).toBe(COUNT)
    for (let turn = 0; turn < 3; turn++) {
      order.length = 0
      // On loopback, written data can be read at once.
      for (const client of clients) client.write('x')
      await expect.poll(() => order.length).toBe(2 * COUNT)
      expect(order).toEqual([...Array(COUNT).fill('read'), ...Array(COUNT).fill('continued')])
    }
  }))
