import { randomBytes, randomUUID } from 'node:crypto'
import { text } from 'node:stream/consumers'
import { describe, expect, it, vi } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { AuthorizationNeeded } from '../../src/executions/engine/run/abort.ts'
import { connect as connectTo } from '../../src/mcps/connect.ts'
import { authorized } from '../../src/mcps/oauth/bearer.ts'
import { ok } from '../support/api.ts'
import { signedIn } from '../support/browser-session.ts'
import { createFolder } from '../support/folder.ts'
import { signInTo, startOAuthMcp } from '../support/oauth-mcp.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { JSON_TYPE, startOAuthLab } from './oauth-lab.ts'

// OAuth of MCP servers (contract-2.md section 2.13) against a real MCP server with an authorization server.

const { model, oauth, server, ann, bob, call, createMcp, connect, tools, mcpOf, metadataWith } = await startOAuthLab()

/**
 * Calls a tool of a connected server that answers the first request of the call with a refusal. Returns the answer, and
 * how often the token was renewed.
 */
async function callRefusedOnce(refuse: NonNullable<(typeof oauth.broken)[string]>) {
  const id = await createMcp()
  await connect(id)
  const { deps } = server.service
  const row = await deps.db.mcpServer.findUniqueOrThrow({ where: { id } })
  const { signal } = new AbortController()
  const mcp = await connectTo(deps, row, signal, { userId: ann.userId, spaceId: null, isForeign: false })
  const [tool] = mcp.tools
  const before = oauth.forms.length
  oauth.broken['/mcp'] = (req, res) => {
    delete oauth.broken['/mcp']
    return refuse(req, res)
  }
  const { content, isError } = await mcp.call(tool?.name ?? '', { text: 'Hi' }, signal)
  await mcp.close()
  return { content, isError, renewals: oauth.forms.length - before }
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

  it('are replaced if a tool refuses an ended access token in its result', async () => {
    const answer = await callRefusedOnce(async (req, res) => {
      const _meta = { 'mcp/www_authenticate': 'Bearer error="invalid_token"' }
      const result = { content: [{ type: 'text', text: 'Log in.' }], isError: true, _meta }
      res.writeHead(200, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: JSON.parse(await text(req)).id, result }))
    })
    expect(answer).toEqual({ content: 'Hi', isError: false, renewals: 1 })
  })

  it('are not replaced if the server answers 401 for a session that it has lost', async () => {
    const answer = await callRefusedOnce((_, res) => void res.writeHead(401).end('Unauthorized: Session not found'))
    expect(answer).toEqual({ content: 'Hi', isError: false, renewals: 0 })
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
