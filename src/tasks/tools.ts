import { z } from 'zod'
import type { Deps } from '../deps.ts'
import { defineTool, type Tool, type ToolUser, takeForResult } from '../executions/engine/run/tools.ts'
import { encodeCursor } from '../lib/page.ts'
import { cut } from '../lib/text.ts'
import { list } from './list.ts'
import { CreateTask, TaskId, TaskPriority, TaskStatus } from './schema.ts'
import { claim, create, update } from './service.ts'

/** Maximum length of a task's text for a model (characters). */
const MAX_TEXT = 2000
const MAX_ROWS = 50

// Without schema names, which would become references; a tool's schema for a model must be self-contained.
const status = z.enum(TaskStatus.options)
const priority = z.enum(TaskPriority.options)
const { title, description } = CreateTask.shape
const { id } = TaskId.shape

const listTasks = defineTool(
  'list_tasks',
  "Lists the organization's tasks, newest first, a page at a time.",
  z.object({
    status: status.optional(),
    priority: priority.optional(),
    assignedTo: z
      .string()
      .optional()
      .describe('`me` for you, `none` for no assignee, or the id of an agent or a member'),
    limit: z.int().min(1).max(MAX_ROWS).default(20),
    cursor: z.string().optional().describe('nextCursor of the page before'),
  }),
)

const createTask = defineTool(
  'create_task',
  'Creates a task, which is initially pending.',
  z.object({
    title,
    description,
    priority: priority.optional().describe('Urgency. Default: medium'),
    assignTo: z.string().nullish().describe('`me` for you, or the id of an agent or a member. Default: unassigned'),
  }),
)

const updateTask = defineTool(
  'update_task',
  'Changes a task; absent fields are unchanged. A status moves pending → in_progress → completed, and to cancelled.',
  z.object({
    id,
    title: title.optional(),
    description,
    status: status.optional(),
    priority: priority.optional(),
    assignTo: z.string().nullish().describe('`me` for you, or the id of an agent or a member; null to unassign'),
  }),
)

const claimTask = defineTool(
  'claim_task',
  'Claims a pending unassigned task for you. Of two concurrent claims, one succeeds.',
  z.object({ id }),
)

type Shown = Awaited<ReturnType<typeof update>>['task']

/** Returns a task for a model: long texts cut, without the organization. */
const show = ({ organizationId: _, ...task }: Shown) => ({
  ...task,
  description: cut(task.description, MAX_TEXT),
  result: task.result === null ? null : cut(task.result, MAX_TEXT),
})

/**
 * Creates the task tools, with the rights of the run's user within its scopes (contract.md sections 2 and 5). New tasks
 * are created by the agent, in the space of the run.
 */
export function taskTools(deps: Deps, { row, agent, actor }: ToolUser): Tool[] {
  // An agent of another organization cannot be an assignee here, so `me` is its user.
  const me = agent.organizationId === row.organizationId ? agent.id : row.userId
  const named = (who: string | null | undefined) => (who === 'me' ? me : who)
  return [
    listTasks(async ({ assignedTo, ...input }) => {
      const { tasks, nextCursor } = await list(await actor('tasks:read'), deps, {
        ...input,
        assignedTo: assignedTo === 'me' ? me : assignedTo,
      })
      const page = takeForResult(tasks.map(show))
      const last = page.length < tasks.length && page.at(-1)
      return {
        tasks: page,
        nextCursor: last ? encodeCursor({ ...last, createdAt: new Date(last.createdAt) }) : nextCursor,
      }
    }),
    createTask(async ({ assignTo, ...input }) => {
      const fields = { ...input, assignTo: named(assignTo), spaceId: row.spaceId }
      const { task } = await create(await actor('tasks:write'), deps, fields, agent.id)
      return { task: show(task) }
    }),
    updateTask(async ({ assignTo, ...input }) => {
      const { task } = await update(await actor('tasks:write'), deps, { ...input, assignTo: named(assignTo) })
      return { task: show(task) }
    }),
    claimTask(async (input) => {
      const { task } = await claim(await actor('tasks:write'), deps, { ...input, agentId: me === agent.id ? me : null })
      return { task: show(task) }
    }),
  ]
}
