import type { Live, LiveRun } from './live.ts'

/** A message that the chat does not list yet. Its key prevents duplicates. */
export type Outgoing = {
  key: string
  text: string
  /** The newest run that the chat listed when it was sent. Its own message is listed later. */
  after?: string
  /** Its files, its branch, and the message that it replaces. */
  details?: { mediaIds?: string[]; sessionId?: string; replaces?: string }
  /** The run that answers it, once it is accepted. */
  executionId: string | null
  error: string | null
  /** Whether its run has ended. The chat lists no message of a run that was stopped while it waited for its turn. */
  hasEnded?: boolean
}

/** The question of a run that waits for its turn. The chat lists it as a message once the run has begun. */
export type WaitingQuestion = { executionId: string; userId: string; message: string }

type Listed = { executionId: string; branch: string; role: string; content: string }

/** An outgoing message, with its author unless this page has sent it. */
type Unlisted = Outgoing & { userId?: string }

const toUnlisted = ({ executionId, userId, message }: WaitingQuestion): Unlisted => ({
  key: executionId,
  text: message,
  executionId,
  userId,
  error: null,
})

/**
 * Lists the messages that this page sends and the waiting questions of other live runs, each once, in the order in
 * which the server accepted them.
 */
export function unlistedMessages(
  outgoing: readonly Outgoing[],
  waiting: readonly WaitingQuestion[],
  messages: readonly Listed[],
  live: Live,
): Unlisted[] {
  // The page may read the list before it has the id, if the answer to the message comes late.
  const isListed = ({ text, error, after }: Outgoing) =>
    error === null &&
    messages.some(
      ({ role, content, executionId }) =>
        role === 'user' &&
        content === text &&
        after !== undefined &&
        isBefore(after, executionId) &&
        !outgoing.some((one) => one.executionId === executionId),
    )
  // The server may list a run before the page has its id. It lists the beginning of a long message.
  const isOutgoing = ({ executionId, message }: WaitingQuestion) =>
    outgoing.some((one) => (one.executionId ? one.executionId === executionId : one.text.startsWith(message)))
  const isShown = (question: WaitingQuestion) => {
    const run = live.get(question.executionId)
    if (!run || run.status === 'cancelled' || isOutgoing(question)) return false
    // A run in a new branch answers a listed question again, and begins at once.
    const isInBranch = !messages.length || messages.some(({ branch }) => branch === run.sessionId)
    return isInBranch && !messages.some(({ executionId }) => executionId === run.executionId)
  }
  const accepted = [
    ...waiting.filter(isShown).map(toUnlisted),
    ...outgoing.filter(({ executionId }) => executionId !== null),
  ]
  return [
    ...accepted.toSorted((a, b) => (isBefore(a.executionId, b.executionId) ? -1 : 1)),
    ...outgoing.filter((one) => one.executionId === null && !isListed(one)),
  ]
}

/** Returns whether a run was accepted before another: ids begin with the time. */
const isBefore = (one: string | null, other: string | null) => (one ?? '') < (other ?? '')

/** Returns whether a run waits for an earlier one of its session. */
export const waitsForTurn = ({ executionId, sessionId, status }: LiveRun, running: readonly LiveRun[]): boolean =>
  status === 'running' &&
  running.some((other) => other.sessionId === sessionId && isBefore(other.executionId, executionId))
