import type { z } from 'zod'
import { audit, requestOf } from '../auth/audit.ts'
import { hashPassword } from '../auth/passwords.ts'
import { countAttempt, forgive } from '../auth/sign-in-limits.ts'
import type { Tx } from '../db/client.ts'
import { AppError, badRequest, forbidden } from '../errors.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import { newId } from '../lib/id.ts'
import { findInvitation, type InvitationRow, isStillMeant } from '../organizations/invitations.ts'
import { addMember } from '../organizations/service.ts'
import type { Context } from '../trpc.ts'
import { checkStrength } from './passwords.ts'
import type { AcceptInvitation, InvitationOffer } from './schema.ts'
import { current, formerSession, start } from './service.ts'

type AcceptContext = Pick<Context, 'deps' | 'client' | 'cookie' | 'setCookie' | 'requestId'>

const invalidCode = () =>
  new AppError(401, 'Invalid or expired invitation', {
    headers: { 'WWW-Authenticate': 'Bearer' },
    detail: 'An invitation works once, for 7 days. Ask for another one.',
  })

/** Finds an invitation by its code. A wrong code counts as a failed sign-in of the IP address. Throws 401, and 429. */
async function open({ deps, client }: Pick<AcceptContext, 'deps' | 'client'>, code: string): Promise<InvitationRow> {
  const attempt = await countAttempt(deps, 'invitation', client.address)
  const row = await findInvitation(deps.db, deps, code)
  if (!row) throw invalidCode()
  await forgive(deps.db, attempt)
  return row
}

/**
 * POST /api/auth/invitation: describes the invitation of a code without using it up. Throws 401, and 429 after
 * failures.
 */
export async function readInvitation(
  context: AcceptContext,
  code: string,
): Promise<{ invitation: z.input<typeof InvitationOffer> }> {
  const { deps } = context
  const { organizationId, email, role } = await open(context, code)
  const [organization, user] = await Promise.all([
    deps.db.organization.findUniqueOrThrow({ where: { id: organizationId }, select: { name: true } }),
    deps.db.user.findUnique({ where: { email }, select: { id: true } }),
  ])
  return { invitation: { organizationName: organization.name, email, role, hasAccount: user !== null } }
}

/**
 * POST /api/auth/accept (contract-2.md section 3.5). Creates and signs in a user for a new e-mail address. An existing
 * user joins only in their own session. Throws 400, 401, 403 for the session of another user, 429.
 */
export async function acceptInvitation(
  context: AcceptContext,
  input: z.output<typeof AcceptInvitation>,
): ReturnType<typeof start> {
  const { deps } = context
  const row = await open(context, input.code)
  const user = await deps.db.user.findUnique({ where: { email: row.email }, select: { id: true } })
  if (user) {
    const session = await formerSession(context)
    if (!session) {
      throw new AppError(401, 'Sign in required', {
        code: 'sign_in_required',
        headers: { 'WWW-Authenticate': 'Bearer' },
        detail: 'The invited address has an account: sign in with it, and open the invitation again',
      })
    }
    if (session.userId !== user.id)
      throw forbidden({ detail: 'The invitation is for another account: sign in with the invited address.' })
    await deps.db.$transaction(async (tx) => {
      await take(tx, row)
      await join(tx, context, row, user.id)
    })
    deps.bus.publish('token', [user.id])
    return current(deps, { userId: user.id, scopes: ['*'], organization: row.organizationId, session, tokenId: '' })
  }
  const name = input.name?.trim()
  if (!name) throw badRequest('Missing required field: name')
  const password = input.password ?? null
  if (password !== null) checkStrength(password, row.email, 'password')
  const passwordHash = password === null ? null : await hashPassword(password)
  const now = deps.clock.now()
  const userId = newId()
  const { email, mailOnly: emailVerified } = row
  try {
    await deps.db.$transaction(async (tx) => {
      // First, so that the second of two concurrent requests finds no invitation instead of an existing user.
      await take(tx, row)
      const data = { id: userId, email, name, passwordHash, emailVerified, createdAt: now, updatedAt: now }
      await tx.user.create({ data, select: { id: true } })
      await join(tx, context, row, userId)
    })
  } catch (error) {
    if (!isUniqueViolation(error)) throw error
    // Another request has created the user meanwhile, such as by the invitation of another organization.
    return acceptInvitation(context, input)
  }
  return start(context, 'link', () => userId)
}

/**
 * Uses an invitation up, in a transaction. Throws 401 if another request has, or if its creator has lost the right to
 * it since it was found: hashing a password takes its time when many people sign in.
 */
export async function take(tx: Tx, row: InvitationRow): Promise<void> {
  const { count } = await tx.invitation.deleteMany({ where: { id: row.id } })
  if (!count || !(await isStillMeant(tx, row))) throw invalidCode()
}

/** Adds the membership of a used invitation, in a transaction. Present members keep their role. */
export async function join(
  tx: Tx,
  context: Pick<AcceptContext, 'deps' | 'client' | 'requestId'>,
  row: InvitationRow,
  userId: string,
): Promise<void> {
  const { organizationId, email, role, id } = row
  const now = context.deps.clock.now()
  const by = { organizationId, userId, request: requestOf(context) }
  await audit(tx, by, 'invitation.accept', id, now, { email, role })
  const membership = await tx.membership.count({ where: { organizationId, userId } })
  if (!membership) await addMember(tx, organizationId, email, role, now, by)
}
