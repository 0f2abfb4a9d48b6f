import { z } from 'zod'
import { builder } from '../graphql/builder.ts'
import { connectionType } from '../graphql/connection.ts'
import { invalidCursor } from '../graphql/cursor.ts'
import { argsFromZod, enumFromZod, inputFromZod, parseArgs } from '../graphql/inputs.ts'
import { addTo } from '../graphql/limits.ts'
import { deleteRow } from '../graphql/mutations.ts'
import { nodeBy } from '../graphql/node.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { listArgs, ROOT_ROWS } from '../graphql/page.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { truncated } from '../lib/page.ts'
import { cursorOf, isListCursor, listPage } from './list.ts'
import { skills } from './router.ts'
import { findMany } from './rows.ts'
import * as schema from './schema.ts'

enumFromZod('SkillVisibility', schema.SkillVisibility, 'Visibility of a skill')
enumFromZod('SkillSource', schema.SkillSource, 'Origin of a skill')

// A plain string, because GraphQL enum values cannot contain a hyphen, as in `file-handling`.
const category = z.string().describe('Subject, as free text') as unknown as typeof schema.SkillCategory

// Built-in skills are not rows.
const interfaces = nodeBy('Skill', async ({ actor, deps }, _, id) => {
  const [skill] = await findMany(actor, deps.db, [id])
  return skill ?? null
})
const fields = schema.Skill.extend({
  category,
  truncated: truncated.describe(
    'Whether `prompt` is cut at 4,000 characters, as in long lists. Get the skill by its id for all of it',
  ),
})
export const Skill = objectFromZod(
  'Skill',
  fields,
  'Instructions, tools and MCP servers that agents and spaces attach',
  {
    interfaces,
    extensions: { scopes: ['skills:read'] },
    fields: { prompt: { cost: 5 } },
  },
)
// REST returns these as `warnings` of a change; GraphQL has them as a field.
builder.objectField(Skill, 'unknownTools', (t) =>
  t.stringList({
    description: 'Names in `builtInTools` that this service has no tool for. Runs ignore them',
    resolve: ({ builtInTools }) => schema.unknownTools(builtInTools),
  }),
)
const Skills = connectionType('Skill', Skill, "skills, one's own before those of other organizations, newest first")
const ListSkills = listArgs(schema.ListSkills.extend({ category: category.optional() })).omit({
  // Backward pages are possible because the list is read in several ranges.
  last: true,
  before: true,
})
const CreateInput = inputFromZod(
  'CreateSkillInput',
  schema.CreateSkill.extend({ category: category.optional() }),
  'A new skill',
)
const UpdateInput = inputFromZod(
  'UpdateSkillInput',
  schema.UpdateSkill.extend({ category: category.optional() }),
  'Changes of a skill; absent fields are unchanged',
)

builder.queryFields((t) => ({
  skills: t.field({
    ...procedureExtensions(skills.list, { rows: ROOT_ROWS, input: ListSkills }),
    type: Skills,
    args: argsFromZod(ListSkills),
    resolve: async (_, args, { actor, deps, answer }) => {
      const { first = ROOT_ROWS, after, category: named, search } = parseArgs(ListSkills, args)
      const category = schema.SkillCategory.optional().parse(named)
      // The cursors are those of REST, because some skills are not rows.
      if (after !== undefined && !isListCursor(after)) throw invalidCursor()
      const page = await listPage(
        actor,
        deps,
        { limit: first, ...(category && { category }), search, ...(after !== undefined && { cursor: after }) },
        true,
      )
      addTo(answer, page.skills)
      return {
        rows: page.skills,
        cursorOf: (skill) => cursorOf(actor, skill),
        hasNextPage: page.nextCursor !== null,
        hasPreviousPage: after !== undefined,
        total: () => page.total,
      }
    },
  }),
  skill: t.field({
    ...procedureExtensions(skills.get),
    type: Skill,
    nullable: true,
    args: argsFromZod(schema.SkillId),
    resolve: async (_, args, { caller }) => (await caller.skills.get(args)).skill,
  }),
}))

builder.mutationFields((t) => ({
  createSkill: t.field({
    ...procedureExtensions(skills.create),
    type: Skill,
    args: { input: t.arg({ type: CreateInput, required: true }) },
    resolve: async (_, { input }, { caller }) => (await caller.skills.create(input)).skill,
  }),
  updateSkill: t.field({
    ...procedureExtensions(skills.update),
    type: Skill,
    args: { input: t.arg({ type: UpdateInput, required: true }) },
    resolve: async (_, { input }, { caller }) => (await caller.skills.update(input)).skill,
  }),
  deleteSkill: t.field(deleteRow(skills.delete, schema.SkillId, (caller, args) => caller.skills.delete(args))),
}))
