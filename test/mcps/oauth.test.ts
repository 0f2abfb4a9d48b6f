import { randomBytes, randomUUID } from 'node:crypto'
import type { RequestListener } from 'node:http'
import { text } from 'node:stream/consumers'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { createLocalBus } from '../../src/bus/local.ts'
import { createEngine } from '../../src/executions/engine/engine.ts'
import { AuthorizationNeeded } from '../../src/executions/engine/run/abort.ts'
import { agentFor } from '../../src/executions/execute.ts'
import { openTools } from '../../src/executions/tools.ts'
import { connect as connectTo } from '../../src/mcps/connect.ts'
import { openAuthorization } from '../../src/mcps/oauth/authorization.ts'
import { authorized } from '../../src/mcps/oauth/bearer.ts'
import { discover } from '../../src/mcps/oauth/discovery.ts'
import { mendAnswer } from '../../src/mcps/oauth/mend-answer.ts'
import { ok } from '../support/api.ts'
import { signedIn } from '../support/browser-session.ts'
import { createFolder } from '../support/folder.ts'
import { startModelServer } from '../support/model-server.ts'
import { signInTo, startOAuthMcp, visitPage } from '../support/oauth-mcp.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

// OAuth of MCP servers (contract-2.md section 2.13) against a real MCP server with an authorization server.

const model = await use(startModelServer())
const oauth = await use(startOAuthMcp())
const server = await use(startServer({ ...model.env, ALLOW_PRIVATE_NETWORK: 'true' }))
const ann = await server.member({ organization: 'Acme' })
const bob = await server.member({ organization: 'Acme' })
const pristine = () => ({
  answer: {},
  broken: {},
  account: 'ada@example.org',
  expiresIn: 3600,
  neededScope: '',
  neededStatus: 403,
  knowsResources: true,
})
const { metadata, resource, edit, refusal } = oauth
afterEach(() => Object.assign(oauth, pristine(), { metadata, resource, edit, refusal }))

const call = (who: Member, method: string, path: string, body?: object) =>
  request(server, method, `/api/v1${path}`, { token: who.token, ...(body && { body }) })

async function createMcp(fields: object = {}, who = ann): Promise<string> {
  return (await ok(call(who, 'POST', '/mcps', { name: 'Guarded', url: oauth.url, auth: 'oauth', ...fields }))).id
}

const visit = (address: string | URL, headers: Record<string, string> = {}) => visitPage(server, address, headers)

/** Connects a member as in a browser. Returns the last address, in the console. */
const connect = async (id: string, who = ann): Promise<URL> =>
  signInTo(server, id, who, await signedIn(server, who.userId))

const browserOf = async ({ userId }: Member) => (await signedIn(server, userId)).headers

const outcome = ({ pathname, searchParams }: URL) => [pathname, searchParams.get('connection')]
const CONNECTED = ['/app/mcps', 'connected']

const tools = (id: string, who = ann) => call(who, 'GET', `/mcps/${id}/tools`)
const mcpOf = async (id: string, who = ann) => (await call(who, 'GET', `/mcps/${id}`)).body.mcp

describe('a member', () => {
  it('connects in a browser, uses the tools, and disconnects', async () => {
    const id = await createMcp()
    expect(await mcpOf(id)).toMatchObject({ auth: 'oauth', connection: 'none', connectedAs: null })
    expect(await tools(id)).toMatchObject({
      status: 409,
      body: { message: 'You are not connected to this MCP server' },
    })
    const page = await connect(id)
    expect(outcome(page)).toEqual(CONNECTED)
    expect(page.searchParams.get('mcp')).toBe(id)
    expect(await mcpOf(id)).toMatchObject({ connection: 'connected', connectedAs: 'ada@example.org' })
    expect((await tools(id)).status).toBe(200)
    const gone = await call(ann, 'DELETE', `/mcps/${id}/connection`)
    expect(gone.body).toMatchObject({ success: true, revoked: true })
    expect(oauth.refresh.get(oauth.revoked.at(-1) ?? '')?.isRevoked).toBe(true)
    expect(await mcpOf(id)).toMatchObject({ connection: 'none', connectedAs: null })
    expect((await tools(id)).status).toBe(409)
    expect((await call(ann, 'DELETE', `/mcps/${id}/connection`)).status).toBe(404)
  })
})

describe('a sign-in', () => {
  it('sends PKCE, resource and the redirect address, and registers the service once', async () => {
    const id = await createMcp({ scope: 'read write' })
    const before = oauth.clients.size
    const browser = await signedIn(server, ann.userId)
    const { url } = (await call(ann, 'POST', `/mcps/${id}/connect`)).body
    const asked = await visit(url, browser.headers)
    expect(Object.fromEntries(asked.searchParams)).toMatchObject({
      response_type: 'code',
      code_challenge_method: 'S256',
      resource: oauth.url,
      scope: 'read write',
      redirect_uri: expect.stringMatching(/\/api\/mcps\/oauth\/callback$/),
    })
    expect(outcome(await visit(await visit(asked), browser.headers))).toEqual(CONNECTED)
    expect(outcome(await connect(id, bob))).toEqual(CONNECTED)
    expect(oauth.clients.size).toBe(before + 1)
    expect([...oauth.clients.values()].at(-1)).toMatchObject({ grant_types: ['authorization_code', 'refresh_token'] })
  })

  it.each<[string, (id: string) => Promise<unknown>]>([
    [
      'the user has not returned from the authorization server',
      async (id) => visit((await call(ann, 'POST', `/mcps/${id}/connect`)).body.url, await browserOf(ann)),
    ],
    [
      'the secret of the service has ended',
      (id) => {
        oauth.edit = (body) => ('client_secret' in body ? { ...body, client_secret_expires_at: 1 } : body)
        return connect(id)
      },
    ],
  ])('registers the service again if %s', async (_, begin) => {
    const id = await createMcp()
    await begin(id)
    oauth.clients.clear()
    expect(outcome(await connect(id))).toEqual(CONNECTED)
    expect(oauth.clients.size).toBe(1)
  })

  it('uses the document of the service if the authorization server can read it, else registers', async () => {
    const { settings } = server.service.deps
    settings.PUBLIC_URL = 'https://m.example'
    const own = await browserOf(ann)
    const clientOf = async (id: string) => {
      const { url } = await ok(call(ann, 'POST', `/mcps/${id}/connect`))
      return (await visit(url, own)).searchParams.get('client_id')
    }
    try {
      const document = 'https://m.example/api/mcps/oauth/client.json'
      const methods = { token_endpoint_auth_methods_supported: ['client_secret_basic'] }
      const metadata = metadataWith({ client_id_metadata_document_supported: true }).metadata
      const id = await createMcp()
      expect(await clientOf(id)).toBe(document)
      // The user has not returned.
      expect(await clientOf(id)).toMatch(/^client-/)
      metadataWith({ ...metadata, ...methods })
      expect(await clientOf(await createMcp())).toMatch(/^client-/)
      metadataWith({ ...metadata, ...methods, registration_endpoint: null })
      expect(await clientOf(await createMcp())).toBe(document)
    } finally {
      delete settings.PUBLIC_URL
    }
  })

  it('works once, and only in the session and for the user that began it', async () => {
    const id = await createMcp()
    const [own, second, other] = [
      await signedIn(server, ann.userId),
      await signedIn(server, ann.userId),
      await signedIn(server, bob.userId),
    ]
    const { url } = (await call(ann, 'POST', `/mcps/${id}/connect`)).body
    expect((await visit(url)).pathname).toBe('/app/sign-in')
    expect(outcome(await visit(url, other.headers))[1]).toBe('other_user')
    const opened = await Promise.all([visit(url, own.headers), visit(url, own.headers)])
    const [asked, ...more] = opened.toSorted((page) => (page.searchParams.has('state') ? -1 : 1))
    expect(more.map((page) => outcome(page)[1])).toEqual(['expired'])
    expect(outcome(await visit(url, own.headers))[1]).toBe('expired')
    const back = await visit(asked!)
    expect(outcome(await visit(back, other.headers))[1]).toBe('other_user')
    expect(outcome(await visit(back, second.headers))[1]).toBe('other_user')
    expect(outcome(await visit(back))[1]).toBe('other_user')
    expect(await mcpOf(id)).toMatchObject({ connection: 'none' })
    const both = await Promise.all([visit(back, own.headers), visit(back, own.headers)])
    expect(both.map((page) => outcome(page)[1]).sort()).toEqual(['connected', 'expired'])
    expect(outcome(await visit(back, own.headers))[1]).toBe('expired')
  })

  it.each<[string, (id: string) => Promise<unknown>]>([
    [
      'ten minutes have passed',
      (mcpId) => server.service.deps.db.mcpSignIn.updateMany({ where: { mcpId }, data: { expiresAt: new Date() } }),
    ],
    [
      'the address of the server has changed, even if it changes back',
      async (id) => {
        await ok(call(ann, 'PATCH', `/mcps/${id}`, { url: `${oauth.url}?moved` }))
        await ok(call(ann, 'PATCH', `/mcps/${id}`, { url: oauth.url }))
      },
    ],
    ['its user has disconnected', (id) => ok(call(ann, 'DELETE', `/mcps/${id}/connection`))],
  ])('has ended once %s', async (_, end) => {
    const id = await createMcp()
    await connect(id)
    const own = await browserOf(ann)
    const begin = async (): Promise<string> => (await ok(call(ann, 'POST', `/mcps/${id}/connect`))).url
    const url = await begin()
    const back = await visit(await visit(await begin(), own))
    await end(id)
    const before = oauth.forms.length
    for (const page of [url, back]) expect(outcome(await visit(page, own))[1]).toBe('expired')
    expect(oauth.forms.length).toBe(before)
  })

  it.each<[string, (id: string, leaver: Member) => Promise<unknown>]>([
    [
      'the membership',
      async (_, leaver) => {
        const owner = await server.member({ organization: 'Acme', role: 'owner' })
        await ok(call(owner, 'DELETE', `/organizations/${owner.organizationId}/members/${leaver.userId}`))
      },
    ],
    ['the address of the server', (id) => ok(call(ann, 'PATCH', `/mcps/${id}`, { url: `${oauth.url}?moved` }))],
  ])('stores no tokens, and revokes them, if %s ends while they are fetched', async (_, end) => {
    const id = await createMcp()
    const leaver = await server.member({ organization: 'Acme' })
    const access_token = `late-${id}`
    oauth.broken['/token'] = async (_, res) => {
      await end(id, leaver)
      res.writeHead(200, JSON_TYPE).end(JSON.stringify({ access_token, token_type: 'bearer' }))
    }
    expect(outcome(await connect(id, leaver))).toEqual(['/app/mcps', 'moved'])
    expect(await server.service.deps.db.mcpConnection.count({ where: { mcpId: id } })).toBe(0)
    expect(oauth.revoked).toContain(access_token)
  })

  it('replaces the oldest one of its user that is not finished beyond five', async () => {
    const id = await createMcp()
    const urls: string[] = []
    for (let count = 0; count < 6; count++) urls.push((await ok(call(ann, 'POST', `/mcps/${id}/connect`))).url)
    const own = await browserOf(ann)
    expect(outcome(await visit(urls[0]!, own))[1]).toBe('expired')
    for (const url of urls.slice(1)) expect((await visit(url, own)).pathname).toBe('/authorize')
  })

  it.each([
    ['the server is deleted', 404],
    ['the server moves', 409],
    ['the membership ends', 409],
  ] as const)('is refused if %s while it is prepared', async (what, status) => {
    const { db } = server.service.deps
    const cal = await server.member({ organization: 'Acme' })
    const id = await createMcp()
    oauth.broken['/.well-known/oauth-authorization-server'] = async (_, res) => {
      if (what === 'the server is deleted') await db.mcpServer.deleteMany({ where: { id } })
      else if (what === 'the server moves')
        await db.mcpServer.updateMany({ where: { id }, data: { url: 'https://x.y' } })
      else await db.membership.deleteMany({ where: { userId: cal.userId } })
      res.writeHead(200, JSON_TYPE).end(JSON.stringify(metadata))
    }
    expect(await call(cal, 'POST', `/mcps/${id}/connect`)).toMatchObject({ status })
  })

  it('asks no private address unless ALLOW_PRIVATE_NETWORK is set', async () => {
    await using closed = await startServer(model.env)
    const options = { body: { name: 'Guarded', url: oauth.url, auth: 'oauth' } }
    const { id } = await ok(request(closed, 'POST', '/api/v1/mcps', options))
    const { status, body } = await request(closed, 'POST', `/api/v1/mcps/${id}/connect`)
    expect([status, body.detail]).toEqual([502, expect.stringMatching(/its address is not allowed/)])
  })

  it.each<[string, () => void]>([
    [
      'the answer is of another issuer (mix-up)',
      () => Object.assign(oauth, { answer: { iss: 'https://evil.example' } }),
    ],
    ['the answer has no issuer', () => Object.assign(oauth, { answer: { iss: '' } })],
    ['the code was injected', () => Object.assign(oauth, { answer: { code: 'code-of-somebody-else' } })],
    ['the user denies it', () => Object.assign(oauth, { answer: { error: 'access_denied' } })],
    ['the answer has an error beside the code', () => Object.assign(oauth, { answer: { error: 'entraerror' } })],
    [
      'the token endpoint redirects',
      () => {
        redirecting('/token', `${oauth.issuer}/steal`)
        answering('/steal', { access_token: 'a', token_type: 'bearer' })
      },
    ],
    ['the tokens are no bearer tokens', () => answering('/token', { access_token: 'a', token_type: 'mac' })],
    ['a token would break a header', () => answering('/token', { access_token: 'a\r\nX: y', token_type: 'bearer' })],
    [
      'a refresh token would break a header',
      () => answering('/token', { access_token: 'a', refresh_token: 'a\r\nX: y', token_type: 'bearer' }),
    ],
    ['a token is too long', () => answering('/token', { access_token: 'a'.repeat(16_385), token_type: 'bearer' })],
    ['the token endpoint answers endlessly', () => endless('/token')],
  ])('fails without a connection if %s', async (_, breakIt) => {
    const id = await createMcp()
    breakIt()
    expect(outcome(await connect(id))).toEqual(['/app/mcps', 'refused'])
    expect(await mcpOf(id)).toMatchObject({ connection: 'none' })
  })

  it.each<[string, () => void, RegExp]>([
    ['has other metadata than its own', () => metadataWith({ issuer: 'https://evil.example' }), /issuer mismatch/],
    ['has no PKCE', () => metadataWith({ code_challenge_methods_supported: ['plain'] }), /cannot be used/],
    ['registers nobody', () => metadataWith({ registration_endpoint: undefined }), /give a clientId/],
    [
      'refuses its address',
      () => refusing('/register', { error: 'invalid_redirect_uri' }),
      /\(invalid_redirect_uri\): give a/,
    ],
    ['has no endpoint for tokens', () => metadataWith({ token_endpoint: null }), /not valid \(token_endpoint\)/],
    ['has no page for users', () => metadataWith({ authorization_endpoint: null }), /no page .* client_credentials/],
    ['refuses with a text', () => refusing('/register', { error: 'Its secret' }), /\(an error\): give a/],
    ['is endless', () => endless('/.well-known/oauth-authorization-server'), /too large/],
    ['is broken', () => answering('/.well-known/oauth-authorization-server', [1]), /no metadata/],
    ['hangs', () => hanging('/mcp'), /cannot be reached: it did not answer in time/],
    [
      'leads elsewhere',
      () => {
        const { port } = new URL(oauth.issuer)
        redirecting('/.well-known/oauth-authorization-server', `http://localhost:${port}/elsewhere`)
        answering('/elsewhere', metadata)
      },
      /redirects to another host/,
    ],
    ['has a page that is no web page', () => metadataWith({ authorization_endpoint: 'ftp://x/y' }), /./],
    ['is for another resource', () => resourceWith({ resource: 'https://evil.example/mcp' }), /not its own address/],
  ])('is refused with the reason if the authorization server %s', async (_, breakIt, reason) => {
    const id = await createMcp()
    breakIt()
    const answer = await call(ann, 'POST', `/mcps/${id}/connect`)
    if (answer.status === 200) {
      const { headers } = await signedIn(server, ann.userId)
      expect(outcome(await visit(answer.body.url, headers))[1]).toBe('refused')
    } else {
      expect(answer).toMatchObject({ status: 502, body: { code: 'mcp_unreachable' } })
      expect(answer.body.detail).toMatch(reason)
    }
  })
})

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

const metadataWith = (fields: object) => Object.assign(oauth, { metadata: { ...metadata, ...fields } })
const resourceWith = (fields: object) => Object.assign(oauth, { resource: { ...resource, ...fields } })
const JSON_TYPE = { 'Content-Type': 'application/json' }
const answering = (path: string, body: unknown) => {
  oauth.broken[path] = (_, res) => void res.writeHead(200, JSON_TYPE).end(JSON.stringify(body))
}
/** Lets a page hang, with short time limits until it is asked. */
const hanging = (path: string) => {
  const timeout = AbortSignal.timeout.bind(AbortSignal)
  const shorter = vi.spyOn(AbortSignal, 'timeout').mockImplementation((ms) => timeout(Math.min(ms, 200)))
  oauth.broken[path] = () => shorter.mockRestore()
}
const refusing = (path: string, body: object) => {
  oauth.broken[path] = (_, res) => void res.writeHead(400, JSON_TYPE).end(JSON.stringify(body))
}
const redirecting = (path: string, Location: string) => {
  oauth.broken[path] = (_, res) => void res.writeHead(307, { Location }).end()
}
const endless = (path: string) => {
  oauth.broken[path] = (_, res) => {
    res.writeHead(200, JSON_TYPE)
    const pour = () => {
      while (!res.destroyed && res.write(' '.repeat(64 * 1024)));
      if (!res.destroyed) res.once('drain', pour)
    }
    pour()
  }
}

describe('the tokens', () => {
  it('are encrypted, and neither an answer nor the log has them', async () => {
    const id = await createMcp()
    await connect(id)
    const row = await server.service.deps.db.mcpConnection.findFirstOrThrow({ where: { mcpId: id } })
    const issued = [...oauth.access.keys(), ...oauth.refresh.keys()]
    const texts = [Buffer.from(row.sealed).toString('latin1'), JSON.stringify(await mcpOf(id)), ...server.logs]
    for (const text of texts) for (const token of issued) expect(text).not.toContain(token)
  })

  it('are refreshed once, however many servers do it at the same time', async () => {
    const id = await createMcp()
    oauth.expiresIn = 1
    await connect(id)
    oauth.expiresIn = 3600
    const { deps } = server.service
    const row = await deps.db.mcpServer.findUniqueOrThrow({ where: { id } })
    const before = oauth.forms.length
    const { bearerFor } = await import('../../src/mcps/oauth/connections.ts')
    const bearers = await Promise.all(
      Array.from({ length: 8 }, () => bearerFor(deps, row, ann.userId, new AbortController().signal)),
    )
    const tokens = new Set(await Promise.all(bearers.map((bearer) => bearer?.token())))
    expect(tokens.size).toBe(1)
    expect(oauth.forms.slice(before).map((form) => form.get('grant_type'))).toEqual(['refresh_token'])
    expect((await tools(id)).status).toBe(200)
  })

  it('are stored although the request that needed them did not wait for the slow refresh', async () => {
    const id = await createMcp()
    oauth.expiresIn = 1
    await connect(id)
    oauth.expiresIn = 3600
    const { promise: isAwaited, resolve: answer } = Promise.withResolvers<void>()
    oauth.broken['/token'] = (req, res) => isAwaited.then(() => oauth.token(req, res))
    const timeout = AbortSignal.timeout.bind(AbortSignal)
    const shorter = vi.spyOn(AbortSignal, 'timeout').mockImplementation((ms) => timeout(ms === 10_000 ? 200 : ms))
    const late = await tools(id).finally(() => shorter.mockRestore())
    expect(late).toMatchObject({ status: 502, body: { detail: expect.stringContaining('does not answer in time') } })
    answer()
    await expect.poll(async () => (await tools(id)).status).toBe(200)
  })

  it('are revoked after a refresh during which their user disconnects', async () => {
    const id = await createMcp()
    oauth.expiresIn = 1
    await connect(id)
    oauth.expiresIn = 3600
    const [isAsked, mayAnswer] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    // The new tokens are given out, and arrive later.
    oauth.broken['/token'] = (req, res) => {
      const end = res.end.bind(res)
      res.end = (text: unknown) => {
        isAsked.resolve()
        void mayAnswer.promise.then(() => end(text))
        return res
      }
      return oauth.token(req, res)
    }
    const listed = tools(id)
    await isAsked.promise
    expect((await call(ann, 'DELETE', `/mcps/${id}/connection`)).status).toBe(200)
    mayAnswer.resolve()
    expect((await listed).status).toBe(409)
    const [latest, token] = [...oauth.refresh].at(-1)!
    expect([token.isRevoked, oauth.revoked.at(-1)]).toEqual([true, latest])
  })

  it('are stored before a server stops, although the run that needed them has ended', async () => {
    await using folder = await createFolder()
    const start = () =>
      startServer({ ...model.env, ALLOW_PRIVATE_NETWORK: 'true', DRAIN_TIMEOUT: '60' }, { folder: folder.path })
    let own = await start()
    const eva = await own.member({ organization: 'Acme' })
    const body = { name: 'Guarded', url: oauth.url, auth: 'oauth' }
    const { id } = await ok(request(own, 'POST', '/api/v1/mcps', { token: eva.token, body }))
    oauth.expiresIn = 1
    await signInTo(own, id, eva, await signedIn(own, eva.userId))
    oauth.expiresIn = 3600
    const isAsked = Promise.withResolvers<void>()
    const mayAnswer = Promise.withResolvers<void>()
    oauth.broken['/token'] = (req, res) => {
      isAsked.resolve()
      return mayAnswer.promise.then(() => oauth.token(req, res))
    }
    const { deps } = own.service
    const row = await deps.db.mcpServer.findUniqueOrThrow({ where: { id } })
    const run = new AbortController()
    const { bearerFor } = await import('../../src/mcps/oauth/connections.ts')
    const token = (await bearerFor(deps, row, eva.userId, run.signal))!.token()
    await isAsked.promise
    run.abort()
    await expect(token).rejects.toThrow()
    const { drain } = deps.engine
    // Later than the time in which a server closes that does not wait.
    deps.engine.drain = () => drain().finally(() => setTimeout(mayAnswer.resolve, 200))
    await own[Symbol.asyncDispose]()
    oauth.broken = {}
    own = await start()
    expect((await request(own, 'GET', `/api/v1/mcps/${id}/tools`, { token: eva.token })).status).toBe(200)
    await own[Symbol.asyncDispose]()
  })

  it.each([0, 2 ** 63])('last until they are refused if their lifetime is %s', async (expires_in) => {
    const id = await createMcp()
    oauth.edit = (body) => ('access_token' in body ? { ...body, expires_in, refresh_token: undefined } : body)
    await connect(id)
    expect((await tools(id)).status).toBe(200)
  })

  it('end with the access token if there is no refresh token', async () => {
    const id = await createMcp()
    oauth.edit = (body) => ('access_token' in body ? { ...body, refresh_token: undefined } : body)
    await connect(id)
    const { mcpConnection } = server.service.deps.db
    await mcpConnection.updateMany({ where: { mcpId: id }, data: { expiresAt: new Date() } })
    expect((await tools(id)).status).toBe(409)
    expect(await mcpOf(id)).toMatchObject({ connection: 'expired' })
  })

  it('stay if the authorization server is away, and end if it refuses them', async () => {
    const id = await createMcp()
    oauth.expiresIn = 1
    await connect(id)
    const failures: [number, string][] = [
      [503, ''],
      [500, '{"status":500,"error":"Internal Server Error"}'],
      [429, '{"error":"rate_limit_exceeded"}'],
      [404, '{"error":"Not Found"}'],
    ]
    for (const [status, body] of failures) {
      oauth.broken['/token'] = (_, res) => void res.writeHead(status, JSON_TYPE).end(body)
      expect(await tools(id)).toMatchObject({ status: 502 })
      expect(await mcpOf(id)).toMatchObject({ connection: 'connected' })
    }
    delete oauth.broken['/token']
    oauth.refresh.clear()
    expect((await tools(id)).status).toBe(409)
    expect(await mcpOf(id)).toMatchObject({ connection: 'expired' })
    oauth.expiresIn = 3600
    await connect(id)
    expect(await mcpOf(id)).toMatchObject({ connection: 'connected' })
  })

  it.each<[number, object]>([
    [400, { error: 'invalid_request' }],
    [401, { message: 'Expired' }],
    [200, { error: 'bad_refresh_token' }],
  ])('end if the authorization server refuses them with %s and %j', async (status, body) => {
    const id = await createMcp()
    oauth.expiresIn = 1
    await connect(id)
    oauth.broken['/token'] = (_, res) => void res.writeHead(status, JSON_TYPE).end(JSON.stringify(body))
    expect((await tools(id)).status).toBe(409)
    expect(await mcpOf(id)).toMatchObject({ connection: 'expired' })
  })

  it.each<[string, number, string]>([
    ['401', 401, ''],
    ['400 with its reason', 400, ', error="invalid_token"'],
    ['403 with its reason', 403, ', error="invalid_token"'],
    ['403 about a scope that they have', 403, ', error="insufficient_scope", scope="read"'],
  ])('are replaced if the server answers an ended access token with %s', async (_, ...answer) => {
    const id = await createMcp()
    await connect(id)
    oauth.refusal = answer
    for (const [token] of oauth.access) oauth.access.delete(token)
    expect((await tools(id)).status).toBe(200)
  })

  it('are not asked for again if a call needs a scope that was asked for and not granted', async () => {
    const id = await createMcp({ scope: 'read write' })
    oauth.edit = (body) => ('access_token' in body ? { ...body, scope: 'read' } : body)
    oauth.expiresIn = 1
    await connect(id)
    const { deps } = server.service
    const row = await deps.db.mcpServer.findUniqueOrThrow({ where: { id } })
    const { bearerFor } = await import('../../src/mcps/oauth/connections.ts')
    const bearer = await bearerFor(deps, row, ann.userId, new AbortController().signal)
    await bearer?.token()
    await expect(bearer?.widen('write')).resolves.toBeUndefined()
    await expect(bearer?.widen('admin')).rejects.toThrow(AuthorizationNeeded)
  })

  it('are not replaced if the server answers 401 for a session that it has lost', async () => {
    const id = await createMcp()
    await connect(id)
    const { deps } = server.service
    const row = await deps.db.mcpServer.findUniqueOrThrow({ where: { id } })
    const { signal } = new AbortController()
    const mcp = await connectTo(deps, row, signal, { userId: ann.userId, spaceId: null, isForeign: false })
    const [tool] = mcp.tools
    const before = oauth.forms.length
    oauth.broken['/mcp'] = (_, res) => {
      delete oauth.broken['/mcp']
      res.writeHead(401).end('Unauthorized: Session not found')
    }
    const { content, isError } = await mcp.call(tool?.name ?? '', { text: 'Hi' }, signal)
    await mcp.close()
    expect([content, isError, oauth.forms.length - before]).toEqual(['Hi', false, 0])
  })

  it.each(['GET', 'DELETE'])('are not replaced if the server answers %s with 401', async (method) => {
    const id = await createMcp()
    await connect(id)
    const before = oauth.forms.length
    const refused: string[] = []
    oauth.broken['/mcp'] = (req, res) => {
      if (req.method !== method) return false
      refused.push(method)
      return res.writeHead(401).end()
    }
    expect((await tools(id)).status).toBe(200)
    expect(refused).toEqual([method])
    expect(oauth.forms).toHaveLength(before)
  })

  it('are replaced if the server answers that the session of an ended access token has expired', async () => {
    const id = await createMcp()
    await connect(id)
    for (const [token] of oauth.access) oauth.access.delete(token)
    oauth.broken['/mcp'] = (_, res) => {
      delete oauth.broken['/mcp']
      res.writeHead(401).end('Your session has expired')
    }
    expect((await tools(id)).status).toBe(200)
  })

  it('are sent to the address that they were given for only', async () => {
    const id = await createMcp()
    await connect(id)
    const other = await startOAuthMcp()
    try {
      await call(ann, 'PATCH', `/mcps/${id}`, { url: other.url })
      expect(await mcpOf(id)).toMatchObject({ connection: 'none' })
      expect((await tools(id)).status).toBe(409)
      expect(other.bearers).toEqual([])
      await call(ann, 'PATCH', `/mcps/${id}`, { url: oauth.url })
      expect(await mcpOf(id)).toMatchObject({ connection: 'none' })
    } finally {
      await other[Symbol.asyncDispose]()
    }
  })

  it('end with the membership, and are revoked', async () => {
    const id = await createMcp()
    const leaver = await server.member({ organization: 'Acme' })
    await connect(id, leaver)
    const [token] = [...oauth.refresh.keys()].slice(-1)
    const owner = await server.member({ organization: 'Acme', role: 'owner' })
    const path = `/organizations/${owner.organizationId}/members/${leaver.userId}`
    expect((await call(owner, 'DELETE', path)).status).toBe(200)
    const { mcpConnection } = server.service.deps.db
    expect(await mcpConnection.count({ where: { userId: leaver.userId } })).toBe(0)
    await expect.poll(() => oauth.revoked).toContain(token)
  })

  describe('of a user that the command line removes', () => {
    /** Connects a new member of Acme. Returns the member's e-mail and refresh token. */
    async function connected() {
      const email = `${randomUUID()}@example.org`
      await connect(await createMcp(), await server.member({ organization: 'Acme', email }))
      const [token = ''] = [...oauth.refresh.keys()].slice(-1)
      return { email, token }
    }

    async function remove({ email, token }: { email: string; token: string }, env: Record<string, string> = {}) {
      const { code, out, err } = await runAdmin(['user', 'remove', email, '--org', 'acme', '--json'], {
        DATA_DIR: server.folder,
        ALLOW_PRIVATE_NETWORK: 'true',
        ...env,
      })
      expect(code, err).toBe(0)
      expect(await server.service.deps.db.membership.count({ where: { user: { email } } })).toBe(0)
      expect(err).not.toContain(token)
      return { err, connections: JSON.parse(out).connections }
    }

    it('are revoked before the command ends', async () => {
      const leaver = await connected()
      expect(await remove(leaver)).toEqual({ err: '', connections: { deleted: 1, revoked: 1 } })
      expect(oauth.revoked).toContain(leaver.token)
    })

    it('are deleted with one line in the log if the authorization server does not answer in time', async () => {
      const leaver = await connected()
      oauth.broken['/revoke'] = () => {}
      const timeout = AbortSignal.timeout.bind(AbortSignal)
      const shorter = vi.spyOn(AbortSignal, 'timeout').mockImplementation((ms) => timeout(Math.min(ms, 200)))
      try {
        const { err, connections } = await remove(leaver)
        expect(JSON.parse(err)).toMatchObject({ failed: 1, msg: 'failed to revoke deleted tokens of users' })
        expect(connections).toEqual({ deleted: 1, revoked: 0 })
      } finally {
        shorter.mockRestore()
      }
    })

    it('are deleted with one line in the log without the encryption key', async () => {
      const leaver = await connected()
      const { err } = await remove(leaver, { ENCRYPTION_KEY: randomBytes(32).toString('base64') })
      expect(JSON.parse(err)).toMatchObject({ count: 1, msg: expect.stringContaining('failed to read deleted tokens') })
      expect(oauth.revoked).not.toContain(leaver.token)
    })

    it('are not revoked by the command line of a copy', async () => {
      const leaver = await connected()
      const { err } = await remove(leaver, { PAUSED: 'true' })
      expect(JSON.parse(err)).toMatchObject({ err: { message: 'the service is paused' } })
      expect(oauth.revoked).not.toContain(leaver.token)
    })
  })

  it.each<[string, string, object?]>([
    ['the address of the server changes', 'PATCH', { url: 'http://127.0.0.1:1/elsewhere' }],
    ['the authentication of the server changes', 'PATCH', { auth: 'none' }],
    ['the server is deleted', 'DELETE'],
  ])('the tokens of all members are revoked if %s', async (_, method, change) => {
    const id = await createMcp()
    for (const who of [ann, bob]) await connect(id, who)
    const tokens = [...oauth.refresh.keys()].slice(-2)
    expect((await call(ann, method, `/mcps/${id}`, change)).status).toBe(200)
    await expect.poll(() => oauth.revoked).toEqual(expect.arrayContaining(tokens))
  })

  it('are deleted without waiting for their revocation, whose failure is one line in the log', async () => {
    const id = await createMcp()
    for (const who of [ann, bob]) await connect(id, who)
    const asked: (() => void)[] = []
    oauth.broken['/revoke'] = (_, res) =>
      void asked.push(() => void res.writeHead(503).end(`${[...oauth.refresh.keys()]}`))
    expect((await call(ann, 'DELETE', `/mcps/${id}`)).status).toBe(200)
    await expect.poll(() => asked.length).toBe(2)
    const lines = () => server.logs.filter((line) => line.includes('failed to revoke') && line.includes(id))
    expect(lines()).toEqual([])
    for (const answer of asked) answer()
    await expect.poll(() => lines().length).toBe(1)
    expect(JSON.parse(lines()[0]!)).toMatchObject({ failed: 2, err: { message: expect.stringContaining('503') } })
    for (const token of oauth.refresh.keys()) expect(lines()[0]).not.toContain(token)
  })

  it('are revoked only after the transaction of a disconnection with an Idempotency-Key', async () => {
    const id = await createMcp()
    await connect(id)
    const asked: (() => void)[] = []
    oauth.broken['/revoke'] = (_, res) => void asked.push(() => void res.writeHead(200).end())
    const options = { token: ann.token, headers: { 'Idempotency-Key': id } }
    const disconnect = () => request(server, 'DELETE', `/api/v1/mcps/${id}/connection`, options)
    expect((await disconnect()).body).toMatchObject({ success: true, revoked: false })
    await expect.poll(() => asked.length).toBe(1)
    asked[0]?.()
    expect((await disconnect()).body).toMatchObject({ success: true, revoked: false })
    expect(asked.length).toBe(1)
  })

  it.each([
    ['revokes nothing', undefined],
    ['revokes over plain http', 'http://authorization.example/revoke'],
  ])('are deleted alone if the authorization server %s', async (_, revocation_endpoint) => {
    metadataWith({ revocation_endpoint })
    const id = await createMcp()
    await connect(id)
    const before = oauth.revoked.length
    expect((await call(ann, 'DELETE', `/mcps/${id}/connection`)).body).toMatchObject({ success: true, revoked: false })
    expect(oauth.revoked.length).toBe(before)
    expect(server.logs.filter((line) => line.includes('failed to revoke') && line.includes(id))).toEqual([])
  })

  it('go to the origin of the server only', async () => {
    const sent: (string | null)[] = []
    const bearer = { token: async () => 'its token', renew: async () => '', widen: async () => {}, forget() {} }
    const send = authorized(
      async (_, init) => {
        sent.push(new Headers(init?.headers).get('Authorization'))
        return new Response()
      },
      bearer,
      'https://mcp.example',
      { refusal: null, error: null, needed: null },
      () => {},
    )
    for (const url of ['https://mcp.example/a', 'https://mcp.example:444/', 'http://mcp.example/']) await send(url)
    expect(sent).toEqual(['Bearer its token', null, null])
  })

  it('belong to their member alone', async () => {
    const id = await createMcp()
    await connect(id)
    expect(await mcpOf(id, bob)).toMatchObject({ connection: 'none', connectedAs: null })
    expect((await tools(id, bob)).status).toBe(409)
    const eve = await server.member({ organization: 'Evil & Co' })
    for (const [method, path] of [
      ['POST', 'connect'],
      ['DELETE', 'connection'],
    ] as const) {
      expect((await call(eve, method, `/mcps/${id}/${path}`)).status).toBe(404)
    }
  })
})

describe('a client', () => {
  it('a client that was given by hand is used, and its secret goes to one issuer only', async () => {
    oauth.clients.set('by-hand', { client_secret: 'by hand' })
    const id = await createMcp({ clientId: 'by-hand', clientSecret: 'by hand' })
    expect(await mcpOf(id)).toMatchObject({ clientId: 'by-hand', clientSecretSet: true })
    expect(JSON.stringify(await mcpOf(id))).not.toContain('by hand')
    expect(outcome(await connect(id))).toEqual(CONNECTED)
    const other = await startOAuthMcp()
    try {
      resourceWith({ authorization_servers: [other.issuer] })
      const answer = await call(ann, 'POST', `/mcps/${id}/connect`)
      expect(answer.body.detail).toMatch(/has changed to .*: give the clientSecret again/)
      await call(ann, 'PATCH', `/mcps/${id}`, { url: `${oauth.url}?moved` })
      expect(await mcpOf(id)).toMatchObject({ clientSecretSet: false })
    } finally {
      await other[Symbol.asyncDispose]()
    }
  })

  it('signs in as itself with client credentials', async () => {
    oauth.clients.set('machine', { client_secret: 'machine secret' })
    const fields = { auth: 'client_credentials', clientId: 'machine' }
    const bad = await call(ann, 'POST', '/mcps', { name: 'Guarded', url: oauth.url, ...fields })
    expect(bad).toMatchObject({ status: 400, body: { message: 'Missing required field: clientSecret' } })
    const id = await createMcp({ ...fields, clientSecret: 'machine secret' })
    const before = oauth.forms.length
    for (const who of [ann, bob]) expect((await tools(id, who)).status).toBe(200)
    expect(oauth.forms.slice(before).map((form) => form.get('grant_type'))).toEqual(['client_credentials'])
    expect((await call(ann, 'POST', `/mcps/${id}/connect`)).status).toBe(409)
  })

  it('names the audience to a server that refuses client credentials without one', async () => {
    const fields = { auth: 'client_credentials', clientId: 'machine', clientSecret: 'machine secret' }
    const id = await createMcp(fields)
    oauth.broken['/token'] = async (req, res) => {
      const audience = new URLSearchParams(await text(req)).get('audience')
      const error = { error: 'access_denied', error_description: 'No audience parameter was provided' }
      if (audience !== oauth.resource.resource) return res.writeHead(403, JSON_TYPE).end(JSON.stringify(error))
      oauth.access.set('for-audience', { account: 'the service', scope: '', isRevoked: false })
      return res.writeHead(200, JSON_TYPE).end('{"access_token":"for-audience","token_type":"Bearer"}')
    }
    expect((await tools(id)).status).toBe(200)
  })

  it.each([400, 201])(
    'is refused if its registration answers %i and nonsense, which no log repeats',
    async (status) => {
      const id = await createMcp()
      oauth.broken['/register'] = (_, res) => void res.writeHead(status).end('its secret')
      const answer = await call(ann, 'POST', `/mcps/${id}/connect`)
      expect(answer.status).toBe(502)
      for (const text of [JSON.stringify(answer.body), ...server.logs]) expect(text).not.toContain('its secret')
    },
  )
})

describe('a run', () => {
  const agentWith = async (id: string) =>
    (await call(ann, 'POST', '/agents', { name: 'A', systemPrompt: 'x', mcpInstanceIds: [id] })).body.id

  /** Calls the first tool that is there of some, each once, and then answers. */
  const calling = (...names: string[]) => {
    model.fallback = ({ body: { tools: offered = [], messages } }) => {
      const called = JSON.stringify(messages)
      const known = offered.map((tool: any) => tool.function.name)
      const name = names.find((each) => known.includes(each) && !called.includes(`"name":"${each}"`))
      return name ? { toolCalls: [{ id: `call-${name}`, name, input: { text: 'Hi' } }] } : { tokens: 'Done' }
    }
  }

  const begin = async (agentId: string, who = ann): Promise<string> =>
    (await call(who, 'POST', `/agents/${agentId}/execute`, { message: 'Hello', background: true })).body.executionId

  const execution = async (id: string) => (await call(ann, 'GET', `/executions/${id}`)).body.execution
  const messages = async (id: string): Promise<any[]> =>
    (await call(ann, 'GET', `/executions/${id}/logs`)).body.logs.map(({ data }: any) => data)

  it('waits until its user has connected, never with the tokens of another', async () => {
    const id = await createMcp()
    await connect(id, bob)
    calling('connect_to_Guarded', 'echo')
    const runId = await begin(await agentWith(id))
    await expect.poll(async () => (await execution(runId)).waitingFor).toBe('authorization')
    const event = (await messages(runId)).find(({ messageType }) => messageType === 'authorization')
    expect(event).toMatchObject({ mcpId: id, mcpName: 'Guarded', name: 'connect_to_Guarded' })
    expect(JSON.stringify(event)).not.toContain('http')
    oauth.bearers.length = 0
    await connect(id)
    await expect.poll(async () => (await execution(runId)).status).toBe('completed')
    expect(oauth.mcp.calls.at(-1)).toEqual({ tool: 'echo', input: { text: 'Hi' } })
    expect(new Set(oauth.bearers.map((bearer) => oauth.access.get(bearer)?.account))).toEqual(
      new Set(['ada@example.org']),
    )
  })

  it('tells clients of MCP and A2A at once that it waits for its user', async () => {
    const agentId = await agentWith(await createMcp())
    calling('connect_to_Guarded', 'echo')
    const send = async (path: string, method: string, params: object) => {
      const body = { jsonrpc: '2.0', id: 1, method, params }
      const options = { body, token: ann.token, headers: { Accept: 'application/json' } }
      return (await request(server, 'POST', path, options)).body.result
    }
    const input = { id: agentId, message: 'Hello' }
    const called = await send('/mcp', 'tools/call', { name: 'run_agent', arguments: input })
    const approvalsUrl = expect.stringMatching(/\/app\/mcps$/)
    expect(called.structuredContent).toMatchObject({ waitingFor: 'authorization', approvalsUrl })
    expect(called.content[0].text).toContain('until its user connects')
    const message = { kind: 'message', messageId: 'm', role: 'user', parts: [{ kind: 'text', text: 'Hello' }] }
    const task = await send(`/a2a/agents/${agentId}`, 'message/send', { message })
    expect(task.status.state).toBe('auth-required')
  })

  it('continues at once if its user has connected before it waits', async () => {
    const id = await createMcp()
    const agentId = await agentWith(id)
    calling('echo')
    const connected = Promise.withResolvers<string>()
    const name = 'connect_to_Guarded'
    model.script({ tokens: [connected.promise], toolCalls: [{ id: 'call-connect', name, input: {} }] })
    const { length } = model.requests
    const runId = await begin(agentId)
    await model.request(length)
    await connect(id)
    connected.resolve('One moment.')
    await expect.poll(async () => (await execution(runId)).status).toBe('completed')
    const waited = (await messages(runId)).map(({ messageType }) => messageType)
    expect(waited).toContain('authorization')
  })

  it.each([
    [403, 'read'],
    [401, 'read,profile'],
  ])('asks for the scope that a call needs after a %i, beside the scope "%s"', async (status, scope) => {
    const id = await createMcp()
    oauth.neededStatus = status
    oauth.edit = (body) => ('access_token' in body ? { ...body, scope } : body)
    await connect(id)
    oauth.edit = (body) => body
    const agentId = await agentWith(id)
    const before = oauth.mcp.calls.length
    // Listing the tools needs no scope: only the call is refused.
    calling('echo')
    model.script(() => {
      oauth.neededScope = 'write'
      return { toolCalls: [{ id: 'call-echo', name: 'echo', input: { text: 'Hi' } }] }
    })
    const runId = await begin(agentId)
    await expect.poll(async () => (await execution(runId)).waitingFor).toBe('authorization')
    const { url } = (await call(ann, 'POST', `/mcps/${id}/connect`)).body
    const { headers } = await signedIn(server, ann.userId)
    const asked = await visit(url, headers)
    expect(asked.searchParams.get('scope')).toBe(`${scope.replace(',', ' ')} write`)
    await visit(await visit(asked), headers)
    await expect.poll(async () => (await execution(runId)).status).toBe('completed')
    expect(oauth.mcp.calls.length).toBe(before + 1)
  })

  it('continues without the call if its user does not connect in time', async () => {
    const id = await createMcp()
    calling('connect_to_Guarded')
    const runId = await begin(await agentWith(id))
    await expect.poll(async () => (await execution(runId)).waitingFor).toBe('authorization')
    const { deps } = server.service
    await deps.db.execution.update({ where: { id: runId }, data: { waitingSince: new Date(0) } })
    // The maintenance of another process finds it at its start.
    const other = createEngine({
      ...deps,
      bus: createLocalBus(),
      agentFor,
      openTools: (user) => openTools(deps, user),
    })
    await other.start(false)
    await expect.poll(async () => (await execution(runId)).status).toBe('completed')
    await other.drain()
    const result = (await messages(runId)).find(({ messageType }) => messageType === 'tool_result')
    expect(result).toMatchObject({ isError: true, content: expect.stringMatching(/did not connect .* in time/) })
  })
})
