import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Credentials } from '../auth/actors.ts'
import { idTokenOf, userOfIdToken } from '../auth/identity.ts'
import { callerOf } from '../auth/rate-limits.ts'
import { type createCookieReader, requireOwnPage, setCookie } from '../auth/session-cookie.ts'
import type { Deps } from '../deps.ts'
import { invalidField } from '../errors.ts'
import { once } from '../lib/once.ts'
import { percentDecoded } from '../lib/text.ts'
import { type Context, recheck } from '../trpc.ts'
import type { LargeReads } from './large-reads.ts'
import { createRequestLimits } from './limits.ts'
import { pathOf } from './paths.ts'
import { attend } from './sse.ts'

export type Connection = {
  requestId: string
  ip: string | undefined
  readCookie: ReturnType<typeof createCookieReader>
  largeReads: LargeReads
}

/** Creates the context of a request. Authenticates the caller only when the context is asked for it. */
export function createContext(
  deps: Deps,
  { requestId, ip, readCookie, largeReads }: Connection,
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
  const calls = path.startsWith('/trpc/') ? percentDecoded(path).split(',').length : 1
  let counted: Promise<void> | undefined
  const admit = (caller: string) => (counted ??= count!('default', caller, calls))
  // The access of a caller may end while a body arrives, and then the request is refused.
  const isArriving = () => !req.complete
  const authenticate = once(async () => {
    const actor = await deps.actors.of(credentials)
    deps.keyNetworks.note(actor, request)
    if (count) await admit(callerOf(actor))
    return actor
  }, isArriving)
  const authenticateAgain = () => deps.actors.again(credentials)
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
    authenticateAgain,
    identify: once(async () => (idToken ? ofUser(idToken) : { actor: await authenticate() }), isArriving),
    person: once(async () => {
      const person = await deps.actors.person(credentials)
      const { userId, tokenId, session } = person
      if (count) await admit(callerOf({ userId, tokenId, ...(session && { sessionId: session.id }) }))
      return person
    }, isArriving),
    countCalls: count && ((actor, calls) => count('default', callerOf(actor), calls)),
    countRun: count && ((actor) => count('execute', callerOf(actor), 1)),
    client: { address: ip, userAgent: req.headers['user-agent'] },
    cookie,
    requireOwnPage: fromOwnPage,
    setCookie: (secret) => void (res.headersSent || res.setHeader('Set-Cookie', setCookie(settings, secret))),
    gone: () => closing().signal,
    streamTo: (actor) => attend(res, deps.revocations.watch(actor, closing())),
    readInTurn: (isWrite ? READS_BY_POST : READS).test(path)
      ? (actor, read) => largeReads.read(actor, res, read, () => recheck({ authenticate: authenticateAgain }, actor))
      : null,
    idempotency: null,
    precondition: null,
    onAccepted: null,
  }
}

/** Paths of reads, whose answers may be large. */
const READS = /^\/(?:api\/|trpc\/|graphql$|openai\/)/
/** Paths to which reads come by POST. */
const READS_BY_POST = /^\/(?:graphql$|a2a\/)/

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

/**
 * Creates a controller that aborts when the connection closes. Also aborts when the client has closed its half. A
 * client that only sends nothing more looks the same; it gets the answers that nothing waits for (listen.ts).
 */
export function abortedByClose(res: ServerResponse): AbortController {
  const controller = new AbortController()
  const { socket } = res
  if (res.closed) controller.abort(GONE)
  else {
    const hangUp = () => void res.destroy()
    if (socket?.readableEnded) hangUp()
    socket?.on('end', hangUp)
    res.on('close', () => {
      socket?.off('end', hangUp)
      controller.abort(GONE)
    })
  }
  return controller
}
