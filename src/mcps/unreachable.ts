/** Thrown if a server cannot be used. The public message has only texts of the server that were cleaned. */
export class UnreachableServer extends Error {
  override name = 'UnreachableServer'
}

/** A request to an authorization server that failed. The message is public. */
export class AuthorizationProblem extends UnreachableServer {
  override name = 'AuthorizationProblem'
  /** Whether the server has refused the tokens or the client, so that asking again is useless. */
  readonly isFinal: boolean

  constructor(message: string, { isFinal = false, cause }: { isFinal?: boolean; cause?: unknown } = {}) {
    super(message, { cause })
    this.isFinal = isFinal
  }
}
