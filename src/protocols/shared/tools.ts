import { z } from 'zod'
import { badRequest, invalidField } from '../../errors.ts'
import type { ClientTool } from '../../executions/engine/queue/accept.ts'
import { asList, asText, type Fields, isObject } from '../../lib/unknown.ts'

/** Maximum number of function tools of a client. */
const MAX_TOOLS = 128
/** Maximum size of a client's tools (characters of JSON). */
const MAX_TOOL_TEXT = 256 * 1024

const functionTool = z.object({
  name: z.string().regex(/^[\w-]{1,64}$/, 'A name of a function has 1 to 64 letters, digits, `_` and `-`'),
  description: z.string().max(10_000).nullish(),
  parameters: z.record(z.string(), z.unknown()).nullish(),
})

const typeOf = (one: unknown): unknown => (isObject(one) ? one.type : undefined)

/** The group of tools that Codex's own ones are in. Calls without a group belong to it. */
const DEFAULT_NAMESPACE = 'functions'

/** Returns the name of a tool in its group, unique among the tools of a request. */
export const qualified = (name: string, namespace: unknown): string =>
  typeof namespace === 'string' && namespace !== '' && namespace !== DEFAULT_NAMESPACE ? `${namespace}__${name}` : name

/** Reads the functions of a list, and those in its groups, which Codex has for each MCP server. */
function functionsIn(given: readonly unknown[], namespace?: unknown): ClientTool[] {
  return given.flatMap((one): ClientTool[] => {
    if (typeOf(one) === 'namespace' && namespace === undefined) {
      const { name: group, tools } = one as Fields
      return functionsIn(asList(tools), functionTool.shape.name.parse(group))
    }
    if (typeOf(one) !== 'function') return []
    const nested = (one as { function?: unknown }).function
    const { name: plain, description, parameters } = functionTool.parse(nested ?? one)
    const name = qualified(plain, namespace)
    return [
      {
        name,
        description: description ?? '',
        parameters: parameters ?? { type: 'object', properties: {} },
        ...(name !== plain && { namespace: asText(namespace) }),
      },
    ]
  })
}

/**
 * Reads the function tools of a request, in the form of chat completions (`function: {…}`) or of responses. Tools of
 * other types are left out beside functions, because agent clients such as Codex always send some. `others`: tools that
 * are given elsewhere, of which only functions are read. Throws 400 for nothing but tools of other types, and for too
 * many.
 */
export function readTools(given: readonly unknown[] | null | undefined, others: readonly unknown[] = []): ClientTool[] {
  const tools = functionsIn([...(given ?? []), ...others])
  const isTyped = given?.every((one) => typeof typeOf(one) === 'string')
  if (given?.length && !(tools.length && isTyped)) {
    const detail = 'Tools of the service are set on the agent: allowedTools, skills and MCP servers.'
    throw badRequest('Invalid value for field: tools. Expected functions', { detail })
  }
  if (tools.length > MAX_TOOLS || JSON.stringify(tools).length > MAX_TOOL_TEXT) {
    const detail = `A request has at most ${MAX_TOOLS} tools with ${MAX_TOOL_TEXT} characters together.`
    throw badRequest('Invalid value for field: tools. Expected fewer or shorter tools', { detail })
  }
  if (new Set(tools.map(({ name }) => name)).size < tools.length) {
    throw invalidField('tools', 'different names', 'Give each function a name of its own.')
  }
  return tools
}
