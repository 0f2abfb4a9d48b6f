import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, inputFromZod } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import '../mcps/graphql.ts'
import './graphql.ts'
import { organizations } from './router.ts'
import * as schema from './schema.ts'

enumFromZod('ForeignAgents', schema.ForeignAgents, 'Built-in tools of agents from other organizations')
enumFromZod('AttachmentsPolicy', schema.Attachments, 'Whether attachments stay at their version')
const Policy = objectFromZod('Policy', schema.Policy, 'Rules for the runs of an organization', {
  extensions: { scopes: ['organization:read'] },
})
const UpdateInput = inputFromZod(
  'UpdatePolicyInput',
  schema.UpdatePolicy,
  'Changes of a policy; absent fields are unchanged',
)

enumFromZod('MemberKind', schema.MemberKind, 'Kind of member')
export const OrganizationMember = objectFromZod(
  'OrganizationMember',
  schema.OrganizationMember,
  'A member of an organization',
  {
    extensions: { scopes: ['members:read', 'organization:read'] },
  },
)

enumFromZod('ThingKind', schema.ThingKind, 'Kind of resource that a user owns')
const extensions = { scopes: ['organization:read'] as const }
const ThingCount = objectFromZod('ThingCount', schema.ThingCount, 'Number of resources of one kind that a user owns', {
  extensions,
})
const FormerMember = objectFromZod('FormerMember', schema.FormerMember, 'A former member who still owns objects', {
  extensions,
})
const Thing = objectFromZod('Thing', schema.Thing, 'An object of a former member', { extensions })

builder.queryFields((t) => ({
  organizationMembers: t.field({
    ...procedureExtensions(organizations.members, { rows: 100 }),
    type: [OrganizationMember],
    args: argsFromZod(schema.OrganizationId),
    resolve: async (_, args, { caller }) => (await caller.organizations.members(args)).members,
  }),
  formerMembers: t.field({
    ...procedureExtensions(organizations.listFormer, { rows: 100 }),
    type: [FormerMember],
    args: argsFromZod(schema.OrganizationId),
    resolve: async (_, args, { caller }) => (await caller.organizations.listFormer(args)).members,
  }),
  formerMemberThings: t.field({
    ...procedureExtensions(organizations.listThings, { rows: 1000 }),
    type: [Thing],
    args: argsFromZod(schema.FormerMemberId),
    resolve: async (_, args, { caller }) => (await caller.organizations.listThings(args)).things,
  }),
}))

builder.mutationField('claimFormerMemberThings', (t) =>
  t.field({
    ...procedureExtensions(organizations.takeOver),
    type: [ThingCount],
    args: argsFromZod(schema.FormerMemberId),
    resolve: async (_, args, { caller }) => (await caller.organizations.takeOver(args)).taken,
  }),
)

builder.queryField('organizationPolicy', (t) =>
  t.field({
    ...procedureExtensions(organizations.getPolicy),
    type: Policy,
    args: argsFromZod(schema.OrganizationId),
    resolve: async (_, args, { caller }) => (await caller.organizations.getPolicy(args)).policy,
  }),
)

builder.mutationField('updateOrganizationPolicy', (t) =>
  t.field({
    ...procedureExtensions(organizations.updatePolicy),
    type: Policy,
    args: { input: t.arg({ type: UpdateInput, required: true }) },
    resolve: async (_, { input }, { caller }) => (await caller.organizations.updatePolicy(input)).policy,
  }),
)
