import { z } from 'zod'
import { Execute, Executed } from '../executions/schema.ts'
import { bool, ok, requiredText, text, timestamp } from '../lib/fields.ts'
import { countInput, nextCursor, pageInput, total, truncated } from '../lib/page.ts'

export const TaskStatus = z
  .enum(['pending', 'in_progress', 'completed', 'cancelled'], {
    error: 'Invalid status. Must be: pending, in_progress, completed, cancelled',
  })
  .meta({ id: 'TaskStatus' })

export const TaskPriority = z
  .enum(['low', 'medium', 'high', 'urgent'], { error: 'Invalid priority. Must be: low, medium, high, urgent' })
  .meta({ id: 'TaskPriority' })

const assignee = z
  .string()
  .nullish()
  .describe('An agent or a member of the organization, by id; a member also by e-mail, or as `me`; null for nobody')
const title = requiredText(500)
const taskId = z.string().describe('The task')

/** POST /tasks (service.md, "B. Tasks"; contract.md section 5). */
export const CreateTask = z
  .object({
    title,
    description: text(100_000).nullish(),
    priority: TaskPriority.optional().describe('Default: `medium`'),
    assignTo: assignee,
    assignedTo: assignee.describe('Another name of assignTo, which wins'),
    spaceId: z.string().nullish(),
  })
  .meta({ examples: [{ title: 'Write the release notes', priority: 'high' }] })

/** PATCH /tasks/{id} (contract.md section 5). */
export const UpdateTask = z.object({
  id: taskId,
  title: title.optional(),
  description: text(100_000).nullish(),
  status: TaskStatus.optional(),
  priority: TaskPriority.optional(),
  assignTo: assignee,
  assignedTo: assignee.describe('Another name of assignTo, which wins'),
  spaceId: z.string().nullish(),
})

/** GET /tasks (contract.md section 5). */
export const ListTasks = z.object({
  status: TaskStatus.optional(),
  priority: TaskPriority.optional(),
  assignedTo: z.string().optional().describe('An agent or user id, the e-mail of a member, `me`, or `none`'),
  spaceId: z.string().optional(),
  ...countInput,
  ...pageInput,
})

/** GET and DELETE /tasks/{id} (contract.md section 5). */
export const TaskId = z.object({ id: taskId })

/** POST /tasks/{id}/claim (contract.md section 5). */
export const ClaimTask = z.object({
  id: taskId,
  agentId: z.string().nullish().describe('The agent that takes it, instead of the caller'),
})

/** POST /tasks/{id}/execute (contract.md section 5). */
export const ExecuteTask = z.object({
  id: taskId,
  background: bool().nullish().describe('Answer as soon as the run is accepted'),
  idempotencyKey: Execute.shape.idempotencyKey,
})

/** A work item (service.md, "Task"). */
export const Task = z
  .object({
    id: z.string(),
    title: z.string(),
    description: z.string(),
    status: TaskStatus,
    priority: TaskPriority,
    assignedTo: z.string().nullable(),
    spaceId: z.string().nullable(),
    organizationId: z.string(),
    createdBy: z.string().describe('The user, or the agent whose tool made it'),
    executionId: z.string().nullable().describe('The run that works on it, or did'),
    result: z.string().nullable().describe('What the run answered, if you can read the run'),
    lastError: z.string().nullable().describe('Why the latest run that ended did not complete it'),
    lastExecutionId: z.string().nullable().describe('The latest run that ended'),
    createdAt: timestamp,
    updatedAt: timestamp,
    completedAt: timestamp.nullable(),
    truncated,
  })
  .meta({ id: 'Task' })

export const TaskResponse = ok({ task: Task })
export const TaskCreated = ok({ id: z.string(), title: z.string(), status: TaskStatus, task: Task })
export const TasksResponse = ok({
  tasks: z.array(Task),
  nextCursor,
  total,
})
export const TaskDeleted = ok({ message: z.string() })
export const TaskExecuted = Executed.extend({ task: Task })
