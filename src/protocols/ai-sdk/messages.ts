import type { z } from 'zod'
import type { UIMessage } from '../../http/door-schemas.ts'
import { asObject, asText } from '../../lib/unknown.ts'
import type { Decision } from '../shared/approvals.ts'
import type { GivenFile } from '../shared/attachments.ts'
import { type ClientConversation, type ClientResult, createTurns } from '../shared/turns.ts'

type Message = z.output<typeof UIMessage>
type UIPart = Message['parts'][number]

const isTool = ({ type }: UIPart): boolean => type === 'dynamic-tool' || type.startsWith('tool-')

const nameOf = (part: UIPart): string => (part.type === 'dynamic-tool' ? asText(part.toolName) : part.type.slice(5))

/** Reads the messages of a request as turns, and the instructions beside them. */
export function readMessages(messages: readonly Message[], system?: string | null): ClientConversation {
  const turns = createTurns()
  if (system) turns.instruct(system)
  for (const message of messages) {
    const text = textOf(message)
    if (message.role === 'system') turns.instruct(text)
    else if (message.role === 'user') turns.ask(text, filesOf(message))
    else {
      turns.answer(text)
      for (const part of message.parts.filter(isTool)) addCall(turns, part)
    }
  }
  return turns.finish()
}

function addCall(turns: ReturnType<typeof createTurns>, part: UIPart): void {
  const id = asText(part.toolCallId)
  turns.call(id, nameOf(part), part.input ?? {})
  const result = resultOf(part)
  if (result) turns.result(id, result.content, result.isError)
}

function resultOf(part: UIPart): ClientResult | null {
  const id = asText(part.toolCallId)
  if (part.state === 'output-error') return { id, content: asText(part.errorText), isError: true }
  if (part.state !== 'output-available') return null
  return {
    id,
    content: typeof part.output === 'string' ? part.output : JSON.stringify(part.output ?? null),
    isError: false,
  }
}

const textOf = ({ role, parts }: Message): string =>
  parts.flatMap((part) => (part.type === 'text' ? asText(part.text) : [])).join(role === 'user' ? '' : '\n\n')

const filesOf = ({ parts }: Message): GivenFile[] =>
  parts.flatMap((part) => {
    if (part.type !== 'file') return []
    return { url: asText(part.url), ...(typeof part.filename === 'string' && { name: part.filename }) }
  })

/** Returns the decisions in the last message, if it is an answer whose calls a person has decided. */
export function decisionsIn(message: Message | undefined): Decision[] {
  if (message?.role !== 'assistant') return []
  return message.parts.filter(isTool).flatMap((part) => {
    if (part.state !== 'approval-responded') return []
    const { id, approved, reason } = asObject(part.approval)
    return { approvalId: asText(id), isApproved: approved === true, ...(reason ? { reason: asText(reason) } : {}) }
  })
}

/** Returns the results of the page's own tools, if the last step of the last message is one of calls that have them. */
export function resultsIn(message: Message | undefined): ClientResult[] {
  if (message?.role !== 'assistant') return []
  const last = message.parts.slice(message.parts.findLastIndex(({ type }) => type === 'step-start') + 1)
  // Tools of the service are dynamic ones for the page.
  return last.filter(({ type }) => type.startsWith('tool-')).flatMap((part) => resultOf(part) ?? [])
}
