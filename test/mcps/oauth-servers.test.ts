import type { RequestListener } from 'node:http'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { openAuthorization } from '../../src/mcps/oauth/authorization.ts'
import { discover } from '../../src/mcps/oauth/discovery.ts'
import { mendAnswer } from '../../src/mcps/oauth/mend-answer.ts'
import { signedIn } from '../support/browser-session.ts'
import { CONNECTED, JSON_TYPE, startOAuthLab } from './oauth-lab.ts'

// OAuth of MCP servers (contract-2.md section 2.13) against a real MCP server with an authorization server.

const {
  oauth,
  server,
  ann,
  call,
  createMcp,
  visit,
  connect,
  outcome,
  tools,
  metadata,
  resource,
  metadataWith,
  resourceWith,
  answering,
} = await startOAuthLab()

describe('an authorization server', () => {
  it('the authorization server of Microsoft is asked for scopes without a resource', async () => {
    await using authorization = openAuthorization(server.service.deps.settings, { url: oauth.url, transport: 'sse' })
    const issuer = 'https://login.microsoftonline.com/0000/v2.0'
    const request = { redirectUri: 'https://muster.example/back', scope: 'api://1/read', state: 'x' }
    const { address } = await authorization.begin({ issuer, resource: oauth.url }, { client_id: '1' }, request)
    expect(Object.fromEntries(address.searchParams)).toMatchObject({ scope: 'api://1/read', client_id: '1' })
    expect(address.searchParams.has('resource')).toBe(false)
  })

  it.each([
    ['https://login.microsoftonline.com/0000/v2.0', 'api://1/read offline_access'],
    ['https://accounts.example', null],
  ])('only an authorization server of Microsoft gets the scope with a refresh: %s', async (issuer, scope) => {
    await using authorization = openAuthorization(server.service.deps.settings, { url: oauth.url, transport: 'sse' })
    const grant = {
      issuer,
      metadata: { ...metadata, token_endpoint: `${oauth.issuer}/microsoft` } as never,
      client: { client_id: '1' },
      accessToken: 'a',
      refreshToken: 'r',
      scope: 'api://1/read api://1/.default',
      asked: 'api://1/read offline_access',
    }
    const forms: URLSearchParams[] = []
    oauth.broken['/microsoft'] = async (req, res) => {
      forms.push(new URLSearchParams(await text(req)))
      res.writeHead(200, JSON_TYPE).end(JSON.stringify({ access_token: 'b', token_type: 'Bearer' }))
    }
    expect(await authorization.refresh(grant)).toMatchObject({ accessToken: 'b', asked: grant.asked })
    expect(forms.map((form) => form.get('scope'))).toEqual([scope])
  })

  it('an authorization server behind a TLS proxy is reached although its metadata state http', async () => {
    const documents: Record<string, object> = {
      '/.well-known/oauth-protected-resource/mcp': {
        resource: 'http://mcp.example/mcp',
        authorization_servers: ['http://mcp.example'],
      },
      '/.well-known/oauth-authorization-server': {
        issuer: 'http://mcp.example',
        authorization_endpoint: 'http://mcp.example/authorize',
        token_endpoint: 'http://mcp.example/token',
        revocation_endpoint: 'http://other.example/revoke',
      },
    }
    const mcp = { url: 'https://mcp.example/mcp', transport: 'streamable-http' }
    const issuers = new Map()
    const fetch = async (address: string | URL, init: RequestInit = {}) => {
      const { protocol, pathname } = new URL(address)
      const document = protocol === 'https:' ? documents[pathname] : undefined
      const answer = document ? Response.json(document) : new Response(null, { status: 404 })
      return mendAnswer(answer, init, { address, resource: mcp.url, issuers })
    }
    const send = async () => new Response(null, { status: 401 })
    expect(await discover(mcp, { send, fetch, issuers })).toMatchObject({
      issuer: 'http://mcp.example',
      resource: 'http://mcp.example/mcp',
      metadata: {
        issuer: 'http://mcp.example',
        authorization_endpoint: 'https://mcp.example/authorize',
        token_endpoint: 'https://mcp.example/token',
        revocation_endpoint: 'http://other.example/revoke',
      },
    })
  })

  it('an authorization server whose metadata state another issuer behind its address is used', async () => {
    const tenant = `${oauth.issuer}/tenant`
    resourceWith({ authorization_servers: [tenant] })
    answering('/.well-known/oauth-authorization-server/tenant', metadata)
    expect(outcome(await connect(await createMcp()))).toEqual(CONNECTED)
  })

  it.each([
    ['is used if the issuer states the same endpoints', {}, true],
    ['is refused if the issuer has other endpoints', { token_endpoint: 'https://evil.example/token' }, false],
    ['is refused if the issuer revokes elsewhere', { revocation_endpoint: 'https://evil.example/revoke' }, false],
  ])('an authorization server that repeats the metadata of another one %s', async (_, changes, isUsed) => {
    const own = {
      issuer: 'https://accounts.example',
      authorization_endpoint: 'https://accounts.example/authorize',
      token_endpoint: 'https://tokens.example/token',
      revocation_endpoint: 'https://tokens.example/revoke',
    }
    const documents: Record<string, object> = {
      'https://mcp.example/.well-known/oauth-authorization-server': { ...own, ...changes },
      'https://accounts.example/.well-known/openid-configuration': own,
    }
    const mcp = { url: 'https://mcp.example/mcp', transport: 'streamable-http' }
    const issuers = new Map()
    const fetch = async (address: string | URL, init: RequestInit = {}) => {
      const document = documents[String(address)]
      const answer = document ? Response.json(document) : new Response(null, { status: 404 })
      return mendAnswer(answer, init, { address, resource: mcp.url, issuers })
    }
    const send = async () => new Response(null, { status: 401 })
    const found = discover(mcp, { send, fetch, issuers })
    if (isUsed) expect(await found).toMatchObject({ issuer: own.issuer, metadata: own })
    else await expect(found).rejects.toThrow('Issuer mismatch')
  })

  it.each([
    ['https://login.microsoftonline.com/0a1b2c3d-0000/v2.0', null],
    ['https://login.microsoftonline.com/a/b/v2.0', 'issuer mismatch'],
    ['https://evil.example/0a1b2c3d-0000/v2.0', 'issuer mismatch'],
  ])('Microsoft for all tenants answers as the tenant of the account: %s', async (iss, problem) => {
    await using authorization = openAuthorization(server.service.deps.settings, { url: oauth.url, transport: 'sse' })
    const issuer = 'https://login.microsoftonline.com/{tenantid}/v2.0'
    const token_endpoint = `${oauth.issuer}/common/token`
    const answer = { query: new URLSearchParams({ code: 'x', iss }), redirectUri: 'https://a.b/c', verifier: 'v' }
    answering('/common/token', { access_token: 'a', token_type: 'Bearer' })
    const entra = { issuer, metadata: { ...metadata, issuer, token_endpoint } as never }
    const redeemed = authorization.redeem(entra, { client_id: '1' }, { ...answer, scope: undefined })
    if (problem) await expect(redeemed).rejects.toThrow(problem)
    else expect(await redeemed).toMatchObject({ accessToken: 'a', issuer })
  })

  it('an authorization server of Google is asked for a refresh token', async () => {
    await using authorization = openAuthorization(server.service.deps.settings, { url: oauth.url, transport: 'sse' })
    const request = { redirectUri: 'https://muster.example/back', scope: 'read', state: 'x' }
    const { address } = await authorization.begin(
      { issuer: 'https://accounts.google.com/' },
      { client_id: '1' },
      request,
    )
    expect(Object.fromEntries(address.searchParams)).toMatchObject({ access_type: 'offline', prompt: 'consent' })
  })

  it.each<[string, (fields: Record<string, unknown>) => boolean]>([
    ['the scope of a registration', (fields) => 'scope' in fields],
    ['clients with a secret', (fields) => fields.token_endpoint_auth_method !== 'none'],
  ])('an authorization server that refuses %s gets a plainer one', async (_, isRefused) => {
    const id = await createMcp()
    oauth.broken['/register'] = async (req, res) => {
      const fields = JSON.parse(await text(req))
      if (isRefused(fields)) return res.writeHead(403, JSON_TYPE).end('{"error":"insufficient_scope"}')
      const isPublic = fields.token_endpoint_auth_method === 'none'
      const client = { ...fields, client_id: 'plain', ...(!isPublic && { client_secret: 'its secret' }) }
      oauth.clients.set('plain', client)
      return res.writeHead(201, JSON_TYPE).end(JSON.stringify(client))
    }
    expect(outcome(await connect(id))).toEqual(CONNECTED)
  })

  it.each([
    { error: 'invalid_target' },
    { error: 'invalid_request', error_description: 'Unknown parameter: resource' },
  ])('an authorization server whose page refuses the resource with %o is asked without it', async (answer) => {
    const id = await createMcp()
    oauth.answer = answer
    const { headers } = await signedIn(server, ann.userId)
    const { body } = await call(ann, 'POST', `/mcps/${id}/connect`)
    const back = await visit(await visit(body.url, headers))
    oauth.answer = {}
    oauth.knowsResources = false
    const again = await visit(back, headers)
    expect([again.pathname, again.searchParams.has('resource')]).toEqual(['/authorize', false])
    expect(outcome(await visit(back, headers))).toEqual(['/app/mcps', 'expired'])
    const before = oauth.forms.length
    expect(outcome(await visit(await visit(again), headers))).toEqual(CONNECTED)
    expect(oauth.forms.slice(before).map((form) => form.get('resource'))).toEqual([null])
  })

  it('an authorization server that refuses a scope gets a new registration', async () => {
    const id = await createMcp()
    oauth.answer = { error: 'invalid_scope' }
    const refused = await connect(id)
    expect([...outcome(refused), refused.searchParams.get('code')]).toEqual(['/app/mcps', 'refused', 'invalid_scope'])
    oauth.answer = {}
    const before = oauth.clients.size
    expect(outcome(await connect(id))).toEqual(CONNECTED)
    expect(oauth.clients.size).toBe(before + 1)
  })

  const editing = (field: string, change: (body: object) => object | string) => {
    oauth.edit = (body) => (field in body ? change(body) : body)
  }
  const page = (path: string) => {
    oauth.broken[path] = (_, res) => void res.writeHead(200, { 'Content-Type': 'text/html' }).end('<html>')
  }
  const RESOURCE = '/.well-known/oauth-protected-resource/mcp'
  const below = `${oauth.issuer}/below`
  const absent: RequestListener = (_, res) => void res.writeHead(404).end()
  /** Moves the authorization server below a path. `fields`: those of the metadata of the MCP server. */
  const moved = (fields: object) => {
    metadataWith({ issuer: `${below}/` })
    oauth.answer = { iss: `${below}/` }
    oauth.broken['/.well-known/oauth-authorization-server'] = absent
    answering('/below/.well-known/oauth-authorization-server', oauth.metadata)
    answering(RESOURCE, { ...resource, authorization_servers: [below], ...fields })
  }
  it.each<[string, () => void]>([
    ['that answers with forms', () => editing('access_token', (body) => `${new URLSearchParams({ ...body })}`)],
    [
      'that sends null and no type of its tokens',
      () => editing('access_token', (body) => ({ ...body, token_type: null, scope: null, id_token: null })),
    ],
    [
      "that has Slack's form of tokens",
      () => editing('access_token', (body) => ({ ok: true, authed_user: { ...body, token_type: 'user' } })),
    ],
    ['that lists scopes', () => editing('access_token', (body) => ({ ...body, scope: ['read'] }))],
    [
      'that registers with null and empty addresses',
      () => editing('client_id', (body) => ({ ...body, redirect_uris: null, contacts: null, logo_uri: '' })),
    ],
    [
      'whose metadata have null and no response types',
      () => metadataWith({ response_types_supported: undefined, scopes_supported: null, jwks_uri: null }),
    ],
    [
      'whose issuer ends with a slash',
      () => Object.assign(metadataWith({ issuer: `${oauth.issuer}/` }), { answer: { iss: `${oauth.issuer}/` } }),
    ],
    [
      'whose MCP server states an address of its metadata that only it knows',
      () => {
        oauth.broken['/mcp'] = (_, res) => {
          delete oauth.broken['/mcp']
          const header = 'Bearer resource_metadata="http://127.0.0.1:1/.well-known/oauth-protected-resource"'
          res.writeHead(401, { 'WWW-Authenticate': header }).end()
        }
      },
    ],
    [
      'that has metadata of OpenID Connect alone, and fails at other addresses',
      () => {
        oauth.broken['/.well-known/oauth-authorization-server'] = (_, res) => void res.writeHead(500).end()
        answering('/.well-known/openid-configuration', metadata)
      },
    ],
    ['that knows no resources', () => Object.assign(oauth, { knowsResources: false })],
    ['whose resource ends with a slash', () => resourceWith({ resource: `${oauth.url}/` })],
    [
      'whose metadata have texts for lists, and other fields of a wrong form',
      () =>
        metadataWith({
          response_types_supported: 'code',
          code_challenge_methods_supported: 'plain S256',
          registration_endpoint_auth: 'none',
          jwks_uri: 'none',
          ui_locales_supported: 'en',
        }),
    ],
    ['below a path, with its metadata at the end of its address', () => moved({})],
    [
      'of an MCP server whose metadata have no resource, and texts for lists',
      () => moved({ resource: undefined, authorization_servers: below, bearer_methods_supported: 'header' }),
    ],
    [
      'of an MCP server that states one, and none in a list',
      () => moved({ authorization_servers: null, authorization_server: below }),
    ],
    [
      'behind one without metadata',
      () => moved({ authorization_servers: [`${oauth.issuer}/nowhere`, 'http://127.0.0.1:1', below] }),
    ],
    [
      'of an MCP server whose own metadata are at the end of its address',
      () => {
        moved({})
        oauth.broken['/mcp/.well-known/oauth-protected-resource'] = oauth.broken[RESOURCE]
        oauth.broken[RESOURCE] = absent
      },
    ],
    [
      "that has Apigee's type of tokens",
      () => editing('access_token', (body) => ({ ...body, token_type: 'BearerToken' })),
    ],
    [
      'that names clients with numbers',
      () =>
        editing('client_id', (body) => {
          oauth.clients.set('7', body as Record<string, unknown>)
          return { ...body, client_id: 7 }
        }),
    ],
    [
      'that reads secrets in forms alone',
      () => {
        oauth.broken['/token'] = (req, res) => {
          if (req.headers.authorization) res.writeHead(401, JSON_TYPE).end('{"error":"invalid_client"}')
          else void oauth.token(req, res)
        }
      },
    ],
    [
      'that is named by the address of its metadata',
      () => resourceWith({ authorization_servers: [`${metadata.issuer}/.well-known/oauth-authorization-server`] }),
    ],
    [
      'whose issuer has a path, but whose metadata are at the root',
      () => {
        const issuer = `${metadata.issuer}/tenant`
        metadataWith({ issuer })
        resourceWith({ authorization_servers: [issuer] })
      },
    ],
    ['whose site answers every address with a page', () => page('/.well-known/oauth-protected-resource/mcp')],
  ])('%s connects a user, and refreshes the tokens', async (_, change) => {
    const id = await createMcp()
    change()
    oauth.expiresIn = 1
    expect(outcome(await connect(id))).toEqual(CONNECTED)
    const before = oauth.forms.length
    expect((await tools(id)).status).toBe(200)
    expect(oauth.forms[before]?.get('grant_type')).toBe('refresh_token')
    expect((await call(ann, 'DELETE', `/mcps/${id}/connection`)).body).toMatchObject({ revoked: true })
  })
})
