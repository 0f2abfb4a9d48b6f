import { createHash } from 'node:crypto'
import type { JSONSchema7 } from '@ai-sdk/provider'
import { z } from 'zod'
import type { Actor } from '../../../auth/actor.ts'
import type { Scope } from '../../../auth/scopes.ts'
import type { Tx } from '../../../db/client.ts'
import { badRequest } from '../../../errors.ts'
import { withPlainNumbers } from '../../../lib/exact-json.ts'
import { checkInput } from '../../../lib/fields.ts'
import { canonical } from '../../../lib/json.ts'
import { takeWithinBudget } from '../../../lib/page.ts'
import { asObject, isObject } from '../../../lib/unknown.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { ServerNow } from '../queue/authority.ts'
import type { AgentRow } from '../queue/claims.ts'
import type { Warn } from './warnings.ts'

/** A picture returned by a tool: png, jpeg, gif or webp, in base64. */
export type Picture = { mediaType: string; data: string }

/**
 * Result of a tool, given to the model as data, never as an instruction. `content` names each of its `pictures` for
 * models that cannot see them.
 */
export type ToolResult = { content: string; isError: boolean; pictures?: readonly Picture[] }

export type ToolCall = {
  toolUseId: string
  /** Aborts with the run, on cancellation, and when the call times out. */
  signal: AbortSignal
  /** Reports progress, which restarts the time limit of the call. */
  progressed(): void
  /** The run that this call started before its process died. */
  childExecutionId: string | null
  /** Reads the same from the database, because the response of the accepting process may have been lost. */
  findChild(): Promise<string | null>
  /** Records the run that this call starts, in the transaction that accepts it. */
  adopt(tx: Tx, childExecutionId: string): Promise<void>
}

/** A tool that the model of a run can call. */
export type Tool = {
  /** Name for the model: 1 to 64 letters, digits, `_` and `-`. */
  name: string
  /** Other names that lists and models may use, such as the tool's name on its server. */
  aliases?: readonly string[]
  /** Identifies the target of a call. A resumed run makes a call only if its tool still has the same target. */
  target: string
  description: string
  inputSchema: JSONSchema7
  /** `ask`: a person must approve each call first (contract.md section 7, "Approvals"). */
  mode: 'allow' | 'ask'
  /** The MCP server of the tool, for the person who decides. Absent for built-in tools. */
  server?: { id: string; name: string; origin: string }
  /**
   * Checks right before a call, in one statement, whether the run may still make it (contract-2.md section 8.4).
   * Returns the current mode. Throws an AppError, which becomes the call's error result, if it may not. A tool without
   * this method checks in `call`, with `ToolUser.actor`.
   */
  recheck?(): Promise<'allow' | 'ask'>
  /**
   * Reads the tool's current description from its server, for an approved call. Returns null if the tool no longer
   * exists. Throws an AppError if the server is unreachable.
   */
  describe?(signal: AbortSignal): Promise<Described | null>
  /** The client that started the run makes the calls: the run waits for their results. */
  isClients?: true
  /**
   * Each call starts a run and waits for it, in parallel with others of its step and without a time limit. After a
   * restart the call resumes with the run it had started.
   */
  delegates?: true
  /** Throws an AppError, which becomes the error result, if the caller lacks permission. */
  call(input: unknown, call: ToolCall): Promise<ToolResult>
}

/** Description of a tool, which a person approves together with the input. */
export type Described = Pick<Tool, 'description' | 'inputSchema'>

/**
 * Returns a digest of a tool's description. An approval is valid for this description only (contract-2.md section 8.2).
 * The order of fields makes no difference, because some servers list them in another order each time.
 */
export const digestOf = ({ description, inputSchema }: Described): string =>
  sha256(canonical([description, withSortedNames(inputSchema)]))

/** Returns whether a digest is of a tool's description. Older versions digested it as its server had written it. */
export const isDigestOf = (digest: string, described: Described): boolean =>
  digest === digestOf(described) || digest === sha256(JSON.stringify([described.description, described.inputSchema]))

const sha256 = (text: string): string => createHash('sha256').update(text).digest('base64url')

/** Sorts the names of required fields in a schema. */
const withSortedNames = (schema: Described['inputSchema']): unknown =>
  JSON.parse(
    JSON.stringify(schema, (name, part) => (name === 'required' && Array.isArray(part) ? part.toSorted() : part)),
  )

/** Returns whether an agent's lists permit a built-in tool, by any of its names. */
export type IsOffered = (names: ReadonlySet<string>) => boolean

/** The tools of a run, opened and closed with it. */
export type Toolbox = {
  tools: readonly Tool[]
  /** Instructions about the tools, added after the system prompt. */
  instructions: readonly string[]
  /** Returns a sentence about the server of a missing tool, by the target of a call, if it cannot be reached now. */
  whyMissing?(target: string): string | null
  /** Returns all tools again if a server has announced other ones, or null. Rejects with the signal's reason. */
  refresh?(): Promise<readonly Tool[] | null>
  close(): Promise<void>
}

/** Context in which tools are opened. */
export type ToolUser = {
  row: ExecutionRow
  agent: AgentRow
  /** Adds a warning about a missing feature, for the person who reads the answer. */
  warn: Warn
  /**
   * Reads the run's current rights at each call. Throws 403 after the membership has ended, or if the token that
   * started the run lacks the needed scope (contract.md section 2). Throws 404 if the user cannot reach the run's space
   * any more (contract-2.md section 8.4).
   */
  actor: (needed?: Scope) => Promise<Actor>
  /** Reads an MCP server by id together with the rights of the run, in one statement. Throws like `actor`. */
  server: (id: string) => Promise<ServerNow | null>
  signal: AbortSignal
}

/**
 * Opens the tools of a run that starts or resumes. Leaves unreachable tools out and informs the model. Rejects only
 * with the signal's reason. A run across organizations gets the caller's tools, not the agent's own.
 */
export type OpenTools = (user: ToolUser) => Promise<Toolbox>

/**
 * Defines a built-in tool: its description, and a factory that creates it for a run. The schema validates the input
 * like a request. `run` returns text or a value that becomes JSON.
 */
export function defineTool<Schema extends z.ZodObject>(name: string, description: string, schema: Schema) {
  const { $schema: _, ...inputSchema } = z.toJSONSchema(schema, { io: 'input' })
  const takes = (field: string, value: unknown) => schema.shape[field]?.safeParse(value).success === true
  const unset = new Set(Object.keys(schema.shape).filter((field) => takes(field, undefined) && !takes(field, null)))
  // Models write an empty text for an optional field that they do not need. `fitInput` has read all others.
  const isGiven = ([field, value]: [string, unknown]) => value !== '' || !unset.has(field)
  return (run: (input: z.output<Schema>, call: ToolCall) => Promise<unknown>): Tool => ({
    name,
    target: name,
    description,
    inputSchema: inputSchema as JSONSchema7,
    mode: 'allow',
    async call(given, call) {
      const input = withPlainNumbers(given)
      checkInput(input)
      const parsed = schema.safeParse(
        isObject(input) ? Object.fromEntries(Object.entries(input).filter(isGiven)) : input,
      )
      if (!parsed.success) throw badRequest(problemOf(parsed.error))
      call.signal.throwIfAborted()
      const answer = await run(parsed.data, call)
      return { content: typeof answer === 'string' ? answer : JSON.stringify(answer), isError: false }
    },
  })
}

/** Returns the first problem of an input, with advice if there is some. */
function problemOf({ issues: [issue] }: z.ZodError): string {
  const { detail } = issue?.code === 'custom' ? asObject(issue.params) : {}
  return [issue?.message ?? 'Invalid input', detail].filter(Boolean).join('. ')
}

/** Maximum size of a tool result for the model (bytes). A skill's prompt of 100,000 characters fits. */
export const MAX_RESULT = 512 * 1024

/** Size of a page besides its rows (bytes). */
const MAX_FRAME = 1024

/** Returns the first rows of a page that fit in a result without being cut, at least one. */
export const takeForResult = <Row>(rows: readonly Row[]): Row[] =>
  takeWithinBudget(rows, rows.length, MAX_RESULT - MAX_FRAME)
