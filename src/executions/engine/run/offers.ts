import type { JSONSchema7 } from '@ai-sdk/provider'
import { fitDescription, fitSchema } from '../models/tool-schemas.ts'
import type { ReplyPart } from './steps.ts'
import type { Tool } from './tools.ts'
import type { Warn } from './warnings.ts'

/** The maximum number of tools in a request: OpenAI's. */
const MAX_TOOLS = 128

/** A tool as its model is told of it. */
export type Offer = { type: 'function'; name: string; description: string; inputSchema: JSONSchema7 }

const known = new WeakMap<readonly Tool[], readonly Offer[]>()

/** What a model is told of the tools of its run: made once for all of its steps. */
export function offersOf(tools: readonly Tool[]): readonly Offer[] {
  const found = known.get(tools)
  if (found) return found
  const offers = tools.flatMap(({ name, description, inputSchema }): Offer | [] => {
    const fitted = fitSchema(inputSchema)
    return fitted
      ? { type: 'function', name, description: fitDescription(description), inputSchema: fitted.schema }
      : []
  })
  known.set(tools, offers)
  return offers
}

/**
 * The tools of a run that its model can be offered: those whose input can be described to a provider, no more than
 * {@link MAX_TOOLS}, those that the agent's list of allowed tools names before all others. The run is warned of the rest.
 */
export function offerable(tools: readonly Tool[], allowed: readonly string[], warn: Warn): readonly Tool[] {
  const fit = tools.filter(({ inputSchema }) => fitSchema(inputSchema))
  const unfit = tools.filter((tool) => !fit.includes(tool))
  if (unfit.length) warn('tool_missing', `These tools are left out, since no model takes their schemas: ${list(unfit)}`)
  if (fit.length <= MAX_TOOLS) return unfit.length ? fit : tools
  const isNamed = (tool: Tool) => namesOf(tool).some((name) => allowed.includes(name))
  const first = fit.toSorted((one, other) => Number(isNamed(other)) - Number(isNamed(one)))
  const over = first.slice(MAX_TOOLS)
  warn(
    'tool_missing',
    `A model takes ${MAX_TOOLS} tools, and there are ${fit.length}: name those you need in allowedTools. Left out: ${list(over)}`,
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
 * Reads the calls of a reply as its model means them: by the names of the tools that it was offered, with inputs as these
 * tools take them. Everything else stays what it is.
 */
export function understood(parts: ReplyPart[], tools: readonly Tool[]): ReplyPart[] {
  if (!tools.length || parts.every(({ type }) => type !== 'tool-call')) return parts
  return parts.map((part) => {
    const tool = part.type === 'tool-call' ? findTool(tools, part.toolName) : undefined
    if (part.type !== 'tool-call' || !tool) return part
    return { ...part, toolName: tool.name, input: fitSchema(tool.inputSchema)?.restore(part.input) ?? part.input }
  })
}

/** What some models write around the name of a tool. */
const PREFIX = /^(?:functions?|default_api|tools?|multi_tool_use)[.:/]+/i
const SUFFIX = /<\|.*$|\(\s*\)\s*$|:\d+$/s

/**
 * Finds the tool that a model calls: by its name, by the name that its server gives it, or by one of these as models
 * misspell them (`functions.x`, `default_api:x`, `x<|channel|>…`, `mail.send`, `Mail__send`), unless two are meant.
 */
export function findTool(tools: readonly Tool[], name: string): Tool | undefined {
  const exact = tools.find((tool) => tool.name === name)
  if (exact) return exact
  const trimmed = name.replace(SUFFIX, '').replace(/^[\s"'`]+|[\s"'`]+$/g, '')
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

/** What a model is told that calls a tool that there is not. */
export function noSuchTool(name: string, tools: readonly Tool[]): string {
  const names = tools.map((tool) => tool.name).join(', ')
  return `There is no tool named ${name.slice(0, 200)}${tools.length ? `. The tools are: ${names}` : ''}`
}
