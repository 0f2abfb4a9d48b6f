import type { ModelSettings } from '../../../lib/model-settings.ts'
import type { Warning } from '../../../wire.ts'
import type { Change } from './change.ts'
import { isOption } from './request-changes.ts'

/** The request that is changed. `model`: the full id of the model that gets it. */
type Changed = { model: string; settings: ModelSettings; hasFiles: boolean }

/** Returns the warning about a setting that a model does not support. */
export const ignoredSetting = (model: string, name: string): Warning => ({
  code: 'setting_ignored',
  text: `The model ${model} does not support the setting ${name}: it was left out`,
})

/** Returns the warning about a model that is asked with another value of a setting than the settings have. */
export const otherValue = (model: string, name: string, value: unknown): Warning => ({
  code: 'setting_ignored',
  text: `The model ${model} does not support the ${name} ${value}: the nearest one that it supports was used`,
})

/** Returns the warning about an answer that is limited to fewer tokens than the settings allow. */
export const loweredLimit = (model: string, limit: string, reason = 'including reasoning'): Warning => ({
  code: 'setting_ignored',
  text: `The model ${model} writes at most ${limit} tokens, ${reason}: maxOutputTokens was lowered`,
})

/** Returns the warning about a change of a request; null if the request loses nothing by it. */
export function warningOf(change: Change, { model, settings, hasFiles }: Changed): Warning | null {
  const [kind = '', name = ''] = change.split(/:(.*)/s)
  const textOfFiles = TEXTS_OF_FILES[kind]
  if (textOfFiles) return hasFiles ? { code: 'attachment_not_read', text: textOfFiles(model, name) } : null
  switch (kind) {
    case 'tools':
      return { code: 'tool_missing', text: textOfTools(model, name) }
    case 'tool':
      return { code: 'tool_missing', text: `The provider of ${model} rejects the tool ${name}: it was left out` }
    case 'max_tokens':
    case 'answer':
    case 'afford':
      return Number(name) < (settings.maxOutputTokens ?? 0) ? loweredLimit(model, name, REASONS_OF_LIMITS[kind]) : null
    case 'omit':
      return isOption(name, settings) ? ignoredSetting(model, `providerOptions (${name})`) : null
    case 'after_block':
      return { code: 'history_cut', text: TEXT_OF_BLOCK }
    case 'no_effort':
      return { code: 'setting_ignored', text: textOfEffort(model) }
    case 'extra':
      return ignoredSetting(model, `providerOptions.compatible.${name}`)
    default:
      return change in settings
        ? ignoredSetting(model, withValue(change, settings[change as keyof ModelSettings]))
        : null
  }
}

/** Adds the value to the name of a setting, because the model may support others. */
const withValue = (name: string, value: unknown): string => (typeof value === 'object' ? name : `${name} (${value})`)

const TEXT_OF_BLOCK =
  'Earlier turns were left out, because the content filter of the provider blocked them. Start a new chat to avoid this'

const textOfEffort = (model: string) =>
  `The model ${model} does not reason in a request with tools in chat completions: its reasoning was turned off. For both, set OPENAI_RESPONSES_BASE_URL and name the model openai/…`

/** Why a model writes fewer tokens than it could. */
const REASONS_OF_LIMITS: Readonly<Record<string, string>> = {
  answer: 'after a prompt of this length',
  afford: 'for which the credit of its provider suffices',
}

function textOfTools(model: string, most: string): string {
  if (most === 'flag')
    return `The server of ${model} was started without support for tools: none were offered. Start vLLM with --enable-auto-tool-choice and --tool-call-parser, llama.cpp with --jinja`
  if (most === 'here')
    return `The model ${model} does not support tools in a request such as this one: none were offered`
  if (most)
    return `The model ${model} accepts no more tools than ${most}: the others were left out. List the ones you need in allowedTools`
  return `The model ${model} does not support tools: none were offered`
}

/** Texts about files that a model does not receive. */
const TEXTS_OF_FILES: Readonly<Record<string, (model: string, name: string) => string>> = {
  documents: (model) => `The model ${model} does not support PDF: it received only the names of the documents`,
  files: (model) => `The model ${model} does not support the attached files: it received only their names`,
  large_files: (model) => `The request to ${model} was too large: it received only the names of earlier files`,
  latest_files: (model, most) =>
    `The model ${model} accepts no more attached files than ${most}: it received only the names of the earlier ones`,
}
