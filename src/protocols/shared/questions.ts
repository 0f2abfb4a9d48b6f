import { badRequest, invalidField } from '../../errors.ts'

/** Maximum length of a message, like that of an execute request (characters). */
const MAX_MESSAGE = 200_000

/**
 * Checks the message that a run answers. `field`: where the client has it. Throws 400 for none, and for a longer one.
 */
export function checkQuestion(question: string | null, field: string): string {
  if (question === null) {
    const detail = 'The agent answers the last message: it needs the role user.'
    throw invalidField(field, 'a message of the user at the end', detail)
  }
  if (!question.trim()) throw badRequest(`Missing required field: ${field}`, { detail: 'The last message is empty.' })
  if (question.length > MAX_MESSAGE) {
    const detail = `It has ${question.length}. Shorten it, or attach the text as a file.`
    throw invalidField(field, `a last message of at most ${MAX_MESSAGE} characters`, detail)
  }
  return question
}
