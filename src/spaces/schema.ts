import { z } from 'zod'
import { ok, requiredText, text, textList, timestamp } from '../lib/fields.ts'
import { nextCursor, pageInput, truncated } from '../lib/page.ts'
import { Permission, Permissions } from '../mcps/schema.ts'
import { AttachedSkill, attachedAt } from '../skills/schema.ts'

export const SpaceVisibility = z
  .enum(['private', 'organization', 'public'], {
    error: 'Invalid visibility value. Must be: private, organization, or public',
  })
  .meta({ id: 'SpaceVisibility' })

const spaceId = z.string().describe('The space')
const name = requiredText(200)

const optionalFields = {
  description: text(2000).nullish(),
  visibility: SpaceVisibility.optional().describe('Default: `organization`. `public` behaves the same'),
  instructions: text(100_000).nullish().describe('What every agent is told that runs here'),
  permissions: Permissions.nullish().describe(
    'What it takes to call a built-in tool here. Of agent, space and organization the strictest holds',
  ),
  addAgents: textList().nullish().describe('Agents to attach'),
  addCharacters: textList().nullish().describe('Alias of `addAgents`'),
  addSkills: textList().nullish().describe('Skills to attach'),
  addMcps: textList().nullish().describe('MCP servers to attach'),
}

/** POST /spaces (contract.md section 6). */
export const CreateSpace = z
  .object({
    name,
    ...optionalFields,
    assignedAgents: textList().nullish().describe('The same as addAgents'),
  })
  .meta({ examples: [{ name: 'Research', instructions: 'Name your sources.' }] })

/** PATCH /spaces/{id} (contract.md section 6). */
export const UpdateSpace = z.object({
  id: spaceId,
  name: name.optional(),
  ...optionalFields,
  removeAgents: textList().nullish().describe('Agents to detach; what is added, too, stays'),
  removeCharacters: textList().nullish().describe('Alias of `removeAgents`'),
  removeSkills: textList().nullish().describe('Skills to detach'),
  removeMcps: textList().nullish().describe('MCP servers to detach'),
})

/** GET and DELETE /spaces/{id} (contract.md section 6). */
export const SpaceId = z.object({ id: spaceId })

/** POST /spaces/{id}/skills/{skillId}/update (contract-2.md section 8.5). */
export const SpaceSkillId = AttachedSkill('The space')

/** GET /spaces (contract.md section 6). */
export const ListSpaces = z.object(pageInput)

const added = {
  enabled: z.boolean(),
  addedAt: timestamp,
  addedBy: z.string().describe('The user'),
}

/** An agent that is attached to a space. */
export const AgentRef = z.object({ agentId: z.string(), ...added })

/** A skill that is attached to a space. */
export const SkillRef = z.object({ skillId: z.string(), ...added, ...attachedAt })

/** An MCP server that is attached to a space. */
export const McpRef = z.object({ mcpId: z.string(), ...added })

/** A workspace (service.md, "Client-library resource shapes"; contract.md section 6). */
export const Space = z
  .object({
    id: z.string(),
    organizationId: z.string(),
    name: z.string(),
    description: z.string().nullable(),
    visibility: SpaceVisibility,
    ownerId: z.string(),
    instructions: z.string().nullable(),
    permissions: z.array(Permission),
    isDefault: z.boolean().describe('Where chats and runs are that name no space'),
    assignedAgents: z.array(z.string()).describe('The ids of the enabled ones among agentRefs'),
    skillIds: z.array(z.string()).describe('The ids of the enabled ones among skillRefs'),
    pluginIds: z.array(z.string()).describe('The ids of the enabled ones among mcpRefs'),
    agentRefs: z.array(AgentRef).describe('The attached agents that you can see'),
    skillRefs: z.array(SkillRef).describe('The attached skills that you can see'),
    mcpRefs: z.array(McpRef).describe('The attached MCP servers'),
    secretKeys: z.array(z.string()).describe('The names of its secrets'),
    chatCount: z.int().describe('The chats that you can see'),
    fileCount: z.int(),
    createdAt: timestamp,
    updatedAt: timestamp,
    truncated,
  })
  .meta({ id: 'Space' })

export const SpaceResponse = ok({ space: Space })
export const SpaceCreated = ok({ id: z.string(), name: z.string(), space: Space })
export const SpacesResponse = ok({ spaces: z.array(Space), total: z.int(), nextCursor })
export const SpaceDeleted = ok({ message: z.string() })
