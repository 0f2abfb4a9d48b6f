import { createHash, randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import { type McpTestServer, startMcpServer } from './mcp-server.ts'
import { request } from './rest.ts'
import type { Member, TestServer } from './server.ts'

/** A token that the authorization server has given out. */
type Issued = { account: string; scope: string; isRevoked: boolean }

export type OAuthMcp = AsyncDisposable & {
  readonly mcp: McpTestServer
  readonly url: string
  /** The address of the authorization server, which shares the port. */
  readonly issuer: string
  /** Metadata of the authorization server, and of the MCP server as a resource. */
  metadata: Record<string, unknown>
  resource: Record<string, unknown>
  /** Changes answers of the authorization server. A text is sent as a form. */
  edit: (body: object) => object | string
  /** Status and error of the MCP server for a bearer token that it does not know. */
  refusal: [status: number, error: string]
  /** Replaces answers, path by path. Returns false if the server should answer. */
  broken: Partial<Record<string, (req: IncomingMessage, res: ServerResponse) => unknown>>
  /** Answers of the token endpoint. */
  readonly token: (req: IncomingMessage, res: ServerResponse) => Promise<void>
  /** The account of the next sign-ins, and fields of the answer with the code. */
  account: string
  answer: Record<string, string>
  /** Lifetime of access tokens (s), and the scope that the tools need, with the status without it (200: a result). */
  expiresIn: number
  neededScope: string
  neededStatus: number
  /** Whether the token endpoint demands the resource, instead of refusing it. */
  knowsResources: boolean
  /** Registered clients, the forms of the token endpoint, revoked tokens, and bearer tokens of the MCP server. */
  readonly clients: Map<string, Record<string, unknown>>
  readonly forms: URLSearchParams[]
  readonly revoked: string[]
  readonly bearers: string[]
  readonly access: Map<string, Issued>
  readonly refresh: Map<string, Issued>
}

const sha256 = (value: string) => createHash('sha256').update(value).digest('base64url')

/**
 * Starts an MCP server that wants OAuth, with its authorization server. It checks PKCE, codes, clients and resources.
 */
export async function startOAuthMcp(): Promise<OAuthMcp> {
  const mcp = await startMcpServer('guarded')
  const issuer = new URL(mcp.url).origin
  const codes = new Map<string, URLSearchParams & { account?: string }>()
  const accounts = new Map<string, string>()
  const json = (res: ServerResponse, status: number, body: object) => {
    const edited = server.edit(body)
    const [type, text] =
      typeof edited === 'string' ? ['x-www-form-urlencoded', edited] : ['json', JSON.stringify(edited)]
    res.writeHead(status, { 'Content-Type': `application/${type}` }).end(text)
  }

  const challengeOf = (more: string) =>
    `Bearer resource_metadata="${issuer}/.well-known/oauth-protected-resource/mcp"${more}`
  const challenge = (res: ServerResponse, status: number, more: string) =>
    void res.writeHead(status, { 'WWW-Authenticate': challengeOf(more) }).end()
  /** Refuses a call in the result of its tool. */
  async function refuseInResult(req: IncomingMessage, res: ServerResponse, more: string): Promise<void> {
    const { id } = JSON.parse(await text(req))
    const result = { content: [], isError: true, _meta: { 'mcp/www_authenticate': [challengeOf(more)] } }
    res.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify({ jsonrpc: '2.0', id, result }))
  }

  function issue(account: string, scope: string, withRefresh: boolean) {
    const issued = { account, scope, isRevoked: false }
    const [access_token, refresh_token] = [`access-${randomUUID()}`, `refresh-${randomUUID()}`]
    server.access.set(access_token, issued)
    if (withRefresh) server.refresh.set(refresh_token, issued)
    const claims = Buffer.from(JSON.stringify({ email: account })).toString('base64url')
    return {
      access_token,
      token_type: 'Bearer',
      expires_in: server.expiresIn,
      scope,
      id_token: `e30.${claims}.x`,
      ...(withRefresh && { refresh_token }),
    }
  }

  async function token(req: IncomingMessage, res: ServerResponse) {
    const form = new URLSearchParams(await text(req))
    server.forms.push(form)
    const basic = /^Basic (.*)$/.exec(req.headers.authorization ?? '')?.[1]
    const [id = '', secret] = basic
      ? atob(basic).split(':').map(decodeURIComponent)
      : [form.get('client_id') ?? '', form.get('client_secret') ?? undefined]
    const client = server.clients.get(id)
    if (!client || client.client_secret !== secret) return json(res, 401, { error: 'invalid_client' })
    const wanted = server.knowsResources ? server.resource.resource : null
    if (form.get('resource') !== wanted) return json(res, 400, { error: 'invalid_target' })
    switch (form.get('grant_type')) {
      case 'authorization_code': {
        const code = form.get('code') ?? ''
        const asked = codes.get(code)
        codes.delete(code)
        const isRight =
          asked?.get('code_challenge') === sha256(form.get('code_verifier') ?? '') &&
          asked.get('client_id') === id &&
          asked.get('redirect_uri') === form.get('redirect_uri')
        if (!asked || !isRight) return json(res, 400, { error: 'invalid_grant' })
        return json(res, 200, issue(accounts.get(code) ?? '', asked.get('scope') ?? '', true))
      }
      case 'refresh_token': {
        const used = form.get('refresh_token') ?? ''
        const found = server.refresh.get(used)
        // A refresh token works once.
        server.refresh.delete(used)
        if (!found || found.isRevoked) return json(res, 400, { error: 'invalid_grant' })
        return json(res, 200, issue(found.account, found.scope, true))
      }
      case 'client_credentials':
        return json(res, 200, issue('the service', form.get('scope') ?? '', false))
      default:
        return json(res, 400, { error: 'unsupported_grant_type' })
    }
  }

  const handlers: Record<string, (req: IncomingMessage, res: ServerResponse) => unknown> = {
    '/.well-known/oauth-protected-resource/mcp': (_, res) => json(res, 200, server.resource),
    '/.well-known/oauth-authorization-server': (_, res) => json(res, 200, server.metadata),
    async '/register'(req, res) {
      const client_id = `client-${randomUUID()}`
      const client = { ...JSON.parse(await text(req)), client_id, client_secret: 'its secret' }
      server.clients.set(client_id, client)
      json(res, 201, client)
    },
    '/authorize'(req, res) {
      const query = new URL(req.url ?? '', issuer).searchParams
      const code = `code-${randomUUID()}`
      codes.set(code, query)
      accounts.set(code, server.account)
      const back = new URL(query.get('redirect_uri') ?? '')
      back.search = `${new URLSearchParams({ code, state: query.get('state') ?? '', iss: String(server.metadata.issuer), ...server.answer })}`
      res.writeHead(302, { Location: back.href }).end()
    },
    '/token': token,
    async '/revoke'(req, res) {
      const revoked = new URLSearchParams(await text(req)).get('token') ?? ''
      server.revoked.push(revoked)
      const found = server.refresh.get(revoked) ?? server.access.get(revoked)
      if (found) found.isRevoked = true
      res.writeHead(200).end()
    },
  }

  const server: OAuthMcp = {
    mcp,
    token,
    issuer,
    url: mcp.url,
    broken: {},
    edit: (body) => body,
    refusal: [401, ''],
    account: 'ada@example.org',
    answer: {},
    expiresIn: 3600,
    neededScope: '',
    neededStatus: 403,
    knowsResources: true,
    clients: new Map(),
    forms: [],
    revoked: [],
    bearers: [],
    access: new Map(),
    refresh: new Map(),
    metadata: {
      issuer,
      authorization_endpoint: `${issuer}/authorize`,
      token_endpoint: `${issuer}/token`,
      registration_endpoint: `${issuer}/register`,
      revocation_endpoint: `${issuer}/revoke`,
      response_types_supported: ['code'],
      code_challenge_methods_supported: ['S256'],
      authorization_response_iss_parameter_supported: true,
    },
    resource: { resource: mcp.url, authorization_servers: [issuer], scopes_supported: ['read'] },
    [Symbol.asyncDispose]: () => mcp[Symbol.asyncDispose](),
  }
  mcp.guard = (req, res) => {
    const { pathname } = new URL(req.url ?? '', issuer)
    const handle = server.broken[pathname] ?? handlers[pathname]
    if (handle && handle(req, res) !== false) return true
    const bearer = /^Bearer (.*)$/.exec(req.headers.authorization ?? '')?.[1]
    if (bearer !== undefined) server.bearers.push(bearer)
    const issued = server.access.get(bearer ?? '')
    if (!issued || issued.isRevoked) {
      const [status, error] = bearer === undefined ? ([401, ''] as const) : server.refusal
      challenge(res, status, error)
      return true
    }
    const lacks = server.neededScope.split(' ').some((word) => word && !issued.scope.split(' ').includes(word))
    if (lacks && req.headers['mcp-session-id'] && req.method === 'POST') {
      const more = `, error="insufficient_scope", scope="${server.neededScope}"`
      if (server.neededStatus === 200) void refuseInResult(req, res, more)
      else challenge(res, server.neededStatus, more)
      return true
    }
    return false
  }
  return server
}

/** Visits a page as a browser. Returns the address to which it leads. */
export async function visitPage(
  { url }: TestServer,
  address: string | URL,
  headers: Record<string, string> = {},
): Promise<URL> {
  // The service does not listen at the default of PUBLIC_URL.
  const { pathname, search, origin } = new URL(address)
  const isOwn = pathname.startsWith('/api/mcps/')
  const response = await fetch((isOwn ? url : origin) + pathname + search, {
    ...(isOwn && { headers: { Cookie: headers.Cookie ?? '' } }),
    redirect: 'manual',
  })
  await response.body?.cancel()
  const location = response.headers.get('location')
  if (location === null) throw new Error(`${pathname} answered ${response.status} instead of leading on`)
  return new URL(location, address)
}

type Browser = { headers: Record<string, string> }

/** Connects a member to an MCP server as in a browser. Returns the last address, in the console. */
export async function signInTo(server: TestServer, id: string, who: Member, { headers }: Browser): Promise<URL> {
  const answer = await request(server, 'POST', `/api/v1/mcps/${id}/connect`, { token: who.token })
  if (answer.status !== 200) throw new Error(JSON.stringify(answer.body))
  const asked = await visitPage(server, answer.body.url, headers)
  return visitPage(server, await visitPage(server, asked), headers)
}
