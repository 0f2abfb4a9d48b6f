import { send } from '../executions/again.ts'
import { EXECUTE_ERRORS, Executed } from '../executions/schema.ts'
import { idempotent } from '../idempotency.ts'
import { inBatches } from '../subscriptions.ts'
import { mcpTool, restMeta, router, STARTS_RUN, tokenProcedure } from '../trpc.ts'
import { follow } from './follow.ts'
import { listMessages } from './messages.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const chats = router({
  list: tokenProcedure('chats:read')
    .meta(restMeta('GET', '/api/v1/chats', 'List chats'))
    .meta(mcpTool('list_chats', 'search spaceId agentId status limit cursor'))
    .input(schema.ListChats.prefault({}))
    .output(schema.ChatsResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),

  create: tokenProcedure('chats:write')
    .meta(restMeta('POST', '/api/v1/chats', 'Open a chat in a space'))
    .input(schema.CreateChat.prefault({}))
    .output(schema.ChatCreated)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => service.findPlace(ctx.actor, ctx.deps, input),
        (deps) => service.create(ctx.actor, deps, input),
      ),
    ),

  get: tokenProcedure('chats:read')
    .meta(restMeta('GET', '/api/v1/chats/{id}', 'Get a chat'))
    .input(schema.ChatId)
    .output(schema.ChatResponse)
    .query(({ ctx, input }) => service.get(ctx.actor, ctx.deps, input.id)),

  update: tokenProcedure('chats:write')
    .meta(restMeta('PATCH', '/api/v1/chats/{id}', 'Rename, close or reopen a chat'))
    .input(schema.UpdateChat)
    .output(schema.ChatResponse)
    .mutation(({ ctx, input }) => service.update(ctx.actor, ctx.deps, input)),

  delete: tokenProcedure('chats:write')
    .meta(
      restMeta('DELETE', '/api/v1/chats/{id}', 'Delete a chat; its executions stay', {
        409: 'A run is active in the chat',
      }),
    )
    .input(schema.ChatId)
    .output(schema.ChatDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input.id)),

  send: tokenProcedure('agents:execute')
    .meta(STARTS_RUN)
    .meta(
      restMeta('POST', '/api/v1/chats/{id}/messages', 'Send a message to the agent of a chat', {
        ...EXECUTE_ERRORS,
        404: 'The chat, session, message or agent does not exist or is not accessible',
      }),
    )
    .input(schema.SendMessage)
    .output(Executed)
    .mutation(({ ctx, input }) => send(ctx.actor, ctx.deps, input, ctx)),

  /** A stream without side effects, which clients repeat when they reconnect. */
  events: tokenProcedure('chats:read')
    .input(schema.FollowChat)
    .subscription(async ({ ctx, input }) => {
      return inBatches(await follow(ctx.actor, ctx.deps, input, ctx.streamTo), ({ id }) => id)
    }),

  messages: tokenProcedure('chats:read')
    .meta(restMeta('GET', '/api/v1/chats/{id}/messages', 'List the messages of a chat, oldest first'))
    .meta(mcpTool('read_chat', 'id branch limit cursor'))
    .input(schema.ListMessages)
    .output(schema.MessagesResponse)
    .query(({ ctx, input }) => listMessages(ctx.actor, ctx.deps, input)),
})
