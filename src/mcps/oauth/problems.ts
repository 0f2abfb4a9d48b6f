import {
  InsecureTokenEndpointError,
  IssuerMismatchError,
  OAuthError,
  RegistrationRejectedError,
} from '@modelcontextprotocol/client'
import { parseJson } from '../../lib/json.ts'
import { asList, asObject } from '../../lib/unknown.ts'
import { cleaner } from '../client/content.ts'
import { causeIn } from '../client/reasons.ts'
import { AuthorizationProblem, LATE } from '../client/unreachable.ts'

// Errors of authorization servers, for people.

/** Executes the work. Throws an {@link AuthorizationProblem} for any error of it. */
export async function explained<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (cause) {
    throw toProblem(cause)
  }
}

/**
 * Returns the problem of an error. Its `cause` is for the log, and only there if it quotes no answer: those of a token
 * endpoint may contain tokens, or repeat the secrets that were sent.
 */
function toProblem(error: unknown): AuthorizationProblem {
  if (error instanceof AuthorizationProblem) return error
  if (error instanceof IssuerMismatchError) {
    return new AuthorizationProblem('the answer is of another authorization server (issuer mismatch)', { cause: error })
  }
  if (error instanceof InsecureTokenEndpointError) {
    return new AuthorizationProblem('the token endpoint of the authorization server is not https', { cause: error })
  }
  if (error instanceof RegistrationRejectedError) {
    const { error: code } = asObject(parseJson(error.body))
    const why = typeof code === 'string' ? ` (${codeOf(code) ?? 'an error'})` : ''
    return new AuthorizationProblem(`the authorization server does not register this service${why}: give a clientId`)
  }
  if (error instanceof OAuthError) {
    const isFinal = !TEMPORARY.has(error.code)
    const code = codeOf(error.code)
    return new AuthorizationProblem(`the authorization server answered ${code ?? 'an error'}`, { isFinal, code })
  }
  if (error instanceof Error && (error.name === 'TimeoutError' || error.name === 'AbortError')) {
    return new AuthorizationProblem(LATE, { code: 'timeout', cause: error })
  }
  const reason = invalidField(error) ?? causeIn(error, cleaner([])) ?? 'its answer is not valid'
  const isQuote = error instanceof SyntaxError
  return new AuthorizationProblem(`the authorization server cannot be used: ${reason}`, isQuote ? {} : { cause: error })
}

/**
 * Errors after which asking again may help. Any other one is final: some servers refuse ended tokens with other codes
 * than `invalid_grant`, and the user can only connect again.
 */
const TEMPORARY: ReadonlySet<string> = new Set([
  'server_error',
  'temporarily_unavailable',
  'slow_down',
  'too_many_requests',
])

/** Returns the code of an error, unless it may be a text. */
export const codeOf = (code: string): string | undefined => (/^[a-z_]{1,60}$/.test(code) ? code : undefined)

/** Names the field for which an answer is not valid. */
function invalidField(error: unknown): string | null {
  if (!(error instanceof Error) || error.name !== 'ZodError') return null
  const [issue] = asList((error as { issues?: unknown }).issues)
  const field = asList(asObject(issue).path).join('.')
  return `its answer is not valid${/^[\w.]{1,60}$/.test(field) ? ` (${field})` : ''}`
}
