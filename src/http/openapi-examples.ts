import type { oas31 } from 'zod-openapi'
import { nameIn } from './openapi-tidy.ts'

// Examples of the OpenAPI document, built from the schemas and these samples.

const AGENT = 'k3Jx0aQ9mZr7TbYc2LwVn5'
const CHAT = 'p7Rt2yUe5WqLs9NdXb4KcM'
const SPACE = 'h5Gf8sKj3PvTz1QwRn6BdC'
const SESSION = 'w9Vb4nMx6HyDk2JrTe8SaQ'
const ORGANIZATION = 'm2Zc7xLp9FgWq4YuVk5NhE'
const USER = 'd8Sj1rTb6QnXw3GmPz7KvL'
const EXECUTION = 'exec-1795242860041-Jcvu16FTDoklGU0gRCgv5d'
const TASK = 'task-1795242860041-Yb3Wn8KqTs5RzLm1VgXd7C'
const MISSION = 't4Nq9wBz2RkVy7HsLd5XgJ'
const SKILL = 'b6Xw3fTn8MzQk1VsHr9LpD'
const MCP = 'z1Ky5vRd7TgNp4WmCj8QbS'
const MEDIA = 'q8Lm2tGx5BvRz9KwNs3YdF'
const WEBHOOK = 'r4Tn8wKp2ZsVx6QyLd3HmB'
const TIME = '2026-11-25T10:00:00.000Z'

/** Marks a field without a sample, for the test of the document. */
export const NO_SAMPLE = '…'

/** Values of fields, by name or by kind of resource and name. */
const SAMPLES: Readonly<Record<string, unknown>> = {
  addedBy: USER,
  addAgents: [AGENT],
  agentId: AGENT,
  agentName: 'Ada',
  assignedAgents: [AGENT],
  assignedTo: AGENT,
  attempt: 1,
  branch: SESSION,
  builtInTools: ['read_file'],
  category: null,
  chatId: CHAT,
  chatUrl: `/acme/spaces/${SPACE}/chats/${CHAT}`,
  closedAt: null,
  content: '# Release notes',
  createdBy: USER,
  decidedAt: null,
  defaultModel: 'anthropic/claude-sonnet-4-5',
  depth: 0,
  detail: null,
  editedBy: null,
  email: 'ada@example.com',
  error: null,
  executionId: EXECUTION,
  executionTime: 4_200,
  expiresAt: '2027-11-25T10:00:00.000Z',
  backoffSeconds: null,
  failed: 0,
  failureCount: 0,
  latestVersion: 3,
  maxRuns: null,
  skippedCount: 0,
  fallbackModels: [],
  files: [],
  fileName: 'notes.md',
  filePath: 'docs/notes.md',
  icon: null,
  image: null,
  input_tokens: 1_204,
  isActive: true,
  keys: ['GITHUB_TOKEN'],
  lastError: null,
  lastExecutionId: null,
  lastUsedAt: TIME,
  maxTurns: null,
  mcpId: MCP,
  mcpInstanceIds: [MCP],
  mcpType: 'github',
  mcpTypes: ['github'],
  mediaIds: [],
  mimeType: 'image/png',
  missionId: MISSION,
  model: 'anthropic/claude-sonnet-4-5',
  modelsTried: [],
  nextAfter: null,
  nextCursor: null,
  organizationId: ORGANIZATION,
  organizationName: 'Acme',
  output_tokens: 356,
  ownerId: USER,
  path: 'docs/notes.md',
  parentId: null,
  permissions: [],
  pluginIds: [MCP],
  prompt: '# Release notes\n\nGroup the changes by their effect on users.',
  requiredMCPs: ['github'],
  result: 'Version 2.4 makes exports twice as fast.',
  runs: [],
  scopes: ['agents:read', 'agents:execute'],
  secretKeys: ['GITHUB_TOKEN'],
  secrets: ['GITHUB_TOKEN'],
  sessionId: SESSION,
  size: 1_024,
  skillId: SKILL,
  skillIds: [SKILL],
  spaceId: SPACE,
  stopReason: 'end_turn',
  subagentIds: [],
  success: true,
  systemPrompt: 'You are a helpful assistant.',
  taskId: TASK,
  timezone: 'UTC',
  tokenId: 'n3Pq7vTy2KsXw9RbZd5LcG',
  tool: 'create_issue',
  toolUseId: 'toolu_01',
  userId: USER,
  version: 3,
  visibility: 'organization',
  warnings: [],

  message: 'The change was made',
  missions: [],
  name: 'notes.md',
  setBy: null,
  tokenPreview: 'mst_ab12…',

  'Agent.advanced_tools': [],
  'Agent.allowedTools': [],
  'Agent.category': 'engineering',
  'Agent.characterDescription': 'Writes release notes.',
  'Agent.color': '#3b82f6',
  'Agent.contextWindow': null,
  'Agent.description': 'Writes release notes.',
  'Agent.disallowedTools': ['write_file'],
  'Agent.history': 'cut',
  'Agent.id': AGENT,
  'Agent.initialGreeting': 'Which release is it about?',
  'Agent.message': 'Agent updated successfully',
  'Agent.modelSettings': {},
  'Agent.output': null,
  'Agent.name': 'Ada',
  'Agent.role': 'Editor',
  'Agent.slug': 'ada',
  'Agent.system_message': 'You are a helpful assistant.',
  'Agent.tags': ['release-notes'],
  'Attachment.id': 'h7Yq2wEr9TzUi4OpLk3JnB',
  'Attachment.mimeType': 'text/markdown',
  'AuditActor.id': USER,
  'AuditActor.name': 'Ada Lovelace',
  'AuditEvent.action': 'member.update',
  'AuditEvent.changes': { role: { from: 'member', to: 'admin' } },
  'AuditEvent.id': '0mww8jdfoVGyHBOriN4RbXpWf1EVk74',
  'AuditEvent.ip': '192.0.2.7',
  'AuditEvent.requestId': 'k3Jx0aQ9mZr7TbYc2LwVn5',
  'AuditEvent.target': USER,
  'Message.reasoning': 'The notes name one change.',
  'Message.summary': 'The user prepares the release notes of version 2.4. They name one change.',
  'Organization.email': 'ada@example.com',
  'Organization.mailed': true,
  'Organization.token': 'mst_ab12cd34ef56gh78ij90kl12mn34op56qr78',
  'Organization.url': 'https://muster.example.com/app/accept#7iXw2Jq0cVb9LrT4nYk1Zs8Dm3Ff6Hg5Pp0Aa2Ee4Uu',
  'Invitation.createdBy': USER,
  'Invitation.email': 'ada@example.com',
  'Invitation.id': 'f3Kd9sWq2LmXz7PvTy5RbC',
  'InvitationOffer.organizationName': 'Acme',
  'ServiceAccount.createdBy': USER,
  'ServiceAccount.id': 'g7Ht2wQn5VxRk9LpMz3SbD',
  'ServiceAccount.name': 'Deployments',
  'Organization.id': ORGANIZATION,
  'Organization.name': 'Acme',
  'Organization.slug': 'acme',
  'Organization.message': 'Member removed successfully',
  'Approval.id': 'c4Hy9mNw2TzQx7KsVb5RpJ',
  'Approval.input': { title: 'Broken link' },
  'BrowserSession.address': '203.0.113.7',
  'BrowserSession.current': true,
  'BrowserSession.expiresAt': '2026-12-25T10:00:00.000Z',
  'BrowserSession.id': 'f2Wd6kQp9XsTz4RnLb7VyH',
  'BrowserSession.userAgent': 'Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0',
  'Chat.id': CHAT,
  'Chat.message': 'Chat deleted successfully',
  'Chat.title': 'Release notes',
  'ClientInitResult.files': ['README.md'],
  'DirectoryMeta.version': 'v1',
  'Executed.result': 'Version 2.4 makes exports twice as fast.',
  'Executed.status': 'completed',
  'Execution.id': EXECUTION,
  'Execution.message': 'Write the release notes of version 2.4.',
  'Execution.status': 'completed',
  'Execution.tokenId': null,
  'SessionUser.id': USER,
  'SessionUser.name': 'Ada Lovelace',
  'Key.id': 'n3Pq7vTy2KsXw9RbZd5LcG',
  'Key.message': 'Key deleted successfully',
  'Key.name': 'CI',
  'Key.preview': 'mst_ab12…',
  'Key.token': null,
  'Mcp.auth': 'headers',
  'Mcp.clientId': null,
  'Mcp.connectedAs': null,
  'Mcp.connection': 'none',
  'Mcp.credentialsSet': ['GITHUB_TOKEN'],
  'Mcp.description': 'Issues and pull requests.',
  'Mcp.headers': { Authorization: `Bearer \${GITHUB_TOKEN}` },
  'Mcp.id': MCP,
  'Mcp.scope': null,
  'Mcp.inputSchema': { type: 'object', properties: { title: { type: 'string' } } },
  'Mcp.message': 'MCP server deleted successfully',
  'Mcp.name': 'GitHub',
  'Mcp.url': 'https://mcp.example.com/mcp',
  'McpTool.description': 'Creates an issue.',
  'McpTool.name': 'create_issue',
  'McpType.auth': 'oauth',
  'McpType.name': 'GitHub',
  'McpType.url': 'https://mcp.example.com/mcp',
  'Media.id': MEDIA,
  'Media.message': 'Media deleted successfully',
  'Media.name': 'chart.png',
  'Media.url': `/api/v1/media/${MEDIA}/content`,
  'Message.id': `${EXECUTION}-1`,
  'Message.content': 'Version 2.4 makes exports twice as fast.',
  'Message.role': 'assistant',
  'Mission.agentType': null,
  'Mission.goal': 'Sum up the news.',
  'Mission.id': MISSION,
  'Mission.message': 'Mission deleted successfully',
  'Mission.next': ['2026-11-26T08:00:00.000Z'],
  'Mission.title': 'Morning news',
  'OrganizationMember.name': 'Ada Lovelace',
  'FormerMember.name': 'Grace Hopper',
  'Thing.id': AGENT,
  'Thing.name': 'Ada',
  'MissionSchedule.type': 'cron',
  'MissionSchedule.value': '0 8 * * *',
  'Notifications.missions': true,
  'NotificationsChange.missions': true,
  'OrganizationEvent.id': `evt-${ORGANIZATION}-4021-4021`,
  'OrganizationEvent.type': 'task.completed',
  'OrganizationEvent.data': { id: TASK, title: 'Write the release notes', status: 'completed' },
  'Event.cursor': 'NDAyMS40MDIxLjE3OTU2MDAwMDAwMDA',
  'Webhook.id': WEBHOOK,
  'Webhook.url': 'https://example.com/hooks/muster',
  'Webhook.description': 'Tells the team of failures',
  'Webhook.events': ['task.*', 'execution.failed'],
  'Webhook.disabledReason': null,
  'Webhook.failingSince': null,
  'Webhook.format': 'standard',
  'Webhook.secret': 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwBuG3GDhF7Ts=',
  'Webhook.message': 'Webhook deleted successfully',
  'Webhook.since': '2026-11-24T00:00:00Z',
  'Webhook.status': 'failed',
  'Webhook.count': 3,
  'WebhookDelivery.id': '0mww8jdfoVGyHBOriN4RbXpWf1EVk74',
  'WebhookDelivery.webhookId': WEBHOOK,
  'WebhookDelivery.event': 'task.completed',
  'WebhookDelivery.eventId': `evt-${ORGANIZATION}-4021-4021`,
  'WebhookDelivery.subjectId': TASK,
  'WebhookDelivery.status': 'delivered',
  'WebhookDelivery.nextAttemptAt': null,
  'DeliveryAttempt.status': 200,
  'DeliveryAttempt.error': 'The answer has the status 500',
  'DeliveryAttempt.response': 'ok',
  'Model.id': 'anthropic/claude-sonnet-4-5',
  'Model.provider': 'anthropic',
  'Profile.id': USER,
  'Profile.name': 'Ada Lovelace',
  'ProfileOrganization.id': ORGANIZATION,
  'ProfileOrganization.name': 'Acme',
  'ProfileOrganization.slug': 'acme',
  'Provider.baseUrl': null,
  'Provider.name': 'anthropic',
  'Skill.description': 'Writes release notes from a list of changes.',
  'Skill.displayName': 'Release notes',
  'Skill.id': SKILL,
  'Skill.message': 'Skill deleted successfully',
  'Skill.name': 'release-notes',
  'Space.description': 'Everything about releases.',
  'Space.id': SPACE,
  'Space.instructions': 'Name your sources.',
  'Space.message': 'Space deleted successfully',
  'Space.name': 'Research',
  'Task.description': 'For version 2.4.',
  'Task.completedAt': null,
  'Task.id': TASK,
  'Task.message': 'Task deleted successfully',
  'Task.result': null,
  'Task.title': 'Write the release notes',
  'ToolCall.id': 'toolu_01',
  'ToolCall.input': { path: 'docs/notes.md' },
  'ToolCall.name': 'read_file',
}

/**
 * Returns the kind of resource of a component, which selects its samples: for operations the first word of their name.
 */
function kindOf(component: string): string {
  const [, resource] = /^([A-Z][a-z]+)s[A-Z]\w*(?:Result|Request)$/.exec(component) ?? []
  return KINDS[component] ?? resource ?? component
}

const KINDS: Readonly<Record<string, string>> = {
  AgentCard: 'Agent',
  AgentsExecuteResult: 'Executed',
  Character: 'Agent',
  ChatsSendResult: 'Executed',
  ExecutionListed: 'Execution',
  ExecutionsCreateResult: 'Executed',
  ExecutionsRerunResult: 'Executed',
  ExecutionNode: 'Execution',
  ListedToken: 'Key',
  MediaUploadResult: 'Media',
  SkillSummary: 'Skill',
  TasksExecuteResult: 'Executed',
  SpaceFile: 'File',
  ClientCreateTokenResult: 'Key',
  ClientExecuteResult: 'Executed',
  ClientRevokeTokenResult: 'Key',
}

type Schema = oas31.SchemaObject | oas31.ReferenceObject
type Schemas = Readonly<Record<string, Schema>>
/** The kind of resource that a schema belongs to, and the components on the path to it. */
type Place = { kind: string; path: readonly string[]; schemas: Schemas }

/** Builds an example that fits the schema. */
export const exampleOf = (schema: Schema, schemas: Schemas): unknown =>
  sampleOf(schema, '', { kind: '', path: [], schemas })

function sampleOf(schema: Schema, name: string, place: Place): unknown {
  if ('$ref' in schema) {
    const component = nameIn(schema.$ref)
    const target = place.schemas[component] ?? {}
    const kind = 'properties' in target ? kindOf(component) : place.kind
    return sampleOf(target, name, { ...place, kind, path: [...place.path, component] })
  }
  if (schema.properties) return objectOf(schema, place)
  const key = [`${place.kind}.${name}`, name].find((each) => Object.hasOwn(SAMPLES, each))
  if (schema.const !== undefined) return schema.const
  if (schema.type === 'array' && !(key && isListFor(schema, SAMPLES[key]))) return listOf(schema, name, place)
  if (key && isFitting(schema, SAMPLES[key])) return SAMPLES[key]
  return plainOf(schema, name, place)
}

/** Returns whether a sample is one of an enumeration's values, if the schema has one. */
const isFitting = (schema: oas31.SchemaObject, sample: unknown): boolean =>
  schema.enum === undefined || schema.enum.includes(sample as never)

/** Returns whether a sample fits a list: a list of texts for texts, or an empty one. */
const isListFor = ({ items }: oas31.SchemaObject, sample: unknown): boolean =>
  Array.isArray(sample) &&
  (sample.length === 0 || (typeof items === 'object' && 'type' in items && items.type === 'string'))

/** Takes the required fields, and optional ones with a sample for this kind of resource. */
function objectOf({ properties = {}, required = [] }: oas31.SchemaObject, place: Place): object {
  const named = Object.entries(properties).filter(
    ([name]) => required.includes(name) || Object.hasOwn(SAMPLES, `${place.kind}.${name}`),
  )
  return Object.fromEntries(named.map(([name, property]) => [name, sampleOf(property as Schema, name, place)]))
}

/** Takes one item, or none if the list leads back to its own component. */
function listOf({ items }: oas31.SchemaObject, name: string, place: Place): unknown[] {
  if (!items || typeof items === 'boolean') return []
  return '$ref' in items && place.path.includes(nameIn(items.$ref)) ? [] : [sampleOf(items, name, place)]
}

function plainOf(schema: oas31.SchemaObject, name: string, place: Place): unknown {
  const [option] = schema.oneOf ?? schema.anyOf ?? []
  if (option) return sampleOf(option as Schema, name, place)
  if (schema.allOf) return Object.assign({}, ...schema.allOf.map((part) => sampleOf(part as Schema, name, place)))
  if (schema.enum) return schema.enum[0]
  const [type] = [schema.type].flat()
  if (type === 'integer' || type === 'number') return schema.minimum ?? 1
  if (type === 'boolean') return false
  if (type !== 'string') return {}
  return schema.format === 'date-time' ? TIME : schema.format === 'date' ? TIME.slice(0, 10) : NO_SAMPLE
}
