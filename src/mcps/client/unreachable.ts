/** Thrown if a server cannot be used. The message is public. */
export class UnreachableServer extends Error {
  override name = 'UnreachableServer'
  readonly #said: string

  /** `said`: the words of the server's own error, cleaned; empty without any. */
  constructor(message: string, { said = '', cause }: { said?: string; cause?: unknown } = {}) {
    super(message, { cause })
    this.#said = said
  }

  /** The message with the words of the server, which are for people and not for the log. */
  get messageForPeople(): string {
    return this.#said ? `${this.message}: ${this.#said}` : this.message
  }
}

/** Message of an {@link AuthorizationProblem}. */
export const LATE = 'the authorization server does not answer in time'

/** A request to an authorization server that failed. The message is public. */
export class AuthorizationProblem extends UnreachableServer {
  override name = 'AuthorizationProblem'
  /** Whether the server has refused the tokens or the client, so that asking again is useless. */
  readonly isFinal: boolean
  /** The code with which the server has refused, such as `access_denied`, or `timeout`. */
  readonly code: string | undefined

  constructor(
    message: string,
    { isFinal = false, code, cause }: { isFinal?: boolean; code?: string | undefined; cause?: unknown } = {},
  ) {
    super(message, { cause })
    this.isFinal = isFinal
    this.code = code
  }
}
