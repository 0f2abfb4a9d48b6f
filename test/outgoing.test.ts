import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { ok } from './support/api.ts'
import { startCollector } from './support/collector.ts'
import { startGitServer } from './support/git-server.ts'
import { startHttpProxy } from './support/http-proxy.ts'
import { startMcpServer } from './support/mcp-server.ts'
import { startModelServer } from './support/model-server.ts'
import { upload } from './support/multipart.ts'
import { AUDIENCE, startOidc } from './support/oidc.ts'
import { request } from './support/rest.ts'
import { startS3 } from './support/s3.ts'
import { startServer } from './support/server.ts'

// Every kind of outgoing connection of one server: models, MCP servers, S3, an OpenID provider, git, OTLP.

const authorityOf = (url: string) => new URL(url).host

let stack: AsyncDisposableStack
let far: { models: string; MCP: string; S3: string; OIDC: string; git: string; OTLP: string }
let work: (env: Record<string, string>) => Promise<void>

beforeAll(async () => {
  stack = new AsyncDisposableStack()
  const model = stack.use(await startModelServer())
  const mcp = stack.use(await startMcpServer())
  const s3 = stack.use(await startS3())
  const oidc = stack.use(await startOidc())
  const git = stack.use(await startGitServer())
  const collector = stack.use(await startCollector())
  git.commit('a.git', { 'README.md': '# Hello' })
  vi.stubEnv('GIT_SSL_CAINFO', git.caFile)
  far = {
    models: authorityOf(model.baseUrl),
    MCP: authorityOf(mcp.url),
    S3: authorityOf(s3.env.S3_ENDPOINT ?? ''),
    OIDC: authorityOf(oidc.issuer),
    git: authorityOf(git.url),
    OTLP: authorityOf(collector.url),
  }
  work = async (env) => {
    await using server = await startServer({
      ...s3.env,
      ALLOW_PRIVATE_NETWORK: 'true',
      ...model.env,
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OIDC_ISSUER: oidc.issuer,
      OIDC_AUDIENCE: AUDIENCE,
      ...env,
    })
    const post = async (path: string, body: object) => {
      return ok(request(server, 'POST', path, { body }))
    }
    const { id: mcpId } = await post('/api/v1/mcps', { name: 'Tools', url: mcp.url })
    const { id } = await post('/api/v1/agents', { name: 'A', systemPrompt: 'x', mcpInstanceIds: [mcpId] })
    model.script(
      ({ body }) => ({ toolCalls: [{ id: 'call-1', name: nameOf(body.tools, 'echo'), input: { text: 'Hello' } }] }),
      { tokens: ['Done'] },
    )
    expect((await post(`/api/v1/agents/${id}/execute`, { message: 'Hello' })).result).toBe('Done')
    expect(mcp.calls.pop()).toEqual({ tool: 'echo', input: { text: 'Hello' } })
    const { body } = await upload(server, 'of the bucket', { name: 'a.txt' })
    const headers = { Authorization: `Bearer ${server.token}` }
    const content = await fetch(`${server.url}/api/v1/media/${body.id}/content`, { headers })
    expect(await content.text()).toBe('of the bucket')
    const space = (await post('/api/v1/spaces', { name: 'Space' })).id
    expect((await post(`/api/spaces/${space}/init`, { type: 'git', url: `${git.url}/a.git` })).files).toEqual([
      'README.md',
    ])
    const token = await oidc.signIn({ sub: 'ann', email: 'ann@example.com', email_verified: true })
    // She is unknown, so the server reads her token and fetches the keys for it.
    const before = oidc.fetches.jwks
    expect((await request(server, 'POST', `/api/spaces/${space}/environment`, { token, body: {} })).status).toBe(401)
    expect(oidc.fetches.jwks).toBe(before + 1)
  }
})
afterAll(async () => {
  vi.unstubAllEnvs()
  await stack.disposeAsync()
})

/** The name of an MCP tool in requests to a model. */
const nameOf = (tools: unknown, name: string): string =>
  (tools as { function: { name: string } }[]).map((tool) => tool.function.name).find((given) => given.includes(name)) ??
  name

describe('the outgoing connections of a server', () => {
  it('all use the configured proxy', async () => {
    await using proxy = await startHttpProxy({ user: 'ann:secret' })
    await work({ HTTP_PROXY: proxy.url, HTTPS_PROXY: proxy.url })
    const through = (authority: string) => proxy.requests.some((asked) => asked.includes(authority))
    const missing = Object.entries(far).flatMap(([kind, authority]) => (through(authority) ? [] : kind))
    expect(missing).toEqual([])
  })

  it.each(['127.0.0.1,localhost', '*'])('go directly if NO_PROXY is %s', async (NO_PROXY) => {
    await using proxy = await startHttpProxy()
    await work({ HTTP_PROXY: proxy.url, HTTPS_PROXY: proxy.url, NO_PROXY })
    expect(proxy.requests).toEqual([])
  })
})
