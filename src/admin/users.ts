import { verifyEmail } from '../auth/identity.ts'
import { createLink, LINK_LIFETIME } from '../auth/links.ts'
import { deriveKey, openMasterKey } from '../crypto/secrets.ts'
import type { Tx } from '../db/client.ts'
import { systemClock } from '../lib/clock.ts'
import { day, table } from '../lib/table.ts'
import { finishEndings } from '../missions/endings.ts'
import { addMember, removeMember } from '../organizations/service.ts'
import { publicAddress } from '../settings.ts'
import type { Admin, Answer, Options } from './command.ts'
import { findOrganization, findUser, notMember } from './find.ts'
import { AdminError, toEmail, toRole } from './option-values.ts'
import { openRevocation } from './revocation.ts'

/** Throws if a user is a service account, which has one membership and no browser (contract-2.md section 3.6). */
async function requirePerson(tx: Tx, email: string): Promise<void> {
  const account = await tx.serviceAccount.findFirst({ where: { user: { email } }, select: { userId: true } })
  if (account) throw new AdminError(`${email} is a service account, which acts by its keys alone. Name a person.`)
}

/**
 * Makes the user with an e-mail address, a new one if necessary, a member of an organization. The operator vouches for
 * the address: a person who had an invitation to another organization may have taken it ({@link verifyEmail}).
 */
export async function addUser({ database, now }: Admin, [given = '']: string[], options: Options): Promise<Answer> {
  const email = toEmail(given)
  const role = toRole(options.role ?? '')
  return database.client.$transaction(async (tx) => {
    const organization = await findOrganization(tx, options.org ?? '', now)
    await requirePerson(tx, email)
    const isElsewhere = { memberships: { none: { organizationId: organization.id } } }
    const stranger = await tx.user.findFirst({ where: { email, emailVerified: false, ...isElsewhere } })
    if (stranger) await verifyEmail(tx, stranger.id, now)
    const { id } = await addMember(tx, organization.id, email, role, now)
    const text = `${email} is ${role} of ${organization.slug}.${stranger ? ` ${UNVERIFIED} --user ${email}` : ''}`
    return { json: { user: { id, email }, organization, role }, text }
  })
}

const UNVERIFIED =
  'The address was unverified, so the password, sessions and keys of the account have ended. Hand a link to its person: ' +
  'npm run admin -- sign-in-link'

/** Ends a membership. Afterwards revokes its tokens for MCP servers, which may fail without consequences. */
export async function removeUser(admin: Admin, [given = '']: string[], options: Options): Promise<Answer> {
  const { database, settings, now } = admin
  const revocation = await openRevocation(admin)
  const { grants, user, organization, runs, ...ended } = await database.client.$transaction(async (tx) => {
    const organization = await findOrganization(tx, options.org ?? '', now)
    const user = await findUser(tx, given)
    const grants = await revocation.read(tx, { organizationId: organization.id, userId: user.id })
    const ended = await removeMember(tx, settings, organization.id, user.id, now)
    if (!ended) throw notMember(user.email, organization.slug)
    return { grants, user, organization, ...ended }
  })
  const rest = { organizationId: organization.id, kind: 'member' as const, target: user.id }
  const tasks = ended.tasks + (await finishEndings({ db: database.client, settings, clock: systemClock }, rest))
  const consequences = `Runs to be cancelled: ${runs}, tasks without an assignee now: ${tasks}.`
  const text = `${user.email} is no member of ${organization.slug} any more. ${consequences}`
  const json = { user, organization, removed: true, runs, tasks }
  const revoked = await revocation.revoke(grants)
  const connections = { deleted: grants.length, revoked }
  const note = grants.length ? ` Tokens of MCP servers: ${grants.length} deleted, ${revoked} revoked there.` : ''
  return { json: { ...json, connections }, text: text + note }
}

/** Makes a link that signs a user in: the named one, or else the first owner. */
export async function signInLink({ database, settings, now }: Admin, _: string[], options: Options): Promise<Answer> {
  if (!settings.PUBLIC_URL && settings.PORT === 0)
    throw new AdminError('PORT is 0, so the link cannot name a port. Set PORT to the one that the server listens on')
  const sessionKey = deriveKey(await openMasterKey(database, settings, now), 'sessions')
  const purpose = options['reset-password'] ? 'reset_password' : 'sign_in'
  return database.client.$transaction(async (tx) => {
    const user = options.user === undefined ? await firstOwner(tx) : await findUser(tx, options.user)
    await requirePerson(tx, user.email)
    const code = await createLink(tx, sessionKey, { userId: user.id, purpose }, now)
    const url = `${publicAddress(settings)}/app/welcome#${code}`
    const expiresAt = new Date(now.getTime() + LINK_LIFETIME)
    const effect = options['reset-password'] ? 'It removes the password when it is used. ' : ''
    const text = `It signs ${user.email} in, once, for 15 minutes. ${effect}Anyone who has the link can use it:\n\n  ${url}\n`
    return { json: { user, url, expiresAt }, text }
  })
}

async function firstOwner(tx: Tx) {
  const owner = await tx.membership.findFirst({
    where: { role: 'owner' },
    orderBy: [{ createdAt: 'asc' }, { userId: 'asc' }],
    select: { user: { select: { id: true, email: true } } },
  })
  if (!owner)
    throw new AdminError('There is no owner. Add one: npm run admin -- user add EMAIL --org SLUG --role owner')
  return owner.user
}

/** Lists the users, or those of one organization. */
export async function listUsers({ database, now }: Admin, _: string[], options: Options): Promise<Answer> {
  const organization = options.org === undefined ? null : await findOrganization(database.client, options.org, now)
  const rows = await database.client.user.findMany({
    where: organization ? { memberships: { some: { organizationId: organization.id } } } : {},
    select: {
      id: true,
      email: true,
      name: true,
      emailVerified: true,
      passwordHash: true,
      createdAt: true,
      memberships: { select: { role: true, organization: { select: { slug: true } } } },
    },
    orderBy: [{ createdAt: 'asc' }, { id: 'asc' }],
  })
  const users = rows.map(({ memberships, passwordHash, ...user }) => ({
    ...user,
    hasPassword: passwordHash !== null,
    organizations: memberships.map(({ role, organization }) => ({ slug: organization.slug, role })),
  }))
  const lines = users.map(({ id, email, name, hasPassword, organizations, createdAt }) => [
    id,
    email,
    name,
    organizations.map(({ slug, role }) => `${slug} (${role})`).join(' ') || 'none',
    hasPassword ? 'yes' : 'no',
    day(createdAt),
  ])
  return { json: { users }, text: table([['ID', 'EMAIL', 'NAME', 'ORGANIZATIONS', 'PASSWORD', 'CREATED'], ...lines]) }
}
