import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import { invalidField } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import type { ClientTool } from '../../executions/engine/queue/requests.ts'
import { readable } from '../../executions/service.ts'
import { asText, isObject } from '../../lib/unknown.ts'
import { type ClientCall, readParts } from '../shared/run-parts.ts'
import { readTools } from '../shared/tools.ts'
import { type ClientResult, createUnanswered } from '../shared/turns.ts'
import { allowedBy } from './settings.ts'

// The functions of chat completions before `tools` (2023): one call at a time, without an id. Some clients of `tools`
// send no ids either, or ids of their own: gateways shorten long ones.

/** The fields of a request with functions. */
export const FUNCTIONS = {
  functions: z.array(z.unknown()).nullish(),
  function_call: z.unknown().optional(),
}

type Given = {
  tools?: unknown[] | null | undefined
  tool_choice?: unknown
  functions?: unknown[] | null | undefined
  function_call?: unknown
}

/** The tools of a request, its choice among them, and whether both have the form without ids. */
export type GivenTools = { tools: ClientTool[]; choice: unknown; isLegacy: boolean }

/** Reads the tools of a request in either form. Throws 400 for both forms together. */
export function readEitherTools(given: Given): GivenTools {
  const { functions, function_call: call } = given
  if (!functions?.length) {
    if (isObject(call)) {
      throw invalidField('function_call', 'it beside functions', 'Send `functions` too, or leave it out.')
    }
    return { ...allowedBy(given.tool_choice, readTools(given.tools)), isLegacy: false }
  }
  if (given.tools?.length) throw invalidField('functions', 'either functions or tools', 'Leave one of them out.')
  return {
    tools: readTools(functions.map((one) => ({ type: 'function', function: one }))),
    choice: isObject(call) ? { type: 'function', function: { name: call.name } } : call,
    isLegacy: true,
  }
}

/** A call in a client's messages, with the result if the client has it. */
type MadeCall = ClientCall & { result: string | null }

/** The calls since a question. */
type Calls = { question: string; calls: readonly MadeCall[] }

/** Collects the calls of a client's messages, and gives each without an id one for its turn. */
export function createCalls() {
  let question = ''
  let calls: MadeCall[] = []
  let unanswered = createUnanswered<MadeCall>()
  let count = 0
  return {
    ask(text: string): void {
      question = text
      calls = []
      unanswered = createUnanswered()
    },
    /** Returns the id of a call. */
    call(name: string, input: unknown, given?: string | null): string {
      const id = given || `function_${count++}`
      const call = { id, name, input, result: null }
      calls.push(call)
      for (const key of ['', `name ${name}`, `id ${id}`]) unanswered.add(key, call)
      return id
    },
    /** Returns the id of the call that a result belongs to. Without an id it is the first of that name without one. */
    result(name: unknown, result: string, id?: string | null): string {
      const found = unanswered.first(id ? `id ${id}` : name ? `name ${asText(name)}` : '')
      if (found) found.result = result
      return found?.id ?? id ?? ''
    },
    /** Returns the question and the calls since. */
    finish: (): Calls => ({ question, calls }),
  }
}

/** Maximum age of a run that is compared with a client's calls (ms). */
const MAX_AGE = 24 * 60 * 60 * 1000
/** Maximum number of compared runs that wait for a client, and again of the others. */
const MAX_RUNS = 20

/**
 * Finds the run that a client's calls without ids belong to: the one whose question, names and inputs are the same.
 * `results` are those of its latest step, with ids. `next` is a call of that step without a result, because the client
 * got another one first. Returns null if no run of the caller fits.
 */
export async function findRun(
  actor: Actor,
  deps: Deps,
  agent: Pick<CachedAgent, 'id'>,
  { question, calls }: Calls,
): Promise<{ row: ExecutionRow; results: ClientResult[]; next: ClientCall | null } | null> {
  const since = new Date(deps.clock.now().getTime() - MAX_AGE)
  const where = {
    AND: [{ agentId: agent.id, userId: actor.userId, createdAt: { gte: since } }, readable(actor)],
    message: question,
  }
  const orderBy = [{ createdAt: 'desc' as const }, { id: 'desc' as const }]
  // Other runs are of use if the client repeats a request.
  const waitingFor = 'client_tool' as const
  for (const kind of [{ waitingFor }, { OR: [{ waitingFor: null }, { waitingFor: { not: waitingFor } }] }]) {
    for (const row of await deps.db.execution.findMany({ where: { ...where, ...kind }, orderBy, take: MAX_RUNS })) {
      const step = await findStep(deps, row, calls)
      if (!step) continue
      const results = step.map(({ id, result }) => ({ id, isError: false, content: result ?? '' }))
      return { row, results, next: step.find(({ result }) => result === null) ?? null }
    }
  }
  return null
}

/**
 * Returns the calls of the latest step that a client's calls reach, with their results. Null if the run made others, or
 * if one that the client got has no result.
 */
async function findStep(deps: Deps, row: ExecutionRow, calls: readonly MadeCall[]): Promise<MadeCall[] | null> {
  let reached = 0
  for await (const part of readParts(deps, row)) {
    if (part.type !== 'client-tools') continue
    const step = part.calls.map((call, index) => ({ ...call, result: calls[reached + index]?.result ?? null }))
    const fits = step.every(({ name, input }, index) => {
      const made = calls[reached + index]
      return !made || (made.result !== null && made.name === name && isDeepStrictEqual(made.input, input))
    })
    if (!fits || !calls.length) return null
    reached += step.length
    if (reached >= calls.length) return step
  }
  return null
}
