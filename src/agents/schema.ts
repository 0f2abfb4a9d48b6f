import { z } from 'zod'
import { bool, image, int, ok, requiredText, text, textList, timestamp } from '../lib/fields.ts'
import { fallbackModels, ModelSettings, NewModelSettings } from '../lib/model-settings.ts'
import { NewOutput, Output } from '../lib/output.ts'
import { nextCursor, pageInput } from '../lib/page.ts'
import { searchInput } from '../lib/search.ts'
import { Permission, Permissions } from '../mcps/schema.ts'
import { AttachedSkill, attachedAt, warnings } from '../skills/schema.ts'

export const Visibility = z
  .enum(['private', 'organization', 'public', 'unlisted'], {
    error: 'Invalid visibility value. Must be: private, organization, public, or unlisted',
  })
  .meta({ id: 'AgentVisibility', description: 'Users who can see and run an agent' })

/** Treatment of earlier turns that do not fit (contract-2.md section 2.7). */
export const History = z
  .enum(['cut', 'summarize'], { error: 'Invalid history. Must be: cut, summarize' })
  .meta({ id: 'AgentHistory', description: 'How runs treat earlier turns that do not fit' })

const agentId = z.string().describe('The agent')

const BY_ANY_NAME =
  "A tool can have the name on its server, the name for models, or either with the server's name before it"

const SLUG = "Name in addresses (a-z, 0-9 and -), unique among the organization's agents"
const Slug = z
  .string()
  .regex(/^[a-z0-9-]{1,64}$/, { error: 'Invalid slug. Must be 1 to 64 characters of a-z, 0-9 and -' })

const VISIBILITY = 'Users who can see the agent. Default: `organization`'

/** Optional fields of an agent besides name and system prompt (contract.md section 3). */
const optionalFields = {
  role: text(200).nullable().optional().describe("Short description of the agent's role. Default: `Assistant`"),
  visibility: Visibility.optional().describe(VISIBILITY),
  model: requiredText(200).nullable().optional().describe('Model as `<provider>/<id>`; null for the default model'),
  description: text(2000).nullable().optional().describe('Purpose of the agent, for people who choose one'),
  tags: textList(50, 50).nullable().optional().describe('Words to find the agent by'),
  category: text(100).nullable().optional().describe('Topic of the agent, to group agents by'),
  image: image()
    .nullable()
    .optional()
    .describe('Picture of the agent: http(s) address, id of a media, or `data:image/…;base64,`'),
  color: text(50).nullable().optional().describe('Color of the agent in user interfaces'),
  initialGreeting: text(10_000).nullable().optional().describe('Text that a chat with the agent begins with'),
  skillIds: textList().nullable().optional().describe('Ids of the skills that its runs can load'),
  mcpInstanceIds: textList().nullable().optional().describe('Ids of the MCP servers whose tools its runs can call'),
  mcpTypes: textList().nullable().optional().describe('Types of MCP servers that the agent is made for'),
  subagentIds: textList().nullable().optional().describe('Agents of the organization that this one may delegate to'),
  allowedTools: textList(500)
    .nullable()
    .optional()
    .describe(`The only tools that it may call; empty for all attached tools. ${BY_ANY_NAME}`),
  disallowedTools: textList(500).nullable().optional().describe(`The tools that it may not call. ${BY_ANY_NAME}`),
  slug: Slug.nullable().optional().describe(`${SLUG}. Default: made from the name`),
  advanced_tools: textList(500)
    .nullable()
    .optional()
    .describe('Stored and returned for clients that keep names of tools or MCP servers here; runs do not use it'),
  permissions: Permissions.nullable()
    .optional()
    .describe('Approval modes of built-in tools. The strictest of agent, space and organization applies'),
  maxTurns: int(1, 500).nullable().optional().describe('Maximum number of model steps in a run'),
  modelSettings: NewModelSettings.nullable().optional().describe('Settings of the model, such as its temperature'),
  fallbackModels: fallbackModels
    .nullable()
    .optional()
    .describe('Models to ask, in order, if the one before cannot answer'),
  output: NewOutput.nullable()
    .optional()
    .describe('Form of the answers of its runs: JSON that fits a schema. null for plain text'),
  contextWindow: int(1_000, 100_000_000)
    .nullable()
    .optional()
    .describe('Size of the context window of its model (tokens). Default: learned from refusals of the provider'),
  history: History.nullable()
    .optional()
    .describe(
      'Earlier turns that do not fit the prompt: `cut` (default) leaves them out, `summarize` has the model of the run summarize them',
    ),
  requireTools: bool()
    .nullable()
    .optional()
    .describe(
      'If true, a run fails if one of its tools or MCP servers is missing. Default: false, so that the run continues without it',
    ),
}

const name = requiredText(200)
const systemPrompt = requiredText(100_000)
const systemMessage = text(100_000).describe('Alias of `systemPrompt`, which takes precedence')
const characterDescription = text(2000).nullish().describe('Alias of `description`, which takes precedence')

/** POST /agents (service.md, "A. Agents"; contract.md section 3). */
export const CreateAgent = z
  .object({
    name: name.describe('Name of the agent'),
    systemPrompt: systemPrompt.nullish().describe('Required, unless basedOnAgentId or system_message replaces it'),
    basedOnAgentId: z.string().nullish().describe('Agent to copy. The other fields take precedence'),
    ...optionalFields,
    visibility: Visibility.nullish().describe(VISIBILITY),
    system_message: systemMessage.nullish().describe('Alias of `systemPrompt`, which takes precedence'),
    characterDescription,
  })
  .meta({ examples: [{ name: 'Ada', systemPrompt: 'You are a helpful assistant.' }] })

/** PATCH /agents/{id} (contract.md section 3). */
export const UpdateAgent = z
  .object({
    id: agentId,
    name: name.optional().describe('Name of the agent'),
    systemPrompt: systemPrompt.optional().describe('Instructions that the model gets before the conversation'),
    archived: bool().optional().describe('`true` archives the agent, as DELETE does'),
    version: int(1, 2_147_483_647).optional().describe('The version that you read: 412 if the agent has changed since'),
    ...optionalFields,
    system_message: systemMessage.optional().describe('Alias of `systemPrompt`, which takes precedence'),
    characterDescription,
  })
  .meta({ examples: [{ description: 'Writes release notes.' }] })

/** GET and DELETE /agents/{id}, GET /public/agents/{id} (contract.md section 2). */
export const AgentId = z.object({ id: agentId })

/** GET /agents (contract.md section 2). */
export const ListAgents = z.object({
  owner: z
    .literal('me', { error: 'Invalid value for field: owner. Expected me' })
    .optional()
    .describe('`me`: only your own agents, of every visibility'),
  visibility: Visibility.optional().describe('Only agents with this visibility'),
  tag: z.string().optional().describe('Only agents with this tag'),
  category: z.string().max(100).optional().describe('Only agents of this category'),
  search: searchInput('agents', 'name, role, description or tags'),
  ...pageInput,
})

/** GET /agents/{id}/versions (contract.md section 3). */
export const ListVersions = z.object({ id: agentId, ...pageInput })

/** GET /public/agents (contract.md section 2). */
export const ListPublicAgents = z.object({
  search: ListAgents.shape.search,
  tag: ListAgents.shape.tag.describe('Only agents with this tag'),
  ...pageInput,
})

/** POST /agents/{id}/skills/{skillId}/update (contract-2.md section 8.5). */
export const AgentSkill = AttachedSkill('The agent')

/** A skill of an agent. */
export const AgentSkillRef = z
  .object({ skillId: z.string().describe('Id of the skill'), ...attachedAt })
  .meta({ id: 'AgentSkillRef', description: 'A skill of an agent, with its version' })

/** An agent as its organization sees it (service.md, "Agent"; contract.md section 3). */
export const Agent = z
  .object({
    id: z.string().describe('Id of the agent'),
    name: z.string().describe('Name of the agent'),
    slug: z.string().describe(SLUG),
    role: z.string().describe("Short description of the agent's role"),
    systemPrompt: z.string().describe('Instructions that the model gets before the conversation'),
    visibility: Visibility.describe('Users who can see the agent'),
    organizationId: z.string().describe('Id of the organization that the agent belongs to'),
    userId: z.string().describe('The creator'),
    model: z.string().nullable().describe("Model as `<provider>/<id>`; null for the service's default model"),
    description: z.string().nullable().describe('Purpose of the agent, for people who choose one'),
    tags: z.array(z.string()).describe('Words to find the agent by'),
    category: z.string().nullable().describe('Topic of the agent, to group agents by'),
    image: z
      .string()
      .nullable()
      .describe('Picture of the agent: http(s) address, id of a media, or `data:image/…;base64,`'),
    color: z.string().nullable().describe('Color of the agent in user interfaces'),
    initialGreeting: z.string().nullable().describe('Text that a chat with the agent begins with'),
    skillIds: z.array(z.string()).describe('Ids of its skills that you can see'),
    skillRefs: z.array(AgentSkillRef).describe('Its skills that you can see, with their versions'),
    mcpInstanceIds: z.array(z.string()).describe('Ids of its MCP servers that you can see'),
    mcpTypes: z.array(z.string()).describe('Types of MCP servers that the agent is made for'),
    subagentIds: z.array(z.string()).describe('Ids of the agents that it may delegate to and you can see'),
    allowedTools: z.array(z.string()).describe('The only tools that it may call; empty for all attached tools'),
    disallowedTools: z.array(z.string()).describe('Tools that it may not call'),
    advanced_tools: z.array(z.string()).describe('Names that a client stores with the agent; runs do not use them'),
    permissions: z.array(Permission).describe('Whether a call of a built-in tool needs a decision'),
    maxTurns: z.int().nullable().describe('Maximum number of model steps in a run; null for the default'),
    modelSettings: ModelSettings.describe('Settings of the model, such as its temperature'),
    fallbackModels: z.array(z.string()).describe('Models to ask, in order, if the one before cannot answer'),
    output: Output.nullable().describe('Form of the answers of its runs; null for plain text'),
    contextWindow: z
      .int()
      .nullable()
      .describe('Size of the context window of its model (tokens); null if the service learns it'),
    history: History.describe(
      'Earlier turns that do not fit the prompt: `cut` leaves them out, `summarize` has the model of the run summarize them',
    ),
    requireTools: z.boolean().describe('Whether a run fails if one of its tools or MCP servers is missing'),
    version: z.int().describe('Version of the agent: 1 at creation, plus one with each change'),
    archived: z.boolean().describe('Whether the agent was deleted'),
    createdAt: timestamp.describe('Time at which the agent was created'),
    updatedAt: timestamp.describe('Time of the last change to the agent'),
    truncated: z
      .boolean()
      .optional()
      .describe('Whether texts are cut at 4,000 characters, as in long lists. GET the agent by id for its whole texts'),
  })
  .meta({
    id: 'Agent',
    description: 'A named configuration of an assistant: role, system prompt, model, tools and visibility',
  })

/** Public information about a public agent, without its prompt (contract.md section 2). */
export const AgentCard = z
  .object({
    id: z.string().describe('Id of the agent'),
    name: z.string().describe('Name of the agent'),
    slug: z.string().describe(SLUG),
    role: z.string().describe("Short description of the agent's role"),
    description: z.string().nullable().describe('Purpose of the agent'),
    tags: z.array(z.string()).describe('Words to find the agent by'),
    organizationName: z.string().describe('Name of the owning organization'),
  })
  .meta({ id: 'AgentCard', description: 'The part of a public agent that all callers can see' })

/** An agent as the hosted original's client reads it (contract-2.md section 1.15). */
const Character = z
  .object({
    ...Agent.shape,
    characterDescription: z.string().nullable().describe('Alias of `description`'),
    system_message: z.string().describe('Alias of `systemPrompt`'),
  })
  .meta({ id: 'Character', description: 'An agent, with names that earlier clients use' })

const CHARACTER = 'The same for earlier clients, if TOKEN_PREFIX is `td`'
const character = Character.optional().describe(CHARACTER)

export const AgentResponse = ok({ agent: Agent, character })
export const AgentsResponse = ok({
  agents: z.array(Agent).describe('Agents on this page'),
  characters: z.array(Character).optional().describe(CHARACTER),
  total: z.int().describe('Number of agents that match, on all pages'),
  nextCursor,
})
export const AgentCreated = ok({
  id: z.string().describe('Id of the agent'),
  name: z.string().describe('Name of the agent'),
  slug: z.string().describe('Name of the agent in addresses'),
  status: z.literal('active').describe('A new agent is active at once'),
  chatUrl: z.string().describe('Path of the chat: `/<organization>/spaces/<spaceId>/chats/<chatId>`'),
  agent: Agent,
  character,
  warnings,
})
export const AgentMessage = ok({ message: z.string().describe('Confirmation for people'), warnings })

const AgentVersion = z
  .object({
    version: z.int().describe('Number of the version'),
    createdAt: timestamp.describe('Time at which the version was made'),
    userId: z.string().describe('Id of the user who made the version'),
    agent: Agent,
  })
  .meta({
    id: 'AgentVersion',
    description: 'An agent at a version. Only its owner can see versions from a time when it was private',
  })

export const AgentVersionsResponse = ok({
  versions: z.array(AgentVersion).describe('Versions on this page, newest first'),
  nextCursor,
})
export const AgentCardResponse = ok({ agent: AgentCard })
export const AgentCardsResponse = ok({
  agents: z.array(AgentCard).describe('Agents on this page'),
  total: z.int().describe('Number of agents that match, on all pages'),
  nextCursor,
})
