import type { Bus } from '../../bus/index.ts'
import { newId } from '../../lib/id.ts'
import { unlessAborted } from '../../lib/unless-aborted.ts'
import type { Telemetry } from '../../telemetry/telemetry.ts'
import type { Checkpoint } from './checkpoint.ts'
import * as claims from './claims.ts'
import type * as endings from './endings.ts'
import { close, type EquipDeps, equip } from './equip.ts'
import { type ExecutionRow, textSoFar } from './events.ts'
import type { Channel, Journal } from './journal.ts'
import { ModelError, UNEXPECTED } from './model-errors.ts'
import { outlast } from './outlast.ts'
import { type Progress, run, type Say } from './run.ts'
import { recordsOf } from './steps.ts'
import { Stop, TimeoutError } from './stop.ts'
import type { Toolbox } from './tools.ts'
import * as waits from './waits.ts'

export type AttemptDeps = EquipDeps & {
  bus: Bus
  claimDeps: claims.ClaimDeps
  journal: Journal
  telemetry: Telemetry
  /** Aborted when this process ends. */
  stopped: AbortSignal
  /** The terminal write; null when the run was taken away. */
  end: (row: ExecutionRow, outcome: endings.Outcome, remains: endings.Remains) => Promise<ExecutionRow | null>
}

/**
 * One attempt at a run, from its claim to its end, or until it waits for an approval, or is taken away. Until it is
 * `claimed` for good the model is asked, and nothing else is done.
 */
export type RunAttempt = (
  row: ExecutionRow,
  agent: claims.AgentRow,
  from: Checkpoint,
  channel: Channel,
  controller: AbortController,
  claimed: Promise<void>,
) => Promise<ExecutionRow | null>

type Prepared = Awaited<ReturnType<typeof equip>>

export function createAttempts(deps: AttemptDeps): RunAttempt {
  const { settings, db, clock, bus, log, models, journal } = deps

  /** What the attempt runs with. */
  async function prepare(row: ExecutionRow, agent: claims.AgentRow, signal: AbortSignal): Promise<Prepared> {
    const equipment = await outlast(() => equip(deps, { row, agent, signal }), signal)
    return { ...equipment, input: deps.telemetry.begin(row, agent, equipment) }
  }

  async function attempt(
    row: ExecutionRow,
    preparing: Promise<Prepared>,
    from: Checkpoint,
    channel: Channel,
    controller: AbortController,
    claimed: Promise<void>,
  ): Promise<ExecutionRow | null> {
    const { signal } = controller
    const progress: Progress = { usage: { ...from.usage }, steps: [...from.steps], asks: [] }
    let { model } = row
    let { said } = from
    let outcome: endings.Outcome = { status: 'completed', result: '' }
    let isSure = false
    const say: Say = (data) => {
      if (!isSure) {
        return claimed.then(() => {
          isSure = true
          return say(data)
        })
      }
      signal.throwIfAborted()
      said = textSoFar(said, data)
      const room = journal.append(channel, data)
      return room && unlessAborted(room, signal).then(() => signal.throwIfAborted())
    }
    const stopClock = limitTime(row, progress, controller)
    let toolbox: Toolbox | null = null
    try {
      for (const data of from.opening) await journal.append(channel, data)
      const prepared = await preparing
      model = prepared.model
      toolbox = prepared.toolbox
      await run(prepared.input, progress, say, claimed)
      await claimed
      outcome = { status: 'completed', result: said.text }
    } catch (error) {
      await claimed
      const why = signal.aborted ? signal.reason : error
      if (why instanceof Stop && why.why !== 'cancelled') {
        if (why.why === 'drained') await journal.flush()
        journal.close(channel, null)
        return null
      }
      outcome = why instanceof Stop ? { status: 'cancelled' } : { status: 'failed', error: causeOf(row, why) }
    } finally {
      if (toolbox) close(deps, toolbox)
      stopClock()
    }
    const asked = outcome.status === 'completed' ? ask(progress, channel) : []
    const { usage, steps } = progress
    const remains = { text: said.text, toolCalls: recordsOf(steps), model, usage, ...(await journal.drain(channel)) }
    const again = (error: unknown) =>
      log.error({ err: error, executionId: row.id }, 'the end of a run could not be stored, trying again')
    if (asked.length) {
      const suspend = () =>
        waits.suspend({ ...deps.claimDeps, approvalTimeout: settings.APPROVAL_TIMEOUT }, row, asked, remains)
      try {
        if (await outlast(suspend, deps.stopped, again)) {
          journal.close(channel, null)
          bus.publish('execution', [row.id])
          bus.publish('chat', [row.chatId])
          return null
        }
        outcome = { status: 'cancelled' }
      } catch (error) {
        if (deps.stopped.aborted) throw error
        outcome = { status: 'failed', error: causeOf(row, error) }
      }
    }
    const ended = await outlast(() => deps.end(row, outcome, remains), deps.stopped, again)
    journal.close(channel, ended)
    return ended
  }

  /** Tells the followers what a person has to decide about. */
  function ask({ steps, asks }: Progress, channel: Channel): waits.Asked[] {
    return asks.map((call) => {
      const asked = { id: newId(), step: steps.at(-1)?.step ?? 0, call }
      journal.append(channel, { messageType: 'approval', approvalId: asked.id, toolUseId: call.id, name: call.name })
      return asked
    })
  }

  /**
   * Ends a run after EXECUTION_TIMEOUT, without the time in which it waited for an approval; while one that it waits
   * for does, its clock stands still too. One that has waited for longer than is counted begins with all of its time.
   * Returns what stops the clock.
   */
  function limitTime(row: ExecutionRow, { steps }: Progress, controller: AbortController): () => void {
    const now = clock.now().getTime()
    const since = row.waitedMs < claims.MAX_WAITED ? (row.startedAt ?? row.createdAt).getTime() + row.waitedMs : now
    const patience = since + settings.EXECUTION_TIMEOUT - now
    let over = false
    const expire = async () => {
      const isCalling = steps.at(-1)?.calls.some(({ result }) => !result)
      const family = isCalling ? await claims.findDescendants(db, row).catch(() => []) : []
      if (over) return
      if (family.some(({ waitingFor }) => waitingFor)) timer = setTimeout(expire, settings.EXECUTION_TIMEOUT)
      else controller.abort(new TimeoutError('The run took too long'))
    }
    let timer = setTimeout(expire, Math.max(0, patience))
    return () => {
      over = true
      clearTimeout(timer)
    }
  }

  /** A provider may repeat the prompt that it was given: not in the log, and not to another organization. */
  function causeOf(row: ExecutionRow, why: unknown): string {
    const cause = why instanceof TimeoutError ? 'timeout' : models.describeError(why)
    log.warn({ executionId: row.id, ...(cause === UNEXPECTED && { err: why }) }, 'a run failed')
    const isProviders = !(why instanceof TimeoutError || why instanceof ModelError || cause === UNEXPECTED)
    if (!isProviders || row.agentOrganizationId === row.organizationId) return cause
    return /^HTTP \d+/.exec(cause)?.[0] ?? 'The model failed'
  }

  return (row, agent, from, channel, controller, claimed) => {
    // Not in the attempt itself: what it is given it keeps until its end.
    const preparing = prepare(row, agent, controller.signal)
    preparing.catch(() => {})
    return attempt(row, preparing, from, channel, controller, claimed)
  }
}
