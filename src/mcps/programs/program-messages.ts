import { deserializeMessage, type JSONRPCMessage } from '@modelcontextprotocol/client'
import { asObject } from '../../lib/unknown.ts'
import { mendMessage } from '../client/mend-message.ts'

// The messages in the lines that a program writes.

/** The beginning of a message, and the maximum length of what precedes it in its line (characters). */
const MESSAGE = /\{\s*"(?:jsonrpc|id|result|error|method|params)"\s*:/
const MAX_BEFORE = 1000

/**
 * Parses the messages of a line, mostly one. Control characters of a terminal, or an unfinished line for people, may
 * precede them.
 */
export function messagesOf(text: string): JSONRPCMessage[] {
  try {
    return messagesIn(mendMessage(text))
  } catch (error) {
    const at = text.slice(0, MAX_BEFORE).search(MESSAGE)
    if (at <= 0) throw error
    return messagesIn(mendMessage(text.slice(at)))
  }
}

/** Returns a message, or those of a batch. */
function messagesIn(json: string): JSONRPCMessage[] {
  if (!json.startsWith('[')) return [deserializeMessage(json)]
  return (JSON.parse(json) as unknown[]).map((message) => deserializeMessage(JSON.stringify(message)))
}

/** Methods with which programs log, and the levels of entries that are no failures. */
const LOGS: ReadonlySet<string> = new Set(['notifications/message', 'log'])
const HARMLESS: ReadonlySet<unknown> = new Set(['debug', 'info', 'notice'])

/** Returns the text of a logged failure, which may be all that a program says before it ends; empty for the rest. */
export function failureIn(message: JSONRPCMessage): string {
  if (!('method' in message) || !LOGS.has(message.method)) return ''
  const { level, data, message: text = data } = asObject(message.params)
  if (HARMLESS.has(level) || text === undefined) return ''
  return `${typeof text === 'string' ? text : JSON.stringify(text)}\n`
}
