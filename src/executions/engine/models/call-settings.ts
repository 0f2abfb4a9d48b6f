import type { SharedV4Warning } from '@ai-sdk/provider'
import type { ModelSettings } from '../../../lib/model-settings.ts'
import type { Fields } from '../../../lib/unknown.ts'
import { type CallOptions, OPTIONS, type TextModel } from './text-model.ts'

/** Facts about a call that its settings depend on. */
export type Call = {
  /** The provider as its model names it (`openai.responses`, `compatible.chat`). */
  provider: string
  modelId: string
  /** Whether tools are offered. */
  hasTools: boolean
  /** Whether it is the first step of its run. */
  isFirst: boolean
  /** The offered tool that a required call has to be of; null for any. */
  demandedTool: string | null
}

/**
 * Returns whether the model belongs to an OpenAI-compatible server, whose package spreads the provider options
 * `openaiCompatible` of a message into the body.
 */
export const isCompatible = (provider: string): boolean => provider.endsWith('.chat')

/** Returns whether a model is not Anthropic's but offered with its API, such as GLM, Kimi, MiniMax or DeepSeek. */
export const isGuest = ({ provider, modelId }: Pick<TextModel, 'provider' | 'modelId'>): boolean =>
  provider.startsWith('anthropic') && !modelId.includes('claude')

/**
 * Returns the settings of a model that the caller's replace. Anthropic's API demands a limit of the answer. Its package
 * limits the models of others to 4,096 tokens, too few for a call that writes a file.
 */
export const defaultsOf = (model: Pick<TextModel, 'provider' | 'modelId'>): ModelSettings =>
  isGuest(model) ? { maxOutputTokens: 32_000 } : {}

/** Returns the fields that settings merge into the body of a request to an OpenAI-compatible server. */
export function bodyFieldsOf(
  settings: ModelSettings,
  { provider, hasTools }: Pick<Call, 'provider' | 'hasTools'>,
): Fields {
  const { providerOptions = {}, parallelToolCalls } = settings
  const name = provider.split('.', 1)[0] ?? ''
  return {
    ...(hasTools && parallelToolCalls !== undefined && { parallel_tool_calls: parallelToolCalls }),
    ...providerOptions.compatible,
    ...(name !== 'compatible' && providerOptions[name]),
  }
}

/**
 * Translates settings into the options of a call (contract-2.md section 2.3). Calls `ignored` for settings without an
 * option.
 */
export function optionsOf(
  settings: ModelSettings,
  call: Call,
  ignored: (name: keyof ModelSettings) => void,
): Omit<CallOptions, 'prompt'> {
  const { temperature, topP, maxOutputTokens, stopSequences, seed, reasoningEffort } = settings
  const toolChoice = call.hasTools ? toolChoiceOf(settings, call) : undefined
  return {
    ...(temperature !== undefined && { temperature }),
    ...(topP !== undefined && { topP }),
    ...(maxOutputTokens !== undefined && { maxOutputTokens }),
    ...(stopSequences?.length && { stopSequences }),
    ...(seed !== undefined && { seed }),
    ...(reasoningEffort !== undefined && { reasoning: reasoningEffort }),
    ...(toolChoice && { toolChoice }),
    // Options for a compatible server are merged into the body.
    ...(!isCompatible(call.provider) && { providerOptions: providerOptionsOf(settings, call, ignored) }),
  }
}

function toolChoiceOf({ toolChoice }: ModelSettings, { isFirst, demandedTool }: Call): CallOptions['toolChoice'] {
  // A model that must call tools at every step would never answer.
  if (toolChoice === 'required' && !isFirst) return { type: 'auto' }
  if (toolChoice === 'required' && demandedTool !== null) return { type: 'tool', toolName: demandedTool }
  return toolChoice && { type: toolChoice }
}

/** Names of OpenAI's own models. Those of other servers of the Responses API may not know the role `developer`. */
const OF_OPENAI = /^(?:o\d+|gpt-4o|gpt-\d+(?:\.\d+)?)(?:-|$)/

/** Returns the options of a provider's own package. */
function providerOptionsOf(
  { providerOptions, parallelToolCalls, reasoningEffort }: ModelSettings,
  { provider, modelId, hasTools }: Call,
  ignored: (name: keyof ModelSettings) => void,
): NonNullable<CallOptions['providerOptions']> {
  const own: Record<string, Fields> = { ...providerOptions }
  const isResponses = provider.startsWith('openai.')
  // OpenAI stores nothing: its reasoning comes back encrypted and is sent with each request.
  if (isResponses) own.openai = { store: false, ...own.openai }
  // The package drops the effort of a model that it does not take for one that reasons.
  if (isResponses && (reasoningEffort ?? own.openai?.reasoningEffort) !== undefined) {
    const role = OF_OPENAI.test(modelId) ? {} : { systemMessageMode: 'system' }
    own.openai = { forceReasoning: true, ...role, ...own.openai }
  }
  if (parallelToolCalls !== undefined && hasTools) {
    if (isResponses) own.openai = { parallelToolCalls, ...own.openai }
    else if (provider.startsWith('anthropic'))
      own.anthropic = { disableParallelToolUse: !parallelToolCalls, ...own.anthropic }
    else ignored('parallelToolCalls')
  }
  return own as never
}

/** Names that packages use for settings in their warnings where they differ from ours. */
const NAMES: Readonly<Record<string, keyof ModelSettings>> = { reasoning: 'reasoningEffort' }

/** Returns the settings that a package reports as not sent. */
export const ignoredIn = (warnings: readonly SharedV4Warning[], settings: ModelSettings): string[] =>
  warnings
    .flatMap((warning) => (warning.type === 'unsupported' && !isClamped(warning) ? nameOf(warning) : []))
    .filter((name) => name in settings || name.startsWith(OPTIONS))

/** Returns the settings of which a package reports that it sends another value, because the model has no such value. */
export function otherValuesIn(warnings: readonly SharedV4Warning[], settings: ModelSettings): (keyof ModelSettings)[] {
  const ignored = ignoredIn(warnings, settings)
  const isOther = (warning: Feature) =>
    warning.type === 'compatibility' ? warning.feature === 'reasoning' : isClamped(warning)
  const names = warnings.flatMap((warning) => ('feature' in warning && isOther(warning) ? nameOf(warning) : []))
  return names.filter((name) => name in settings && !ignored.includes(name)) as (keyof ModelSettings)[]
}

type Feature = Extract<SharedV4Warning, { feature: string }>

const nameOf = ({ feature }: Feature): string => NAMES[feature] ?? feature

const isClamped = ({ details = '' }: Feature): boolean => /\bclamped to\b/.test(details)

/** Returns the limit to which a package reports that it has lowered `maxOutputTokens`. */
export const loweredLimitIn = (warnings: readonly SharedV4Warning[]): string | undefined =>
  warnings
    .map((warning) => ('details' in warning && /have been limited to (\d+)/.exec(warning.details ?? '')?.[1]) || '')
    .find(Boolean)
