import { z } from 'zod'
import { resultObject, stopReason, usage } from './schema.ts'

const textDelta = z
  .object({
    type: z
      .enum(['text_delta', 'thinking_delta'])
      .describe('Whether the fragment belongs to the answer or to the reasoning'),
    text: z.string().describe('The fragment'),
  })
  .meta({ id: 'TextDelta', description: 'A fragment of the answer, or of the reasoning before it' })
const contentBlock = z.discriminatedUnion('type', [
  z
    .object({ type: z.literal('text').describe('Kind of block'), text: z.string().describe('Text of the block') })
    .meta({ id: 'TextBlock', description: 'A part of the answer' }),
  z
    .object({ type: z.literal('thinking').describe('Kind of block'), text: z.string().describe('Text of the block') })
    .meta({ id: 'ThinkingBlock', description: 'A part of the reasoning' }),
  z
    .object({
      type: z.literal('tool_use').describe('Kind of block'),
      id: z.string().describe('Id of the call'),
      name: z.string().describe('Name of the tool'),
      input: z.unknown().describe('Arguments of the call'),
    })
    .meta({ id: 'ToolUseBlock', description: 'A call of a tool' }),
])

const message = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z.object({ type: z.literal('message').describe('Name of the event'), ...shape })

/** Data of each event of a stream by its `type` (service.md, "Events"; contract-2.md section 1.14). */
export const EventData = {
  meta: z.object({
    type: z.literal('meta').describe('Name of the event'),
    executionId: z.string().describe('Id of the run'),
    chatId: z.string().describe('Id of the chat'),
    sessionId: z.string().describe('Id of the session'),
  }),
  message: z.discriminatedUnion('messageType', [
    message({
      messageType: z.literal('stream_event').describe('Kind of message'),
      step: z.int().describe('Number of the model step, from 1'),
      delta: textDelta.describe('The fragment'),
    }).meta({
      id: 'StreamEventMessage',
      description: 'A fragment of the text',
    }),
    message({
      messageType: z.literal('assistant').describe('Kind of message'),
      step: z.int().describe('Number of the model step, from 1'),
      text: z.string().describe('All text of the step'),
      content: z
        .array(contentBlock)
        .describe('Parts of the step; with `content=rest` without the blocks that were streamed'),
    }).meta({ id: 'AssistantMessage', description: 'A complete step of the model' }),
    message({
      messageType: z.literal('tool_result').describe('Kind of message'),
      toolUseId: z.string().describe('Id of the call'),
      content: z.string().describe('Answer of the tool'),
      isError: z.boolean().describe('Whether the call failed'),
    }).meta({ id: 'ToolResultMessage', description: 'Result of a tool' }),
    message({
      messageType: z.literal('retry').describe('Kind of message'),
      attempt: z.int().describe('Number of the attempt that failed'),
      afterMs: z.int().describe('Wait before the next attempt (ms)'),
      reason: z.string().describe('Why the attempt failed'),
    }).meta({
      id: 'RetryMessage',
      description: 'The model failed. The run asks it again after a wait (ms)',
    }),
    message({
      messageType: z.literal('summary').describe('Kind of message'),
      messageId: z.string().describe('The last message that the summary covers'),
      text: z.string().nullable().describe('The summary; null while the model writes it'),
    }).meta({
      id: 'SummaryMessage',
      description: 'Earlier turns do not fit. The model summarizes them, and later runs get the summary instead',
    }),
    message({
      messageType: z.literal('approval').describe('Kind of message'),
      approvalId: z.string().describe('Id of the approval'),
      toolUseId: z.string().describe('Id of the call'),
      name: z.string().describe('Name of the tool'),
    }).meta({ id: 'ApprovalMessage', description: "The run waits for a person's decision about this tool call" }),
    message({
      messageType: z.literal('client_tool').describe('Kind of message'),
      calls: z
        .array(
          z
            .object({ id: z.string().describe('Id of the call'), name: z.string().describe('Name of the tool') })
            .meta({ id: 'ClientToolCall', description: 'A call of a tool of the client' }),
        )
        .describe('Calls that the client has to make'),
      usage: usage.optional().describe('Tokens of the run so far'),
    }).meta({
      id: 'ClientToolMessage',
      description: 'The run waits for the client that started it to call one of its own tools',
    }),
    message({
      messageType: z.literal('authorization').describe('Kind of message'),
      mcpId: z.string().describe('Id of the MCP server'),
      mcpName: z.string().describe('Name of the MCP server'),
      toolUseId: z.string().describe('Id of the call'),
      name: z.string().describe('Name of the tool'),
    }).meta({
      id: 'AuthorizationMessage',
      description: 'The run waits until its user has connected to this MCP server',
    }),
    message({
      messageType: z.literal('warning').describe('Kind of message'),
      code: z.string().describe('Kind of warning'),
      text: z.string().describe('The warning, for people'),
    }).meta({
      id: 'WarningMessage',
      description: 'The run omits something; its execution lists all warnings',
    }),
    message({
      messageType: z.literal('resumed').describe('Kind of message'),
      step: z.int().describe('Number of the model step, from 1'),
    }).meta({
      id: 'ResumedMessage',
      description: 'The server restarted: the fragments of this step begin anew',
    }),
  ]),
  result: z.object({
    type: z.literal('result').describe('Name of the event'),
    executionId: z.string().describe('Id of the run'),
    status: z.literal('completed').describe('State of the run'),
    sessionId: z.string().describe('Id of the session; a next message continues it'),
    usage: usage.describe('Tokens that the run used'),
    stopReason,
    resultObject: resultObject.optional(),
  }),
  error: z.object({
    type: z.literal('error').describe('Name of the event'),
    executionId: z.string().describe('Id of the run'),
    status: z.enum(['failed', 'cancelled']).describe('State of the run'),
    message: z.string().describe('Description of the failure'),
    code: z.string().describe('Kind of error, for programs'),
    detail: z.string().optional().describe('Why the run failed, as far as you may read it'),
    stopReason,
  }),
}
