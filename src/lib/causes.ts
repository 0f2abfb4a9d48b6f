/** Maximum number of causes, in case an error is its own cause. */
const MAX_DEPTH = 20

/** Yields an error and its causes, the outermost first. An AggregateError has its first error as cause. */
export function* causesOf(error: unknown): Generator<Error> {
  let cause = error
  for (let depth = 0; cause instanceof Error && depth < MAX_DEPTH; depth++) {
    yield cause
    const [first]: unknown[] = cause instanceof AggregateError ? cause.errors : []
    cause = first ?? cause.cause
  }
}
