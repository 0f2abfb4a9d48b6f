import { badRequest, invalidField } from '../../errors.ts'
import type { ClientConversation, ClientResult } from './turns.ts'

/** Maximum length of a message, like that of an execute request (characters). */
const MAX_MESSAGE = 200_000

/** Stands between a message and the results of tools that others have called for it. */
const RESULTS_FOLLOW = '[Results of tools that were called for this message follow]'

/** Stands for the message after an answer at the end of a conversation. */
const CONTINUE = 'Continue.'

/**
 * Returns the conversation of a client with a question if it ends without one. After an answer, such as the thoughts and
 * observations of a ReAct loop, the agent is asked to continue. Results that no run waits for, such as those of another
 * agent that hands over, are part of the question, because the history has results shortened, and none for agents
 * without tools. Returns the same conversation if calls lack their results, or results their question or their calls.
 */
export function withQuestion(conversation: ClientConversation): ClientConversation {
  const { results, history, question } = conversation
  const last = history.at(-1)
  if (question === null && !results.length && last?.answer && last.toolCalls.every(({ result }) => result !== null)) {
    return { ...conversation, question: CONTINUE }
  }
  const hasCall = ({ id }: ClientResult) => last?.toolCalls.some((call) => call.id === id)
  if (!last?.message || !results.length || !results.every(hasCall)) return conversation
  const made = last.toolCalls.map(({ name, input, result }) => `${name}(${JSON.stringify(input)}):\n${result ?? ''}`)
  return {
    ...conversation,
    history: last.answer === null ? history.slice(0, -1) : history,
    files: last.files,
    question: [last.message, RESULTS_FOLLOW, ...made].join('\n\n'),
  }
}

/**
 * Checks the message that a run answers. `field`: where the client has it. Throws 400 for none, and for a longer one.
 */
export function checkQuestion(question: string | null, field: string): string {
  if (question === null) {
    const detail = 'The agent answers the last message: it needs the role user.'
    throw invalidField(field, 'a message of the user at the end', detail)
  }
  if (!question.trim())
    throw badRequest(`Missing required field: ${field}`, { detail: 'The last message is empty: write a text.' })
  if (question.length > MAX_MESSAGE) {
    const detail = `It has ${question.length}. Shorten it, or attach the text as a file.`
    throw invalidField(field, `a last message of at most ${MAX_MESSAGE} characters`, detail)
  }
  return question
}
