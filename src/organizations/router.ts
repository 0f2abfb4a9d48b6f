import { idempotent } from '../idempotency.ts'
import { KeyCreated, KeysResponse } from '../keys/schema.ts'
import { rest, router, token } from '../trpc.ts'
import * as details from './details.ts'
import * as former from './former.ts'
import * as invitations from './invitations.ts'
import * as members from './members.ts'
import * as policy from './policy.ts'
import * as schema from './schema.ts'
import * as accounts from './service-accounts.ts'

const FORMER = '/api/v1/organizations/{id}/former-members'
const MEMBERS = '/api/v1/organizations/{id}/members'
const INVITATIONS = '/api/v1/organizations/{id}/invitations'
const SERVICE_ACCOUNTS = '/api/v1/organizations/{id}/service-accounts'
const SERVICE_KEYS = `${SERVICE_ACCOUNTS}/{userId}/keys` as const
const POLICY = '/api/v1/organizations/{id}/policy'

const NEEDS_OWNER = { 409: 'It is the last owner, or another change has the same Idempotency-Key' }
const IS_MEMBER = { 409: 'The user is a member of the organization' }

export const organizations = router({
  list: token('organization:read', 'profile:read')
    .meta(rest('GET', '/api/v1/organizations', 'List your organizations'))
    .output(schema.OrganizationsResponse)
    .query(({ ctx }) => details.list(ctx.actor, ctx.deps)),

  create: token('organization:write')
    .meta(rest('POST', '/api/v1/organizations', 'Create an organization', { 409: 'The slug is taken' }))
    .input(schema.CreateOrganization)
    .output(schema.OrganizationCreated)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => details.checkCreate(ctx.actor, ctx.deps),
        (deps) => details.create(ctx.actor, deps, input),
      ),
    ),

  get: token('organization:read', 'profile:read')
    .meta(rest('GET', '/api/v1/organizations/{id}', 'Get your organization'))
    .input(schema.OrganizationId)
    .output(schema.OrganizationResponse)
    .query(({ ctx, input }) => details.get(ctx.actor, ctx.deps, input)),

  update: token('organization:write')
    .meta(rest('PATCH', '/api/v1/organizations/{id}', 'Rename your organization', { 409: 'The slug is taken' }))
    .input(schema.UpdateOrganization)
    .output(schema.OrganizationResponse)
    .mutation(({ ctx, input }) => details.update(ctx.actor, ctx.deps, input)),

  members: token('members:read', 'organization:read')
    .meta(rest('GET', MEMBERS, 'List the members of your organization'))
    .input(schema.OrganizationId)
    .output(schema.MembersResponse)
    .query(({ ctx, input }) => members.listMembers(ctx.actor, ctx.deps, input)),

  updateMember: token('members:write')
    .meta(rest('PATCH', `${MEMBERS}/{userId}`, 'Change the role of a member', NEEDS_OWNER))
    .input(schema.UpdateMember)
    .output(schema.MemberResponse)
    .mutation(({ ctx, input }) => members.updateMember(ctx.actor, ctx.deps, input)),

  removeMember: token('members:write')
    .meta(rest('DELETE', `${MEMBERS}/{userId}`, 'End a membership', NEEDS_OWNER))
    .input(schema.MemberId)
    .output(schema.MemberRemoved)
    .mutation(({ ctx, input }) => members.endMember(ctx.actor, ctx.deps, input)),

  getPolicy: token('organization:read')
    .meta(rest('GET', POLICY, 'Get the policy of your organization'))
    .input(schema.OrganizationId)
    .output(schema.PolicyResponse)
    .query(({ ctx, input }) => policy.getPolicy(ctx.actor, ctx.deps, input)),

  updatePolicy: token('organization:write')
    .meta(rest('PATCH', POLICY, 'Change the policy of your organization'))
    .input(schema.UpdatePolicy)
    .output(schema.PolicyResponse)
    .mutation(({ ctx, input }) => policy.updatePolicy(ctx.actor, ctx.deps, input)),

  listFormer: token('organization:read')
    .meta(rest('GET', FORMER, 'List former members of your organization who still own something'))
    .input(schema.OrganizationId)
    .output(schema.FormerMembersResponse)
    .query(({ ctx, input }) => former.listFormer(ctx.actor, ctx.deps, input)),

  listThings: token('organization:read')
    .meta(rest('GET', `${FORMER}/{userId}`, 'List what a former member owns', IS_MEMBER))
    .input(schema.FormerMemberId)
    .output(schema.ThingsResponse)
    .query(({ ctx, input }) => former.listThings(ctx.actor, ctx.deps, input)),

  takeOver: token('organization:write')
    .meta(rest('POST', `${FORMER}/{userId}/take-over`, 'Become the owner of what a former member owns', IS_MEMBER))
    .input(schema.FormerMemberId)
    .output(schema.TakenOver)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => former.ownOrganization(ctx.actor, input.id),
        (deps) => former.takeOver(ctx.actor, deps, input),
      ),
    ),

  listInvitations: token('members:read')
    .meta(rest('GET', INVITATIONS, 'List the open invitations of your organization'))
    .input(schema.ListInvitations)
    .output(schema.InvitationsResponse)
    .query(({ ctx, input }) => invitations.list(ctx.actor, ctx.deps, input)),

  createInvitation: token('members:write')
    .meta(rest('POST', INVITATIONS, 'Invite somebody by e-mail', IS_MEMBER))
    .input(schema.CreateInvitation)
    .output(schema.InvitationCreated)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => invitations.checkInvite(ctx.actor, input),
        (deps) => invitations.create(ctx.actor, deps, input),
      ),
    ),

  deleteInvitation: token('members:write')
    .meta(rest('DELETE', `${INVITATIONS}/{invitationId}`, 'Take an invitation back'))
    .input(schema.InvitationId)
    .output(schema.InvitationDeleted)
    .mutation(({ ctx, input }) => invitations.remove(ctx.actor, ctx.deps, input)),

  listServiceAccounts: token('members:read')
    .meta(rest('GET', SERVICE_ACCOUNTS, 'List the service accounts of your organization'))
    .input(schema.OrganizationId)
    .output(schema.ServiceAccountsResponse)
    .query(({ ctx, input }) => accounts.list(ctx.actor, ctx.deps, input)),

  createServiceAccount: token('members:write')
    .meta(rest('POST', SERVICE_ACCOUNTS, 'Create a service account'))
    .input(schema.CreateServiceAccount)
    .output(schema.ServiceAccountCreated)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => accounts.checkCreate(ctx.actor, input),
        (deps) => accounts.create(ctx.actor, deps, input),
      ),
    ),

  updateServiceAccount: token('members:write')
    .meta(rest('PATCH', `${SERVICE_ACCOUNTS}/{userId}`, 'Change a service account'))
    .input(schema.UpdateServiceAccount)
    .output(schema.ServiceAccountResponse)
    .mutation(({ ctx, input }) => accounts.update(ctx.actor, ctx.deps, input)),

  deleteServiceAccount: token('members:write')
    .meta(rest('DELETE', `${SERVICE_ACCOUNTS}/{userId}`, 'End a service account'))
    .input(schema.ServiceAccountId)
    .output(schema.ServiceAccountDeleted)
    .mutation(({ ctx, input }) => accounts.remove(ctx.actor, ctx.deps, input)),

  listServiceKeys: token('members:read')
    .meta(rest('GET', SERVICE_KEYS, 'List the keys of a service account'))
    .input(schema.ListServiceKeys)
    .output(KeysResponse)
    .query(({ ctx, input }) => accounts.listKeys(ctx.actor, ctx.deps, input)),

  createServiceKey: token('members:write')
    .meta(rest('POST', SERVICE_KEYS, 'Create a key of a service account'))
    .input(schema.CreateServiceKey)
    .output(KeyCreated)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => accounts.checkKey(ctx.actor, ctx.deps, input),
        (deps) => accounts.createKey(ctx.actor, deps, input),
      ),
    ),

  deleteServiceKey: token('members:write')
    .meta(rest('DELETE', `${SERVICE_KEYS}/{keyId}`, 'Revoke a key of a service account'))
    .input(schema.ServiceKeyId)
    .output(schema.ServiceAccountDeleted)
    .mutation(({ ctx, input }) => accounts.removeKey(ctx.actor, ctx.deps, input)),
})
