import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, inputFromZod, parseArgs } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { pageType } from '../graphql/page.ts'
import { shows } from '../graphql/procedures.ts'
import { spaces } from './router.ts'
import * as schema from './schema.ts'

enumFromZod('SpaceVisibility', schema.SpaceVisibility, 'Who sees a space')
objectFromZod('SpaceAgent', schema.AgentRef, 'An agent that is attached to a space')
objectFromZod('SpaceSkill', schema.SkillRef, 'A skill that is attached to a space')
objectFromZod('SpaceMcp', schema.McpRef, 'An MCP server that is attached to a space')

const Space = objectFromZod('Space', schema.Space, 'A workspace')
const SpacePage = pageType('SpacePage', Space, 'A page of spaces, newest first')

// The other names are for clients of old, who speak REST.
const CREATE_ALIASES = { addCharacters: true, assignedAgents: true } as const
const UPDATE_ALIASES = { addCharacters: true, removeCharacters: true } as const
const CreateInput = inputFromZod('CreateSpaceInput', schema.CreateSpace.omit(CREATE_ALIASES), 'A new space')
const UpdateInput = inputFromZod(
  'UpdateSpaceInput',
  schema.UpdateSpace.omit(UPDATE_ALIASES),
  'What to change of a space',
)

builder.queryFields((t) => ({
  spaces: t.field({
    ...shows(spaces.list, { rows: 1000 }),
    type: SpacePage,
    args: argsFromZod(schema.ListSpaces),
    resolve: async (_, args, { caller }) => {
      const { spaces: nodes, nextCursor, total } = await caller.spaces.list(parseArgs(schema.ListSpaces, args))
      return { nodes, nextCursor, total: () => total }
    },
  }),
  space: t.field({
    ...shows(spaces.get),
    type: Space,
    nullable: true,
    args: argsFromZod(schema.SpaceId),
    resolve: async (_, args, { caller }) => (await caller.spaces.get(args)).space,
  }),
}))

builder.mutationFields((t) => ({
  createSpace: t.field({
    ...shows(spaces.create),
    type: Space,
    args: { input: t.arg({ type: CreateInput, required: true }) },
    resolve: async (_, { input }, { caller }) => (await caller.spaces.create(input)).space,
  }),
  updateSpace: t.field({
    ...shows(spaces.update),
    type: Space,
    args: { input: t.arg({ type: UpdateInput, required: true }) },
    resolve: async (_, { input }, { caller }) => (await caller.spaces.update(input)).space,
  }),
  deleteSpace: t.string({
    ...shows(spaces.delete),
    args: argsFromZod(schema.SpaceId),
    resolve: async (_, args, { caller }) => (await caller.spaces.delete(args)).message,
  }),
}))
