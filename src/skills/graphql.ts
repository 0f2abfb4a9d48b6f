import { z } from 'zod'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, inputFromZod, parseArgs } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { pageType } from '../graphql/page.ts'
import { shows } from '../graphql/procedures.ts'
import { skills } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

enumFromZod('SkillVisibility', schema.SkillVisibility, 'Who sees a skill and may use it')
enumFromZod('SkillSource', schema.SkillSource, 'Where a skill comes from')

// One of the categories: GraphQL has no names with a hyphen, as in `file-handling`.
const category = z.string().describe('What it is about') as unknown as typeof schema.SkillCategory

export const Skill = objectFromZod('Skill', schema.Skill.extend({ category }), 'A reusable prompt package')
const SkillPage = pageType('SkillPage', Skill, 'A page of skills, newest first')
const CreateInput = inputFromZod(
  'CreateSkillInput',
  schema.CreateSkill.extend({ category: category.optional() }),
  'A new skill',
)
const UpdateInput = inputFromZod(
  'UpdateSkillInput',
  schema.UpdateSkill.extend({ category: category.optional() }),
  'What to change of a skill; the rest stays',
)

builder.queryFields((t) => ({
  skills: t.field({
    ...shows(skills.list, { rows: 1000 }),
    type: SkillPage,
    args: argsFromZod(schema.ListSkills),
    resolve: async (_, args, { actor, deps }) => {
      const page = await service.listPage(actor, deps, parseArgs(schema.ListSkills, args))
      return { nodes: page.skills, nextCursor: page.nextCursor, total: () => page.total }
    },
  }),
  skill: t.field({
    ...shows(skills.get),
    type: Skill,
    nullable: true,
    args: argsFromZod(schema.SkillId),
    resolve: async (_, args, { caller }) => (await caller.skills.get(args)).skill,
  }),
}))

builder.mutationFields((t) => ({
  createSkill: t.field({
    ...shows(skills.create),
    type: Skill,
    args: { input: t.arg({ type: CreateInput, required: true }) },
    resolve: async (_, { input }, { caller }) => (await caller.skills.create(input)).skill,
  }),
  updateSkill: t.field({
    ...shows(skills.update),
    type: Skill,
    args: { input: t.arg({ type: UpdateInput, required: true }) },
    resolve: async (_, { input }, { caller }) => (await caller.skills.update(input)).skill,
  }),
  deleteSkill: t.string({
    ...shows(skills.delete),
    args: argsFromZod(schema.SkillId),
    resolve: async (_, args, { caller }) => (await caller.skills.delete(args)).message,
  }),
}))
