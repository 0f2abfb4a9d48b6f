import type { GraphQLResolveInfo } from 'graphql'
import { notFound } from '../errors.ts'
import { listed as listedExecutions } from '../executions/service.ts'
import { builder, type GraphQLContext } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, parseArgs } from '../graphql/inputs.ts'
import { loadOne } from '../graphql/loader.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { CURSOR_COLUMNS, newestFirst, pageType, RELATION, RelationArgs, readPage } from '../graphql/page.ts'
import { shows } from '../graphql/procedures.ts'
import { selectRows } from '../graphql/select.ts'
import { Mcp } from '../mcps/graphql.ts'
import { reachable as reachableMcp, typesOf } from '../mcps/service.ts'
import { Skill } from '../skills/graphql.ts'
import { findIds as findSkillIds, findMany as findSkills } from '../skills/service.ts'
import { agents } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const Visibility = enumFromZod('AgentVisibility', schema.Visibility, 'Who sees an agent and may run it')
enumFromZod('AgentOwner', schema.ListAgents.shape.owner, 'Whose agents to list')

const strings = (value: unknown) => value as string[]

/** What a list of ids in an agent stands for, in its order: what `find` finds of it, for all agents of a list at once. */
async function loadAll<Found>(
  context: GraphQLContext,
  info: GraphQLResolveInfo,
  ids: unknown,
  find: (ids: string[]) => Promise<ReadonlyMap<string, Found>>,
): Promise<Found[]> {
  const found = await Promise.all(strings(ids).map((id) => loadOne(context, info, id, find)))
  return found.filter((one) => one !== null)
}

export const Agent = builder.prismaObject('Agent', {
  description: 'An assistant: name, role, system prompt and who may see and run it',
  select: { id: true },
  extensions: { scopes: ['agents:read'], like: schema.Agent },
  fields: (t) => ({
    id: t.exposeID('id'),
    name: t.exposeString('name'),
    role: t.exposeString('role'),
    systemPrompt: t.exposeString('systemPrompt', { extensions: { cost: 20 } }),
    visibility: t.expose('visibility', { type: Visibility }),
    organizationId: t.exposeID('organizationId'),
    userId: t.exposeID('userId'),
    model: t.exposeString('model', { nullable: true }),
    description: t.exposeString('description', { nullable: true }),
    tags: t.stringList({ select: { tags: true }, resolve: ({ tags }) => strings(tags) }),
    category: t.exposeString('category', { nullable: true }),
    image: t.exposeString('image', { nullable: true }),
    color: t.exposeString('color', { nullable: true }),
    initialGreeting: t.exposeString('initialGreeting', { nullable: true }),
    skillIds: t.idList({
      select: { skillIds: true },
      resolve: ({ skillIds }, _, context, info) =>
        loadAll(context, info, skillIds, async (ids) => {
          const found = await findSkillIds(context.actor, context.deps.db, ids)
          return new Map([...found].map((id) => [id, id]))
        }),
    }),
    skills: t.field({
      type: [Skill],
      description: 'Its skills that you can see',
      nullable: true,
      select: { skillIds: true },
      extensions: { scopes: ['skills:read'] },
      resolve: ({ skillIds }, _, context, info) =>
        loadAll(context, info, skillIds, async (ids) => {
          const found = await findSkills(context.actor, context.deps.db, ids)
          return new Map(found.map((skill) => [skill.id, skill]))
        }),
    }),
    mcpInstanceIds: t.idList({
      select: { mcpInstanceIds: true },
      resolve: ({ mcpInstanceIds }, _, context, info) =>
        loadAll(context, info, mcpInstanceIds, async (ids) => {
          const found = await typesOf(context.actor, context.deps.db, ids)
          return new Map([...found.keys()].map((id) => [id, id]))
        }),
    }),
    mcpServers: t.field({
      type: [Mcp],
      description: 'Its MCP servers that you can see',
      nullable: true,
      select: { mcpInstanceIds: true },
      resolve: ({ mcpInstanceIds }, _, context, info) =>
        loadAll(context, info, mcpInstanceIds, async (ids) => {
          const where = { id: { in: ids }, ...reachableMcp(context.actor) }
          const rows = selectRows(context, info, { type: 'Mcp', columns: { id: true } })
          const found = await context.deps.db.mcpServer.findMany({ ...rows, where })
          return new Map(found.map((row) => [row.id, row]))
        }),
    }),
    mcpTypes: t.stringList({ select: { mcpTypes: true }, resolve: (row) => strings(row.mcpTypes) }),
    subagentIds: t.idList({ select: { subagentIds: true }, resolve: (row) => strings(row.subagentIds) }),
    allowedTools: t.stringList({ select: { allowedTools: true }, resolve: (row) => strings(row.allowedTools) }),
    disallowedTools: t.stringList({
      select: { disallowedTools: true },
      resolve: (row) => strings(row.disallowedTools),
    }),
    maxTurns: t.exposeInt('maxTurns', { nullable: true }),
    version: t.exposeInt('version'),
    archived: t.boolean({ select: { archivedAt: true }, resolve: ({ archivedAt }) => archivedAt !== null }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime' }),
    versions: t.prismaField({
      type: ['AgentVersion'],
      description: 'What it was, newest first',
      args: argsFromZod(RelationArgs),
      extensions: RELATION,
      resolve: (query, { id: agentId }, args, { deps }) => {
        const { limit: take } = parseArgs(RelationArgs, args)
        return deps.db.agentVersion.findMany({ ...query, where: { agentId }, orderBy: { version: 'desc' }, take })
      },
    }),
    executions: t.prismaField({
      type: ['Execution'],
      description: 'Its runs in your organization, newest first',
      nullable: true,
      args: argsFromZod(RelationArgs),
      extensions: RELATION,
      resolve: (query, { id: agentId }, args, { actor, deps }) => {
        const { limit: take } = parseArgs(RelationArgs, args)
        const where = { AND: [{ agentId }, listedExecutions(actor)] }
        return deps.db.execution.findMany({ ...query, where, orderBy: newestFirst, take })
      },
    }),
  }),
})

const AgentSnapshot = objectFromZod('AgentSnapshot', schema.Agent, 'An agent as it was at a version')

builder.prismaObject('AgentVersion', {
  description: 'What an agent was at a version',
  select: { agentId: true, version: true },
  extensions: { scopes: ['agents:read'] },
  fields: (t) => ({
    version: t.exposeInt('version', { description: 'Counts from 1' }),
    createdAt: t.expose('createdAt', { type: 'DateTime', description: 'Since when it was so' }),
    userId: t.exposeID('userId', { description: 'Who made it so' }),
    agent: t.field({
      type: AgentSnapshot,
      description: 'All that it was',
      select: { agent: true },
      resolve: ({ agent }) => agent as never,
    }),
  }),
})

const AgentCard = builder.prismaObject('Agent', {
  variant: 'AgentCard',
  description: 'What everybody may know of a public agent: never its prompt',
  select: { id: true },
  extensions: { scopes: ['agents:read'], like: schema.AgentCard },
  fields: (t) => ({
    id: t.exposeID('id'),
    name: t.exposeString('name'),
    role: t.exposeString('role'),
    description: t.exposeString('description', { nullable: true }),
    tags: t.stringList({ select: { tags: true }, resolve: ({ tags }) => strings(tags) }),
    organizationName: t.string({
      select: { organization: { select: { name: true } } },
      resolve: ({ organization }) => organization.name,
    }),
  }),
})

const AgentPage = pageType('AgentPage', Agent, 'A page of agents, newest first')
const AgentCardPage = pageType('AgentCardPage', AgentCard, "A page of agents' cards, newest first")

builder.queryFields((t) => ({
  agents: t.field({
    ...shows(agents.list, { rows: 1000 }),
    type: AgentPage,
    args: argsFromZod(schema.ListAgents),
    resolve: (_, args, context, info) => {
      const { db } = context.deps
      const input = parseArgs(schema.ListAgents, args)
      const where = service.listedBy(context.actor, input)
      const query = selectRows(context, info, { type: 'Agent', path: ['nodes'], columns: CURSOR_COLUMNS })
      return readPage(
        input,
        where,
        (page) => db.agent.findMany({ ...query, ...page }),
        () => db.agent.count({ where }),
      )
    },
  }),
  agent: t.prismaField({
    ...shows(agents.get),
    type: Agent,
    nullable: true,
    args: argsFromZod(schema.AgentId),
    resolve: async (query, _, args, { actor, deps }) => {
      const { id } = parseArgs(schema.AgentId, args)
      const row = await deps.db.agent.findFirst({ ...query, where: { id, ...service.reachable(actor) } })
      if (!row) throw notFound('Agent')
      return row
    },
  }),
  publicAgents: t.field({
    ...shows(agents.listPublic, { rows: 1000 }),
    type: AgentCardPage,
    args: argsFromZod(schema.ListPublicAgents),
    resolve: (_, args, context, info) => {
      const { db } = context.deps
      const input = parseArgs(schema.ListPublicAgents, args)
      const where = service.onShowBy(input)
      const query = selectRows(context, info, { type: 'AgentCard', path: ['nodes'], columns: CURSOR_COLUMNS })
      return readPage(
        input,
        where,
        (page) => db.agent.findMany({ ...query, ...page }),
        () => db.agent.count({ where }),
      )
    },
  }),
  publicAgent: t.prismaField({
    ...shows(agents.getPublic),
    type: AgentCard,
    nullable: true,
    args: argsFromZod(schema.AgentId),
    resolve: async (query, _, args, { deps }) => {
      const { id } = parseArgs(schema.AgentId, args)
      const row = await deps.db.agent.findFirst({ ...query, where: { id, ...service.onShow('byId') } })
      if (!row) throw notFound('Agent')
      return row
    },
  }),
}))
