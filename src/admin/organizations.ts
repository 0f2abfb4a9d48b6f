import { isUniqueViolation } from '../lib/database-errors.ts'
import { day, table } from '../lib/table.ts'
import { createOrganization, findBySlug, isReserved, toSlug } from '../organizations/service.ts'
import type { Admin, Answer, Options } from './command.ts'
import { ORGANIZATION } from './find.ts'
import { AdminError, checkedSlug, toName } from './option-values.ts'

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

/** Lists the organizations with their numbers of members. */
export async function listOrgs({ database }: Admin): Promise<Answer> {
  const rows = await database.client.organization.findMany({
    select: { ...ORGANIZATION, createdAt: true, memberships: { select: { userId: true } } },
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
