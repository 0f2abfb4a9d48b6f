/** Reason for which a run is stopped from outside. */
export class Stop extends Error {
  readonly why: 'cancelled' | 'lost' | 'drained'
  constructor(why: Stop['why']) {
    super(why)
    this.why = why
  }
}

/** The model was silent for too long, or the whole run took too long (contract.md section 4, "Time"). */
export class TimeoutError extends Error {
  override name = 'TimeoutError'
}
