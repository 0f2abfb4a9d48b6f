import type { z } from 'zod'
import { AGENT, Agent } from '../agents/graphql.ts'
import { builder } from '../graphql/builder.ts'
import { changeField } from '../graphql/change-subscription.ts'
import { connectionType, relationList, rootList } from '../graphql/connection.ts'
import { enumFromZod, inputFromZod } from '../graphql/inputs.ts'
import { deleteRow, writeRow } from '../graphql/mutations.ts'
import { nodeOf } from '../graphql/node.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { computedBy, isTruncated, rootRow, rowIn, rowsOf } from '../graphql/rows.ts'
import { bool } from '../lib/fields.ts'
import { USER, User } from '../organizations/graphql.ts'
import { computed as computedOfSpace, SPACE, Space } from '../spaces/graphql.ts'
import { ofBranch } from './branches.ts'
import * as messages from './messages.ts'
import { chats } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const Status = enumFromZod('ChatStatus', schema.ChatStatus, 'Status of a chat')
const MessageRole = enumFromZod('MessageRole', schema.MessageRole, 'Author of a message')

export const CHAT = rowsOf('Chat', 'Chat', service.reachable, { name: 'Chat' })

const computed = computedBy(CHAT, ({ actor, deps }, ids) => service.findMany(actor, deps, ids))

export const Chat = builder.prismaObject('Chat', {
  description: 'A conversation that people see: its messages and sessions',
  interfaces: nodeOf(CHAT),
  select: { id: true },
  extensions: { scopes: ['chats:read'], like: schema.Chat },
  fields: (t) => ({
    id: t.exposeID('id'),
    organizationId: t.exposeID('organizationId'),
    spaceId: t.exposeID('spaceId'),
    agentId: t.exposeID('agentId', { nullable: true }),
    agentName: t.string({ nullable: true, resolve: computed('agentName') }),
    ownerId: t.exposeID('ownerId'),
    title: t.exposeString('title'),
    subtitle: t.exposeString('subtitle', { nullable: true }),
    status: t.expose('status', { type: Status }),
    lastMessage: t.string({ nullable: true, resolve: computed('lastMessage') }),
    sessionId: t.id({ nullable: true, resolve: computed('sessionId') }),
    messageCount: t.int({ resolve: computed('messageCount') }),
    missionTitle: t.string({ nullable: true, resolve: computed('missionTitle') }),
    runNumber: t.exposeInt('runNumber', { nullable: true }),
    closed: t.boolean({ select: { closedAt: true }, resolve: ({ closedAt }) => closedAt !== null }),
    closedAt: t.expose('closedAt', { type: 'DateTime', nullable: true }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime' }),
    agent: t.field(rowIn(Agent, AGENT, 'agentId', 'Agent with which it was opened; null if you cannot reach it')),
    space: t.field(rowIn(Space, SPACE, 'spaceId', 'Space of the chat')),
    owner: t.field(rowIn(User, USER, 'ownerId', 'User who opened it')),
  }),
})

const ToolCall = objectFromZod('ToolCall', schema.ToolCall, 'A tool call', {
  fields: { input: { cost: 5 }, result: { cost: 20 } },
})

const Attachment = objectFromZod('Attachment', schema.Attachment, 'A file that is attached to a message')

const MESSAGE = rowsOf('Message', 'Message', messages.reachableMessages, {
  texts: ['content', 'reasoning', 'summary'],
  listed: messages.listedMessages,
  order: [
    ['createdAt', 'asc'],
    ['position', 'asc'],
    ['id', 'asc'],
  ],
})

const ofRun = computedBy(MESSAGE, ({ actor, deps }, ids) => messages.findRuns(actor, deps, ids))

const attached = computedBy(MESSAGE, ({ actor, deps }, ids) => messages.findAttachments(actor, deps, ids))

const before = computedBy(MESSAGE, ({ deps }, ids) => messages.findParents(deps, ids))

export const Message = builder.prismaObject('Message', {
  description: 'One turn of a chat',
  interfaces: nodeOf(MESSAGE),
  select: { id: true },
  extensions: { scopes: ['chats:read'], like: schema.Message },
  fields: (t) => ({
    id: t.exposeID('id'),
    parentId: t.id({ nullable: true, resolve: before('parentId') }),
    branch: t.exposeID('sessionId'),
    truncated: t.boolean({ nullable: true, resolve: isTruncated }),
    role: t.expose('role', { type: MessageRole }),
    content: t.exposeString('content', { extensions: { cost: 5 } }),
    toolCalls: t.field({
      type: [ToolCall],
      extensions: { rows: 3 },
      select: { toolCalls: true },
      resolve: ({ toolCalls }) => toolCalls as z.output<typeof schema.ToolCall>[],
    }),
    reasoning: t.exposeString('reasoning', { nullable: true, extensions: { cost: 5 } }),
    summary: t.exposeString('summary', { nullable: true, extensions: { cost: 5 } }),
    attachments: t.field({ type: [Attachment], extensions: { rows: 2 }, resolve: attached('attachments') }),
    executionId: t.exposeID('executionId'),
    userId: t.id({ resolve: ofRun('userId') }),
    interrupted: t.exposeBoolean('interrupted'),
    stopReason: t.string({ nullable: true, resolve: ofRun('stopReason') }),
    code: t.string({ nullable: true, resolve: ofRun('code') }),
    detail: t.string({ nullable: true, resolve: ofRun('detail') }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
  }),
})

const Chats = connectionType('Chat', Chat, 'chats, newest first')
const Messages = connectionType('Message', Message, 'messages, oldest first')

builder.prismaObjectFields(Chat, (t) => ({
  messages: t.field(
    relationList(Messages, MESSAGE, {
      column: 'chatId',
      description: 'Messages of the sessions that you may see, oldest first; of branches the active one',
      narrow: {
        args: schema.OfBranch,
        where: ({ actor, deps }, ids, { branch }) =>
          ofBranch(deps.db, actor, messages.ownSessions(actor), ids, branch as string | undefined),
      },
      extensions: { procedure: chats.messages },
      total: computed('messageCount'),
    }),
  ),
}))

builder.prismaObjectFields(Agent, (t) => ({
  chats: t.field(
    relationList(Chats, CHAT, { column: 'agentId', description: 'Chats opened with the agent, newest first' }),
  ),
}))
builder.prismaObjectFields(Space, (t) => ({
  chats: t.field(
    relationList(Chats, CHAT, {
      column: 'spaceId',
      description: 'Chats of the space, newest first',
      total: computedOfSpace('chatCount'),
    }),
  ),
}))

// In GraphQL the text of the query parameter is a boolean.
const { description } = schema.ListChats.shape.mission
const ListChats = schema.ListChats.extend({
  mission: bool()
    .optional()
    .describe(description ?? ''),
})
const CreateInput = inputFromZod('CreateChatInput', schema.CreateChat, 'A new chat')
const UpdateInput = inputFromZod('UpdateChatInput', schema.UpdateChat, 'Changes of a chat')

builder.queryFields((t) => ({
  chats: t.field(
    rootList(
      Chats,
      CHAT,
      chats.list,
      ListChats,
      ({ actor }, input) => service.listedBy(actor, input),
      ({ actor, deps }, input) => service.countListed(actor, deps.db, input),
    ),
  ),
  chat: t.field(rootRow(Chat, CHAT, chats.get, schema.ChatId)),
}))

builder.subscriptionField('chatChanges', (t) =>
  t.field(
    changeField(Chat, CHAT, 'chat', {
      description: 'Opened and changed chats, also those changed by runs, each in its current state',
      scopes: ['chats:read'],
    }),
  ),
)

builder.mutationFields((t) => ({
  createChat: t.field(writeRow(Chat, CHAT, chats.create, CreateInput, (caller, input) => caller.chats.create(input))),
  updateChat: t.field(
    writeRow(Chat, CHAT, chats.update, UpdateInput, async (caller, input) => (await caller.chats.update(input)).chat),
  ),
  deleteChat: t.field(deleteRow(chats.delete, schema.ChatId, (caller, args) => caller.chats.delete(args))),
}))
