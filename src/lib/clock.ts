/** Where the time comes from; tests give another. */
export type Clock = { now: () => Date }

export const systemClock: Clock = { now: () => new Date() }
