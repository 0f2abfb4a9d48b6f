import { z } from 'zod'
import { bool, ok, requiredText, timestamp } from '../lib/fields.ts'
import { pageInput } from '../lib/page.ts'

export const Status = z.enum(['pending', 'running', 'completed', 'failed', 'cancelled'], {
  error: 'Invalid status. Must be: pending, running, completed, failed, cancelled',
})

/** POST /agents/{id}/execute (service.md, "A. Agents"; contract.md section 4). */
export const Execute = z.object({
  id: z.string().describe('The agent'),
  message: requiredText(200_000),
  spaceId: z.string().nullish().describe('Space to run in; the default space unless told'),
  chatId: z.string().nullish().describe('Chat to continue: its latest session'),
  sessionId: z.string().nullish().describe('Session to continue'),
  stream: bool().nullish().describe('Answer with the events (text/event-stream)'),
  background: bool().nullish().describe('Answer as soon as the run is accepted'),
  model: z.string().max(200).nullish().describe("Instead of the agent's model"),
  onBusy: z
    .enum(['queue', 'reject', 'interrupt'])
    .nullish()
    .describe('While the session runs another message: wait (default), be refused (409), or cancel what is there'),
})

/** `result` is there when the run was waited for. */
export const Executed = ok({
  executionId: z.string(),
  chatId: z.string(),
  sessionId: z.string(),
  status: Status,
  result: z.string().optional(),
})

const usage = z.object({ input_tokens: z.int(), output_tokens: z.int() })

/** One run of an agent (contract.md section 4). In lists `message` is cut at 200 characters and `result` left out. */
export const Execution = z
  .object({
    id: z.string(),
    executionId: z.string().describe('The same as id'),
    agentId: z.string(),
    agentVersion: z.int(),
    organizationId: z.string(),
    userId: z.string(),
    status: Status,
    waitingFor: z.literal('approval').optional(),
    message: z.string(),
    result: z.string().optional().describe('The text of the last step'),
    error: z.string().optional().describe('Why it failed'),
    model: z.string().nullable().describe('Known once the run has begun'),
    usage,
    usageEstimated: z.boolean().describe('The provider did not report all of the usage'),
    chatId: z.string(),
    sessionId: z.string(),
    spaceId: z.string(),
    taskId: z.string().optional(),
    missionId: z.string().optional(),
    parentExecutionId: z.string().optional(),
    depth: z.int(),
    attempt: z.int().describe('How often a process began it'),
    executionTime: z.int().optional().describe('From begin to end, in milliseconds'),
    createdAt: timestamp,
    startedAt: timestamp.optional(),
    completedAt: timestamp.optional(),
    updatedAt: timestamp,
  })
  .meta({ id: 'Execution' })

export const ListExecutions = z.object({
  agentId: z.string().optional(),
  status: Status.optional(),
  since: timestamp.optional().describe('Created at this time or later'),
  spaceId: z.string().optional(),
  chatId: z.string().optional(),
  taskId: z.string().optional(),
  missionId: z.string().optional(),
  count: z.literal('true', { error: 'Invalid value for field: count. Expected true' }).optional(),
  ...pageInput,
})

export const ExecutionId = z.object({ id: z.string().describe('The execution') })

export const ExecutionsResponse = ok({
  executions: z.array(Execution.omit({ result: true })),
  nextCursor: z.string().nullable(),
  total: z.int().optional().describe('With count=true'),
})
export const ExecutionResponse = ok({ execution: Execution })
export const ExecutionCancelled = ok({ message: z.string(), execution: Execution })

/** `after` or, when a client comes back, `lastEventId`: the number of the last event it has. */
export const FollowExecution = z.object({
  executionId: z.string(),
  after: z.coerce.number<number>().int().min(0).optional(),
  lastEventId: z.coerce.number<number>().int().min(0).nullish(),
})

const textDelta = z.object({ type: z.literal('text_delta'), text: z.string() })
const contentBlock = z.discriminatedUnion('type', [
  z.object({ type: z.literal('text'), text: z.string() }),
  z.object({ type: z.literal('tool_use'), id: z.string(), name: z.string(), input: z.unknown() }),
])

/** The data of each event, by its name (service.md, "Events"; contract.md section 4, "SSE"). */
export const EventData = {
  meta: z.object({ executionId: z.string(), chatId: z.string(), sessionId: z.string() }),
  message: z.discriminatedUnion('messageType', [
    z.object({ messageType: z.literal('stream_event'), step: z.int(), delta: textDelta }),
    z.object({ messageType: z.literal('assistant'), step: z.int(), content: z.array(contentBlock) }),
    z.object({
      messageType: z.literal('tool_result'),
      toolUseId: z.string(),
      content: z.string(),
      isError: z.boolean(),
    }),
  ]),
  result: z.object({ executionId: z.string(), status: z.literal('completed'), sessionId: z.string(), usage }),
  error: z.object({ executionId: z.string(), status: z.enum(['failed', 'cancelled']), message: z.string() }),
}
