import type { JSONSchema7 } from '@ai-sdk/provider'
import { z } from 'zod'
import { badRequest } from '../errors.ts'
import type { Tool, ToolCall } from '../executions/engine/tools.ts'
import { checkInput } from './fields.ts'
import { fitting } from './page.ts'

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

/** How much of a tool's answer a model is shown, in bytes: a skill's prompt of 100,000 characters is shown whole. */
export const MAX_RESULT = 512 * 1024

/** What a page has beside its rows. */
const MAX_FRAME = 1024

/** As many rows of a page as are shown whole, from the first on; one at least. */
export const shownWhole = <Row>(rows: readonly Row[]): Row[] => fitting(rows, rows.length, MAX_RESULT - MAX_FRAME)

/** Cuts a text of more characters than told, and says so. */
export function cut(text: string, length: number): string {
  const end = endOf(text, length)
  return end === text.length ? text : `${text.slice(0, end)}…`
}

/** The first characters of a text. */
export const beginning = (text: string, length: number): string => text.slice(0, endOf(text, length))

/** Where so many characters of a text end, from an index on. They are code points, as in all limits. */
export function endOf(text: string, length: number, from = 0): number {
  if (text.length - from <= length) return text.length
  let end = from
  for (let left = length; left > 0 && end < text.length; left--) end += (text.codePointAt(end) ?? 0) > 0xffff ? 2 : 1
  return end
}
