import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Prisma, Tx } from '../db/client.ts'
import { notFound } from '../errors.ts'
import type { ModelSettings } from '../lib/model-settings.ts'
import { outputOf } from '../lib/output.ts'
import { cutTexts } from '../lib/page.ts'
import type { Agent } from './schema.ts'
import { slugOf } from './slugs.ts'
import { reachable } from './visibility.ts'

// Finds the rows of agents, and converts them and their versions for the API.

export type AgentRow = Prisma.AgentGetPayload<object>

/** An agent of the API. */
type ApiAgent = z.output<typeof Agent>

/** Reads a list of texts stored as JSON. */
export const strings = (value: unknown) => value as string[]

/** Returns the versions at which an agent's skills are attached. */
export const pinsIn = ({ skillRefs }: { skillRefs: unknown }) => skillRefs as { skillId: string; version: number }[]

/** Converts an agent's row for the API. */
export const toAgent = (row: AgentRow): ApiAgent => ({
  id: row.id,
  name: row.name,
  slug: row.slug ?? slugOf(row.name),
  role: row.role,
  systemPrompt: row.systemPrompt,
  visibility: row.visibility,
  organizationId: row.organizationId,
  userId: row.userId,
  model: row.model,
  description: row.description,
  tags: strings(row.tags),
  category: row.category,
  image: row.image,
  color: row.color,
  initialGreeting: row.initialGreeting,
  skillIds: strings(row.skillIds),
  // The newest versions of the skills are added per viewer (`filterReferences`).
  skillRefs: pinsIn(row).map(({ skillId, version }) => ({ skillId, version, latestVersion: version, foreign: false })),
  mcpInstanceIds: strings(row.mcpInstanceIds),
  mcpTypes: strings(row.mcpTypes),
  subagentIds: strings(row.subagentIds),
  allowedTools: strings(row.allowedTools),
  disallowedTools: strings(row.disallowedTools),
  advanced_tools: strings(row.advanced_tools),
  permissions: row.permissions as ApiAgent['permissions'],
  maxTurns: row.maxTurns,
  modelSettings: row.modelSettings as ModelSettings,
  fallbackModels: strings(row.fallbackModels),
  output: outputOf(row.output),
  contextWindow: row.contextWindow,
  history: row.history,
  requireTools: row.requireTools,
  version: row.version,
  archived: row.archivedAt !== null,
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
})

/** Reads an agent from the column of a version. Versions of older releases lack the newest fields. */
export function fromVersion(stored: unknown): ApiAgent {
  const agent = stored as ApiAgent
  return { ...NEWEST, ...agent, slug: agent.slug ?? slugOf(agent.name) }
}

const NEWEST = {
  advanced_tools: [] as string[],
  permissions: [] as ApiAgent['permissions'],
  skillRefs: [] as ApiAgent['skillRefs'],
  modelSettings: {},
  fallbackModels: [] as string[],
  output: null,
  contextWindow: null,
  history: 'cut' as const,
  requireTools: false,
}

/** The long texts of an agent, which long lists cut. */
export const LONG_TEXTS = ['systemPrompt', 'initialGreeting'] as const

/** Shortens an agent's long texts and marks it as truncated, if it has any. */
export const shortened = (agent: Readonly<ApiAgent>): Readonly<ApiAgent> => cutTexts(agent, LONG_TEXTS)

/** Finds an agent that the caller can reach. Throws 404 for any other. */
export async function find(actor: Actor, { db }: { db: Tx }, id: string): Promise<AgentRow> {
  const row = await db.agent.findFirst({ where: { id, ...reachable(actor) } })
  if (!row) throw notFound('Agent')
  return row
}
