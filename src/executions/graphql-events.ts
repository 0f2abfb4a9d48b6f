import { builder } from '../graphql/builder.ts'
import type { ContentBlock, ExecutionEvent, MessageData } from './engine/events/events.ts'
import { Status, Usage } from './graphql.ts'

// The events of an execution as GraphQL types.

type Of<Name extends ExecutionEvent['event']> = Extract<ExecutionEvent, { event: Name }>
type Message<Kind extends MessageData['messageType']> = Of<'message'> & {
  data: Extract<MessageData, { messageType: Kind }>
}

const TYPES = {
  meta: 'MetaEvent',
  stream_event: 'TextDeltaEvent',
  thinking: 'ThinkingDeltaEvent',
  assistant: 'AssistantEvent',
  tool_result: 'ToolResultEvent',
  warning: 'WarningEvent',
  retry: 'RetryEvent',
  summary: 'SummaryEvent',
  approval: 'ApprovalEvent',
  client_tool: 'ClientToolEvent',
  authorization: 'AuthorizationEvent',
  resumed: 'ResumedEvent',
  result: 'ResultEvent',
  error: 'ErrorEvent',
} as const

const kindOf = (data: MessageData) =>
  data.messageType === 'stream_event' && data.delta.type === 'thinking_delta' ? 'thinking' : data.messageType

export const Event = builder.interfaceRef<ExecutionEvent>('ExecutionEvent').implement({
  description: 'An event of a run: first a MetaEvent, last a ResultEvent or ErrorEvent',
  resolveType: ({ event, data }) => TYPES[event === 'message' ? kindOf(data as MessageData) : event],
  fields: (t) => ({
    seq: t.exposeInt('seq', {
      description: 'Sequence number, increasing with gaps; pass the last one as `after` to resume',
    }),
    at: t.expose('at', { type: 'DateTime', description: 'Time of the event' }),
  }),
})

builder.objectRef<Of<'meta'>>(TYPES.meta).implement({
  description: 'The run was accepted',
  interfaces: [Event],
  fields: (t) => ({
    executionId: t.id({ description: 'The run', resolve: ({ data }) => data.executionId }),
    chatId: t.id({ description: 'Chat of the run, to continue', resolve: ({ data }) => data.chatId }),
    sessionId: t.id({ description: 'Session of the run, to continue', resolve: ({ data }) => data.sessionId }),
  }),
})

builder.objectRef<Message<'stream_event'>>(TYPES.stream_event).implement({
  description: 'A fragment of the text; those of the last step make up the result',
  interfaces: [Event],
  fields: (t) => ({
    step: t.int({ description: 'Number of the model response, from 1', resolve: ({ data }) => data.step }),
    text: t.string({ description: 'The fragment', resolve: ({ data }) => data.delta.text }),
  }),
})

builder.objectRef<Message<'stream_event'>>(TYPES.thinking).implement({
  description: 'A fragment of the reasoning, which is never part of the result',
  interfaces: [Event],
  fields: (t) => ({
    step: t.int({ description: 'Number of the model response, from 1', resolve: ({ data }) => data.step }),
    text: t.string({ description: 'The fragment', resolve: ({ data }) => data.delta.text }),
  }),
})

const ThinkingBlock = builder.objectRef<Extract<ContentBlock, { type: 'thinking' }>>('ThinkingBlock').implement({
  description: 'Reasoning of the model',
  fields: (t) => ({ text: t.exposeString('text', { description: 'The text', extensions: { cost: 5 } }) }),
})

const TextBlock = builder.objectRef<Extract<ContentBlock, { type: 'text' }>>('TextBlock').implement({
  description: 'Text of the model',
  fields: (t) => ({ text: t.exposeString('text', { description: 'The text', extensions: { cost: 5 } }) }),
})

const ToolUseBlock = builder.objectRef<Extract<ContentBlock, { type: 'tool_use' }>>('ToolUseBlock').implement({
  description: 'A tool call of the model',
  fields: (t) => ({
    id: t.exposeID('id', { description: 'The call' }),
    name: t.exposeString('name', { description: 'The tool' }),
    input: t.expose('input', {
      type: 'JSON',
      nullable: true,
      description: 'Input of the call',
      extensions: { cost: 10 },
    }),
  }),
})

const Block = builder.unionType('ContentBlock', {
  description: 'A block of a model response',
  types: [TextBlock, ThinkingBlock, ToolUseBlock],
  resolveType: ({ type }) => ({ text: TextBlock, thinking: ThinkingBlock, tool_use: ToolUseBlock })[type],
})

builder.objectRef<Message<'assistant'>>(TYPES.assistant).implement({
  description: 'A complete model response',
  interfaces: [Event],
  fields: (t) => ({
    step: t.int({ description: 'Number of the model response, from 1', resolve: ({ data }) => data.step }),
    text: t.string({ description: 'All text of the step', extensions: { cost: 20 }, resolve: ({ data }) => data.text }),
    content: t.field({
      type: [Block],
      description: 'Its parts',
      extensions: { rows: 3 },
      resolve: ({ data }) => data.content,
    }),
  }),
})

builder.objectRef<Message<'tool_result'>>(TYPES.tool_result).implement({
  description: 'Result of a tool',
  interfaces: [Event],
  fields: (t) => ({
    toolUseId: t.id({ description: 'The call', resolve: ({ data }) => data.toolUseId }),
    output: t.string({
      description: 'The answer',
      extensions: { cost: 10 },
      resolve: ({ data }) => data.content,
    }),
    isError: t.boolean({ description: 'The tool failed', resolve: ({ data }) => data.isError }),
  }),
})

builder.objectRef<Message<'warning'>>(TYPES.warning).implement({
  description: 'A warning about a missing feature',
  interfaces: [Event],
  fields: (t) => ({
    code: t.string({ description: 'Kind of the warning, for programs', resolve: ({ data }) => data.code }),
    text: t.string({ description: 'Message for people', resolve: ({ data }) => data.text }),
  }),
})

builder.objectRef<Message<'retry'>>(TYPES.retry).implement({
  description: 'The model failed, and the request is repeated after a wait',
  interfaces: [Event],
  fields: (t) => ({
    attempt: t.int({ description: 'Number of the repetition, from 1', resolve: ({ data }) => data.attempt }),
    afterMs: t.int({ description: 'Length of the wait (ms)', resolve: ({ data }) => data.afterMs }),
    reason: t.string({ description: 'Error of the model', resolve: ({ data }) => data.reason }),
  }),
})

builder.objectRef<Message<'summary'>>(TYPES.summary).implement({
  description: 'Earlier turns do not fit: the model is asked for a summary, or has given it',
  interfaces: [Event],
  fields: (t) => ({
    messageId: t.id({
      description: 'The last message that the summary covers',
      resolve: ({ data }) => data.messageId,
    }),
    text: t.string({
      nullable: true,
      description: 'The summary; null while the model writes it',
      extensions: { cost: 5 },
      resolve: ({ data }) => data.text,
    }),
  }),
})

builder.objectRef<Message<'approval'>>(TYPES.approval).implement({
  description: 'The run waits for the approval of a call',
  interfaces: [Event],
  fields: (t) => ({
    approvalId: t.id({ description: 'The approval to decide', resolve: ({ data }) => data.approvalId }),
    toolUseId: t.id({ description: 'The call', resolve: ({ data }) => data.toolUseId }),
    name: t.string({ description: 'The tool', resolve: ({ data }) => data.name }),
  }),
})

const toUsage = ({ input_tokens: inputTokens, output_tokens: outputTokens }: Of<'result'>['data']['usage']) => ({
  inputTokens,
  outputTokens,
})

const ClientToolCall = builder.objectRef<{ id: string; name: string }>('ClientToolCall').implement({
  description: 'A call of a tool of the client',
  fields: (t) => ({
    id: t.exposeID('id', { description: 'The call' }),
    name: t.exposeString('name', { description: 'The tool' }),
  }),
})

builder.objectRef<Message<'client_tool'>>(TYPES.client_tool).implement({
  description: 'The run waits for the client that started it to call its own tools',
  interfaces: [Event],
  fields: (t) => ({
    calls: t.field({
      type: [ClientToolCall],
      description: 'The calls that the client has to make',
      resolve: ({ data }) => data.calls,
    }),
    usage: t.field({
      type: Usage,
      nullable: true,
      description: 'Token usage of the run so far',
      resolve: ({ data: { usage } }) => usage && toUsage(usage),
    }),
  }),
})

builder.objectRef<Message<'authorization'>>(TYPES.authorization).implement({
  description: 'The run waits until its user has connected to an MCP server',
  interfaces: [Event],
  fields: (t) => ({
    mcpId: t.id({ description: 'The MCP server', resolve: ({ data }) => data.mcpId }),
    mcpName: t.string({ description: 'Name of the MCP server', resolve: ({ data }) => data.mcpName }),
    toolUseId: t.id({ description: 'The call', resolve: ({ data }) => data.toolUseId }),
    name: t.string({ description: 'The tool', resolve: ({ data }) => data.name }),
  }),
})

builder.objectRef<Message<'resumed'>>(TYPES.resumed).implement({
  description: 'The server restarted, and the run resumes after its last complete step',
  interfaces: [Event],
  fields: (t) => ({
    step: t.int({
      description: 'Number of the model response whose fragments start over',
      resolve: ({ data }) => data.step,
    }),
  }),
})

builder.objectRef<Of<'result'>>(TYPES.result).implement({
  description: 'The run has completed',
  interfaces: [Event],
  fields: (t) => ({
    executionId: t.id({ description: 'The run', resolve: ({ data }) => data.executionId }),
    sessionId: t.id({ description: 'Session of the run, to continue', resolve: ({ data }) => data.sessionId }),
    status: t.field({ type: Status, description: 'Always `completed`', resolve: ({ data }) => data.status }),
    stopReason: t.string({ nullable: true, description: 'Reason for the end', resolve: ({ data }) => data.stopReason }),
    resultObject: t.field({
      type: 'JSON',
      nullable: true,
      description: 'The parsed answer, if an output schema was given',
      resolve: ({ data: { resultObject = null } }) => resultObject,
    }),
    usage: t.field({
      type: Usage,
      description: 'Token usage of the whole run',
      resolve: ({ data: { usage } }) => toUsage(usage),
    }),
  }),
})

builder.objectRef<Of<'error'>>(TYPES.error).implement({
  description: 'The run has failed or was cancelled',
  interfaces: [Event],
  fields: (t) => ({
    executionId: t.id({ description: 'The run', resolve: ({ data }) => data.executionId }),
    status: t.field({ type: Status, description: '`failed` or `cancelled`', resolve: ({ data }) => data.status }),
    message: t.string({ description: 'Description of the failure', resolve: ({ data }) => data.message }),
    code: t.string({ description: 'Kind of the error, for programs', resolve: ({ data }) => data.code }),
    detail: t.string({
      nullable: true,
      description: 'Why the run failed, as far as you may read it',
      resolve: ({ data }) => data.detail ?? null,
    }),
    stopReason: t.string({ nullable: true, description: 'Reason for the end', resolve: ({ data }) => data.stopReason }),
  }),
})
