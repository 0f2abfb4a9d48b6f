import { findRequestId } from '../../../auth/audit.ts'
import type { Bus } from '../../../bus/index.ts'
import { AppError } from '../../../errors.ts'
import { newId } from '../../../lib/id.ts'
import { raceAbort } from '../../../lib/race-abort.ts'
import type { Telemetry } from '../../../telemetry/telemetry.ts'
import type { StopReason } from '../../../wire.ts'
import type { EventLog, RunStream } from '../events/event-log.ts'
import { type ExecutionRow, type MessageData, type TextProgress, textSoFar, type Warning } from '../events/events.ts'
import { withAdvice } from '../models/advice.ts'
import { classifyModelError, ModelError, UNEXPECTED, withoutWords } from '../models/model-errors.ts'
import * as waits from '../queue/approvals.ts'
import * as claims from '../queue/claims.ts'
import { waitForClient } from '../queue/client-tools.ts'
import { resumeIfConnected, waitForConnection } from '../queue/connections.ts'
import * as endings from '../queue/endings.ts'
import { waitedBelow } from '../queue/tree.ts'
import { AbortReason, TimeoutError } from './abort.ts'
import type { Asking } from './asking.ts'
import type { Checkpoint } from './checkpoint.ts'
import { failedBy } from './failures.ts'
import { close, type PrepareDeps, prepareRun } from './prepare.ts'
import { retryWhileUnavailable } from './retry.ts'
import { type Emit, type Progress, runSteps } from './run.ts'
import { createRunBytes, type RunText } from './run-bytes.ts'
import type { ReadSpace } from './space.ts'
import { reasoningOf, recordsOf, replayOf } from './steps.ts'
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
type Waits = Pick<Progress, 'theirs' | 'signIns'> & { asked: readonly waits.Asked[] }

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
  const { settings, db, clock, bus, log, models, eventLog } = deps
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
    const stopClock = limitTime(state)
    let toolbox: Toolbox | null = null
    try {
      for (const data of opening) await eventLog.append(stream, data)
      state.warnings.publishTo((warning) => publishWarning(stream, warning))
      const prepared = await preparing
      state.asking = prepared.input.asking
      toolbox = prepared.toolbox
      const stopReason = await runSteps(prepared.input, progress, emitIn(state))
      if (stopReason === 'max_turns' && !state.answer.text) {
        state.answer = { ...state.answer, text: `[${limitText(prepared.input.maxTurns)}]` }
      }
      const why = stopReason && stopReason !== 'end_turn' && CUT[stopReason]
      if (why) state.warnings.warn('cut_off', stopReason === 'max_turns' ? limitText(prepared.input.maxTurns) : why)
      const { resultObject } = progress
      const object = resultObject === undefined ? {} : { resultObject }
      return { status: 'completed', result: state.answer.text, ...object, stopReason: stopReason ?? 'end_turn' }
    } catch (error) {
      const why = signal.aborted ? signal.reason : error
      if (!(why instanceof AbortReason)) return failedBy(why, await causeOf(state, why))
      if (why.reason === 'cancelled') return endings.CANCELLED
      if (why.reason === 'drained') await eventLog.flush()
      return null
    } finally {
      if (toolbox) close(deps, toolbox)
      stopClock()
    }
  }

  /**
   * Writes the final state, or suspends a run that waits for an approval, its client or a connection. Returns null if
   * it was suspended or taken over.
   */
  async function finalize(state: State, reached: endings.Outcome | null): Promise<ExecutionRow | null> {
    const { row, stream, progress, answer: lastAnswer } = state
    if (!reached) {
      eventLog.close(stream, null)
      return null
    }
    let outcome = reached
    const asked = outcome.status === 'completed' ? askedIn(progress) : []
    const theirs = outcome.status === 'completed' ? progress.theirs : []
    const signIns = outcome.status === 'completed' ? progress.signIns : []
    const { usage, steps } = progress
    state.warnings.publishTo(null)
    const by = askedOf(state)
    const isKept = steps.length > 0 && steps.at(-1)?.parts === progress.last
    const left = {
      text: lastAnswer.text,
      toolCalls: recordsOf(steps),
      ...by,
      usage,
      warnings: state.warnings.all,
      replay: replayOf(steps, isKept ? [] : progress.last, by.model),
      reasoning: reasoningOf(steps, isKept ? [] : progress.last),
    }
    const final = { ...left, ...(await eventLog.seal(stream)) }
    const again = (error: unknown) =>
      log.error({ err: error, executionId: row.id }, 'failed to store the end of a run, retrying')
    if (asked.length || theirs.length || signIns.length) {
      const instead = await suspend(state, { asked, theirs, signIns }, final, again)
      if (!instead) return null
      outcome = instead
    }
    const ended = await retryWhileUnavailable(() => deps.end(row, outcome, final), deps.stopped, again)
    eventLog.close(stream, ended)
    return ended
  }

  /** Suspends a run. Returns null if it did, otherwise the outcome with which the run ends instead. */
  async function suspend(
    state: State,
    { asked, theirs, signIns }: Waits,
    final: endings.FinalState,
    again: (error: unknown) => void,
  ): Promise<endings.Outcome | null> {
    const { row, stream, progress } = state
    const { claimDeps } = deps
    const write = () => {
      if (asked.length)
        return waits.suspend({ ...claimDeps, approvalTimeout: settings.APPROVAL_TIMEOUT }, row, asked, final)
      if (theirs.length) return waitForClient(claimDeps, row, theirs, final)
      return waitForConnection(claimDeps, row, progress.steps.at(-1)?.step ?? 0, signIns, final)
    }
    try {
      if (!(await retryWhileUnavailable(write, deps.stopped, again))) return endings.CANCELLED
      eventLog.close(stream, null)
      bus.publish('execution', [row.id])
      bus.publish('chat', [row.chatId])
      bus.publish(
        'approval',
        asked.map(({ id }) => id),
      )
      if (signIns.length && (await resumeIfConnected(claimDeps, row, signIns)))
        bus.publish('pending', [row.organizationId])
      return null
    } catch (error) {
      if (deps.stopped.aborted) throw error
      return failedBy(error, await causeOf(state, error))
    }
  }

  /**
   * Stops a run after EXECUTION_TIMEOUT, not counting the time in which it or its delegates waited for approvals. A run
   * that waited longer than can be recorded restarts with the full time. Returns a function that stops the timer.
   */
  function limitTime({ row, controller }: State): () => void {
    const now = clock.now().getTime()
    const since = row.waitedMs < claims.MAX_WAITED ? (row.startedAt ?? row.createdAt).getTime() + row.waitedMs : now
    const patience = since + settings.EXECUTION_TIMEOUT - now
    let over = false
    let granted = 0
    const expire = async () => {
      const waited = await waitedBelow(db, row, clock.now()).catch(() => 0)
      if (over) return
      if (waited <= granted) return controller.abort(new TimeoutError('The run took too long'))
      timer = setTimeout(expire, waited - granted)
      granted = waited
    }
    let timer = setTimeout(expire, Math.max(0, patience))
    return () => {
      over = true
      clearTimeout(timer)
    }
  }

  /**
   * Returns the provider's message only where it may appear: a provider may repeat the prompt, which must not reach the
   * log or another organization. Logs the failure, with the request that started the run.
   */
  async function causeOf(state: State, why: unknown): Promise<string> {
    const { row } = state
    const { model } = askedOf(state)
    const isOurs = why instanceof TimeoutError || why instanceof ModelError || why instanceof AppError
    const cause = statedBy(why) ?? models.describeError(why, row.organizationId)
    const isProviders = !(isOurs || cause === UNEXPECTED)
    const wordless = isProviders ? withoutWords(cause) : cause
    const { kind, status, provider } = classifyModelError(why, { provider: model?.split('/', 1)[0] ?? null })
    const advice = models.adviceOn(why, row.organizationId, model)
    // Errors of the network have no words of a provider.
    const detail = withAdvice(kind === 'connection' ? cause : wordless, advice)
    const facts = { provider, model, status, code: failedBy(why, cause).errorCode, detail }
    const { id: executionId, organizationId } = row
    const requestId = await findRequestId(db, { organizationId, action: 'agent.execute', target: executionId })
    log.warn({ executionId, requestId, ...facts, ...(cause === UNEXPECTED && { err: why }) }, 'a run failed')
    return withAdvice(row.agentOrganizationId === row.organizationId ? cause : wordless, advice)
  }

  // Not async, because an async function would retain its arguments, including the agent's prompt, until the end.
  return (row, agent, from, stream, controller, space) => {
    const { usage, steps, answer: lastAnswer, opening, warnings } = from
    const progress: Progress = { usage: { ...usage }, steps: [...steps], asks: [], theirs: [], signIns: [], last: [] }
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

/** Returns the message of an error of the service, or null for any other error. */
function statedBy(why: unknown): string | null {
  if (why instanceof TimeoutError) return 'timeout'
  return why instanceof AppError ? (why.detail ?? why.message) : null
}

/** Returns the model that the run asked last and those before it. */
const askedOf = ({ row, asking }: State) =>
  asking
    ? { model: asking.current().id, modelsTried: asking.tried() }
    : { model: row.model, modelsTried: row.modelsTried as string[] }
const limitText = (maxTurns: number) => `The run reached its limit of ${maxTurns} turns before it was done`

/** Warnings of runs that completed with an incomplete answer. */
const CUT: Partial<Record<StopReason, string>> = {
  max_tokens: 'The answer was cut off: the model reached its limit of tokens, or its stream ended early (max_tokens)',
  content_filter: 'The answer was cut off by a content filter (content_filter)',
  max_turns: 'The run reached its limit of turns (max_turns)',
}

/** Returns the calls that a person must decide, each with the id of its approval. */
const askedIn = ({ steps, asks }: Progress): waits.Asked[] =>
  asks.map((ask) => ({ id: newId(), step: steps.at(-1)?.step ?? 0, ...ask }))
