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
