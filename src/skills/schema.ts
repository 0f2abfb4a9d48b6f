import { z } from 'zod'
import { BUILT_IN_TOOLS, COMMON_NAMES } from '../lib/built-in-tools.ts'
import { ok, requiredText, text, textList, timestamp } from '../lib/fields.ts'
import { nextCursor, pageInput } from '../lib/page.ts'
import { searchInput } from '../lib/search.ts'
import { cut } from '../lib/text.ts'

/**
 * Built-in tools that only read and send nothing out: the default for other organizations' agents (contract-2.md 8.5).
 */
export const READING_TOOLS: ReadonlySet<string> = new Set([
  'list_tasks',
  'list_files',
  'read_file',
  'search_files',
  'current_time',
])

/** Returns the names that belong to no built-in tool. Skills store them, and runs ignore them. */
export const unknownTools = (names: readonly string[]): string[] =>
  names.filter((name) => !(BUILT_IN_TOOLS as readonly string[]).includes(name))

/** Returns the part of an answer that warns about unknown built-in tools, empty without any (contract-2.md section 1.6). */
export function toolWarnings(names: readonly string[] | null | undefined): { warnings?: string[] } {
  const unknown = unknownTools(names ?? [])
  return unknown.length ? { warnings: unknown.map((name) => cut(`Unknown built-in tool: ${name}`, 100)) } : {}
}

/** Returns {@link toolWarnings} for the permissions of built-in tools, where `*` stands for all others. */
export const permissionWarnings = (permissions: readonly { tool: string }[] | null | undefined) =>
  toolWarnings(permissions?.flatMap(({ tool }) => (tool === '*' ? [] : tool)))

const CATEGORIES = [
  'research',
  'writing',
  'data',
  'code',
  'marketing',
  'productivity',
  'file-handling',
  'other',
] as const

export const SkillCategory = z
  .enum(CATEGORIES, { error: `Invalid category. Must be: ${CATEGORIES.join(', ')}` })
  .meta({ id: 'SkillCategory', description: 'Topic of a skill' })

export const SkillVisibility = z
  .enum(['private', 'organization', 'public'], {
    error: 'Invalid visibility value. Must be: private, organization, or public',
  })
  .meta({ id: 'SkillVisibility', description: 'Users who can see a skill' })

export const SkillSource = z
  .enum(['core', 'organization', 'marketplace'])
  .meta({ id: 'SkillSource', description: 'Where a skill comes from' })

const skillId = z.string().describe('The skill')

const name = requiredText(64)
  .refine((name) => /^[a-z0-9]+(-[a-z0-9]+)*$/.test(name), {
    error: 'Invalid value for field: name. Expected kebab-case',
    params: { detail: 'Use lower-case letters, digits and single hyphens in `name`, such as release-notes.' },
  })
  .describe('Name by which a model loads it: kebab-case, unique in the organization')
const description = requiredText(1024).describe('Purpose of the skill: a model decides by it when to load the prompt')
const prompt = requiredText(100_000).describe('Instructions in Markdown')

const VISIBILITY =
  'Users who can see the skill. Default: `organization`. `public` makes it visible to all organizations'

const optionalFields = {
  category: SkillCategory.nullish().describe('Subject of the skill. Default: `other`'),
  builtInTools: textList()
    .transform((names) => [...new Set(names.map((name) => COMMON_NAMES.get(name) ?? name))])
    .nullish()
    .describe(
      `Built-in tools that runs with the skill have. There are: ${BUILT_IN_TOOLS.join(', ')}. ` +
        'Read, Write, Edit, Glob, Grep, LS, WebFetch and WebSearch become the names of these. Other names are stored, and runs ignore them',
    ),
  requiredMCPs: textList().nullish().describe('Types of MCP servers that must be attached beside the skill'),
  visibility: SkillVisibility.optional().describe(VISIBILITY),
}

/** POST /skills (contract.md section 7). */
export const CreateSkill = z
  .object({
    name,
    displayName: text(200).nullish().describe('Name for people. Default: made from the name'),
    description,
    prompt,
    ...optionalFields,
    visibility: SkillVisibility.nullish().describe(VISIBILITY),
  })
  .meta({
    examples: [
      { name: 'release-notes', description: 'Writes release notes from a list of changes.', prompt: '# Release notes' },
    ],
  })

/** PATCH /skills/{id} (contract.md section 7). */
export const UpdateSkill = z
  .object({
    id: skillId,
    name: name.optional(),
    displayName: requiredText(200).nullish().describe('Name for people; null to make one from the name'),
    description: description.optional(),
    prompt: prompt.optional(),
    ...optionalFields,
  })
  .meta({ examples: [{ displayName: 'Release notes' }] })

/** GET and DELETE /skills/{id} (contract.md section 7). */
export const SkillId = z.object({ id: skillId })

/** POST /agents/{id}/skills/{skillId}/update, and the same of a space (contract-2.md section 8.5). */
export const AttachedSkill = (of: string) => z.object({ id: z.string().describe(of), skillId })

/** The version at which a skill is attached (contract-2.md section 8.5). */
export const attachedAt = {
  version: z.int().describe('The version that runs have'),
  latestVersion: z.int().describe('The newest version: an update is available if it differs'),
  foreign: z.boolean().describe('Whether it belongs to another organization'),
}

/** GET /skills (contract.md section 7). */
export const ListSkills = z.object({
  category: SkillCategory.optional().describe('Only skills of this category'),
  search: searchInput('skills', 'name, display name or description'),
  ...pageInput,
})

/** A reusable prompt package (service.md, "Client-library resource shapes"). */
export const Skill = z
  .object({
    id: z.string().describe('Id of the skill'),
    name: z.string().describe('Name by which a model loads the skill, in kebab-case'),
    displayName: z.string().describe('Name of the skill for people'),
    description: z.string().describe('Purpose of the skill: a model decides by it when to load the prompt'),
    prompt: z.string().describe('Instructions that the model gets when it loads the skill, in Markdown'),
    category: SkillCategory.describe('Topic of the skill'),
    builtInTools: z.array(z.string()).describe('Built-in tools that runs with the skill have'),
    requiredMCPs: z.array(z.string()).describe('Types of MCP servers that must be attached beside the skill'),
    visibility: SkillVisibility.describe('Users who can see the skill'),
    source: SkillSource.describe(
      "Origin of the skill: the service, your organization, or another organization's public skill",
    ),
    organizationId: z.string().describe('`core` for a skill that comes with the service'),
    ownerId: z.string().describe('`core` for a skill that comes with the service'),
    version: z.int().describe('Version of the skill: 1 at creation, plus one with each change'),
    createdAt: timestamp.describe('Time at which the skill was created'),
    updatedAt: timestamp.describe('Time of the last change to the skill'),
  })
  .meta({ id: 'Skill', description: 'Instructions, tools and MCP servers that agents and spaces attach' })

/** A skill in a list, without its long prompt. */
const SkillSummary = Skill.omit({ prompt: true }).meta({
  id: 'SkillSummary',
  description: 'A skill without its prompt',
})

export const warnings = z.array(z.string()).optional().describe('Parts of the request without effect')

export const SkillResponse = ok({ skill: Skill, warnings })
export const SkillCreated = ok({
  id: z.string().describe('Id of the skill'),
  name: z.string().describe('Name by which a model loads the skill, in kebab-case'),
  skill: Skill,
  warnings,
})
export const SkillsResponse = ok({
  skills: z
    .object({
      core: z.array(SkillSummary).describe('Skills that come with the service'),
      organization: z.array(SkillSummary).describe('Skills of your organization'),
      marketplace: z.array(SkillSummary).describe('Public skills of other organizations, after the last of your own'),
    })
    .meta({ id: 'SkillsBySource', description: 'Skills on this page, by where they come from' }),
  total: z.int().describe('Number of all skills'),
  nextCursor,
})
export const SkillDeleted = ok({ message: z.string().describe('Confirmation for people') })
