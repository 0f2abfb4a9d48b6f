import type { Actor } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import { type ExecutionRow, metaEvent, readEvents, terminalEvent } from '../../executions/engine/events/events.ts'
import type { Context } from '../../trpc.ts'
import type { ExecutionEvent } from '../../wire.ts'
import { createPartReader, followParts, type Part } from '../shared/run-parts.ts'
import { noteOf } from '../shared/wait.ts'
import { RUN_ERROR, toErrorEvent, toResponseCode } from './errors.ts'
import { createItemReader, type ItemEvent } from './items.ts'
import { isCutByRequest } from './own-limit.ts'
import { type ResponseRef, type State, toResponse } from './response.ts'

/** An event of a response. */
export type ResponseEvent = ItemEvent & { sequence_number: number }

/**
 * Number of sequence numbers that one event of the log has, more than the events that it becomes. So a number names the
 * same event each time that a response is read.
 */
const NUMBERS = 1024
/** Numbers of the first events of a response that continues a run, after those of the event before it. */
const CONTINUED = 1000

const INCOMPLETE: Readonly<Record<string, string>> = {
  max_tokens: 'max_output_tokens',
  max_turns: 'max_turns',
  budget: 'budget',
  content_filter: 'content_filter',
  refusal: 'content_filter',
}

/** Returns the state of a response of a run that ends with a part, or null for any other part. */
function endOf(row: Pick<ExecutionRow, 'overrides'>, part: Part): State | null {
  switch (part.type) {
    case 'client-tools':
      return { status: 'completed', usage: part.usage, completedAt: part.at }
    case 'completed': {
      const reason = INCOMPLETE[part.stopReason ?? '']
      return { status: reason ? 'incomplete' : 'completed', reason, usage: part.usage, completedAt: part.at }
    }
    case 'failed':
    case 'cancelled': {
      if (isCutByRequest(row, part))
        return { status: 'incomplete', reason: INCOMPLETE.max_tokens, completedAt: part.at }
      const message = part.detail ? `${part.message}: ${part.detail}` : part.message
      return { status: part.type, error: { code: part.code, message } }
    }
    default:
      return null
  }
}

/** Reads a response: feeds the parts of its run, and returns its events and, at its end, its state. */
function createResponseReader(deps: Pick<Deps, 'settings'>, ref: ResponseRef) {
  const { row, after } = ref
  const items = createItemReader(row, (part) => noteOf(deps, part))
  let state: State | null = null
  let count = 0
  let lastSeq = 0

  const numbered = (seq: number, events: readonly ItemEvent[]): ResponseEvent[] => {
    if (seq !== lastSeq) count = 0
    lastSeq = seq
    return events.map((event) => ({ ...event, sequence_number: seq * NUMBERS + count++ }))
  }

  const snapshot = (of: State) => toResponse(ref, items.output(), of)

  function opening(): ItemEvent[] {
    const response = toResponse(ref, [], { status: 'in_progress' })
    return ['created', 'in_progress'].map((name) => ({ type: `response.${name}`, response }))
  }

  return {
    state: () => state,
    /** The response as far as it was read. */
    snapshot: (of: State) => snapshot(state ?? of),
    begin: (): ResponseEvent[] =>
      after
        ? opening().map((event, index) => ({ ...event, sequence_number: after * NUMBERS + CONTINUED + index }))
        : [],
    read(part: Part): ResponseEvent[] {
      if (part.seq <= after || state) return []
      if (part.type === 'start') return numbered(part.seq, opening())
      const end = endOf(row, part)
      if (!end) return numbered(part.seq, items.read(part))
      const events = items.finish(end.status === 'incomplete')
      state = end
      const { error } = end
      if (error) {
        events.push(toErrorEvent({ ...error, type: RUN_ERROR, param: null, code: toResponseCode(error.code) }))
      }
      const name = end.status === 'cancelled' ? 'failed' : end.status
      return numbered(part.seq, [...events, { type: `response.${name}`, response: snapshot(end) }])
    },
  }
}

/** Follows a response as events, in batches, up to its end. */
export async function* followResponse(
  context: Pick<Context, 'deps' | 'streamTo'>,
  actor: Actor,
  ref: ResponseRef,
): AsyncGenerator<ResponseEvent[]> {
  const reader = createResponseReader(context.deps, ref)
  yield reader.begin()
  for await (const parts of followParts(context, actor, ref.row)) {
    yield parts.flatMap((part) => reader.read(part))
    if (reader.state()) return
  }
}

/** Reads a response as it is stored now. */
export async function readResponse(deps: Pick<Deps, 'db' | 'settings'>, ref: ResponseRef) {
  const { row } = ref
  const toParts = createPartReader(row)
  const reader = createResponseReader(deps, ref)
  const feed = (event: ExecutionEvent) => {
    for (const part of toParts(event)) reader.read(part)
  }
  feed(metaEvent(row))
  for await (const events of readEvents(deps.db, row.id, 0)) for (const event of events) feed(event)
  const terminal = terminalEvent(row)
  if (terminal) feed(terminal)
  const status = row.status === 'pending' && row.attempt === 0 ? 'queued' : 'in_progress'
  return { response: reader.snapshot({ status }), state: reader.state() }
}
