import type { Prisma, Tx } from '../../../db/client.ts'
import { chunk } from '../../../lib/chunk.ts'
import { newSortableId } from '../../../lib/id.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { CallRecord } from '../run/steps.ts'

// History that clients of other protocols give with their requests (contract-2.md section 6).

/** A turn that a client gives as history: no run of this service has answered it here. */
export type GivenTurn = {
  /** Null if the conversation begins with an answer. */
  message: string | null
  answer: string | null
  toolCalls: readonly CallRecord[]
}

/** Returns the messages of a turn that a client gives, each with its place in the turn. */
export const messagesOf = ({ message, answer, toolCalls }: GivenTurn) => [
  ...(message === null ? [] : [{ place: 1, role: 'user' as const, content: message, toolCalls: [] }]),
  ...(answer === null && !toolCalls.length
    ? []
    : [{ place: 2, role: 'assistant' as const, content: answer ?? '', toolCalls }]),
]

/** Writes the history that a client gives as messages of the session, before the question of its first run. */
export async function writeGiven(
  tx: Tx,
  { organizationId, chatId, sessionId, id: executionId }: ExecutionRow,
  given: readonly GivenTurn[],
  createdAt: Date,
): Promise<void> {
  const data = given.flatMap((turn, index) =>
    messagesOf(turn).map(({ place, role, content, toolCalls }) => ({
      id: newSortableId(createdAt),
      organizationId,
      chatId,
      sessionId,
      executionId,
      position: index * 2 + place,
      role,
      content,
      toolCalls: toolCalls as Prisma.InputJsonArray,
      createdAt,
    })),
  )
  for (const part of chunk(data, MAX_INSERTED)) await tx.message.createMany({ data: [...part] })
}

/** Maximum number of messages in one statement. */
const MAX_INSERTED = 100
