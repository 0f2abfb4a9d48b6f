import { z } from 'zod'
import { badRequest, invalidField } from '../../errors.ts'
import type { ClientTool } from '../../executions/engine/queue/requests.ts'
import { asList, asObject, asText, type Fields, isObject } from '../../lib/unknown.ts'

/** Maximum number of tools of a client. */
const MAX_TOOLS = 128
/** Maximum size of a client's tools (characters of JSON). */
const MAX_TOOL_TEXT = 256 * 1024

const functionTool = z.object({
  name: z.string().regex(/^[\w-]{1,64}$/, 'A name of a function has 1 to 64 letters, digits, `_` and `-`'),
  description: z.string().max(10_000).nullish(),
  parameters: z.record(z.string(), z.unknown()).nullish(),
})

const customTool = functionTool.pick({ name: true, description: true }).extend({
  format: z.looseObject({ type: z.string() }).nullish(),
})

/** Returns the schema of a custom tool's calls for models, which call functions alone. */
function schemaOf(format: Fields): ClientTool['parameters'] {
  // Chat completions nest it.
  const { syntax, definition } = asObject(format.grammar ?? format)
  const description =
    typeof definition === 'string'
      ? `The whole input as one text, in the language of this grammar (${asText(syntax)}):\n${definition}`
      : 'The whole input as one text'
  const properties = { input: { type: 'string' as const, description } }
  return { type: 'object', properties, required: ['input'], additionalProperties: false }
}

/** Returns the type of a tool. Clients of Mistral leave it out of functions. */
export const toolType = (one: unknown): unknown =>
  isObject(one) ? (one.type ?? (isObject(one.function) ? 'function' : undefined)) : undefined

/** The group of tools that Codex's own ones are in. Calls without a group belong to it. */
const DEFAULT_NAMESPACE = 'functions'

/** Returns the name of a tool in its group, unique among the tools of a request. */
export const qualified = (name: string, namespace: unknown): string =>
  typeof namespace === 'string' && namespace !== '' && namespace !== DEFAULT_NAMESPACE ? `${namespace}__${name}` : name

/** Reads the tools of a list, and those in its groups, which Codex has for each MCP server. */
function toolsIn(given: readonly unknown[], namespace?: unknown): ClientTool[] {
  return given.flatMap((one): ClientTool[] => {
    if (toolType(one) === 'namespace' && namespace === undefined) {
      const { name: group, tools } = one as Fields
      return toolsIn(asList(tools), functionTool.shape.name.parse(group))
    }
    const read = readTool(one)
    if (!read) return []
    const name = qualified(read.name, namespace)
    return [{ ...read, name, ...(name !== read.name && { namespace: asText(namespace) }) }]
  })
}

/** Reads a function or a custom tool. Returns null for a tool of another type. */
function readTool(one: unknown): ClientTool | null {
  if (toolType(one) === 'function') {
    const { name, description, parameters } = functionTool.parse((one as Fields).function ?? one)
    return { name, description: description ?? '', parameters: parameters ?? { type: 'object', properties: {} } }
  }
  if (toolType(one) !== 'custom') return null
  const { name, description, format } = customTool.parse((one as Fields).custom ?? one)
  return {
    name,
    description: description ?? '',
    parameters: schemaOf(format ?? {}),
    format: format ?? { type: 'text' },
  }
}

/**
 * Reads the functions and custom tools of a request, in the form of chat completions (`function: {…}`) or of responses.
 * Tools of other types are left out beside them, because agent clients such as Codex always send some. `others`: tools
 * that are given elsewhere, of which only those of the client are read. Throws 400 for nothing but tools of other
 * types, and for too many.
 */
export function readTools(given: readonly unknown[] | null | undefined, others: readonly unknown[] = []): ClientTool[] {
  const tools = toolsIn([...(given ?? []), ...others])
  const isTyped = given?.every((one) => typeof toolType(one) === 'string')
  if (given?.length && !(tools.length && isTyped)) {
    const detail = 'Tools of the service are set on the agent: allowedTools, skills and MCP servers.'
    throw badRequest('Invalid value for field: tools. Expected functions', { detail })
  }
  if (tools.length > MAX_TOOLS || JSON.stringify(tools).length > MAX_TOOL_TEXT) {
    const detail = `A request has at most ${MAX_TOOLS} tools with ${MAX_TOOL_TEXT} characters together.`
    throw badRequest('Invalid value for field: tools. Expected fewer or shorter tools', { detail })
  }
  if (new Set(tools.map(({ name }) => name)).size < tools.length) {
    throw invalidField('tools', 'different names', 'Give each tool a name of its own.')
  }
  return tools
}
