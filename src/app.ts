import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { nodeHTTPRequestHandler } from '@trpc/server/adapters/node-http'
import type { Credentials } from './auth/actors.ts'
import { idTokenOf, userOfIdToken } from './auth/identity.ts'
import { callerOf } from './auth/rate-limits.ts'
import { createCookieReader, requireOwnPage, setCookie } from './auth/session-cookie.ts'
import type { Deps } from './deps.ts'
import {
  type AppError,
  badRequest,
  invalidField,
  methodNotAllowed,
  noSuchPath,
  toAppError,
  toBody,
  unavailable,
  unsupportedType,
} from './errors.ts'
import { isJson, sendJson } from './http/body.ts'
import { compressWritten } from './http/compress.ts'
import { digestTag, sendTagged } from './http/conditional.ts'
import { createCors } from './http/cors.ts'
import { createHostCheck } from './http/hosts.ts'
import { createRequestLimits } from './http/limits.ts'
import { checkProtocol } from './http/malformed.ts'
import { handleRest } from './http/rest.ts'
import { routeOf } from './http/route-names.ts'
import { attend } from './http/sse.ts'
import { createUnreadLimit } from './http/unread.ts'
import { newId } from './lib/id.ts'
import { percentDecoded } from './lib/text.ts'
import { nextReadBatch } from './lib/turn.ts'
import { doorOf } from './protocols/doors.ts'
import { appRouter } from './router.ts'
import type { Settings } from './settings.ts'
import { type Context, fromTRPCError, requestIds, toTRPCError } from './trpc.ts'

const MAX_BATCH = 10
const MAX_BODY = 1024 * 1024
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
  // Imported at the first request, because they take half of the start-up time.
  const openapi = once(async () => {
    const json = JSON.stringify((await import('./http/openapi.ts')).createDocument(settings))
    return { json, etag: digestTag(json) }
  })
  const docs = () => import('./http/docs.ts')
  const pages = () => import('./http/pages/pages.ts')
  const signIn = () => import('./http/sign-in.ts')
  const mcpSignIn = () => import('./http/mcp-sign-in.ts')
  const welcome = () => import('./http/welcome.ts')
  const console = () => import('./http/console.ts')
  const discovery = () => import('./http/discovery.ts')
  const graphql = once(async () => (await import('./graphql/server.ts')).createGraphql(settings))

  async function route(context: Context, req: IncomingMessage, res: ServerResponse): Promise<void> {
    const path = pathOf(req)
    if (settings.ROLE === 'worker' && !PROBES.has(path)) throw noSuchPath()
    const door = doorOf(path)
    if (door) return door(context, req, res)
    if (path.startsWith('/api/auth/oidc/')) return (await signIn()).handleSignIn(context, path, req, res)
    if (path.startsWith('/api/mcps/oauth/')) return (await mcpSignIn()).handleMcpSignIn(context, path, req, res)
    if (/^\/api\/(auth|v1|spaces|agent|usage|tokens|files|public)\//.test(path)) return handleRest(context, req, res)
    if (path.startsWith('/trpc/')) return handleTrpc(context, path.slice('/trpc/'.length), req, res)
    if (path === '/graphql') return (await graphql())(context, req, res)
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      throw routeOf('GET', path) === 'other' ? noSuchPath() : methodNotAllowed(['GET', 'HEAD'])
    }
    if (path.startsWith('/app/') && (await (await pages()).sendPages(settings, path, req, res))) return
    if (path === '/app' || path.startsWith('/app/')) return (await console()).sendConsole(settings, path, req, res)
    if (!path.startsWith('/api/') && (await welcome()).sendWelcome(settings, path, req, res)) return
    if (path.startsWith('/api/docs/')) return (await docs()).sendDocs(res, path.slice('/api/docs/'.length))
    switch (path) {
      case '/healthz':
        return sendJson(res, 200, { success: true, status: 'ok' })
      case '/readyz':
      case '/api/health': {
        const readiness = await ready()
        if (!readiness) throw unavailable()
        return sendJson(res, 200, { success: true, status: 'ok', ...readiness })
      }
      case '/api/openapi.json':
        return sendTagged(req, res, await openapi())
      case '/api/version':
        return sendJson(res, 200, (await discovery()).version())
      case '/.well-known/muster.json':
        return sendJson(res, 200, (await discovery()).describeService(settings))
      case '/.well-known/oauth-protected-resource':
      case '/.well-known/oauth-protected-resource/mcp':
        if (!settings.MCP_AUTHORIZATION_SERVER) throw noSuchPath()
        return sendJson(res, 200, (await discovery()).describeMcp(settings, settings.MCP_AUTHORIZATION_SERVER))
      case '/llms.txt':
        res.writeHead(200, { 'Content-Type': 'text/markdown; charset=utf-8' })
        return void res.end((await discovery()).llmsText(settings))
      case '/api/docs':
        return (await docs()).sendDocs(res)
      default:
        throw noSuchPath()
    }
  }

  return async (req, res) => {
    const requestId = requestIdOf(req)
    res.setHeader('X-Request-Id', requestId)
    const started = performance.now()
    const ip = addressOf(req, settings)
    deps.telemetry.request?.(res, req.method ?? '', () => routeOf(req.method ?? '', pathOf(req)))
    let forget: (() => void) | undefined
    res.on('close', () => {
      forget?.()
      logRequest(deps, req, res, { requestId, ip, ms: Math.round(performance.now() - started) })
    })
    try {
      toOriginForm(req)
      checkProtocol(req)
      if (!PROBES.has(pathOf(req))) hosts.check(req)
      await nextReadBatch()
      if (OF_CALLER.test(req.url ?? '')) {
        res.setHeader('Vary', 'Authorization, Cookie, X-Organization')
        res.setHeader('Cache-Control', 'private')
      }
      if (allowCrossOrigin(req, res)) return
      const context = createContext(deps, { requestId, ip, readCookie }, req, res)
      forget = unread.watch(res, context.authenticate)
      await route(context, req, res)
      if (res.writableLength > LARGE) unread.check()
    } catch (error) {
      sendError(deps, toAppError(error), res, requestId)
    }
  }
}

type Connection = { requestId: string; ip: string | undefined; readCookie: ReturnType<typeof createCookieReader> }

function createContext(
  deps: Deps,
  { requestId, ip, readCookie }: Connection,
  req: IncomingMessage,
  res: ServerResponse,
): Context {
  const { settings } = deps
  const path = pathOf(req)
  const documented = path.startsWith('/api/v1/')
  const isMcp = path === '/mcp' || path.startsWith('/mcp/')
  const isWrite = req.method !== 'GET' && req.method !== 'HEAD'
  const fromOwnPage = () => requireOwnPage(settings, req.headers)
  const credentials: Credentials = {
    authorization: req.headers.authorization,
    cookie: readCookie(path, req.headers),
    organization: takeOrganization(req, isWrite),
    isMcp,
    invalid: documented ? 'Unauthorized. Invalid or expired token' : 'Invalid or expired token',
    checkCookieWrite: () => {
      if (isWrite) fromOwnPage()
    },
  }
  const { authorization, cookie, organization } = credentials
  let controller: AbortController | undefined
  const closing = () => (controller ??= abortedByClose(res))
  const request = { id: requestId, address: ip }
  const count = deps.rateLimits && createRequestLimits(deps.rateLimits, deps.clock, res)
  // A batch of tRPC counts its calls. The caller counts once, however often it is authenticated.
  const calls = path.startsWith('/trpc/') ? path.split(',').length : 1
  let counted: Promise<void> | undefined
  const admit = (caller: string) => (counted ??= count!('default', caller, calls))
  const authenticate = once(async () => {
    const actor = await deps.actors.of(credentials)
    deps.keyNetworks.note(actor, request)
    if (count) await admit(callerOf(actor))
    return actor
  })
  const ofUser = async (token: string) => {
    const user = await userOfIdToken(deps, token)
    if (count) await admit(callerOf({ tokenId: '', userId: user.userId }))
    return user
  }
  // If the input names the organization of an ID token, the header is optional.
  const idToken = documented || isMcp || organization !== undefined ? undefined : idTokenOf(authorization)
  return {
    deps,
    requestId,
    authenticate,
    authenticateAgain: () => deps.actors.again(credentials),
    identify: once(async () => (idToken ? ofUser(idToken) : { actor: await authenticate() })),
    person: once(async () => {
      const person = await deps.actors.person(credentials)
      const { userId, tokenId, session } = person
      if (count) await admit(callerOf({ userId, tokenId, ...(session && { sessionId: session.id }) }))
      return person
    }),
    countCalls: count && ((actor, calls) => count('default', callerOf(actor), calls)),
    countRun: count && ((actor) => count('execute', callerOf(actor), 1)),
    client: { address: ip, userAgent: req.headers['user-agent'] },
    cookie,
    requireOwnPage: fromOwnPage,
    setCookie: (secret) => void (res.headersSent || res.setHeader('Set-Cookie', setCookie(settings, secret))),
    gone: () => closing().signal,
    streamTo: (actor) => attend(res, deps.revocations.watch(actor, closing())),
    idempotency: null,
    precondition: null,
    onAccepted: null,
  }
}

/**
 * Returns the organization that a request names: in its header or, for a read, in its query, from which it is removed.
 * Throws 400 if the two differ.
 */
function takeOrganization(req: IncomingMessage, isWrite: boolean): string | undefined {
  // A header has a slug of another script in percent-encoding.
  const header = req.headers['x-organization']
  const inHeader = typeof header === 'string' && header !== '' ? percentDecoded(header) : undefined
  const { url = '' } = req
  const start = url.indexOf('?')
  if (isWrite || start === -1 || !url.includes('organization=', start)) return inHeader
  const parts = url.slice(start + 1).split('&')
  const isNaming = (part: string) => part.startsWith('organization=')
  const [first] = parts.filter(isNaming)
  if (first === undefined) return inHeader
  const others = parts.filter((part) => !isNaming(part))
  req.url = url.slice(0, start) + (others.length ? `?${others.join('&')}` : '')
  const inQuery = new URLSearchParams(first).get('organization') || undefined
  if (inHeader !== undefined && inQuery !== undefined && inHeader !== inQuery) {
    throw invalidField(
      'organization',
      'the organization of the header X-Organization',
      'Send the parameter or the header, or the same organization in both.',
    )
  }
  return inHeader ?? inQuery
}

/** Shared abort reason, because without one each `abort()` creates an error with a stack. */
const GONE = new Error('The connection has been closed')

function abortedByClose(res: ServerResponse): AbortController {
  const controller = new AbortController()
  if (res.closed) controller.abort(GONE)
  else res.on('close', () => controller.abort(GONE))
  return controller
}

/** Returns the methods of the procedures in a path under `/trpc/` if all are of the same kind, else null. */
function methodsOf(path: string): string[] | null {
  const types = path.split(',').map((name) => Object.hasOwn(procedures, name) && procedures[name]?._def.type)
  if (types.every((type) => type === 'query')) return ['GET', 'HEAD']
  if (types.every((type) => type === 'mutation')) return ['POST']
  return types.every((type) => type === 'subscription') ? ['GET'] : null
}

const procedures: Readonly<Record<string, { _def: { type: string } }>> = appRouter._def.procedures as never

async function handleTrpc(context: Context, path: string, req: IncomingMessage, res: ServerResponse): Promise<void> {
  if (req.method === 'HEAD') {
    const methods = methodsOf(path)
    if (!methods) throw noSuchPath()
    if (!methods.includes('HEAD')) throw methodNotAllowed(methods)
    // tRPC would answer it without executing the procedure. Node sends no body.
    req.method = 'GET'
  }
  // A mutation may return a secret, and a streaming batch must not be buffered.
  if (req.method === 'GET' && req.headers['accept-encoding'] && !req.headers['trpc-accept']) compressWritten(res)
  return nodeHTTPRequestHandler({
    router: appRouter,
    req,
    res,
    path,
    createContext: ({ info }) => {
      // tRPC would also accept forms and files.
      if (req.method === 'POST' && !isJson(req)) throw toTRPCError(unsupportedType())
      const { length } = info.calls
      if (length > MAX_BATCH) {
        throw toTRPCError(
          badRequest(`A batch has at most ${MAX_BATCH} calls, this one ${length}: set maxItems`, {
            detail: 'The typed client splits batches: set `maxItems` of its link.',
          }),
        )
      }
      const isStreamed = req.headers['trpc-accept'] !== undefined
      if (isStreamed && info.calls.some(({ path }) => SIGNS_IN.has(path))) {
        throw toTRPCError(
          badRequest('Sign in or out without streaming: the cookie could not be set (httpLink)', {
            detail: 'Use httpLink or httpBatchLink for procedures of sessions.',
          }),
        )
      }
      // A token in a subscription's URL would appear in the logs of proxies.
      if (info.connectionParams) {
        throw toTRPCError(
          badRequest('Send an Authorization header, not connectionParams', {
            detail: 'Set the header in `eventSourceOptions` of the httpSubscriptionLink, as the typed client does.',
          }),
        )
      }
      return context
    },
    maxBodySize: MAX_BODY,
    // tRPC's codes cannot express all statuses, nor a Retry-After.
    responseMeta: ({ errors: [error], data }) => {
      // tRPC would replace the header.
      const vary = { vary: `${res.getHeader('Vary')}, trpc-accept, accept` }
      if (!error || data.length > 1) return { headers: vary }
      const { status, headers } = fromTRPCError(error)
      const allowed = status === 405 && methodsOf(path)
      return {
        status,
        headers: {
          ...vary,
          ...headers,
          ...(allowed && { Allow: allowed.join(', ') }),
          'content-type': 'application/json',
        },
      }
    },
    onError: ({ error }) => {
      requestIds.set(error, context.requestId)
      report(context.deps, fromTRPCError(error), context.requestId)
    },
  })
}

/** Procedures that must set a cookie, which a streamed batch cannot. */
const SIGNS_IN: ReadonlySet<string> = new Set(['sessions.signIn', 'sessions.signOut', 'sessions.useLink'])

const once = <T>(make: () => Promise<T>) => {
  let made: Promise<T> | undefined
  return () => (made ??= make())
}

/** Removes scheme and host from an absolute request target (RFC 9112, 3.2.2). */
function toOriginForm(req: IncomingMessage): void {
  if (!req.url?.startsWith('/')) req.url = req.url?.replace(/^https?:\/\/[^/?]*\/?/i, '/')
}

const pathOf = (req: IncomingMessage): string => (req.url ?? '/').split('?', 1)[0] ?? '/'

const requestIdOf = (req: IncomingMessage): string => {
  const given = req.headers['x-request-id']
  return typeof given === 'string' && /^[\w.:-]{1,128}$/.test(given) ? given : newId()
}

function sendError(deps: Deps, error: AppError, res: ServerResponse, requestId: string): void {
  report(deps, error, requestId)
  if (res.headersSent) res.destroy()
  else sendJson(res, error.status, toBody(error, requestId), error.headers)
}

/** Logs the cause of an error with its stack. Only unexpected errors have one; the request line contains the rest. */
function report({ log }: Deps, error: AppError, requestId: string): void {
  if (error.status >= 500 && error.cause) log.error({ requestId, err: error.cause }, error.message)
}

/** Logs a request without its query string, which may contain misplaced secrets. */
function logRequest({ log }: Deps, req: IncomingMessage, res: ServerResponse, details: object): void {
  const status = res.statusCode
  const level = status >= 500 ? 'error' : status === 401 || status === 404 ? 'info' : status >= 400 ? 'warn' : 'debug'
  log[level]({ ...details, method: req.method, path: pathOf(req), status }, 'request')
}

/** Returns the client address: the peer of the connection, or the last `X-Forwarded-For` entry of a trusted proxy. */
function addressOf(req: IncomingMessage, { TRUST_PROXY }: Settings): string | undefined {
  const forwarded =
    TRUST_PROXY &&
    String(req.headers['x-forwarded-for'] ?? '')
      .split(',')
      .at(-1)
      ?.trim()
  return forwarded || req.socket.remoteAddress
}
