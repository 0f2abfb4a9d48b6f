import { deriveKey, openMasterKey } from '../crypto/secrets.ts'
import { createToken, revokeToken } from '../keys/service.ts'
import { day, table } from '../lib/table.ts'
import type { Admin, Answer, Options } from './command.ts'
import { findOrganization, findUser, notMember } from './find.ts'
import { AdminError, toExpiry, toName, toScopes } from './option-values.ts'

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

/** Revokes a token. */
export async function endToken({ database, now }: Admin, [id = '']: string[]): Promise<Answer> {
  const revokedAt = await database.client.$transaction((tx) => revokeToken(tx, id, now))
  if (!revokedAt) throw new AdminError(`There is no token with the id ${id}. List them: npm run admin -- token list`)
  return { json: { id, revokedAt }, text: `The token ${id} is revoked.` }
}
