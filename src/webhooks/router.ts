import type { z } from 'zod'
import type { Deps } from '../deps.ts'
import { idempotent } from '../idempotency.ts'
import { restMeta, router, tokenProcedure } from '../trpc.ts'
import * as deliveries from './deliveries.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const WEBHOOK = '/api/v1/webhooks/{id}'
const DELIVERIES = `${WEBHOOK}/deliveries`
const DISABLED = { 409: 'The webhook is disabled' }

/** Changes a webhook, or a part of it, once for each Idempotency-Key. */
const onWebhook = <Answer extends object>(
  ctx: Parameters<typeof idempotent>[0],
  input: z.output<typeof schema.WebhookId>,
  effect: (deps: Deps) => Promise<Answer>,
) => idempotent(ctx, input, () => service.get(ctx.actor, ctx.deps, input.id), effect)

export const webhooks = router({
  list: tokenProcedure('webhooks:read')
    .meta(restMeta('GET', '/api/v1/webhooks', 'List the webhooks of your organization'))
    .input(schema.ListWebhooks.prefault({}))
    .output(schema.WebhooksResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),

  create: tokenProcedure('webhooks:write')
    .meta(restMeta('POST', '/api/v1/webhooks', 'Create a webhook. Only this answer has its secret'))
    .input(schema.CreateWebhook)
    .output(schema.CreateWebhookResponse)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => service.check(ctx.actor, input),
        (deps) => service.create(ctx.actor, deps, input),
      ),
    ),

  get: tokenProcedure('webhooks:read')
    .meta(restMeta('GET', WEBHOOK, 'Get a webhook'))
    .input(schema.WebhookId)
    .output(schema.WebhookResponse)
    .query(({ ctx, input }) => service.get(ctx.actor, ctx.deps, input.id)),

  update: tokenProcedure('webhooks:write')
    .meta(restMeta('PATCH', WEBHOOK, 'Change a webhook'))
    .input(schema.UpdateWebhook)
    .output(schema.WebhookResponse)
    .mutation(({ ctx, input }) => service.update(ctx.actor, ctx.deps, input)),

  delete: tokenProcedure('webhooks:write')
    .meta(restMeta('DELETE', WEBHOOK, 'Delete a webhook and its deliveries'))
    .input(schema.WebhookId)
    .output(schema.WebhookDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input.id)),

  rotate: tokenProcedure('webhooks:write')
    .meta(restMeta('POST', `${WEBHOOK}/rotate`, 'Replace the secret of a webhook; both sign for 24 hours'))
    .input(schema.WebhookId)
    .output(schema.WebhookSecret)
    .mutation(({ ctx, input }) => onWebhook(ctx, input, (deps) => service.rotate(ctx.actor, deps, input.id))),

  test: tokenProcedure('webhooks:write')
    .meta(restMeta('POST', `${WEBHOOK}/test`, 'Send a test event to a webhook', DISABLED))
    .input(schema.WebhookId)
    .output(schema.DeliveryResponse)
    .mutation(({ ctx, input }) => onWebhook(ctx, input, (deps) => deliveries.test(ctx.actor, deps, input.id))),

  deliveries: tokenProcedure('webhooks:read')
    .meta(restMeta('GET', DELIVERIES, 'List the deliveries of the last 30 days of a webhook'))
    .input(schema.ListDeliveries)
    .output(schema.DeliveriesResponse)
    .query(({ ctx, input }) => deliveries.deliveries(ctx.actor, ctx.deps, input)),

  replayDelivery: tokenProcedure('webhooks:write')
    .meta(restMeta('POST', `${DELIVERIES}/{deliveryId}/replay`, 'Send an event to a webhook again', DISABLED))
    .input(schema.DeliveryId)
    .output(schema.DeliveryResponse)
    .mutation(({ ctx, input }) => onWebhook(ctx, input, (deps) => deliveries.replay(ctx.actor, deps, input))),

  replay: tokenProcedure('webhooks:write')
    .meta(restMeta('POST', `${WEBHOOK}/replay`, 'Send all failed events since a time again', DISABLED))
    .input(schema.ReplayDeliveries)
    .output(schema.DeliveriesReplayed)
    .mutation(({ ctx, input }) => onWebhook(ctx, input, (deps) => deliveries.replayAll(ctx.actor, deps, input))),
})
