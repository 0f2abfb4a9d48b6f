import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, isIP, type LookupFunction } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { isPublicAddress } from '../../src/lib/net/addresses.ts'
import { createSafeFetch, type SafeFetchOptions } from '../../src/lib/net/safe-fetch.ts'
import { FORBIDDEN_HOSTS } from '../support/forbidden-hosts.ts'
import { listen } from '../support/listen.ts'

/**
 * Stands for the public internet in these tests. It is on loopback too, but no other address of loopback is allowed.
 */
const ALLOWED = '127.0.0.2'
const isAllowed = (address: string) => address === ALLOWED || isPublicAddress(address)

/** A connection here, or on the other IP family, proves that a forbidden address was reached. */
let canary: { port: number; connections: number; close(): void }
/** An allowed server, which redirects to the address in `/to/<address>`. */
let outside: { port: number; headers: IncomingHttpHeaders[]; close(): void }
beforeAll(async () => {
  const watch = createTcpServer((socket) => {
    canary.connections++
    socket.destroy()
  })
  const port = await listen(watch)
  const watch6 = createTcpServer(() => canary.connections++)
  watch6.on('error', () => {})
  watch6.listen(port, '::1')
  canary = {
    port,
    connections: 0,
    close() {
      watch.close()
      watch6.close()
    },
  }
  const server = createServer((request, response) => {
    outside.headers.push(request.headers)
    const [, status, target] = /^\/to\/(\d+)\/(.*)$/.exec(request.url ?? '') ?? []
    // Sends the text as bytes in any encoding, except line breaks.
    const location = Buffer.from(decodeURIComponent(target ?? '').replace(/[\r\n]/g, '')).toString('latin1')
    if (target) response.writeHead(Number(status), { location }).end()
    else response.end('Hello')
  })
  server.listen(0, '0.0.0.0')
  await once(server, 'listening')
  outside = { port: (server.address() as AddressInfo).port, headers: [], close: () => server.close() }
})
afterAll(() => {
  canary.close()
  outside.close()
})

async function get(url: string, options: Partial<SafeFetchOptions> = {}, init: RequestInit = {}): Promise<string> {
  const safe = createSafeFetch({ isAllowed, maxResponse: 1e6, headersTimeout: 5000, idleTimeout: 5000, ...options })
  try {
    return await (await safe.fetch(url, init)).text()
  } finally {
    await safe.close()
  }
}

const redirecting = (to: string, status = 307) =>
  `http://${ALLOWED}:${outside.port}/to/${status}/${encodeURIComponent(to)}`

/** Whole URLs whose real host differs from the apparent one. */
const addresses = () => [
  ...FORBIDDEN_HOSTS.map((host) => `http://${host}:${canary.port}/`),
  `https://127.0.0.1:${canary.port}/`,
  `http://example.com@127.0.0.1:${canary.port}/`,
  `http://example.com:80@127.0.0.1:${canary.port}/`,
  `http://127.0.0.1:${canary.port}\\@example.com/`,
  `http:\\\\127.0.0.1:${canary.port}\\`,
  `http:127.0.0.1:${canary.port}/`,
  `http:////127.0.0.1:${canary.port}/`,
  `  http://127.0.0.1:${canary.port}/`,
  `ht\ttp://127.0.\n0.1:${canary.port}/`,
  `http://127.0.0.1:0${canary.port}/#@example.com`,
  `http://127.0.0.1:${canary.port}/?@example.com`,
  `http://user:password@${ALLOWED}:${outside.port}/`,
  ...['file:///etc/passwd', 'data:text/plain,hello', 'blob:nodedata:x', 'about:blank', 'javascript:1'],
  ...[`ftp://127.0.0.1:${canary.port}/`, `ws://127.0.0.1:${canary.port}/`, `gopher://127.0.0.1:${canary.port}/_x`],
  ...[
    '',
    'http://',
    '//',
    'http://[::1',
    `http://[::1%25lo]:${canary.port}/`,
    'http://256.1.1.1/',
    'http://1.2.3.4.5/',
  ],
]

it('the forbidden addresses have more than 120 spellings', () => {
  expect(new Set(addresses()).size).toBeGreaterThan(120)
})

it.each([
  '1.1.1.1',
  '100.63.255.255',
  '168.63.129.17',
  '172.32.0.1',
  '223.255.255.255',
  '2606:4700:4700::1111',
  '2a00:1450::1',
])('the address %s is public', (address) => {
  expect(isPublicAddress(address)).toBe(true)
})

it('no forbidden address is public, whichever network a connection would need', () => {
  const found = FORBIDDEN_HOSTS.flatMap((host) => URL.parse(`http://${host}/`)?.hostname.replace(/^\[|\]$/g, '') ?? [])
  const numeric = found.filter((host) => isIP(host))
  expect(numeric.length).toBeGreaterThan(80)
  expect(numeric.filter(isPublicAddress)).toEqual([])
})

it('the canary records a connection to loopback', async () => {
  await expect(get(`http://0x7f.1:${canary.port}/`, { isAllowed: () => true })).rejects.toThrow()
  await expect.poll(() => canary.connections).toBe(1)
  canary.connections = 0
  expect(await get(`http://${ALLOWED}:${outside.port}/`)).toBe('Hello')
})

it('a request to a forbidden address makes no connection', async () => {
  await Promise.all(addresses().map((url) => expect(get(url), url).rejects.toThrow()))
  expect(canary.connections).toBe(0)
})

it('an address with a user name or a password is refused, also as the target of a redirect', async () => {
  outside.headers.length = 0
  for (const user of ['ada', 'ada:x', ':x']) {
    const url = `http://${user}@${ALLOWED}:${outside.port}/`
    await expect(get(url)).rejects.toThrow('The address is not allowed')
    await expect(get(redirecting(url))).rejects.toThrow('The address is not allowed')
  }
  // The redirects themselves.
  expect(outside.headers).toHaveLength(3)
})

it('a redirect of any kind to a forbidden address is refused', async () => {
  for (const status of [301, 302, 303, 307, 308]) {
    const refused = addresses().filter((url) => url !== '' && url !== '//')
    // A redirect that replaces the path on the same server stays there.
    const outcomes = await Promise.allSettled(refused.map((url) => get(redirecting(url, status))))
    const followed = outcomes.flatMap((outcome, index) => (outcome.status === 'fulfilled' ? refused[index] : []))
    expect(followed).toEqual([])
  }
  expect(canary.connections).toBe(0)
})

describe('a name', () => {
  const naming =
    (...answers: (string | string[])[]): LookupFunction =>
    (_, options, callback) => {
      const next = [answers.length > 1 ? answers.shift() : answers[0]].flat() as string[]
      const found = next.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }))
      if (options.all) callback(null, found)
      else callback(null, found[0]!.address, found[0]!.family)
    }

  it.each([
    ...['127.0.0.1', '::1', '::ffff:127.0.0.1', '10.0.0.1', '169.254.169.254', '192.168.1.1', '0.0.0.0', 'fe80::1'],
    ...['64:ff9b::7f00:1', '2002:7f00:1::', 'fd00::1', '100.64.0.1', '::'],
  ])('a name that stands for %s gets no connection', async (address) => {
    await expect(get(`http://rebind.test:${canary.port}/`, { lookup: naming(address) })).rejects.toThrow()
    expect(canary.connections).toBe(0)
  })

  it('a name that stands for an allowed and a forbidden address gets no connection', async () => {
    for (const both of [
      [ALLOWED, '127.0.0.1'],
      ['127.0.0.1', ALLOWED],
    ]) {
      await expect(get(`http://rebind.test:${canary.port}/`, { lookup: naming(both) })).rejects.toThrow()
    }
    expect(canary.connections).toBe(0)
  })

  it('is resolved once per connection, which uses the checked address', async () => {
    const lookup = naming(ALLOWED, '127.0.0.1')
    const url = `http://rebind.test:${outside.port}/`
    expect(await get(url, { lookup })).toBe('Hello')
    await expect(get(url, { lookup })).rejects.toThrow()
    await expect(get(`http://rebind.test:${canary.port}/`, { lookup })).rejects.toThrow()
    expect(canary.connections).toBe(0)
  })

  it('a name that changes between a redirect and its target gets no connection', async () => {
    const lookup = naming(ALLOWED, '127.0.0.1')
    const url = redirecting(`http://rebind.test:${canary.port}/`).replace(ALLOWED, 'rebind.test')
    await expect(get(url, { lookup })).rejects.toThrow()
    expect(canary.connections).toBe(0)
  })
})

describe('a redirect', () => {
  it('is followed at most five times', async () => {
    const nested = (times: number): string =>
      times === 0 ? `http://${ALLOWED}:${outside.port}/` : redirecting(nested(times - 1))
    expect(await get(nested(5))).toBe('Hello')
    await expect(get(nested(6))).rejects.toThrow('it redirects too often')
  })

  it('keeps the headers on the same origin, and drops them for another', async () => {
    const headers = { Authorization: 'Bearer x', 'X-Key': 'x', Cookie: 'x', Accept: 'text/plain' }
    const there = `http://127.0.0.4:${outside.port}/`
    const allowed = { isAllowed: (address: string) => isAllowed(address) || address === '127.0.0.4' }
    outside.headers.length = 0
    expect(await get(redirecting(`http://${ALLOWED}:${outside.port}/`), {}, { headers })).toBe('Hello')
    expect(await get(redirecting(redirecting(there)), allowed, { headers })).toBe('Hello')
    const seen = outside.headers.map(({ authorization, 'x-key': key, cookie, accept }) => [
      authorization,
      key,
      cookie,
      accept,
    ])
    const all = ['Bearer x', 'x', 'x', 'text/plain']
    expect(seen).toEqual([all, all, all, all, [undefined, undefined, undefined, 'text/plain']])
  })

  it('a redirect of a POST keeps the method within an origin, and ends elsewhere', async () => {
    const post = { method: 'POST', body: '{}' }
    for (const status of [301, 302, 303]) {
      outside.headers.length = 0
      const isKept = status !== 303
      expect(await get(redirecting(`http://${ALLOWED}:${outside.port}/`, status), {}, post)).toBe(isKept ? 'Hello' : '')
      expect(outside.headers).toHaveLength(isKept ? 2 : 1)
      outside.headers.length = 0
      expect(await get(redirecting(`http://127.0.0.1:${outside.port}/`, status), {}, post)).toBe('')
      expect(outside.headers).toHaveLength(1)
    }
  })
})
