import type { RequestListener } from 'node:http'
import { createServer } from 'node:https'
import { describe, expect, it, vi } from 'vitest'
import { type Guard, openNetwork } from '../src/lib/net/network.ts'
import { createProxyFor, type ProxySettings } from '../src/lib/net/proxies.ts'
import { createSafeFetch } from '../src/lib/net/safe-fetch.ts'
import { createCertificate, createIssuedCertificate } from './support/certificate.ts'
import { startHttpProxy } from './support/http-proxy.ts'
import { listen } from './support/listen.ts'
import { startModelServer } from './support/model-server.ts'

describe('the proxy of an address', () => {
  const both = { HTTP_PROXY: 'http://plain:1', HTTPS_PROXY: 'http://secure:2' }
  it.each<[string, ProxySettings, string | null]>([
    ['https://a.example', both, 'http://secure:2'],
    ['http://a.example', both, 'http://plain:1'],
    ['https://a.example', { HTTP_PROXY: 'http://plain:1' }, null],
    ['http://a.example', {}, null],
    ['https://a.example', { ...both, NO_PROXY: '*' }, null],
    ['https://a.example', { ...both, NO_PROXY: 'b.example, a.example' }, null],
    ['https://A.EXAMPLE./path', { ...both, NO_PROXY: 'a.example.' }, null],
    ['https://x.a.example', { ...both, NO_PROXY: 'a.example' }, null],
    ['https://x.a.example', { ...both, NO_PROXY: '.a.example' }, null],
    ['https://a.example', { ...both, NO_PROXY: '.a.example' }, null],
    ['https://x.a.example', { ...both, NO_PROXY: '*.a.example' }, null],
    ['https://a.example', { ...both, NO_PROXY: '*.a.example' }, 'http://secure:2'],
    ['https://xa.example', { ...both, NO_PROXY: 'a.example' }, 'http://secure:2'],
    ['https://a.example', { ...both, NO_PROXY: 'a.example:443' }, null],
    ['https://a.example:8443', { ...both, NO_PROXY: 'a.example:443' }, 'http://secure:2'],
    ['http://10.1.2.3', { ...both, NO_PROXY: '10.0.0.0/8' }, null],
    ['http://11.1.2.3', { ...both, NO_PROXY: '10.0.0.0/8' }, 'http://plain:1'],
    ['http://[::1]:80', { ...both, NO_PROXY: '::1' }, null],
    ['http://[fd00::1]', { ...both, NO_PROXY: 'fd00::/8' }, null],
    ['http://[::1]:81', { ...both, NO_PROXY: '[::1]:80' }, 'http://plain:1'],
  ])('the proxy of an address for %s with %j is %s', (url, settings, proxy) => {
    expect(createProxyFor(settings)(url)).toBe(proxy)
  })
})

/** Starts an HTTPS server with its own certificate for `secure.example`. */
async function startSecureServer(
  certificate = createCertificate('secure.example'),
  answer: RequestListener = (_, response) => void response.end('Hello'),
) {
  const server = createServer(certificate, answer)
  const port = await listen(server)
  return {
    port,
    url: `https://127.0.0.1:${port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
    },
  }
}

const causeOf = (failing: Promise<unknown>): Promise<Error> =>
  failing.then(
    () => new Error('It did not fail'),
    (error) => error.cause ?? error,
  )

describe('a request through a proxy', () => {
  it('reaches a plain server, with the password of the proxy', async () => {
    await using model = await startModelServer()
    await using proxy = await startHttpProxy({ user: 'ann:secret' })
    const network = openNetwork({ proxyFor: () => proxy.url })
    const response = await network.fetch(`${model.baseUrl}/models`)
    expect(await response.json()).toMatchObject({ object: 'list' })
    expect(proxy.requests).toEqual([`GET ${model.baseUrl}/models`])
    expect(model.listings[0]?.['proxy-authorization']).toBeUndefined()
    await network.close()
  })

  it.each([
    ['is its own', createCertificate],
    ['is of an unknown authority', createIssuedCertificate],
  ])('uses a tunnel to a server with TLS, whose certificate %s: it is checked', async (_, certify) => {
    await using server = await startSecureServer(certify('secure.example'))
    await using proxy = await startHttpProxy()
    const network = openNetwork({ proxyFor: () => proxy.url })
    const { message } = await causeOf(network.fetch(server.url))
    expect(message).toMatch(/^The certificate of 127\.0\.0\.1 is not trusted: .*NODE_EXTRA_CA_CERTS$/)
    expect(proxy.requests).toEqual([`CONNECT 127.0.0.1:${server.port}`])
    await network.close()
  })

  it.each([
    [{ refuse: 403 }, /^The proxy 127\.0\.0\.1:\d+ did not connect: it answered with the status 403$/],
    [{ user: 'ann:secret' }, /^The proxy 127\.0\.0\.1:\d+ did not connect: it answered with the status 407$/],
  ])(
    'a request that its proxy refuses (%j) fails, and names the proxy without its password',
    async (options, cause) => {
      await using proxy = await startHttpProxy(options)
      const network = openNetwork({ proxyFor: () => proxy.url.replace('secret', 'wrong') })
      expect((await causeOf(network.fetch('https://secure.example'))).message).toMatch(cause)
      await network.close()
    },
  )

  it('fails with a cause that names the proxy if the proxy is down', async () => {
    const network = openNetwork({ proxyFor: () => 'http://127.0.0.1:9' })
    for (const url of ['https://secure.example', 'http://plain.example']) {
      expect((await causeOf(network.fetch(url))).message).toMatch(
        /^The proxy 127\.0\.0\.1:9 did not connect: .*ECONNREFUSED/,
      )
    }
    await network.close()
  })
})

describe('a guarded request through a proxy', () => {
  const LIMITS = { maxResponse: 1000, headersTimeout: 5000, idleTimeout: 5000 }
  const isAllowed = (address: string) => address !== '10.0.0.1'
  const standsFor = (address: string): Guard => ({
    isAllowed,
    lookup: (_, options, callback) =>
      options.all ? callback(null, [{ address, family: 4 }]) : callback(null, address, 4),
  })

  it.each(['https://secure.example/', 'http://secure.example/'])(
    'a guarded request to %s asks the proxy for the checked address, not for the name',
    async (url) => {
      await using model = await startModelServer()
      await using server = await startSecureServer()
      const port = url.startsWith('https') ? server.port : Number(new URL(model.baseUrl).port)
      await using proxy = await startHttpProxy({ leadTo: () => port })
      const safe = createSafeFetch({
        ...standsFor('203.0.113.7'),
        ...LIMITS,
        proxyFor: () => proxy.url,
      })
      const answer = safe.fetch(url)
      // The certificate matches that name, so only its authority is unknown.
      if (url.startsWith('https')) expect((await causeOf(answer)).message).toContain('DEPTH_ZERO_SELF_SIGNED_CERT')
      else expect((await answer).status).toBe(200)
      expect(proxy.requests).toEqual([`CONNECT 203.0.113.7:${url.startsWith('https') ? 443 : 80}`])
      await safe.close()
    },
  )

  it('a redirect from https to http of the same host carries no credentials', async () => {
    const secrets = { Authorization: 'Bearer secret', 'X-API-Key': 'secret' }
    await using model = await startModelServer()
    await using server = await startSecureServer(createCertificate('secure.example'), (_, response) =>
      response.writeHead(307, { Location: 'http://secure.example/v1/models' }).end(),
    )
    const ports: Record<string, number> = { '443': server.port, '80': Number(new URL(model.baseUrl).port) }
    await using proxy = await startHttpProxy({ leadTo: (authority) => ports[authority.split(':')[1] ?? ''] })
    const safe = createSafeFetch({ ...standsFor('203.0.113.7'), ...LIMITS, proxyFor: () => proxy.url })
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
    try {
      const headers = { ...secrets, 'User-Agent': 'Muster' }
      expect((await safe.fetch('https://secure.example/', { headers })).status).toBe(200)
    } finally {
      vi.unstubAllEnvs()
      await safe.close()
    }
    expect(model.listings[0]).toMatchObject({ 'user-agent': 'Muster' })
    expect(JSON.stringify(model.listings)).not.toContain('secret')
  })

  it.each(['https://inside.example/', 'https://10.0.0.1/', 'http://10.0.0.1/'])(
    'a guarded request to %s, which stands for a forbidden address, never reaches the proxy',
    async (url) => {
      await using proxy = await startHttpProxy()
      const network = openNetwork({ proxyFor: () => proxy.url, guard: standsFor('10.0.0.1') })
      expect((await causeOf(network.fetch(url))).name).toBe('ForbiddenAddress')
      expect(proxy.requests).toEqual([])
      await network.close()
    },
  )
})
