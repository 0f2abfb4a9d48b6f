import { createServer } from 'node:http'
import { exportJWK } from 'jose'
import { describe, expect, it, test } from 'vitest'
import { createAccessTokens } from '../../src/auth/access-tokens.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { readSettings } from '../../src/settings.ts'
import { freePort } from '../support/free-port.ts'
import { listen } from '../support/listen.ts'
import { generateKey, type Key, startOidc } from '../support/oidc.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

// The MCP server with an authorization server (contract-2.md section 6.1). PUBLIC_URL is another name of the same
// server.

const PUBLIC_URL = 'https://muster.example/base'

const oidc = await use(startOidc())
const port = await freePort()
const env = { MCP_AUTHORIZATION_SERVER: oidc.issuer, PUBLIC_URL, ALLOWED_HOSTS: '127.0.0.1', PORT: String(port) }
const all = await use(startServer(env))
const server = { url: `http://127.0.0.1:${port}`, token: all.token, all }
const ann = await all.member({ organization: 'Acme', email: 'ann@example.com' })
await all.member({ organization: 'Acme', email: 'ben@example.com' })

const HEADERS = { Accept: 'application/json, text/event-stream' }
const METADATA = `resource_metadata="${PUBLIC_URL}/.well-known/oauth-protected-resource/mcp"`

const sign = (claims: object = {}, header: object = {}, key: Key = oidc.key) =>
  oidc.sign(
    {
      iss: oidc.issuer,
      aud: `${PUBLIC_URL}/mcp`,
      sub: 'ann',
      exp: Math.floor(Date.now() / 1000) + 600,
      client_id: 'inspector',
      email: 'ann@example.com',
      email_verified: true,
      scope: 'openid tasks:write',
      ...claims,
    },
    { key, header: { typ: 'at+jwt', ...header } },
  )

const rpc = (method: string, params: object = {}) => ({ jsonrpc: '2.0', id: 1, method, params })
const post = (token: string | null, body: object = rpc('tools/list'), path = '/mcp') =>
  request(server, 'POST', path, { body, headers: HEADERS, token })

describe('an access token of the authorization server', () => {
  it('acts as its user, within its scopes', async () => {
    const token = await sign()
    const { status, body } = await post(token)
    expect(status, JSON.stringify(body)).toBe(200)
    const created = await post(token, rpc('tools/call', { name: 'create_task', arguments: { title: 'T' } }))
    const { result } = JSON.parse(String(created.body).replace(/^event: message\ndata: /, ''))
    expect(result.structuredContent.task).toMatchObject({ createdBy: ann.userId })
    const refused = await post(token, rpc('tools/call', { name: 'list_agents', arguments: {} }))
    expect(refused.status).toBe(403)
    expect(refused.headers.get('www-authenticate')).toBe(
      `Bearer error="insufficient_scope", scope="agents:read", ${METADATA}`,
    )
  })

  it.each([
    ['another audience', { aud: 'https://other.example/mcp' }, {}],
    ['another issuer', { iss: 'https://other.example' }, {}],
    ['another type', {}, { typ: 'JWT' }],
    ['no time left', { exp: 1_000_000_000 }, {}],
    ['no end', { exp: undefined }, {}],
    ['an unknown user', { sub: 'eve', email: 'eve@example.com' }, {}],
    ['an empty subject', { sub: '', email: 'ben@example.com' }, {}],
    ['a number as its subject', { sub: 5, email: 'ben@example.com' }, {}],
  ])('is refused with %s', async (_, claims, header) => {
    expect((await post(await sign(claims, header))).status).toBe(401)
  })

  it('has no scope unless it names one', async () => {
    const token = await sign({ scope: undefined })
    const { status } = await post(token, rpc('tools/call', { name: 'create_task', arguments: { title: 'T' } }))
    expect(status).toBe(403)
  })

  it('may spell its issuer with a slash at the end', async () => {
    expect((await post(await sign({ iss: `${oidc.issuer}/` }))).status).toBe(200)
  })

  it('opens nothing but the MCP server', async () => {
    expect((await request(server, 'GET', '/api/v1/tasks', { token: await sign() })).status).toBe(401)
  })
})

test.each([
  ['are used if they are of the issuer', (issuer: string) => issuer, 'of its metadata'],
  ['are ignored if they are of another issuer', () => 'https://other.example', 'of OpenID Connect'],
])('keys in the metadata of the authorization server %s', async (_, named, valid) => {
  const keys = { metadata: await generateKey(), openid: await generateKey() }
  const published = async ({ publicKey, kid, alg }: Key) => ({ keys: [{ ...(await exportJWK(publicKey)), kid, alg }] })
  const jwks = { '/metadata': await published(keys.metadata), '/openid': await published(keys.openid) }
  const http = createServer((req, res) => {
    const { url = '' } = req
    const isMetadata = url === '/.well-known/oauth-authorization-server'
    const document = {
      issuer: isMetadata ? named(issuer) : issuer,
      jwks_uri: issuer + (isMetadata ? '/metadata' : '/openid'),
    }
    res.setHeader('Content-Type', 'application/json').end(JSON.stringify(jwks[url as keyof typeof jwks] ?? document))
  })
  const issuer = `http://127.0.0.1:${await listen(http)}`
  try {
    const tokens = createAccessTokens(readSettings({ PUBLIC_URL }), issuer, systemClock)
    const verify = async (key: Key) =>
      tokens.verify(await sign({ iss: issuer }, {}, key)).then(
        () => 'valid',
        () => 'refused',
      )
    expect({ 'of its metadata': await verify(keys.metadata), 'of OpenID Connect': await verify(keys.openid) }).toEqual({
      'of its metadata': 'refused',
      'of OpenID Connect': 'refused',
      [valid]: 'valid',
    })
  } finally {
    http.close()
  }
})

describe('a client without a token', () => {
  it('learns the address of the metadata, which names the authorization server', async () => {
    const { status, headers } = await post(null)
    expect(status).toBe(401)
    expect(headers.get('www-authenticate')).toBe(`Bearer ${METADATA}`)
    for (const path of ['/.well-known/oauth-protected-resource/mcp', '/.well-known/oauth-protected-resource']) {
      expect((await request(server, 'GET', path, { token: null })).body).toMatchObject({
        resource: `${PUBLIC_URL}/mcp`,
        authorization_servers: [oidc.issuer],
        scopes_supported: expect.arrayContaining(['agents:execute']),
      })
    }
  })
})

describe('a personal access token', () => {
  it('is still accepted', async () => {
    expect((await post(ann.token)).status).toBe(200)
  })
})
