import { z } from 'zod'
import { Status as ExecutionStatus, ExecutionsResponse, ListExecutions } from '../executions/schema.ts'
import { int, ok, queryInt, requiredEnum, requiredText, text, timestamp } from '../lib/fields.ts'
import { nextCursor, pageInput, truncated } from '../lib/page.ts'

export const MissionStatus = z
  .enum(['pending', 'running', 'completed', 'paused', 'failed'], {
    error: 'Invalid status. Must be: pending, running, completed, paused, failed',
  })
  .meta({ id: 'MissionStatus' })

export const MissionVisibility = z.enum(['private', 'organization', 'public'], {
  error: 'Invalid visibility value. Must be: private, organization, or public',
})

/** When a mission runs. */
export const Schedule = z.object({
  type: requiredEnum(['none', 'once', 'cron', 'continuous']),
  value: text(200)
    .nullish()
    .describe('cron: an expression of five or six fields; once: a date and time; continuous: the pause in seconds'),
  timezone: text(100).nullish().describe('IANA. Default: UTC'),
  overlap: z
    .enum(['skip', 'queue'])
    .nullish()
    .describe('A fire time while the last run is on: passes (the default), or waits'),
  catchUp: z
    .enum(['last', 'skip'])
    .nullish()
    .describe('Of the fire times that were missed by more than a minute the last one runs (the default), or none'),
  maxRuns: int(1, 1_000_000)
    .nullish()
    .describe('Maximum number of runs, by hand too; the mission is `completed` after them. Default: no limit'),
})

/** What to change of it. What is not said stays, but for the value of a schedule of another type. */
export const ScheduleChange = Schedule.partial()

const missionId = z.string().describe('The mission')
const agentId = requiredText(100)

const fields = {
  title: requiredText(200),
  goal: requiredText(100_000),
  spaceId: z.string().nullish().describe('Default: the default space'),
  icon: text(200).nullish(),
  visibility: MissionVisibility.optional().describe('Default: `organization`'),
  maxTurns: int(1, 500).nullish(),
  agentType: text(100).nullish(),
  agentId: agentId.nullish().describe('The agent that works on it'),
  characterId: agentId.nullish().describe('Another name of agentId, which wins'),
  schedule: Schedule.nullish(),
}

/** POST /missions (contract.md section 7). */
export const CreateMission = z.object(fields).meta({
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
export const UpdateMission = z.object({
  id: missionId,
  ...fields,
  title: fields.title.optional(),
  goal: fields.goal.optional(),
  agentId: agentId.optional().describe('The agent that works on it'),
  characterId: agentId.optional().describe('Another name of agentId, which wins'),
  schedule: ScheduleChange.nullish(),
  status: MissionStatus.optional().describe(
    'running runs it now, paused pauses it, pending resumes it, completed ends it: no run of it begins any more',
  ),
})

/** GET and DELETE /missions/{id}, POST /missions/{id}/run, …/pause and …/resume (contract.md section 7). */
export const MissionId = z.object({ id: missionId })

/** GET /missions (contract.md section 7). */
export const ListMissions = z.object({ status: MissionStatus.optional(), ...pageInput })

/** GET /missions/{id}/runs (contract.md section 7). */
export const ListRuns = ListExecutions.pick({ count: true, limit: true, cursor: true }).extend({ id: missionId })

/** GET /missions/{id}/next (contract.md section 7). */
export const NextRuns = z.object({ id: missionId, count: queryInt(1, 100).optional().describe('Default: 10') })

/** POST /missions/preview (contract-2.md section 1.21). */
export const PreviewSchedule = z
  .object({ schedule: Schedule })
  .meta({ examples: [{ schedule: { type: 'cron', value: '0 8 * * *', timezone: 'Europe/Berlin' } }] })

/** An agent's long-running work (service.md, "Client-library resource shapes"; contract.md section 7). */
export const Mission = z
  .object({
    id: z.string(),
    title: z.string(),
    goal: z.string(),
    agentId: z.string(),
    agentType: z.string().nullable(),
    spaceId: z.string(),
    icon: z.string().nullable(),
    visibility: MissionVisibility,
    maxTurns: z.int().nullable(),
    organizationId: z.string(),
    userId: z.string().describe('The owner, as whom it runs'),
    tokenId: z.string().nullable().describe('The key it was last written with; for its owner and admins'),
    status: MissionStatus,
    pauseReason: z.string().optional(),
    lastStatus: z.enum(['completed', 'failed', 'cancelled']).nullable().describe('How its latest run ended'),
    lastError: z
      .string()
      .nullable()
      .describe('Why its latest run failed; null if it did not, or if you cannot read that run'),
    lastExecutionId: z.string().nullable().describe('Its latest run that has ended'),
    failureCount: z.int().describe('Number of failed runs since the last one that completed'),
    skippedCount: z.int().describe('Number of fire times that passed without a run'),
    schedule: z.object({
      type: Schedule.shape.type,
      value: z.string().nullable(),
      timezone: z.string(),
      overlap: z.enum(['skip', 'queue']),
      catchUp: z.enum(['last', 'skip']),
      lastRun: timestamp.nullable(),
      nextRun: timestamp.nullable(),
      runCount: z.int(),
      maxRuns: z.int().nullable(),
      backoffSeconds: z
        .int()
        .nullable()
        .describe('The pause of a continuous mission (seconds) while its runs fail, in place of the one it was given'),
    }),
    createdAt: timestamp,
    updatedAt: timestamp,
    truncated,
  })
  .meta({ id: 'Mission' })

export const MissionResponse = ok({ mission: Mission })
export const MissionCreated = ok({
  id: z.string(),
  title: z.string(),
  status: MissionStatus,
  schedule: Mission.shape.schedule,
  mission: Mission,
})
export const MissionsResponse = ok({ missions: z.array(Mission), count: z.int(), nextCursor })
export const MissionDeleted = ok({ message: z.string() })
export const MissionRun = ok({
  mission: Mission,
  executionId: z.string(),
  chatId: z.string(),
  sessionId: z.string(),
  status: ExecutionStatus,
})
const { executions: runs, total } = ExecutionsResponse.shape
export const RunsResponse = ok({ runs, nextCursor, total })
export const NextResponse = ok({ next: z.array(timestamp) })
