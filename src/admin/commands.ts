import { resolve } from 'node:path'
import type { Logger } from 'pino'
import { verifyEmail } from '../auth/identity.ts'
import { createLink, LINK_LIFETIME } from '../auth/links.ts'
import { deriveKey, openMasterKey } from '../crypto/secrets.ts'
import { type Database, openDatabase, type Tx } from '../db/client.ts'
import { createToken, revokeToken } from '../keys/service.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import { table } from '../lib/table.ts'
import {
  addMember,
  createOrganization,
  findBySlug,
  isReserved,
  removeMember,
  toSlug,
} from '../organizations/service.ts'
import { publicAddress, type Settings } from '../settings.ts'
import { backup } from './backup.ts'
import { AdminError, checkedSlug, toEmail, toExpiry, toName, toRole, toScopes } from './option-values.ts'
import { openRevocation } from './revocation.ts'

/** Context of every command; most also have the open database. */
export type Operator = { settings: Settings; log: Logger; now: Date }
export type Admin = Operator & { database: Database }

/** Options of the command line. */
export type Options = Partial<
  Record<'org' | 'role' | 'user' | 'name' | 'slug' | 'expires' | 'expires-at' | 'to', string> & {
    scope: string[]
    yes: boolean
    'reset-password': boolean
  }
>

/** Output of a command: `json` with --json (contract.md section 0), otherwise `text`. */
export type Answer = { json: object; text: string }

export type Work<With> = (given: With, args: string[], options: Options) => Promise<Answer>

/**
 * Executes a command with the database unmigrated, because only servers migrate it and may still run the previous
 * version.
 */
export const withDatabase =
  (work: Work<Admin>): Work<Operator> =>
  async (operator, args, options) => {
    const database = await openDatabase(operator.settings, { migrate: false })
    try {
      if (await database.client.installation.findUnique({ where: { id: 1 } }))
        return await work({ ...operator, database }, args, options)
      throw new AdminError('The database is empty. Start Muster once.')
    } finally {
      await database.close()
    }
  }

const select = { id: true, name: true, slug: true } as const

async function findOrganization(tx: Tx, slug: string, now: Date) {
  const id = await findBySlug(tx, slug, now)
  const organization = id === null ? null : await tx.organization.findUnique({ where: { id }, select })
  if (!organization)
    throw new AdminError(`There is no organization with the slug ${slug}. List them: npm run admin -- org list`)
  return organization
}

async function findUser(tx: Tx, email: string) {
  const user = await tx.user.findUnique({ where: { email: toEmail(email) }, select: { id: true, email: true } })
  if (!user)
    throw new AdminError(`There is no user with the e-mail address ${email}. List them: npm run admin -- user list`)
  return user
}

const notMember = (email: string, slug: string) =>
  new AdminError(`${email} is not a member of ${slug}. List its members: npm run admin -- user list --org ${slug}`)

/** Creates an organization. An explicit slug must be free; one derived from the name is numbered until it is free. */
export async function createOrg({ database, now }: Admin, [given = '']: string[], options: Options): Promise<Answer> {
  const name = toName(given, 'The name')
  const wanted = options.slug === undefined ? toSlug(name) : checkedSlug(options.slug)
  if (!wanted) throw new AdminError(`No slug can be made of ${name}. Give one with --slug.`)
  const organization = await database.client.$transaction(async (tx) => {
    let slug = wanted
    const taken = () => new AdminError(`The slug ${slug} is taken. Give another with --slug.`)
    const isTaken = async () => isReserved(slug) || (await findBySlug(tx, slug, now)) !== null
    for (let number = 2; await isTaken(); number++) {
      if (options.slug !== undefined) throw taken()
      slug = `${wanted}-${number}`
    }
    return createOrganization(tx, { name, slug }, now).catch((error: unknown) => {
      throw isUniqueViolation(error) ? taken() : error
    })
  })
  const { id, slug } = organization
  return { json: { organization: { id, name, slug } }, text: `Created the organization ${name}, slug ${slug}.` }
}

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
  const { grants, text, ...json } = await database.client.$transaction(async (tx) => {
    const organization = await findOrganization(tx, options.org ?? '', now)
    const user = await findUser(tx, given)
    const grants = await revocation.read(tx, { organizationId: organization.id, userId: user.id })
    const ended = await removeMember(tx, settings, organization.id, user.id, now)
    if (!ended) throw notMember(user.email, organization.slug)
    const consequences = `Runs to be cancelled: ${ended.runs}, tasks without an assignee now: ${ended.tasks}.`
    const text = `${user.email} is no member of ${organization.slug} any more. ${consequences}`
    return { grants, text, user, organization, removed: true, ...ended }
  })
  const revoked = await revocation.revoke(grants)
  const connections = { deleted: grants.length, revoked }
  const note = grants.length ? ` Tokens of MCP servers: ${grants.length} deleted, ${revoked} revoked there.` : ''
  return { json: { ...json, connections }, text: text + note }
}

/** Creates a token of a member, and prints it once. */
export async function newToken({ database, settings, now }: Admin, _: string[], options: Options): Promise<Answer> {
  const name = toName(options.name ?? '', 'The name')
  const scopes = toScopes(options.scope)
  const expiresAt = toExpiry(options.expires, options['expires-at'], now)
  const tokenKey = deriveKey(await openMasterKey(database, settings, now), 'tokens')
  return database.client.$transaction(async (tx) => {
    const organization = await findOrganization(tx, options.org ?? '', now)
    const user = await findUser(tx, options.user ?? '')
    const membership = { organizationId: organization.id, userId: user.id }
    const isMember = await tx.membership.findUnique({ where: { organizationId_userId: membership } })
    if (!isMember) throw notMember(user.email, organization.slug)
    const deps = { tokenKey, prefix: settings.TOKEN_PREFIX, now }
    const {
      row: { id },
      token,
    } = await createToken(tx, deps, { ...membership, name, scopes, expiresAt })
    const end = expiresAt ? `${expiresAt <= now ? 'Expired' : 'Expires'} ${expiresAt.toISOString()}` : 'Never expires'
    const text = `A token of ${user.email} in ${organization.slug}. It is printed only once:\n\n  ${token}\n\n${end}. Id: ${id}`
    return { json: { id, token, expiresAt }, text }
  })
}

const listed = {
  id: true,
  name: true,
  preview: true,
  scopes: true,
  createdAt: true,
  expiresAt: true,
  lastUsedAt: true,
  revokedAt: true,
  user: { select: { email: true } },
  organization: { select: { slug: true } },
} as const

/** Lists all tokens, newest first, also those that have expired or were revoked. */
export async function listTokens({ database, now }: Admin): Promise<Answer> {
  const rows = await database.client.token.findMany({
    select: listed,
    orderBy: [{ createdAt: 'desc' }, { id: 'desc' }],
  })
  const tokens = rows.map(({ user, organization, ...token }) => ({
    ...token,
    user: user.email,
    organization: organization.slug,
  }))
  const state = ({ revokedAt, expiresAt }: (typeof tokens)[number]) =>
    revokedAt ? 'revoked' : !expiresAt ? 'never' : `${expiresAt <= now ? 'expired ' : ''}${day(expiresAt)}`
  const lines = tokens.map((token) => [
    token.id,
    token.preview,
    token.name,
    token.user,
    token.organization,
    (token.scopes as string[]).join(' '),
    state(token),
    day(token.lastUsedAt),
  ])
  return {
    json: { tokens },
    text: table([['ID', 'TOKEN', 'NAME', 'USER', 'ORG', 'SCOPES', 'EXPIRES', 'LAST USED'], ...lines]),
  }
}

const day = (date: Date | null): string => date?.toISOString().slice(0, 10) ?? 'never'

/** Revokes a token. */
export async function endToken({ database, now }: Admin, [id = '']: string[]): Promise<Answer> {
  const revokedAt = await database.client.$transaction((tx) => revokeToken(tx, id, now))
  if (!revokedAt) throw new AdminError(`There is no token with the id ${id}. List them: npm run admin -- token list`)
  return { json: { id, revokedAt }, text: `The token ${id} is revoked.` }
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

/** Lists the organizations with their numbers of members. */
export async function listOrgs({ database }: Admin): Promise<Answer> {
  const rows = await database.client.organization.findMany({
    select: { ...select, createdAt: true, memberships: { select: { userId: true } } },
    orderBy: [{ createdAt: 'asc' }, { id: 'asc' }],
  })
  const organizations = rows.map(({ memberships, ...organization }) => ({
    ...organization,
    members: memberships.length,
  }))
  const lines = organizations.map(({ id, slug, name, members, createdAt }) => [
    id,
    slug,
    name,
    String(members),
    day(createdAt),
  ])
  return { json: { organizations }, text: table([['ID', 'SLUG', 'NAME', 'MEMBERS', 'CREATED'], ...lines]) }
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

/** Backs the database up into a file, and says where the encryption key is. */
export async function backUp({ settings }: Operator, [target = '']: string[]): Promise<Answer> {
  const { file, bytes } = await backup(settings, target)
  const key = settings.ENCRYPTION_KEY ? 'ENCRYPTION_KEY' : resolve(settings.DATA_DIR, 'encryption.key')
  const text = `Wrote ${file} (${bytes} bytes).
Keep ${key} too, elsewhere: without it the copy is of no use.
To restore it: npm run admin -- restore FILE. A server on it starts paused.`
  return { json: { file, bytes }, text }
}
