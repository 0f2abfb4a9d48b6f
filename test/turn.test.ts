import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { expect, test } from 'vitest'
import { allRead, connected } from '../src/lib/turn.ts'

const COUNT = 5

test('what comes in one turn of the event loop is all read before any of it is gone on with', async () => {
  const order: string[] = []
  const server = createServer((socket) => {
    socket.on('data', async () => {
      order.push('read')
      await allRead()
      order.push('gone on')
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const clients = Array.from({ length: COUNT }, () => connect(port, '127.0.0.1'))
  try {
    await Promise.all(clients.map((client) => once(client, 'connect')))
    const count = () => new Promise((resolve) => server.getConnections((_, connections) => resolve(connections)))
    await expect.poll(count).toBe(COUNT)
    for (let turn = 0; turn < 3; turn++) {
      order.length = 0
      // On the loopback what is written is there to be read at once.
      for (const client of clients) client.write('x')
      await expect.poll(() => order.length).toBe(2 * COUNT)
      expect(order).toEqual([...Array(COUNT).fill('read'), ...Array(COUNT).fill('gone on')])
    }
  } finally {
    for (const client of clients) client.destroy()
    server.close()
  }
})

test('those who connect at once are all read before any of them is gone on with', async () => {
  const order: string[] = []
  const server = createServer((socket) => {
    connected()
    socket.on('data', async () => {
      order.push('read')
      await allRead()
      order.push('gone on')
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const clients = Array.from({ length: COUNT }, () => connect(port, '127.0.0.1'))
  try {
    for (const client of clients) client.write('x')
    await expect.poll(() => order.length).toBe(2 * COUNT)
    expect(order).toEqual([...Array(COUNT).fill('read'), ...Array(COUNT).fill('gone on')])
  } finally {
    for (const client of clients) client.destroy()
    server.close()
  }
})
