import { builder } from '../graphql/builder.ts'
import { argsFromZod, parseArgs } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { trackedOf } from '../subscriptions.ts'
import { events } from './router.ts'
import * as schema from './schema.ts'
import type { VisibleEvent } from './show.ts'

const OrganizationEvent = objectFromZod(
  'OrganizationEvent',
  schema.OrganizationEvent,
  'Something that happened in your organization',
)
const Page = objectFromZod('OrganizationEventPage', schema.EventsResponse.omit({ success: true }), 'A part of the feed')

builder.queryField('events', (t) =>
  t.field({
    ...procedureExtensions(events.list, { rows: 100 }),
    type: Page,
    args: argsFromZod(schema.ListEvents),
    resolve: (_, args, { caller }) => caller.events.list(parseArgs(schema.ListEvents, args) as never),
  }),
)

const FeedEventType = builder.objectRef<{ id: string; data: VisibleEvent }>('FollowedEvent').implement({
  description: 'An event of the feed, as it happens',
  fields: (t) => ({
    id: t.exposeID('id', { description: 'Opaque. Pass the last one as `after` to resume' }),
    event: t.field({ type: OrganizationEvent, description: 'The event', resolve: ({ data }) => data }),
  }),
})

const { lastEventId, ...plain } = schema.FollowEvents.shape
const Follow = schema.FollowEvents.omit({ lastEventId: true }).extend({ after: lastEventId, ...plain })

builder.subscriptionField('events', (t) =>
  t.field({
    ...procedureExtensions(events.follow),
    description: 'The events of your organization that you can see, from now on or `after` an event',
    type: FeedEventType,
    args: argsFromZod(Follow),
    subscribe: async (_, args, { caller }) => {
      const { after, ...input } = args
      return trackedOf(await caller.events.follow({ ...input, lastEventId: after } as never))
    },
    resolve: (event) => event,
  }),
)
