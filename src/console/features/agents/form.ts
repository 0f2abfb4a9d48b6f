import type { ModelSettings } from '../../../lib/model-settings.ts'
import type { Input, Output } from '../../api.ts'
import { toFraction, toNumber } from '../../lib/number.ts'
import { agents as t } from '../../texts/agents.ts'
import { texts } from '../../texts.ts'
import { type OutputDraft, toOutput, toOutputDraft } from './output.tsx'

export type Agent = Output<'agents.get'>['agent']

/** The state of the editor: texts as typed. */
export type Draft = OutputDraft & {
  name: string
  role: string
  description: string
  systemPrompt: string
  visibility: Agent['visibility']
  model: string
  fallbackModels: string
  temperature: string
  topP: string
  maxOutputTokens: string
  reasoningEffort: string
  maxTurns: string
  contextWindow: string
  history: Agent['history']
  initialGreeting: string
  tags: string
  skillIds: string[]
  mcpInstanceIds: string[]
  subagentIds: string[]
  allowedTools: string
  disallowedTools: string
  permissions: Agent['permissions']
  requireTools: boolean
  /** Settings without a field here, which stay unchanged. */
  otherSettings: ModelSettings
}

export const LABELS: Readonly<Record<keyof Draft, string>> = {
  name: t.name,
  role: t.role,
  description: texts.description,
  systemPrompt: t.prompt,
  visibility: texts.visibility,
  model: t.model,
  fallbackModels: t.fallbackModels,
  temperature: t.temperature,
  topP: t.topP,
  maxOutputTokens: t.maxOutputTokens,
  reasoningEffort: t.reasoningEffort,
  maxTurns: t.maxTurns,
  contextWindow: t.contextWindow,
  history: t.history,
  outputSchema: t.outputSchema,
  outputName: t.outputName,
  initialGreeting: t.greeting,
  tags: t.tags,
  skillIds: texts.nav.skills,
  mcpInstanceIds: texts.nav.mcps,
  subagentIds: t.sections.subagents,
  allowedTools: t.allowedTools,
  disallowedTools: t.disallowedTools,
  permissions: texts.toolModes.title,
  requireTools: t.requireTools,
  otherSettings: t.sections.model,
}

const asText = (value: number | undefined | null) => (value === undefined || value === null ? '' : String(value))

export const emptyDraft: Draft = {
  name: '',
  role: 'Assistant',
  description: '',
  systemPrompt: '',
  visibility: 'organization',
  model: '',
  fallbackModels: '',
  temperature: '',
  topP: '',
  maxOutputTokens: '',
  reasoningEffort: '',
  maxTurns: '',
  contextWindow: '',
  history: 'cut',
  outputSchema: '',
  outputName: '',
  initialGreeting: '',
  tags: '',
  skillIds: [],
  mcpInstanceIds: [],
  subagentIds: [],
  allowedTools: '',
  disallowedTools: '',
  permissions: [],
  requireTools: false,
  otherSettings: {},
}

export function toDraft(agent: Agent): Draft {
  const { temperature, topP, maxOutputTokens, reasoningEffort, ...otherSettings } = agent.modelSettings
  return {
    name: agent.name,
    role: agent.role,
    description: agent.description ?? '',
    systemPrompt: agent.systemPrompt,
    visibility: agent.visibility,
    model: agent.model ?? '',
    fallbackModels: agent.fallbackModels.join(', '),
    temperature: asText(temperature),
    topP: asText(topP),
    maxOutputTokens: asText(maxOutputTokens),
    reasoningEffort: reasoningEffort ?? '',
    maxTurns: asText(agent.maxTurns),
    contextWindow: asText(agent.contextWindow),
    history: agent.history,
    ...toOutputDraft(agent.output),
    initialGreeting: agent.initialGreeting ?? '',
    tags: agent.tags.join(', '),
    skillIds: agent.skillIds,
    mcpInstanceIds: agent.mcpInstanceIds,
    subagentIds: agent.subagentIds,
    allowedTools: agent.allowedTools.join('\n'),
    disallowedTools: agent.disallowedTools.join('\n'),
    permissions: agent.permissions,
    requireTools: agent.requireTools,
    otherSettings,
  }
}

export const UNEDITED_LABELS = {
  slug: t.slug,
  category: t.category,
  image: t.image,
  color: t.color,
  mcpTypes: t.mcpTypes,
} as const

/** The fields of an agent that only other clients change. An older version has its own ones, too. */
export const uneditedOf = ({ slug, category, image, color, mcpTypes }: Agent) => ({
  slug,
  category,
  image,
  color,
  mcpTypes,
})

const list = (text: string, by: RegExp) => [...new Set(text.split(by).map((each) => each.trim()))].filter(Boolean)

/** Converts a draft to a request. The service validates it. */
type Written = Omit<
  Input<'agents.create'>,
  'systemPrompt' | 'visibility' | 'basedOnAgentId' | 'system_message' | 'characterDescription'
>

export function toInput(draft: Draft): Written & Pick<Draft, 'systemPrompt' | 'visibility'> {
  const settings = {
    ...draft.otherSettings,
    temperature: toFraction(draft.temperature),
    topP: toFraction(draft.topP),
    maxOutputTokens: toNumber(draft.maxOutputTokens),
    reasoningEffort: draft.reasoningEffort || undefined,
  }
  const modelSettings = Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined))
  return {
    name: draft.name,
    role: draft.role.trim() || null,
    description: draft.description.trim() || null,
    systemPrompt: draft.systemPrompt,
    visibility: draft.visibility,
    model: draft.model.trim() || null,
    fallbackModels: list(draft.fallbackModels, /,/),
    modelSettings,
    maxTurns: toNumber(draft.maxTurns) ?? null,
    contextWindow: toNumber(draft.contextWindow) ?? null,
    history: draft.history,
    output: toOutput(draft),
    initialGreeting: draft.initialGreeting.trim() || null,
    tags: list(draft.tags, /,/),
    skillIds: draft.skillIds,
    mcpInstanceIds: draft.mcpInstanceIds,
    subagentIds: draft.subagentIds,
    allowedTools: list(draft.allowedTools, /\n/),
    disallowedTools: list(draft.disallowedTools, /\n/),
    permissions: draft.permissions,
    requireTools: draft.requireTools,
  }
}
