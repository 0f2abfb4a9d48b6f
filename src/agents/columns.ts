import type { z } from 'zod'
import type { Prisma } from '../db/client.ts'
import { badRequest } from '../errors.ts'
import type { ModelSettings } from '../lib/model-settings.ts'
import { type Output, outputOf, toOutputColumn } from '../lib/output.ts'
import { searchedIn } from '../lib/search.ts'
import type { CachedAgent } from './agent-cache.ts'
import type { AgentRow } from './rows.ts'
import type { CreateAgent, UpdateAgent } from './schema.ts'

const LISTS = [
  'tags',
  'skillIds',
  'mcpInstanceIds',
  'mcpTypes',
  'subagentIds',
  'allowedTools',
  'disallowedTools',
  'advanced_tools',
  'fallbackModels',
] as const

/** Fields that a client can set. */
export type Values = { [Field in (typeof LISTS)[number]]: string[] } & Pick<
  AgentRow,
  | 'name'
  | 'slug'
  | 'role'
  | 'systemPrompt'
  | 'visibility'
  | 'model'
  | 'description'
  | 'category'
  | 'image'
  | 'color'
  | 'initialGreeting'
  | 'maxTurns'
  | 'contextWindow'
  | 'history'
  | 'requireTools'
> & { output: Output | null; modelSettings: ModelSettings; permissions: CachedAgent['permissions'] }

export const DEFAULTS: Values = {
  name: '',
  slug: null,
  role: 'Assistant',
  systemPrompt: '',
  visibility: 'organization',
  model: null,
  description: null,
  category: null,
  image: null,
  color: null,
  initialGreeting: null,
  maxTurns: null,
  modelSettings: {},
  output: null,
  permissions: [],
  contextWindow: null,
  history: 'cut',
  requireTools: false,
  ...(Object.fromEntries(LISTS.map((field) => [field, []])) as unknown as Pick<Values, (typeof LISTS)[number]>),
}

/**
 * Returns the client's fields of a row or an input: given fields, with null as the default. `systemPrompt` and
 * `description` take precedence over their aliases, also as null.
 */
export function valuesOf(
  source: AgentRow | CachedAgent | z.output<typeof CreateAgent> | z.output<typeof UpdateAgent>,
): Partial<Values> {
  const alias = 'system_message' in source ? source.system_message : undefined
  const description = 'characterDescription' in source ? source.characterDescription : undefined
  const entries = Object.entries({
    ...(description !== undefined && { description }),
    ...source,
    ...(source.description === undefined && description !== undefined && { description }),
    systemPrompt: source.systemPrompt ?? alias ?? undefined,
    ...(source.output !== undefined && { output: outputOf(source.output) }),
  })
    .filter(([field, value]) => field in DEFAULTS && value !== undefined)
    .map(([field, value]) => [field, value ?? DEFAULTS[field as keyof Values]])
  return Object.fromEntries(entries)
}

/** Converts the client's fields into columns, with the text that searches look in. */
export const toColumns = (values: Values) => ({
  ...values,
  modelSettings: values.modelSettings as Prisma.InputJsonObject,
  output: toOutputColumn(values.output) as Prisma.InputJsonObject,
  ...searchedIn(values.name, values.role, values.description, ...values.tags),
})

/** Throws 400 if the prompt is missing under all of its names. */
export function checkPrompt({ systemPrompt }: Partial<Values>): void {
  if (systemPrompt?.trim() === '') throw badRequest('Missing required field: systemPrompt')
}
