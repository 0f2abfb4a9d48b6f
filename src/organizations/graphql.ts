import { z } from 'zod'
import { builder } from '../graphql/builder.ts'
import { connectionType, relationList } from '../graphql/connection.ts'
import { argsFromZod, enumFromZod } from '../graphql/inputs.ts'
import { nodeOf } from '../graphql/node.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { reload, rowIn, rowsOf } from '../graphql/rows.ts'
import { Profile } from '../profile/schema.ts'
import { organizations } from './router.ts'
import { OrganizationId } from './schema.ts'
import * as service from './service.ts'

const scopes = ['profile:read'] as const

export const Role = enumFromZod('Role', Profile.shape.organization.shape.role, 'Role of a member')

export const USER = rowsOf('User', 'User', service.reachableUser)

export const User = builder.prismaObject('User', {
  description: 'A person, as other members of an organization see them',
  interfaces: nodeOf(USER),
  select: { id: true },
  extensions: { scopes },
  fields: (t) => ({
    id: t.exposeID('id', { description: 'Id, as in fields such as `userId`' }),
    name: t.exposeString('name', { description: 'Name that the user has chosen' }),
    image: t.exposeString('image', { nullable: true, description: 'Address of a picture' }),
  }),
})

const MEMBER = rowsOf<{ organizationId: string; userId: string }>('Member', 'Membership', service.listedMembers, {
  order: [
    ['createdAt', 'asc'],
    ['userId', 'asc'],
  ],
  key: ['userId'],
})

const Member = builder.prismaObject('Membership', {
  name: 'Member',
  description: 'A person in an organization',
  select: { organizationId: true, userId: true },
  extensions: { scopes },
  fields: (t) => ({
    role: t.expose('role', { type: Role, description: 'Role of the member' }),
    createdAt: t.expose('createdAt', { type: 'DateTime', description: 'Time at which the membership began' }),
    user: t.field(rowIn(User, USER, 'userId', 'The person')),
  }),
})

const Members = connectionType('Member', Member, 'members')

export const ORGANIZATION = rowsOf('Organization', 'Organization', service.reachable)

export const Organization = builder.prismaObject('Organization', {
  description: 'The owner of agents, chats and all other resources, each of which belongs to exactly one',
  interfaces: nodeOf(ORGANIZATION),
  select: { id: true },
  extensions: { scopes },
  fields: (t) => ({
    id: t.exposeID('id', { description: 'Id, as in fields such as `organizationId`' }),
    name: t.exposeString('name', { description: 'Name of the organization' }),
    slug: t.exposeString('slug', { description: 'Its name in addresses' }),
    createdAt: t.expose('createdAt', { type: 'DateTime', description: 'Time at which the organization was created' }),
    members: t.field(
      relationList(Members, MEMBER, {
        column: 'organizationId',
        description: 'Members, in order of joining',
      }),
    ),
  }),
})

const OrganizationArgs = OrganizationId.extend({
  id: z.string().optional().describe('Your organization; by default the one of your token'),
})

builder.queryField('organization', (t) =>
  t.field({
    ...procedureExtensions(organizations.get, { input: OrganizationArgs }),
    type: Organization,
    args: argsFromZod(OrganizationArgs),
    resolve: async (_, { id }, context, info) => {
      const { organization } = await context.caller.organizations.get({ id: id ?? context.actor.organizationId })
      return reload(context, info, ORGANIZATION, organization.id)
    },
  }),
)
