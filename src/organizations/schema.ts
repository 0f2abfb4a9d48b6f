import { z } from 'zod'
import { CreateKey } from '../keys/schema.ts'
import { ok, requiredEnum, requiredText, timestamp } from '../lib/fields.ts'
import { nextCursor, pageInput } from '../lib/page.ts'
import { Permissions } from '../mcps/schema.ts'
import { Profile } from '../profile/schema.ts'
import { warnings } from '../skills/schema.ts'

const id = z.string().describe('Your organization')

export const ForeignAgents = requiredEnum(['off', 'read', 'all']).meta({
  id: 'ForeignAgents',
  description: 'Built-in tools of agents from other organizations',
})
export const Attachments = requiredEnum(['pinned', 'latest']).meta({
  id: 'AttachmentsPolicy',
  description: 'Version of an attached skill that runs have',
})

const FOREIGN =
  'Built-in tools that agents of other organizations have in your runs: none (`off`), those that only read (`read`), or as your own (`all`)'
const TOOLS =
  'Approval modes of built-in tools in all runs of the organization. The strictest of agent, space and organization applies'
const ATTACHED =
  'Whether skills stay at the version that was attached until a user adopts the newer one (`pinned`), or follow the newest (`latest`)'

/** The policy of an organization for its runs (contract-2.md section 8.5). */
export const Policy = z
  .object({
    foreignAgents: ForeignAgents.describe(FOREIGN),
    builtInTools: Permissions.describe(TOOLS),
    attachments: Attachments.describe(ATTACHED),
  })
  .meta({ id: 'Policy', description: 'Rules for the runs of the organization' })

/** GET /organizations/{id}/policy. */
export const OrganizationId = z.object({ id })

/** PATCH /organizations/{id}/policy. */
export const UpdatePolicy = z
  .object({
    id,
    foreignAgents: ForeignAgents.optional().describe(`${FOREIGN}. Default: \`read\``),
    builtInTools: Permissions.optional().describe(TOOLS),
    attachments: Attachments.optional().describe(`${ATTACHED}. Default: \`pinned\``),
  })
  .meta({ examples: [{ foreignAgents: 'read' }] })

/** Kinds of members. */
export const MemberKind = z.enum(['user', 'service']).meta({ id: 'MemberKind', description: 'Kind of member' })

/** A member of an organization (contract-2.md section 1.11). */
export const OrganizationMember = z
  .object({
    userId: z.string().describe('The user, as in assignees of tasks'),
    name: z.string().describe('Name of the member'),
    email: z.string().describe('E-mail address of the member'),
    role: Profile.shape.organization.shape.role.describe('Role of the member'),
    kind: MemberKind.describe('`user`: a person; `service`: a service account'),
    joinedAt: timestamp.describe('Time at which the membership began'),
  })
  .meta({ id: 'OrganizationMember', description: 'A member of the organization' })

const { role } = Profile.shape.organization.shape

/** DELETE /organizations/{id}/members/{userId} (contract-2.md section 3.5). */
export const MemberId = z.object({ id, userId: z.string().describe('The member; `me` for yourself') })

/** PATCH /organizations/{id}/members/{userId} (contract-2.md section 3.5). */
export const UpdateMember = MemberId.extend({
  role: role.describe('The new role. Only owners can make or unmake owners'),
}).meta({ examples: [{ role: 'admin' }] })

export const MemberResponse = ok({ member: OrganizationMember.describe('The member') })
export const MemberRemoved = ok({ message: z.string().describe('A confirmation for people') })

const name = requiredText(200).describe('Display name')
const slug = z
  .string()
  .max(100)
  .describe('Name in addresses: lower-case letters, digits and single hyphens, at most 60')

/** PATCH /organizations/{id} (contract-2.md section 3.5). */
export const UpdateOrganization = z
  .object({
    id,
    name: name.optional(),
    slug: slug.optional().describe(`${slug.description}. The former slug leads on for a year`),
  })
  .meta({ examples: [{ name: 'Acme Research' }] })

/** POST /organizations (contract-2.md section 3.5). */
export const CreateOrganization = z
  .object({ name, slug: slug.nullish().describe(`${slug.description}. Made from the name by default`) })
  .meta({ examples: [{ name: 'Acme Research' }] })

/** An organization of the caller. */
export const Organization = z
  .object({
    id: z.string().describe('The organization'),
    name: z.string().describe('Display name'),
    slug: z.string().describe('Name in addresses'),
    role: Profile.shape.organization.shape.role.describe('Your role in the organization'),
    createdAt: timestamp.describe('Time of creation'),
  })
  .meta({ id: 'Organization', description: 'An organization of the caller' })

export const OrganizationResponse = ok({ organization: Organization.describe('The organization') })
export const OrganizationsResponse = ok({ organizations: z.array(Organization).describe('In the order of joining') })
export const OrganizationCreated = ok({
  id: z.string().describe('The organization'),
  name: z.string().describe('Display name'),
  organization: Organization.describe('The organization'),
})

export const MembersResponse = ok({ members: z.array(OrganizationMember).describe('In the order of joining') })

export const PolicyResponse = ok({ policy: Policy, warnings })

/** Kinds of resources that members own. */
export const KINDS = ['agents', 'chats', 'mcps', 'media', 'missions', 'skills', 'spaces'] as const

export const ThingKind = z.enum(KINDS).meta({ id: 'ThingKind', description: 'Kind of resource' })

/** GET /organizations/{id}/former-members/{userId}, POST …/take-over. */
export const FormerMemberId = z.object({ id, userId: z.string().describe('The former member') })

export const ThingCount = z
  .object({
    kind: ThingKind.describe('Kind of resources'),
    count: z.int().describe('Number of resources'),
  })
  .meta({ id: 'ThingCount', description: 'Number of resources of one kind' })

/** A former member who still owns something. */
export const FormerMember = z
  .object({
    userId: z.string().describe('Id of the former member'),
    name: z.string().describe('Name of the former member'),
    email: z.string().describe('E-mail address of the former member'),
    things: z.array(ThingCount).describe('Number of their resources, by kind'),
  })
  .meta({ id: 'FormerMember', description: 'A former member' })

export const Thing = z
  .object({
    kind: ThingKind.describe('Kind of resource'),
    id: z.string().describe('Id of the resource'),
    name: z.string().describe('Name of the resource'),
    createdAt: timestamp.describe('Time at which the resource was created'),
  })
  .meta({ id: 'Thing', description: 'A resource of a former member' })

export const FormerMembersResponse = ok({
  members: z.array(FormerMember).describe('Former members who left resources behind'),
})
export const ThingsResponse = ok({ things: z.array(Thing).describe('Resources on this page') })
export const TakenOver = ok({ taken: z.array(ThingCount).describe('Number of resources taken over, by kind') })

/** GET /organizations/{id}/invitations (contract-2.md section 3.5). */
export const ListInvitations = z.object({ id, ...pageInput })

/** POST /organizations/{id}/invitations (contract-2.md section 3.5). */
export const CreateInvitation = z
  .object({
    id,
    email: requiredText(254).describe('E-mail address of the person to invite'),
    role: role.describe('Role of the new member. A role above `member` needs a token with the scope `*`'),
    mailOnly: z
      .boolean()
      .nullish()
      .describe('Send the link by mail only, which verifies the address. Default: the answer has it, too'),
  })
  .meta({ examples: [{ email: 'ada@example.com', role: 'member' }] })

/** DELETE /organizations/{id}/invitations/{invitationId} (contract-2.md section 3.5). */
export const InvitationId = z.object({ id, invitationId: z.string().describe('The invitation') })

/** An open invitation. */
export const Invitation = z
  .object({
    id: z.string().describe('The invitation'),
    email: z.string().describe('E-mail address of the invited person'),
    role: Profile.shape.organization.shape.role.describe('Role of the new member'),
    createdBy: z.string().describe('User id of the member who invited'),
    createdAt: timestamp.describe('Time of creation'),
    expiresAt: timestamp.describe('Time at which the link ends'),
  })
  .meta({ id: 'Invitation', description: 'An open invitation' })

export const InvitationsResponse = ok({ invitations: z.array(Invitation).describe('Newest first'), nextCursor })
export const InvitationCreated = ok({
  id: z.string().describe('The invitation'),
  url: z
    .string()
    .nullable()
    .describe('The link, returned only once; null if it goes by mail only, and when the request is repeated'),
  mailed: z.boolean().describe('Whether a mail with the link is on its way'),
  invitation: Invitation.describe('The invitation'),
})
export const InvitationDeleted = ok({ message: z.string().describe('A confirmation for people') })

/** Roles of service accounts. */
export const ServiceRole = z
  .enum(['member', 'admin'])
  .meta({ id: 'ServiceAccountRole', description: 'Role of a service account' })
const account = z.string().describe('The service account')

/** POST /organizations/{id}/service-accounts (contract-2.md section 3.6). */
export const CreateServiceAccount = z
  .object({ id, name, role: ServiceRole.describe('Its role. `admin` needs a token with the scope `*`') })
  .meta({ examples: [{ name: 'Deployments', role: 'member' }] })

/** DELETE /organizations/{id}/service-accounts/{userId} (contract-2.md section 3.6). */
export const ServiceAccountId = z.object({ id, userId: account })

/** PATCH /organizations/{id}/service-accounts/{userId} (contract-2.md section 3.6). */
export const UpdateServiceAccount = ServiceAccountId.extend({
  name: name.optional(),
  role: ServiceRole.optional().describe('Its role. `admin` needs a token with the scope `*`'),
}).meta({ examples: [{ name: 'Deployments' }] })

/** GET /organizations/{id}/service-accounts/{userId}/keys (contract-2.md section 3.6). */
export const ListServiceKeys = ServiceAccountId.extend(pageInput)

/** POST /organizations/{id}/service-accounts/{userId}/keys (contract-2.md section 3.6). */
export const CreateServiceKey = ServiceAccountId.extend(CreateKey.shape).meta({
  examples: [{ name: 'CI', expiresInDays: 90, scopes: ['agents:execute'] }],
})

/** DELETE /organizations/{id}/service-accounts/{userId}/keys/{keyId} (contract-2.md section 3.6). */
export const ServiceKeyId = ServiceAccountId.extend({ keyId: z.string().describe('The key') })

/** A user without a browser session, who uses keys only. */
export const ServiceAccount = z
  .object({
    id: z.string().describe('Its user id'),
    name: z.string().describe('Display name'),
    role: ServiceRole.describe('Its role'),
    createdBy: z.string().describe('User id of the member who created it'),
    createdAt: timestamp.describe('Time of creation'),
  })
  .meta({ id: 'ServiceAccount', description: 'A user without a browser session, who uses keys only' })

export const ServiceAccountsResponse = ok({ serviceAccounts: z.array(ServiceAccount).describe('Newest first') })
export const ServiceAccountResponse = ok({ serviceAccount: ServiceAccount.describe('The service account') })
export const ServiceAccountCreated = ok({
  id: z.string().describe('Its user id'),
  name: z.string().describe('Display name'),
  serviceAccount: ServiceAccount.describe('The service account'),
})
export const ServiceAccountDeleted = ok({ message: z.string().describe('A confirmation for people') })
