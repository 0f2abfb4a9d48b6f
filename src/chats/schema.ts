import { z } from 'zod'
import { Execute, FollowExecution } from '../executions/schema.ts'
import { bool, ok, requiredText, timestamp } from '../lib/fields.ts'
import { countInput, flag, nextCursor, pageInput, total, truncated } from '../lib/page.ts'
import { searchInput } from '../lib/search.ts'
import { STOP_REASONS } from '../wire.ts'

export const ChatStatus = z
  .enum(['standby', 'working', 'done', 'needs_attention', 'error'], {
    error: 'Invalid status. Must be: standby, working, done, needs_attention, error',
  })
  .meta({ id: 'ChatStatus', description: 'State of a chat' })

const chatId = z.string().describe('The chat')
const title = requiredText(200)

/** POST /chats (contract.md section 6). */
export const CreateChat = z
  .object({
    spaceId: z.string().nullish().describe('Space of the chat. Default: the default space'),
    agentId: z.string().nullish().describe('The agent to talk to'),
    title: title.nullish().describe("Title of the chat. Default: the agent's name"),
  })
  .meta({ examples: [{ title: 'Release notes' }] })

/** PATCH /chats/{id} (contract.md section 6). */
export const UpdateChat = z
  .object({
    id: chatId,
    title: title.optional().describe('New title of the chat'),
    closed: bool().optional().describe('A closed chat opens again with its next message'),
  })
  .meta({ examples: [{ title: 'Release notes of version 2.4' }] })

/** GET /chats (contract.md section 6). */
export const ListChats = z.object({
  spaceId: z.string().optional().describe('Only chats in this space'),
  agentId: z.string().optional().describe('Only chats with this agent'),
  mission: flag('mission').describe('`true`: only runs of missions; `false`: all other chats. Default: both'),
  status: ChatStatus.optional().describe('Only chats with this status'),
  search: searchInput('chats', 'the title'),
  ...countInput,
  ...pageInput,
})

/** GET /chats/{id}/events (contract-2.md section 1.12). */
export const FollowChat = z.object({
  id: chatId,
  lastEventId: z.string().nullish().describe('The id of the last event that you have'),
  content: FollowExecution.shape.content.describe(
    'Content of complete steps in the stream: `all`, or the `rest` without the streamed blocks',
  ),
})

/** GET and DELETE /chats/{id} (contract.md section 6). */
export const ChatId = z.object({ id: chatId })

/** Selection of the listed messages of a chat. */
const branch = z
  .string()
  .optional()
  .describe('Default: the active branch, continued last. `all`, or the id of a branch (`branch` of a message)')

/** Arguments of a message list in GraphQL, besides its page. */
export const OfBranch = z.object({ branch })

/** GET /chats/{id}/messages (contract.md section 6; contract-2.md section 1.12). */
export const ListMessages = z.object({ id: chatId, branch, ...pageInput })

/** POST /chats/{id}/messages (contract-2.md section 1.12): execute on the chat's agent. */
export const SendMessage = Execute.omit({ spaceId: true, chatId: true })
  .extend({
    id: chatId,
    message: requiredText(200_000).nullish().describe('The message. Required unless `regenerate` is true'),
    sessionId: z.string().nullish().describe('Session (branch) of the chat to continue. Default: the active one'),
    replaces: z.string().nullish().describe('A user message of the chat. The new one takes its place, in a branch'),
    regenerate: bool()
      .nullish()
      .describe('Answer the last message, or the one that `replaces` names, again in a branch'),
  })
  .meta({ examples: [{ message: 'Hello' }] })

/** A conversation (service.md, "Client-library resource shapes"; contract.md section 6). */
export const Chat = z
  .object({
    id: z.string().describe('Id of the chat'),
    organizationId: z.string().describe('Id of the organization that the chat belongs to'),
    spaceId: z.string().describe('Id of the space that the chat belongs to'),
    agentId: z.string().nullable().describe('The agent it was opened with'),
    agentName: z.string().nullable().describe('Name of the agent; null if you cannot see it'),
    ownerId: z.string().describe('Id of the user who opened the chat'),
    title: z.string().describe('Short title of the chat'),
    subtitle: z.string().optional().describe('Second line of the title'),
    status: ChatStatus.describe('State of the chat'),
    lastMessage: z.string().optional().describe('Beginning of the latest answer'),
    sessionId: z.string().optional().describe('The latest session'),
    messageCount: z.int().describe('Number of messages in the active branch that you can see'),
    missionTitle: z.string().optional().describe('Title of the mission, if the chat is a run of one'),
    runNumber: z.int().optional().describe('Number of the run of its mission'),
    closed: z.boolean().describe('Whether the chat is closed; its next message opens it again'),
    closedAt: timestamp.nullable().describe('Time at which the chat was closed; null while it is open'),
    createdAt: timestamp.describe('Time at which the chat was created'),
    updatedAt: timestamp.describe('Time of the last change to the chat'),
  })
  .meta({ id: 'Chat', description: 'A conversation that people see: its messages and sessions' })

export const MessageRole = z.enum(['user', 'assistant']).meta({ id: 'MessageRole', description: 'Author of a message' })

/** A tool call in a turn (contract.md section 6). */
export const ToolCall = z
  .object({
    id: z.string().describe('Id of the call, as in the events of the run'),
    name: z.string().describe('The tool'),
    input: z.unknown().describe('Input that the model gave to the tool'),
    result: z.string().nullable().describe('Beginning of its result; null if the run ended first'),
    isError: z.boolean().describe('Whether the call failed'),
  })
  .meta({ id: 'ToolCall', description: 'A call of a tool' })

/** A file that is attached to a message. */
export const Attachment = z
  .object({
    id: z.string().describe('Id of the file, as in GET /media/{id}'),
    name: z.string().describe('Name of the file'),
    mimeType: z.string().describe('Media type of the file'),
    size: z.int().describe('Size of the file (bytes)'),
  })
  .meta({ id: 'Attachment', description: 'A file that is attached to a message' })

export const Message = z
  .object({
    id: z.string().describe('Id of the message'),
    parentId: z.string().nullable().describe('The message before it in its branch; null for the first'),
    branch: z.string().describe('Branch of the message. Send it as `sessionId` to continue the branch'),
    role: MessageRole.describe('Author of the message'),
    content: z.string().describe('Text of the message'),
    toolCalls: z.array(ToolCall).describe('Calls of tools in this turn'),
    reasoning: z.string().optional().describe('Reasoning of the model, in answers, at most 20,000 characters'),
    summary: z
      .string()
      .optional()
      .describe(
        'A summary of the conversation up to this message. Later runs of the session get it instead of these messages',
      ),
    attachments: z.array(Attachment).describe('Files of a question, without deleted ones'),
    executionId: z.string().describe('Id of the run that the message belongs to'),
    userId: z.string().describe('Id of the user that the run acts for: the author of a question'),
    interrupted: z
      .boolean()
      .describe('Whether the message is the partial answer of a run that failed or was cancelled'),
    createdAt: timestamp.describe('Time of the message'),
    truncated: truncated.describe(
      'Whether the text is cut at 4,000 characters, as in long lists. The execution has it whole',
    ),
    stopReason: z
      .enum(STOP_REASONS)
      .nullish()
      .describe('Reason of the end of the run, in its last message; `end_turn` is a whole answer'),
    code: z.string().optional().describe('Code of the error, in the last message of a failed run'),
    detail: z.string().optional().describe('Reason of the failure, in the last message of a failed run'),
  })
  .meta({ id: 'Message', description: 'A message of a chat' })

export const ChatResponse = ok({ chat: Chat })
export const ChatCreated = ok({
  id: z.string().describe('Id of the chat'),
  title: z.string().describe('Short title of the chat'),
  status: ChatStatus.describe('State of the chat'),
  chat: Chat,
})
export const ChatsResponse = ok({
  chats: z.array(Chat).describe('Chats on this page'),
  nextCursor,
  total,
})
export const MessagesResponse = ok({
  chatId: z.string().describe('Id of the chat'),
  title: z.string().describe('Short title of the chat'),
  status: ChatStatus.describe('State of the chat'),
  messages: z.array(Message).describe('Messages on this page, oldest first'),
  nextCursor,
})
export const ChatDeleted = ok({ message: z.string().describe('Confirmation for people') })

/** Data of the events that chats have beside those of their runs, by name, which is their `type`. */
export const ChatEventData = {
  status: z.object({
    type: z.literal('status').describe('Name of the event'),
    executionId: z.string().nullable().describe('The run that changed it; null if there is none'),
    status: ChatStatus.describe('State of the chat'),
    at: timestamp.describe('Time of the change'),
  }),
  reset: z.object({
    type: z.literal('reset').describe('Name of the event'),
    executionId: z.string().nullable().describe('The run whose event was removed, if the id named one'),
  }),
}
