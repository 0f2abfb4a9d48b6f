import { type Db, Prisma } from '../../db/client.ts'
import type { GivenTurn } from '../../executions/engine/queue/client-history.ts'

// The comparison of the messages that a client sends with those of a session (contract-2.md section 6).

/** Maximum number of messages of a session that are compared. A client that has more of them gets a branch. */
const MAX_COMPARED = 5_000

/** A turn of a session: the question of a run or history that a client gave, and its answer. */
export type StoredTurn = {
  sessionId: string
  /** Queue number of the turn in its session. */
  queueSeq: number
  executionId: string
  message: string | null
  answer: string | null
}

type MessageRow = {
  sessionId: string
  position: number
  role: 'user' | 'assistant'
  content: string
  executionId: string
}

/** Reads the turns of a session from the first one on, with those of the sessions that it continues. */
export async function readTurns(db: Db, sessionId: string): Promise<StoredTurn[]> {
  const rows = await db.$queryRaw<MessageRow[]>(Prisma.sql`
    WITH RECURSIVE "path" ("id", "upTo", "parentId", "parentPosition") AS (
      SELECT s."id", 2147483647, s."parentSessionId", s."parentPosition" FROM "Session" s WHERE s."id" = ${sessionId}
      UNION ALL SELECT s."id", p."parentPosition", s."parentSessionId", s."parentPosition"
        FROM "path" p JOIN "Session" s ON s."id" = p."parentId"
    )
    SELECT m."sessionId", m."position", m."role", m."content", m."executionId"
    FROM "path" p JOIN "Message" m ON m."sessionId" = p."id" AND m."position" <= p."upTo"
    ORDER BY m."position" LIMIT ${Prisma.raw(String(MAX_COMPARED))}`)
  const turns = new Map<number, StoredTurn>()
  for (const { sessionId: of, position, role, content, executionId } of rows) {
    const queueSeq = Math.ceil(Number(position) / 2)
    const turn = turns.get(queueSeq) ?? { sessionId: of, queueSeq, executionId, message: null, answer: null }
    turns.set(queueSeq, role === 'user' ? { ...turn, message: content } : { ...turn, answer: content })
  }
  return [...turns.values()]
}

/**
 * Compares the history that a client gives with the turns of a session. Returns `same`, the turn that the client's next
 * message replaces if the history ends earlier, or null if it differs.
 */
export function compare(given: readonly GivenTurn[], stored: readonly StoredTurn[]): 'same' | StoredTurn | null {
  if (given.length > stored.length) return null
  const isRepeated = given.every((turn, index) => repeats(turn, stored[index]!))
  return isRepeated ? (stored[given.length] ?? 'same') : null
}

/** Reasoning at the beginning of a line, and blocks of code. Each reaches to the end of the text if it has no end. */
const THOUGHTS = /^<think>(?:[\s\S]*?<\/think>\s*|[\s\S]*)|^```(?:[\s\S]*?^```|[\s\S]*)/gm

/** Removes the reasoning that Open WebUI puts into the answers of its history as `<think>`. */
export const withoutThoughts = (answer: string): string =>
  answer.replace(THOUGHTS, (part) => (part.startsWith('<') && part.includes('</think>') ? '' : part))

/** Ignores white space, which clients trim and renderers change. */
const plain = (text: string): string => text.replace(/\s+/g, ' ').trim()

/**
 * Returns whether a turn repeats a stored one. A client that stopped reading has the beginning of an answer, and one
 * that shows all steps of a run has more than its last step.
 */
function repeats(given: GivenTurn, stored: StoredTurn): boolean {
  if (plain(given.message ?? '') !== plain(stored.message ?? '')) return false
  if (given.answer === null || stored.answer === null) return true
  const [theirs, ours] = [plain(given.answer), plain(withoutThoughts(stored.answer))]
  return ours.startsWith(theirs) || (ours !== '' && theirs.endsWith(ours))
}
