import { Event } from '../executions/graphql-events.ts'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, parseArgs } from '../graphql/inputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { batchesOf, eachOf } from '../subscriptions.ts'
import type { ChatEvent as ChatEventRow } from '../wire.ts'
import { Status } from './graphql.ts'
import { chats } from './router.ts'
import * as schema from './schema.ts'

const Type = builder.enumType('ChatEventType', {
  description: 'Kind of a chat event',
  values: {
    status: { description: 'Status of the chat: initially, and whenever it changes' },
    meta: { description: 'A run was accepted' },
    message: { description: 'An event of a run' },
    result: { description: 'A run has completed' },
    error: { description: 'A run has failed or was cancelled' },
    reset: { description: 'The given event no longer exists: read the messages again' },
  } as const,
})

const ChatEvent = builder.objectRef<ChatEventRow>('ChatEvent').implement({
  description: 'An event of a chat',
  fields: (t) => ({
    id: t.exposeID('id', { description: 'Opaque. Pass the last one as `after` to resume' }),
    type: t.field({ type: Type, description: 'Kind of the event', resolve: ({ event }) => event }),
    executionId: t.exposeID('executionId', { nullable: true, description: 'The run; null if there is none' }),
    at: t.expose('at', { type: 'DateTime', description: 'Time of the event' }),
    status: t.field({
      type: Status,
      nullable: true,
      description: 'Status of the chat, for a `status` event',
      resolve: (row) => (row.event === 'status' ? row.data.status : null),
    }),
    event: t.field({
      type: Event,
      nullable: true,
      description: 'Event of the run, for all types but `status` and `reset`',
      resolve: (row) => (row.event === 'status' || row.event === 'reset' ? null : row),
    }),
  }),
})

const { lastEventId, ...plain } = schema.FollowChat.shape
const Follow = schema.FollowChat.omit({ lastEventId: true }).extend({ after: lastEventId, ...plain })

builder.subscriptionField('chatEvents', (t) =>
  t.field({
    ...procedureExtensions(chats.events),
    description: 'Events of all runs of a chat, from now on or `after` an event',
    type: ChatEvent,
    args: argsFromZod(Follow),
    // Errors are reported before the first event, or not at all.
    subscribe: async (_, args, { caller }) => {
      const { after, ...input } = parseArgs(Follow, args)
      return eachOf(batchesOf(await caller.chats.events({ ...input, lastEventId: after })))
    },
    resolve: (event) => event,
  }),
)
