import type { Bus } from '../../../bus/index.ts'
import { newId } from '../../../lib/id.ts'
import { raceAbort } from '../../../lib/race-abort.ts'
import type { Telemetry } from '../../../telemetry/telemetry.ts'
import type { StopReason } from '../../../wire.ts'
import type { EventLog } from '../events/event-log.ts'
import { type ExecutionRow, type MessageData, type TextProgress, textSoFar, type Warning } from '../events/events.ts'
import type { RunStream } from '../events/run-stream.ts'
import * as waits from '../queue/approvals.ts'
import type * as claims from '../queue/claims.ts'
import { waitForClient } from '../queue/client-tools.ts'
import { resumeIfConnected, waitForConnection } from '../queue/connections.ts'
import * as endings from '../queue/endings.ts'
import { AbortReason } from './abort.ts'
import type { Asking } from './asking.ts'
import { logCause } from './causes.ts'
import type { Checkpoint } from './checkpoint.ts'
import { failedBy } from './failures.ts'
import { close, type PrepareDeps, prepareRun } from './prepare.ts'
import { retryWhileUnavailable } from './retry.ts'
import { type Emit, type Progress, runSteps } from './run.ts'
import { createRunBytes, type RunText } from './run-bytes.ts'
import type { ReadSpace } from './space.ts'
import { reasoningOf, recordsOf, replayOf } from './steps.ts'
import { limitTime } from './time-limit.ts'
import type { Toolbox } from './tools.ts'
import { createWarnings, type Warnings } from './warnings.ts'

export type AttemptDeps = PrepareDeps & {
  bus: Bus
  claimDeps: claims.ClaimDeps
  eventLog: EventLog
  telemetry: Telemetry
  /** Aborted when this process shuts down. */
  stopped: AbortSignal
  /** Writes the final state. Returns null if another process took the run over. */
  end: (row: ExecutionRow, outcome: endings.Outcome, final: endings.FinalState) => Promise<ExecutionRow | null>
}

/** One attempt at a run, from its claim until the run ends, waits for an approval or is taken over. */
export type RunAttempt = (
  row: ExecutionRow,
  agent: claims.AgentRow,
  from: Checkpoint,
  stream: RunStream,
  controller: AbortController,
  space?: ReadSpace,
) => Promise<ExecutionRow | null>

/** Decisions of people, tools of the client, and connections to MCP servers that a run waits for. */
type Waits = Pick<Progress, 'clientCalls' | 'signIns'> & { approvals: readonly waits.ApprovalRequest[] }

type Prepared = Awaited<ReturnType<typeof prepareRun>>

/** State of an attempt, which is also the partial result if the attempt is stopped. */
type State = {
  readonly row: ExecutionRow
  readonly stream: RunStream
  readonly controller: AbortController
  readonly progress: Progress
  readonly warnings: Warnings
  answer: TextProgress
  asking: Pick<Asking, 'current' | 'tried'> | null
  /** Text counted towards the limit of all runs. */
  readonly bytes: RunText
}

/** Returns the function that executes attempts. */
export function createAttempts(deps: AttemptDeps): RunAttempt {
  const { settings, bus, log, eventLog } = deps
  const runBytes = createRunBytes(settings.MAX_RUN_BYTES)

  /** Opens the model, tools and prompt of the attempt. */
  async function prepare(
    { row, controller, warnings, progress }: State,
    agent: claims.AgentRow,
    space?: ReadSpace,
  ): Promise<Prepared> {
    const { warn } = warnings
    const answered = progress.steps.at(-1)?.model ?? null
    const equipment = await retryWhileUnavailable(
      () => prepareRun(deps, { row, agent, controller, warn, space }, answered),
      controller.signal,
    )
    return { ...equipment, input: deps.telemetry.begin(row, agent, equipment) }
  }

  /** Returns a function that numbers and publishes messages. */
  function emitIn(state: State): Emit {
    const { stream } = state
    const { signal } = state.controller
    return (data) => {
      signal.throwIfAborted()
      if (data.messageType === 'warning') return void state.warnings.warn(data.code, data.text)
      state.answer = textSoFar(state.answer, data)
      runBytes.add(state.bytes, data)
      const reservation = eventLog.append(stream, data)
      return reservation && raceAbort(reservation, signal).then(() => signal.throwIfAborted())
    }
  }

  /** Publishes a warning without waiting. Warnings are few, and the next message waits for a sequence number anyway. */
  const publishWarning = (stream: RunStream, warning: Warning) =>
    void eventLog.append(stream, { messageType: 'warning', ...warning })

  /** Runs the attempt to its outcome. Returns null if another process took the run over or this process shuts down. */
  async function execute(
    state: State,
    opening: readonly MessageData[],
    preparing: Promise<Prepared>,
  ): Promise<endings.Outcome | null> {
    const { stream, progress } = state
    const { signal } = state.controller
    const stopClock = limitTime(deps, state.row, state.controller, settings.EXECUTION_TIMEOUT)
    let toolbox: Toolbox | null = null
    try {
      for (const data of opening) await eventLog.append(stream, data)
      state.warnings.publishTo((warning) => publishWarning(stream, warning))
      const prepared = await preparing
      state.asking = prepared.input.asking
      toolbox = prepared.toolbox
      const stopReason = await runSteps(prepared.input, progress, emitIn(state))
      return complete(state, stopReason, prepared.input.maxTurns)
    } catch (error) {
      return await stop(state, signal.aborted ? signal.reason : error)
    } finally {
      if (toolbox) close(deps, toolbox)
      stopClock()
    }
  }

  /** Returns the outcome of a run that was stopped or has failed. Returns null like `execute`. */
  async function stop(state: State, why: unknown): Promise<endings.Outcome | null> {
    if (!(why instanceof AbortReason)) return failedBy(why, await causeOf(state, why))
    if (why.reason === 'cancelled') return endings.CANCELLED
    if (why.reason === 'drained') await eventLog.flush()
    return null
  }

  const causeOf = (state: State, why: unknown) => logCause(deps, state.row, askedOf(state).model, why)

  /**
   * Writes the final state, or suspends a run that waits for an approval, its client or a connection. Returns null if
   * it was suspended or taken over.
   */
  async function finalize(state: State, reached: endings.Outcome | null): Promise<ExecutionRow | null> {
    const { row, stream } = state
    if (!reached) {
      eventLog.close(stream, null)
      return null
    }
    state.warnings.publishTo(null)
    const final = { ...resultOf(state), ...(await eventLog.seal(stream)) }
    const again = (error: unknown) =>
      log.error({ err: error, executionId: row.id }, 'failed to store the end of a run, retrying')
    const waiting = reached.status === 'completed' ? waitsIn(state.progress) : null
    const outcome = waiting ? await suspend(state, waiting, final, again) : reached
    if (!outcome) return null
    const ended = await retryWhileUnavailable(() => deps.end(row, outcome, final), deps.stopped, again)
    eventLog.close(stream, ended)
    return ended
  }

  /** Suspends a run. Returns null if it did, otherwise the outcome with which the run ends instead. */
  async function suspend(
    state: State,
    { approvals, clientCalls, signIns }: Waits,
    final: endings.FinalState,
    again: (error: unknown) => void,
  ): Promise<endings.Outcome | null> {
    const { row, stream, progress } = state
    const { claimDeps } = deps
    const write = () => {
      if (approvals.length)
        return waits.suspend({ ...claimDeps, approvalTimeout: settings.APPROVAL_TIMEOUT }, row, approvals, final)
      if (clientCalls.length) return waitForClient(claimDeps, row, clientCalls, final)
      return waitForConnection(claimDeps, row, progress.steps.at(-1)?.step ?? 0, signIns, final)
    }
    try {
      if (!(await retryWhileUnavailable(write, deps.stopped, again))) return endings.CANCELLED
      eventLog.close(stream, null)
      bus.publish('execution', [row.id])
      bus.publish('chat', [row.chatId])
      bus.publish(
        'approval',
        approvals.map(({ id }) => id),
      )
      if (signIns.length && (await resumeIfConnected(claimDeps, row, signIns)))
        bus.publish('pending', [row.organizationId])
      return null
    } catch (error) {
      if (deps.stopped.aborted) throw error
      return failedBy(error, await causeOf(state, error))
    }
  }

  // Not async, because an async function would retain its arguments, including the agent's prompt, until the end.
  return (row, agent, from, stream, controller, space) => {
    const { usage, steps, answer: lastAnswer, opening, warnings } = from
    const progress: Progress = {
      usage: { ...usage },
      steps: [...steps],
      asks: [],
      clientCalls: [],
      signIns: [],
      last: [],
    }
    const state: State = {
      row,
      stream,
      controller,
      progress,
      warnings: createWarnings(warnings),
      answer: lastAnswer,
      asking: null,
      bytes: runBytes.open(controller),
    }
    const preparing = prepare(state, agent, space)
    preparing.catch(() => {})
    return execute(state, opening, preparing)
      .then((outcome) => finalize(state, outcome))
      .finally(() => runBytes.close(state.bytes))
  }
}

/** Returns the model that the run asked last and those before it. */
const askedOf = ({ row, asking }: State) =>
  asking
    ? { model: asking.current().id, modelsTried: asking.tried() }
    : { model: row.model, modelsTried: row.modelsTried as string[] }

/** Returns the result of an attempt, which may be incomplete. */
function resultOf(state: State) {
  const { steps, usage, last } = state.progress
  const asked = askedOf(state)
  const isKept = steps.length > 0 && steps.at(-1)?.parts === last
  return {
    text: state.answer.text,
    toolCalls: recordsOf(steps),
    ...asked,
    usage,
    warnings: state.warnings.all,
    replay: replayOf(steps, isKept ? [] : last, asked.model),
    reasoning: reasoningOf(steps, isKept ? [] : last),
  }
}

/** Returns the outcome of a run that ended by itself. Warns if its answer is incomplete. */
function complete(state: State, stopReason: StopReason | null, maxTurns: number): endings.Outcome {
  if (stopReason === 'max_turns' && !state.answer.text) {
    state.answer = { ...state.answer, text: `[${limitText(maxTurns)}]` }
  }
  const why = stopReason === 'max_turns' ? limitText(maxTurns) : stopReason && CUT[stopReason]
  if (why) state.warnings.warn('cut_off', why)
  const { resultObject } = state.progress
  return {
    status: 'completed',
    result: state.answer.text,
    ...(resultObject !== undefined && { resultObject }),
    stopReason: stopReason ?? 'end_turn',
  }
}

const limitText = (maxTurns: number) => `The run reached its limit of ${maxTurns} turns before it was done`

/** Warnings of runs that completed with an incomplete answer. */
const CUT: Partial<Record<StopReason, string>> = {
  max_tokens: 'The answer was cut off: the model reached its limit of tokens, or its stream ended early (max_tokens)',
  content_filter: 'The answer was cut off by a content filter (content_filter)',
}

/** Returns what a run waits for: its calls that a person must decide get the ids of their approvals. Null for nothing. */
function waitsIn({ steps, asks, clientCalls, signIns }: Progress): Waits | null {
  if (!asks.length && !clientCalls.length && !signIns.length) return null
  const step = steps.at(-1)?.step ?? 0
  return { approvals: asks.map((ask) => ({ id: newId(), step, ...ask })), clientCalls, signIns }
}
