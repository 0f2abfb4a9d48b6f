import { z } from 'zod'
import { ok, requiredText, text, textList, timestamp } from '../lib/fields.ts'
import { nextCursor, pageInput, truncated } from '../lib/page.ts'
import { searchInput } from '../lib/search.ts'
import { Permission, Permissions } from '../mcps/schema.ts'
import { AttachedSkill, attachedAt, warnings } from '../skills/schema.ts'

export const SpaceVisibility = z
  .enum(['private', 'organization', 'public'], {
    error: 'Invalid visibility value. Must be: private, organization, or public',
  })
  .meta({ id: 'SpaceVisibility', description: 'Users who can see a space' })

const spaceId = z.string().describe('The space')
const name = requiredText(200)

const VISIBILITY = 'Users who can see the space. Default: `organization`; `public` behaves the same'

const optionalFields = {
  description: text(2000).nullish().describe('Purpose of the space'),
  visibility: SpaceVisibility.optional().describe(VISIBILITY),
  instructions: text(100_000).nullish().describe('Instructions for all agents that run here'),
  permissions: Permissions.nullish().describe(
    'Approval modes of built-in tools here. The strictest of agent, space and organization applies',
  ),
  addAgents: textList().nullish().describe('Agents to attach'),
  addCharacters: textList().nullish().describe('Alias of `addAgents`'),
  addSkills: textList().nullish().describe('Skills to attach'),
  addMcps: textList().nullish().describe('MCP servers to attach'),
}

/** POST /spaces (contract.md section 6). */
export const CreateSpace = z
  .object({
    name: name.describe('Name of the space'),
    ...optionalFields,
    visibility: SpaceVisibility.nullish().describe(VISIBILITY),
    assignedAgents: textList().nullish().describe('Alias of `addAgents`'),
    skillIds: textList().nullish().describe('Alias of `addSkills`'),
    pluginIds: textList().nullish().describe('Alias of `addMcps`'),
  })
  .meta({ examples: [{ name: 'Research', instructions: 'Name your sources.' }] })

/** PATCH /spaces/{id} (contract.md section 6). */
export const UpdateSpace = z
  .object({
    id: spaceId,
    name: name.optional().describe('Name of the space'),
    ...optionalFields,
    removeAgents: textList().nullish().describe('Agents to detach. Agents that are also added stay'),
    removeCharacters: textList().nullish().describe('Alias of `removeAgents`'),
    removeSkills: textList().nullish().describe('Skills to detach'),
    removeMcps: textList().nullish().describe('MCP servers to detach'),
  })
  .meta({ examples: [{ description: 'Everything about releases.' }] })

/** GET and DELETE /spaces/{id} (contract.md section 6). */
export const SpaceId = z.object({ id: spaceId })

/** POST /spaces/{id}/skills/{skillId}/update (contract-2.md section 8.5). */
export const SpaceSkillId = AttachedSkill('The space')

/** GET /spaces (contract.md section 6). */
export const ListSpaces = z.object({ search: searchInput('spaces', 'name or description'), ...pageInput })

const added = {
  enabled: z.boolean().describe('Whether runs in the space use it'),
  addedAt: timestamp.describe('Time at which it was attached'),
  addedBy: z.string().describe('The user'),
}

/** An agent that is attached to a space. */
export const AgentRef = z
  .object({ agentId: z.string().describe('Id of the agent'), ...added })
  .meta({ id: 'SpaceAgent', description: 'An agent that is attached to a space' })

/** A skill that is attached to a space. */
export const SkillRef = z
  .object({ skillId: z.string().describe('Id of the skill'), ...added, ...attachedAt })
  .meta({ id: 'SpaceSkill', description: 'A skill that is attached to a space' })

/** An MCP server that is attached to a space. */
export const McpRef = z
  .object({ mcpId: z.string().describe('Id of the MCP server'), ...added })
  .meta({ id: 'SpaceMcp', description: 'An MCP server that is attached to a space' })

/** A space (service.md, "Client-library resource shapes"; contract.md section 6). */
export const Space = z
  .object({
    id: z.string().describe('Id of the space'),
    organizationId: z.string().describe('Id of the organization that the space belongs to'),
    name: z.string().describe('Name of the space'),
    description: z.string().nullable().describe('Purpose of the space'),
    visibility: SpaceVisibility.describe('Users who can see the space'),
    ownerId: z.string().describe('Id of the user who made the space'),
    instructions: z.string().nullable().describe('Instructions for every agent that runs in the space'),
    permissions: z.array(Permission).describe('Whether a call of a built-in tool needs a decision here'),
    isDefault: z.boolean().describe('Whether it is the space of chats and runs that name none'),
    assignedAgents: z.array(z.string()).describe('The ids of the enabled ones among agentRefs'),
    skillIds: z.array(z.string()).describe('The ids of the enabled ones among skillRefs'),
    pluginIds: z.array(z.string()).describe('The ids of the enabled ones among mcpRefs'),
    agentRefs: z.array(AgentRef).describe('The attached agents that you can see'),
    skillRefs: z.array(SkillRef).describe('The attached skills that you can see'),
    mcpRefs: z.array(McpRef).describe('The attached MCP servers'),
    secretKeys: z.array(z.string()).describe('The names of its secrets'),
    chatCount: z.int().describe('The chats that you can see'),
    fileCount: z.int().describe('Number of files in the space'),
    createdAt: timestamp.describe('Time at which the space was created'),
    updatedAt: timestamp.describe('Time of the last change to the space'),
    truncated,
  })
  .meta({ id: 'Space', description: 'A shared place for files, instructions, secrets and chats' })

export const SpaceResponse = ok({ space: Space, warnings })
export const SpaceCreated = ok({
  id: z.string().describe('Id of the space'),
  name: z.string().describe('Name of the space'),
  space: Space,
  warnings,
})
export const SpacesResponse = ok({
  spaces: z.array(Space).describe('Spaces on this page'),
  total: z.int().describe('Number of spaces that match, on all pages'),
  nextCursor,
})
export const SpaceDeleted = ok({ message: z.string().describe('Confirmation for people') })
