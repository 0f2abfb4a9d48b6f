import {
  MissingRequiredClientCapabilityError,
  ProtocolError,
  ProtocolErrorCode,
  type Server,
  type ServerContext,
} from '@modelcontextprotocol/server'
import { z } from 'zod'
import type { AppError } from '../../errors.ts'
import { createCaller } from '../../router.ts'
import type { Context } from '../../trpc.ts'
import { fromTRPCError } from '../../trpc-errors.ts'
import { type Run, type Wait, waitBehind, waitOf } from '../shared/wait.ts'
import { decideBy, pendingOf, questionsFor } from './approvals.ts'
import { resultOf, toErrorResult } from './results.ts'

// The tasks extension (protocols.md section 1): a task is an execution.

export const TASKS = 'io.modelcontextprotocol/tasks'

const CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities'

/** Recommended interval between two requests for the state of a task (ms). */
const POLL_INTERVAL = 2_000

/** Capabilities that the client declared with a request. Clients with `initialize` declare none here. */
export const capabilitiesOf = ({ mcpReq }: ServerContext) =>
  ((mcpReq.envelope as Record<string, unknown> | undefined)?.[CAPABILITIES] ?? {}) as {
    elicitation?: { form?: object; url?: object }
    extensions?: Record<string, object>
  }

/** Returns whether the client takes a task as the answer to a call. */
export const takesTasks = (mcpContext: ServerContext): boolean =>
  capabilitiesOf(mcpContext).extensions?.[TASKS] !== undefined

const statusOf = ({ status, waitingFor }: Run) => {
  // The client can ask its person for a decision, but not to connect to an MCP server.
  if (waitingFor === 'approval') return 'input_required'
  if (status === 'pending' || status === 'running') return 'working'
  return status === 'cancelled' ? 'cancelled' : 'completed'
}

/** Returns the state of a run as a task. `behind`: the wait of an earlier run of its session. */
const toTask = ({ deps }: Context, run: Run, behind: Wait | null = null) => ({
  taskId: run.id,
  status: statusOf(run),
  ...(run.waitingFor && { statusMessage: waitOf(deps, run.waitingFor).text }),
  ...(behind && { statusMessage: waitOf(deps, behind.waitingFor, behind.executionId).text }),
  createdAt: run.createdAt,
  lastUpdatedAt: run.updatedAt,
  ttlMs: null,
  pollIntervalMs: POLL_INTERVAL,
})

/** Returns the answer to a call whose run is a task. */
export const toTaskResult = (context: Context, run: Run) => ({
  resultType: 'task' as const,
  content: [],
  ...toTask(context, run),
})

const TaskId = z.object({ taskId: z.string() })

/** Adds the methods of the extension to a server. `agentId`: only runs of this agent are tasks here. */
export function addTasks(server: Server, context: Context, agentId: string | undefined): void {
  const caller = createCaller(context)

  async function find(mcpContext: ServerContext, id: string): Promise<Run> {
    if (!takesTasks(mcpContext)) {
      throw new MissingRequiredClientCapabilityError({ requiredCapabilities: { extensions: { [TASKS]: {} } } })
    }
    const run = await refusing(() => caller.executions.get({ id }))
    const { execution } = run as { execution: Run }
    if (agentId !== undefined && execution.agentId !== agentId) throw unknownTask()
    return execution
  }

  server.setRequestHandler('tasks/get', { params: TaskId }, async ({ taskId }, mcpContext) => {
    const run = await find(mcpContext, taskId)
    const task = toTask(context, run, await waitBehind(context.deps, run))
    switch (task.status) {
      case 'input_required':
        return { ...task, inputRequests: questionsFor(await refusing(() => pendingOf(context, taskId))) }
      case 'completed':
        return { ...task, result: { resultType: 'complete', ...outcomeOf(context, run) } }
      default:
        return task
    }
  })

  server.setRequestHandler('tasks/update', { params: TaskId }, async ({ taskId }, mcpContext) => {
    await find(mcpContext, taskId)
    const pending = new Set(Object.keys(questionsFor(await refusing(() => pendingOf(context, taskId)))))
    const answers = Object.entries(mcpContext.mcpReq.inputResponses ?? {}).filter(([key]) => pending.has(key))
    await refusing(() => decideBy(context, Object.fromEntries(answers)))
    return {}
  })

  server.setRequestHandler('tasks/cancel', { params: TaskId }, async ({ taskId }, mcpContext) => {
    const run = await find(mcpContext, taskId)
    if (['pending', 'running'].includes(run.status)) {
      await refusing(() => caller.executions.cancel({ id: taskId })).catch((error: unknown) => {
        // It ended at the same moment.
        if ((error as { data?: { statusCode?: number } }).data?.statusCode !== 400) throw error
      })
    }
    return {}
  })
}

/** Returns the result of a run that has ended, also of one that failed: the tool has run. */
function outcomeOf(context: Context, run: Run) {
  try {
    return resultOf(run)
  } catch (error) {
    return toErrorResult(context, error)
  }
}

const unknownTask = () => new ProtocolError(ProtocolErrorCode.InvalidParams, 'Unknown task')

/** Converts errors of procedures to errors of the protocol. */
async function refusing<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (thrown) {
    const error = fromTRPCError(thrown) as AppError
    if (error.status === 404) throw unknownTask()
    const code = error.status < 500 ? ProtocolErrorCode.InvalidParams : ProtocolErrorCode.InternalError
    const { message, detail, status, code: word } = error
    throw new ProtocolError(code, [message, detail].filter(Boolean).join('. '), { statusCode: status, code: word })
  }
}
