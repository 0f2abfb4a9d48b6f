import type { z } from 'zod'
import type { Person } from '../auth/actors.ts'
import { requestOf } from '../auth/audit.ts'
import { isPassword } from '../auth/passwords.ts'
import { auditUser, beginSession, endSessions, findNamed, findSession, type SessionRow } from '../auth/sessions.ts'
import { type Attempt, countAttempt, forgive } from '../auth/sign-in-limits.ts'
import { lockRows, rowLock, type Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { AppError, forbidden, notFound } from '../errors.ts'
import { normalizeEmail } from '../lib/email.ts'
import { tokenDigest } from '../lib/token.ts'
import type { Context } from '../trpc.ts'
import type { BrowserSession, CurrentSession, SessionId, SignIn } from './schema.ts'

/** Maximum number of sessions in a list: the newest. */
const MAX_SESSIONS = 200

export type SignInContext = Pick<Context, 'deps' | 'client' | 'requestId' | 'cookie' | 'setCookie'>

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
  const isRight = await verifyPassword(deps, attempt, input.password, user?.passwordHash ?? null)
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
export async function verifyPassword(
  { db }: Deps,
  attempt: Attempt,
  password: string,
  hash: string | null,
): Promise<boolean> {
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
