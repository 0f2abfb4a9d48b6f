import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { isIP } from 'node:net'
import { createCookieReader } from './auth/session-cookie.ts'
import type { Deps } from './deps.ts'
import { type AppError, methodNotAllowed, toAppError, toBody, unavailable } from './errors.ts'
import { sendJson } from './http/body.ts'
import { digestTag, sendTagged } from './http/conditional.ts'
import { type Connection, createContext } from './http/context.ts'
import { createCors } from './http/cors.ts'
import { createHostCheck } from './http/hosts.ts'
import { createLargeReads } from './http/large-reads.ts'
import { logRequest, report } from './http/log.ts'
import { checkProtocol } from './http/malformed.ts'
import { noSuchPath } from './http/no-such-path.ts'
import { pathOf } from './http/paths.ts'
import { handleRest } from './http/rest.ts'
import { routeOf } from './http/route-names.ts'
import { nextReadBatch } from './http/turn.ts'
import { createUnreadLimit } from './http/unread.ts'
import { newId } from './lib/id.ts'
import { onceDone } from './lib/once.ts'
import { doorOf } from './protocols/doors.ts'
import type { Settings } from './settings.ts'
import type { Context } from './trpc.ts'

/** Number of unsent bytes of one response that triggers a check of all unread responses (1 MiB). */
const LARGE = 1024 * 1024
/** Paths whose answers depend on the caller, so that no shared cache may store them. */
const OF_CALLER = /^\/(?:api\/(?!docs|openapi|health|version)|trpc\/|graphql|openai\/|mcp|a2a\/)/
const PROBES: ReadonlySet<string> = new Set(['/healthz', '/readyz', '/api/health'])

/** Body of `/readyz` besides its status; null while the server is not ready. */
export type Readiness = {
  /** Set while runs and missions are held back, see pause.ts. */
  status?: 'paused'
  /** Whether this server receives notifications or polls; only if there may be other servers. */
  notices?: 'listening' | 'polling'
  /** Why the database refuses writes; missing while it accepts them. */
  writes?: 'disk_full' | 'read_only'
} | null

/**
 * Creates the HTTP handler of the service, by the prefix table of contract.md section 0. A server that only executes
 * runs serves only health checks.
 */
export function createApp(deps: Deps, ready: () => Promise<Readiness>): RequestListener {
  const { settings } = deps
  const hosts = createHostCheck(settings)
  if (hosts.isOpen) {
    deps.log.warn('every Host header is accepted: set PUBLIC_URL or ALLOWED_HOSTS to the names that this service has')
  }
  const allowCrossOrigin = createCors(settings, deps.log)
  const unread = createUnreadLimit(settings, deps.log)
  const readCookie = createCookieReader(settings)
  const largeReads = createLargeReads(settings)
  // Imported at the first request, because they take half of the start-up time.
  const openapi = onceDone(async () => {
    const json = JSON.stringify((await import('./http/openapi.ts')).createDocument(settings))
    return { json, etag: digestTag(json) }
  })
  const trpc = () => import('./http/trpc.ts')
  const docs = () => import('./http/docs.ts')
  const pages = () => import('./http/pages/pages.ts')
  const signIn = () => import('./http/sign-in.ts')
  const mcpSignIn = () => import('./http/mcp-sign-in.ts')
  const welcome = () => import('./http/welcome.ts')
  const consoleFiles = () => import('./http/console.ts')
  const discovery = () => import('./http/discovery.ts')
  const graphql = onceDone(async () => (await import('./graphql/server.ts')).createGraphql(settings))

  async function sendReadiness(_: IncomingMessage, res: ServerResponse): Promise<void> {
    const readiness = await ready()
    if (!readiness) throw unavailable()
    sendJson(res, 200, { success: true, status: 'ok', ...readiness })
  }

  async function sendMcpMetadata(_: IncomingMessage, res: ServerResponse): Promise<void> {
    if (!settings.MCP_AUTHORIZATION_SERVER) throw noSuchPath()
    sendJson(res, 200, (await discovery()).describeMcp(settings, settings.MCP_AUTHORIZATION_SERVER))
  }

  /** Answers to GET of paths that need no caller. */
  const fixed = new Map<string, (req: IncomingMessage, res: ServerResponse) => unknown>([
    ['/healthz', (_, res) => sendJson(res, 200, { success: true, status: 'ok' })],
    ['/readyz', sendReadiness],
    ['/api/health', sendReadiness],
    ['/api/openapi.json', async (req, res) => sendTagged(req, res, await openapi())],
    ['/api/version', async (_, res) => sendJson(res, 200, (await discovery()).version())],
    ['/api/docs', async (_, res) => (await docs()).sendDocs(res)],
    ['/.well-known/muster.json', async (_, res) => sendJson(res, 200, (await discovery()).describeService(settings))],
    ['/.well-known/oauth-protected-resource', sendMcpMetadata],
    ['/.well-known/oauth-protected-resource/mcp', sendMcpMetadata],
    [
      '/llms.txt',
      async (_, res) => {
        const text = (await discovery()).llmsText(settings)
        res.writeHead(200, { 'Content-Type': 'text/markdown; charset=utf-8' }).end(text)
      },
    ],
  ])

  async function route(context: Context, req: IncomingMessage, res: ServerResponse): Promise<unknown> {
    const path = pathOf(req)
    if (settings.ROLE === 'worker' && !PROBES.has(path)) throw noSuchPath()
    const door = doorOf(path)
    if (door) return door(context, req, res)
    if (path.startsWith('/api/auth/oidc/')) return (await signIn()).handleSignIn(context, path, req, res)
    if (path.startsWith('/api/mcps/oauth/')) return (await mcpSignIn()).handleMcpSignIn(context, path, req, res)
    if (/^\/api\/(auth|v1|spaces|agent|usage|tokens|files|public)\//.test(path)) return handleRest(context, req, res)
    if (path.startsWith('/trpc/')) {
      return (await trpc()).handleTrpc(context, path.slice('/trpc/'.length), req, res)
    }
    if (path === '/graphql') return (await graphql())(context, req, res)
    return routePage(path, req, res)
  }

  /** Sends a page or a document of the service. */
  async function routePage(path: string, req: IncomingMessage, res: ServerResponse): Promise<unknown> {
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      throw routeOf('GET', path) === 'other' ? noSuchPath(path) : methodNotAllowed(['GET', 'HEAD'])
    }
    if (path.startsWith('/app/') && (await (await pages()).sendPages(settings, path, req, res))) return
    if (path === '/app' || path.startsWith('/app/')) return (await consoleFiles()).sendConsole(settings, path, req, res)
    if (!path.startsWith('/api/') && (await welcome()).sendWelcome(settings, path, req, res)) return
    if (path.startsWith('/api/docs/')) return (await docs()).sendDocs(res, path.slice('/api/docs/'.length))
    const send = fixed.get(path)
    if (!send) throw noSuchPath(path)
    return send(req, res)
  }

  /** Begins to handle a request. Not async, because an open stream would then retain its context. */
  function begin(connection: Connection, req: IncomingMessage, res: ServerResponse) {
    const context = createContext(deps, connection, req, res)
    return { forget: unread.watch(res, context.authenticate), handled: route(context, req, res) }
  }

  return async (req, res) => {
    const requestId = requestIdOf(req)
    res.setHeader('X-Request-Id', requestId)
    // Browsers must not take an answer for another type, such as a text of a tenant for a page.
    res.setHeader('X-Content-Type-Options', 'nosniff')
    const started = performance.now()
    const ip = addressOf(req, settings)
    deps.telemetry.request?.(res, req.method ?? '', () => routeOf(req.method ?? '', pathOf(req)))
    let forget: (() => void) | undefined
    res.on('close', () => {
      forget?.()
      logRequest(deps, req, res, { requestId, ip, ms: Math.round(performance.now() - started) })
    })
    try {
      checkProtocol(req)
      toOriginForm(req)
      dropFinalSlash(req)
      if (!PROBES.has(pathOf(req))) hosts.check(req)
      await nextReadBatch()
      if (OF_CALLER.test(req.url ?? '')) {
        res.setHeader('Vary', 'Authorization, Cookie, X-Organization')
        res.setHeader('Cache-Control', 'private')
      }
      if (allowCrossOrigin(req, res)) return
      const begun = begin({ requestId, ip, readCookie, largeReads }, req, res)
      forget = begun.forget
      await begun.handled
      if (res.writableLength > LARGE) unread.check()
    } catch (error) {
      sendError(deps, toAppError(error), res, requestId)
    }
  }
}

/** Removes scheme and host from an absolute request target. The host counts instead of the header (RFC 9112, 3.2.2). */
function toOriginForm(req: IncomingMessage): void {
  if (req.url?.startsWith('/')) return
  req.url = req.url?.replace(/^https?:\/\/([^/?#]*)\/?/i, (_, host: string) => {
    req.headers.host = host
    return '/'
  })
}

/**
 * Removes a slash at the end of the path, which base addresses of clients often have. Addresses in the console's pages
 * and in the reference page are relative, so these paths keep it.
 */
function dropFinalSlash(req: IncomingMessage): void {
  if (!/^\/(?:app|api\/docs)\//.test(req.url ?? '')) req.url = req.url?.replace(/^([^?]*[^/?])\/(?=\?|$)/, '$1')
}

const requestIdOf = (req: IncomingMessage): string => {
  const given = req.headers['x-request-id']
  return typeof given === 'string' && /^[\w.:-]{1,128}$/.test(given) ? given : newId()
}

function sendError(deps: Deps, error: AppError, res: ServerResponse, requestId: string): void {
  report(deps, error, requestId)
  if (res.headersSent) res.destroy()
  else sendJson(res, error.status, toBody(error, requestId), error.headers)
}

/**
 * Returns the client address: the peer of the connection, or the last `X-Forwarded-For` entry of a trusted proxy. Azure's
 * gateways write the port behind it, which differs for each connection. Squid may write `unknown`.
 */
function addressOf(req: IncomingMessage, { TRUST_PROXY }: Settings): string | undefined {
  const peer = req.socket.remoteAddress
  if (!TRUST_PROXY) return peer
  const last =
    String(req.headers['x-forwarded-for'] ?? '')
      .split(',')
      .at(-1)
      ?.trim() ?? ''
  const address = last.replace(/^\[(.+)\](?::\d+)?$|^([\d.]+):\d+$/, '$1$2')
  return isIP(address) ? address : peer
}
