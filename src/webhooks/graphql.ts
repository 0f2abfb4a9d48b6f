import type { z } from 'zod'
import { builder } from '../graphql/builder.ts'
import { connectionType, relationList, rootList } from '../graphql/connection.ts'
import { argsFromZod, enumFromZod, inputFromZod } from '../graphql/inputs.ts'
import { deleteRow, writeRow } from '../graphql/mutations.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { reload, rootRow, rowIn, rowsOf } from '../graphql/rows.ts'
import { USER, User } from '../organizations/graphql.ts'
import { attemptsOf, deliveriesBy, eventIdOf, reachableDeliveries } from './deliveries.ts'
import { webhooks } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const Format = enumFromZod('WebhookFormat', schema.WebhookFormat, 'Format of the requests to a webhook')
const Status = enumFromZod('DeliveryStatus', schema.DeliveryStatus, 'The state of a delivery')
const Attempt = objectFromZod('DeliveryAttempt', schema.DeliveryAttempt, 'An attempt to deliver an event')
const CreateInput = inputFromZod('CreateWebhookInput', schema.CreateWebhook, 'A new webhook')
const UpdateInput = inputFromZod(
  'UpdateWebhookInput',
  schema.UpdateWebhook,
  'Changes of a webhook; absent fields are unchanged',
)

const WEBHOOK = rowsOf('Webhook', 'Webhook', service.reachable, { name: 'Webhook' })
const DELIVERY = rowsOf('Delivery', 'WebhookDelivery', reachableDeliveries, { name: 'Delivery' })

const extensions = { scopes: ['webhooks:read'] as const }

const Delivery = builder.prismaObject('WebhookDelivery', {
  name: 'Delivery',
  description: 'An event on its way to a webhook',
  select: { id: true },
  extensions: { ...extensions, like: schema.WebhookDelivery },
  fields: (t) => ({
    id: t.exposeID('id'),
    webhookId: t.exposeID('webhookId'),
    event: t.exposeString('event'),
    eventId: t.id({
      select: { id: true, organizationId: true, event: true, position: true, sequence: true },
      resolve: (row) => eventIdOf(row),
    }),
    subjectId: t.exposeID('subjectId'),
    status: t.expose('status', { type: Status }),
    attempts: t.field({
      type: [Attempt],
      extensions: { cost: 10 },
      select: { attempts: true },
      resolve: (row) => attemptsOf(row),
    }),
    nextAttemptAt: t.expose('nextAttemptAt', { type: 'DateTime', nullable: true }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
  }),
})

const Deliveries = connectionType('Delivery', Delivery, 'deliveries, newest first')

const Webhook = builder.prismaObject('Webhook', {
  description: 'An address that receives the events of your organization',
  select: { id: true },
  extensions: { ...extensions, like: schema.Webhook },
  fields: (t) => ({
    id: t.exposeID('id'),
    organizationId: t.exposeID('organizationId'),
    ownerId: t.exposeID('ownerId'),
    url: t.exposeString('shownUrl'),
    description: t.exposeString('description'),
    events: t.stringList({ select: { events: true }, resolve: (row) => service.eventsOf(row) }),
    enabled: t.exposeBoolean('enabled'),
    disabledReason: t.exposeString('disabledReason', { nullable: true }),
    failingSince: t.expose('failingSince', { type: 'DateTime', nullable: true }),
    format: t.expose('format', { type: Format }),
    includeContent: t.exposeBoolean('includeContent'),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime' }),
    owner: t.field(rowIn(User, USER, 'ownerId', 'The user who made it')),
    deliveries: t.field(
      relationList(Deliveries, DELIVERY, {
        column: 'webhookId',
        description: 'Its deliveries, newest first',
        extensions: { procedure: webhooks.deliveries },
        narrow: {
          args: schema.ListDeliveries.pick({ status: true, event: true }),
          where: async ({ actor }, _ids, args) => deliveriesBy(actor, args as never),
        },
      }),
    ),
  }),
})

const Webhooks = connectionType('Webhook', Webhook, 'webhooks, newest first')

type Revealed = { secret: string | null; webhook: z.output<typeof schema.Webhook> }
const SecretPayload = builder.objectRef<Revealed>('WebhookSecretPayload').implement({
  description: 'A webhook and its new secret',
  fields: (t) => ({
    secret: t.exposeString('secret', { nullable: true, description: 'The signing secret, returned only once' }),
    webhook: t.field({
      type: Webhook,
      description: 'The webhook',
      extensions: { scopes: ['webhooks:write'] },
      resolve: ({ webhook }, _, context, info) => reload(context, info, WEBHOOK, webhook.id),
    }),
  }),
})

const ReplayPayload = builder.objectRef<{ count: number }>('ReplayDeliveriesPayload').implement({
  description: 'Deliveries that will be sent again',
  fields: (t) => ({ count: t.exposeInt('count', { description: 'Number of deliveries' }) }),
})

builder.queryFields((t) => ({
  webhooks: t.field(
    rootList(Webhooks, WEBHOOK, webhooks.list, schema.ListWebhooks, ({ actor }) => service.reachable(actor)),
  ),
  webhook: t.field(rootRow(Webhook, WEBHOOK, webhooks.get, schema.WebhookId)),
}))

builder.mutationFields((t) => ({
  createWebhook: t.field({
    ...procedureExtensions(webhooks.create),
    type: SecretPayload,
    args: { input: t.arg({ type: CreateInput, required: true }) },
    resolve: (_, { input }, { caller }) => caller.webhooks.create(input),
  }),
  updateWebhook: t.field(
    writeRow(
      Webhook,
      WEBHOOK,
      webhooks.update,
      UpdateInput,
      async (caller, input) => (await caller.webhooks.update(input)).webhook,
    ),
  ),
  deleteWebhook: t.field(deleteRow(webhooks.delete, schema.WebhookId, (caller, args) => caller.webhooks.delete(args))),
  rotateWebhookSecret: t.field({
    ...procedureExtensions(webhooks.rotate),
    type: SecretPayload,
    args: argsFromZod(schema.WebhookId),
    resolve: (_, args, { caller }) => caller.webhooks.rotate(args),
  }),
  testWebhook: t.field({
    ...procedureExtensions(webhooks.test),
    type: Delivery,
    args: argsFromZod(schema.WebhookId),
    resolve: async (_, args, context, info) => {
      const { delivery } = await context.caller.webhooks.test(args)
      return reload(context, info, DELIVERY, delivery.id)
    },
  }),
  replayDelivery: t.field({
    ...procedureExtensions(webhooks.replayDelivery),
    type: Delivery,
    args: argsFromZod(schema.DeliveryId),
    resolve: async (_, args, context, info) => {
      await context.caller.webhooks.replayDelivery(args)
      return reload(context, info, DELIVERY, args.deliveryId)
    },
  }),
  replayDeliveries: t.field({
    ...procedureExtensions(webhooks.replay),
    type: ReplayPayload,
    args: argsFromZod(schema.ReplayDeliveries),
    resolve: (_, args, { caller }) => caller.webhooks.replay(args),
  }),
}))
