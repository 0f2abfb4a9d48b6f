import { builder } from '../graphql/builder.ts'
import { Deletion } from '../graphql/deletion.ts'
import { argsFromZod, inputFromZod } from '../graphql/inputs.ts'
import { writeRow } from '../graphql/mutations.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { ORGANIZATION, Organization } from './graphql.ts'
import { OrganizationMember } from './graphql-policy.ts'
import { organizations } from './router.ts'
import * as schema from './schema.ts'

const UpdateInput = inputFromZod('UpdateOrganizationInput', schema.UpdateOrganization, 'Changes of an organization')
const CreateInput = inputFromZod('CreateOrganizationInput', schema.CreateOrganization, 'A new organization')
const MemberInput = inputFromZod('UpdateMemberInput', schema.UpdateMember, 'A new role of a member')

// Other organizations of the caller show nothing else, because a token acts in one.
const OwnOrganization = objectFromZod('OwnOrganization', schema.Organization, 'An organization that you belong to', {
  extensions: { scopes: ['organization:read', 'profile:read'] },
})

builder.queryField('organizations', (t) =>
  t.field({
    ...procedureExtensions(organizations.list, { rows: 20 }),
    type: [OwnOrganization],
    resolve: async (_, __, { caller }) => (await caller.organizations.list()).organizations,
  }),
)

builder.mutationFields((t) => ({
  updateOrganization: t.field(
    writeRow(
      Organization,
      ORGANIZATION,
      organizations.update,
      UpdateInput,
      async (caller, input) => (await caller.organizations.update(input)).organization,
    ),
  ),
  createOrganization: t.field({
    ...procedureExtensions(organizations.create),
    type: OwnOrganization,
    args: { input: t.arg({ type: CreateInput, required: true }) },
    resolve: async (_, { input }, { caller }) => (await caller.organizations.create(input)).organization,
  }),
  updateMember: t.field({
    ...procedureExtensions(organizations.updateMember),
    type: OrganizationMember,
    args: { input: t.arg({ type: MemberInput, required: true }) },
    resolve: async (_, { input }, { caller }) => (await caller.organizations.updateMember(input)).member,
  }),
  deleteMember: t.field({
    ...procedureExtensions(organizations.removeMember),
    type: Deletion,
    args: argsFromZod(schema.MemberId),
    resolve: async (_, args, { caller, actor }) => {
      const deletedId = args.userId === 'me' ? actor.userId : args.userId
      return { deletedId, ...(await caller.organizations.removeMember(args)) }
    },
  }),
}))
