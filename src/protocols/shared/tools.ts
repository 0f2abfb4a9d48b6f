import { z } from 'zod'
import { badRequest, invalidField } from '../../errors.ts'
import type { ClientTool } from '../../executions/engine/queue/accept.ts'
import { isObject } from '../../lib/unknown.ts'

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

/**
 * Reads the function tools of a request, in the form of chat completions (`function: {…}`) or of responses. Tools of
 * other types are left out beside functions, because agent clients such as Codex always send some. Throws 400 for
 * nothing but tools of other types, and for too many.
 */
export function readTools(given: readonly unknown[] | null | undefined): ClientTool[] {
  const functions = (given ?? []).filter((one) => typeOf(one) === 'function')
  const isTyped = given?.every((one) => typeof typeOf(one) === 'string')
  if (given?.length && !(functions.length && isTyped)) {
    const detail = 'Tools of the service are set on the agent: allowedTools, skills and MCP servers.'
    throw badRequest('Invalid value for field: tools. Expected functions', { detail })
  }
  const tools = functions.map((one): ClientTool => {
    const nested = (one as { function?: unknown }).function
    const { name, description, parameters } = functionTool.parse(nested ?? one)
    return { name, description: description ?? '', parameters: parameters ?? { type: 'object', properties: {} } }
  })
  if (tools.length > MAX_TOOLS || JSON.stringify(tools).length > MAX_TOOL_TEXT) {
    const detail = `A request has at most ${MAX_TOOLS} tools with ${MAX_TOOL_TEXT} characters together.`
    throw badRequest('Invalid value for field: tools. Expected fewer or shorter tools', { detail })
  }
  if (new Set(tools.map(({ name }) => name)).size < tools.length) {
    throw invalidField('tools', 'different names', 'Give each function a name of its own.')
  }
  return tools
}
