import type { Message, Part } from '@a2a-js/sdk'
import { ContentTypeNotSupportedError, RequestMalformedError } from '@a2a-js/sdk/errors'
import { MAX_NAME } from '../../http/door-schemas.ts'
import { checkInput } from '../../lib/fields.ts'

/** Reads a message of a client. Throws RequestMalformedError, or ContentTypeNotSupportedError for a file. */
export function readMessage(message: Message | undefined) {
  if (typeof message?.messageId !== 'string' || !message.messageId) {
    throw new RequestMalformedError('The message has no messageId')
  }
  const { messageId, contextId = '', parts } = message
  if (typeof contextId !== 'string' || !Array.isArray(parts)) {
    throw new RequestMalformedError('Invalid message: contextId is a text, parts are a list')
  }
  if (contextId.length > MAX_NAME) throw new RequestMalformedError(`A contextId has at most ${MAX_NAME} characters`)
  const content = parts.map(textOf).join('\n\n')
  checkInput([content, contextId, messageId])
  return { messageId, contextId, content }
}

/** Returns the text of a part. Throws ContentTypeNotSupportedError for a file. */
function textOf(part: Part): string {
  const { content, mediaType } = part ?? {}
  switch (content?.$case) {
    case 'text':
      return String(content.value)
    case 'data':
      return JSON.stringify(content.value)
    default:
      throw new ContentTypeNotSupportedError(`A part of type ${mediaType || 'file'} cannot be read: send text or data`)
  }
}
