import { Event } from '../executions/graphql-events.ts'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, parseArgs } from '../graphql/inputs.ts'
import { shows } from '../graphql/procedures.ts'
import type { ChatEvent as ChatEventRow } from '../wire.ts'
import { Status } from './graphql.ts'
import { batchesOf, chats } from './router.ts'
import * as schema from './schema.ts'

const Type = builder.enumType('ChatEventType', {
  description: 'What an event of a chat tells',
  values: {
    status: { description: 'What goes on in the chat: at first, and whenever it changes' },
    meta: { description: 'A run was accepted' },
    message: { description: 'A run says something' },
    result: { description: 'A run has completed' },
    error: { description: 'A run has failed or was cancelled' },
    reset: { description: 'The event that was named is gone: read the messages again' },
  } as const,
})

const ChatEvent = builder.objectRef<ChatEventRow>('ChatEvent').implement({
  description: 'Something that happened in a chat',
  fields: (t) => ({
    id: t.exposeID('id', { description: 'Opaque. Give the last one you have as `after` to go on' }),
    type: t.field({ type: Type, description: 'What it tells', resolve: ({ event }) => event }),
    executionId: t.exposeID('executionId', { nullable: true, description: 'The run; null if there is none' }),
    at: t.expose('at', { type: 'DateTime', description: 'When it happened' }),
    status: t.field({
      type: Status,
      nullable: true,
      description: 'What goes on in the chat, of a `status`',
      resolve: (row) => (row.event === 'status' ? row.data.status : null),
    }),
    event: t.field({
      type: Event,
      nullable: true,
      description: 'The event of the run, of all others but `reset`',
      resolve: (row) => (row.event === 'status' || row.event === 'reset' ? null : row),
    }),
  }),
})

const { lastEventId, ...plain } = schema.FollowChat.shape
const Follow = schema.FollowChat.omit({ lastEventId: true }).extend({ after: lastEventId, ...plain })

builder.subscriptionField('chatEvents', (t) =>
  t.field({
    ...shows(chats.events),
    description: 'What goes on in a chat from now on or `after` an event, in all of its runs',
    type: ChatEvent,
    args: argsFromZod(Follow),
    // Refused before the first event, or not at all.
    subscribe: async (_, args, { caller }) => {
      const { after, ...input } = parseArgs(Follow, args)
      return each(batchesOf(await caller.chats.events({ ...input, lastEventId: after })))
    },
    resolve: (event) => event,
  }),
)

async function* each(batches: AsyncIterable<readonly ChatEventRow[]>): AsyncGenerator<ChatEventRow> {
  for await (const events of batches) yield* events
}
