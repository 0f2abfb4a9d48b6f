import type { GraphQLResolveInfo } from 'graphql'
import { builder, type GraphQLContext } from '../graphql/builder.ts'
import { connectionType, LIST_COST, toConnection } from '../graphql/connection.ts'
import { fromCursor, type Order, reversed } from '../graphql/cursor.ts'
import { argsFromZod, enumFromZod, parseArgs } from '../graphql/inputs.ts'
import { readLists } from '../graphql/lists.ts'
import { loadOne } from '../graphql/loader.ts'
import { NOTHING, type Page, pageOf, partOf, RELATION_ROWS, RelationArgs } from '../graphql/page.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { rowsOf } from '../graphql/rows.ts'
import { batchesOf, eachOf } from '../subscriptions.ts'
import {
  type ContentBlock,
  EDGE_COLUMNS,
  type Edge,
  type ExecutionEvent,
  fromSegment,
  type MessageData,
  metaEvent,
  terminalEvent,
} from './engine/events/events.ts'
import { stateOf } from './follow.ts'
import { Execution, isReadable, Status, Usage } from './graphql.ts'
import { executions } from './router.ts'
import * as schema from './schema.ts'

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

const EVENT_ORDER = [['seq', 'asc']] as const
const Events = connectionType('ExecutionEvent', Event, 'events of an execution, in order', { counted: false })

type Segment = { executionId: string; firstSeq: number; lastSeq: number; at: Date; events: string }

const SEGMENT = rowsOf<Segment>('ExecutionEvent', 'ExecutionEvent', () => ({}), {
  order: [['firstSeq', 'asc']],
  key: ['firstSeq'],
})

builder.prismaObjectFields(Execution, (t) => ({
  events: t.field({
    type: Events,
    description: 'Events so far',
    nullable: true,
    args: argsFromZod(RelationArgs),
    extensions: { ...procedureExtensions(executions.logs).extensions, rows: RELATION_ROWS, cost: LIST_COST },
    select: EDGE_COLUMNS,
    resolve: async (row, args, context, info) => {
      const page = pageOf(parseArgs(RelationArgs, args), RELATION_ROWS)
      const { take, backwards, after, before } = page
      const from = after === undefined ? 0 : Number(fromCursor(EVENT_ORDER, after)[0])
      const to = before === undefined ? Number.MAX_SAFE_INTEGER : Number(fromCursor(EVENT_ORDER, before, 'before')[0])
      const isOpen = await isReadable(row.id, context, info)
      const stored = isOpen ? await loadSegments(context, info, row.id, page, from, to) : null
      const { rows: segments, more } = stored ?? NOTHING
      const between: ExecutionEvent[] = []
      const all = eventsOf(row, segments, { fromStart: !(more && backwards), toEnd: !(more && !backwards) })
      for (const event of isOpen ? all : stateOf([...all])) {
        if (event.seq > from && event.seq < to) between.push(event)
        if (!backwards && between.length > take) break
      }
      const part = partOf(backwards ? between.reverse() : between, page)
      const exists = async (order: Order, _: object, info: GraphQLResolveInfo): Promise<boolean> => {
        if (order[0]?.[1] === 'desc') return metaEvent(row).seq <= from
        if ((terminalEvent(row)?.seq ?? -1) >= to) return true
        if (!isOpen) return false
        return hasSegmentFrom(context, info, row.id, to)
      }
      return toConnection({ ...part, more: more || part.more }, page, EVENT_ORDER, () => 0, exists)
    },
  }),
}))

/** Loads the segments with the events of a page between two numbers. Null if there are none. */
const loadSegments = (
  context: GraphQLContext,
  info: GraphQLResolveInfo,
  id: string,
  page: Page,
  from: number,
  to: number,
) =>
  loadOne(context, info, id, async (ids) => {
    // At least one event of each segment is between the numbers.
    const where = { lastSeq: { gt: from }, ...(page.before !== undefined && { firstSeq: { lt: to } }) }
    const order = page.backwards ? reversed(SEGMENT.order) : SEGMENT.order
    const read = { ids, column: 'executionId', where, take: page.take + 1, query: {} }
    const found = await readLists(context, { ...SEGMENT, order }, read)
    const lists = Map.groupBy(found, ({ executionId }) => executionId)
    return new Map(Array.from(lists, ([id, list]) => [id, partOf(list, page)]))
  })

/** Returns whether an execution has stored events from a number on. */
async function hasSegmentFrom(
  context: GraphQLContext,
  info: GraphQLResolveInfo,
  id: string,
  seq: number,
): Promise<boolean> {
  const isFound = await loadOne(context, info, id, async (ids) => {
    const read = { ids, column: 'executionId', where: { lastSeq: { gte: seq } }, take: 1, query: {} }
    const found = await readLists(context, SEGMENT, read)
    return new Map(found.map(({ executionId }) => [executionId, true]))
  })
  return isFound ?? false
}

/** Yields the events of these segments in order, and whether they are the first and the last ones. */
function* eventsOf(
  row: Edge,
  segments: readonly Segment[],
  { fromStart, toEnd }: { fromStart: boolean; toEnd: boolean },
): Generator<ExecutionEvent> {
  if (fromStart) yield metaEvent(row)
  for (const segment of segments) yield* fromSegment(segment)
  const terminal = toEnd && terminalEvent(row)
  if (terminal) yield terminal
}

enumFromZod('StreamContent', schema.FollowExecution.shape.content, 'Content of a complete step in a stream')

const Follow = schema.FollowExecution.omit({ lastEventId: true })

builder.subscriptionField('executionEvents', (t) =>
  t.field({
    ...procedureExtensions(executions.events),
    description: 'Events of an execution from the start or `after` a number, live while it runs, then the end',
    type: Event,
    args: argsFromZod(Follow),
    // Errors are reported before the first event, or not at all.
    subscribe: async (_, args, { caller }) =>
      eachOf(batchesOf(await caller.executions.events(parseArgs(Follow, args)))),
    resolve: (event) => event,
  }),
)
