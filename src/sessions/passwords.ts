import type { z } from 'zod'
import type { Person } from '../auth/actors.ts'
import { requestOf } from '../auth/audit.ts'
import { isCommonPassword } from '../auth/common-passwords.ts'
import { verifyEmail } from '../auth/identity.ts'
import { createLink, takeLink } from '../auth/links.ts'
import { hashPassword, MIN_PASSWORD } from '../auth/passwords.ts'
import { auditUser, endSessions, type UserCause } from '../auth/sessions.ts'
import { countAttempt, forgive } from '../auth/sign-in-limits.ts'
import { lockRows, rowLock, type Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { AppError, badRequest, forbidden, invalidField, unauthorized } from '../errors.ts'
import { normalizeEmail } from '../lib/email.ts'
import { tokenDigest } from '../lib/token.ts'
import { publicAddress } from '../settings.ts'
import type { Context } from '../trpc.ts'
import type { ChangePassword, ForgotPassword } from './schema.ts'
import { type SignInContext, start, verifyPassword } from './service.ts'

// Passwords: chosen with a link, forgotten, and changed (contract-2.md section 3.1).

/** Maximum age of a session that may set the first password of its user (ms). */
const JUST_NOW = 15 * 60_000

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
  if (!(await verifyPassword(deps, attempt, given, hash))) throw invalidField('current', 'your present password')
  await forgive(deps.db, attempt)
}

/** Throws 400 for a password that is too short, or among the most common ones. */
export function checkStrength(password: string, email: string, field = 'new'): void {
  if ([...password].length < MIN_PASSWORD) throw invalidField(field, `at least ${MIN_PASSWORD} characters`)
  if (isCommonPassword(password, email)) throw invalidField(field, 'a less common password')
}
