import { once } from '../idempotency.ts'
import { rest, router, token } from '../trpc.ts'
import * as former from './former.ts'
import * as members from './members.ts'
import * as policy from './policy.ts'
import * as schema from './schema.ts'

const FORMER = '/api/v1/organizations/{id}/former-members'
const POLICY = '/api/v1/organizations/{id}/policy'

const IS_MEMBER = { 409: 'The user is a member of the organization' }

export const organizations = router({
  members: token('organization:read')
    .meta(rest('GET', '/api/v1/organizations/{id}/members', 'List the members of your organization'))
    .input(schema.OrganizationId)
    .output(schema.MembersResponse)
    .query(({ ctx, input }) => members.listMembers(ctx.actor, ctx.deps, input)),

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
      once(
        ctx,
        input,
        () => former.ownOrganization(ctx.actor, input.id),
        (deps) => former.takeOver(ctx.actor, deps, input),
      ),
    ),
})
