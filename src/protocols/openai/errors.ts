import type { ServerResponse } from 'node:http'
import { AppError, textOf } from '../../errors.ts'
import { sendJson } from '../../http/body.ts'

/** The types of OpenAI's errors by status. */
const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  429: 'rate_limit_error',
}

/**
 * The type of the error of a run, which has ended or goes on without its caller. Clients that only read bodies repeat a
 * `server_error`, as opencode and Continue do, and so would run the agent again.
 */
export const RUN_ERROR = 'run_error'

/** The codes by which clients of OpenAI shorten a conversation or wait, by ours. */
const CODES: Readonly<Record<string, string>> = {
  context_too_long: 'context_length_exceeded',
  rate_limited: 'rate_limit_exceeded',
}

/** Returns the code of OpenAI for one of ours. */
export const toOpenAICode = (code: string): string => CODES[code] ?? code

/**
 * Codes of failed runs that would fail or cost the same again; requests to a provider were repeated already. After an
 * unknown code, Codex and opencode repeat the request up to five times, with all tools of the agent. At
 * `invalid_prompt` they stop, and show the message.
 */
const FINAL: ReadonlySet<string> = new Set([
  'cancelled',
  'timeout',
  'content_filtered',
  'invalid_output',
  'provider_error',
  'model_not_available',
  'secret_not_allowed',
  'not_found',
  'forbidden',
  'insufficient_scope',
  'budget_exceeded',
  'price_unknown',
])

/** Returns the code of a failed response for one of ours. */
export const toResponseCode = (code: string): string => (FINAL.has(code) ? 'invalid_prompt' : toOpenAICode(code))

const NO_PREVIOUS = 'Send the whole conversation as `input`, without `previous_response_id`.'

/** Returns the 404 for the response that a request continues. */
export const previousNotFound = () => new AppError(404, 'Execution not found', { detail: NO_PREVIOUS })

/** Returns the code and the field by which clients of OpenAI recognize an error. */
function identify({ status, message, detail, code }: AppError): { code: string; param?: string } {
  if (status === 401) return { code: 'invalid_api_key' }
  if (message === 'Agent not found') return { code: 'model_not_found' }
  // Clients then repeat the request with the whole conversation.
  if (detail === NO_PREVIOUS) return { code: 'previous_response_not_found', param: 'previous_response_id' }
  return { code: toOpenAICode(code) }
}

/** Returns an error in the form of OpenAI. */
export function toOpenAIError(error: AppError) {
  const { status, message, executionId } = error
  const type = TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'server_error')
  const [, param = null] = /(?:field|parameter): ([\w-]+(?:\.[\w-]+)*)/.exec(message) ?? []
  return {
    error: {
      message: textOf(error),
      type: executionId === undefined ? type : RUN_ERROR,
      param,
      ...identify(error),
    },
  }
}

/**
 * Returns the event of an error in a stream of a response, in both forms that OpenAI's clients read. Its libraries
 * throw it, while several ignore the `response.failed` after it, such as LangChain.
 */
export const toErrorEvent = (error: ReturnType<typeof toOpenAIError>['error']) => ({ ...error, type: 'error', error })

/**
 * Sends an error in the form of OpenAI. OpenAI's clients repeat requests after 409 and 5xx. The error of a run that
 * has ended forbids that, because they would run the agent again, with all of its tools. After the 503 of a server that
 * stops, the repetition joins the run (shared/unanswered.ts).
 */
export const sendOpenAIError = (res: ServerResponse, error: AppError): void =>
  sendJson(res, error.status, toOpenAIError(error), {
    ...error.headers,
    ...(error.executionId && error.status !== 503 && { 'X-Should-Retry': 'false' }),
  })
