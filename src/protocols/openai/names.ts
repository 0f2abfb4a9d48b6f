import type { IncomingMessage } from 'node:http'
import { invalidField } from '../../errors.ts'
import { MAX_NAME } from '../../http/door-schemas.ts'

/** Headers in which clients name a conversation (contract-2.md section 6). */
const HEADERS = ['x-session-id', 'x-openwebui-chat-id', 'thread-id'] as const

/** Returns the client's name of the conversation, or null. Throws 400 for one that is too long. */
export function conversationName(req: IncomingMessage): string | null {
  const name = HEADERS.map((header) => req.headers[header]).find((value) => typeof value === 'string' && value !== '')
  return typeof name === 'string' ? checkName(name, 'X-Session-Id') : null
}

/** Checks the length of a name of a conversation. Throws 400. */
export function checkName(name: string, field: string): string {
  if (name.length <= MAX_NAME && name.isWellFormed() && !name.includes('\0')) return name
  throw invalidField(field, `at most ${MAX_NAME} characters`)
}
