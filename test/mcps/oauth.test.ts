import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { createLocalBus } from '../../src/bus/local.ts'
import { agentFor } from '../../src/executions/agent-for.ts'
import { createEngine } from '../../src/executions/engine/engine.ts'
import { openTools } from '../../src/executions/tools.ts'
import { ok } from '../support/api.ts'
import { signedIn } from '../support/browser-session.ts'
import { startOAuthMcp } from '../support/oauth-mcp.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { CONNECTED, JSON_TYPE, startOAuthLab } from './oauth-lab.ts'

// OAuth of MCP servers (contract-2.md section 2.13) against a real MCP server with an authorization server.

const {
  model,
  oauth,
  server,
  ann,
  bob,
  call,
  createMcp,
  visit,
  connect,
  browserOf,
  outcome,
  tools,
  mcpOf,
  metadata,
  metadataWith,
  resourceWith,
  answering,
  hanging,
  refusing,
  redirecting,
  endless,
} = await startOAuthLab()

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
    [200, 'read'],
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
