import { z } from 'zod'
import { isPattern, PATTERN_DETAIL } from '../events/schema.ts'
import { bool, inRange, MAX_ITEMS, moment, ok, requiredText, text, timestamp } from '../lib/fields.ts'
import { nextCursor, pageInput } from '../lib/page.ts'

/** Maximum number of webhooks of an organization. */
export const MAX_WEBHOOKS = 100

const BAD_URL = 'Invalid url. Must be an http or https address, without user and password'

const address = requiredText(2_000)
  .trim()
  .refine(
    (text) => {
      const url = URL.parse(text)
      return url !== null && /^https?:$/.test(url.protocol) && !url.username && !url.password
    },
    { error: BAD_URL },
  )

const patterns = z
  .array(
    z.string().refine(isPattern, {
      error: 'Invalid events. Must be patterns of events',
      params: { detail: PATTERN_DETAIL },
    }),
  )
  .min(1)
  .max(MAX_ITEMS)
  .transform((items) => [...new Set(items)])

export const WebhookFormat = z
  .enum(['standard', 'slack', 'discord', 'teams'], {
    error: 'Invalid format. Must be: standard, slack, discord, teams',
  })
  .meta({
    id: 'WebhookFormat',
    description: 'Format of requests: a Standard Webhooks body, or a message of a chat service',
  })

/** An address that receives events (contract-2.md section 5.1). */
export const Webhook = z
  .object({
    id: z.string().describe('Id of the webhook'),
    organizationId: z.string().describe('The organization whose events it receives'),
    ownerId: z.string().describe('The user who made it. It receives the events that this user can see'),
    url: z
      .string()
      .describe(
        'Address that receives the events. For a chat service, whose address is a secret: origin and last four characters',
      ),
    description: z.string().describe('Purpose of the webhook'),
    events: z.array(z.string()).describe('Patterns of events: `task.completed`, `task.*` or `*`'),
    enabled: z.boolean().describe('Whether events are sent'),
    disabledReason: z.string().nullable().describe('Reason for which the service disabled it; null if it did not'),
    failingSince: timestamp
      .nullable()
      .describe('Time since which no attempt has succeeded; null if the last one succeeded'),
    format: WebhookFormat.describe('Format of the requests'),
    includeContent: z.boolean().describe('Whether prompts, results and inputs are sent too'),
    createdAt: timestamp.describe('Creation time'),
    updatedAt: timestamp.describe('Time of the last change'),
  })
  .meta({ id: 'Webhook', description: 'An address that receives the events of the organization' })

export const ListWebhooks = z.object(pageInput)
export const WebhookId = z.object({ id: z.string().describe('Id of the webhook') })

const DESCRIPTIONS = {
  url: 'Address that receives the events (http or https)',
  description: 'Purpose of the webhook',
  events: 'Patterns of events: `task.completed`, `task.*` or `*`',
  enabled: 'Whether events are sent',
  format: 'Format of the requests. Default: `standard`',
  includeContent: 'Whether prompts, results and inputs are sent too. Needs the scopes to read them',
}

/** POST /webhooks. */
export const CreateWebhook = z
  .object({
    url: address.describe(DESCRIPTIONS.url),
    events: patterns.describe(DESCRIPTIONS.events),
    description: text(1_000).nullish().describe(DESCRIPTIONS.description),
    enabled: bool().nullish().describe(DESCRIPTIONS.enabled),
    format: WebhookFormat.nullish().describe(DESCRIPTIONS.format),
    includeContent: bool().nullish().describe(DESCRIPTIONS.includeContent),
  })
  .meta({ examples: [{ url: 'https://example.com/hooks/muster', events: ['task.*', 'execution.failed'] }] })

/** PATCH /webhooks/{id}. */
export const UpdateWebhook = z
  .object({
    ...WebhookId.shape,
    url: address.optional().describe(DESCRIPTIONS.url),
    events: patterns.optional().describe(DESCRIPTIONS.events),
    description: text(1_000).nullish().describe(DESCRIPTIONS.description),
    enabled: bool().optional().describe(DESCRIPTIONS.enabled),
    format: WebhookFormat.optional().describe(`${DESCRIPTIONS.format}. A change needs the url again`),
    includeContent: bool().optional().describe(DESCRIPTIONS.includeContent),
  })
  .meta({ examples: [{ description: 'Tells the team of failures' }] })

export const WebhooksResponse = ok({ webhooks: z.array(Webhook).describe('Newest first'), nextCursor })
export const WebhookResponse = ok({ webhook: Webhook.describe('The webhook') })
export const WebhookDeleted = ok({ message: z.string().describe('Message for people') })
export const WebhookSecret = ok({
  webhook: Webhook.describe('The webhook'),
  secret: z
    .string()
    .nullable()
    .describe('The signing secret, returned only once: `whsec_` and base64. Null in the answer to a repeated request'),
})
export const CreateWebhookResponse = WebhookSecret.extend({ id: z.string().describe('Id of the new webhook') })

export const DeliveryStatus = z
  .enum(['pending', 'delivered', 'failed'], { error: 'Invalid status. Must be: pending, delivered, failed' })
  .meta({ id: 'DeliveryStatus', description: 'State of a delivery' })

/** An attempt to deliver an event. */
export const DeliveryAttempt = z
  .object({
    at: timestamp.describe('Time at which the attempt began'),
    status: z.int().nullable().describe('HTTP status of the answer; null if there was none'),
    durationMs: z.int().describe('Duration (ms)'),
    error: z.string().optional().describe('Reason of the failure'),
    response: z.string().describe('The first KB of the answer'),
  })
  .meta({ id: 'DeliveryAttempt', description: 'An attempt to deliver an event' })

/** An event on its way to a webhook (contract-2.md section 5.1). */
export const WebhookDelivery = z
  .object({
    id: z.string().describe('Id of the delivery'),
    webhookId: z.string().describe('The webhook'),
    event: z.string().describe('Type of the event'),
    eventId: z.string().describe('Id of the event, sent as `webhook-id`'),
    subjectId: z.string().describe('Id of the subject of the event'),
    status: DeliveryStatus.describe('State of the delivery'),
    attempts: z.array(DeliveryAttempt).describe('The latest 50 attempts, oldest first'),
    nextAttemptAt: timestamp.nullable().describe('Time of the next attempt; null after the last one'),
    createdAt: timestamp.describe('Time of the event'),
  })
  .meta({ id: 'WebhookDelivery', description: 'An event on its way to a webhook' })

/** GET /webhooks/{id}/deliveries. */
export const ListDeliveries = z.object({
  ...WebhookId.shape,
  status: DeliveryStatus.optional().describe('Only deliveries in this state'),
  event: z.string().max(100).optional().describe('Only deliveries of this type of event'),
  ...pageInput,
})

export const DeliveryId = z.object({
  ...WebhookId.shape,
  deliveryId: z.string().describe('Id of the delivery'),
})

/** POST /webhooks/{id}/replay. */
export const ReplayDeliveries = z
  .object({
    ...WebhookId.shape,
    since: moment.check(inRange).describe('Deliveries of events since this moment'),
    status: DeliveryStatus.nullish().describe('Only deliveries in this state. Default: `failed`'),
  })
  .meta({ examples: [{ since: '2026-11-24T00:00:00Z', status: 'failed' }] })

export const DeliveriesResponse = ok({ deliveries: z.array(WebhookDelivery).describe('Newest first'), nextCursor })
export const DeliveryResponse = ok({ delivery: WebhookDelivery.describe('The delivery') })
export const DeliveriesReplayed = ok({ count: z.int().describe('Number of deliveries that will be sent again') })
