import { type Edge, type ExecutionEvent, isTerminal, META_SEQ } from '../executions/engine/events/events.ts'
import type { ChatEvent } from '../wire.ts'
import { MAX_OTHERS, NOWHERE, type Run, toId } from './position.ts'

/** The runs of a chat that a subscriber has or gets, each up to a number. */
export type Sent = ReturnType<typeof createSent>

/** Creates the record of a new subscriber. */
export function createSent() {
  const runs = new Map<string, Run>()
  let newest: Run | null = null

  /** Returns the event id after which a client resumes: the run's latest event, the other active runs, the newest. */
  function idOf(run: Run | null): string {
    const others = [...runs.values()].filter((other) => other !== run && other !== newest && !other.isOver)
    const named = [run, ...others.slice(-MAX_OTHERS), newest === run ? null : newest].filter((other) => other !== null)
    return named.length ? toId(named.map(({ id: executionId, seq }) => ({ executionId, seq }))) : `${NOWHERE}:0`
  }

  return {
    idOf,
    newest: (): Run | null => newest,
    get: (id: string): Run | undefined => runs.get(id),
    /** Lists the runs whose terminal event was not sent. */
    open: (): Run[] => [...runs.values()].filter(({ isOver }) => !isOver),
    drop: (id: string): void => void runs.delete(id),
    /** Adds a run of which the events up to a number were sent. Later runs are newer. */
    add(edge: Edge, seq: number): Run {
      const run = { ...edge, seq, isOver: false }
      runs.set(run.id, run)
      if (!newest || isAfter(run, newest)) {
        if (newest?.isOver) runs.delete(newest.id)
        newest = run
      }
      return run
    },
    /** Marks a run as completely sent. */
    pass(edge: Edge): void {
      newest = { ...edge, seq: edge.terminalSeq ?? META_SEQ, isOver: true }
      runs.set(edge.id, newest)
    },
    /** Records an event of a run as sent. Returns it as an event of the chat. */
    toEvent(run: Run, event: ExecutionEvent): ChatEvent {
      run.seq = event.seq
      run.isOver = isTerminal(event)
      const chatEvent = { ...event, id: idOf(run), executionId: run.id, data: { ...event.data, executionId: run.id } }
      if (run.isOver && run !== newest) runs.delete(run.id)
      return chatEvent as ChatEvent
    },
  }
}

/** Returns whether a run was accepted after another one. */
export const isAfter = (a: Edge, b: Edge): boolean =>
  a.createdAt > b.createdAt || (a.createdAt.getTime() === b.createdAt.getTime() && a.id > b.id)
