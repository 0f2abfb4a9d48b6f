import { AGENT, Agent } from '../agents/graphql.ts'
import { builder } from '../graphql/builder.ts'
import { connectionType, rootList } from '../graphql/connection.ts'
import { enumFromZod, inputFromZod } from '../graphql/inputs.ts'
import { loadOne } from '../graphql/loader.ts'
import { changeRow, deleteRow, writeRow } from '../graphql/mutations.ts'
import { nodeOf } from '../graphql/node.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { RELATION_ROWS } from '../graphql/page.ts'
import { computedBy, isTruncated, loadRow, rootRow, rowIn, rowsOf } from '../graphql/rows.ts'
import { MCP, Mcp, McpPermission } from '../mcps/graphql.ts'
import { USER, User } from '../organizations/graphql.ts'
import { Skill } from '../skills/graphql.ts'
import { findMany as findSkills } from '../skills/rows.ts'
import { spaces } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'
import { listedBy, reachable } from './visibility.ts'

const Visibility = enumFromZod('SpaceVisibility', schema.SpaceVisibility, 'Visibility of a space')
const SpaceAgent = objectFromZod('SpaceAgent', schema.AgentRef, 'An agent that is attached to a space')
const SpaceSkill = objectFromZod('SpaceSkill', schema.SkillRef, 'A skill that is attached to a space')
const SpaceMcp = objectFromZod('SpaceMcp', schema.McpRef, 'An MCP server that is attached to a space')

builder.objectField(SpaceAgent, 'agent', (t) =>
  t.field({
    type: Agent,
    nullable: true,
    description: 'The agent',
    resolve: ({ agentId }, _, context, info) => loadRow(context, info, AGENT, agentId),
  }),
)

builder.objectField(SpaceSkill, 'skill', (t) =>
  t.field({
    type: Skill,
    nullable: true,
    description: 'The skill',
    resolve: ({ skillId }, _, context, info) =>
      loadOne(context, info, skillId, async (ids) => {
        const found = await findSkills(context.actor, context.deps.db, ids)
        return new Map(found.map((skill) => [skill.id, skill]))
      }) as never,
  }),
)

builder.objectField(SpaceMcp, 'mcp', (t) =>
  t.field({
    type: Mcp,
    nullable: true,
    description: 'The MCP server',
    resolve: ({ mcpId }, _, context, info) => loadRow(context, info, MCP, mcpId),
  }),
)

export const SPACE = rowsOf('Space', 'Space', reachable, {
  name: 'Space',
  texts: service.LONG_TEXTS,
})

export const computed = computedBy(SPACE, ({ actor, deps }, ids) => service.findMany(actor, deps, ids))

export const Space = builder.prismaObject('Space', {
  description: 'A shared place for files, instructions, secrets and chats',
  interfaces: nodeOf(SPACE),
  select: { id: true },
  extensions: { scopes: ['spaces:read'], like: schema.Space },
  fields: (t) => {
    const extensions = { rows: RELATION_ROWS }
    return {
      id: t.exposeID('id'),
      truncated: t.boolean({ nullable: true, resolve: isTruncated }),
      organizationId: t.exposeID('organizationId'),
      name: t.exposeString('name'),
      description: t.exposeString('description', { nullable: true }),
      visibility: t.expose('visibility', { type: Visibility }),
      ownerId: t.exposeID('ownerId'),
      instructions: t.exposeString('instructions', { nullable: true, extensions: { cost: 5 } }),
      permissions: t.field({
        type: [McpPermission],
        select: { permissions: true },
        resolve: ({ permissions }) => permissions as never,
      }),
      isDefault: t.exposeBoolean('isDefault'),
      assignedAgents: t.idList({ resolve: computed('assignedAgents') }),
      skillIds: t.idList({ resolve: computed('skillIds') }),
      pluginIds: t.idList({ resolve: computed('pluginIds') }),
      agentRefs: t.field({ type: [SpaceAgent], extensions, resolve: computed('agentRefs') }),
      skillRefs: t.field({ type: [SpaceSkill], extensions, resolve: computed('skillRefs') }),
      mcpRefs: t.field({ type: [SpaceMcp], extensions, resolve: computed('mcpRefs') }),
      secretKeys: t.stringList({ resolve: computed('secretKeys') }),
      chatCount: t.int({ resolve: computed('chatCount') }),
      fileCount: t.exposeInt('fileCount'),
      createdAt: t.expose('createdAt', { type: 'DateTime' }),
      updatedAt: t.expose('updatedAt', { type: 'DateTime' }),
      owner: t.field(rowIn(User, USER, 'ownerId', 'Owner of the space')),
    }
  },
})

const Spaces = connectionType('Space', Space, 'spaces, newest first')

// The aliases are for older REST clients.
const CREATE_ALIASES = { addCharacters: true, assignedAgents: true, skillIds: true, pluginIds: true } as const
const UPDATE_ALIASES = { addCharacters: true, removeCharacters: true } as const
const CreateInput = inputFromZod('CreateSpaceInput', schema.CreateSpace.omit(CREATE_ALIASES), 'A new space')
const UpdateInput = inputFromZod('UpdateSpaceInput', schema.UpdateSpace.omit(UPDATE_ALIASES), 'Changes of a space')

builder.queryFields((t) => ({
  spaces: t.field(
    rootList(
      Spaces,
      SPACE,
      spaces.list,
      schema.ListSpaces,
      ({ actor }, input) => listedBy(actor, input),
      ({ actor, deps }, input) => service.countListed(actor, deps.db, input),
    ),
  ),
  space: t.field(rootRow(Space, SPACE, spaces.get, schema.SpaceId)),
}))

builder.mutationFields((t) => ({
  createSpace: t.field(
    writeRow(Space, SPACE, spaces.create, CreateInput, (caller, input) => caller.spaces.create(input)),
  ),
  updateSpace: t.field(
    writeRow(
      Space,
      SPACE,
      spaces.update,
      UpdateInput,
      async (caller, input) => (await caller.spaces.update(input)).space,
    ),
  ),
  updateSpaceSkill: t.field(
    changeRow(Space, SPACE, spaces.updateSkill, schema.SpaceSkillId, (caller, args) => caller.spaces.updateSkill(args)),
  ),
  deleteSpace: t.field(deleteRow(spaces.delete, schema.SpaceId, (caller, args) => caller.spaces.delete(args))),
}))
