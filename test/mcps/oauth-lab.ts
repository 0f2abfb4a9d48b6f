import { afterEach, vi } from 'vitest'
import { ok } from '../support/api.ts'
import { signedIn } from '../support/browser-session.ts'
import { startModelServer } from '../support/model-server.ts'
import { signInTo, startOAuthMcp, visitPage } from '../support/oauth-mcp.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

export const CONNECTED = ['/app/mcps', 'connected']
export const JSON_TYPE = { 'Content-Type': 'application/json' }

/**
 * Starts a server beside a real MCP server with an authorization server, and returns what tests of OAuth do with them.
 * Each test begins with the usual answers of both.
 */
export async function startOAuthLab() {
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

  const tools = (id: string, who = ann) => call(who, 'GET', `/mcps/${id}/tools`)
  const mcpOf = async (id: string, who = ann) => (await call(who, 'GET', `/mcps/${id}`)).body.mcp

  const metadataWith = (fields: object) => Object.assign(oauth, { metadata: { ...metadata, ...fields } })
  const resourceWith = (fields: object) => Object.assign(oauth, { resource: { ...resource, ...fields } })
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

  return {
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
    resource,
    metadataWith,
    resourceWith,
    answering,
    hanging,
    refusing,
    redirecting,
    endless,
  }
}
