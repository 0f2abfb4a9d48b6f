import { createHash } from 'node:crypto'
import type { JSONSchema7 } from '@ai-sdk/provider'
import { z } from 'zod'
import type { Actor } from '../../../auth/actor.ts'
import type { Scope } from '../../../auth/scopes.ts'
import type { Tx } from '../../../db/client.ts'
import { badRequest } from '../../../errors.ts'
import { checkInput } from '../../../lib/fields.ts'
import { fitting } from '../../../lib/page.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { ServerNow } from '../queue/authority.ts'
import type { AgentRow } from '../queue/claims.ts'
import type { Warn } from './warnings.ts'

/** A picture that a tool answered with: png, jpeg, gif or webp, in base64. */
export type Picture = { mediaType: string; data: string }

/**
 * What a tool answered: shown to the model as data, never as an instruction. `content` names each of its `pictures`,
 * for those who cannot see them.
 */
export type ToolResult = { content: string; isError: boolean; pictures?: readonly Picture[] }

export type ToolCall = {
  toolUseId: string
  /** Aborts with the run, with its cancellation and when the call took too long. */
  signal: AbortSignal
  /** Says that the tool is at work: the time that a call may take begins anew. */
  progressed(): void
  /** The run that this call started before its process died. */
  childExecutionId: string | null
  /** The same as the database knows it: the word of a run that was accepted may have got lost. */
  findChild(): Promise<string | null>
  /** Says, in the transaction that accepts it, which run this call starts. */
  adopt(tx: Tx, childExecutionId: string): Promise<void>
}

/** One thing that a run's model can call. */
export type Tool = {
  /** As the model calls it: 1 to 64 letters, digits, `_` and `-`. */
  name: string
  /** Other names that lists and models may use for it, such as the one that its server gives it. */
  aliases?: readonly string[]
  /** What a call of it goes to. A run that goes on makes a call only to what the model was offered when it made it. */
  target: string
  description: string
  inputSchema: JSONSchema7
  /** `ask`: a person decides about each call first (contract.md section 7, "Approvals"). */
  mode: 'allow' | 'ask'
  /** The MCP server of the tool, as a person who decides about a call sees it. Absent for the service's own tools. */
  server?: { id: string; name: string; origin: string }
  /**
   * Checks right before a call whether the run may still make it, and returns the mode that holds now: one statement
   * (contract-2.md section 8.4). Throws an AppError, which becomes the error result of the call, if the run may not. A
   * tool without it checks in `call`, by `ToolUser.actor`.
   */
  recheck?(): Promise<'allow' | 'ask'>
  /**
   * Reads what the server says of the tool now, for a call that a person has approved. Returns null if the tool is gone.
   * Throws an AppError if the server cannot be reached.
   */
  describe?(signal: AbortSignal): Promise<Described | null>
  /**
   * Each call starts a run, and waits for it: side by side with others of its step, for as long as it takes. After a
   * restart the call is made again, with the run it had started.
   */
  delegates?: true
  /** Throws an AppError for what the caller may not, which becomes an error result. */
  call(input: unknown, call: ToolCall): Promise<ToolResult>
}

/** What a tool says of itself: what a person approves beside the input. */
export type Described = Pick<Tool, 'description' | 'inputSchema'>

/** Makes a digest of what a tool says of itself: an approval holds for no other one (contract-2.md section 8.2). */
export const digestOf = ({ description, inputSchema }: Described): string =>
  createHash('sha256')
    .update(JSON.stringify([description, inputSchema]))
    .digest('base64url')

/** Whether the lists of an agent let it have a tool of the service, by any of its names. */
export type IsOffered = (names: ReadonlySet<string>) => boolean

/** What a run can call, opened for it and closed with it. */
export type Toolbox = {
  tools: readonly Tool[]
  /** What the model is told of them, after its system prompt. */
  instructions: readonly string[]
  close(): Promise<void>
}

/** For whom tools are opened. */
export type ToolUser = {
  row: ExecutionRow
  agent: AgentRow
  /** Warns of what the run has to do without, for the person who reads its answer. */
  warn: Warn
  /**
   * As whom the run acts, read anew at each call: throws 403 once the membership has ended, and where the token that it
   * was started with lacks the scope that the call needs (contract.md section 2); 404 once the user cannot reach the
   * run's space (contract-2.md section 8.4).
   */
  actor: (needed?: Scope) => Promise<Actor>
  /** Reads an MCP server by its id together with the rights of the run: one statement. Throws as `actor` does. */
  server: (id: string) => Promise<ServerNow | null>
  signal: AbortSignal
}

/**
 * Opens the tools of a run that begins or goes on. What cannot be reached is left out, and the model is told so; it
 * rejects with the signal's reason only. A run across organizations gets the caller's tools, not the agent's own.
 */
export type OpenTools = (user: ToolUser) => Promise<Toolbox>

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
