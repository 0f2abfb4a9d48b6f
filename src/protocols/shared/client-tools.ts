import { isDeepStrictEqual } from 'node:util'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import type { Prisma } from '../../db/client.ts'
import type { Deps } from '../../deps.ts'
import { AppError, badRequest } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import { findOpenCalls, giveResults } from '../../executions/engine/queue/client-tools.ts'
import type { Overrides } from '../../executions/engine/queue/requests.ts'
import type { CallRecord } from '../../executions/engine/run/steps.ts'
import { MAX_RESULT } from '../../executions/engine/run/tools.ts'
import { readable } from '../../executions/service.ts'
import { canonical } from '../../lib/json.ts'
import { cut } from '../../lib/text.ts'
import { type ClientCall, readCallId, readParts, toCallId } from './run-parts.ts'
import type { ClientResult } from './turns.ts'

/** A run, and the number of the event after which the answer to a request begins. */
export type RunFrom = { row: ExecutionRow; after: number }

/**
 * Continues the run that waits for the results of its client's tools (contract-2.md section 6.2), with the overrides
 * that the request gives. Returns the run, and the number of the event after which it continues. A repeated request
 * finds the run that it has continued. Returns null if no run of the caller has made these calls, and throws 400 if a
 * result is missing. `listed` are the calls in the client's conversation. A client that lists some calls of the step
 * has dropped the others, as those that take one call at a time do.
 */
export async function giveClientResults(
  actor: Actor,
  deps: Deps,
  agent: Pick<CachedAgent, 'id'>,
  results: readonly ClientResult[],
  given: ClientOverrides = {},
  listed: readonly Pick<CallRecord, 'id'>[] = [],
): Promise<RunFrom | null> {
  const answers = results.map((result) => ({ ...result, call: readCallId(result.id) }))
  const { executionId = '', step = 0 } = answers[0]?.call ?? {}
  const where = { AND: [{ id: executionId, agentId: agent.id, userId: actor.userId }, readable(actor)] }
  const row = await deps.db.execution.findFirst({ where })
  if (!row || answers.some(({ call }) => call?.executionId !== executionId)) return null
  const open = await findOpenCalls(deps.db, row.id)
  if (row.waitingFor !== 'client_tool' || !open.some((call) => call.step === step)) {
    const after = await numberOf(deps, row, step)
    return after === null ? null : { row, after }
  }
  const kept = listed.map(({ id }) => readCallId(id)).filter((one) => one?.step === step)
  const filled = open.map((call) => {
    const found = answers.find(({ call: one }) => one?.step === call.step && isSame(one, call))
    if (found) return { ...call, content: checked(found.content), isError: found.isError }
    const isDropped = kept.length > 0 && !kept.some((one) => one && isSame(one, call))
    if (isDropped) return { ...call, content: DROPPED, isError: true }
    throw badRequest('A result of a tool call is missing', { detail: MISSING })
  })
  const now = deps.clock.now()
  const overrides = overridesFor(row.overrides as Overrides, given)
  try {
    await deps.db.$transaction((tx) => giveResults(tx, row.id, filled, now, overrides))
  } catch (error) {
    if (!isConflict(error) || (await findOpenCalls(deps.db, row.id)).some((call) => call.step === step)) throw error
    // Pages send the same results several times at once, of which another request was the first.
    return giveClientResults(actor, deps, agent, results, given, listed)
  }
  deps.engine.resume(row)
  const changed = overrides && { overrides: overrides as Prisma.JsonObject }
  return { row: { ...row, waitingFor: null, ...changed }, after: row.seqReserved - 1 }
}

const isConflict = (error: unknown): boolean => error instanceof AppError && error.status === 409

type Named = { position?: number; toolUseId?: string }

/** Returns whether an id names a call of its step. */
const isSame = (one: Named, { position, toolUseId }: Required<Named>): boolean =>
  one.position === undefined ? one.toolUseId === toolUseId : one.position === position

/** The texts, tools and settings that a request gives a run. */
export type ClientOverrides = Pick<
  Overrides,
  'instructions' | 'clientTools' | 'demandedTool' | 'modelSettings' | 'output'
>

/**
 * Returns the overrides of the rest of a run, with those of the request with its results: after a handoff, another
 * agent of the client goes on. The others stay. Returns null if nothing changes.
 */
function overridesFor(before: Overrides, given: ClientOverrides): Overrides | null {
  const { clientTools, modelSettings } = given
  const former = before.clientTools?.filter(({ name }) => clientTools?.every((tool) => tool.name !== name)) ?? []
  const overrides = {
    ...before,
    ...given,
    ...(modelSettings && { modelSettings: { ...before.modelSettings, ...modelSettings } }),
    ...(clientTools && {
      clientTools: [...clientTools, ...former.map((tool) => ({ ...tool, isFormer: true as const }))],
    }),
  }
  return canonical(overrides) === canonical(before) ? null : overrides
}

/**
 * Gives the run that waits for its client in a session the results that the client sends before its next message.
 * `last`: the calls before that message, which tell the results of a client without ids apart by name and input.
 * Returns whether a run of the caller waits there. The message then interrupts it, because no other request continues
 * it.
 */
export async function giveEarlierResults(
  { userId }: Actor,
  deps: Pick<Deps, 'db' | 'clock'>,
  sessionId: string,
  results: readonly ClientResult[] | undefined,
  last: readonly CallRecord[] = [],
): Promise<boolean> {
  const { db, clock } = deps
  if (!results) return false
  const row = await db.execution.findFirst({ where: { sessionId, userId, waitingFor: 'client_tool' } })
  if (!row) return false
  const foreign = last.filter(({ id }) => !readCallId(id))
  const asked = foreign.length ? await askedCalls(deps, row) : []
  const filled = (await findOpenCalls(db, row.id)).flatMap((call) => {
    const id = toCallId(row.id, call.step, call.position)
    const given =
      results.findLast((result) => result.id === id) ??
      takeSame(
        foreign,
        asked.find((one) => one.id === id),
      )
    return given ? { ...call, content: cut(given.content, MAX_RESULT / 4), isError: given.isError } : []
  })
  try {
    if (filled.length) await db.$transaction((tx) => giveResults(tx, row.id, filled, clock.now()))
  } catch (error) {
    // Another request gave them, or the run has ended.
    if (!isConflict(error)) throw error
  }
  return true
}

/** Returns the calls that a run has asked its client to make. */
async function askedCalls(deps: Pick<Deps, 'db'>, row: ExecutionRow): Promise<ClientCall[]> {
  const calls: ClientCall[] = []
  for await (const part of readParts(deps, row)) if (part.type === 'client-tools') calls.push(...part.calls)
  return calls
}

/** Removes the first call with the name and the input of another one from a list. Returns its result if it has one. */
function takeSame(calls: CallRecord[], { name, input }: Partial<ClientCall> = {}): Omit<ClientResult, 'id'> | null {
  const at = calls.findIndex((one) => one.name === name && isDeepStrictEqual(one.input, input))
  const [{ result, isError } = { result: null, isError: false }] = at < 0 ? [] : calls.splice(at, 1)
  return result === null ? null : { content: result, isError }
}

/** The result of a call that the client has dropped, for the model. */
const DROPPED = 'The client did not make this call. Make one call at a time.'

const MISSING = 'Send the results of all calls of the last answer together.'

/** Returns the 400 for results that no run waits for. */
export const noneWaits = () =>
  badRequest('No run waits for these results', {
    detail: 'Send the ids of the tool calls as they came, within CLIENT_TOOL_TIMEOUT, to the same agent.',
  })

/** Refuses a result beyond the limit of tools, because the model would read half of it. */
function checked(content: string): string {
  if (Buffer.byteLength(content) <= MAX_RESULT) return content
  throw badRequest('The result of a tool is too long', { detail: `A result has at most ${MAX_RESULT} bytes.` })
}

/** Returns the number of the event with which a run asked its client to make the calls of a step, or null. */
async function numberOf(deps: Deps, row: ExecutionRow, step: number): Promise<number | null> {
  for await (const part of readParts(deps, row)) {
    if (part.type === 'client-tools' && part.calls.some(({ id }) => readCallId(id)?.step === step)) return part.seq
  }
  return null
}
