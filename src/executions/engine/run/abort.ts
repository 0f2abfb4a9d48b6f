/** Reason for which a run is stopped from outside. */
export class AbortReason extends Error {
  readonly reason: 'cancelled' | 'lost' | 'drained'
  constructor(why: AbortReason['reason']) {
    super(why)
    this.reason = why
  }
}

/** The model was silent for too long, or the whole run took too long (contract.md section 4, "Time"). */
export class TimeoutError extends Error {
  override name = 'TimeoutError'
}

/** Thrown for a tool call whose user must connect to an MCP server first (contract-2.md section 2.13). */
export class AuthorizationNeeded extends Error {
  override name = 'AuthorizationNeeded'
  readonly server: { id: string; name: string }

  constructor({ id, name }: { id: string; name: string }) {
    super(`The user is not connected to the MCP server ${name}`)
    this.server = { id, name }
  }
}
