import type { z } from 'zod'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, inputFromZod, parseArgs } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { pageType } from '../graphql/page.ts'
import { shows } from '../graphql/procedures.ts'
import { chats } from './router.ts'
import * as schema from './schema.ts'

enumFromZod('ChatStatus', schema.ChatStatus, 'What goes on in a chat')
enumFromZod('MessageRole', schema.MessageRole, 'Who says it')

const Chat = objectFromZod('Chat', schema.Chat, 'A conversation')
const ChatPage = pageType('ChatPage', Chat, 'A page of chats, newest first')
objectFromZod('ToolCall', schema.ToolCall, 'A call of a tool')
const Message = objectFromZod('Message', schema.Message, 'One turn of a chat')

const MessagePage = builder.objectRef<z.output<typeof schema.MessagesResponse>>('MessagePage').implement({
  description: 'A page of the messages of a chat, oldest first',
  fields: (t) => ({
    nodes: t.field({
      type: [Message],
      description: 'The messages',
      // How many, the page itself says.
      extensions: { rows: 1, cost: 20 },
      resolve: ({ messages }) => messages,
    }),
    nextCursor: t.exposeString('nextCursor', { nullable: true, description: 'Where to go on; null at the end' }),
  }),
})

// Whoever wants to know how many there are selects `total`; missions are found by their runs.
const ListChats = schema.ListChats.omit({ count: true, mission: true })
const CreateInput = inputFromZod('CreateChatInput', schema.CreateChat, 'A new chat')
const UpdateInput = inputFromZod('UpdateChatInput', schema.UpdateChat, 'What to change of a chat')

builder.queryFields((t) => ({
  chats: t.field({
    ...shows(chats.list, { rows: 1000 }),
    type: ChatPage,
    args: argsFromZod(ListChats),
    resolve: async (_, args, { caller }) => {
      const input = parseArgs(ListChats, args)
      const { chats: nodes, nextCursor } = await caller.chats.list(input)
      const total = async () => (await caller.chats.list({ ...input, limit: 1, count: 'true' })).total ?? 0
      return { nodes, nextCursor, total }
    },
  }),
  chat: t.field({
    ...shows(chats.get),
    type: Chat,
    nullable: true,
    args: argsFromZod(schema.ChatId),
    resolve: async (_, args, { caller }) => (await caller.chats.get(args)).chat,
  }),
  chatMessages: t.field({
    ...shows(chats.messages, { rows: 1000 }),
    type: MessagePage,
    args: argsFromZod(schema.ListMessages),
    resolve: (_, args, { caller }) => caller.chats.messages(parseArgs(schema.ListMessages, args)),
  }),
}))

builder.mutationFields((t) => ({
  createChat: t.field({
    ...shows(chats.create),
    type: Chat,
    args: { input: t.arg({ type: CreateInput, required: true }) },
    resolve: async (_, { input }, { caller }) => (await caller.chats.create(input)).chat,
  }),
  updateChat: t.field({
    ...shows(chats.update),
    type: Chat,
    args: { input: t.arg({ type: UpdateInput, required: true }) },
    resolve: async (_, { input }, { caller }) => (await caller.chats.update(input)).chat,
  }),
  deleteChat: t.string({
    ...shows(chats.delete),
    args: argsFromZod(schema.ChatId),
    resolve: async (_, args, { caller }) => (await caller.chats.delete(args)).message,
  }),
}))
