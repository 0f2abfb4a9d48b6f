import type { GraphQLResolveInfo } from 'graphql'
import { builder, type GraphQLContext } from '../graphql/builder.ts'
import { connectionType, relationList, rootList } from '../graphql/connection.ts'
import { enumFromZod, inputFromZod } from '../graphql/inputs.ts'
import { loadOne } from '../graphql/loader.ts'
import { nodeOf } from '../graphql/node.ts'
import { jsonFromZod, objectFromZod } from '../graphql/outputs.ts'
import { RELATION_ROWS } from '../graphql/page.ts'
import { computedBy, isTruncated, loadRows, rootRow, rowIn, rowsOf } from '../graphql/rows.ts'
import { MAX_ITEMS } from '../lib/fields.ts'
import * as settings from '../lib/model-settings.ts'
import { NewOutput, Output, outputOf } from '../lib/output.ts'
import { MCP, Mcp, McpPermission } from '../mcps/graphql.ts'
import { USER, User } from '../organizations/graphql.ts'
import { Skill } from '../skills/graphql.ts'
import { findMany as findSkills } from '../skills/rows.ts'
import { countPubliclyVisible, publiclyVisibleBy } from './directory.ts'
import { countListed, listedBy } from './list.ts'
import * as references from './references.ts'
import { agents } from './router.ts'
import { fromVersion, LONG_TEXTS, strings } from './rows.ts'
import * as schema from './schema.ts'
import { slugOf } from './slugs.ts'
import { seenVersions } from './versions.ts'
import * as visibility from './visibility.ts'

const History = enumFromZod('AgentHistory', schema.History, 'Treatment of earlier turns that do not fit')
const Visibility = enumFromZod('AgentVisibility', schema.Visibility, 'Visibility of an agent')
enumFromZod('AgentOwner', schema.ListAgents.shape.owner, 'Owner of the agents to list')

const { reasoningEffort, toolChoice } = settings.ModelSettings.shape
enumFromZod('ReasoningEffort', reasoningEffort, 'Reasoning effort of a model')
enumFromZod('ToolChoice', toolChoice, 'Whether a model may, must or must not call tools')
inputFromZod('OutputInput', NewOutput, 'Form of an answer: JSON that fits a schema')
/** Form of the answers of an agent, a task or a mission. */
export const AnswerForm = objectFromZod('Output', Output, 'Form of an answer: JSON that fits a schema')
inputFromZod('ModelSettingsInput', settings.ModelSettingsGiven, 'Settings of a model; the provider decides the rest')
// As a GraphQL type, every absent setting would be null.
jsonFromZod(settings.ModelSettings)

/** Resolves a list of ids in an agent, in order, with one call of `find` for all agents of a list. */
async function loadAll<Found>(
  context: GraphQLContext,
  info: GraphQLResolveInfo,
  ids: unknown,
  find: (ids: string[]) => Promise<ReadonlyMap<string, Found>>,
): Promise<Found[]> {
  const found = await Promise.all(strings(ids).map((id) => loadOne(context, info, id, find)))
  return found.filter((one) => one !== null)
}

/** Cost of a list of ids, each of which is looked up (see limits.ts). */
const IDS_COST = 10

/** Resolves the reachable ids in a list of an agent or a version. */
const seen =
  <const Field extends keyof typeof references.REFERENCES>(field: Field) =>
  (row: Record<Field, unknown>, _: object, context: GraphQLContext, info: GraphQLResolveInfo): Promise<string[]> =>
    loadAll(context, info, row[field], async (ids) => {
      const found = await references.REFERENCES[field](context.actor, context.deps.db, ids)
      return new Map(Array.from(found.keys(), (id) => [id, id]))
    })

export const AGENT = rowsOf('Agent', 'Agent', visibility.reachable, {
  name: 'Agent',
  listed: visibility.listed,
  texts: LONG_TEXTS,
})

const AgentSkillRef = objectFromZod('AgentSkillRef', schema.AgentSkillRef, 'A skill of an agent')
const computed = computedBy(AGENT, ({ actor, deps }, ids) => references.findSkillRefs(actor, deps, ids))

export const Agent = builder.prismaObject('Agent', {
  description: 'A named configuration of an assistant: role, system prompt, model, tools and visibility',
  interfaces: nodeOf(AGENT),
  select: { id: true },
  extensions: { scopes: ['agents:read'], like: schema.Agent },
  fields: (t) => ({
    id: t.exposeID('id'),
    truncated: t.boolean({ nullable: true, resolve: isTruncated }),
    name: t.exposeString('name'),
    slug: t.string({ select: { slug: true, name: true }, resolve: ({ slug, name }) => slug ?? slugOf(name) }),
    role: t.exposeString('role'),
    systemPrompt: t.exposeString('systemPrompt', { extensions: { cost: 5 } }),
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
    skillIds: t.idList({ extensions: { cost: IDS_COST }, select: { skillIds: true }, resolve: seen('skillIds') }),
    skillRefs: t.field({ type: [AgentSkillRef], extensions: { rows: RELATION_ROWS }, resolve: computed('skillRefs') }),
    skills: t.field({
      type: [Skill],
      description: 'Attached skills that you can see',
      nullable: true,
      select: { skillIds: true },
      extensions: { scopes: ['skills:read'], rows: RELATION_ROWS },
      resolve: ({ skillIds }, _, context, info) =>
        loadAll(context, info, skillIds, async (ids) => {
          const found = await findSkills(context.actor, context.deps.db, ids)
          return new Map(found.map((skill) => [skill.id, skill]))
        }),
    }),
    mcpInstanceIds: t.idList({
      extensions: { cost: IDS_COST },
      select: { mcpInstanceIds: true },
      resolve: seen('mcpInstanceIds'),
    }),
    mcpServers: t.field({
      type: [Mcp],
      description: 'Attached MCP servers that you can see',
      nullable: true,
      select: { mcpInstanceIds: true },
      extensions: { rows: RELATION_ROWS },
      resolve: ({ mcpInstanceIds }, _, context, info) => loadRows(context, info, MCP, strings(mcpInstanceIds)),
    }),
    mcpTypes: t.stringList({ select: { mcpTypes: true }, resolve: (row) => strings(row.mcpTypes) }),
    subagentIds: t.idList({
      extensions: { cost: IDS_COST },
      select: { subagentIds: true },
      resolve: seen('subagentIds'),
    }),
    allowedTools: t.stringList({ select: { allowedTools: true }, resolve: (row) => strings(row.allowedTools) }),
    disallowedTools: t.stringList({
      select: { disallowedTools: true },
      resolve: (row) => strings(row.disallowedTools),
    }),
    advanced_tools: t.stringList({
      select: { advanced_tools: true },
      resolve: ({ advanced_tools }) => strings(advanced_tools),
    }),
    permissions: t.field({
      type: [McpPermission],
      select: { permissions: true },
      resolve: ({ permissions }) => permissions as never,
    }),
    maxTurns: t.exposeInt('maxTurns', { nullable: true }),
    modelSettings: t.field({
      type: 'JSON',
      select: { modelSettings: true },
      resolve: ({ modelSettings }) => modelSettings,
    }),
    fallbackModels: t.stringList({
      select: { fallbackModels: true },
      resolve: (row) => strings(row.fallbackModels),
    }),
    output: t.field({
      type: AnswerForm,
      nullable: true,
      select: { output: true },
      resolve: ({ output }) => outputOf(output),
    }),
    contextWindow: t.exposeInt('contextWindow', { nullable: true }),
    history: t.expose('history', { type: History }),
    requireTools: t.exposeBoolean('requireTools'),
    version: t.exposeInt('version'),
    archived: t.boolean({ select: { archivedAt: true }, resolve: ({ archivedAt }) => archivedAt !== null }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime' }),
    user: t.field(rowIn(User, USER, 'userId', 'Creator of the agent')),
  }),
})

const AgentSnapshot = objectFromZod('AgentSnapshot', schema.Agent, 'An agent as it was at a version', {
  fields: { systemPrompt: { cost: 5 } },
  resolve: {
    skillIds: seen('skillIds'),
    mcpInstanceIds: seen('mcpInstanceIds'),
    subagentIds: seen('subagentIds'),
  },
})

const VERSION = rowsOf<{ agentId: string; version: number }>('AgentVersion', 'AgentVersion', seenVersions, {
  order: [['version', 'desc']],
  key: ['version'],
  texts: ['agent'],
})

const AgentVersion = builder.prismaObject('AgentVersion', {
  description: 'An agent at a version',
  select: { agentId: true, version: true },
  extensions: { scopes: ['agents:read'] },
  fields: (t) => ({
    version: t.exposeInt('version', { description: 'Number of the version, from 1' }),
    createdAt: t.expose('createdAt', { type: 'DateTime', description: 'Time of the change' }),
    userId: t.exposeID('userId', { description: 'Author of the change' }),
    agent: t.field({
      type: AgentSnapshot,
      description: 'All fields at this version',
      select: { agent: true },
      // A version is read whole, and most of it is a prompt.
      extensions: { cost: 5 },
      resolve: (row) => ({ ...fromVersion(row.agent), ...(isTruncated(row) && { truncated: true }) }),
    }),
  }),
})

const Versions = connectionType('AgentVersion', AgentVersion, 'versions of an agent, newest first')

const CARD = rowsOf('AgentCard', 'Agent', () => visibility.publiclyVisible('byId'), { name: 'Agent' })

const AgentCard = builder.prismaObject('Agent', {
  variant: 'AgentCard',
  description: 'Public information about an agent, without its prompt',
  select: { id: true },
  extensions: { scopes: ['agents:read'], like: schema.AgentCard },
  fields: (t) => ({
    id: t.exposeID('id'),
    name: t.exposeString('name'),
    slug: t.string({ select: { slug: true, name: true }, resolve: ({ slug, name }) => slug ?? slugOf(name) }),
    role: t.exposeString('role'),
    description: t.exposeString('description', { nullable: true }),
    tags: t.stringList({ select: { tags: true }, resolve: ({ tags }) => strings(tags) }),
    organizationName: t.string({
      select: { organization: { select: { name: true } } },
      resolve: ({ organization }) => organization.name,
    }),
  }),
})

builder.prismaObjectFields(Agent, (t) => ({
  subagents: t.field({
    type: [Agent],
    description: 'Agents that it may delegate to and that you can reach',
    nullable: true,
    select: { subagentIds: true },
    // The maximum number of subagents; the list has no `first`, and subagents have subagents themselves.
    extensions: { rows: MAX_ITEMS },
    resolve: ({ subagentIds }, _, context, info) => loadRows(context, info, AGENT, strings(subagentIds)),
  }),
  versions: t.field(
    relationList(Versions, VERSION, {
      column: 'agentId',
      description: 'Versions, newest first; versions with private visibility for the owner only',
      extensions: { procedure: agents.versions },
    }),
  ),
}))

const Agents = connectionType('Agent', Agent, 'agents, newest first')
const AgentCards = connectionType('AgentCard', AgentCard, "agents' cards, newest first")

builder.queryFields((t) => ({
  agents: t.field(
    rootList(
      Agents,
      AGENT,
      agents.list,
      schema.ListAgents,
      ({ actor, deps }, input) => listedBy(actor, deps, input),
      ({ actor, deps }, input, where) => countListed(actor, deps, input, where),
    ),
  ),
  agent: t.field(rootRow(Agent, AGENT, agents.get, schema.AgentId)),
  publicAgents: t.field(
    rootList(
      AgentCards,
      CARD,
      agents.listPublic,
      schema.ListPublicAgents,
      ({ deps }, input) => publiclyVisibleBy(deps, input),
      ({ deps }, input, where) => countPubliclyVisible(deps, input, where),
    ),
  ),
  publicAgent: t.field(rootRow(AgentCard, CARD, agents.getPublic, schema.AgentId)),
}))
