import { z } from 'zod'
import { FilePath } from '../files/schema.ts'
import {
  bool,
  IDEMPOTENCY_KEY,
  INVALID_IDEMPOTENCY_KEY,
  inRange,
  moment,
  ok,
  queryInt,
  requiredText,
  textList,
  timestamp,
} from '../lib/fields.ts'
import { fallbackModels, NewModelSettings } from '../lib/model-settings.ts'
import { NewOutput } from '../lib/output.ts'
import { countInput, nextCursor, pageInput, total } from '../lib/page.ts'
import { STOP_REASONS, WARNING_CODES } from '../wire.ts'

export const Status = z
  .enum(['pending', 'running', 'completed', 'failed', 'cancelled'], {
    error: 'Invalid status. Must be: pending, running, completed, failed, cancelled',
  })
  .meta({ id: 'ExecutionStatus', description: 'State of a run' })

/** Condition of a 429 for a run. */
export const TOO_MANY_WAIT = 'Too many runs wait, if the operator set a limit'

/** Conditions of the errors of {@link Execute}. */
export const EXECUTE_ERRORS = {
  404: 'The agent, space, chat or session does not exist or is not accessible',
  409: 'The session is busy (`onBusy: "reject"`), or the execution was cancelled',
  429: TOO_MANY_WAIT,
  500: 'The model failed; the execution that `X-Execution-Id` names says why',
}

/** Content of the event of a complete step. `rest` is for readers who also print the fragments. */
const CONTENT = 'Content of complete steps in the stream: `all`, or the `rest` without the streamed blocks'
const content = z.enum(['all', 'rest']).describe(CONTENT)

export type Content = z.output<typeof content>

/** POST /agents/{id}/execute (service.md, "A. Agents"; contract.md section 4). */
export const Execute = z
  .object({
    id: z.string().describe('The agent'),
    message: requiredText(200_000).describe('Message to the agent'),
    spaceId: z.string().nullish().describe('Space to run in. Default: the default space'),
    chatId: z.string().nullish().describe('Chat to continue: its latest session'),
    sessionId: z.string().nullish().describe('Session to continue'),
    stream: bool().nullish().describe('`true`: answer with the event stream, like the same path with `/stream`'),
    background: bool().nullish().describe('Answer as soon as the run is accepted'),
    model: requiredText(200).nullish().describe("Instead of the agent's model"),
    modelSettings: NewModelSettings.nullish().describe(
      "Settings of the model. Each takes precedence over the agent's own",
    ),
    fallbackModels: fallbackModels.nullish().describe("Instead of the agent's fallbackModels; [] for none"),
    output: NewOutput.nullish().describe("Form of the answer, instead of the agent's: JSON that fits a schema"),
    onBusy: z
      .enum(['queue', 'reject', 'interrupt'])
      .nullish()
      .describe(
        'If the session runs another message: wait (default), be refused (409), or cancel the other run (403 if you may not)',
      ),
    onDisconnect: z
      .enum(['continue', 'cancel'])
      .nullish()
      .describe('Fate of the run if the caller disconnects; over REST also a query parameter')
      .meta({ param: { in: 'query', id: 'onDisconnect' } }),
    content: content
      .nullish()
      .describe(CONTENT)
      .meta({ param: { in: 'query', id: 'content' } }),
    parentExecutionId: z.string().nullish().describe('The parent execution; at most five levels deep'),
    mediaIds: textList(20)
      .nullish()
      .describe('Ids of media to attach: pictures and PDF for models that read them, and text files'),
    files: z
      .array(FilePath.shape.path)
      .max(20)
      .transform((paths) => [...new Set(paths)])
      .nullish()
      .describe('Paths of files of the space to attach, such as `docs/plan.md`'),
    idempotencyKey: z
      .string()
      .regex(IDEMPOTENCY_KEY, INVALID_IDEMPOTENCY_KEY)
      .nullish()
      .describe('Key of a repeatable request. Over REST and tRPC the header Idempotency-Key has precedence'),
  })
  .meta({ examples: [{ message: 'Hello' }] })

/** POST /execute (contract-2.md section 1.15): {@link Execute} with the agent, if any, in the body. */
export const ExecuteAny = Execute.omit({ id: true })
  .extend({
    agentId: z
      .string()
      .nullish()
      .describe(
        'The agent. Default: that of the session or chat, else the newest one that you created, else your private agent `Assistant`',
      ),
    characterId: z.string().nullish().describe('Alias of `agentId`, which takes precedence'),
  })
  .meta({ examples: [{ message: 'Hello' }] })

/**
 * POST /executions/{id}/rerun (contract-2.md section 1.12): execute, without the fields that the run itself provides.
 */
export const Rerun = z
  .object({
    id: z.string().describe('The execution'),
    ...Execute.pick({
      stream: true,
      background: true,
      model: true,
      modelSettings: true,
      fallbackModels: true,
      output: true,
      onBusy: true,
      onDisconnect: true,
      content: true,
      idempotencyKey: true,
    }).shape,
  })
  .meta({ examples: [{ model: 'anthropic/claude-sonnet-4-5' }] })

export const stopReason = z
  .enum(STOP_REASONS)
  .nullable()
  .describe('Why it ended: `end_turn` is a whole answer; null until the end')

const warnings = z.array(
  z
    .object({
      code: z.string().describe(`Kind of warning: ${WARNING_CODES.join(', ')}; new ones may appear`),
      text: z.string().describe('Description of the omission, for people'),
    })
    .meta({ id: 'Warning', description: 'An omission in a run, with its fix' }),
)

export const resultObject = z.unknown().describe('The parsed answer of a completed run with an `output` schema')

/** `result` and `warnings` are present if the caller waited for the run. */
export const Executed = ok({
  executionId: z.string().describe('Id of the run'),
  chatId: z.string().describe('Id of the chat that the run belongs to'),
  sessionId: z.string().describe('Id of the session; a next message continues it'),
  status: Status.describe('State of the run'),
  result: z.string().optional().describe('Text of the last step, if the call awaited the end'),
  resultObject: resultObject.optional(),
  warnings: warnings.optional().describe('Omissions in the run, if the call awaited its end'),
  stopReason: stopReason.optional().describe('Reason of the end, if the call awaited it'),
})

export const usage = z
  .object({
    input_tokens: z.int().describe('Number of tokens that the models read'),
    output_tokens: z.int().describe('Number of tokens that the models wrote'),
  })
  .meta({ id: 'Usage', description: 'Number of tokens' })

/**
 * One run of an agent (contract.md section 4). In lists, and of the others in a tree with more than 1 MiB of text,
 * `message` is cut at 200 characters and `result` left out.
 */
export const Execution = z
  .object({
    id: z.string().describe('Id of the execution'),
    executionId: z.string().describe('The same as `id`'),
    agentId: z.string().describe('Id of the agent'),
    agentVersion: z.int().describe('Version of the agent that ran'),
    organizationId: z.string().describe('Id of the organization that the execution belongs to'),
    userId: z.string().describe('Id of the user that the run acts for'),
    tokenId: z.string().nullable().describe('The key that started it; only for its user and admins'),
    status: Status.describe('State of the run'),
    waitingFor: z
      .enum(['approval', 'client_tool', 'authorization'])
      .optional()
      .describe(
        'Reason for which a started execution waits: a decision, its client, or the connection of its user to an MCP server',
      ),
    message: z.string().describe('Message to the agent'),
    mediaIds: z.array(z.string()).describe('Ids of the media that are attached to the message'),
    files: z.array(z.string()).describe('Paths of the files of the space that are attached to the message'),
    result: z.string().optional().describe('The text of the last step'),
    resultObject: resultObject.optional(),
    error: z.string().optional().describe('Reason of the failure'),
    errorCode: z.string().optional().describe('The kind of the error, for programs: the codes of error bodies'),
    stopReason,
    model: z
      .string()
      .nullable()
      .describe('The model that answered. Until the run ends or waits: the model that it asks first'),
    modelsTried: z.array(z.string()).describe('Models that were asked or skipped before `model`'),
    usage: usage.describe('Tokens that the run used'),
    warnings: warnings.describe('Omissions in the run, at most 50'),
    usageEstimated: z.boolean().describe('Whether the provider reported only a part of the usage'),
    chatId: z.string().describe('Id of the chat'),
    sessionId: z.string().describe('Id of the session'),
    spaceId: z.string().describe('Id of the space'),
    taskId: z.string().optional().describe('Id of the task that the run works on'),
    missionId: z.string().optional().describe('Id of the mission that started the run'),
    parentExecutionId: z.string().optional().describe('Id of the run that started this one'),
    restricted: z
      .literal(true)
      .optional()
      .describe(
        'Your run, whose agent, space or mission you cannot see any more: state, times and usage, without texts',
      ),
    depth: z.int().describe('Number of runs above this one in its tree'),
    attempt: z.int().describe('Number of times that a process has started it'),
    executionTime: z.int().optional().describe('Duration from begin to end (ms)'),
    createdAt: timestamp.describe('Time at which the execution was created'),
    startedAt: timestamp.optional().describe('Time at which the run began'),
    completedAt: timestamp.optional().describe('Time at which the run ended'),
    updatedAt: timestamp.describe('Time of the last change to the execution'),
  })
  .meta({ id: 'Execution', description: 'The work of an agent on one message' })

/** GET /executions (contract.md section 4). */
export const ListExecutions = z.object({
  agentId: z.string().optional().describe('Only runs of this agent'),
  status: Status.optional().describe('Only runs in this state'),
  since: moment
    .check(inRange)
    .optional()
    .describe('Only runs created at this time or later; a date begins at midnight UTC'),
  spaceId: z.string().optional().describe('Only runs in this space'),
  chatId: z.string().optional().describe('Only runs in this chat'),
  taskId: z.string().optional().describe('Only runs on this task'),
  missionId: z.string().optional().describe('Only runs of this mission'),
  ...countInput,
  ...pageInput,
})

/** GET /executions/{id} and …/tree, POST /executions/{id}/cancel (contract.md section 4). */
export const ExecutionId = z.object({ id: z.string().describe('The execution') })

export const ExecutionsResponse = ok({
  executions: z
    .array(
      Execution.omit({ result: true, resultObject: true }).meta({
        id: 'ExecutionListed',
        description: 'A run of an agent, as in lists',
      }),
    )
    .describe('Executions on this page, newest first'),
  nextCursor,
  total,
})
export const ExecutionResponse = ok({ execution: Execution })
export const ExecutionCancelled = ok({ message: z.string().describe('Confirmation for people'), execution: Execution })

/** The whole tree that the execution belongs to, as far as the caller may see it. */
export type ExecutionNode = z.output<typeof Execution> & { children: ExecutionNode[] }

const Node: z.ZodType<ExecutionNode> = Execution.extend({
  get children() {
    return z.array(Node).describe('Runs that this one started')
  },
}).meta({
  id: 'ExecutionNode',
  description:
    'In a tree with more than 1 MiB of text only the requested execution is whole: in others `message` is cut at 200 characters, and `result` is left out',
})

export const TreeResponse = ok({
  tree: Node,
  usage: usage.describe('Usage of the whole tree, visible or not'),
})

/** Maximum number of an event: PostgreSQL's largest integer. */
const MAX_SEQ = 2 ** 31 - 1

/** Number of an event that a client has. A larger number counts as the maximum. */
const seq = z.coerce
  .number<number>()
  .overwrite((given) => Math.min(given, MAX_SEQ))
  .int()
  .min(0)

/** GET /executions/{id}/logs (contract.md section 4). */
export const ReadLogs = z.object({
  id: z.string().describe('The execution'),
  after: seq.optional().describe('Only events after this number'),
  limit: queryInt(1, 10_000).optional().describe('Maximum number of events, 10000 by default; fewer if they are long'),
})

export const LogsResponse = ok({
  logs: z
    .array(
      z
        .object({
          seq: z.int().describe('Number of the event: it grows, and may have gaps'),
          at: timestamp.describe('Time of the event'),
          event: z.enum(['meta', 'message', 'result', 'error']).describe('Name of the event'),
          data: z.unknown().describe('Data of the event, as in the event stream'),
        })
        .meta({ id: 'ExecutionLogEntry', description: 'A stored event of a run' }),
    )
    .describe('Events of the run, oldest first'),
  nextAfter: z.int().nullable().describe('Number to continue after; null at the end'),
})

/**
 * GET /executions/{id}/events (contract.md section 4). `after`, or `lastEventId` after a reconnection, is the number of
 * the client's last event.
 */
export const FollowExecution = z.object({
  executionId: z.string().describe('Id of the execution'),
  after: seq.optional().describe('Only events after this number'),
  lastEventId: seq.nullish().describe('Number of the last event that the client has; it wins over `after`'),
  content: content.nullish(),
})
