import type { JSONSchema7 } from '@ai-sdk/provider'
import { parseJson } from '../../../lib/json.ts'
import { asEntries, asList, asObject, asText } from '../../../lib/unknown.ts'
import { fitDescription, fitSchema } from '../models/tool-schemas.ts'
import { fitInput } from './inputs.ts'
import type { ReplyPart } from './steps.ts'
import type { Tool } from './tools.ts'
import type { Warn } from './warnings.ts'

/** Maximum number of tools in a request, which is OpenAI's limit. */
const MAX_TOOLS = 128

/** A tool as described to the model. */
export type Offer = { type: 'function'; name: string; description: string; inputSchema: JSONSchema7 }

const known = new WeakMap<readonly Tool[], readonly Offer[]>()

/** Describes the tools of a run to the model, once for all steps. */
export function offersOf(tools: readonly Tool[]): readonly Offer[] {
  const found = known.get(tools)
  if (found) return found
  const offers = tools.flatMap(({ name, description, inputSchema }): Offer | [] => {
    const fitted = fitSchema(inputSchema)
    return fitted
      ? { type: 'function', name, description: fitDescription(description.trim() || name), inputSchema: fitted.schema }
      : []
  })
  known.set(tools, offers)
  return offers
}

/**
 * Returns the tools that can be offered to the model: those whose input schema providers accept, at most {@link
 * MAX_TOOLS}, tools in the agent's allow list first. Warns about the others.
 */
export function offerable(tools: readonly Tool[], allowed: readonly string[], warn: Warn): readonly Tool[] {
  const fit = tools.filter(({ inputSchema }) => fitSchema(inputSchema))
  const unfit = tools.filter((tool) => !fit.includes(tool))
  if (unfit.length)
    warn('tool_missing', `These tools were left out because models do not accept their schemas: ${list(unfit)}`)
  if (fit.length <= MAX_TOOLS) return unfit.length ? fit : tools
  const isNamed = (tool: Tool) => namesOf(tool).some((name) => allowed.includes(name))
  const first = fit.toSorted((one, other) => Number(isNamed(other)) - Number(isNamed(one)))
  const over = first.slice(MAX_TOOLS)
  warn(
    'tool_missing',
    `A model accepts at most ${MAX_TOOLS} tools, and there are ${fit.length}. List the ones you need in allowedTools. Left out: ${list(over)}`,
  )
  return first.slice(0, MAX_TOOLS)
}

const MAX_LISTED = 20

function list(tools: readonly Tool[]): string {
  const names = tools.slice(0, MAX_LISTED).map(({ name }) => name)
  return `${names.join(', ')}${tools.length > MAX_LISTED ? ` and ${tools.length - MAX_LISTED} more` : ''}`
}

const namesOf = ({ name, aliases = [] }: Tool) => [name, ...aliases]

/**
 * Resolves the calls of a reply to the offered tools, and their inputs to the tools' schemas. Leaves everything else
 * unchanged.
 */
export function understood(parts: ReplyPart[], tools: readonly Tool[]): ReplyPart[] {
  if (!tools.length || parts.every(({ type }) => type !== 'tool-call')) return parts
  return parts.flatMap(separate).map((part) => {
    const tool = part.type === 'tool-call' ? findTool(tools, part.toolName) : undefined
    if (part.type !== 'tool-call' || !tool) return part
    const input = fitSchema(tool.inputSchema)?.restore(part.input) ?? part.input
    // Clients check the inputs of their own tools.
    return { ...part, toolName: tool.name, input: tool.isClients ? input : fitInput(input, tool.inputSchema) }
  })
}

/** Divides a call of a tool that OpenAI's models imagine, which makes several calls at once. */
function separate(part: ReplyPart): ReplyPart[] {
  if (part.type !== 'tool-call' || !/^(?:functions\.)?multi_tool_use[._]parallel$/.test(part.toolName)) return [part]
  const uses = asList(asObject(part.input).tool_uses).map(asObject)
  if (!uses.length || uses.some(({ recipient_name }) => !asText(recipient_name))) return [part]
  const { type, toolCallId } = part
  return uses.map(({ recipient_name, parameters }, place) => ({
    ...(place ? { type, toolCallId: `${toolCallId}_${place + 1}` } : part),
    toolName: asText(recipient_name),
    input: parameters ?? {},
  }))
}

/** Prefixes that some models write before a tool name. Claude knows names such as `mcp__server__tool`. */
const PREFIX = /^(?:(?:to=)?(?:functions?|default_api|tools?|multi_tool_use)[.:/]+|mcp__[\w-]{1,64}?__)/i
const SUFFIX = /<\|.*$|\(\s*\)\s*$|:\d+$/s
/** Blanks and quotes at both ends. Each run of them is tried once, also in a name of a million quotes. */
const QUOTES = /^[\s"'`]+|(?<![\s"'`])[\s"'`]+$/g

/**
 * Finds the tool that a model calls: by its name, its name on its server, or a common misspelling of these
 * (`functions.x`, `default_api:x`, `x<|channel|>…`, `mail.send`, `Mail__send`), unless it is ambiguous.
 */
export function findTool(tools: readonly Tool[], name: string): Tool | undefined {
  const exact = tools.find((tool) => tool.name === name)
  if (exact) return exact
  const trimmed = name.replace(SUFFIX, '').replace(QUOTES, '')
  const forms = [...new Set([name, trimmed, trimmed.replace(PREFIX, '').replace(SUFFIX, '')])]
  for (const form of [(text: string) => text, canonical]) {
    for (const candidate of forms.map(form)) {
      if (!candidate) continue
      const own = tools.filter((tool) => form(tool.name) === candidate)
      const found = own.length ? own : tools.filter((tool) => tool.aliases?.some((alias) => form(alias) === candidate))
      if (found.length === 1) return found[0]
    }
  }
  return undefined
}

const canonical = (name: string) =>
  name
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '_')
    .replace(/^_|_$/g, '')

/**
 * Marks of calls in the text of models whose servers do not read them: at the start of a line, or anywhere if nothing
 * else has them (MiniMax-M3, Kimi K3, DeepSeek).
 */
const WRITTEN_CALL =
  /\]<\]minimax\[>\[<|<\|open\|>tools|<[|｜]{1,2}DSML[|｜]|(?:^|\n)[ \t]{0,8}(?:<tool_calls?>|<TOOLCALL>|<function=|<function_calls>|<\w+[:_]tool_call>|<start_function_call>|<invoke name=|<\|python_tag\|>|<\|START_ACTION\|>|<\|tool_call|(?:<\|channel\|>)?commentary to=|<｜tool[▁_]call|\[TOOL_CALLS\]|```tool_code)/

/** Returns whether a model has written a call into its text: with marks, or as JSON with the name of a tool. */
export function writesCall(text: string, tools: readonly Tool[]): boolean {
  if (WRITTEN_CALL.test(text)) return true
  if (!/^\s*\[?\s*\{\s*"(?:name|type|function|tool|arguments|parameters)"/.test(text)) return false
  const { name, arguments: input, parameters } = asObject(asEntries(parseJson(text))[0])
  return (input ?? parameters) !== undefined && tools.some((tool) => tool.name === name)
}

/** Explains a call that a model has written where its server does not read it. */
export const writtenCall = (place: 'text' | 'reasoning'): string =>
  `The model wrote a call of a tool into its ${place}, so that it was not made: its server has to read the calls of this model (vLLM: --enable-auto-tool-choice and --tool-call-parser)`

/** Returns the error for a model that calls an unknown tool. */
export function noSuchTool(name: string, tools: readonly Tool[]): string {
  const names = tools.map((tool) => tool.name).join(', ')
  return `There is no tool named ${name.slice(0, 200)}${tools.length ? `. The tools are: ${names}` : ''}`
}
