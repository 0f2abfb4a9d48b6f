import { idempotent, idempotentLease } from '../idempotency.ts'
import { KeyCreated, KeysResponse } from '../keys/schema.ts'
import { restMeta, router, tokenProcedure } from '../trpc.ts'
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
  list: tokenProcedure('organization:read', 'profile:read')
    .meta(restMeta('GET', '/api/v1/organizations', 'List your organizations'))
    .output(schema.OrganizationsResponse)
    .query(({ ctx }) => details.list(ctx.actor, ctx.deps)),

  create: tokenProcedure('organization:write')
    .meta(restMeta('POST', '/api/v1/organizations', 'Create an organization', { 409: 'The slug is taken' }))
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

  get: tokenProcedure('organization:read', 'profile:read')
    .meta(restMeta('GET', '/api/v1/organizations/{id}', 'Get your organization'))
    .input(schema.OrganizationId)
    .output(schema.OrganizationResponse)
    .query(({ ctx, input }) => details.get(ctx.actor, ctx.deps, input)),

  update: tokenProcedure('organization:write')
    .meta(restMeta('PATCH', '/api/v1/organizations/{id}', 'Rename your organization', { 409: 'The slug is taken' }))
    .input(schema.UpdateOrganization)
    .output(schema.OrganizationResponse)
    .mutation(({ ctx, input }) => details.update(ctx.actor, ctx.deps, input)),

  members: tokenProcedure('members:read', 'organization:read')
    .meta(restMeta('GET', MEMBERS, 'List the members of your organization'))
    .input(schema.OrganizationId)
    .output(schema.MembersResponse)
    .query(({ ctx, input }) => members.listMembers(ctx.actor, ctx.deps, input)),

  updateMember: tokenProcedure('members:write')
    .meta(restMeta('PATCH', `${MEMBERS}/{userId}`, 'Change the role of a member', NEEDS_OWNER))
    .input(schema.UpdateMember)
    .output(schema.MemberResponse)
    .mutation(({ ctx, input }) => members.updateMember(ctx.actor, ctx.deps, input)),

  removeMember: tokenProcedure('members:write')
    .meta(restMeta('DELETE', `${MEMBERS}/{userId}`, 'Remove a member from your organization', NEEDS_OWNER))
    .input(schema.MemberId)
    .output(schema.MemberRemoved)
    .mutation(({ ctx, input }) => members.endMember(ctx.actor, ctx.deps, input)),

  getPolicy: tokenProcedure('organization:read')
    .meta(restMeta('GET', POLICY, 'Get the policy of your organization'))
    .input(schema.OrganizationId)
    .output(schema.PolicyResponse)
    .query(({ ctx, input }) => policy.getPolicy(ctx.actor, ctx.deps, input)),

  updatePolicy: tokenProcedure('organization:write')
    .meta(restMeta('PATCH', POLICY, 'Change the policy of your organization'))
    .input(schema.UpdatePolicy)
    .output(schema.PolicyResponse)
    .mutation(({ ctx, input }) => policy.updatePolicy(ctx.actor, ctx.deps, input)),

  listFormer: tokenProcedure('organization:read')
    .meta(restMeta('GET', FORMER, 'List former members of your organization who still own resources'))
    .input(schema.OrganizationId)
    .output(schema.FormerMembersResponse)
    .query(({ ctx, input }) => former.listFormer(ctx.actor, ctx.deps, input)),

  listThings: tokenProcedure('organization:read')
    .meta(restMeta('GET', `${FORMER}/{userId}`, 'List the resources of a former member', IS_MEMBER))
    .input(schema.FormerMemberId)
    .output(schema.ThingsResponse)
    .query(({ ctx, input }) => former.listThings(ctx.actor, ctx.deps, input)),

  takeOver: tokenProcedure('organization:write')
    .meta(restMeta('POST', `${FORMER}/{userId}/take-over`, 'Take over the resources of a former member', IS_MEMBER))
    .input(schema.FormerMemberId)
    .output(schema.TakenOver)
    .mutation(({ ctx, input }) =>
      idempotentLease(
        ctx,
        input,
        () => former.ownedOrganization(ctx.actor, input.id),
        (underWay) => former.takeOver(ctx.actor, ctx.deps, input, underWay),
      ),
    ),

  listInvitations: tokenProcedure('members:read')
    .meta(restMeta('GET', INVITATIONS, 'List the open invitations of your organization'))
    .input(schema.ListInvitations)
    .output(schema.InvitationsResponse)
    .query(({ ctx, input }) => invitations.list(ctx.actor, ctx.deps, input)),

  createInvitation: tokenProcedure('members:write')
    .meta(restMeta('POST', INVITATIONS, 'Invite a person by e-mail', IS_MEMBER))
    .input(schema.CreateInvitation)
    .output(schema.InvitationCreated)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => members.checkGrantIn(ctx.actor, input),
        (deps) => invitations.create(ctx.actor, deps, input),
      ),
    ),

  deleteInvitation: tokenProcedure('members:write')
    .meta(restMeta('DELETE', `${INVITATIONS}/{invitationId}`, 'Withdraw an invitation'))
    .input(schema.InvitationId)
    .output(schema.InvitationDeleted)
    .mutation(({ ctx, input }) => invitations.remove(ctx.actor, ctx.deps, input)),

  listServiceAccounts: tokenProcedure('members:read')
    .meta(restMeta('GET', SERVICE_ACCOUNTS, 'List the service accounts of your organization'))
    .input(schema.OrganizationId)
    .output(schema.ServiceAccountsResponse)
    .query(({ ctx, input }) => accounts.list(ctx.actor, ctx.deps, input)),

  createServiceAccount: tokenProcedure('members:write')
    .meta(restMeta('POST', SERVICE_ACCOUNTS, 'Create a service account'))
    .input(schema.CreateServiceAccount)
    .output(schema.ServiceAccountCreated)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => members.checkGrantIn(ctx.actor, input),
        (deps) => accounts.create(ctx.actor, deps, input),
      ),
    ),

  updateServiceAccount: tokenProcedure('members:write')
    .meta(restMeta('PATCH', `${SERVICE_ACCOUNTS}/{userId}`, 'Change a service account'))
    .input(schema.UpdateServiceAccount)
    .output(schema.ServiceAccountResponse)
    .mutation(({ ctx, input }) => accounts.update(ctx.actor, ctx.deps, input)),

  deleteServiceAccount: tokenProcedure('members:write')
    .meta(restMeta('DELETE', `${SERVICE_ACCOUNTS}/{userId}`, 'Delete a service account'))
    .input(schema.ServiceAccountId)
    .output(schema.ServiceAccountDeleted)
    .mutation(({ ctx, input }) => accounts.remove(ctx.actor, ctx.deps, input)),

  listServiceKeys: tokenProcedure('members:read')
    .meta(restMeta('GET', SERVICE_KEYS, 'List the keys of a service account'))
    .input(schema.ListServiceKeys)
    .output(KeysResponse)
    .query(({ ctx, input }) => accounts.listKeys(ctx.actor, ctx.deps, input)),

  createServiceKey: tokenProcedure('members:write')
    .meta(restMeta('POST', SERVICE_KEYS, 'Create a key of a service account'))
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

  deleteServiceKey: tokenProcedure('members:write')
    .meta(restMeta('DELETE', `${SERVICE_KEYS}/{keyId}`, 'Revoke a key of a service account'))
    .input(schema.ServiceKeyId)
    .output(schema.ServiceAccountDeleted)
    .mutation(({ ctx, input }) => accounts.removeKey(ctx.actor, ctx.deps, input)),
})
