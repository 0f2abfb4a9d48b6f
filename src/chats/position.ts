import type { Edge } from '../executions/engine/events/events.ts'

/** A run of the chat with the position up to which it has been sent. */
export type Run = Edge & { seq: number; isOver: boolean }

/**
 * Position of a subscriber in the order in which runs were accepted. All runs of the chat up to the newest named one
 * have been sent, the named ones up to a number. Its text is `<executionId>:<seq>`: the latest event first, then each
 * other active run and the newest.
 */
export type ChatPosition = { executionId: string; seq: number }[]

/** Position of a subscriber of a chat without runs. */
export const NOWHERE = '-'

/** Maximum number of active runs in a position beside the latest event and the newest run. */
export const MAX_OTHERS = 50

/** Writes a position as an event id. */
export const toId = (position: ChatPosition): string =>
  position.map(({ executionId, seq }) => `${executionId}:${seq}`).join(',')

/** Parses an event id. Returns null for an invalid one. */
export function toPosition(id: string): ChatPosition | null {
  const parts = id.split(',').map((part) => /^([\w-]{1,64}):(\d{1,10})$/.exec(part))
  if (parts.length > MAX_OTHERS + 2) return null
  const position = parts.flatMap((part) => (part ? [{ executionId: part[1]!, seq: Number(part[2]) }] : []))
  return position.length === parts.length ? position : null
}
