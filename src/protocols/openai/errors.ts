import type { ServerResponse } from 'node:http'
import type { AppError } from '../../errors.ts'
import { sendJson } from '../../http/body.ts'

/** The types of OpenAI's errors by status. */
const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  429: 'rate_limit_error',
}

/** Codes that clients of OpenAI know, by message. */
const CODES: Readonly<Record<string, string>> = { 'Agent not found': 'model_not_found' }

/** Returns an error in the form of OpenAI. */
export function toOpenAIError({ status, message, detail, code }: AppError) {
  const [, param = null] = /(?:field|parameter): ([\w-]+(?:\.[\w-]+)*)/.exec(message) ?? []
  return {
    error: {
      message: detail ? `${message}. ${detail}`.replace(/\.\. /, '. ') : message,
      type: TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'server_error'),
      param,
      code: status === 401 ? 'invalid_api_key' : (CODES[message] ?? code),
    },
  }
}

/**
 * Sends an error in the form of OpenAI. Its clients repeat requests after 409 and 5xx, so the error of a run that has
 * ended tells them not to: they would run the agent again, with all of its tools.
 */
export const sendOpenAIError = (res: ServerResponse, error: AppError): void =>
  sendJson(res, error.status, toOpenAIError(error), {
    ...error.headers,
    ...(error.executionId && { 'X-Should-Retry': 'false' }),
  })
