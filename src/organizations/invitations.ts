import type { z } from 'zod'
import { type Actor, holdCredential } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { type Db, lockRows, type Prisma, type Role, rowLock, type Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest, conflict, invalidField, notFound } from '../errors.ts'
import { whenCommitted } from '../idempotency.ts'
import { normalizeEmail } from '../lib/email.ts'
import { newId, newSecret } from '../lib/id.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import { tokenDigest } from '../lib/token.ts'
import { publicAddress, type Settings } from '../settings.ts'
import { administered } from './details.ts'
import { checkGrantIn } from './members.ts'
import type { CreateInvitation, Invitation, InvitationId, ListInvitations } from './schema.ts'

/** Lifetime of an invitation (ms). */
const LIFETIME = 7 * 24 * 60 * 60 * 1000
/** Maximum number of open invitations of an organization. */
const MAX_OPEN = 1000

export type InvitationRow = Prisma.InvitationGetPayload<object>

const toInvitation = ({
  id,
  email,
  role,
  createdBy,
  createdAt,
  expiresAt,
}: InvitationRow): z.input<typeof Invitation> => ({
  id,
  email,
  role,
  createdBy,
  createdAt: createdAt.toISOString(),
  expiresAt: expiresAt.toISOString(),
})

/** Filters the open invitations of the caller's organization. Throws 403 for callers who are no admin. */
export const openInvitations = (actor: Actor, now: Date): Prisma.InvitationWhereInput => ({
  organizationId: administered(actor, actor.organizationId),
  expiresAt: { gt: now },
})

/** GET /organizations/{id}/invitations: those that are open, newest first. Throws 403 for callers who are no admin. */
export async function list(actor: Actor, { db, clock }: Deps, input: z.output<typeof ListInvitations>) {
  administered(actor, input.id)
  const { where: after, ...page } = pageQuery(input)
  const where = { AND: [openInvitations(actor, clock.now()), after ?? {}] }
  const { rows, nextCursor } = toPage(await db.invitation.findMany({ where, ...page }), input)
  return { invitations: rows.map(toInvitation), nextCursor }
}

/** Returns the address of the page on which an invitation is accepted. */
const addressOf = (settings: Settings, code: string): string => `${publicAddress(settings)}/app/accept#${code}`

/**
 * POST /organizations/{id}/invitations: invites an e-mail address. An open invitation of the same address ends. The
 * answer contains the link, unless the link goes by mail only. Throws 409 for a member.
 */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateInvitation>) {
  checkGrantIn(actor, input)
  const { clock, mail, sessionKey, settings } = deps
  const { role } = input
  const email = normalizeEmail(input.email)
  if (email === null) throw invalidField('email', 'an e-mail address')
  const mailOnly = input.mailOnly ?? false
  if (mailOnly && !mail)
    throw badRequest('Invalid mailOnly. This server sends no mail', { detail: 'The operator has to set SMTP_URL.' })
  const now = clock.now()
  const code = newSecret()
  const organizationId = actor.organizationId
  const { row, name } = await deps.db.$transaction(async (tx) => {
    await holdCredential(tx, settings, actor)
    // Serializes concurrent requests, so that an address has one invitation, and the maximum holds.
    await lockRows(tx, 'Organization', [organizationId], rowLock(settings))
    const member = await tx.membership.findFirst({
      where: { organizationId, user: { email } },
      select: { userId: true },
    })
    if (member) throw conflict('The user is a member of the organization', { detail: 'Members need no invitation.' })
    await tx.invitation.deleteMany({ where: { organizationId, email } })
    const open = await tx.invitation.count({ where: { organizationId, expiresAt: { gt: now } } })
    if (open >= MAX_OPEN)
      throw badRequest(`Too many open invitations. At most ${MAX_OPEN}`, { detail: 'Delete open invitations first.' })
    const created = await tx.invitation.create({
      data: {
        id: newId(),
        organizationId,
        email,
        role,
        mailOnly,
        createdBy: actor.userId,
        createdAt: now,
        expiresAt: new Date(now.getTime() + LIFETIME),
        digest: tokenDigest(sessionKey, code),
      },
    })
    await audit(tx, actor, 'invitation.create', created.id, now, { email, role })
    const organization = await tx.organization.findUniqueOrThrow({
      where: { id: organizationId },
      select: { name: true },
    })
    return { row: created, name: organization.name }
  })
  const url = addressOf(settings, code)
  // A transaction cannot roll back a mail.
  if (mail) await whenCommitted(deps, () => mail.send({ to: email, ...textOf(name, role, url) }))
  return { id: row.id, url: mailOnly ? null : url, mailed: mail !== null, invitation: toInvitation(row) }
}

/** Composes the mail. Line breaks in a name could imitate more of the mail. */
function textOf(organization: string, role: Role, url: string) {
  const name = organization.replace(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, ' ').trim()
  const article = role === 'member' ? 'a' : 'an'
  return {
    subject: `Invitation to ${name}`,
    text: `You are invited to join the organization ${name} on Muster as ${article} ${role}.

Accept the invitation within 7 days:
${url}

The link works once. If you do not expect this invitation, ignore this mail.
`,
  }
}

/** DELETE /organizations/{id}/invitations/{invitationId}: its link no longer works. Throws 403 and 404. */
export async function remove(actor: Actor, { db, clock }: Deps, input: z.output<typeof InvitationId>) {
  const organizationId = administered(actor, input.id)
  const now = clock.now()
  await db.$transaction(async (tx) => {
    const { count } = await tx.invitation.deleteMany({
      where: { id: input.invitationId, organizationId, expiresAt: { gt: now } },
    })
    if (!count) throw notFound('Invitation')
    await audit(tx, actor, 'invitation.delete', input.invitationId, now)
  })
  return { message: 'Invitation deleted successfully' }
}

/**
 * Finds an open invitation by its code. Returns null for an unknown, used or expired code, and if its creator may no
 * longer grant the role.
 */
export async function findInvitation(
  db: Db | Tx,
  { sessionKey, clock }: Pick<Deps, 'sessionKey' | 'clock'>,
  code: string,
) {
  const row = await db.invitation.findUnique({ where: { digest: tokenDigest(sessionKey, code) } })
  return row && row.expiresAt > clock.now() && (await isStillMeant(db, row)) ? row : null
}

/** Lists the open invitations of an address, as {@link findInvitation} finds them. */
export async function findInvitationsOf(db: Db | Tx, email: string, now: Date): Promise<InvitationRow[]> {
  const rows = await db.invitation.findMany({ where: { email, expiresAt: { gt: now } }, orderBy: { createdAt: 'asc' } })
  const meant = await Promise.all(rows.map((row) => isStillMeant(db, row)))
  return rows.filter((_, index) => meant[index])
}

/** Returns whether the creator of an invitation may still grant its role. */
export async function isStillMeant(db: Db | Tx, { organizationId, createdBy, role }: InvitationRow): Promise<boolean> {
  const inviter = await db.membership.findUnique({
    where: { organizationId_userId: { organizationId, userId: createdBy } },
  })
  return inviter?.role === 'owner' || (inviter?.role === 'admin' && role !== 'owner')
}
