import { notFound } from '../errors.ts'
import { Execution } from '../executions/graphql.ts'
import { listed as listedExecutions } from '../executions/service.ts'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, inputFromZod, parseArgs } from '../graphql/inputs.ts'
import { CURSOR_COLUMNS, newestFirst, pageType, RELATION, RelationArgs, readPage } from '../graphql/page.ts'
import { shows } from '../graphql/procedures.ts'
import { selectRows } from '../graphql/select.ts'
import { missions } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const { type, overlap, catchUp } = schema.Schedule.shape
const Status = enumFromZod('MissionStatus', schema.MissionStatus, 'Where a mission is')
const Visibility = enumFromZod('MissionVisibility', schema.MissionVisibility, 'Who sees a mission')
const Type = enumFromZod('ScheduleType', type, 'When a mission runs')
const Overlap = enumFromZod('ScheduleOverlap', overlap, 'What a fire time does while the last run is on')
const CatchUp = enumFromZod('ScheduleCatchUp', catchUp, 'What becomes of fire times that nobody was there for')

inputFromZod('ScheduleInput', schema.Schedule, 'When a mission runs')
inputFromZod('ScheduleChangeInput', schema.ScheduleChange, 'What to change of when a mission runs')
// The other name is for clients of old, who speak REST.
const ALIAS = { characterId: true } as const
const CreateInput = inputFromZod('CreateMissionInput', schema.CreateMission.omit(ALIAS), 'A new mission')
const UpdateInput = inputFromZod('UpdateMissionInput', schema.UpdateMission.omit(ALIAS), 'What to change of a mission')

const Mission = builder.prismaObject('Mission', {
  description: 'Long-running work of an agent',
  select: { id: true },
  extensions: { scopes: ['missions:read'], like: schema.Mission },
  fields: (t) => ({
    id: t.exposeID('id'),
    title: t.exposeString('title'),
    goal: t.exposeString('goal', { extensions: { cost: 20 } }),
    agentId: t.exposeID('agentId'),
    agentType: t.exposeString('agentType', { nullable: true }),
    spaceId: t.exposeID('spaceId'),
    icon: t.exposeString('icon', { nullable: true }),
    visibility: t.expose('visibility', { type: Visibility }),
    maxTurns: t.exposeInt('maxTurns', { nullable: true }),
    organizationId: t.exposeID('organizationId'),
    userId: t.exposeID('userId'),
    status: t.expose('status', { type: Status }),
    pauseReason: t.exposeString('pauseReason', { nullable: true, description: 'Why it paused itself' }),
    scheduleType: t.expose('scheduleType', { type: Type, description: 'When it runs' }),
    scheduleValue: t.exposeString('scheduleValue', { nullable: true, description: 'What the type needs' }),
    timezone: t.exposeString('timezone', { description: 'Of the schedule, IANA' }),
    overlap: t.expose('overlap', { type: Overlap, description: 'A fire time while the last run is on' }),
    catchUp: t.expose('catchUp', { type: CatchUp, description: 'Fire times nobody was there for' }),
    lastRunAt: t.expose('lastRunAt', {
      type: 'DateTime',
      nullable: true,
      description: 'The fire time of its last run',
    }),
    nextRunAt: t.expose('nextRunAt', { type: 'DateTime', nullable: true, description: 'Its next fire time' }),
    runCount: t.exposeInt('runCount', { description: 'How often it has run' }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime' }),
    runs: t.prismaField({
      type: [Execution],
      description: 'Its runs, newest first',
      nullable: true,
      args: argsFromZod(RelationArgs),
      extensions: RELATION,
      resolve: (query, { id: missionId }, args, { actor, deps }) => {
        const { limit: take } = parseArgs(RelationArgs, args)
        const where = { AND: [{ missionId }, listedExecutions(actor)] }
        return deps.db.execution.findMany({ ...query, where, orderBy: newestFirst, take })
      },
    }),
  }),
})

const MissionPage = pageType('MissionPage', Mission, 'A page of missions, newest first')

const RunPayload = builder.objectRef<{ executionId: string; missionId: string }>('RunMissionPayload').implement({
  description: 'A run of a mission',
  fields: (t) => ({
    executionId: t.exposeID('executionId', { description: 'The run' }),
    mission: t.prismaField({
      type: Mission,
      description: 'The mission as it is now',
      resolve: (query, { missionId: id }, _, { deps }) =>
        deps.db.mission.findUniqueOrThrow({ ...query, where: { id } }),
    }),
  }),
})

builder.queryFields((t) => ({
  missions: t.field({
    ...shows(missions.list, { rows: 1000 }),
    type: MissionPage,
    args: argsFromZod(schema.ListMissions),
    resolve: (_, args, context, info) => {
      const { db } = context.deps
      const input = parseArgs(schema.ListMissions, args)
      const where = service.listedBy(context.actor, input)
      const rows = selectRows(context, info, { type: 'Mission', path: ['nodes'], columns: CURSOR_COLUMNS })
      return readPage(
        input,
        where,
        (page) => db.mission.findMany({ ...rows, ...page }),
        () => db.mission.count({ where }),
      )
    },
  }),
  mission: t.prismaField({
    ...shows(missions.get),
    type: Mission,
    nullable: true,
    args: argsFromZod(schema.MissionId),
    resolve: async (query, _, args, { actor, deps }) => {
      const { id } = parseArgs(schema.MissionId, args)
      const row = await deps.db.mission.findFirst({ ...query, where: { AND: [{ id }, service.reachable(actor)] } })
      if (!row) throw notFound('Mission')
      return row
    },
  }),
  missionFireTimes: t.field({
    ...shows(missions.next),
    type: ['DateTime'],
    args: argsFromZod(schema.NextRuns),
    resolve: async (_, args, { caller }) => (await caller.missions.next(parseArgs(schema.NextRuns, args))).next,
  }),
}))

builder.mutationFields((t) => {
  /** A mutation that answers the mission as it then is. */
  const changing = (procedure: 'pause' | 'resume') =>
    t.prismaField({
      ...shows(missions[procedure]),
      type: Mission,
      args: argsFromZod(schema.MissionId),
      resolve: async (query, _, { id }, { caller, deps }) => {
        await caller.missions[procedure]({ id })
        return deps.db.mission.findUniqueOrThrow({ ...query, where: { id } })
      },
    })
  return {
    createMission: t.prismaField({
      ...shows(missions.create),
      type: Mission,
      args: { input: t.arg({ type: CreateInput, required: true }) },
      resolve: async (query, _, { input }, { caller, deps }) => {
        const { id } = await caller.missions.create(input)
        return deps.db.mission.findUniqueOrThrow({ ...query, where: { id } })
      },
    }),
    updateMission: t.prismaField({
      ...shows(missions.update),
      type: Mission,
      args: { input: t.arg({ type: UpdateInput, required: true }) },
      resolve: async (query, _, { input }, { caller, deps }) => {
        await caller.missions.update(input)
        return deps.db.mission.findUniqueOrThrow({ ...query, where: { id: input.id } })
      },
    }),
    deleteMission: t.string({
      ...shows(missions.delete),
      args: argsFromZod(schema.MissionId),
      resolve: async (_, args, { caller }) => (await caller.missions.delete(args)).message,
    }),
    runMission: t.field({
      ...shows(missions.run),
      type: RunPayload,
      args: argsFromZod(schema.MissionId),
      resolve: async (_, { id }, { caller }) => ({ ...(await caller.missions.run({ id })), missionId: id }),
    }),
    pauseMission: changing('pause'),
    resumeMission: changing('resume'),
  }
})
