import type { z } from 'zod'
import type { Person } from '../auth/actors.ts'
import { requestOf } from '../auth/audit.ts'
import { isCommonPassword } from '../auth/common-passwords.ts'
import { verifyEmail } from '../auth/identity.ts'
import { createLink, takeLink } from '../auth/links.ts'
import { hashPassword, isPassword, MIN_PASSWORD } from '../auth/passwords.ts'
import {
  auditUser,
  beginSession,
  endSessions,
  findNamed,
  findSession,
  type SessionRow,
  type UserCause,
} from '../auth/sessions.ts'
import { type Attempt, countAttempt, forgive } from '../auth/sign-in-limits.ts'
import { lockRows, rowLock, type Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { AppError, badRequest, forbidden, invalidField, notFound, unauthorized } from '../errors.ts'
import { normalizeEmail } from '../lib/email.ts'
import { tokenDigest } from '../lib/token.ts'
import { publicAddress } from '../settings.ts'
import type { Context } from '../trpc.ts'
import type { BrowserSession, ChangePassword, CurrentSession, ForgotPassword, SessionId, SignIn } from './schema.ts'

/** Maximum age of a session that may set the first password of its user (ms). */
const JUST_NOW = 15 * 60_000
/** Maximum number of sessions in a list: the newest. */
const MAX_SESSIONS = 200

type SignInContext = Pick<Context, 'deps' | 'client' | 'requestId' | 'cookie' | 'setCookie'>

const toSession = (row: SessionRow, current: string | undefined): z.input<typeof BrowserSession> => ({
  id: row.id,
  method: row.method,
  current: row.id === current,
  userAgent: row.userAgent,
  address: row.address,
  createdAt: row.createdAt.toISOString(),
  lastSeenAt: row.lastSeenAt.toISOString(),
  expiresAt: row.expiresAt.toISOString(),
})

/** GET /api/auth/session. Throws 403 for a named organization without the caller as a member. */
export async function current({ db, clock }: Deps, person: Person): Promise<z.input<typeof CurrentSession>> {
  const { userId, scopes, session } = person
  const [user, memberships] = await Promise.all([
    db.user.findUniqueOrThrow({ where: { id: userId } }),
    db.membership.findMany({
      where: { userId },
      select: { role: true, organization: { select: { id: true, name: true, slug: true } } },
      orderBy: [{ createdAt: 'asc' }, { organizationId: 'asc' }],
    }),
  ])
  const organizations = memberships.map(({ role, organization }) => ({ ...organization, role }))
  const named = person.organization
  const only = organizations.length === 1 ? organizations[0] : undefined
  const organization = named === undefined ? only : await findNamed(db, organizations, named, clock.now())
  if (named !== undefined && !organization) throw forbidden()
  const { id, email, name, image, emailVerified, passwordHash } = user
  return {
    user: { id, email, name, image, emailVerified, hasPassword: passwordHash !== null },
    organization: organization ?? null,
    organizations,
    role: organization?.role ?? null,
    scopes: [...scopes],
    session: session && toSession(session, session.id),
  }
}

/** GET /api/auth/sessions: the newest first. */
export async function list({ db, clock }: Deps, { userId, session }: Person) {
  const sessions = await db.browserSession.findMany({
    where: { userId, expiresAt: { gt: clock.now() } },
    orderBy: [{ createdAt: 'desc' }, { id: 'desc' }],
    take: MAX_SESSIONS,
  })
  return { sessions: sessions.map((row) => toSession(row, session?.id)) }
}

/** DELETE /api/auth/sessions/{id}: ends its requests and open streams, on every server. Throws 404. */
export async function end(context: SignInContext, { userId, session }: Person, { id }: z.output<typeof SessionId>) {
  const { db, bus, clock } = context.deps
  const ended = await db.$transaction((tx) =>
    endSessions(tx, { userId, request: requestOf(context) }, { id }, clock.now()),
  )
  if (!ended.length) throw notFound('Session')
  bus.publish('token', ended)
  if (session?.id === id) context.setCookie('')
  return { message: 'Session ended' }
}

const signInFailed = () =>
  new AppError(401, 'Wrong e-mail address or password', {
    headers: { 'WWW-Authenticate': 'Bearer' },
    detail: 'Check both, or ask for a link: /app/forgot, or the operator with `npm run admin -- sign-in-link`',
  })

/**
 * POST /api/auth/login. Unknown and known e-mail addresses take the same time and give the same answer. Throws 401, and
 * 429 after too many failures (contract-2.md section 3.2).
 */
export async function signIn(context: SignInContext, input: z.output<typeof SignIn>) {
  const { deps, client } = context
  const email = normalizeEmail(input.email) ?? input.email
  const attempt = await countAttempt(deps, email, client.address)
  const user = await deps.db.user.findUnique({ where: { email }, select: { id: true, passwordHash: true } })
  const isRight = await check(deps, attempt, input.password, user?.passwordHash ?? null)
  if (!user || !isRight) {
    // Not awaited, because only a known address takes this time.
    void noteFailure(context, email, user?.id).catch((error) =>
      deps.log.error({ err: error }, 'failed to audit a failed sign-in'),
    )
    throw signInFailed()
  }
  await forgive(deps.db, attempt)
  return start(context, 'password', async (tx) => {
    // Otherwise a session could begin after a change of the password has ended the others.
    await lockRows(tx, 'User', [user.id], rowLock(deps.settings))
    if (!(await tx.user.count({ where: user }))) throw signInFailed()
    return user.id
  })
}

/** Checks a password. A check that could not run counts as no failure. */
async function check({ db }: Deps, attempt: Attempt, password: string, hash: string | null): Promise<boolean> {
  try {
    return await isPassword(password, hash)
  } catch (error) {
    await forgive(db, attempt)
    throw error
  }
}

async function noteFailure(context: SignInContext, email: string, userId: string | undefined) {
  const { db, clock, log, sessionKey } = context.deps
  const request = requestOf(context)
  if (userId === undefined)
    log.info({ email: tokenDigest(sessionKey, email) }, 'sign-in with an unknown e-mail address')
  else await db.$transaction((tx) => auditUser(tx, { userId, request }, 'session.fail', userId, clock.now()))
}

/**
 * Starts a session of the user that `enter` returns, in its transaction, and sets its cookie in the browser. The
 * browser's previous session ends, so that a planted cookie is useless.
 */
export async function start(
  context: SignInContext,
  method: SessionRow['method'],
  enter: (tx: Tx) => Promise<string> | string,
) {
  const { deps, client } = context
  const { db, bus, clock } = deps
  const request = requestOf(context)
  const before = await formerSession(context)
  const { userId, secret, session, ended } = await db.$transaction(async (tx) => {
    const userId = await enter(tx)
    const ended = before
      ? await endSessions(tx, { userId: before.userId, request }, { id: before.id }, clock.now())
      : []
    return { userId, ...(await beginSession(tx, deps, { userId, request, method, client })), ended }
  })
  if (ended.length) bus.publish('token', ended)
  context.setCookie(secret)
  return current(deps, { userId, scopes: ['*'], organization: undefined, session, tokenId: '' })
}

/** Finds the session of the browser, if it has one. */
export const formerSession = ({ deps, cookie }: Pick<SignInContext, 'deps' | 'cookie'>): Promise<SessionRow | null> =>
  cookie === undefined
    ? Promise.resolve(null)
    : findSession(deps, cookie).catch((error: unknown) => {
        if (error instanceof AppError && error.status === 401) return null
        throw error
      })

/** POST /api/auth/logout: ends the session of the browser, if it has one. */
export async function signOut(context: SignInContext) {
  const { db, bus, clock } = context.deps
  const session = await formerSession(context)
  if (session) {
    const { userId, id } = session
    const who = { userId, request: requestOf(context) }
    bus.publish('token', await db.$transaction((tx) => endSessions(tx, who, { id }, clock.now())))
  }
  context.setCookie('')
  return { message: 'Signed out' }
}

/**
 * POST /api/auth/link: signs in by a code, once. The code came by mail or from the operator, which verifies the e-mail
 * address ({@link verifyEmail}). A reset code also removes the old password. Throws 401.
 */
export async function useLink(context: SignInContext, code: string) {
  const { bus, clock, sessionKey } = context.deps
  const now = clock.now()
  const session = await start(context, 'link', async (tx) => {
    const link = await takeLink(tx, sessionKey, code, now)
    if (!link) {
      throw new AppError(401, 'Invalid or expired link', {
        headers: { 'WWW-Authenticate': 'Bearer' },
        detail: 'A link works once, for 15 minutes. Ask for another one, or sign in with a password.',
      })
    }
    const { userId, purpose } = link
    await verifyEmail(tx, userId, now)
    if (purpose === 'reset_password') await resetPassword(tx, { userId, request: requestOf(context) }, now)
    return userId
  })
  bus.publish('token', [session.user.id])
  return session
}

/** Removes a password and ends all sessions and open links. */
async function resetPassword(tx: Tx, who: UserCause, now: Date): Promise<void> {
  const { userId } = who
  await tx.user.updateMany({ where: { id: userId }, data: { passwordHash: null, updatedAt: now } })
  // Before the sessions, because a link that is being used delays this until its session can be found.
  await tx.oneTimeLink.deleteMany({ where: { userId } })
  await endSessions(tx, who, {}, now)
  await auditUser(tx, who, 'password.reset', userId, now)
}

/**
 * POST /api/auth/forgot: requests a link to a new password. The answer reveals no accounts. Without mail the log asks
 * the operator to hand the link over.
 */
export function forgotPassword({ deps }: Pick<Context, 'deps'>, input: z.output<typeof ForgotPassword>) {
  void noteForgotten(deps, normalizeEmail(input.email) ?? input.email).catch((error) =>
    deps.log.error({ err: error }, 'failed to record a request for a new password'),
  )
  const outcome = deps.mail
    ? 'a link to a new password is on its way.'
    : 'the operator of the service can now hand you a link to a new password.'
  return { message: `If there is an account with this address, ${outcome}` }
}

/** Maximum number of links to a new password per account within a link's lifetime. */
const MAX_RESETS = 3

/** Mails a link to a new password, or logs a request to the operator. */
async function noteForgotten(deps: Deps, email: string): Promise<void> {
  const { db, clock, log, mail, sessionKey, settings } = deps
  const user = await db.user.findUnique({ where: { email }, select: { id: true } })
  if (!user) {
    log.info({ email: tokenDigest(sessionKey, email) }, 'a new password was asked for with an unknown e-mail address')
    return
  }
  const { id: userId } = user
  if (!mail) {
    const advice = 'npm run admin -- sign-in-link --user EMAIL --reset-password'
    log.warn({ userId }, `a user asked for a new password: hand over a link (${advice})`)
    return
  }
  const now = clock.now()
  const code = await db.$transaction(async (tx) => {
    const purpose = 'reset_password'
    await lockRows(tx, 'User', [userId], rowLock(settings))
    const open = await tx.oneTimeLink.count({ where: { userId, purpose, expiresAt: { gt: now } } })
    return open >= MAX_RESETS ? null : createLink(tx, sessionKey, { userId, purpose }, now)
  })
  if (code === null) return
  const text = `Somebody asked for a new password of your account on Muster. If it was you, open this link within 15 minutes:
${publicAddress(settings)}/app/password#${code}

The link works once and removes your present password. If it was not you, ignore this mail.
`
  mail.send({ to: email, subject: 'A new password', text })
}

/**
 * POST /api/auth/password. The other sessions of the user end. Throws 400 for a wrong `current` or a poor password, 403
 * without a present password or a session that was just started by a link or provider, 429 after failures.
 */
export async function changePassword(
  context: Pick<Context, 'deps' | 'client' | 'requestId'>,
  { userId, session }: Person,
  input: z.output<typeof ChangePassword>,
) {
  const { deps, client } = context
  const { db, bus, clock } = deps
  const who = { userId, request: requestOf(context) }
  const user = await db.user.findUniqueOrThrow({ where: { id: userId } })
  const { email, passwordHash: before } = user
  if (before === null) {
    const isNew = session !== null && session.createdAt.getTime() > clock.now().getTime() - JUST_NOW
    if (!isNew || session.method === 'password') {
      throw forbidden({
        detail: 'Sign in again by a link or your identity provider, and set the password within 15 minutes',
      })
    }
  } else await checkCurrent(deps, client.address, email, input.current ?? '', before)
  checkStrength(input.new, email)
  const passwordHash = await hashPassword(input.new)
  const ended = await db.$transaction(async (tx) => {
    const now = clock.now()
    // Fails if another request has changed it meanwhile.
    const { count } = await tx.user.updateMany({
      where: { id: userId, passwordHash: before },
      data: { passwordHash, updatedAt: now },
    })
    if (!count) throw unauthorized('Invalid or expired token')
    await tx.oneTimeLink.deleteMany({ where: { userId } })
    await auditUser(tx, who, 'password.update', userId, now)
    return endSessions(tx, who, { except: session?.id }, now)
  })
  if (ended.length) bus.publish('token', ended)
  return { message: 'Password changed', ended: ended.length }
}

async function checkCurrent(deps: Deps, address: string | undefined, email: string, given: string, hash: string) {
  if (!given.trim()) throw badRequest('Missing required field: current')
  const attempt = await countAttempt(deps, email, address)
  if (!(await check(deps, attempt, given, hash))) throw invalidField('current', 'your present password')
  await forgive(deps.db, attempt)
}

/** Throws 400 for a password that is too short, or among the most common ones. */
export function checkStrength(password: string, email: string, field = 'new'): void {
  if ([...password].length < MIN_PASSWORD) throw invalidField(field, `at least ${MIN_PASSWORD} characters`)
  if (isCommonPassword(password, email)) throw invalidField(field, 'a less common password')
}
