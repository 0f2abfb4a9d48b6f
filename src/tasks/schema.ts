import { z } from 'zod'
import { Execute, Executed } from '../executions/schema.ts'
import { bool, ok, requiredText, text, timestamp } from '../lib/fields.ts'
import { NewOutput, Output } from '../lib/output.ts'
import { countInput, nextCursor, pageInput, total, truncated } from '../lib/page.ts'
import { searchInput } from '../lib/search.ts'

export const TaskStatus = z
  .enum(['pending', 'in_progress', 'completed', 'cancelled'], {
    error: 'Invalid status. Must be: pending, in_progress, completed, cancelled',
  })
  .meta({ id: 'TaskStatus', description: 'Status of a task' })

export const TaskPriority = z
  .enum(['low', 'medium', 'high', 'urgent'], { error: 'Invalid priority. Must be: low, medium, high, urgent' })
  .meta({ id: 'TaskPriority', description: 'Urgency of a task' })

const assignee = z
  .string()
  .nullish()
  .describe('An agent or a member of the organization, by id; a member also by e-mail, or as `me`; null for none')
const output = NewOutput.nullish().describe("Form of the result, instead of the agent's: JSON that fits a schema")
const title = requiredText(500)
const taskId = z.string().describe('The task')

/** POST /tasks (service.md, "B. Tasks"; contract.md section 5). */
export const CreateTask = z
  .object({
    title: title.describe('Short title of the task'),
    description: text(100_000).nullish().describe('The work to do'),
    priority: TaskPriority.nullish().describe('Urgency of the task. Default: `medium`'),
    assignTo: assignee,
    assignedTo: assignee.describe('Alias of `assignTo`, which takes precedence'),
    spaceId: z.string().nullish().describe('Id of the space that the task belongs to; null for none'),
    output,
  })
  .meta({ examples: [{ title: 'Write the release notes', priority: 'high' }] })

/** PATCH /tasks/{id} (contract.md section 5). */
export const UpdateTask = z
  .object({
    id: taskId,
    title: title.optional().describe('Short title of the task'),
    description: text(100_000).nullish().describe('The work to do'),
    status: TaskStatus.optional().describe('New status of the task'),
    priority: TaskPriority.optional().describe('Urgency of the task'),
    assignTo: assignee,
    assignedTo: assignee.describe('Alias of `assignTo`, which takes precedence'),
    spaceId: z.string().nullish().describe('Id of the space that the task belongs to; null for none'),
    output,
  })
  .meta({ examples: [{ description: 'For version 2.4.' }] })

/** GET /tasks (contract.md section 5). */
export const ListTasks = z.object({
  status: TaskStatus.optional().describe('Only tasks with this status'),
  priority: TaskPriority.optional().describe('Only tasks with this priority'),
  assignedTo: z.string().optional().describe('An agent or user id, the e-mail of a member, `me`, or `none`'),
  spaceId: z.string().optional().describe('Only tasks in this space'),
  search: searchInput('tasks', 'the title'),
  ...countInput,
  ...pageInput,
})

/** GET /tasks/events (contract-2.md section 1.19). */
export const FollowTasks = z.object({
  id: z.string().optional().describe('Only changes of this task. The stream ends when the task is deleted'),
})

/** GET and DELETE /tasks/{id} (contract.md section 5). */
export const TaskId = z.object({ id: taskId })

/** POST /tasks/{id}/claim (contract.md section 5). */
export const ClaimTask = z
  .object({
    id: taskId,
    agentId: z.string().nullish().describe('The agent that takes it, instead of the caller'),
  })
  .meta({ examples: [{ agentId: 'k3Jx0aQ9mZr7TbYc2LwVn5' }] })

/** POST /tasks/{id}/execute (contract.md section 5). */
export const ExecuteTask = z
  .object({
    id: taskId,
    background: bool().nullish().describe('Answer as soon as the run is accepted'),
    idempotencyKey: Execute.shape.idempotencyKey.describe(
      'Alternative to the header Idempotency-Key, which takes precedence',
    ),
  })
  .meta({ examples: [{ background: true }] })

/** A work item (service.md, "Task"). */
export const Task = z
  .object({
    id: z.string().describe('Id of the task'),
    title: z.string().describe('Short title of the task'),
    description: z.string().describe('The work to do'),
    status: TaskStatus.describe('Status of the task'),
    priority: TaskPriority.describe('Urgency of the task'),
    assignedTo: z.string().nullable().describe('Id of the agent or member who works on the task; null for none'),
    spaceId: z.string().nullable().describe('Id of the space that the task belongs to; null for none'),
    output: Output.nullable().describe('Form of the result; null for that of the agent'),
    organizationId: z.string().describe('Id of the organization that the task belongs to'),
    createdBy: z.string().describe('The user, or the agent whose tool made it'),
    executionId: z.string().nullable().describe('The current or latest run of the task'),
    result: z.string().nullable().describe('Answer of the run, if you can read the run'),
    lastError: z.string().nullable().describe('Reason for which the latest ended run did not complete the task'),
    lastExecutionId: z.string().nullable().describe('The latest run that ended'),
    createdAt: timestamp.describe('Time at which the task was created'),
    updatedAt: timestamp.describe('Time of the last change to the task'),
    completedAt: timestamp.nullable().describe('Time at which the task was completed; null before'),
    truncated,
  })
  .meta({ id: 'Task', description: 'Work on a board, for a person or an agent' })

export const TaskResponse = ok({ task: Task })
export const TaskCreated = ok({
  id: z.string().describe('Id of the task'),
  title: z.string().describe('Short title of the task'),
  status: TaskStatus.describe('Status of the task'),
  task: Task,
})
export const TasksResponse = ok({
  tasks: z.array(Task).describe('Tasks on this page, newest first'),
  nextCursor,
  total,
})
/** Data of the events of tasks, by name, which is their `type`. */
export const TaskEventData = {
  changed: z.object({
    type: z.literal('changed').describe('Name of the event'),
    task: Task.describe('The task as it is now'),
  }),
  deleted: z.object({
    type: z.literal('deleted').describe('Name of the event'),
    id: z.string().describe('Id of the task that was deleted'),
  }),
}

export const TaskDeleted = ok({ message: z.string().describe('Confirmation for people') })
export const TaskExecuted = Executed.extend({ task: Task })
