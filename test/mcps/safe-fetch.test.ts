import { createServer, type RequestListener } from 'node:http'
import { brotliCompressSync, gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createSafeFetch, type SafeFetchOptions } from '../../src/lib/net/safe-fetch.ts'
import { listen } from '../support/listen.ts'

const LIMIT = 1_000_000

let answer: RequestListener
let url: string
let connections = 0
const server = createServer((request, response) => answer(request, response))
beforeAll(async () => {
  server.on('connection', (socket) => {
    connections++
    socket.on('close', () => connections--)
  })
  const port = await listen(server)
  url = `http://127.0.0.1:${port}/`
})
afterAll(() => {
  server.closeAllConnections()
  server.close()
})

const create = (options: Partial<SafeFetchOptions> = {}) =>
  createSafeFetch({
    isAllowed: () => true,
    maxResponse: LIMIT,
    headersTimeout: 20_000,
    idleTimeout: 20_000,
    ...options,
  })

async function read(answering: RequestListener, options?: Partial<SafeFetchOptions>): Promise<string> {
  answer = answering
  const safe = create(options)
  try {
    return await (await safe.fetch(url)).text()
  } finally {
    await safe.close()
    await expect.poll(() => connections).toBe(0)
  }
}

describe('a response', () => {
  it('arrives as it was sent: status, headers and decompressed body', async () => {
    const text = 'x'.repeat(LIMIT)
    expect(await read((_, response) => response.end(text))).toBe(text)
    expect(
      await read((_, response) => response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(text))),
    ).toBe(text)
    const brotli = brotliCompressSync(text)
    expect(await read((_, response) => response.writeHead(200, { 'content-encoding': 'br' }).end(brotli))).toBe(text)
    answer = (_, response) => response.writeHead(418, 'No coffee', { 'X-Here': 'yes' }).end('Tea')
    const safe = create()
    const teapot = await safe.fetch(url)
    expect([teapot.status, teapot.statusText, teapot.headers.get('x-here')]).toEqual([418, 'No coffee', 'yes'])
    answer = (_, response) => response.writeHead(204).end()
    expect((await safe.fetch(url)).body).toBeNull()
    await safe.close()
  })

  it.each<[string, RequestListener]>([
    ['says that it is too large', (_, response) => response.end('x'.repeat(LIMIT + 1))],
    [
      'comes in pieces',
      (_, response) => {
        const timer = setInterval(() => response.write('x'.repeat(100_000)), 1)
        response.on('close', () => clearInterval(timer))
      },
    ],
    [
      'is a bomb',
      (_, response) => response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(Buffer.alloc(50 * LIMIT))),
    ],
    [
      'is a bomb in a bomb',
      (_, response) =>
        response.writeHead(200, { 'content-encoding': 'gzip, gzip' }).end(gzipSync(gzipSync(Buffer.alloc(50 * LIMIT)))),
    ],
  ])('a response that %s fails at the limit, and its connection ends', async (_, answering) => {
    await expect(read(answering)).rejects.toThrow('its answer is too large')
  })

  it('a response with more than 32 KiB of headers fails', async () => {
    const headers = Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`x-${index}`, 'x'.repeat(1000)]))
    await expect(read((_, response) => response.writeHead(200, headers).end())).rejects.toThrow()
  })

  it('a response that never begins, or stalls in the middle, times out', async () => {
    await expect(read(() => {}, { headersTimeout: 300 })).rejects.toThrow()
    await expect(read((_, response) => void response.write('x'), { idleTimeout: 300 })).rejects.toThrow()
  })

  it('can be aborted by a signal, before it begins and in the middle', async () => {
    const safe = create()
    for (const begin of [false, true]) {
      const arrived = Promise.withResolvers<void>()
      answer = (_, response) => {
        if (begin) response.write('x')
        arrived.resolve()
      }
      const controller = new AbortController()
      const text = safe.fetch(url, { signal: controller.signal }).then((response) => response.text())
      text.catch(() => {})
      await arrived.promise
      controller.abort(new Error('enough'))
      await expect(text).rejects.toThrow('enough')
    }
    await safe.close()
    await expect.poll(() => connections).toBe(0)
  })
})

it('a closed fetcher refuses requests and fails those in progress', async () => {
  const arrived = Promise.withResolvers<void>()
  answer = () => arrived.resolve()
  const safe = create()
  const pending = safe.fetch(url)
  pending.catch(() => {})
  await arrived.promise
  await safe.close()
  await expect(pending).rejects.toThrow()
  await expect(safe.fetch(url)).rejects.toThrow()
  await expect.poll(() => connections).toBe(0)
})
