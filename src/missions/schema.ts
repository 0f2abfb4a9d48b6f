import { z } from 'zod'
import { Status as ExecutionStatus, ExecutionsResponse, ListExecutions } from '../executions/schema.ts'
import { int, ok, queryInt, requiredEnum, requiredText, text, timestamp } from '../lib/fields.ts'
import { NewOutput, Output } from '../lib/output.ts'
import { nextCursor, pageInput, truncated } from '../lib/page.ts'
import { searchInput } from '../lib/search.ts'

export const MissionStatus = z
  .enum(['pending', 'running', 'completed', 'paused', 'failed'], {
    error: 'Invalid status. Must be: pending, running, completed, paused, failed',
  })
  .meta({ id: 'MissionStatus', description: 'State of a mission' })

export const MissionVisibility = z.enum(['private', 'organization', 'public'], {
  error: 'Invalid visibility value. Must be: private, organization, or public',
})

/** Schedule of a mission. */
export const Schedule = z
  .object({
    type: requiredEnum(['none', 'once', 'cron', 'continuous']).describe(
      'Kind of schedule: by hand, once, by a cron expression, or again and again',
    ),
    value: text(200)
      .nullish()
      .describe(
        '`cron`: an expression of five or six fields; `once`: a date and time; `continuous`: the pause (seconds)',
      ),
    timezone: text(100).nullish().describe('IANA time zone. Default: UTC'),
    overlap: z
      .enum(['skip', 'queue'])
      .nullish()
      .describe('Fire times during a run: left out (`skip`, the default), or later (`queue`)'),
    catchUp: z
      .enum(['last', 'skip'])
      .nullish()
      .describe(
        'Fire times missed by more than a minute: run for the last (`last`, the default), or for none (`skip`)',
      ),
    maxRuns: int(1, 1_000_000)
      .nullish()
      .describe('Maximum number of runs, by hand too; the mission is `completed` after them. Default: no limit'),
  })
  .meta({ id: 'MissionScheduleInput', description: 'When a mission runs' })

/** A change of a schedule. Absent fields stay, except for the value of a schedule of another type. */
export const ScheduleChange = Schedule.partial().meta({
  id: 'MissionScheduleChange',
  description: 'Changes of the schedule of a mission',
})

const missionId = z.string().describe('The mission')
const agentId = requiredText(100)

const VISIBILITY = 'Users who can see the mission. Default: `organization`'

const fields = {
  title: requiredText(200).describe('Short title of the mission'),
  goal: requiredText(100_000).describe('Goal of the agent: the message of each run'),
  spaceId: z.string().nullish().describe('Space of its runs. Default: the default space'),
  icon: text(200).nullish().describe('Picture of the mission in user interfaces'),
  visibility: MissionVisibility.optional().describe(VISIBILITY),
  maxTurns: int(1, 500).nullish().describe('Maximum number of model steps in a run'),
  output: NewOutput.nullish().describe("Form of the results, instead of the agent's: JSON that fits a schema"),
  agentType: text(100).nullish().describe('Description of the agent that the mission needs'),
  agentId: agentId.nullish().describe('The agent that works on it'),
  characterId: agentId.nullish().describe('Alias of `agentId`, which takes precedence'),
  schedule: Schedule.nullish().describe('When the mission runs'),
}

/** POST /missions (contract.md section 7). */
export const CreateMission = z
  .object({ ...fields, visibility: MissionVisibility.nullish().describe(VISIBILITY) })
  .meta({
    examples: [
      {
        title: 'Morning news',
        goal: 'Sum up the news.',
        agentId: 'k3Jx0aQ9mZr7TbYc2LwVn5',
        schedule: { type: 'cron', value: '0 8 * * *' },
      },
    ],
  })

/** PATCH /missions/{id} (contract.md section 7). */
export const UpdateMission = z
  .object({
    id: missionId,
    ...fields,
    title: fields.title.optional().describe('Short title of the mission'),
    goal: fields.goal.optional().describe('Goal of the agent: the message of each run'),
    agentId: agentId.optional().describe('The agent that works on it'),
    characterId: agentId.optional().describe('Alias of `agentId`, which takes precedence'),
    schedule: ScheduleChange.nullish().describe('When the mission runs; absent fields keep their value'),
    status: MissionStatus.optional().describe(
      '`running` runs it now, `paused` pauses it, `pending` resumes it, `completed` ends it for good',
    ),
  })
  .meta({ examples: [{ title: 'Evening news' }] })

/** GET and DELETE /missions/{id}, POST /missions/{id}/run, …/pause and …/resume (contract.md section 7). */
export const MissionId = z.object({ id: missionId })

/** GET /missions (contract.md section 7). */
export const ListMissions = z.object({
  status: MissionStatus.optional().describe('Only missions with this status'),
  search: searchInput('missions', 'the title'),
  ...pageInput,
})

/** GET /missions/{id}/runs (contract.md section 7). */
export const ListRuns = ListExecutions.pick({ count: true, limit: true, cursor: true }).extend({ id: missionId })

/** GET /missions/{id}/next (contract.md section 7). */
export const NextRuns = z.object({
  id: missionId,
  count: queryInt(1, 100).optional().describe('Number of fire times. Default: 10'),
})

/** POST /missions/preview (contract-2.md section 1.21). */
export const PreviewSchedule = z
  .object({ schedule: Schedule.describe('The schedule to try') })
  .meta({ examples: [{ schedule: { type: 'cron', value: '0 8 * * *', timezone: 'Europe/Berlin' } }] })

/** An agent's long-running work (service.md, "Client-library resource shapes"; contract.md section 7). */
export const Mission = z
  .object({
    id: z.string().describe('Id of the mission'),
    title: z.string().describe('Short title of the mission'),
    goal: z.string().describe('Goal of the agent: the message of each run'),
    agentId: z.string().describe('Id of the agent that works on the mission'),
    agentType: z.string().nullable().describe('Description of the agent that the mission needs'),
    spaceId: z.string().describe('Id of the space that its runs belong to'),
    icon: z.string().nullable().describe('Picture of the mission in user interfaces'),
    visibility: MissionVisibility.describe('Users who can see the mission'),
    maxTurns: z.int().nullable().describe('Maximum number of model steps in a run; null for the default'),
    output: Output.nullable().describe('Form of the results; null for that of the agent'),
    organizationId: z.string().describe('Id of the organization that the mission belongs to'),
    userId: z.string().describe('The owner. Its runs act as this user'),
    tokenId: z.string().nullable().describe('The key that last changed it; only for its owner and admins'),
    status: MissionStatus.describe('State of the mission'),
    pauseReason: z.string().optional().describe('Why the mission is paused'),
    lastStatus: z.enum(['completed', 'failed', 'cancelled']).nullable().describe('End of its latest run'),
    lastError: z
      .string()
      .nullable()
      .describe('Why its latest run failed; null if it did not, or if you cannot read that run'),
    lastExecutionId: z.string().nullable().describe('Its latest run that has ended'),
    failureCount: z.int().describe('Number of failed runs since the last one that completed'),
    skippedCount: z.int().describe('Number of fire times that passed without a run'),
    schedule: z
      .object({
        type: Schedule.shape.type.describe('Kind of schedule'),
        value: z
          .string()
          .nullable()
          .describe('Cron expression, time, or pause in seconds; null for schedules without one'),
        timezone: z.string().describe('Time zone of the schedule (IANA)'),
        overlap: z.enum(['skip', 'queue']).describe('Whether a fire time during a run is skipped or waits'),
        catchUp: z.enum(['last', 'skip']).describe('Missed fire times that run: the last one, or none'),
        lastRun: timestamp.nullable().describe('Time at which the latest run began'),
        nextRun: timestamp.nullable().describe('Time of the next run; null if there is none'),
        runCount: z.int().describe('Number of runs so far'),
        maxRuns: z.int().nullable().describe('Maximum number of runs; null for no limit'),
        backoffSeconds: z
          .int()
          .nullable()
          .describe('Pause of a continuous mission while its runs fail (seconds), instead of the configured one'),
      })
      .meta({ id: 'MissionSchedule', description: 'When the mission runs' }),
    createdAt: timestamp.describe('Time at which the mission was created'),
    updatedAt: timestamp.describe('Time of the last change to the mission'),
    truncated,
  })
  .meta({ id: 'Mission', description: 'A goal with a schedule that an agent works on' })

export const MissionResponse = ok({ mission: Mission })
export const MissionCreated = ok({
  id: z.string().describe('Id of the mission'),
  title: z.string().describe('Short title of the mission'),
  status: MissionStatus.describe('State of the mission'),
  schedule: Mission.shape.schedule.describe('When the mission runs'),
  mission: Mission,
})
export const MissionsResponse = ok({
  missions: z.array(Mission).describe('Missions on this page'),
  count: z.int().describe('Number of missions that match, on all pages'),
  nextCursor,
})
export const MissionDeleted = ok({ message: z.string().describe('Confirmation for people') })
export const MissionRun = ok({
  mission: Mission,
  executionId: z.string().describe('Id of the run'),
  chatId: z.string().describe('Id of the chat that the run belongs to'),
  sessionId: z.string().describe('Id of the session'),
  status: ExecutionStatus.describe('State of the run'),
})
const { executions: runs, total } = ExecutionsResponse.shape
export const RunsResponse = ok({ runs: runs.describe('Runs on this page, newest first'), nextCursor, total })
export const NextResponse = ok({ next: z.array(timestamp).describe('The next times at which the mission runs') })
