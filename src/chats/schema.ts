import { z } from 'zod'
import { EventData, Execute, FollowExecution } from '../executions/schema.ts'
import { bool, ok, requiredText, timestamp } from '../lib/fields.ts'
import { countInput, nextCursor, onlyTrue, pageInput, total, truncated } from '../lib/page.ts'
import { STOP_REASONS } from '../wire.ts'

export const ChatStatus = z
  .enum(['standby', 'working', 'done', 'needs_attention', 'error'], {
    error: 'Invalid status. Must be: standby, working, done, needs_attention, error',
  })
  .meta({ id: 'ChatStatus' })

const chatId = z.string().describe('The chat')
const title = requiredText(200)

/** POST /chats (contract.md section 6). */
export const CreateChat = z
  .object({
    spaceId: z.string().nullish().describe('Default: the default space'),
    agentId: z.string().nullish().describe('The agent to talk to'),
    title: title.nullish().describe("Default: the agent's name"),
  })
  .meta({ examples: [{ title: 'Release notes' }] })

/** PATCH /chats/{id} (contract.md section 6). */
export const UpdateChat = z.object({
  id: chatId,
  title: title.optional(),
  closed: bool().optional().describe('A closed chat opens again with its next message'),
})

/** GET /chats (contract.md section 6). */
export const ListChats = z.object({
  spaceId: z.string().optional(),
  agentId: z.string().optional(),
  mission: onlyTrue('mission').describe('Only runs of missions'),
  status: ChatStatus.optional(),
  ...countInput,
  ...pageInput,
})

/** GET /chats/{id}/events (contract-2.md section 1.12). */
export const FollowChat = z.object({
  id: chatId,
  lastEventId: z.string().nullish().describe('The id of the last event that you have'),
  content: FollowExecution.shape.content,
})

/** GET and DELETE /chats/{id} (contract.md section 6). */
export const ChatId = z.object({ id: chatId })

/** Which messages of a chat are listed. */
const branch = z
  .string()
  .optional()
  .describe(
    'By default only the active branch: what was continued last. `all` for every branch, or the id of one (`branch` of a message)',
  )

/** How messages are listed in GraphQL, beside their page. */
export const OfBranch = z.object({ branch })

/** GET /chats/{id}/messages (contract.md section 6; contract-2.md section 1.12). */
export const ListMessages = z.object({ id: chatId, branch, ...pageInput })

/** POST /chats/{id}/messages (contract-2.md section 1.12): execute on the chat's agent. */
export const SendMessage = Execute.omit({ spaceId: true, chatId: true })
  .extend({
    id: chatId,
    message: requiredText(200_000).nullish().describe('What to say. Required unless `regenerate` is true'),
    sessionId: z.string().nullish().describe('Session, or branch, of the chat to continue. Default: the active one'),
    replaces: z.string().nullish().describe('A user message of the chat. The new one takes its place, in a branch'),
    regenerate: bool()
      .nullish()
      .describe('Answer the last message, or the one that `replaces` names, again in a branch'),
  })
  .meta({ examples: [{ message: 'Hello' }] })

/** A conversation (service.md, "Client-library resource shapes"; contract.md section 6). */
export const Chat = z
  .object({
    id: z.string(),
    organizationId: z.string(),
    spaceId: z.string(),
    agentId: z.string().nullable().describe('The agent it was opened with'),
    agentName: z.string().nullable(),
    ownerId: z.string(),
    title: z.string(),
    subtitle: z.string().optional(),
    status: ChatStatus,
    lastMessage: z.string().optional().describe('How the latest answer begins'),
    sessionId: z.string().optional().describe('The latest session'),
    messageCount: z.int(),
    missionTitle: z.string().optional().describe('Of the mission whose run it is'),
    runNumber: z.int().optional(),
    closed: z.boolean(),
    closedAt: timestamp.nullable(),
    createdAt: timestamp,
    updatedAt: timestamp,
  })
  .meta({ id: 'Chat' })

export const MessageRole = z.enum(['user', 'assistant']).meta({ id: 'MessageRole' })

/** A call of a tool in a turn (contract.md section 6). */
export const ToolCall = z
  .object({
    id: z.string().describe('As the events of the run name it'),
    name: z.string().describe('The tool'),
    input: z.unknown().describe('What the model gave to it'),
    result: z.string().nullable().describe('The beginning of what it answered; null when the run ended before'),
    isError: z.boolean().describe('It failed'),
  })
  .meta({ id: 'ToolCall' })

export const Message = z
  .object({
    id: z.string(),
    parentId: z.string().nullable().describe('The message before it in its branch; null for the first'),
    branch: z.string().describe('The branch that it was said in. As `sessionId` of a message it is gone on with'),
    role: MessageRole,
    content: z.string(),
    toolCalls: z.array(ToolCall),
    executionId: z.string(),
    interrupted: z.boolean().describe('The run was cancelled or failed; this is what it had said'),
    createdAt: timestamp,
    truncated: truncated.describe('In long lists: `content` is cut at 4,000 characters; its execution has it whole'),
    stopReason: z
      .enum(STOP_REASONS)
      .nullish()
      .describe('Of the last message of a run: why it ended; `end_turn` is a whole answer'),
    code: z.string().optional().describe('Of the last message of a failed run: the kind of the error'),
    detail: z.string().optional().describe('Of the last message of a failed run: why it failed'),
  })
  .meta({ id: 'Message' })

export const ChatResponse = ok({ chat: Chat })
export const ChatCreated = ok({ id: z.string(), title: z.string(), status: ChatStatus, chat: Chat })
export const ChatsResponse = ok({
  chats: z.array(Chat),
  nextCursor,
  total,
})
export const MessagesResponse = ok({
  chatId: z.string(),
  title: z.string(),
  status: ChatStatus,
  messages: z.array(Message),
  nextCursor,
})
export const ChatDeleted = ok({ message: z.string() })

const ofRun = z.string().describe('The run')

/** The data of each event of a chat, by its name, which is its `type`. */
export const ChatEventData = {
  status: z.object({
    type: z.literal('status'),
    executionId: z.string().nullable().describe('The run that changed it; null if there is none'),
    status: ChatStatus,
    at: timestamp,
  }),
  meta: EventData.meta,
  message: z.intersection(EventData.message, z.object({ executionId: ofRun })),
  result: EventData.result,
  error: EventData.error,
  reset: z.object({
    type: z.literal('reset'),
    executionId: z.string().nullable().describe('The run whose event is gone, if the id named one'),
  }),
}
