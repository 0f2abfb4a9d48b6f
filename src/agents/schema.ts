import { z } from 'zod'
import { takingConstants } from '../lib/constant.ts'
import { bool, image, int, ok, requiredText, text, textList, timestamp } from '../lib/fields.ts'
import { fallbackModels, ModelSettings, NewModelSettings } from '../lib/model-settings.ts'
import { nextCursor, pageInput } from '../lib/page.ts'
import { Permission, Permissions } from '../mcps/schema.ts'
import { AttachedSkill, attachedAt } from '../skills/schema.ts'

export const Visibility = z
  .enum(['private', 'organization', 'public', 'unlisted'], {
    error: 'Invalid visibility value. Must be: private, organization, public, or unlisted',
  })
  .meta({ id: 'AgentVisibility' })

const agentId = z.string().describe('The agent')

const BY_ANY_NAME =
  'By any name: as its server names a tool, as models call it, or with the name of the server before it'

const SLUG = "Name in addresses (a-z, 0-9 and -), unique among the organization's agents"
const Slug = z
  .string()
  .regex(/^[a-z0-9-]{1,64}$/, { error: 'Invalid slug. Must be 1 to 64 characters of a-z, 0-9 and -' })

/** What a client may say of an agent, beside name and system prompt (contract.md section 3). */
const optionalFields = {
  role: text(200).nullable().optional().describe('Default: `Assistant`'),
  visibility: Visibility.optional().describe('Default: `organization`'),
  model: requiredText(200).nullable().optional().describe('`<provider>/<id>`; null for the default model'),
  description: text(2000).nullable().optional(),
  tags: textList(50, 50).nullable().optional(),
  category: text(100).nullable().optional(),
  image: image().nullable().optional(),
  color: text(50).nullable().optional(),
  initialGreeting: text(10_000).nullable().optional(),
  skillIds: textList().nullable().optional(),
  mcpInstanceIds: textList().nullable().optional(),
  mcpTypes: textList().nullable().optional(),
  subagentIds: textList().nullable().optional().describe('Agents of the organization that this one may delegate to'),
  allowedTools: textList(500)
    .nullable()
    .optional()
    .describe(`The only tools that it may call; all that are attached where it is empty. ${BY_ANY_NAME}`),
  disallowedTools: textList(500).nullable().optional().describe(`The tools that it may not call. ${BY_ANY_NAME}`),
  slug: Slug.nullable().optional().describe(`${SLUG}. Default: made from the name`),
  advanced_tools: textList(500)
    .nullable()
    .optional()
    .describe('Stored and returned for clients that keep names of tools or MCP servers here; runs do not use it'),
  permissions: Permissions.nullable()
    .optional()
    .describe('What it takes to call a built-in tool. Of agent, space and organization the strictest holds'),
  maxTurns: int(1, 500).nullable().optional().describe('At most so many model steps in a run'),
  modelSettings: NewModelSettings.nullable().optional(),
  fallbackModels: fallbackModels.nullable().optional(),
  contextWindow: int(1_000, 100_000_000)
    .nullable()
    .optional()
    .describe('Size of the context window of its model (tokens). Default: learned from what the provider refuses'),
  requireTools: bool()
    .nullable()
    .optional()
    .describe(
      'Default: false. true: a run fails if a tool or MCP server that it is to have is not there, instead of going on without',
    ),
}

const name = requiredText(200)
const systemPrompt = requiredText(100_000)
const systemMessage = text(100_000).describe('Another name of systemPrompt, which wins')
const characterDescription = text(2000).nullish().describe('Another name of description, which wins')

/** POST /agents (service.md, "A. Agents"; contract.md section 3). */
export const CreateAgent = z
  .object({
    name,
    systemPrompt: systemPrompt.nullish().describe('Required, unless basedOnAgentId or system_message says it'),
    basedOnAgentId: z.string().nullish().describe('Copy this agent; the other fields win'),
    ...optionalFields,
    system_message: systemMessage.nullish(),
    characterDescription,
  })
  .meta({ examples: [{ name: 'Ada', systemPrompt: 'You are a helpful assistant.' }] })

/** PATCH /agents/{id} (contract.md section 3). */
export const UpdateAgent = z.object({
  id: agentId,
  name: name.optional(),
  systemPrompt: systemPrompt.optional(),
  archived: bool().optional().describe('true archives the agent, as DELETE does'),
  version: int(1, 2_147_483_647)
    .optional()
    .describe('The version that you have seen: 412 if the agent has changed since'),
  ...optionalFields,
  system_message: systemMessage.optional(),
  characterDescription,
})

/** GET and DELETE /agents/{id}, GET /public/agents/{id} (contract.md section 2). */
export const AgentId = z.object({ id: agentId })

/** GET /agents (contract.md section 2). */
export const ListAgents = z.object({
  owner: z.literal('me', { error: 'Invalid value for field: owner. Expected me' }).optional(),
  visibility: Visibility.optional(),
  tag: z.string().optional(),
  category: z.string().max(100).optional(),
  search: z.string().max(200).optional().describe('In name, role, description and tags, without regard to case'),
  ...pageInput,
})

/** GET /agents/{id}/versions (contract.md section 3). */
export const ListVersions = z.object({ id: agentId, ...pageInput })

/** GET /public/agents (contract.md section 2). */
export const ListPublicAgents = z.object({ search: ListAgents.shape.search, tag: ListAgents.shape.tag, ...pageInput })

/** POST /agents/{id}/skills/{skillId}/update (contract-2.md section 8.5). */
export const AgentSkill = AttachedSkill('The agent')

/** A skill of an agent. */
export const AgentSkillRef = z.object({ skillId: z.string(), ...attachedAt }).meta({ id: 'AgentSkillRef' })

/** An agent as its organization sees it (service.md, "Agent"; contract.md section 3). */
export const Agent = takingConstants(
  z
    .object({
      id: z.string(),
      name: z.string(),
      slug: z.string().describe(SLUG),
      role: z.string(),
      systemPrompt: z.string(),
      visibility: Visibility,
      organizationId: z.string(),
      userId: z.string().describe('The creator'),
      model: z.string().nullable(),
      description: z.string().nullable(),
      tags: z.array(z.string()),
      category: z.string().nullable(),
      image: z.string().nullable(),
      color: z.string().nullable(),
      initialGreeting: z.string().nullable(),
      skillIds: z.array(z.string()),
      skillRefs: z.array(AgentSkillRef).describe('The same with their versions'),
      mcpInstanceIds: z.array(z.string()),
      mcpTypes: z.array(z.string()),
      subagentIds: z.array(z.string()),
      allowedTools: z.array(z.string()),
      disallowedTools: z.array(z.string()),
      advanced_tools: z.array(z.string()),
      permissions: z.array(Permission),
      maxTurns: z.int().nullable(),
      modelSettings: ModelSettings,
      fallbackModels: z.array(z.string()),
      contextWindow: z.int().nullable(),
      requireTools: z.boolean(),
      version: z.int(),
      archived: z.boolean(),
      createdAt: timestamp,
      updatedAt: timestamp,
      truncated: z
        .boolean()
        .optional()
        .describe('In long lists: texts are cut at 4,000 characters. GET the agent by id for its whole texts'),
    })
    .meta({ id: 'Agent' }),
)

/** What everybody may know of a public agent: never its prompt (contract.md section 2). */
export const AgentCard = z
  .object({
    id: z.string(),
    name: z.string(),
    slug: z.string().describe(SLUG),
    role: z.string(),
    description: z.string().nullable(),
    tags: z.array(z.string()),
    organizationName: z.string(),
  })
  .meta({ id: 'AgentCard' })

/** An agent as the hosted original's client reads it (contract-2.md section 1.15). */
const Character = z
  .object({ ...Agent.shape, characterDescription: z.string().nullable(), system_message: z.string() })
  .meta({ id: 'Character' })

const CHARACTER = 'The same for clients of old, where TOKEN_PREFIX is `td`'
const character = Character.optional().describe(CHARACTER)

export const AgentResponse = ok({ agent: Agent, character })
export const AgentsResponse = ok({
  agents: z.array(Agent),
  characters: z.array(Character).optional().describe(CHARACTER),
  total: z.int(),
  nextCursor,
})
export const AgentCreated = ok({
  id: z.string(),
  name: z.string(),
  slug: z.string(),
  status: z.literal('active'),
  chatUrl: z.string().describe('/<organization>/spaces/<spaceId>/chats/<chatId>'),
  agent: Agent,
  character,
})
export const AgentMessage = ok({ message: z.string() })

const AgentVersion = z
  .object({ version: z.int(), createdAt: timestamp, userId: z.string().describe('Who made it so'), agent: Agent })
  .meta({
    id: 'AgentVersion',
    description:
      'What an agent was at a version. Those of the time in which it was private are shown to its owner only',
  })

export const AgentVersionsResponse = ok({
  versions: z.array(AgentVersion),
  nextCursor,
})
export const AgentCardResponse = ok({ agent: AgentCard })
export const AgentCardsResponse = ok({ agents: z.array(AgentCard), total: z.int(), nextCursor })
