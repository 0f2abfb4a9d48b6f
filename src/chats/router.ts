import { tracked } from '@trpc/server'
import { send } from '../executions/again.ts'
import { EXECUTE_ERRORS, Executed } from '../executions/schema.ts'
import { once } from '../idempotency.ts'
import { rest, router, token } from '../trpc.ts'
import type { ChatEvent } from '../wire.ts'
import { follow } from './follow.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const chats = router({
  list: token('chats:read')
    .meta(rest('GET', '/api/v1/chats', 'List chats'))
    .input(schema.ListChats.prefault({}))
    .output(schema.ChatsResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),

  create: token('chats:write')
    .meta(rest('POST', '/api/v1/chats', 'Open a chat in a space'))
    .input(schema.CreateChat.prefault({}))
    .output(schema.ChatCreated)
    .mutation(({ ctx, input }) =>
      once(
        ctx,
        input,
        () => service.findPlace(ctx.actor, ctx.deps, input),
        (deps) => service.create(ctx.actor, deps, input),
      ),
    ),

  get: token('chats:read')
    .meta(rest('GET', '/api/v1/chats/{id}', 'Get a chat'))
    .input(schema.ChatId)
    .output(schema.ChatResponse)
    .query(({ ctx, input }) => service.get(ctx.actor, ctx.deps, input.id)),

  update: token('chats:write')
    .meta(rest('PATCH', '/api/v1/chats/{id}', 'Rename a chat, close it or open it again'))
    .input(schema.UpdateChat)
    .output(schema.ChatResponse)
    .mutation(({ ctx, input }) => service.update(ctx.actor, ctx.deps, input)),

  delete: token('chats:write')
    .meta(rest('DELETE', '/api/v1/chats/{id}', 'Delete a chat; its executions stay', { 409: 'A run is on in it' }))
    .input(schema.ChatId)
    .output(schema.ChatDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input.id)),

  send: token('agents:execute')
    .meta(
      rest('POST', '/api/v1/chats/{id}/messages', 'Say something in a chat: run its agent on a message', {
        ...EXECUTE_ERRORS,
        404: 'The chat, session, message or agent is none that you can use',
      }),
    )
    .input(schema.SendMessage)
    .output(Executed)
    .mutation(({ ctx, input }) => send(ctx.actor, ctx.deps, input, ctx)),

  /** Follows a chat; it has no effect, and is repeated by clients that reconnect. */
  events: token('chats:read')
    .input(schema.FollowChat)
    .subscription(async ({ ctx, input }) => {
      const batches = await follow(ctx.actor, ctx.deps, input, ctx.streamTo)
      return { batches, [Symbol.asyncIterator]: () => trackEach(batches) }
    }),

  messages: token('chats:read')
    .meta(rest('GET', '/api/v1/chats/{id}/messages', 'List the messages of a chat, oldest first'))
    .input(schema.ListMessages)
    .output(schema.MessagesResponse)
    .query(({ ctx, input }) => service.messages(ctx.actor, ctx.deps, input)),
})

/** What the caller's `events` gives to the other faces. */
export const batchesOf = (events: AsyncIterable<unknown>) =>
  (events as unknown as { batches: AsyncIterable<readonly ChatEvent[]> }).batches

/** What tRPC needs to resume. */
async function* trackEach(batches: AsyncIterable<readonly ChatEvent[]>) {
  for await (const events of batches) for (const event of events) yield tracked(event.id, event)
}
