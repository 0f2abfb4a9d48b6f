import type { IncomingMessage, ServerResponse } from 'node:http'
import { cookieName } from '../auth/session-cookie.ts'
import { countAttempt, forgive } from '../auth/sign-in-limits.ts'
import { type Flow, type Problem, SignInProblem } from '../auth/sign-in-provider.ts'
import { seal, unseal } from '../crypto/envelope.ts'
import { deriveKey } from '../crypto/secrets.ts'
import type { Deps } from '../deps.ts'
import { AppError, methodNotAllowed } from '../errors.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import { tokenDigest } from '../lib/token.ts'
import { signInByProvider } from '../sessions/sign-in-provider.ts'
import { basePath, type Settings } from '../settings.ts'
import type { Context } from '../trpc.ts'
import { redirect } from './body.ts'
import { noSuchPath } from './no-such-path.ts'
import { returnPath } from './return-to.ts'

// Sign-in with the identity provider (contract-2.md section 3.3): two paths that a browser visits, beside the API.

const OIDC_START_PATH = '/api/auth/oidc/start'
const OIDC_CALLBACK_PATH = '/api/auth/oidc/callback'

/** Maximum time at the provider (ms). */
const LIFETIME = 10 * 60_000
/** Maximum number of sign-ins in progress per browser, in different tabs. */
const MAX_FLOWS = 3

type Visit = { context: Context; req: IncomingMessage; res: ServerResponse; query: URLSearchParams }

/**
 * Answers both paths with a redirect: to the provider, to the requested path, or to the sign-in page with the reason of
 * a failure. Throws 404 for other paths, and 405.
 */
export async function handleSignIn(context: Context, path: string, req: IncomingMessage, res: ServerResponse) {
  if (path !== OIDC_START_PATH && path !== OIDC_CALLBACK_PATH) throw noSuchPath()
  // A HEAD would use the code up.
  if (req.method !== 'GET') throw methodNotAllowed(['GET'])
  res.setHeader('Cache-Control', 'no-store')
  res.setHeader('Referrer-Policy', 'no-referrer')
  const query = new URLSearchParams((req.url ?? '').split('?')[1])
  const visit = { context, req, res, query }
  return path === OIDC_START_PATH ? beginSignIn(visit) : finish(visit)
}

/** Returns the URL to which the provider sends the browser back. Its host must be that of the cookie. */
const redirectUri = ({ PUBLIC_URL }: Settings, { headers }: IncomingMessage): string =>
  (PUBLIC_URL?.replace(/\/$/, '') ?? `http://${headers.host ?? 'localhost'}`) + OIDC_CALLBACK_PATH

async function beginSignIn({ context, req, res, query }: Visit): Promise<void> {
  const { deps } = context
  const returnTo = returnPath(query.get('returnTo'), basePath(deps.settings))
  try {
    if (!deps.signInProvider) throw new SignInProblem('off', 'OIDC_CLIENT_ID is not set')
    const { address, flow } = await deps.signInProvider.begin(redirectUri(deps.settings, req))
    const others = flowCookies(deps.settings, req)
    if (others.length >= MAX_FLOWS) for (const [name] of others) appendCookie(deps.settings, res, name, '')
    const name = flowCookieName(deps.settings, flow.state)
    appendCookie(deps.settings, res, name, encrypt(deps, { ...flow, returnTo, at: deps.clock.now().getTime() }))
    redirect(res, address)
  } catch (error) {
    leadToProblem({ context, req, res }, error, returnTo)
  }
}

async function finish({ context, req, res, query }: Visit): Promise<void> {
  const { deps } = context
  const { settings } = deps
  let returnTo = `${basePath(settings)}/app`
  try {
    if (!deps.signInProvider) throw new SignInProblem('off', 'OIDC_CLIENT_ID is not set')
    const name = flowCookieName(settings, query.get('state') ?? '')
    const [, cookie] = flowCookies(settings, req).find(([other]) => other === name) ?? []
    const flow = cookie === undefined ? null : decrypt(deps, cookie)
    if (!flow || flow.state !== query.get('state')) {
      throw new SignInProblem('expired', 'this browser has not begun the sign-in, or too long ago')
    }
    returnTo = flow.returnTo
    await useOnce(deps, flow)
    const identity = await redeem(context, new URL(`${redirectUri(settings, req)}?${query}`), flow)
    await signInByProvider(context, identity)
    appendCookie(settings, res, name, '')
    redirect(res, new URL(returnTo, redirectUri(settings, req)))
  } catch (error) {
    for (const [name] of flowCookies(settings, req)) {
      if (name === flowCookieName(settings, query.get('state') ?? '')) appendCookie(settings, res, name, '')
    }
    leadToProblem({ context, req, res }, error, returnTo)
  }
}

/** Redeems the code. Wrong codes count as failed sign-ins of the IP address; other problems do not. */
async function redeem({ deps, client }: Context, answer: URL, flow: Flow) {
  const attempt = await countAttempt(deps, 'identity provider', client.address)
  try {
    const identity = await deps.signInProvider!.finish(answer, flow)
    await forgive(deps.db, attempt)
    return identity
  } catch (error) {
    const isGuess = error instanceof SignInProblem && error.problem === 'expired'
    if (!isGuess) await forgive(deps.db, attempt)
    throw error
  }
}

/** Redirects to the sign-in page, which shows the failure and the remedy. The log has the reason. */
function leadToProblem({ context, req, res }: Omit<Visit, 'query'>, error: unknown, returnTo: string): void {
  const { deps, requestId } = context
  const problem = problemOf(error)
  if (problem === 'failed') deps.log.error({ err: error, requestId }, 'sign-in with the identity provider failed')
  else
    deps.log.warn({ problem, reason: (error as Error).message, requestId }, 'sign-in with the identity provider failed')
  const page = new URL(`${basePath(deps.settings)}/app/sign-in`, redirectUri(deps.settings, req))
  page.search = `${new URLSearchParams({ problem, returnTo })}`
  redirect(res, page)
}

function problemOf(error: unknown): Problem {
  if (error instanceof SignInProblem) return error.problem
  return error instanceof AppError && error.status === 429 ? 'too_many' : 'failed'
}

/** Data that the browser stores while its person is at the provider. */
type Begun = Flow & { returnTo: string; at: number }

const flowCookieName = (settings: Settings, state: string): string =>
  `${cookieName(settings)}-oidc-${state.slice(0, 8)}`

/** Lists the cookies of a request's sign-ins in progress. */
function flowCookies(
  settings: Settings,
  { headers: { cookie = '' } }: IncomingMessage,
): [name: string, value: string][] {
  const beginning = `${cookieName(settings)}-oidc-`
  return cookie.split('; ').flatMap((pair): [string, string][] => {
    const at = pair.indexOf('=')
    return at > 0 && /^[\w-]+$/.test(pair.slice(0, at)) && pair.startsWith(beginning)
      ? [[pair.slice(0, at), pair.slice(at + 1)]]
      : []
  })
}

/** Sets a cookie for the maximum time of a sign-in, or deletes it if it is empty. */
function appendCookie(settings: Settings, res: ServerResponse, name: string, value: string): void {
  const secure = cookieName(settings).startsWith('__Host-') ? '; Secure' : ''
  const age = value ? LIFETIME / 1000 : 0
  res.appendHeader('Set-Cookie', `${name}=${value}; Path=/; HttpOnly; SameSite=Lax; Max-Age=${age}${secure}`)
}

const CONTENT = ['sign-in in progress']

const keyOf = ({ wrappingKey }: Deps) => deriveKey(wrappingKey.export(), 'sign-ins in progress')

/** Encrypts a sign-in in progress so that any server of this installation can read it. */
const encrypt = (deps: Deps, begun: Begun): string =>
  seal(keyOf(deps), CONTENT, Buffer.from(JSON.stringify(begun))).toString('base64url')

/** Decrypts it. Returns null for a foreign or expired text. */
function decrypt(deps: Deps, sealed: string): Begun | null {
  try {
    const begun = JSON.parse(unseal(keyOf(deps), CONTENT, Buffer.from(sealed, 'base64url')).toString()) as Begun
    return begun.at > deps.clock.now().getTime() - LIFETIME ? begun : null
  } catch {
    return null
  }
}

/** Marks a sign-in as used, on every server. Throws if it was. */
async function useOnce({ db, clock, sessionKey }: Deps, { state }: Flow): Promise<void> {
  const key = tokenDigest(sessionKey, `used sign-in ${state}`)
  const expiresAt = new Date(clock.now().getTime() + 2 * LIFETIME)
  try {
    await db.signInLimit.create({ data: { key, times: [], expiresAt }, select: { key: true } })
  } catch (error) {
    if (isUniqueViolation(error)) throw new SignInProblem('expired', 'the sign-in was finished before')
    throw error
  }
}
