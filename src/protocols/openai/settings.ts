import { z } from 'zod'
import { badRequest, invalidField, toAppError } from '../../errors.ts'
import type { ClientTool, Overrides } from '../../executions/engine/queue/requests.ts'
import { type ModelSettings, NewModelSettings } from '../../lib/model-settings.ts'
import { NewOutput } from '../../lib/output.ts'
import { asList, asObject, type Fields, isObject } from '../../lib/unknown.ts'
import { toolType } from '../shared/tools.ts'

/** The settings of a request, under the names of both APIs. */
export const SETTINGS = {
  temperature: z.number().nullish(),
  top_p: z.number().nullish(),
  seed: z.number().nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  tool_choice: z.unknown().optional(),
  logprobs: z.unknown().optional(),
  top_logprobs: z.unknown().optional(),
}

type Given = { [Name in keyof typeof SETTINGS]?: unknown } & {
  maxTokens?: unknown
  stop?: unknown
  effort?: unknown
}

/** The names of our settings in OpenAI's requests, for messages. */
const NAMES: Readonly<Record<string, string>> = {
  topP: 'top_p',
  maxOutputTokens: 'max_tokens',
  stopSequences: 'stop',
  reasoningEffort: 'reasoning_effort',
  toolChoice: 'tool_choice',
  parallelToolCalls: 'parallel_tool_calls',
}

/** Efforts of other APIs. */
const EFFORTS: Readonly<Record<string, string | undefined>> = {
  xhigh: 'high',
  max: 'high',
  auto: undefined,
  default: undefined,
}

/**
 * Throws 400 if a field asks for log probabilities, because an answer may have texts of several model steps. `asked`
 * has the value of each field that can ask for them.
 */
export function refuseLogprobs(asked: Fields): void {
  const [field] = Object.keys(asked).filter((name) => asked[name])
  if (field === undefined) return
  const detail = 'Agents give no log probabilities: leave `logprobs` and `top_logprobs` out.'
  throw badRequest(`Invalid value for field: ${field}. Expected no log probabilities`, { detail })
}

/** Converts the settings of a request. Throws 400 for a value out of range. Undefined if there are none. */
export function readSettings(given: Given): ModelSettings | undefined {
  const { stop, tool_choice: choice, effort } = given
  const stops = typeof stop === 'string' ? [stop] : stop
  refuseLogprobs({ logprobs: given.logprobs, top_logprobs: given.top_logprobs })
  const all = {
    temperature: given.temperature,
    topP: given.top_p,
    // Clients of local models send -1 for no limit.
    maxOutputTokens: given.maxTokens === -1 ? undefined : given.maxTokens,
    stopSequences: Array.isArray(stops) ? stops.filter((one) => one !== '') : stops,
    seed: given.seed,
    reasoningEffort: typeof effort === 'string' && effort in EFFORTS ? EFFORTS[effort] : effort,
    toolChoice: isObject(choice) ? 'required' : choice,
    parallelToolCalls: given.parallel_tool_calls,
  }
  const settings = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined && value !== null))
  if (!Object.keys(settings).length) return undefined
  try {
    return NewModelSettings.parse(settings)
  } catch (error) {
    const { message, detail = '' } = toAppError(error)
    const [renamed = '', advice] = [message, detail].map((text) => text.replace(/\w+/g, (word) => NAMES[word] ?? word))
    throw badRequest(renamed, advice ? { detail: advice } : {})
  }
}

/**
 * Returns the tools that a choice allows, and the choice among them. A choice of the type `allowed_tools` lists some of
 * the tools, so that the others stay in the provider's cache. Throws 400 if it lists none of them.
 */
export function allowedBy(choice: unknown, tools: ClientTool[]): { tools: ClientTool[]; choice: unknown } {
  // Mistral's word.
  if (choice === 'any') return { tools, choice: 'required' }
  if (!isObject(choice) || choice.type !== 'allowed_tools') return { tools, choice }
  // Chat completions nest it.
  const { mode, tools: listed } = asObject(choice.allowed_tools ?? choice)
  const names = asList(listed).map((one) => nameIn(asObject(one)))
  const allowed = tools.filter(({ name }) => names.includes(name))
  if (allowed.length) return { tools: allowed, choice: mode }
  throw badRequest('Invalid value for field: tool_choice. Expected tools of the request in allowed_tools', {
    detail: 'List functions or custom tools of `tools`, by their names.',
  })
}

/** Returns the name of a tool in a choice. Chat completions nest it. */
const nameIn = (one: Fields): unknown => asObject(one.function ?? one.custom ?? one).name

/** Returns the tool of the client that a request demands by name. Throws 400 for one that is none of its tools. */
export function demandOf(choice: unknown, tools: readonly ClientTool[]): Pick<Overrides, 'demandedTool'> {
  if (!isObject(choice)) return {}
  const name = nameIn(choice)
  const type = toolType(choice)
  const demanded = tools.find((tool) => tool.name === name && type === (tool.format ? 'custom' : 'function'))
  if (demanded) return { demandedTool: demanded.name }
  const detail = 'Use auto, none or required, or name a function or a custom tool of `tools`.'
  throw badRequest('Invalid value for field: tool_choice. Expected auto, none, required or a function', { detail })
}

/** Returns the form of the answer that a request demands, in the words of execute. Throws 400 for an unknown one. */
export function outputOf(format: Fields | null | undefined): Pick<Overrides, 'output'> {
  if (!format || format.type === 'text') return {}
  if (format.type === 'json_object') return { output: NewOutput.parse({ schema: { type: 'object' } }) }
  if (format.type !== 'json_schema') {
    throw invalidField('response_format', 'type text, json_object or json_schema')
  }
  // Chat completions nest it.
  const { schema, name } = asObject(format.json_schema ?? format)
  return { output: NewOutput.parse({ schema, ...(typeof name === 'string' && { name }) }) }
}
