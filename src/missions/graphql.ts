import { AGENT, Agent, AnswerForm } from '../agents/graphql.ts'
import { isAdmin } from '../auth/actor.ts'
import { Chat } from '../chats/graphql.ts'
import { EXECUTION, Execution, Executions, isReadable } from '../executions/graphql.ts'
import { builder } from '../graphql/builder.ts'
import { connectionType, relationList, rootList } from '../graphql/connection.ts'
import { argsFromZod, enumFromZod, inputFromZod, parseArgs } from '../graphql/inputs.ts'
import { changeRow, deleteRow, writeRow } from '../graphql/mutations.ts'
import { nodeOf } from '../graphql/node.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { isTruncated, reload, rootRow, rowIn, rowsOf } from '../graphql/rows.ts'
import { outputOf } from '../lib/output.ts'
import { USER, User } from '../organizations/graphql.ts'
import { SPACE, Space } from '../spaces/graphql.ts'
import { countListed, listedBy } from './list.ts'
import { missions } from './router.ts'
import * as rows from './rows.ts'
import * as schema from './schema.ts'

const { type, overlap, catchUp } = schema.Schedule.shape
const Status = enumFromZod('MissionStatus', schema.MissionStatus, 'The status of a mission')
const Visibility = enumFromZod('MissionVisibility', schema.MissionVisibility, 'Visibility of a mission')
const Type = enumFromZod('ScheduleType', type, 'Kind of a schedule')
const Overlap = enumFromZod('ScheduleOverlap', overlap, 'Handling of a fire time while the previous run is active')
const CatchUp = enumFromZod(
  'ScheduleCatchUp',
  catchUp,
  'Handling of fire times that passed while no server was running',
)

const ScheduleInput = inputFromZod('ScheduleInput', schema.Schedule, 'Schedule of a mission')
inputFromZod('ScheduleChangeInput', schema.ScheduleChange, 'Changes of the schedule of a mission')
// The alias is for older REST clients.
const ALIAS = { characterId: true } as const
const CreateInput = inputFromZod('CreateMissionInput', schema.CreateMission.omit(ALIAS), 'A new mission')
const UpdateInput = inputFromZod('UpdateMissionInput', schema.UpdateMission.omit(ALIAS), 'Changes of a mission')

const MISSION = rowsOf('Mission', 'Mission', rows.reachable, {
  name: 'Mission',
  texts: rows.LONG_TEXTS,
})

const Mission = builder.prismaObject('Mission', {
  description: 'A goal with a schedule that an agent works on',
  interfaces: nodeOf(MISSION),
  select: { id: true },
  extensions: { scopes: ['missions:read'], like: schema.Mission },
  fields: (t) => ({
    id: t.exposeID('id'),
    truncated: t.boolean({ nullable: true, resolve: isTruncated }),
    title: t.exposeString('title'),
    goal: t.exposeString('goal', { extensions: { cost: 5 } }),
    agentId: t.exposeID('agentId'),
    agentType: t.exposeString('agentType', { nullable: true }),
    spaceId: t.exposeID('spaceId'),
    icon: t.exposeString('icon', { nullable: true }),
    visibility: t.expose('visibility', { type: Visibility }),
    maxTurns: t.exposeInt('maxTurns', { nullable: true }),
    output: t.field({
      type: AnswerForm,
      nullable: true,
      select: { output: true },
      resolve: ({ output }) => outputOf(output),
    }),
    organizationId: t.exposeID('organizationId'),
    userId: t.exposeID('userId'),
    tokenId: t.id({
      nullable: true,
      description: 'The key of its last write; only for its owner and admins',
      select: { userId: true, tokenId: true },
      resolve: ({ userId, tokenId }, _, { actor }) => (isAdmin(actor) || userId === actor.userId ? tokenId : null),
    }),
    status: t.expose('status', { type: Status }),
    pauseReason: t.exposeString('pauseReason', { nullable: true, description: 'Reason for which it paused itself' }),
    scheduleType: t.expose('scheduleType', { type: Type, description: 'Kind of the schedule' }),
    scheduleValue: t.exposeString('scheduleValue', {
      nullable: true,
      description: 'Value of the schedule, depending on the type',
    }),
    timezone: t.exposeString('timezone', { description: 'IANA timezone of the schedule' }),
    overlap: t.expose('overlap', {
      type: Overlap,
      description: 'Handling of a fire time while the previous run is active',
    }),
    catchUp: t.expose('catchUp', {
      type: CatchUp,
      description: 'Handling of fire times that passed while no server was running',
    }),
    lastRunAt: t.expose('lastRunAt', {
      type: 'DateTime',
      nullable: true,
      description: 'Fire time of the last run',
    }),
    nextRunAt: t.expose('nextRunAt', { type: 'DateTime', nullable: true, description: 'Next fire time' }),
    runCount: t.exposeInt('runCount', { description: 'Number of runs' }),
    maxRuns: t.exposeInt('maxRuns', { nullable: true, description: 'Maximum number of runs, including those by hand' }),
    backoffSeconds: t.int({
      nullable: true,
      description: 'Pause of a continuous mission while its runs fail (seconds), instead of its normal one',
      select: { scheduleType: true, scheduleValue: true, timezone: true, failureCount: true },
      resolve: rows.backoffOf,
    }),
    lastStatus: t.exposeString('lastStatus', {
      nullable: true,
      description: 'Status of the latest ended run: completed, failed or cancelled',
    }),
    lastError: t.string({
      nullable: true,
      description: 'Error of the latest run, if it failed and you can read that run',
      select: { lastError: true, lastExecutionId: true },
      async resolve({ lastError, lastExecutionId }, _, context, info) {
        if (lastError === null || lastExecutionId === null) return null
        return (await isReadable(lastExecutionId, context, info)) ? lastError : null
      },
    }),
    lastExecutionId: t.exposeID('lastExecutionId', {
      nullable: true,
      description: 'Latest ended run',
    }),
    failureCount: t.exposeInt('failureCount', {
      description: 'Number of failed runs since the last one that completed',
    }),
    skippedCount: t.exposeInt('skippedCount', { description: 'Number of fire times that passed without a run' }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime' }),
    agent: t.field(rowIn(Agent, AGENT, 'agentId', 'Agent of the mission; null if you cannot reach it')),
    space: t.field(rowIn(Space, SPACE, 'spaceId', 'Space of the mission')),
    user: t.field(rowIn(User, USER, 'userId', 'Owner, as whom it runs')),
    runs: t.field(
      relationList(Executions, EXECUTION, {
        column: 'missionId',
        description: 'Runs, newest first',
        extensions: { procedure: missions.runs },
      }),
    ),
  }),
})

const Missions = connectionType('Mission', Mission, 'missions, newest first')

for (const [type, column, what] of [
  [Agent, 'agentId', 'Its missions'],
  [Space, 'spaceId', 'Missions of the space'],
] as const) {
  builder.prismaObjectFields(type, (t) => ({
    missions: t.field(relationList(Missions, MISSION, { column, description: `${what}, newest first` })),
  }))
}

builder.prismaObjectFields(Execution, (t) => ({
  mission: t.field(rowIn(Mission, MISSION, 'missionId', 'Mission of the run')),
}))

builder.prismaObjectFields(Chat, (t) => ({
  mission: t.field(rowIn(Mission, MISSION, 'missionId', 'Mission that started the run')),
}))

const RunPayload = builder.objectRef<{ executionId: string; missionId: string }>('RunMissionPayload').implement({
  description: 'A run of a mission',
  fields: (t) => ({
    executionId: t.exposeID('executionId', { description: 'The run' }),
    mission: t.field({
      type: Mission,
      description: 'The mission after the change',
      resolve: ({ missionId }, _, context, info) => reload(context, info, MISSION, missionId),
    }),
  }),
})

builder.queryFields((t) => ({
  missions: t.field(
    rootList(
      Missions,
      MISSION,
      missions.list,
      schema.ListMissions,
      ({ actor }, input) => listedBy(actor, input),
      ({ actor, deps }, input) => countListed(actor, deps.db, input),
    ),
  ),
  mission: t.field(rootRow(Mission, MISSION, missions.get, schema.MissionId)),
  missionFireTimes: t.field({
    ...procedureExtensions(missions.next),
    type: ['DateTime'],
    args: argsFromZod(schema.NextRuns),
    resolve: async (_, args, { caller }) => (await caller.missions.next(parseArgs(schema.NextRuns, args))).next,
  }),
}))

builder.queryFields((t) => ({
  missionPreview: t.field({
    ...procedureExtensions(missions.preview),
    type: ['DateTime'],
    args: { schedule: t.arg({ type: ScheduleInput, required: true }) },
    resolve: async (_, args, { caller }) => (await caller.missions.preview(args)).next,
  }),
}))

builder.mutationFields((t) => ({
  createMission: t.field(
    writeRow(Mission, MISSION, missions.create, CreateInput, (caller, input) => caller.missions.create(input)),
  ),
  updateMission: t.field(
    writeRow(
      Mission,
      MISSION,
      missions.update,
      UpdateInput,
      async (caller, input) => (await caller.missions.update(input)).mission,
    ),
  ),
  deleteMission: t.field(deleteRow(missions.delete, schema.MissionId, (caller, args) => caller.missions.delete(args))),
  runMission: t.field({
    ...procedureExtensions(missions.run),
    type: RunPayload,
    args: argsFromZod(schema.MissionId),
    resolve: async (_, { id }, { caller }) => ({ ...(await caller.missions.run({ id })), missionId: id }),
  }),
  pauseMission: t.field(
    changeRow(Mission, MISSION, missions.pause, schema.MissionId, (caller, args) => caller.missions.pause(args)),
  ),
  resumeMission: t.field(
    changeRow(Mission, MISSION, missions.resume, schema.MissionId, (caller, args) => caller.missions.resume(args)),
  ),
}))
