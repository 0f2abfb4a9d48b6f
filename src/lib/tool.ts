import type { JSONSchema7 } from '@ai-sdk/provider'
import { z } from 'zod'
import { badRequest } from '../errors.ts'
import type { Tool, ToolCall } from '../executions/engine/tools.ts'
import { checkInput } from './fields.ts'

/**
 * A tool of the service: what it says of itself, once, and what makes one of it for a run. The input is checked by the
 * schema, as a request's is; `run` answers text, or what becomes JSON.
 */
export function defineTool<Schema extends z.ZodObject>(name: string, description: string, schema: Schema) {
  const { $schema: _, ...inputSchema } = z.toJSONSchema(schema, { io: 'input' })
  return (run: (input: z.output<Schema>, call: ToolCall) => Promise<unknown>): Tool => ({
    name,
    target: name,
    description,
    inputSchema: inputSchema as JSONSchema7,
    mode: 'allow',
    async call(input, call) {
      checkInput(input)
      const parsed = schema.safeParse(input)
      if (!parsed.success) throw badRequest(parsed.error.issues[0]?.message ?? 'Invalid input')
      call.signal.throwIfAborted()
      const answer = await run(parsed.data, call)
      return { content: typeof answer === 'string' ? answer : JSON.stringify(answer), isError: false }
    },
  })
}

/** Cuts a long text, and says so. Never within a character. */
export function cut(text: string, length: number): string {
  return text.length <= length ? text : `${beginning(text, length)}…`
}

/** The beginning of a text. Never ends within a character. */
export const beginning = (text: string, length: number): string => text.slice(0, endAt(text, length))

/** The end of a slice of a text that is no longer than told and has no half of a character at it. */
export function endAt(text: string, end: number): number {
  const last = text.charCodeAt(end - 1)
  return end < text.length && last >= 0xd800 && last < 0xdc00 ? end - 1 : end
}
